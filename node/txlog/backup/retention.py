"""Decides which backups are deleted."""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import suppress

from txlog.backup.archive_floor import read_archive_floor
from txlog.backup.backup_chain import find_needed, order_deletions
from txlog.backup.backup_errors import BackupInUse, NeededByIncrement
from txlog.backup.backup_manifest import BackupManifest
from txlog.backup.catalogue import COMPLETE, CatalogueEntry, catalogue, delete_backup
from txlog.backup.read_lease import LEASE_TTL_S
from txlog.backup.target import BackupTarget

DAY_S = 86_400.0


def expired_backups(
    listed: Iterable[CatalogueEntry],
    cluster: str,
    data_center: str,
    keep: int,
    keep_days: int | None,
    now: float,
    floor: int | None = None,
) -> list[str]:
    """Pure. Considers complete backups of this cluster and data centre that a schedule took, and released split
    backups. Expired are those that are neither among the newest ``keep``, nor younger than ``keep_days``, nor being
    restored from. Manual backups stay until an operator deletes them. Damaged ones also stay, and do not count.

    ``floor``: the index from which on the archive of this data centre has files for its recovery window. Backups from
    there on may be needed to restore its moments, so these stay. None without a window.

    What an incremental backup that stays needs stays as well. In the result each one comes before those that it
    needs."""
    every = list(listed)
    mine = [
        each
        for each in every
        if each.state == COMPLETE
        and each.manifest is not None
        and (each.manifest.cluster, each.manifest.data_center) == (cluster, data_center)
        and not each.held
        and each.manifest.why in ("schedule", "split")
    ]
    mine.sort(key=lambda each: each.manifest.finished if each.manifest else 0.0, reverse=True)
    old = mine[keep:]
    if keep_days is not None:
        old = [each for each in old if each.manifest and now - each.manifest.finished > keep_days * DAY_S]
    needed = _needed_for_window(every, cluster, data_center, floor) if floor is not None else set()
    gone = [each.name for each in old if now - each.leased >= LEASE_TTL_S and each.name not in needed]
    manifests = {each.name: each.manifest for each in every if each.manifest is not None}
    links = find_needed(manifests, manifests.keys() - set(gone))
    return order_deletions(manifests, [name for name in gone if name not in links])


def _needed_for_window(listed: Iterable[CatalogueEntry], cluster: str, data_center: str, floor: int) -> set[str]:
    """Only the archive knows from which of these a restore may begin: not all are on its timelines. It deletes no file
    above the lowest one that it needs, so those from ``floor`` on stay. Of several at one position the first is
    enough, and one that a chain was merged into before all: an idle log does not fill the target."""
    complete = [each for each in listed if each.state == COMPLETE and each.manifest is not None]
    merged = {each.name for each in complete if each.is_merged}
    manifests = [each.manifest for each in complete if each.manifest is not None]
    mine = [each for each in manifests if (each.cluster, each.data_center) == (cluster, data_center)]
    first: dict[tuple[str, int, str], BackupManifest] = {}
    for each in sorted(mine, key=lambda each: (each.name not in merged, each.finished, each.name)):
        if each.place.index >= floor:
            first.setdefault((each.engine, each.place.index, each.place.hash), each)
    return {each.name for each in first.values()}


def apply_retention(
    target: BackupTarget,
    cluster: str,
    data_center: str,
    keep: int,
    keep_days: int | None = None,
    now: float | None = None,
    *,
    has_window: bool = False,
) -> list[str]:
    """Deletes what :func:`expired_backups` returns; returns the names. What is read or continued meanwhile stays.
    ``has_window``: an archive with a recovery window is on this target."""
    # Read before the list: it only grows.
    floor = read_archive_floor(target, cluster, data_center) if has_window else None
    expired = expired_backups(
        catalogue(target), cluster, data_center, keep, keep_days, time.time() if now is None else now, floor
    )
    gone: list[str] = []
    for name in expired:
        with suppress(BackupInUse, NeededByIncrement):
            delete_backup(target, name)
            gone.append(name)
    return gone
