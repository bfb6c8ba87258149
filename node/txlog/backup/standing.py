"""A worker at exactly one position, while a snapshot of it opens.

The masters are asked to hold it where it stands; its pipeline hears of it with its next report. What makes the position
exact is the marker, which is read before the snapshot opens and confirmed after; the hold only makes the two agree
on a worker that is always busy.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final, NamedTuple

from txlog.backup.faults import NothingToBackUp, WorkerLoading, WorkerMoved, WorkerUnordered
from txlog.client import MasterClient, Worker
from txlog.model.errors import TxLogError, Unavailable
from txlog.workers.base import (
    Adapter,
    MarkerPosition,
    StreamTransport,
    SystemGraphs,
    Transport,
    WorkerDiverged,
)
from txlog.workers.digest import statements

POLL_S: Final = 0.05
DEADLINE_S: Final = 60.0


class Source(NamedTuple):
    """A worker to read from. ``masters``: of its data centre; none when nobody applies to it."""

    name: str
    adapter: Adapter
    transport: StreamTransport
    masters: Sequence[MasterClient] = ()


def hold(masters: Sequence[MasterClient], worker: str, index: int) -> None:
    """Ask all of them, since a pipeline asks the nearest that answers, which may change. One must take it."""
    last: TxLogError | None = None
    done = 0
    for master in masters:
        try:
            master.put_hold(worker, index)
            done += 1
        except TxLogError as error:
            last = error
    if not done:
        raise Unavailable("NoMaster", f"no master takes the hold of {worker}: {last}; see txlog status")


def lift(masters: Sequence[MasterClient], worker: str) -> None:
    """As far as they can be reached; a hold ends with its master's process."""
    for master in masters:
        with suppress(TxLogError):
            master.lift_hold(worker)


def choose(workers: Sequence[Worker]) -> Worker | None:
    """The one that is farthest, of those that work and are not known to hold what they should not."""
    fit = [
        w
        for w in workers
        if w.state == "Working"
        and w.position is not None
        and not w.position.unordered
        and w.url
        and (w.divergence is None or not w.divergence.wrong)
    ]
    return max(fit, key=lambda w: w.position.index if w.position else 0, default=None)


def system_of(adapter: Adapter, transport: Transport) -> SystemGraphs:
    return adapter.system_in(transport.send(adapter.read_system()))


def marker_of(source: Source) -> MarkerPosition:
    """Where it stands; a refusal by name when that cannot be said."""
    system = system_of(source.adapter, source.transport)
    if system.loading:
        raise WorkerLoading(f"{source.name} is being restored; take another worker, or wait (txlog worker list)")
    if not system.markers:
        raise NothingToBackUp(f"{source.name} has no position yet; write something first, or adopt it")
    if len(system.markers) > 1:
        raise WorkerDiverged(f"{source.name} holds {len(system.markers)} markers: rebuild it (txlog worker rebuild)")
    if system.markers[0].unordered:
        raise WorkerUnordered(
            f"{source.name} has executed some transactions in another order than the log's (splitRecovery None): what "
            "it holds is no position of the log; take another worker, or rebuild it (txlog worker rebuild)"
        )
    return system.markers[0]


@contextmanager
def snapshot(
    source: Source,
    at: int | None = None,
    deadline_s: float = DEADLINE_S,
    told: Callable[[str], None] = lambda _: None,
    onward: int | None = None,
) -> Iterator[tuple[MarkerPosition, Iterator[bytes]]]:
    """The worker's whole data set as it is at one position: where the worker stands now, or at index ``at``. The
    worker goes on as soon as this is open. ``onward``: to this index only, until whoever asks for that lifts the
    hold."""
    until = time.monotonic() + deadline_s
    opened = False
    try:
        while True:
            marker = _await(source, at, until, told)
            with statements(source.adapter, source.transport) as chunks:
                same = source.adapter.is_at_in(source.transport.send(source.adapter.is_at(marker)))
                if same:
                    if onward is None:
                        lift(source.masters, source.name)
                    else:
                        hold(source.masters, source.name, onward)
                    opened = True
                    yield marker, chunks
                    return
            if time.monotonic() > until:
                raise WorkerMoved(
                    f"{source.name} did not stand still for {deadline_s:g} s, although it was held; try again"
                )
    finally:
        if onward is None or not opened:
            lift(source.masters, source.name)


def _await(source: Source, at: int | None, until: float, told: Callable[[str], None]) -> MarkerPosition:
    """Held, and where."""
    while True:
        marker = marker_of(source)
        index = marker.position.index
        if source.masters:
            hold(source.masters, source.name, index if at is None else at)
        if at is None or index == at:
            return marker
        if index > at:
            raise WorkerMoved(f"{source.name} stands at {index} already, above {at}; take another worker or index")
        told(f"{source.name} stands at {index}, waiting until it comes to {at}")
        if time.monotonic() > until:
            raise WorkerMoved(
                f"{source.name} stands at {index} and did not come to {at} in time; see txlog worker list"
            )
        time.sleep(POLL_S)
