"""The state of all workers: those of this data centre as pipelines report it, those of others as peers report it.

Nothing here is durable: a pipeline reports after each application and at least every few seconds.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from txlog.config.process_config import WorkerConfig
from txlog.divergence.detector import (
    DivergenceDetector,
    DivergenceFinding,
    ObservedWorker,
    append_digest,
    merge_digests,
)
from txlog.divergence.repair_policy import RepairStatus
from txlog.model.decode_errors import DECODE_ERRORS
from txlog.model.errors import BadInput, Conflict, NotFound
from txlog.model.graph_digests import GRAPHS_MAX, KINDS, GraphDigests
from txlog.model.hashes import NO_HASH
from txlog.runtime.applied_history import AppliedHistory
from txlog.runtime.master_loop import MasterLoop
from txlog.runtime.watermark import Watermark

TOPIC = "workers"
REPORT_STATES = (
    "Unknown",
    "Working",
    "Unreachable",
    "Blocked",
    "Diverged",
    "Ahead",
    "NeedsRestore",
    "Loading",
    "Refused",
)
"""The states that a report may carry. The API also shows ``Unordered``: a ``Working`` worker that executed
transactions in another order than the log's."""
BODY_CHARACTERS_MAX = 2000
DOORBELL_BACKOFF_S = (0.25, 2.0)
STALE_S = 30.0
"""Seconds without a report after which a worker counts as unreachable."""


class WorkerMarker(msgspec.Struct, frozen=True):
    """A worker's own position; ``hash`` in hexadecimal."""

    epoch: int
    index: int
    hash: str
    fence: int = 0
    unordered: list[str] = []
    """Positions ``index:hash`` of the worker before it was moved to the log without a restore (split recovery
    ``None``)."""


class PipelineReport(msgspec.Struct, frozen=True, rename="camel"):
    """The body of a pipeline's report. ``status`` and ``body`` are the store's own answer to ``txid``, which it
    refused. ``took_ms`` is in milliseconds."""

    position: WorkerMarker | None = None
    state: str = "Unknown"
    error: str | None = None
    status: int | None = None
    body: str | None = None
    txid: str | None = None
    took_ms: float | None = None


class RegisteredWorker(msgspec.Struct, rename="camel"):
    """A worker as last reported. ``reported_at`` is in seconds since 1970, 0 before the first report."""

    name: str
    url: str = ""
    engine: str = ""
    position: WorkerMarker | None = None
    state: str = "Unknown"
    error: str | None = None
    hold: int | None = None
    reported_at: float = 0.0
    status: int | None = None
    body: str | None = None
    txid: str | None = None
    took_ms: float | None = None
    looks: list[GraphDigests] = []
    """Digests of its content that pipelines reported (:mod:`txlog.divergence`)."""
    divergence: DivergenceFinding | None = None
    """This master's own judgement."""
    look_hold: int | None = None
    """A pause for taking digests, independent of the other pauses, ..."""
    look_hold_until: float = 0.0
    """... until then, in seconds of this process' monotonic clock."""
    repair_hold: int | None = None
    """A pause for a repair, with the same kind of limit as the pause for digests."""
    repair_hold_until: float = 0.0
    repair: RepairStatus | None = None
    """The state of the automatic repair while the worker differs, and the result of the last one."""

    @property
    def paused_at(self) -> int | None:
        """The lowest index of all pauses; None without one."""
        now = time.monotonic()
        looking = self.look_hold if now < self.look_hold_until else None
        repairing = self.repair_hold if now < self.repair_hold_until else None
        asked = [index for index in (self.hold, looking, repairing) if index is not None]
        return min(asked, default=None)

    @property
    def is_under_repair(self) -> bool:
        """Whether a repair of this worker runs, or it is being copied for the repair of another."""
        return self.repair_hold is not None and time.monotonic() < self.repair_hold_until

    def to_dict(self) -> dict[str, Any]:
        """The worker as the API shows it."""
        return {
            "name": self.name,
            "url": self.url,
            "engine": self.engine,
            "position": self.position,
            "state": "Unordered" if self.is_unordered and self.state == "Working" else self.state,
            "error": self.error,
            "hold": self.paused_at,
            "reportedAt": self.reported_at or None,
            "status": self.status,
            "body": self.body,
            "txid": self.txid,
            "tookMs": self.took_ms,
            "divergence": self.divergence,
            "repair": self.repair,
        }

    @property
    def is_unordered(self) -> bool:
        """Whether it executed some transactions in another order than the log's: its digests may differ."""
        return self.position is not None and bool(self.position.unordered)

    @property
    def index(self) -> int:
        """The index of its position; 0 when no position is known."""
        return self.position.index if self.position is not None else 0


class WorkerNotice(msgspec.Struct):
    """The notice between masters: the workers of one data centre, as their pipelines reported them to the sending
    master."""

    data_center: str
    workers: list[RegisteredWorker]
    """All workers of the data centre, also those without a report: a missing report must not count as agreement."""


_report_decoder = msgspec.json.Decoder(PipelineReport)
_digest_decoder = msgspec.json.Decoder(GraphDigests)
_notice_decoder = msgspec.json.Decoder(WorkerNotice)


class DurationCounter:
    """The number of events since this process began, and their total duration in milliseconds."""

    def __init__(self) -> None:
        self.total = 0
        self.took_ms = 0.0

    def add(self, took_ms: float, many: int = 1) -> None:
        """Count ``many`` events that took ``took_ms`` milliseconds together."""
        self.total += many
        self.took_ms += took_ms

    @property
    def mean_ms(self) -> float:
        """The mean duration; 0 before the first event."""
        return self.took_ms / self.total if self.total else 0.0


class DoorbellBackoff:
    """The interval between doorbells for a worker that lags although nothing new arrives. Times are in seconds of the
    event loop's clock."""

    def __init__(self) -> None:
        self.wait_s = DOORBELL_BACKOFF_S[0]
        self.due = 0.0
        self.index = -1


class WorkerRegistry:
    """The workers of this data centre by name, in the configuration's order, and those of the other data centres."""

    def __init__(
        self,
        data_center: str,
        workers: list[WorkerConfig],
        loop: MasterLoop,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.data_center = data_center
        self.workers = {w.name: RegisteredWorker(w.name, w.url, w.engine) for w in workers}
        self.remote_workers: dict[str, dict[str, RegisteredWorker]] = {}
        self.last_notice_from: dict[str, tuple[str, float]] = {}  # node -> its data centre, when it told
        self.active_reads: Counter[str] = Counter()
        """Reads of clients in progress, by worker."""
        self.completed_reads = DurationCounter()
        """Reads of clients that a worker has answered."""
        self.applied_history = AppliedHistory()
        self._min_read_index = 0
        self.executed_counts: dict[str, DurationCounter] = {}
        """Transactions that workers have executed, as their pipelines reported to this master."""
        self.findings = DivergenceDetector()
        self.on_divergence: Callable[[str, DivergenceFinding | None], None] = lambda name, finding: None
        """Called for each finding (``data centre/worker``) that is new or has changed; None when it is lifted."""
        self.refresh_repairs: Callable[[], None] = lambda: None
        """Updates :attr:`RegisteredWorker.repair` of the workers of this data centre."""
        self.tick = 0
        self.changed = asyncio.Event()
        """Set when a notice to the other masters is due; the sender of the notice clears it."""
        self._reported_here: set[str] = set()
        self._backoffs = {name: DoorbellBackoff() for name in self.workers}
        self._doorbell_waiters: list[asyncio.Future[bool]] = []
        self._refusal_waiters: dict[str, list[asyncio.Future[bool]]] = {}
        self.worker_watermarks: dict[str, Watermark] = {}
        """Positions of the workers that a request waits or has waited for (:meth:`wait_any_at`)."""
        self._loop = loop
        self._clock = clock

    # Membership

    def add(self, config: WorkerConfig) -> None:
        """Register a worker. A worker that is already registered with the same URL is left unchanged. Raises
        :class:`Conflict` for another URL."""
        known = self.workers.get(config.name)
        if known is not None:
            if known.url != config.url:
                raise Conflict(f"{config.name} is at {known.url}; take it out first")
            return
        self.workers[config.name] = RegisteredWorker(config.name, config.url, config.engine)
        self._backoffs[config.name] = DoorbellBackoff()
        self.changed.set()
        self.update_watermarks()
        self.wake_all()

    def remove(self, name: str) -> None:
        """Unregister a worker: no pipeline applies to it, no read uses it, and all waits for it end."""
        self.workers.pop(name, None)
        self.executed_counts.pop(name, None)
        self._backoffs.pop(name, None)
        if (mark := self.worker_watermarks.pop(name, None)) is not None:
            mark.abort_waiters()
        self._reported_here.discard(name)
        self.changed.set()
        self.update_watermarks()
        self.wake_all()

    # Incoming reports and notices

    def report(self, name: str, body: bytes) -> int | None:
        """Take a pipeline's report; returns the index at which the pipeline must pause the worker. Raises
        :class:`NotFound` for an unknown worker, :class:`BadInput` for a malformed report."""
        worker = self.workers.get(name)
        if worker is None:
            raise NotFound(f"no worker {name[:80]!r} in {self.data_center}; there are {', '.join(self.workers)}")
        try:
            report = _report_decoder.decode(body)
        except DECODE_ERRORS as wrong:
            raise BadInput(f"a worker's report: {wrong}") from None
        if report.state not in REPORT_STATES:
            raise BadInput(f"state {report.state[:40]!r}: one of {', '.join(REPORT_STATES)}")
        # A pipeline that cannot reach a worker does not know its position: the last reported one is kept.
        position = worker.position if report.state == "Unreachable" and report.position is None else report.position
        before = worker.index
        moved = worker.position != position or worker.state != report.state
        worker.position = position
        worker.state = report.state
        worker.error = report.error[:BODY_CHARACTERS_MAX] if report.error else None
        worker.status, worker.txid, worker.took_ms = report.status, report.txid, report.took_ms
        worker.body = report.body[:BODY_CHARACTERS_MAX] if report.body else None
        worker.reported_at = self._clock()
        if worker.index > before:
            self.executed_counts.setdefault(name, DurationCounter()).add(report.took_ms or 0.0, worker.index - before)
        self._reported_here.add(name)
        if moved:
            self.changed.set()
        self.update_watermarks()
        self.detect_divergence()
        return worker.paused_at

    def report_digests(self, name: str, body: bytes) -> None:
        """Take the digests of a worker's content from its pipeline. Raises :class:`NotFound` for an unknown worker,
        :class:`BadInput` for malformed digests."""
        worker = self.workers.get(name)
        if worker is None:
            raise NotFound(f"no worker {name[:80]!r} in {self.data_center}; there are {', '.join(self.workers)}")
        try:
            look = _digest_decoder.decode(body)
        except DECODE_ERRORS as wrong:
            raise BadInput(f"a look at a worker: {wrong}") from None
        if look.kind not in KINDS:
            raise BadInput(f"kind {look.kind[:40]!r}: one of {', '.join(KINDS)}")
        if look.graphs is not None and len(look.graphs) > GRAPHS_MAX:
            raise BadInput(f"{len(look.graphs)} graphs: at most {GRAPHS_MAX}, else none")
        looks = append_digest(worker.looks, look)
        if looks != worker.looks:
            worker.looks = looks
            self._reported_here.add(name)
            self.changed.set()
        self.detect_divergence()

    def detect_divergence(self) -> None:
        """Compare the digests of all workers, and call :attr:`on_divergence` for each finding that is new or lifted."""
        known = [(f"{dc}/{w.name}", w) for dc, of in self._all_data_centers() for w in of.values()]
        new, lifted = self.findings.judge(
            [
                ObservedWorker(
                    name,
                    worker.engine,
                    [] if worker.is_unordered else worker.looks,
                    worker.txid if worker.state == "Blocked" else None,
                    worker.index,
                )
                for name, worker in known
            ]
        )
        for name, worker in known:
            worker.divergence = self.findings.finding_of(name)
        for name, finding in new:
            self.on_divergence(name, finding)
        for name in lifted:
            self.on_divergence(name, None)

    def describe_workers(self) -> list[dict[str, Any]]:
        """The workers of this data centre, as the API shows them."""
        self.refresh_repairs()
        return [worker.to_dict() for worker in self.workers.values()]

    def _all_data_centers(self) -> list[tuple[str, dict[str, RegisteredWorker]]]:
        return [(self.data_center, self.workers), *self.remote_workers.items()]

    def on_notice(self, body: bytes, node: str) -> None:
        """Take another master's notice. Of two states of one worker the later report counts. A notice that cannot be
        decoded is ignored."""
        try:
            told = _notice_decoder.decode(body)
        except DECODE_ERRORS:
            return  # a newer version's; the protocol between the cores is not touched by it
        now = self._clock()
        self.last_notice_from[node] = (told.data_center, now)
        known = (
            self.workers
            if told.data_center == self.data_center
            else self.remote_workers.setdefault(told.data_center, {})
        )
        if told.data_center != self.data_center:
            listed = {heard.name for heard in told.workers}
            for gone in [name for name in known if name not in listed]:
                del known[gone]
        for heard in told.workers:
            before = known.get(heard.name)
            heard.hold = heard.look_hold = heard.repair_hold = None  # the other master's business
            if before is not None:
                heard.looks = merge_digests(before.looks, heard.looks)
                before.looks = heard.looks
            if before is None and told.data_center == self.data_center:
                continue
            if before is None or heard.reported_at > before.reported_at:
                if before is not None and told.data_center == self.data_center:
                    heard.hold = before.hold
                    heard.look_hold, heard.look_hold_until = before.look_hold, before.look_hold_until
                    heard.repair_hold, heard.repair_hold_until = before.repair_hold, before.repair_hold_until
                known[heard.name] = heard
        self.update_watermarks()
        self.detect_divergence()

    def encode_notice(self) -> bytes:
        """The notice that this master sends to the others."""
        self.refresh_repairs()
        heard = [
            w if name in self._reported_here else RegisteredWorker(w.name, w.url, w.engine)
            for name, w in self.workers.items()
        ]
        return msgspec.json.encode(WorkerNotice(self.data_center, heard))

    # Outgoing: watermarks and queries

    def update_watermarks(self) -> None:
        """Move the applied watermarks to the reported positions, as far as this master's log confirms them."""
        if not (self.workers or self.remote_workers or self._loop.applied.value or self._loop.applied_all.value):
            return  # asked in every turn, long before the first worker is heard
        local = [self._applied_index(w) for w in self.workers.values()]
        applied = max(local, default=0)
        everywhere = [*local, *(self._applied_index(w) for dc in self.remote_workers.values() for w in dc.values())]
        if applied != self._loop.applied.value:
            self._loop.applied.move_to(applied)
            self.applied_history.record(applied)
        to_all = min(everywhere, default=0)
        if to_all != self._loop.applied_all.value:
            self._loop.applied_all.move_to(to_all)
        for worker in self.workers.values():
            if worker.name in self.worker_watermarks:
                self.worker_watermarks[worker.name].move_to(worker.index)
            if worker.txid and worker.state == "Blocked":
                for future in self._refusal_waiters.pop(worker.txid, ()):
                    if not future.done():
                        future.set_result(True)

    async def wait_any_at(self, needed: Mapping[str, int], seconds: float) -> bool:
        """Wait until one of these workers is known to be at its index. False after ``seconds``."""
        reached: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        for name, index in needed.items():
            worker = self.workers.get(name)
            if worker is not None:
                mark = self.worker_watermarks.setdefault(name, Watermark())
                mark.move_to(worker.index)
                mark.add_waiter(index, reached)
        return await self._loop.wait_for(reached, seconds)

    def raise_min_read_index(self, index: int) -> None:
        """Require this index of later reads: a client has received a result that a local worker computed there."""
        self._min_read_index = max(self._min_read_index, index)

    def min_read_index(self) -> int:
        """The least index at which a worker may serve reads like the most advanced one. It covers every index that a
        client has seen, and the lag stays small (:data:`txlog.runtime.applied_history.READ_LAG_S`)."""
        return max(min(self._min_read_index, self._loop.applied.value), self.applied_history.lower_bound())

    def _applied_index(self, worker: RegisteredWorker) -> int:
        """The index up to which a worker has executed this master's log; 0 when the worker is not on this log."""
        position = worker.position
        if position is None or self.is_off_chain(worker):
            return 0
        return min(position.index, self._loop.stable.value)

    def is_off_chain(self, worker: RegisteredWorker) -> bool:
        """Whether the worker certainly executed something other than this master's log, so that it needs a restore."""
        position, agreement = worker.position, self._loop.log_state
        if worker.state == "Diverged":
            return True
        if position is None or agreement is None:
            return False
        if position.index <= self._loop.stable.value:
            return not self.is_on_chain(position)
        # No worker was above the base of this view before the view existed. A worker of an abandoned branch may stay
        # above the log's end for long. Log pages cannot detect that, since there is no hash to compare.
        view = agreement.view
        return agreement.installed and position.epoch < view.epoch and position.index > view.base_index

    def is_on_chain(self, position: WorkerMarker) -> bool:
        """Whether this log has the position's hash at its index. Position 0 without a hash is on every log."""
        if position.index > self._loop.log_position().index:
            return False
        if position.index == 0 and position.hash == NO_HASH.hex():
            return True
        if self.is_below_log_start(position):
            return True  # it was, when it stood there; nobody knows the hash any more
        return self._loop.position_at(position.index).hash.hex() == position.hash

    def is_below_log_start(self, position: WorkerMarker) -> bool:
        """Whether the position is below this master's log start: the worker cannot continue from there."""
        agreement = self._loop.log_state
        return agreement is not None and position.index < agreement.log_index.start

    def unordered_workers(self) -> list[str]:
        """The workers of all data centres that are known to be unordered, as ``data centre/name``."""
        groups = [(self.data_center, self.workers), *self.remote_workers.items()]
        return [f"{dc}/{w.name}" for dc, workers in groups for w in workers.values() if w.is_unordered]

    def refusing_workers(self, txid: str) -> list[RegisteredWorker]:
        """The workers of this data centre that refuse this transaction."""
        return [w for w in self.workers.values() if w.state == "Blocked" and w.txid == txid]

    def refusals(self, txid: str) -> dict[str, dict[str, Any]]:
        """The answer of each worker that refuses this transaction, by ``data centre/name``."""
        found: dict[str, dict[str, Any]] = {}
        for data_center, workers in [(self.data_center, self.workers), *self.remote_workers.items()]:
            for worker in workers.values():
                if worker.txid == txid and worker.state == "Blocked":
                    found[f"{data_center}/{worker.name}"] = {
                        "state": worker.state,
                        "status": worker.status,
                        "body": worker.body,
                        "error": worker.error,
                    }
        return found

    def add_refusal_waiter(self, txid: str, future: asyncio.Future[bool]) -> None:
        """Resolve ``future`` when a worker of this data centre reports that it refuses the transaction."""
        waiting = self._refusal_waiters.setdefault(txid, [])
        waiting[:] = [f for f in waiting if not f.done()]
        waiting.append(future)

    def remove_refusal_waiter(self, txid: str, future: asyncio.Future[bool]) -> None:
        """The counterpart of :meth:`add_refusal_waiter`, once the future is done."""
        waiting = self._refusal_waiters.get(txid)
        if waiting is not None:
            waiting[:] = [f for f in waiting if f is not future]
            if not waiting:
                del self._refusal_waiters[txid]

    # The doorbell

    def is_lagging(self, worker: RegisteredWorker) -> bool:
        """Whether the worker is below the executable index (or its pause), or its position is unknown."""
        end = self._loop.executable.value
        held = worker.paused_at
        upto = end if held is None else min(held, end)
        return worker.index < upto or worker.position is None

    def ring_doorbell(self) -> float:
        """Increment the tick if a lagging worker is due. Returns the seconds until the next one may be due."""
        now = self._loop_time()
        rang = False
        nearest = DOORBELL_BACKOFF_S[1]
        for name, worker in self.workers.items():
            tick = self._backoffs[name]
            if not self.is_lagging(worker):
                tick.wait_s, tick.index, tick.due = DOORBELL_BACKOFF_S[0], worker.index, now + DOORBELL_BACKOFF_S[0]
                continue
            if worker.index != tick.index:  # it moves: whoever moves it needs no bell
                tick.wait_s, tick.index, tick.due = DOORBELL_BACKOFF_S[0], worker.index, now + DOORBELL_BACKOFF_S[0]
            if now >= tick.due:
                rang = True
                tick.wait_s = min(2 * tick.wait_s, DOORBELL_BACKOFF_S[1])
                tick.due = now + tick.wait_s
            nearest = min(nearest, tick.due - now)
        if rang:
            self.tick += 1
            bell, self._doorbell_waiters = self._doorbell_waiters, []
            for future in bell:
                if not future.done():
                    future.set_result(True)
        return max(0.05, nearest)

    def add_doorbell_waiter(self, future: asyncio.Future[bool]) -> None:
        """Resolve ``future`` at the next tick."""
        if len(self._doorbell_waiters) & 63 == 63:
            self._doorbell_waiters = [f for f in self._doorbell_waiters if not f.done()]
        self._doorbell_waiters.append(future)

    def wake_all(self) -> None:
        """Wake all pipelines that wait: a pause or the list of workers has changed."""
        self.tick += 1
        bell, self._doorbell_waiters = self._doorbell_waiters, []
        for future in bell:
            if not future.done():
                future.set_result(True)

    @staticmethod
    def _loop_time() -> float:
        return asyncio.get_running_loop().time()
