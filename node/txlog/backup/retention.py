"""Which backups may go."""

from __future__ import annotations

import time
from collections.abc import Iterable

from txlog.backup.catalogue import COMPLETE, Listed, catalogue, delete
from txlog.backup.target import Target

DAY_S = 86_400.0


def may_go(
    listed: Iterable[Listed], cluster: str, data_center: str, keep: int, keep_days: int | None, now: float
) -> list[str]:
    """Pure. Complete backups of this cluster and data centre that are neither held, nor among the newest ``keep``,
    nor younger than ``keep_days``. What is damaged stays: it is somebody's to look at, and does not count as kept."""
    mine = [
        each
        for each in listed
        if each.state == COMPLETE
        and each.manifest is not None
        and (each.manifest.cluster, each.manifest.data_center) == (cluster, data_center)
        and not each.held
        and each.manifest.why != "adopt"  # position 0 is where every worker of the cluster can begin
    ]
    mine.sort(key=lambda each: each.manifest.finished if each.manifest else 0.0, reverse=True)
    old = mine[keep:]
    if keep_days is not None:
        old = [each for each in old if each.manifest and now - each.manifest.finished > keep_days * DAY_S]
    return [each.name for each in old]


def retain(
    target: Target, cluster: str, data_center: str, keep: int, keep_days: int | None = None, now: float | None = None
) -> list[str]:
    """Delete what :func:`may_go`; returns the names."""
    gone = may_go(catalogue(target), cluster, data_center, keep, keep_days, time.time() if now is None else now)
    for name in gone:
        delete(target, name)
    return gone
