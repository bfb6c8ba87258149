"""One worker, ready to be applied to: adapter, connection, log, probe; what comes out is a report."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from txlog.apply import ApplyOutcome, ForeignLock, WorkerState, apply_up_to
from txlog.client import FailoverClient, JsonMarker, WorkerReport
from txlog.config.process_config import PipelineConfig
from txlog.model.entry import LogEntry, Position
from txlog.model.errors import TxLogError
from txlog.workers import ADAPTERS
from txlog.workers.adapter import MarkerPosition, Transport, Unreachable
from txlog.workers.http_transport import HttpTransport
from txlog.workers.probe import probe

REQUEST_TIMEOUT_S = 30.0
"""How long a worker may work at one update before it counts as unreachable. It waits in its own lane, so this is
as long as a large update may take, not as short as the others would like."""

IDLE_CHECK_TIMEOUT_S = 5.0
"""How long one that has nothing to do may take to say where it is: a name looked up. A store that stands still accepts
connections, and would be found as late as one that works at something large."""

MASTER_TIMEOUT_S = 3.0
"""How long a master may keep a page waiting before the next master is asked."""


class WorkerCache(NamedTuple):
    """What one application to a worker leaves for the next, in whatever process. Both may be wrong: a wrong marker
    costs a request. ``probed``: this store passed the probe and has been there ever since."""

    probed: bool = False
    marker: MarkerPosition | None = None


EMPTY_CACHE = WorkerCache()


class ApplyRound(NamedTuple):
    """``healthy``: applying could go on at once."""

    report: WorkerReport
    cache: WorkerCache
    healthy: bool


class PagedMasterLog:
    """The log of the nearest master that answers; remembers the epoch, which a page tells and an entry does not."""

    def __init__(self, masters: FailoverClient) -> None:
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
        self._transport = (
            transport(found.url) if transport else HttpTransport(found.url, REQUEST_TIMEOUT_S, connect_s=1.0)
        )
        self._idle_transport = (
            transport(found.url) if transport else HttpTransport(found.url, IDLE_CHECK_TIMEOUT_S, connect_s=1.0)
        )
        self._log = PagedMasterLog(FailoverClient(config.masters, MASTER_TIMEOUT_S))
        self._foreign_lock: ForeignLock | None = None

    def __call__(self, upto: int, budget_s: float, known: WorkerCache) -> ApplyRound:
        """Towards ``upto`` for about ``budget_s``. Never raises for a fault of the worker or of the masters."""
        started = time.monotonic()
        if not known.probed:
            refused = self._probe_refusal()
            if refused is not None:
                return ApplyRound(refused, EMPTY_CACHE, False)
        gone = self._check_reachable(upto, known.marker)
        if gone is not None:
            return ApplyRound(gone, EMPTY_CACHE, False)
        try:
            outcome = apply_up_to(
                self._adapter,
                self._transport,
                self._log,
                upto,
                epoch=lambda: self._log.epoch,
                budget_s=budget_s,
                cached=known.marker,
                held=self._foreign_lock,
            )
        except TxLogError as no_log:
            # the worker is not to blame and no worse than it was; where it is, is not known for now
            place = None if known.marker is None else to_worker_position(known.marker)
            error = f"no log from any master: {no_log}"
            return ApplyRound(WorkerReport(place, WorkerState.WORKING, error), WorkerCache(True), False)
        self._foreign_lock = outcome.foreign_lock
        # What comes back may be another store; what is off the log is made anew, behind our back.
        lost = outcome.state in (WorkerState.UNREACHABLE, WorkerState.DIVERGED, WorkerState.AHEAD)
        at = None if outcome.state is WorkerState.LOADING else outcome.position
        after = EMPTY_CACHE if lost else WorkerCache(True, at)
        healthy = outcome.state is WorkerState.WORKING and outcome.error is None
        return ApplyRound(_to_report(outcome, (time.monotonic() - started) * 1000), after, healthy)

    def _check_reachable(self, upto: int, marker: MarkerPosition | None) -> WorkerReport | None:
        """The report for a worker that has nothing to do and does not answer. What it answers is for the applier."""
        if marker is None or marker.position.index < upto:
            return None
        try:
            self._idle_transport.send(self._adapter.is_at(marker))
        except Unreachable as fault:
            return WorkerReport(None, WorkerState.UNREACHABLE, str(fault))
        return None

    def _probe_refusal(self) -> WorkerReport | None:
        """The report for a store that may not be a worker; None when it may."""
        try:
            result = probe(self._adapter, self._transport)
        except Unreachable as fault:
            return WorkerReport(None, WorkerState.UNREACHABLE, str(fault))
        return None if result.refused is None else WorkerReport(None, WorkerState.REFUSED, str(result.refused))


def _to_report(outcome: ApplyOutcome, took_ms: float) -> WorkerReport:
    refused = outcome.refused
    return WorkerReport(
        None if outcome.position is None else to_worker_position(outcome.position),
        outcome.state,
        outcome.error,
        None if refused is None else refused.status,
        None if refused is None else refused.body,
        None if refused is None else str(refused.txid),
        round(took_ms, 3),
    )


def to_worker_position(marker: MarkerPosition) -> JsonMarker:
    """As a report tells it."""
    at = marker.position
    paths = [f"{index}:{value.hex()}" for index, value in marker.unordered]
    return JsonMarker(at.epoch, at.index, at.hash.hex(), marker.fence, paths)
