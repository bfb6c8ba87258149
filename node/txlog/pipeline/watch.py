"""Whether workers that have nothing to do still are where they were: a store that was put back to an older copy, that
has gone, or that stands still, tells nobody.

How long it takes at most until the masters call one ``Unreachable``, from its last sign of life on:

- **It stands still** while its machine accepts connections, or the machine is gone: :data:`WATCH_S` until it is asked
  the next time, and :data:`ANSWER_S` without an answer: 5.5 s. The watch tells the masters itself. A ring would add the
  rest of a doorbell request (:data:`txlog.pipeline.source.RING_S`), a micro-batch, and the silence once more that the
  lane waits for (:data:`txlog.pipeline.applying.LOOK_S`): 2 + 0.1 + 5 s.
- **The same just after it has executed something**: :data:`txlog.pipeline.source.SOON_S` and the rest of a micro-batch
  until the source hears that it is there: 5.9 s.
- **It refuses connections, ends them, or a proxy says so**: 1 + 2 + 0.1 s, by a ring, until its lane looks. Most are
  there again by then, and nobody calls them so. A host that swallows what is sent adds the time of two connects.

Each is asked in a thread of its own, so several that stand still do not add up. A store may be silent for
:data:`ANSWER_S` without being called anything, whatever it does meanwhile. One that has something to execute is not
watched: how long that may take is for its lane (:data:`txlog.pipeline.applying.REQUEST_S`).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Protocol

from txlog.apply import State
from txlog.client import Worker, WorkerReport
from txlog.config.process import WorkerConfig
from txlog.workers import ADAPTERS
from txlog.workers.base import Fate, MarkerPosition, Transport, UnexpectedAnswer, Unreachable
from txlog.workers.transport import HttpTransport

_log = logging.getLogger(__name__)

WATCH_S = 1.0
"""How often an idle worker is asked: one look-up of a name, 0.3 ms of processor here and half of that there."""

ANSWER_S = 4.5
"""How long it may take: a store that collects garbage, or whose processors all are at large queries, is slow, and not
dead. Together with :data:`WATCH_S` below six seconds."""

CONNECT_S = 1.0


class Seen(Enum):
    THERE = "where it was"
    ELSEWHERE = "not where it was"
    REFUSING = "no connection, or none that holds"
    SILENT = "no answer in time"


class Reached(Transport, Protocol):
    def close(self) -> None:
        """Give up what is under way; it may be used again."""


def _transport(url: str) -> Reached:
    return HttpTransport(url, ANSWER_S, connect_s=CONNECT_S)


class _Place:
    """Where a worker is, and how it was seen there last."""

    def __init__(self, url: str, engine: str, transport: Reached) -> None:
        self.at = (url, engine)
        self.adapter = ADAPTERS[engine]
        self.transport = transport
        self.seen = Seen.THERE
        self.why = ""

    def ask(self, marker: MarkerPosition) -> Seen:
        try:
            at = self.adapter.is_at_in(self.transport.send(self.adapter.is_at(marker)))
        except Unreachable as fault:
            self.why = str(fault)
            self.transport.close()  # else each look at a store that stands still leaves a connection behind
            # a proxy that says 502, or a connection that ends, is an answer: the lane looks, and judges
            silent = fault.fate is Fate.UNKNOWN and isinstance(fault.__cause__, TimeoutError)
            return Seen.SILENT if silent else Seen.REFUSING
        except UnexpectedAnswer:
            return Seen.ELSEWHERE
        return Seen.THERE if at else Seen.ELSEWHERE


class Watch:
    """:meth:`start`, :meth:`expect` and :meth:`rang` are for the source's thread; a worker is looked at in its own, in
    which one that hangs delays nobody. ``tell``: the masters, of a worker that stands still."""

    def __init__(
        self,
        workers: Sequence[WorkerConfig],
        tell: Callable[[str, WorkerReport], None],
        transport: Callable[[str], Reached] | None = None,
    ) -> None:
        self._tell = tell
        self._reach = transport or _transport
        self._configured = {w.name: (w.url, w.engine) for w in workers}
        self._places: dict[str, _Place] = {}
        self._expected: dict[str, MarkerPosition] = {}
        self._shown: dict[str, str] = {}
        self._rang = threading.Event()
        self._over = threading.Event()
        self._started = False

    def start(self) -> None:
        self._started = True
        for name, place in self._places.items():
            self._follow(name, place)

    def stop(self) -> None:
        self._over.set()

    def expect(self, stable: int, workers: Sequence[Worker]) -> bool:
        """As a master tells it. One that is not at the end of its way is not watched: it is being moved, or the
        master rings for it. Returns whether one that works is on its way, and to be watched soon."""
        for name in self._places.keys() - {w.name for w in workers}:
            del self._places[name]
        for w in workers:
            self._find(w)
        expected: dict[str, MarkerPosition] = {}
        moving = False
        for w in workers:
            if w.position is None or w.state not in ("Working", "Unordered", "Unreachable"):
                continue
            end = stable if w.hold is None else min(w.hold, stable)
            if w.position.index < end:
                moving = moving or w.state != "Unreachable"
            elif 0 < w.position.index == end:
                expected[w.name] = MarkerPosition(w.position.position, w.position.fence, w.position.paths)
        self._shown = {w.name: w.state for w in workers}
        self._expected = expected
        return moving

    def _find(self, worker: Worker) -> None:
        """One that came back at another place is another store. A master that does not say where it is means one that
        was configured."""
        told = (worker.url, worker.engine or "oxigraph") if worker.url else self._configured.get(worker.name)
        known = self._places.get(worker.name)
        if told is None or (known is not None and known.at == told):
            return
        place = self._places[worker.name] = _Place(*told, self._reach(told[0]))
        if self._started:
            self._follow(worker.name, place)

    def rang(self) -> bool:
        """Whether a worker was met that somebody should look after, since this was asked last."""
        rang = self._rang.is_set()
        self._rang.clear()
        return rang

    def look(self, name: str) -> None:
        """Ask it once, if it is to be watched."""
        if (place := self._places.get(name)) is not None:
            self._look(name, place)

    def _look(self, name: str, place: _Place) -> None:
        marker = self._expected.get(name)
        if marker is None:
            return
        seen = place.ask(marker)
        if self._expected.get(name) != marker or self._places.get(name) is not place:
            return  # it has been given something to do meanwhile, or has been taken out
        before, place.seen = place.seen, seen
        # between two silences its lane may have met it, and said so
        again = seen is Seen.SILENT and self._shown.get(name) != "Unreachable"
        if seen is before and not again:
            return
        if seen is Seen.SILENT:
            self._tell(name, WorkerReport(None, State.UNREACHABLE, place.why))
        # whoever is where it should be has been looked after, unless it was only not to be seen
        if not (seen is Seen.THERE and before is Seen.ELSEWHERE):
            self._rang.set()

    def _follow(self, name: str, place: _Place) -> None:
        threading.Thread(target=self._run, args=(name, place), name=f"txlog-watch {name}", daemon=True).start()

    def _run(self, name: str, place: _Place) -> None:
        while not self._over.wait(WATCH_S) and self._places.get(name) is place:
            try:
                self._look(name, place)
            except Exception:  # noqa: BLE001 - a fault of ours must not end the watching for good
                _log.exception("looking whether worker %s is where it was", name)
        place.transport.close()
