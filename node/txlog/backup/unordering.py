"""A worker off the log's chain set on it as it is (``splitRecovery: None``)."""

from __future__ import annotations

import random
import time
from typing import Final

from txlog.backup.faults import WorkerLoading, WorkerMoved
from txlog.backup.locking import Lock
from txlog.backup.standing import POLL_S, Source, system_of
from txlog.model.entry import Position
from txlog.workers import base
from txlog.workers.base import MarkerPosition, UnexpectedAnswer, Verdict, WorkerDiverged

LOCK_S: Final = 120.0


def unorder(source: Source, was: MarkerPosition | None, to: Position) -> MarkerPosition:
    """Its marker now, in one transaction of the store: at ``to``, behind a new fence, and with the place that it leaves
    among those that it came from. :class:`~txlog.backup.faults.WorkerMoved` when it does not stand where it was heard
    of last (``was``): then another place may be right."""
    adapter, transport = source.adapter, source.transport
    lock = Lock(source, time.monotonic() + LOCK_S)
    while True:
        system = system_of(adapter, transport)
        if system.loading:
            raise WorkerLoading(f"{source.name} is being restored; it is on the log afterwards")
        if len(system.markers) > 1:
            raise WorkerDiverged(f"{source.name} holds {len(system.markers)} markers: rebuild it")
        found = system.markers[0] if system.markers else None
        if found is None or was is None or found._replace(fence=was.fence) != was:
            raise WorkerMoved(f"{source.name} stands at {found}, not at {was} as was reported; looked at again")
        place = (found.position.index, found.position.hash)
        new = MarkerPosition(to, found.fence + 1, (*found.unordered, place))
        token = lock.claim()
        request = adapter.apply([], found, new, lock=base.Lock.CONFIRM, token=token, release=True)
        answer = transport.send(request)
        verdict = adapter.verdict(answer)
        if verdict is Verdict.APPLIED:
            return new
        transport.send(adapter.unclaim(token))
        if verdict is Verdict.REFUSED:
            raise UnexpectedAnswer("setting the position", answer)
        lock.refuse_when_late()
        time.sleep(random.uniform(POLL_S / 5, POLL_S))
