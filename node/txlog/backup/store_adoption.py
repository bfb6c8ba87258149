"""Makes the content of a store the base of this cluster's log: what was there before its first entry."""

from __future__ import annotations

import random
import time
from typing import Final

from txlog.backup.backup_errors import WorkerLoading, WorkerMoved
from txlog.backup.pinned_snapshot import POLL_S, SourceWorker, read_system_graphs
from txlog.backup.worker_lock import WorkerLock
from txlog.model.entry import Position
from txlog.model.hashes import content_base
from txlog.workers.adapter import ApplyResult, LockAction, MarkerPosition, UnexpectedAnswer, WorkerDiverged

LOCK_TIMEOUT_S: Final = 120.0


def adopt_store(source: SourceWorker, was: MarkerPosition | None, cluster: bytes, first: Position) -> MarkerPosition:
    """Returns the new marker, written in one transaction of the store; the data stays. It is at ``first``, the position
    before the first entry of this cluster's log, so that the log follows on the content. An adopted store keeps its
    marker. :class:`~txlog.backup.backup_errors.WorkerMoved` when the store is not where the person saw it
    (``was``)."""
    adapter, transport = source.adapter, source.transport
    lock = WorkerLock(source, time.monotonic() + LOCK_TIMEOUT_S)
    while True:
        system = read_system_graphs(adapter, transport)
        if system.loading:
            raise WorkerLoading(f"{source.name} is being loaded: its content is not whole")
        if len(system.markers) > 1:
            raise WorkerDiverged(f"{source.name} holds {len(system.markers)} markers: its content belongs to none")
        found = system.markers[0] if system.markers else None
        if found is not None and found.cluster == cluster:
            return found
        if found is None or was is None or found._replace(fence=was.fence) != was:
            raise WorkerMoved(f"{source.name} is at {found}, not at {was} as was decided; look again")
        at = found.position
        base = content_base(found.cluster, found.base, at.index, at.hash)
        new = MarkerPosition(first, found.fence + 1, (), cluster, base)
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
