"""Checks that idle workers are still at their positions: a store that was reset to an older copy, is gone, or hangs,
reports nothing.

The longest time until the masters call a worker ``Unreachable``, from its last sign of life on:

- **It hangs** while its machine accepts connections, or the machine is gone: :data:`CHECK_INTERVAL_S` until the next
  check, and :data:`ANSWER_TIMEOUT_S` without an answer: 5.5 s. The monitor reports to the masters itself. A wake-up
  would add the rest of a doorbell request (:data:`txlog.pipeline.doorbell_source.DOORBELL_WAIT_S`), a micro-batch, and
  the lane's own time-out (:data:`txlog.pipeline.worker_applier.IDLE_CHECK_TIMEOUT_S`): 2 + 0.1 + 5 s.
- **The same just after it has executed an entry**: :data:`txlog.pipeline.doorbell_source.PROGRESS_POLL_S` and the rest
  of a micro-batch until the source knows that it has arrived: 5.9 s.
- **It refuses or closes connections, or a proxy reports that**: 1 + 2 + 0.1 s, by a wake-up, until its lane probes it.
  Most are available again by then, and are not reported. A host that drops packets adds two connect time-outs.

Each worker has a thread of its own, so several hanging ones do not add up. A store may be silent for
:data:`ANSWER_TIMEOUT_S` without being reported. A worker with entries to execute is not
watched: its lane has the time-out for that (:data:`txlog.pipeline.worker_applier.REQUEST_TIMEOUT_S`).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Protocol

from txlog.apply import WorkerState
from txlog.client import WorkerReport, WorkerStatus
from txlog.config.process_config import WorkerConfig
from txlog.pipeline.apply_round import to_marker
from txlog.workers import ADAPTERS
from txlog.workers.adapter import MarkerPosition, RequestOutcome, Transport, UnexpectedAnswer, Unreachable
from txlog.workers.http_transport import HttpTransport

_log = logging.getLogger(__name__)

CHECK_INTERVAL_S = 1.0
"""Interval between two checks of an idle worker. A check is one look-up of a name: 0.3 ms of CPU here, half of that at
the store."""

ANSWER_TIMEOUT_S = 4.5
"""Time-out of a check. A store that collects garbage, or executes large queries on all CPUs, is slow, not dead.
Together with :data:`CHECK_INTERVAL_S` below six seconds."""

CONNECT_TIMEOUT_S = 1.0


class Liveness(Enum):
    """The result of one check."""

    AT_POSITION = "where it was"
    MOVED = "not where it was"
    REFUSING = "no connection, or none that holds"
    SILENT = "no answer in time"


class ProbeTransport(Transport, Protocol):
    """A connection for checks, which can be closed and used again."""

    def close(self) -> None:
        """Abandons the request in progress; the transport can be used again."""


def _open_transport(url: str) -> ProbeTransport:
    return HttpTransport(url, ANSWER_TIMEOUT_S, connect_s=CONNECT_TIMEOUT_S)


class _WatchedWorker:
    """The store of a worker, and the result of its last check."""

    def __init__(self, url: str, engine: str, transport: ProbeTransport) -> None:
        self.store = (url, engine)
        self.adapter = ADAPTERS[engine]
        self.transport = transport
        self.liveness = Liveness.AT_POSITION
        self.last_error = ""

    def probe(self, marker: MarkerPosition) -> Liveness:
        try:
            at = self.adapter.parse_is_at(self.transport.send(self.adapter.is_at(marker)))
        except Unreachable as fault:
            self.last_error = str(fault)
            self.transport.close()  # otherwise each check of a hanging store leaves a connection open
            # a 502 of a proxy, or a closed connection, is an answer: the lane probes and decides
            silent = fault.fate is RequestOutcome.UNKNOWN and isinstance(fault.__cause__, TimeoutError)
            return Liveness.SILENT if silent else Liveness.REFUSING
        except UnexpectedAnswer:
            return Liveness.MOVED
        return Liveness.AT_POSITION if at else Liveness.MOVED


class LivenessMonitor:
    """The source's thread calls :meth:`start`, :meth:`set_expected` and :meth:`take_alarm`. Each worker is checked in a
    thread of its own, so a hanging one delays no other. ``report``: reports a hanging worker to the masters."""

    def __init__(
        self,
        workers: Sequence[WorkerConfig],
        report: Callable[[str, WorkerReport], None],
        transport: Callable[[str], ProbeTransport] | None = None,
    ) -> None:
        self._report = report
        self._make_transport = transport or _open_transport
        self._configured = {w.name: (w.url, w.engine) for w in workers}
        self._watched: dict[str, _WatchedWorker] = {}
        self._expected: dict[str, MarkerPosition] = {}
        self._reported_states: dict[str, str] = {}
        self._alarm = threading.Event()
        self._stopped = threading.Event()
        self._started = False

    def start(self) -> None:
        """Starts a thread for each worker."""
        self._started = True
        for name, place in self._watched.items():
            self._start_thread(name, place)

    def stop(self) -> None:
        """Ends all threads after their current check."""
        self._stopped.set()

    def set_expected(self, stable: int, workers: Sequence[WorkerStatus]) -> bool:
        """Sets the expected positions, as a master reports them. A worker that is not at its end is not watched: it is
        being moved, or the master requests it. Returns whether a working worker is catching up, and will be watched
        soon."""
        for name in self._watched.keys() - {w.name for w in workers}:
            del self._watched[name]
        for w in workers:
            self._track(w)
        expected: dict[str, MarkerPosition] = {}
        moving = False
        for w in workers:
            if w.position is None or w.state not in ("Working", "Unordered", "Unreachable"):
                continue
            end = stable if w.hold is None else min(w.hold, stable)
            if w.position.index < end:
                moving = moving or w.state != "Unreachable"
            elif 0 < w.position.index == end:
                expected[w.name] = to_marker(w.position)
        self._reported_states = {w.name: w.state for w in workers}
        self._expected = expected
        return moving

    def _track(self, worker: WorkerStatus) -> None:
        """A worker that returns at another URL is another store. Where a master reports no URL, the configured one
        counts."""
        store = (worker.url, worker.engine or "oxigraph") if worker.url else self._configured.get(worker.name)
        known = self._watched.get(worker.name)
        if store is None or (known is not None and known.store == store):
            return
        place = self._watched[worker.name] = _WatchedWorker(*store, self._make_transport(store[0]))
        if self._started:
            self._start_thread(worker.name, place)

    def take_alarm(self) -> bool:
        """Whether a check since the last call found a worker that a lane should look at."""
        was_set = self._alarm.is_set()
        self._alarm.clear()
        return was_set

    def check(self, name: str) -> None:
        """Checks the worker once, if it is to be watched."""
        if (place := self._watched.get(name)) is not None:
            self._check(name, place)

    def _check(self, name: str, place: _WatchedWorker) -> None:
        marker = self._expected.get(name)
        if marker is None:
            return
        seen = place.probe(marker)
        if self._expected.get(name) != marker or self._watched.get(name) is not place:
            return  # it received work in the meantime, or was removed
        before, place.liveness = place.liveness, seen
        # between two silent checks its lane may have reported it
        again = seen is Liveness.SILENT and self._reported_states.get(name) != "Unreachable"
        if seen is before and not again:
            return
        if seen is Liveness.SILENT:
            self._report(name, WorkerReport(None, WorkerState.UNREACHABLE, place.last_error))
        # a worker that moved and is back at its position needs no lane; one that was unreachable does
        if not (seen is Liveness.AT_POSITION and before is Liveness.MOVED):
            self._alarm.set()

    def _start_thread(self, name: str, place: _WatchedWorker) -> None:
        threading.Thread(target=self._run, args=(name, place), name=f"txlog-watch {name}", daemon=True).start()

    def _run(self, name: str, place: _WatchedWorker) -> None:
        while not self._stopped.wait(CHECK_INTERVAL_S) and self._watched.get(name) is place:
            try:
                self._check(name, place)
            except Exception:  # noqa: BLE001 - a bug must not end the checks
                _log.exception("looking whether worker %s is where it was", name)
        place.transport.close()
