"""Brings one worker from its position to an index of the log, by net effect: the driver's part."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import pairwise
from math import ceil
from types import MappingProxyType
from typing import NamedTuple

from txlog.apply import WorkerState
from txlog.apply.applier import MERGE_BYTES, MERGE_TRANSACTIONS
from txlog.apply.entry_operations import find_operations
from txlog.apply.request_limits import silence_limit_s, time_limit_s
from txlog.bulk.held_body import may_be_landed
from txlog.client import FailoverClient, JsonMarker, WorkerReport
from txlog.config.process_config import PipelineConfig, WorkerConfig
from txlog.model.bulk_entry import decode_bulk_load, find_bulk_load
from txlog.model.entry import KIND_UPDATE, LogEntry, Position
from txlog.model.entry_effects import NOOP_SKIP
from txlog.model.errors import LogAhead, LogDiverged, LogNeedsRestore, TxLogError
from txlog.model.hashes import NO_HASH
from txlog.pipeline.apply_round import to_worker_position
from txlog.pipeline.batch.cost_model import LogEstimate, estimate_log
from txlog.pipeline.batch.load_session import LoadSession, LoadStart, LoadTarget, inspect_worker
from txlog.pipeline.batch.log_range_reader import PAGE_BYTES, BranchMasters, with_retries
from txlog.pipeline.batch.task_messages import LoadJob, LoadSuperseded, LogRange, TaskFault
from txlog.pipeline.batch.task_runner import TaskRunner
from txlog.wire.log_page import LogPage
from txlog.workers import ADAPTERS
from txlog.workers.adapter import (
    EMPTY_MARKER,
    LoadMarker,
    MarkerPosition,
    Transport,
    UnexpectedAnswer,
    Unreachable,
    WorkerDiverged,
    WorkerRefused,
)
from txlog.workers.http_transport import HttpTransport
from txlog.workers.marker_names import may_land

BUCKET_OPERATIONS = 200_000
BUCKET_BYTES = 40 << 20
"""Size of one bucket, whichever limit comes first. One task holds its net effect in memory: about 200 MB where every
quad is separate, two copies of the bytes where all are adds."""
BUCKETS_MAX = 2000
RANGE_ENTRIES_MIN = 5_000
RANGES = 16
"""A range is what a task reads without a look-up; many ranges balance the tasks."""
IN_ORDER_MAX = 20_000
"""Entries between two segments that are executed in order under the mark. Before a longer run the load ends, and the
worker continues as a worker. It is also the minimum size of a segment that is worth a job."""
LOCK_WAIT_S = 60.0
"""How long to wait for the process that applies to the worker now."""
REPORT_INTERVAL_S = 2.0
REQUEST_TIMEOUT_S = 120.0

_TRANSIENT_STATES = (WorkerState.WORKING, WorkerState.UNREACHABLE, WorkerState.AHEAD)

ReportCallback = Callable[[WorkerReport], None]


class CatchUpResult(NamedTuple):
    """``state``: as in a report. ``marker``: the worker's marker, None while it is loading or unknown.
    ``left_updates``: it repeated an interrupted load and left the updates after it to the stream, which finds out
    whether one of them is harmful."""

    state: WorkerState
    marker: MarkerPosition | None
    error: str | None = None
    adds: int = 0
    deletes: int = 0
    entries: int = 0
    seconds: float = 0.0
    left_updates: bool = False
    stages: Mapping[str, float] = MappingProxyType({})
    """Seconds by stage: ``inspect_worker`` at worker and log, ``mark`` (with waiting for the lock), ``spark`` (what was
    left of its start), ``read``, ``load``, ``in order``, ``end``."""


class CatchUp:
    """One batch for one worker. :meth:`run` never raises for an error of the worker or of the log."""

    def __init__(
        self,
        config: PipelineConfig,
        worker: str,
        engine: TaskRunner | Callable[[], TaskRunner],
        report: ReportCallback,
        *,
        tasks: int = 2,
        transport: Callable[[str], Transport] | None = None,
        takeover_s: float | None = None,
        wait_s: float = LOCK_WAIT_S,
        in_order_max: int = IN_ORDER_MAX,
    ) -> None:
        (found,) = [w for w in config.workers if w.name == worker]
        self._worker: WorkerConfig = found
        self._masters_urls = tuple(config.masters)
        self._masters = FailoverClient(config.masters, 15.0)
        self._pages: FailoverClient | BranchMasters = self._masters
        self._runner, self._report_callback, self._tasks = engine, report, tasks
        self._wait_s, self._in_order_max = wait_s, in_order_max
        make = transport or (lambda url: HttpTransport(url, REQUEST_TIMEOUT_S))
        self._transports = [make(found.url), make(found.url)]
        self._target = LoadTarget(found.name, ADAPTERS[found.engine], self._transports[0])
        self._session = LoadSession(self._target, self._transports[1], *(() if takeover_s is None else (takeover_s,)))
        self._repeats_load = self._left_updates = False
        self._execution_s = config.execution_s
        self._loaded = [0, 0]
        self._stages: dict[str, float] = {}
        self._phase = ""
        self._cluster = b""  # of the log that has confirmed a position

    def run(self, upto: int | None = None) -> CatchUpResult:
        """Loads to index ``upto`` (default: the masters' stable index), or as far as a batch is worth it. An
        interrupted load is repeated to its own end, and not to ``upto``."""
        began = time.monotonic()
        state = WorkerState.WORKING
        error: str | None = None
        at: MarkerPosition | None = None
        start = LoadStart(EMPTY_MARKER, None)
        try:
            with self._timed_stage("look"):
                start = inspect_worker(self._target)
            at = self._execute(start, upto)
        except Unreachable as gone:
            state, error = WorkerState.UNREACHABLE, str(gone)
        except (WorkerDiverged, LogDiverged) as off:
            state, error = WorkerState.DIVERGED, str(off)
        except LogNeedsRestore as gap:
            state, error = WorkerState.NEEDS_RESTORE, str(gap)
        except LogAhead as ahead:
            state, error = WorkerState.AHEAD, str(ahead)
        except WorkerRefused as refused:
            state, error = WorkerState.REFUSED, str(refused)
        except _TaskFailed as broken:
            state, error = WorkerState(broken.fault.state), broken.fault.text
        except (LoadSuperseded, UnexpectedAnswer) as lost:
            state, error = WorkerState.LOADING, str(lost)
        except TxLogError as missing:
            state, error = WorkerState.WORKING, f"a batch waits: {missing}"
        finally:
            self._close()
        self._report_end(start, at, state, error)
        entries = at.position.index - start.since.position.index if at is not None else 0
        return CatchUpResult(
            state,
            at,
            error,
            self._loaded[0],
            self._loaded[1],
            entries,
            time.monotonic() - began,
            self._left_updates,
            self._stages,
        )

    def _report_end(self, start: LoadStart, at: MarkerPosition | None, state: WorkerState, error: str | None) -> None:
        """A worker with a mark is ``Loading`` after every fault: it holds no prefix of the log, so no master may send
        it a query."""
        is_marked = start.interrupted is not None or self._session.may_be_marked
        if at is None and is_marked and state in _TRANSIENT_STATES:
            since = self._session.loading.since if self._session.may_be_marked else start.since
            self._report_loading(since or start.since, f"it broke off, and is repeated: {error}")
        elif at is not None or state is not WorkerState.LOADING:
            self._report_callback(WorkerReport(None if at is None else to_worker_position(at), state, error))

    def _close(self) -> None:
        self._masters.close()
        self._pages.close()
        with suppress(Unreachable):
            self._session.abandon()
        for transport in self._transports:
            if isinstance(transport, HttpTransport):
                transport.close()

    # -- the sequence of segments

    def _execute(self, start: LoadStart, upto: int | None) -> MarkerPosition:
        since = start.since.position
        if start.interrupted is not None and may_land(start.interrupted):
            raise LoadSuperseded(f"a bulk load may still come into {self._worker.name}; its lane sees to it")
        with self._timed_stage("look"):
            if start.interrupted is not None:
                end = start.interrupted.position
            else:
                status = self._masters.status()
                stable = status.stable.position
                end = stable if upto is None or upto >= stable.index else self._position_at(upto)
            self._pages = BranchMasters(self._masters_urls, end)
            self._check_on_log(end)
            self._check_on_log(since)
            if start.interrupted is not None:
                self._refuse_bulk_load(start.since, start.interrupted)
            if end.index <= since.index and start.interrupted is None:
                return start.since
            self._repeats_load = start.interrupted is not None
            guessed = estimate_log(self._masters, since.index, end.index)
            silent_s = self._owner_silence_s(since)
        with self._timed_stage("mark"):
            self._report_loading(start.since, "waiting for the worker")
            self._session.begin(start, end, self._wait_s, silent_s)
        over = threading.Event()
        reporting = threading.Thread(target=self._report_loop, args=(over,), daemon=True)
        reporting.start()
        try:
            return self._load_segments(end, guessed)
        finally:
            over.set()
            reporting.join(REPORT_INTERVAL_S)

    def _owner_silence_s(self, since: Position) -> float:
        """By how many seconds more than usual the owner of the lock may be silent: it may be executing the entry after
        ``since``, and waits for its answer."""
        page = self._pages.log_page(since.index, since.hash if since.index else None, since.index + 1, 1)
        return max((silence_limit_s(each, self._execution_s, 0.0) for each in page.log_entries()), default=0.0)

    def _refuse_bulk_load(self, since: MarkerPosition, mark: LoadMarker) -> None:
        """The quads of a bulk load that was interrupted may be in the worker, so it is at neither of the two markers.
        Its lane repeats it. One that the log has skipped cannot be taken out again."""
        if not may_be_landed(mark):
            return
        at = since.position
        page = self._pages.log_page(at.index, at.hash if at.index else None, mark.position.index, PAGE_BYTES)
        for entry in page.log_entries()[:1]:
            if find_bulk_load(entry) is not None:
                raise LoadSuperseded(f"a bulk load may be in {self._worker.name}; its lane repeats it")
            if entry.kind == KIND_UPDATE and entry.noop == NOOP_SKIP and decode_bulk_load(entry.payload) is not None:
                raise WorkerDiverged(
                    f"the log has skipped a bulk load that may be in {self._worker.name}: rebuild it from another one"
                )

    def _load_segments(self, end: Position, guessed: LogEstimate) -> MarkerPosition:
        """Runs of quads as jobs, the entries between them in order."""
        cuts: list[int] | None = None
        while True:
            at = self._session.since
            if at.position.index >= end.index:
                return self._finish(at.position)
            if cuts is None:
                # The updates' indexes are unknown yet. This job finds them, and loads what precedes the first.
                stop, cuts = self._run_job(at, end, guessed)
            else:
                following = [cut for cut in cuts if cut > at.position.index]
                if (following[0] if following else end.index) - at.position.index <= self._in_order_max:
                    gap = self._sequential_end(following, end.index)
                    if self._repeats_load:
                        # The worker may have ended at one of these updates. Its applier judges that; a batch cannot.
                        self._left_updates = True
                        return self._finish(at.position)
                    if gap - at.position.index > self._in_order_max:
                        return self._finish(at.position)
                    with self._timed_stage("in order"):
                        went = self._apply_in_order(at, gap)
                    if not went:
                        return self._finish(self._session.since.position)
                    continue
                stop, _ = self._run_job(at, self._position_at(following[0] - 1) if following else end, guessed)
            self._advance_mark(stop)

    def _sequential_end(self, cuts: Sequence[int], end: int) -> int:
        """The last update before a segment that is worth a job, or the end."""
        for cut, following in pairwise([*cuts, end]):
            if following - cut > self._in_order_max:
                return cut
        return end

    def _run_job(self, at: MarkerPosition, end: Position, guessed: LogEstimate) -> tuple[Position, list[int]]:
        """Loads a segment by tasks: up to ``end``, or up to the first update. Returns where that is, and all updates up
        to ``end``."""
        buckets = bucket_count(guessed, end.index - at.position.index, self._tasks)
        job = LoadJob(
            self._masters_urls,
            self._worker.name,
            self._worker.url,
            self._worker.engine,
            self._session.loading,
            buckets,
            at == EMPTY_MARKER,
            self._repeats_load,
        )
        with self._timed_stage("look"):
            ranges = self._split_ranges(at.position, end)
        with self._timed_stage("spark"):
            engine = self._runner() if callable(self._runner) else self._runner
        self._phase = f"carrying out {end.index - at.position.index:,} transactions in {buckets} pieces"
        began = time.time()
        try:
            found = engine.run(job, ranges)
        except Exception as failed:  # after any error of Spark's job the load is repeated
            text = (str(failed).splitlines() or [type(failed).__name__])[0]
            raise _TaskFailed(
                TaskFault(WorkerState.LOADING, f"the tasks broke off, and will be repeated: {text[:500]}")
            ) from failed
        loading = min(each.began for each in found)
        self._add_time("read", loading - began)
        self._add_time("load", time.time() - loading)
        self._session.raise_if_lost()
        for each in found:
            self._loaded[0] += each.adds
            self._loaded[1] += each.deletes
        faults = [each.fault for each in found if each.fault is not None]
        if faults:
            raise _TaskFailed(faults[0])
        cuts = sorted({cut for each in found for cut in each.update_indexes})
        # Of the tasks' log. The masters may have cut it since, and have another position at that index.
        befores = (each.before for each in found if each.before is not None)
        return min(befores, default=end, key=lambda position: position.index), cuts

    def _advance_mark(self, to: Position) -> None:
        """The segment is in the worker: a repeated load would begin after it."""
        since = self._session.since
        if to.index > since.position.index:
            refused = self._session.advance([], since._replace(position=to))
            if refused is not None:
                raise UnexpectedAnswer("moving the mark", refused)

    def _apply_in_order(self, at: MarkerPosition, upto: int) -> bool:
        """Executes transactions one by one, each with its move of the mark. False when the worker refuses one: the
        worker is before it, and its applier will find out which."""
        place = at.position
        while place.index < upto:
            after = place.hash if place.index else None
            page = self._pages.log_page(place.index, after, upto, PAGE_BYTES)
            entries = page.log_entries()
            if not entries:
                raise LogAhead(f"no master has the log up to index {upto} yet")
            due = next((at for at, entry in enumerate(entries) if find_bulk_load(entry) is not None), len(entries))
            for batch in _split_batches(entries[:due]):
                last = batch[-1]
                operations = find_operations(batch)
                place = Position(page.stable.epoch, last.index, last.hash)
                limit_s = time_limit_s(batch, self._execution_s)
                refused = self._session.advance(operations, at._replace(position=place), limit_s)
                if refused is not None:
                    return False
            if due < len(entries):
                return False  # the worker's lane does that
        return True

    def _finish(self, at: Position) -> MarkerPosition:
        since = self._session.since
        epoch = max(at.epoch, since.position.epoch)
        marker = since._replace(fence=since.fence + 1, cluster=self._cluster or since.cluster)
        if at.index:
            marker = marker._replace(position=Position(epoch, at.index, at.hash))
        with self._timed_stage("end"):
            self._session.end(marker)
        return marker

    # -- the log

    def _position_at(self, index: int) -> Position:
        """The log's position at an index. A master whose log does not reach it yet knows no hash there."""

        def ask() -> LogPage | None:
            page = self._pages.log_page(index, None, index)
            return None if index and page.after.hash == NO_HASH else page

        return with_retries(ask, f"no master has the log up to index {index} yet").after

    def _check_on_log(self, position: Position) -> None:
        """:class:`LogDiverged`, :class:`LogAhead` or :class:`LogNeedsRestore` when it is not on the log. Position 0 of
        an empty store is on every log, and has no hash."""
        if position.index or position.hash != NO_HASH:
            self._cluster = self._pages.log_page(position.index, position.hash, position.index).cluster

    def _split_ranges(self, after: Position, end: Position) -> list[LogRange]:
        count = max(1, min(RANGES, (end.index - after.index) // RANGE_ENTRIES_MIN))
        size = (end.index - after.index) / count
        inner = [self._position_at(after.index + round(size * number)) for number in range(1, count)]
        places = [after, *inner, end]
        return [LogRange(*two) for two in pairwise(places)]

    # -- reports

    @contextmanager
    def _timed_stage(self, name: str) -> Iterator[None]:
        began = time.monotonic()
        try:
            yield
        finally:
            self._add_time(name, time.monotonic() - began)

    def _add_time(self, name: str, seconds: float) -> None:
        self._stages[name] = self._stages.get(name, 0.0) + seconds

    def _report_loop(self, over: threading.Event) -> None:
        while True:
            loading = self._session.loading
            if loading.since is not None:
                self._report_loading(loading.since, self._phase)
            if over.wait(REPORT_INTERVAL_S):
                return

    def _report_loading(self, since: MarkerPosition, what: str) -> None:
        end = self._session.loading.position.index
        way = f"from {since.position.index:,} to {end:,}: " if end else ""
        place: JsonMarker | None = None if since == EMPTY_MARKER else to_worker_position(since)
        self._report_callback(WorkerReport(place, WorkerState.LOADING, f"catching up in a batch {way}{what}"))


def bucket_count(guessed: LogEstimate, entries: int, tasks: int) -> int:
    """Number of buckets for ``entries`` of the log: each fits into the memory of a task, and every task gets as
    many."""
    operations, size = guessed.operations_in(entries), guessed.size * entries
    wanted = max(operations / BUCKET_OPERATIONS, size / BUCKET_BYTES, 1.0)
    return tasks * ceil(min(BUCKETS_MAX, wanted) / tasks)


class _TaskFailed(Exception):
    """A task failed."""

    def __init__(self, fault: TaskFault) -> None:
        super().__init__(fault.text)
        self.fault = fault


def _split_batches(entries: Sequence[LogEntry]) -> list[list[LogEntry]]:
    batches: list[list[LogEntry]] = []
    size = 0
    for entry in entries:
        size += len(entry.payload)
        if not batches or size > MERGE_BYTES or len(batches[-1]) >= MERGE_TRANSACTIONS:
            batches.append([])
            size = len(entry.payload)
        batches[-1].append(entry)
    return batches
