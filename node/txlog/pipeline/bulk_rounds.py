"""The part of a worker's rounds that bulk loads have: between the log, the reports and :class:`BulkLane`."""

from __future__ import annotations

from collections.abc import Callable

from txlog.apply import ApplyOutcome, MasterLog, WorkerState
from txlog.bulk.held_body import may_be_landed
from txlog.client import WorkerReport
from txlog.client.responses import BulkProgress, BulkRequest
from txlog.config.process_config import TargetConfig, WorkerConfig
from txlog.model.bulk_entry import BulkReference, find_bulk_load
from txlog.model.entry import Position
from txlog.model.errors import LogAhead, LogDiverged, LogNeedsRestore, TxLogError
from txlog.pipeline.apply_round import ApplyRound, WorkerCache, to_worker_position
from txlog.pipeline.bulk_lane import BulkLane, BulkStep
from txlog.workers.adapter import EMPTY_MARKER, LoadMarker, MarkerPosition, Unreachable
from txlog.workers.http_transport import HttpTransport
from txlog.workers.marker_names import may_land

REQUEST_TIMEOUT_S = 30.0
_PAGE_BYTES = 1 << 20


class BulkRounds:
    """One worker. ``asked``: as in :meth:`txlog.pipeline.worker_applier.WorkerApplier.follow_bulk_loads`."""

    def __init__(self, worker: WorkerConfig, target: TargetConfig | None, log: MasterLog) -> None:
        self._log = log
        self._lane = BulkLane(worker, HttpTransport(worker.url, REQUEST_TIMEOUT_S, connect_s=1.0), target)
        self._due: BulkReference | None = None
        """The load that is next in the log."""
        self._last_at: MarkerPosition | None = None
        self.loaded = ""
        """The load that came in last."""
        self.asked: Callable[[], BulkRequest | None] = lambda: None

    @property
    def keeps_worker(self) -> bool:
        """See :attr:`~txlog.pipeline.bulk_lane.BulkLane.keeps_worker`."""
        return self._lane.keeps_worker

    def progress(self) -> BulkProgress:
        """For the report."""
        return self._lane.progress()

    def prepare(self, loaded: str) -> None:
        """Sends ahead what the masters ask for, once it is known which cluster's log this is. ``loaded``: the load that
        came in last, by any process."""
        self.loaded = loaded
        asked = self.asked()
        wanted = self._due
        if wanted is None and asked is not None and asked.id != loaded:
            wanted = BulkReference(asked.id, asked.manifest, asked.quads)
        if self._log.cluster:
            self._lane.prepare(wanted, self._log.cluster, is_next=self._due is not None)

    def advance(self, known: WorkerCache, upto: int) -> tuple[WorkerCache, ApplyRound | None]:
        """Goes on with a load whose mark is in the worker. A round: nothing else may be applied now."""
        if not self._lane.is_busy:
            return known, None
        step = self._guarded(lambda: self._next_step(upto))
        if step.done or step.moved:
            self.loaded = self._lane.loaded or self.loaded
            self._due = None
            return known._replace(marker=step.at), None
        return known, self._round(step)

    def _next_step(self, upto: int) -> BulkStep:
        mark = self._lane.repeated
        if mark is None:
            return self._lane.advance()
        if self._find_load(mark) is None:
            return self._lane.leave()
        return self._lane.advance(may_end=upto >= mark.position.index)

    def begin(self, outcome: ApplyOutcome) -> ApplyRound | None:
        """The round of a worker whose next entry is a bulk load, or that has the mark of one; None for any other."""
        self._due = None if outcome.bulk is None else find_bulk_load(outcome.bulk)
        if outcome.bulk is not None and self._due is not None:
            due, entry, at = self._due, outcome.bulk, outcome.position
            if at is None and entry.index != 1:
                error = f"the bulk load {due.id} is next, and the worker's position is not known: it is read again"
                return self._round(BulkStep(None, WorkerState.WORKING, error))
            new = self._after(at or EMPTY_MARKER, Position(self._log.epoch, entry.index, entry.hash))
            self._lane.prepare(due, self._log.cluster, is_next=True)
            return self._round(self._guarded(lambda: self._lane.execute(due, at, new)))
        mark = outcome.loading
        if mark is not None and may_land(mark):
            return self._round(self._guarded(lambda: self._take_over(mark)))
        return None if mark is None else self._begin_again(mark)

    def _take_over(self, mark: LoadMarker) -> BulkStep:
        load = self._find_load(mark)
        return self._lane.take_over(mark, self._after(mark.since or EMPTY_MARKER, mark.position), load)

    def _begin_again(self, mark: LoadMarker) -> ApplyRound | None:
        """None: it is the mark of a batch, or of a restore, or this is not known now."""
        if not may_be_landed(mark):
            return None
        try:
            load = self._find_load(mark)
        except TxLogError:
            return None
        if load is None:
            return None
        new = self._after(mark.since or EMPTY_MARKER, mark.position)
        return self._round(self._guarded(lambda: self._lane.repeat(mark, new, load)))

    def _after(self, before: MarkerPosition, position: Position) -> MarkerPosition:
        return before._replace(position=position, cluster=self._log.cluster or before.cluster)

    def _find_load(self, mark: LoadMarker) -> BulkReference | None:
        """The load of the log's entry at a mark; None where the log has another entry there, has skipped it, or does
        not have the worker's position. :class:`~txlog.model.errors.TxLogError`: no master says."""
        since = mark.since or EMPTY_MARKER
        after = None if since == EMPTY_MARKER else since.position
        try:
            page = self._log.page(after, mark.position.index, _PAGE_BYTES, since.unordered)
        except (LogDiverged, LogNeedsRestore):
            return None
        if not page:
            raise LogAhead(f"no master has the log up to index {mark.position.index} yet")
        return find_bulk_load(page[0]) if page[0].hash == mark.position.hash else None

    def _guarded(self, step: Callable[[], BulkStep]) -> BulkStep:
        try:
            return step()
        except Unreachable as gone:
            return BulkStep(None, WorkerState.UNREACHABLE, str(gone))
        except TxLogError as other:
            return BulkStep(self._last_at, WorkerState.WORKING, f"a bulk load waits: {other}")

    def _round(self, step: BulkStep) -> ApplyRound:
        self._last_at = step.at
        place = None if step.at is None else to_worker_position(step.at)
        fault = "stalled" if step.restart else None
        report = WorkerReport(place, step.state, step.error, fault=fault, running=step.restart)
        # This process alone knows what became of the body, so it keeps the worker, unless it has none.
        awaits = step.state is not WorkerState.BLOCKED or self._lane.is_busy
        probed = step.state is not WorkerState.UNREACHABLE
        return ApplyRound(report, WorkerCache(probed), False, awaits)
