"""Which backups by schedule stay for the recovery window of an archive."""

from __future__ import annotations

from pathlib import Path

import msgspec

from txlog.archive.file_name import Node
from txlog.archive.stream import Stream, StreamId
from txlog.backup.archive_floor import read_archive_floor
from txlog.backup.backup_manifest import BackupManifest, ManifestPosition
from txlog.backup.catalogue import COMPLETE, CatalogueEntry
from txlog.backup.folder_target import FolderTarget
from txlog.backup.retention import DAY_S, expired_backups

CLUSTER = "ab" * 16
NOW = 100 * DAY_S


def backup(
    days_ago: float,
    engine: str = "oxigraph",
    data_center: str = "uk",
    state: str = COMPLETE,
    index: int | None = None,
) -> CatalogueEntry:
    name = f"{engine}-{data_center}-{days_ago:g}"
    manifest = BackupManifest(
        name=name,
        cluster=CLUSTER,
        data_center=data_center,
        worker="w",
        engine=engine,
        place=ManifestPosition(1, int(100 - days_ago) if index is None else index, "00" * 16),
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


def expired(listed: list[CatalogueEntry], floor: int | None) -> set[float]:
    gone = expired_backups(listed, CLUSTER, "uk", 1, None, NOW, floor)
    return {float(name.rpartition("-")[2]) for name in gone}


def test_all_from_the_floor_of_the_archive_on_stay() -> None:
    listed = [backup(days) for days in (1, 5, 9, 13, 17, 21)]
    assert expired(listed, None) == {5, 9, 13, 17, 21}
    assert expired(listed, 83) == {21}, "one at the floor is a base"
    assert expired(listed, 84) == {17, 21}
    assert expired(listed, 0) == set(), "no file of the archive was deleted yet"


def test_an_idle_log_keeps_its_first_backup_and_the_newest() -> None:
    """The window ends at the last entry, so it does not move: what was before that entry stays restorable."""
    listed = [backup(90), *(backup(days, index=20) for days in (80, 60, 40, 20, 1))]
    assert expired(listed, 10) == {60, 40, 20}
    assert expired([*listed, backup(30, "fuseki", index=20)], 10) == {60, 40, 20}, "another engine has its own"


def test_of_one_index_each_order_keeps_its_own() -> None:
    other = backup(40, index=20)
    assert other.manifest is not None
    place = msgspec.structs.replace(other.manifest.place, hash="11" * 16)
    other = other._replace(manifest=msgspec.structs.replace(other.manifest, place=place))
    assert expired([backup(60, index=20), other, backup(1, index=20)], 10) == set()


def test_those_of_others_and_damaged_ones_do_not_count() -> None:
    listed = [
        backup(1, index=20),
        backup(15, index=20),
        backup(16, data_center="us", index=20),
        backup(17, state="PartMissing", index=20),
        backup(20, index=20),
    ]
    assert expired(listed, 10) == {15}


def test_the_floor_is_what_the_archive_has_recorded(tmp_path: Path) -> None:
    target = FolderTarget(tmp_path)
    assert read_archive_floor(target, CLUSTER, "uk") == 0
    stream = Stream(target, StreamId(bytes.fromhex(CLUSTER), "uk"))
    for floor in (9, 40, 20):
        stream.record_begins(floor, [Node(floor, bytes(16))])
    assert read_archive_floor(target, CLUSTER, "uk") == 40
    assert read_archive_floor(target, CLUSTER, "us") == 0
    newest = max((tmp_path / stream.id.folder / "begin").iterdir())
    newest.write_bytes(newest.read_bytes().replace(b"40", b"41"))
    assert read_archive_floor(target, CLUSTER, "uk") == 20, "a damaged record deletes nothing"
