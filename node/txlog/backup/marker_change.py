"""Replaces the marker of a store in one transaction of the store; its data stays."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Final

from txlog.backup.backup_errors import WorkerLoading
from txlog.backup.pinned_snapshot import POLL_S, SourceWorker, read_system_graphs
from txlog.backup.worker_lock import WorkerLock
from txlog.workers.adapter import ApplyResult, LockAction, MarkerPosition, UnexpectedAnswer, WorkerDiverged

LOCK_TIMEOUT_S: Final = 120.0


def change_marker(
    source: SourceWorker, following: Callable[[MarkerPosition | None], MarkerPosition], loading: str, several: str
) -> MarkerPosition:
    """Returns the marker that the store has afterwards. ``following`` gives the new marker for the one that is there;
    the same one changes nothing, and what it raises ends the change. It is asked again when another writer was first.
    ``loading``, ``several``: what an error says of a store that is being loaded, or that has several markers."""
    adapter, transport = source.adapter, source.transport
    lock = WorkerLock(source, time.monotonic() + LOCK_TIMEOUT_S)
    while True:
        system = read_system_graphs(adapter, transport)
        if system.loading:
            raise WorkerLoading(f"{source.name} {loading}")
        if len(system.markers) > 1:
            raise WorkerDiverged(f"{source.name} holds {len(system.markers)} markers: {several}")
        found = system.markers[0] if system.markers else None
        new = following(found)
        if new == found:
            return new
        token = lock.claim()
        answer = transport.send(adapter.apply([], found, new, lock=LockAction.CONFIRM, token=token, release=True))
        verdict = adapter.parse_apply_result(answer)
        if verdict is ApplyResult.APPLIED:
            return new
        transport.send(adapter.release_claim(token))
        if verdict is ApplyResult.REFUSED:
            raise UnexpectedAnswer("setting the position", answer)
        lock.raise_if_timed_out()
        time.sleep(random.uniform(POLL_S / 5, POLL_S))
