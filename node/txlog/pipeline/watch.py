"""Whether workers that have nothing to do still are where they were: a store that was put back to an older copy, or
that has gone, tells nobody."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from enum import Enum

from txlog.client import Worker
from txlog.config.process import WorkerConfig
from txlog.workers import ADAPTERS
from txlog.workers.base import Adapter, MarkerPosition, Transport, UnexpectedAnswer, Unreachable
from txlog.workers.transport import HttpTransport

WATCH_S = 2.0
"""How often an idle worker is asked: one look-up of a name, half a millisecond on either side."""

ANSWER_S = 1.0


class Seen(Enum):
    THERE = "where it was"
    ELSEWHERE = "not where it was"
    GONE = "no answer"


def _transport(url: str) -> Transport:
    return HttpTransport(url, ANSWER_S, connect_s=ANSWER_S)


class Watch:
    """:meth:`expect` and :meth:`rang` are for the source's thread, :meth:`look` for the watch's own, in which a worker
    that hangs delays nobody."""

    def __init__(self, workers: Sequence[WorkerConfig], transport: Callable[[str], Transport] | None = None) -> None:
        self._reach = transport or _transport
        self._adapters: dict[str, Adapter] = {w.name: ADAPTERS[w.engine] for w in workers}
        self._transports = {w.name: self._reach(w.url) for w in workers}
        self._expected: dict[str, MarkerPosition] = {}
        self._seen = dict.fromkeys(self._adapters, Seen.THERE)
        self._rang = threading.Event()
        self._over = threading.Event()

    def start(self) -> None:
        threading.Thread(target=self._run, name="txlog-watch", daemon=True).start()

    def stop(self) -> None:
        self._over.set()

    def expect(self, stable: int, workers: Sequence[Worker]) -> None:
        """As a master tells it. One that is not at the end of its way is not watched: it is being moved, or the
        master rings for it."""
        for w in workers:
            if w.name not in self._adapters and w.url:
                self._adapters[w.name] = ADAPTERS[w.engine or "oxigraph"]
                self._transports[w.name] = self._reach(w.url)
                self._seen[w.name] = Seen.THERE
        self._expected = {
            w.name: MarkerPosition(w.position.position, w.position.fence, w.position.paths)
            for w in workers
            if w.position is not None
            and 0 < w.position.index == (stable if w.hold is None else min(w.hold, stable))
            and w.state in ("Working", "Unordered", "Unreachable")
        }

    def rang(self) -> bool:
        """Whether a worker was met that somebody should look after, since this was asked last."""
        rang = self._rang.is_set()
        self._rang.clear()
        return rang

    def look(self) -> None:
        """Ask each worker once."""
        for name, marker in self._expected.items():
            if name not in self._adapters:
                continue
            seen = self._ask(name, marker)
            if self._expected.get(name) != marker:
                continue  # it has been given something to do meanwhile
            before, self._seen[name] = self._seen[name], seen
            # whoever is where it should be has been looked after, unless it was only not to be seen
            if seen is not before and not (seen is Seen.THERE and before is Seen.ELSEWHERE):
                self._rang.set()

    def _ask(self, name: str, marker: MarkerPosition) -> Seen:
        adapter = self._adapters[name]
        try:
            at = adapter.is_at_in(self._transports[name].send(adapter.is_at(marker)))
        except Unreachable:
            return Seen.GONE
        except UnexpectedAnswer:
            return Seen.ELSEWHERE
        return Seen.THERE if at else Seen.ELSEWHERE

    def _run(self) -> None:
        while not self._over.wait(WATCH_S):
            self.look()
