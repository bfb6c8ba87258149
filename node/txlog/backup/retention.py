"""Decides which backups are deleted."""

from __future__ import annotations

import time
from collections.abc import Iterable

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
    window_s: float | None = None,
) -> list[str]:
    """Pure. Considers complete backups of this cluster and data centre that a schedule took, and released split
    backups. Expired are those that are neither among the newest ``keep``, nor younger than ``keep_days``, nor being
    restored from. Manual backups stay until an operator deletes them. Damaged ones also stay, and do not count.

    ``window_s``: length of the recovery window of an archive. Its moments are restored from the newest backup before
    it, and from those in it, so these stay."""
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
    needed = _needed_for_window(every, cluster, data_center, now - window_s) if window_s is not None else set()
    return [each.name for each in old if now - each.leased >= LEASE_TTL_S and each.name not in needed]


def _needed_for_window(listed: Iterable[CatalogueEntry], cluster: str, data_center: str, begin: float) -> set[str]:
    """For each engine the newest backup that was finished at or before ``begin``, and all later ones. The files of the
    archive go only up to that one, so it stays as long as it is the newest such."""
    manifests = [each.manifest for each in listed if each.state == COMPLETE and each.manifest is not None]
    mine = [each for each in manifests if (each.cluster, each.data_center) == (cluster, data_center)]
    anchors: dict[str, float] = {}
    for each in mine:
        if each.finished <= begin:
            anchors[each.engine] = max(each.finished, anchors.get(each.engine, 0.0))
    return {each.name for each in mine if each.finished >= anchors.get(each.engine, 0.0)}


def apply_retention(
    target: BackupTarget,
    cluster: str,
    data_center: str,
    keep: int,
    keep_days: int | None = None,
    now: float | None = None,
    window_s: float | None = None,
) -> list[str]:
    """Deletes what :func:`expired_backups` returns; returns the names."""
    gone = expired_backups(
        catalogue(target), cluster, data_center, keep, keep_days, time.time() if now is None else now, window_s
    )
    for name in gone:
        delete_backup(target, name)
    return gone
