"""Which backups may go."""

from __future__ import annotations

import time
from collections.abc import Iterable

from txlog.backup.catalogue import COMPLETE, Listed, catalogue, delete
from txlog.backup.lease import LEASE_S
from txlog.backup.target import Target

DAY_S = 86_400.0


def may_go(
    listed: Iterable[Listed], cluster: str, data_center: str, keep: int, keep_days: int | None, now: float
) -> list[str]:
    """Pure. Of the complete backups of this cluster and data centre that a schedule took, or a split and that were
    released: those that are neither among the newest ``keep``, nor younger than ``keep_days``, nor being restored
    from. What somebody took by hand stays until somebody deletes it, as does what is damaged, which counts for
    nothing."""
    mine = [
        each
        for each in listed
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
    return [each.name for each in old if now - each.leased >= LEASE_S]


def retain(
    target: Target, cluster: str, data_center: str, keep: int, keep_days: int | None = None, now: float | None = None
) -> list[str]:
    """Delete what :func:`may_go`; returns the names."""
    gone = may_go(catalogue(target), cluster, data_center, keep, keep_days, time.time() if now is None else now)
    for name in gone:
        delete(target, name)
    return gone
