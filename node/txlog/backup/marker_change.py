"""Replaces the marker of a store in one transaction of the store; its data stays."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Final

from txlog.backup.backup_errors import WorkerLoading
from txlog.backup.pinned_snapshot import SourceWorker, read_system_graphs
from txlog.backup.worker_lock import WorkerLock
from txlog.workers.adapter import ApplyResult, LockAction, MarkerPosition, WorkerDiverged

LOCK_TIMEOUT_S: Final = 120.0


def change_marker(
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
