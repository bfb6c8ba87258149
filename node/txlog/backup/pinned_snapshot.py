"""Opens a snapshot of a worker at exactly one position.

The masters are asked to pause the worker at its position; its pipeline learns of it with its next report. The marker
makes the position exact: it is read before the snapshot opens and confirmed after. The pause only lets both agree on a
worker that is always busy.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final, NamedTuple

from txlog.backup.backup_errors import NothingToBackUp, WorkerLoading, WorkerMoved, WorkerUnordered
from txlog.client import MasterClient, WorkerStatus
from txlog.client.master_client import PauseReason
from txlog.model.errors import TxLogError, Unavailable
from txlog.workers.adapter import Adapter, MarkerPosition, StreamTransport, SystemGraphs, Transport, WorkerDiverged
from txlog.workers.digest import stream_statements

POLL_S: Final = 0.05
PAUSE_TIMEOUT_S: Final = 60.0


class SourceWorker(NamedTuple):
    """A worker to read from. ``masters``: of its data centre; none when no pipeline applies to it."""

    name: str
    adapter: Adapter
    transport: StreamTransport
    masters: Sequence[MasterClient] = ()


def pause_worker(masters: Sequence[MasterClient], worker: str, index: int, why: PauseReason = "") -> None:
    """Asks all masters: a pipeline uses the nearest one that answers, which may change. At least one must accept.
    ``why``: as in :meth:`~txlog.client.MasterClient.pause_worker`."""
    last: TxLogError | None = None
    done = 0
    for master in masters:
        try:
            master.pause_worker(worker, index, why=why)
            done += 1
        except TxLogError as error:
            last = error
    if not done:
        raise Unavailable("NoMaster", f"no master takes the hold of {worker}: {last}; see txlog status")


def resume_worker(masters: Sequence[MasterClient], worker: str, why: PauseReason = "") -> None:
    """Resumes at each reachable master; a pause also ends with its master's process."""
    for master in masters:
        with suppress(TxLogError):
            master.resume_worker(worker, why=why)


def choose_most_advanced(workers: Sequence[WorkerStatus]) -> WorkerStatus | None:
    """The most advanced of the working workers that are not known to hold wrong data."""
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


def read_system_graphs(adapter: Adapter, transport: Transport) -> SystemGraphs:
    """The content of the worker's system graphs: markers, locks and the loading mark."""
    return adapter.parse_system_graphs(transport.send(adapter.read_system()))


def read_marker(source: SourceWorker) -> MarkerPosition:
    """The worker's marker; a named error when it has none or is not readable."""
    system = read_system_graphs(source.adapter, source.transport)
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
def open_snapshot(
    source: SourceWorker,
    at: int | None = None,
    deadline_s: float = PAUSE_TIMEOUT_S,
    on_wait: Callable[[str], None] = lambda _: None,
    onward: int | None = None,
) -> Iterator[tuple[MarkerPosition, Iterator[bytes]]]:
    """The worker's whole data set at one position: the current one, or index ``at``. The worker resumes as soon as the
    snapshot is open. ``onward``: it resumes to this index only, until the caller lifts that pause."""
    until = time.monotonic() + deadline_s
    opened = False
    try:
        while True:
            marker = _wait_at(source, at, until, on_wait)
            with stream_statements(source.adapter, source.transport) as chunks:
                same = source.adapter.parse_is_at(source.transport.send(source.adapter.is_at(marker)))
                if same:
                    if onward is None:
                        resume_worker(source.masters, source.name)
                    else:
                        pause_worker(source.masters, source.name, onward)
                    opened = True
                    yield marker, chunks
                    return
            if time.monotonic() > until:
                raise WorkerMoved(f"{source.name} still moved after {deadline_s:g} s, although it is paused; try again")
    finally:
        if onward is None or not opened:
            resume_worker(source.masters, source.name)


def _wait_at(source: SourceWorker, at: int | None, until: float, on_wait: Callable[[str], None]) -> MarkerPosition:
    """Waits until the worker is paused, and returns where."""
    while True:
        marker = read_marker(source)
        index = marker.position.index
        if source.masters:
            pause_worker(source.masters, source.name, index if at is None else at)
        if at is None or index == at:
            return marker
        if index > at:
            raise WorkerMoved(f"{source.name} is at {index} already, above {at}; take another worker or index")
        on_wait(f"{source.name} is at {index}, waiting until it comes to {at}")
        if time.monotonic() > until:
            raise WorkerMoved(f"{source.name} is at {index} and did not come to {at} in time; see txlog worker list")
        time.sleep(POLL_S)
