"""Applies the log to one worker: owns its adapter, connection, log and probe, and returns a report."""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec

from txlog.apply import ABANDONED_S, ApplyOutcome, ForeignLock, MasterLog, Suspect, WorkerState, apply_up_to
from txlog.client import FailoverClient, WorkerReport
from txlog.client.responses import BulkRequest
from txlog.config.process_config import PipelineConfig
from txlog.model.errors import TxLogError
from txlog.pipeline.apply_round import ApplyRound, WorkerCache, to_worker_position
from txlog.pipeline.bulk_rounds import BulkRounds
from txlog.workers import ADAPTERS
from txlog.workers.adapter import MarkerPosition, Transport, Unreachable
from txlog.workers.http_transport import HttpTransport
from txlog.workers.probe import probe

REQUEST_TIMEOUT_S = 30.0
"""Time-out of one update, after which the worker counts as unreachable. The worker blocks only its own lane. So this
allows for a large update."""

IDLE_CHECK_TIMEOUT_S = 5.0
"""Time-out of an idle worker for its position, which is one look-up of a name. A hanging store accepts connections;
with the longer time-out it would be found as late as one that executes a large update."""

MASTER_TIMEOUT_S = 3.0
"""Time-out of a master for a page; then the next master is asked."""


class WorkerApplier:
    """One worker of a configuration. Not thread-safe."""

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
        self._log = MasterLog(FailoverClient(config.masters, MASTER_TIMEOUT_S))
        self._foreign_lock: ForeignLock | None = None
        self._execution_s, self._closed_connections = config.execution_s, config.closed_connections
        self._awaits = 0.0
        """``running_since`` of the request whose end this process' connection will show."""
        self._bulk = BulkRounds(found, config.bulk_target, self._log)

    def follow_bulk_loads(self, asked: Callable[[], BulkRequest | None]) -> None:
        """``asked``: the bulk load that the masters ask this worker to prepare, from their last answers."""
        self._bulk.asked = asked

    def __call__(self, upto: int, budget_s: float, known: WorkerCache) -> ApplyRound:
        """Applies towards ``upto`` for about ``budget_s``. Never raises for an error of the worker or of the
        masters."""
        self._bulk.prepare(known.loaded)
        known, done = self._bulk.advance(known, upto)
        if done is None:
            done = self._apply(upto, budget_s, known)
        report = msgspec.structs.replace(done.report, bulk=self._bulk.progress())
        cache = done.cache._replace(loaded=self._bulk.loaded)
        return done._replace(report=report, cache=cache, keeps=self._bulk.keeps_worker)

    def _apply(self, upto: int, budget_s: float, known: WorkerCache) -> ApplyRound:
        started = time.monotonic()
        suspect = self._update_running(known.suspect)
        if suspect is not None and suspect.running_since:
            # A second request beside it would meet the same fate, or make two effects of one transaction.
            awaits = self._awaits == suspect.running_since
            return ApplyRound(_stalled_report(suspect, known.marker), WorkerCache(False, None, suspect), False, awaits)
        if not known.probed:
            refused = self._probe_refusal()
            if refused is not None:
                return ApplyRound(_blame(refused, suspect), WorkerCache(suspect=suspect), False)
        gone = self._check_reachable(upto, known.marker)
        if gone is not None:
            return ApplyRound(_blame(gone, suspect), WorkerCache(suspect=suspect), False)
        try:
            outcome = apply_up_to(
                self._adapter,
                self._transport,
                self._log,
                upto,
                epoch=lambda: self._log.epoch,
                cluster=lambda: self._log.cluster,
                budget_s=budget_s,
                cached=known.marker,
                held=self._foreign_lock,
                suspect=suspect,
                execution_s=self._execution_s,
                ended_min=self._closed_connections,
            )
        except TxLogError as no_log:
            # the error is not the worker's, and its state is unchanged; its position is unknown for now
            place = None if known.marker is None else to_worker_position(known.marker)
            error = f"no log from any master: {no_log}"
            return ApplyRound(
                WorkerReport(place, WorkerState.WORKING, error), WorkerCache(True, suspect=suspect), False
            )
        self._foreign_lock = outcome.foreign_lock
        loading = self._bulk.begin(outcome)
        if loading is not None:
            return loading
        if outcome.suspect is not None and outcome.suspect != suspect:
            # No connection shows the end of a request for which a proxy has stopped waiting.
            self._awaits = 0.0 if self._transport.settled() else outcome.suspect.running_since
        # A returning worker may be another store; a worker off the log is rebuilt by another process.
        lost = outcome.state in (WorkerState.UNREACHABLE, WorkerState.DIVERGED, WorkerState.AHEAD)
        at = None if outcome.state is WorkerState.LOADING else outcome.position
        after = WorkerCache(not lost, None if lost else at, outcome.suspect)
        healthy = outcome.state is WorkerState.WORKING and outcome.error is None
        running_since = 0.0 if outcome.suspect is None else outcome.suspect.running_since
        awaits = running_since > 0.0 and self._awaits == running_since
        return ApplyRound(_to_report(outcome, (time.monotonic() - started) * 1000), after, healthy, awaits)

    def _update_running(self, suspect: Suspect | None) -> Suspect | None:
        """The suspect, with its request over when this process knows that, or when no other process can still wait for
        it."""
        if suspect is None or not suspect.running_since:
            return suspect
        is_ours = self._awaits == suspect.running_since
        over = self._transport.settled() if is_ours else time.monotonic() - suspect.running_since > ABANDONED_S
        return suspect._replace(running_since=0.0) if over else suspect

    def _check_reachable(self, upto: int, marker: MarkerPosition | None) -> WorkerReport | None:
        """The report for an idle worker that does not answer. The applier evaluates the answer of one that does."""
        if marker is None or marker.position.index < upto:
            return None
        try:
            self._idle_transport.send(self._adapter.is_at(marker))
        except Unreachable as fault:
            return WorkerReport(None, WorkerState.UNREACHABLE, str(fault))
        return None

    def _probe_refusal(self) -> WorkerReport | None:
        """The report for a store that cannot be a worker; None when it can."""
        try:
            result = probe(self._adapter, self._transport)
        except Unreachable as fault:
            return WorkerReport(None, WorkerState.UNREACHABLE, str(fault))
        return None if result.refused is None else WorkerReport(None, WorkerState.REFUSED, str(result.refused))


def _to_report(outcome: ApplyOutcome, took_ms: float) -> WorkerReport:
    refused = outcome.refused
    report = WorkerReport(
        None if outcome.position is None else to_worker_position(outcome.position),
        outcome.state,
        outcome.error,
        None if refused is None else refused.status,
        None if refused is None else refused.body,
        None if refused is None else str(refused.txid),
        round(took_ms, 3),
    )
    harmless = refused is not None and refused.status is not None
    return report if harmless else _blame(report, outcome.suspect)


def _blame(report: WorkerReport, suspect: Suspect | None) -> WorkerReport:
    """The report, with what is known of the transaction that may be the cause."""
    if suspect is None:
        return report
    fault = suspect.reported_fault(time.monotonic())
    return msgspec.structs.replace(report, fault=fault, txid=suspect.txid or None, running=bool(suspect.running_since))


def _stalled_report(suspect: Suspect, marker: MarkerPosition | None) -> WorkerReport:
    """The report of a worker that has not answered a request, and may still execute it."""
    waits_s = time.monotonic() - suspect.running_since
    error = (
        f"has not answered a request with {suspect.txid or 'several transactions'}, {waits_s:.0f} s after its time-out"
    )
    state = WorkerState.UNREACHABLE if suspect.verdict is None else WorkerState.BLOCKED
    place = None if marker is None else to_worker_position(marker)
    return _blame(WorkerReport(place, state, f"{error}; restart the store if it does not end", body=error), suspect)
