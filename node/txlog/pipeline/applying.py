"""One worker, ready to be applied to: adapter, connection, log, probe; what comes out is a report."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from txlog.apply import Held, Outcome, State, apply_up_to
from txlog.client import Masters, WorkerPlace, WorkerReport
from txlog.config.process import PipelineConfig
from txlog.model.entry import LogEntry, Position
from txlog.model.errors import TxLogError
from txlog.workers import ADAPTERS
from txlog.workers.base import MarkerPosition, Transport, Unreachable
from txlog.workers.probe import probe
from txlog.workers.transport import HttpTransport

REQUEST_S = 30.0
"""How long a worker may work at one update before it counts as unreachable. It waits in its own lane, so this is
as long as a large update may take, not as short as the others would like."""

LOOK_S = 5.0
"""How long one that has nothing to do may take to say where it is: a name looked up. A store that stands still accepts
connections, and would be found as late as one that works at something large."""

MASTER_S = 3.0
"""How long a master may keep a page waiting before the next master is asked."""


class Known(NamedTuple):
    """What one application to a worker leaves for the next, in whatever process. Both may be wrong: a wrong marker
    costs a request. ``probed``: this store passed the probe and has been there ever since."""

    probed: bool = False
    marker: MarkerPosition | None = None


NOTHING_KNOWN = Known()


class Applied(NamedTuple):
    """``healthy``: applying could go on at once."""

    report: WorkerReport
    known: Known
    healthy: bool


class FollowedLog:
    """The log of the nearest master that answers; remembers the epoch, which a page tells and an entry does not."""

    def __init__(self, masters: Masters) -> None:
        self._masters = masters
        self.epoch = 0

    def page(
        self, after: Position | None, upto: int, max_bytes: int, unordered: Sequence[tuple[int, bytes]] = ()
    ) -> list[LogEntry]:
        index, at_hash = (0, None) if after is None else (after.index, after.hash)
        page = self._masters.log_page(index, at_hash, upto, max_bytes, unordered)
        self.epoch = page.stable.epoch
        return page.log_entries()


class WorkerApplier:
    """One worker of a configuration. One thread at a time."""

    def __init__(
        self, config: PipelineConfig, worker: str, transport: Callable[[str], Transport] | None = None
    ) -> None:
        (found,) = [w for w in config.workers if w.name == worker]
        self._adapter = ADAPTERS[found.engine]
        self._transport = transport(found.url) if transport else HttpTransport(found.url, REQUEST_S, connect_s=1.0)
        self._look = transport(found.url) if transport else HttpTransport(found.url, LOOK_S, connect_s=1.0)
        self._log = FollowedLog(Masters(config.masters, MASTER_S))
        self._held: Held | None = None

    def __call__(self, upto: int, budget_s: float, known: Known) -> Applied:
        """Towards ``upto`` for about ``budget_s``. Never raises for a fault of the worker or of the masters."""
        started = time.monotonic()
        if not known.probed:
            refused = self._refused()
            if refused is not None:
                return Applied(refused, NOTHING_KNOWN, False)
        gone = self._gone(upto, known.marker)
        if gone is not None:
            return Applied(gone, NOTHING_KNOWN, False)
        try:
            outcome = apply_up_to(
                self._adapter,
                self._transport,
                self._log,
                upto,
                epoch=lambda: self._log.epoch,
                budget_s=budget_s,
                cached=known.marker,
                held=self._held,
            )
        except TxLogError as no_log:
            # the worker is not to blame and no worse than it was; where it is, is not known for now
            place = None if known.marker is None else place_of(known.marker)
            error = f"no log from any master: {no_log}"
            return Applied(WorkerReport(place, State.WORKING, error), Known(True), False)
        self._held = outcome.held
        # What comes back may be another store; what is off the log is made anew, behind our back.
        lost = outcome.state in (State.UNREACHABLE, State.DIVERGED, State.AHEAD)
        at = None if outcome.state is State.LOADING else outcome.position
        after = NOTHING_KNOWN if lost else Known(True, at)
        healthy = outcome.state is State.WORKING and outcome.error is None
        return Applied(_report(outcome, (time.monotonic() - started) * 1000), after, healthy)

    def _gone(self, upto: int, marker: MarkerPosition | None) -> WorkerReport | None:
        """The report for a worker that has nothing to do and does not answer. What it answers is for the applier."""
        if marker is None or marker.position.index < upto:
            return None
        try:
            self._look.send(self._adapter.is_at(marker))
        except Unreachable as fault:
            return WorkerReport(None, State.UNREACHABLE, str(fault))
        return None

    def _refused(self) -> WorkerReport | None:
        """The report for a store that may not be a worker; None when it may."""
        try:
            result = probe(self._adapter, self._transport)
        except Unreachable as fault:
            return WorkerReport(None, State.UNREACHABLE, str(fault))
        return None if result.refused is None else WorkerReport(None, State.REFUSED, str(result.refused))


def _report(outcome: Outcome, took_ms: float) -> WorkerReport:
    refused = outcome.refused
    return WorkerReport(
        None if outcome.position is None else place_of(outcome.position),
        outcome.state,
        outcome.error,
        None if refused is None else refused.status,
        None if refused is None else refused.body,
        None if refused is None else str(refused.txid),
        round(took_ms, 3),
    )


def place_of(marker: MarkerPosition) -> WorkerPlace:
    """As a report tells it."""
    at = marker.position
    paths = [f"{index}:{value.hex()}" for index, value in marker.unordered]
    return WorkerPlace(at.epoch, at.index, at.hash.hex(), marker.fence, paths)
