"""Moves a worker that is off the log's chain to the chain, without a change of its data (``splitRecovery: None``)."""

from __future__ import annotations

import random
import time
from typing import Final

from txlog.backup.backup_errors import WorkerLoading, WorkerMoved
from txlog.backup.pinned_snapshot import POLL_S, SourceWorker, read_system_graphs
from txlog.backup.worker_lock import WorkerLock
from txlog.model.entry import Position
from txlog.workers.adapter import ApplyResult, LockAction, MarkerPosition, UnexpectedAnswer, WorkerDiverged

LOCK_TIMEOUT_S: Final = 120.0


def mark_unordered(source: SourceWorker, was: MarkerPosition | None, to: Position) -> MarkerPosition:
    """Returns the new marker, written in one transaction of the store: position ``to``, a raised fence, and the
    abandoned position among the earlier ones. :class:`~txlog.backup.backup_errors.WorkerMoved` when the worker is not
    at its last reported position (``was``): then another target may be right."""
    adapter, transport = source.adapter, source.transport
    lock = WorkerLock(source, time.monotonic() + LOCK_TIMEOUT_S)
    while True:
        system = read_system_graphs(adapter, transport)
        if system.loading:
            raise WorkerLoading(f"{source.name} is being restored; it is on the log afterwards")
        if len(system.markers) > 1:
            raise WorkerDiverged(f"{source.name} holds {len(system.markers)} markers: rebuild it")
        found = system.markers[0] if system.markers else None
        if found is None or was is None or found._replace(fence=was.fence) != was:
            raise WorkerMoved(f"{source.name} is at {found}, not at {was} as was reported; looked at again")
        place = (found.position.index, found.position.hash)
        new = found._replace(position=to, fence=found.fence + 1, unordered=(*found.unordered, place))
        token = lock.claim()
        request = adapter.apply([], found, new, lock=LockAction.CONFIRM, token=token, release=True)
        answer = transport.send(request)
        verdict = adapter.parse_apply_result(answer)
        if verdict is ApplyResult.APPLIED:
            return new
        transport.send(adapter.release_claim(token))
        if verdict is ApplyResult.REFUSED:
            raise UnexpectedAnswer("setting the position", answer)
        lock.raise_if_timed_out()
        time.sleep(random.uniform(POLL_S / 5, POLL_S))
