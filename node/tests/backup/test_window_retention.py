"""Which backups by schedule stay for the recovery window of an archive."""

from __future__ import annotations

from txlog.backup.backup_manifest import BackupManifest, ManifestPosition
from txlog.backup.catalogue import COMPLETE, CatalogueEntry
from txlog.backup.retention import DAY_S, expired_backups

CLUSTER = "ab" * 16
NOW = 100 * DAY_S


def backup(days_ago: float, engine: str = "oxigraph", data_center: str = "uk", state: str = COMPLETE) -> CatalogueEntry:
    name = f"{engine}-{data_center}-{days_ago:g}"
    manifest = BackupManifest(
        name=name,
        cluster=CLUSTER,
        data_center=data_center,
        worker="w",
        engine=engine,
        place=ManifestPosition(1, int(100 - days_ago), "00" * 16),
        quads=0,
        graphs=0,
        digest="",
        parts=[],
        started=NOW - days_ago * DAY_S - 1,
        finished=NOW - days_ago * DAY_S,
        why="schedule",
        retention="normal",
        version="0",
    )
    return CatalogueEntry(name, state, manifest, 1, 0.0, False)


def expired(listed: list[CatalogueEntry], window_days: float | None) -> set[float]:
    window_s = None if window_days is None else window_days * DAY_S
    gone = expired_backups(listed, CLUSTER, "uk", 1, None, NOW, window_s)
    return {float(name.rpartition("-")[2]) for name in gone}


def test_the_newest_before_the_window_and_all_in_it_stay() -> None:
    listed = [backup(days) for days in (1, 5, 9, 13, 17, 21)]
    assert expired(listed, None) == {5, 9, 13, 17, 21}
    assert expired(listed, 14) == {21}
    assert expired(listed, 13) == {17, 21}, "one that was finished when the window begins is before it"
    assert expired(listed, 30) == set(), "nothing is before the window yet"


def test_each_engine_has_its_own() -> None:
    listed = [backup(days) for days in (1, 15, 20)] + [backup(days, "fuseki") for days in (2, 18, 25)]
    assert expired(listed, 14) == {20, 25}


def test_those_of_others_and_damaged_ones_do_not_count() -> None:
    listed = [backup(1), backup(15, data_center="us"), backup(16, state="PartMissing"), backup(20), backup(22)]
    assert expired(listed, 14) == {22}
