"""Whether workers that have nothing to do still are where they were: a store that was put back to an older copy, that
has gone, or that stands still, tells nobody.

How long it takes at most until the masters call one ``Unreachable``, from its last sign of life on:

- **It stands still** while its machine accepts connections, or the machine is gone: :data:`CHECK_INTERVAL_S` until it
is asked
  the next time, and :data:`ANSWER_TIMEOUT_S` without an answer: 5.5 s. The watch tells the masters itself. A ring would
  add the rest of a doorbell request (:data:`txlog.pipeline.doorbell_source.DOORBELL_WAIT_S`), a micro-batch, and the
  silence once more that the lane waits for (:data:`txlog.pipeline.worker_applier.IDLE_CHECK_TIMEOUT_S`): 2 + 0.1 + 5 s.
- **The same just after it has executed something**: :data:`txlog.pipeline.doorbell_source.PROGRESS_POLL_S` and the rest
of a micro-batch
  until the source hears that it is there: 5.9 s.
- **It refuses connections, ends them, or a proxy says so**: 1 + 2 + 0.1 s, by a ring, until its lane looks. Most are
  there again by then, and nobody calls them so. A host that swallows what is sent adds the time of two connects.

Each is asked in a thread of its own, so several that stand still do not add up. A store may be silent for
:data:`ANSWER_TIMEOUT_S` without being called anything, whatever it does meanwhile. One that has something to execute is
not watched: how long that may take is for its lane (:data:`txlog.pipeline.worker_applier.REQUEST_TIMEOUT_S`).
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
from txlog.workers import ADAPTERS
from txlog.workers.adapter import MarkerPosition, RequestOutcome, Transport, UnexpectedAnswer, Unreachable
from txlog.workers.http_transport import HttpTransport

_log = logging.getLogger(__name__)

CHECK_INTERVAL_S = 1.0
"""How often an idle worker is asked: one look-up of a name, 0.3 ms of processor here and half of that there."""

ANSWER_TIMEOUT_S = 4.5
"""How long it may take: a store that collects garbage, or whose processors all are at large queries, is slow, and not
dead. Together with :data:`CHECK_INTERVAL_S` below six seconds."""

CONNECT_TIMEOUT_S = 1.0


class Liveness(Enum):
    AT_POSITION = "where it was"
    MOVED = "not where it was"
    REFUSING = "no connection, or none that holds"
    SILENT = "no answer in time"


class ProbeTransport(Transport, Protocol):
    def close(self) -> None:
        """Give up what is under way; it may be used again."""


def _open_transport(url: str) -> ProbeTransport:
    return HttpTransport(url, ANSWER_TIMEOUT_S, connect_s=CONNECT_TIMEOUT_S)


class _WatchedWorker:
    """Where a worker is, and how it was seen there last."""

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
            self.transport.close()  # else each look at a store that stands still leaves a connection behind
            # a proxy that says 502, or a connection that ends, is an answer: the lane looks, and judges
            silent = fault.fate is RequestOutcome.UNKNOWN and isinstance(fault.__cause__, TimeoutError)
            return Liveness.SILENT if silent else Liveness.REFUSING
        except UnexpectedAnswer:
            return Liveness.MOVED
        return Liveness.AT_POSITION if at else Liveness.MOVED


class LivenessMonitor:
    """:meth:`start`, :meth:`set_expected` and :meth:`take_alarm` are for the source's thread; a worker is looked at in
    its own, in which one that hangs delays nobody. ``tell``: the masters, of a worker that stands still."""

    def __init__(
        self,
        workers: Sequence[WorkerConfig],
        tell: Callable[[str, WorkerReport], None],
        transport: Callable[[str], ProbeTransport] | None = None,
    ) -> None:
        self._report = tell
        self._make_transport = transport or _open_transport
        self._configured = {w.name: (w.url, w.engine) for w in workers}
        self._watched: dict[str, _WatchedWorker] = {}
        self._expected: dict[str, MarkerPosition] = {}
        self._reported_states: dict[str, str] = {}
        self._alarm = threading.Event()
        self._stopped = threading.Event()
        self._started = False

    def start(self) -> None:
        self._started = True
        for name, place in self._watched.items():
            self._start_thread(name, place)

    def stop(self) -> None:
        self._stopped.set()

    def set_expected(self, stable: int, workers: Sequence[WorkerStatus]) -> bool:
        """As a master tells it. One that is not at the end of its way is not watched: it is being moved, or the
        master rings for it. Returns whether one that works is on its way, and to be watched soon."""
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
                expected[w.name] = MarkerPosition(w.position.position, w.position.fence, w.position.unordered_positions)
        self._reported_states = {w.name: w.state for w in workers}
        self._expected = expected
        return moving

    def _track(self, worker: WorkerStatus) -> None:
        """One that came back at another place is another store. A master that does not say where it is means one that
        was configured."""
        told = (worker.url, worker.engine or "oxigraph") if worker.url else self._configured.get(worker.name)
        known = self._watched.get(worker.name)
        if told is None or (known is not None and known.store == told):
            return
        place = self._watched[worker.name] = _WatchedWorker(*told, self._make_transport(told[0]))
        if self._started:
            self._start_thread(worker.name, place)

    def take_alarm(self) -> bool:
        """Whether a worker was met that somebody should look after, since this was asked last."""
        rang = self._alarm.is_set()
        self._alarm.clear()
        return rang

    def check(self, name: str) -> None:
        """Ask it once, if it is to be watched."""
        if (place := self._watched.get(name)) is not None:
            self._check(name, place)

    def _check(self, name: str, place: _WatchedWorker) -> None:
        marker = self._expected.get(name)
        if marker is None:
            return
        seen = place.probe(marker)
        if self._expected.get(name) != marker or self._watched.get(name) is not place:
            return  # it has been given something to do meanwhile, or has been taken out
        before, place.liveness = place.liveness, seen
        # between two silences its lane may have met it, and said so
        again = seen is Liveness.SILENT and self._reported_states.get(name) != "Unreachable"
        if seen is before and not again:
            return
        if seen is Liveness.SILENT:
            self._report(name, WorkerReport(None, WorkerState.UNREACHABLE, place.last_error))
        # whoever is where it should be has been looked after, unless it was only not to be seen
        if not (seen is Liveness.AT_POSITION and before is Liveness.MOVED):
            self._alarm.set()

    def _start_thread(self, name: str, place: _WatchedWorker) -> None:
        threading.Thread(target=self._run, args=(name, place), name=f"txlog-watch {name}", daemon=True).start()

    def _run(self, name: str, place: _WatchedWorker) -> None:
        while not self._stopped.wait(CHECK_INTERVAL_S) and self._watched.get(name) is place:
            try:
                self._check(name, place)
            except Exception:  # noqa: BLE001 - a fault of ours must not end the watching for good
                _log.exception("looking whether worker %s is where it was", name)
        place.transport.close()
