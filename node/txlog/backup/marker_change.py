"""Replaces the marker of a store in one transaction of the store; its data stays.

A skip-ahead moves a worker that is off the log's chain to the chain (``splitRecovery: None``). An adoption makes the
content of a store the base of this cluster's log: what was there before its first entry.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Final

from txlog.backup.backup_errors import WorkerLoading, WorkerMoved
from txlog.backup.pinned_snapshot import SourceWorker, read_system_graphs
from txlog.backup.worker_lock import WorkerLock
from txlog.model.entry import Position
from txlog.model.hashes import content_base
from txlog.workers.adapter import ApplyResult, LockAction, MarkerPosition, WorkerDiverged

LOCK_TIMEOUT_S: Final = 120.0


def _change_marker(
    source: SourceWorker, following: Callable[[MarkerPosition | None], MarkerPosition], loading: str, several: str
) -> MarkerPosition:
    """Returns the marker that the store has afterwards. ``following`` gives the new marker for the one that is there;
    the same one changes nothing, and what it raises ends the change. It is asked again when another writer was first.
    ``loading``, ``several``: what an error says of a store that is being loaded, or that has several markers."""
    lock = WorkerLock(source, time.monotonic() + LOCK_TIMEOUT_S)
    while True:
        system = read_system_graphs(source.adapter, source.transport)
        if system.loading:
            raise WorkerLoading(f"{source.name} {loading}")
        if len(system.markers) > 1:
            raise WorkerDiverged(f"{source.name} holds {len(system.markers)} markers: {several}")
        found = system.markers[0] if system.markers else None
        new = following(found)
        if new == found:
            return new
        change = partial(source.adapter.apply, [], found, new, lock=LockAction.CONFIRM, release=True)
        if lock.submit(change, "setting the position") is ApplyResult.APPLIED:
            return new
        lock.pause()


def _expect_unmoved(
    source: SourceWorker, found: MarkerPosition | None, was: MarkerPosition | None, seen: str
) -> MarkerPosition:
    """The marker of a store that is where it was; its fence may be another one by now."""
    if found is None or was is None or found._replace(fence=was.fence) != was:
        raise WorkerMoved(f"{source.name} is at {found}, not at {was} as was {seen}")
    return found


def mark_unordered(source: SourceWorker, was: MarkerPosition | None, to: Position) -> MarkerPosition:
    """Returns the new marker, written in one transaction of the store: position ``to``, a raised fence, and the
    abandoned position among the earlier ones. :class:`~txlog.backup.backup_errors.WorkerMoved` when the worker is not
    at its last reported position (``was``): then another target may be right."""

    def following(found: MarkerPosition | None) -> MarkerPosition:
        found = _expect_unmoved(source, found, was, "reported; looked at again")
        place = (found.position.index, found.position.hash)
        return found._replace(position=to, fence=found.fence + 1, unordered=(*found.unordered, place))

    return _change_marker(source, following, "is being restored; it is on the log afterwards", "rebuild it")


def adopt_store(source: SourceWorker, was: MarkerPosition | None, cluster: bytes, first: Position) -> MarkerPosition:
    """Returns the new marker, written in one transaction of the store; the data stays. It is at ``first``, the position
    before the first entry of this cluster's log, so that the log follows on the content. An adopted store keeps its
    marker. :class:`~txlog.backup.backup_errors.WorkerMoved` when the store is not where the person saw it
    (``was``)."""

    def following(found: MarkerPosition | None) -> MarkerPosition:
        if found is not None and found.cluster == cluster:
            return found
        found = _expect_unmoved(source, found, was, "decided; look again")
        at = found.position
        base = content_base(found.cluster, found.base, at.index, at.hash)
        return MarkerPosition(first, found.fence + 1, (), cluster, base)

    return _change_marker(source, following, "is being loaded: its content is not whole", "its content belongs to none")
