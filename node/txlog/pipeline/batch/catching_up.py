"""One worker from where it stands to an index of the log, by net effect: the driver's part."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import pairwise
from math import ceil
from types import MappingProxyType
from typing import NamedTuple

from txlog.apply import State
from txlog.apply.applier import MERGE_BYTES, MERGE_TRANSACTIONS
from txlog.client import Masters, WorkerPlace, WorkerReport
from txlog.config.process import PipelineConfig, WorkerConfig
from txlog.model.entry import NOT_FOR_WORKERS, LogEntry, Position
from txlog.model.errors import LogAhead, LogDiverged, LogNeedsRestore, TxLogError
from txlog.pipeline.applying import place_of
from txlog.pipeline.batch.engine import Engine
from txlog.pipeline.batch.holding import Held, Start, Target, look
from txlog.pipeline.batch.planning import Estimate, estimate
from txlog.pipeline.batch.reading import PAGE_BYTES
from txlog.pipeline.batch.words import Fault, Job, LoadLost, Range
from txlog.workers import ADAPTERS
from txlog.workers.base import (
    NOTHING,
    MarkerPosition,
    Operation,
    Transport,
    UnexpectedAnswer,
    Unreachable,
    WorkerDiverged,
    WorkerRefused,
)
from txlog.workers.transport import HttpTransport

BUCKET_OPERATIONS = 200_000
BUCKET_BYTES = 40 << 20
"""In one bucket, whose net effect one task holds in memory, whichever comes first: about 200 MB of the task's where
every quad is on its own, two copies of the bytes where all are adds."""
BUCKETS_MAX = 2000
RANGE_ENTRIES_MIN = 5_000
RANGES = 16
"""A range is what a task reads without looking up; many, so that tasks come out even."""
IN_ORDER_MAX = 20_000
"""Entries between two segments that are carried out in order under the mark; before more of them, the load ends, and
the worker goes on as a worker. Also what a segment must have to be worth a job."""
WAIT_S = 60.0
"""For whoever applies to the worker at this moment."""
REPORT_S = 2.0
REQUEST_S = 120.0

Tell = Callable[[WorkerReport], None]


class Ended(NamedTuple):
    """``state``: as in a report. ``at``: where the worker stands, None while it is being loaded or not known."""

    state: State
    at: MarkerPosition | None
    error: str | None = None
    adds: int = 0
    deletes: int = 0
    entries: int = 0
    seconds: float = 0.0
    stages: Mapping[str, float] = MappingProxyType({})
    """Seconds by stage: ``look`` at worker and log, ``mark`` (with waiting for the lock), ``spark`` (what was left of
    its start), ``read``, ``load``, ``in order``, ``end``."""


class CatchUp:
    """One batch for one worker. :meth:`run` never raises for a fault of the worker or of the log."""

    def __init__(
        self,
        config: PipelineConfig,
        worker: str,
        engine: Engine | Callable[[], Engine],
        tell: Tell,
        *,
        tasks: int = 2,
        transport: Callable[[str], Transport] | None = None,
        takeover_s: float | None = None,
        wait_s: float = WAIT_S,
        in_order_max: int = IN_ORDER_MAX,
    ) -> None:
        (found,) = [w for w in config.workers if w.name == worker]
        self._worker: WorkerConfig = found
        self._masters_urls = tuple(config.masters)
        self._masters = Masters(config.masters, 15.0)
        self._engine, self._tell, self._tasks = engine, tell, tasks
        self._wait_s, self._in_order_max = wait_s, in_order_max
        make = transport or (lambda url: HttpTransport(url, REQUEST_S))
        self._transports = [make(found.url), make(found.url)]
        self._target = Target(found.name, ADAPTERS[found.engine], self._transports[0])
        self._held = Held(self._target, self._transports[1], *(() if takeover_s is None else (takeover_s,)))
        self._again = False
        self._loaded = [0, 0]
        self._stages: dict[str, float] = {}
        self._said = ""

    def run(self, upto: int | None = None) -> Ended:
        """To index ``upto`` (default: the masters' stable index), or as far as a batch is worth it. A load that broke
        off is repeated to its own end, whatever ``upto`` says."""
        began = time.monotonic()
        state = State.WORKING
        error: str | None = None
        at: MarkerPosition | None = None
        since = 0
        try:
            with self._stage("look"):
                start = look(self._target)
            since = start.since.position.index
            at = self._carry_out(start, upto)
        except Unreachable as gone:
            state, error = State.UNREACHABLE, str(gone)
        except (WorkerDiverged, LogDiverged) as off:
            state, error = State.DIVERGED, str(off)
        except LogNeedsRestore as gap:
            state, error = State.NEEDS_RESTORE, str(gap)
        except LogAhead as ahead:
            state, error = State.AHEAD, str(ahead)
        except WorkerRefused as refused:
            state, error = State.REFUSED, str(refused)
        except _Broken as broken:
            state, error = State(broken.fault.state), broken.fault.text
        except (LoadLost, UnexpectedAnswer) as lost:
            state, error = State.LOADING, str(lost)
        except TxLogError as nobody:
            state, error = State.WORKING, f"no log from any master: {nobody}"
        finally:
            self._close()
        if state is not State.LOADING or at is not None:
            self._tell(WorkerReport(None if at is None else place_of(at), state, error))
        entries = at.position.index - since if at is not None else 0
        return Ended(
            state, at, error, self._loaded[0], self._loaded[1], entries, time.monotonic() - began, self._stages
        )

    def _close(self) -> None:
        self._masters.close()
        with suppress(Unreachable):
            self._held.abandon()
        for transport in self._transports:
            if isinstance(transport, HttpTransport):
                transport.close()

    # -- the whole way

    def _carry_out(self, start: Start, upto: int | None) -> MarkerPosition:
        since = start.since.position
        with self._stage("look"):
            if start.broken is not None:
                end = start.broken.position
                self._check(end)
            else:
                status = self._masters.status()
                stable = status.stable.position
                end = stable if upto is None or upto >= stable.index else self._position(upto)
            if since.index:
                self._check(since)
            if end.index <= since.index and start.broken is None:
                return start.since
            self._again = start.broken is not None
            guessed = estimate(self._masters, since.index, end.index)
        with self._stage("mark"):
            self._say(start.since, "waiting for the worker")
            self._held.begin(start, end, self._wait_s)
        over = threading.Event()
        teller = threading.Thread(target=self._report, args=(over,), daemon=True)
        teller.start()
        try:
            return self._segments(end, guessed)
        finally:
            over.set()
            teller.join(REPORT_S)

    def _segments(self, end: Position, guessed: Estimate) -> MarkerPosition:
        """Runs of quads as jobs, what lies between them in order."""
        cuts: list[int] | None = None
        while True:
            at = self._held.loading.since
            assert at is not None
            if at.position.index >= end.index:
                return self._finish(at.position)
            if cuts is None:
                # Nobody knows yet where the updates are. This job finds out, and loads what lies before the first.
                stop, cuts = self._job(at, end, guessed)
            else:
                following = [cut for cut in cuts if cut > at.position.index]
                if (following[0] if following else end.index) - at.position.index <= self._in_order_max:
                    gap = self._gap(following, end.index)
                    if gap - at.position.index > self._in_order_max:
                        return self._finish(at.position)
                    with self._stage("in order"):
                        went = self._in_order(at, gap)
                    if not went:
                        return self._finish(self._here())
                    continue
                stop, _ = self._job(at, self._position(following[0] - 1) if following else end, guessed)
            self._move(stop)

    def _gap(self, cuts: Sequence[int], end: int) -> int:
        """The last update before a segment that is worth a job, or the end."""
        for cut, following in pairwise([*cuts, end]):
            if following - cut > self._in_order_max:
                return cut
        return end

    def _job(self, at: MarkerPosition, end: Position, guessed: Estimate) -> tuple[Position, list[int]]:
        """A segment by tasks: up to ``end``, or to what lies before the first update. Where that is, and all updates
        up to ``end``."""
        buckets = buckets_of(guessed, end.index - at.position.index, self._tasks)
        job = Job(
            self._masters_urls,
            self._worker.name,
            self._worker.url,
            self._worker.engine,
            self._held.loading,
            buckets,
            at == NOTHING,
            self._again,
        )
        with self._stage("look"):
            ranges = self._ranges(at.position, end)
        with self._stage("spark"):
            engine = self._engine() if callable(self._engine) else self._engine
        self._said = f"carrying out {end.index - at.position.index:,} transactions in {buckets} pieces"
        began = time.time()
        try:
            found = engine.run(job, ranges)
        except Exception as failed:  # whatever ends Spark's job, the load is repeated
            text = (str(failed).splitlines() or [type(failed).__name__])[0]
            raise _Broken(Fault(State.LOADING, f"the tasks broke off, and will be repeated: {text[:500]}")) from failed
        loading = min(each.began for each in found)
        self._took("read", loading - began)
        self._took("load", time.time() - loading)
        self._held.refuse_when_lost()
        for each in found:
            self._loaded[0] += each.adds
            self._loaded[1] += each.deletes
        faults = [each.fault for each in found if each.fault is not None]
        if faults:
            raise _Broken(faults[0])
        cuts = sorted({cut for each in found for cut in each.cuts})
        return (self._position(cuts[0] - 1) if cuts else end), cuts

    def _move(self, to: Position) -> None:
        """The segment is in the worker: the load would begin behind it, were it to break off now."""
        since = self._held.loading.since
        assert since is not None
        if to.index > since.position.index:
            refused = self._held.move([], since._replace(position=to))
            if refused is not None:
                raise UnexpectedAnswer("moving the mark", refused)

    def _in_order(self, at: MarkerPosition, upto: int) -> bool:
        """Transactions one after another, each with its move of the mark. False when the worker refuses one: it
        stands before it, and whoever applies to it finds out which."""
        place = at.position
        while place.index < upto:
            after = place.hash if place.index else None
            entries = self._masters.log_page(place.index, after, upto, PAGE_BYTES).log_entries()
            if not entries:
                raise LogAhead(f"no master has the log up to index {upto} yet")
            for batch in _batches(entries):
                last = batch[-1]
                done = [each for each in batch if not each.noop and each.kind not in NOT_FOR_WORKERS]
                operations = [Operation(each.kind, each.payload) for each in done]
                place = Position(at.position.epoch, last.index, last.hash)
                refused = self._held.move(operations, at._replace(position=place))
                if refused is not None:
                    return False
        return True

    def _here(self) -> Position:
        since = self._held.loading.since
        assert since is not None
        return since.position

    def _finish(self, at: Position) -> MarkerPosition:
        since = self._held.loading.since
        assert since is not None
        epoch = max(at.epoch, since.position.epoch)
        marker = MarkerPosition(Position(epoch, at.index, at.hash), since.fence + 1)
        if at.index == 0:
            marker = marker._replace(position=NOTHING.position)
        with self._stage("end"):
            self._held.end(marker)
        return marker

    # -- the log

    def _position(self, index: int) -> Position:
        return self._masters.log_page(index, None, index).after

    def _check(self, position: Position) -> None:
        """:class:`LogDiverged`, :class:`LogAhead` or :class:`LogNeedsRestore` when it is not on the log."""
        if position.index:
            self._masters.log_page(position.index, position.hash, position.index)

    def _ranges(self, after: Position, end: Position) -> list[Range]:
        count = max(1, min(RANGES, (end.index - after.index) // RANGE_ENTRIES_MIN))
        size = (end.index - after.index) / count
        inner = [self._position(after.index + round(size * number)) for number in range(1, count)]
        places = [after, *inner, end]
        return [Range(*two) for two in pairwise(places)]

    # -- what is told

    @contextmanager
    def _stage(self, name: str) -> Iterator[None]:
        began = time.monotonic()
        try:
            yield
        finally:
            self._took(name, time.monotonic() - began)

    def _took(self, name: str, seconds: float) -> None:
        self._stages[name] = self._stages.get(name, 0.0) + seconds

    def _report(self, over: threading.Event) -> None:
        while True:
            loading = self._held.loading
            if loading.since is not None:
                self._say(loading.since, self._said)
            if over.wait(REPORT_S):
                return

    def _say(self, since: MarkerPosition, what: str) -> None:
        end = self._held.loading.position.index
        way = f"from {since.position.index:,} to {end:,}: " if end else ""
        place: WorkerPlace | None = None if since == NOTHING else place_of(since)
        self._tell(WorkerReport(place, State.LOADING, f"catching up in a batch {way}{what}"))


def buckets_of(guessed: Estimate, entries: int, tasks: int) -> int:
    """How many buckets ``entries`` of the log are dealt to: small enough for the memory of a task, and as many for
    each task."""
    operations, size = guessed.operations_of(entries), guessed.size * entries
    wanted = max(operations / BUCKET_OPERATIONS, size / BUCKET_BYTES, 1.0)
    return tasks * ceil(min(BUCKETS_MAX, wanted) / tasks)


class _Broken(Exception):
    """A task could not do its part."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.text)
        self.fault = fault


def _batches(entries: Sequence[LogEntry]) -> list[list[LogEntry]]:
    batches: list[list[LogEntry]] = []
    size = 0
    for entry in entries:
        size += len(entry.payload)
        if not batches or size > MERGE_BYTES or len(batches[-1]) >= MERGE_TRANSACTIONS:
            batches.append([])
            size = len(entry.payload)
        batches[-1].append(entry)
    return batches
