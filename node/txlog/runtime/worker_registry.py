"""The workers as this master sees them: it takes reports and notices, and moves the applied watermarks.

Nothing here is durable: a pipeline reports after each application and at least every few seconds.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import msgspec

from txlog.config.process_config import WorkerConfig
from txlog.model.decode_errors import DECODE_ERRORS
from txlog.model.errors import BadInput, Conflict
from txlog.model.hashes import NO_HASH
from txlog.protocol.log.executed_out_of_order import find_branch_position
from txlog.runtime.divergence_state import DivergenceListener, DivergenceState
from txlog.runtime.doorbell import WorkerDoorbell
from txlog.runtime.literal_form import LiteralForm
from txlog.runtime.master_loop import MasterLoop
from txlog.runtime.read_balance import DurationCounter, ReadBalance
from txlog.runtime.store_judgement import store_refusal
from txlog.runtime.worker_notices import WorkerNotices
from txlog.runtime.worker_state import REPORT_STATES, KnownWorkers, PipelineReport, RegisteredWorker, WorkerMarker
from txlog.wire.comparison_report import ComparisonReport

_report_decoder = msgspec.json.Decoder(PipelineReport)
_comparison_decoder = msgspec.json.Decoder(ComparisonReport)


class WorkerRegistry:
    """Owner of all state about workers: ``known`` (the workers), ``reads``, ``divergence``, ``notices`` and
    ``doorbell``."""

    def __init__(
        self,
        data_center: str,
        workers: list[WorkerConfig],
        loop: MasterLoop,
        on_divergence: DivergenceListener = lambda name, finding: None,
        clock: Callable[[], float] = time.time,
        mixed_engines: bool = False,
        on_literals_settled: Callable[[], None] = lambda: None,
    ) -> None:
        self.data_center = data_center
        self._on_literals_settled = on_literals_settled
        status = loop.status
        self.literals = LiteralForm((w.engine for w in workers), mixed=mixed_engines, view=lambda: status.cluster_view)
        self.known = KnownWorkers(data_center, [self._register(w) for w in workers])
        self.reads = ReadBalance(self.known, loop.durability)
        self.divergence = DivergenceState(self.known, on_divergence)
        self.notices = WorkerNotices(self.known, clock)
        self.doorbell = WorkerDoorbell(self.known, loop.durability)
        self._proved: dict[str, tuple[int, int]] = {}
        """By worker: the last index up to which this master's log proved it to be on this log, and its fence."""
        self._truncations_seen = 0
        self.executed_counts: dict[str, DurationCounter] = {}
        """Transactions that workers have executed, as their pipelines reported to this master."""
        self._refusal_waiters: dict[str, list[asyncio.Future[bool]]] = {}
        self._durability = loop.durability
        self._status = loop.status
        self._clock = clock

    @property
    def workers(self) -> dict[str, RegisteredWorker]:
        """The workers of this data centre by name."""
        return self.known.local

    @property
    def remote_workers(self) -> dict[str, dict[str, RegisteredWorker]]:
        """The workers of the other data centres, by data centre and name."""
        return self.known.remote

    def add(self, config: WorkerConfig) -> None:
        """Register a worker. A worker that is already registered with the same URL is left unchanged. Raises
        :class:`Conflict` for another URL."""
        before = self.workers.get(config.name)
        if before is not None:
            if before.url != config.url:
                raise Conflict(f"{config.name} is at {before.url}; take it out first")
            return
        self.workers[config.name] = self._register(config)
        self.notices.due.set()
        self.update_watermarks()
        self.doorbell.wake_all()

    def remove(self, name: str) -> None:
        """Unregister a worker: no pipeline applies to it, no read uses it, and all waits for it end."""
        self.workers.pop(name, None)
        self.executed_counts.pop(name, None)
        self._proved.pop(name, None)
        self.reads.remove(name)
        self.notices.remove(name)
        self.doorbell.remove(name)
        self.update_watermarks()
        self.doorbell.wake_all()

    def _register(self, config: WorkerConfig) -> RegisteredWorker:
        engine, undecided = self.literals.engine_of(config.engine), self.literals.is_undecided
        return RegisteredWorker(config.name, config.url, engine, is_form_undecided=undecided)

    def settle_literals(self) -> None:
        """Give the workers the engine of the form in which they hold literals, once this master knows it."""
        undecided = [worker for worker in self.workers.values() if worker.is_form_undecided]
        if not undecided or self.literals.is_undecided:
            return
        for worker in undecided:
            worker.engine, worker.is_form_undecided = self.literals.engine_of(worker.engine), False
        self.notices.due.set()
        self.doorbell.wake_all()
        self._on_literals_settled()

    # Reports and notices

    def report(self, name: str, body: bytes) -> int | None:
        """Take a pipeline's report; returns the index at which the pipeline must pause the worker. Raises
        :class:`NotFound` for an unknown worker, :class:`BadInput` for a malformed report."""
        worker = self.known.find_local(name)
        try:
            report = _report_decoder.decode(body)
        except DECODE_ERRORS as wrong:
            raise BadInput(f"a worker's report: {wrong}") from None
        if report.state not in REPORT_STATES:
            raise BadInput(f"state {report.state[:40]!r}: one of {', '.join(REPORT_STATES)}")
        before = worker.index
        has_moved = worker.apply_report(report, self._clock())
        if worker.index > before:
            self.executed_counts.setdefault(name, DurationCounter()).add(report.took_ms or 0.0, worker.index - before)
        self.notices.note_report(name)
        if has_moved:
            self.notices.due.set()
        self.update_watermarks()
        self.divergence.detect()
        return worker.paused_at

    def report_digests(self, name: str, body: bytes) -> None:
        """Take the digests of a worker's content from its pipeline. Raises :class:`NotFound` for an unknown worker,
        :class:`BadInput` for malformed digests."""
        if self.divergence.add_digests(self.known.find_local(name), body):
            self.notices.note_report(name)
            self.notices.due.set()
        self.divergence.detect()

    def report_comparison(self, name: str, body: bytes) -> None:
        """Take the progress of a worker's comparison from its pipeline. Raises :class:`NotFound` for an unknown worker,
        :class:`BadInput` for a malformed report."""
        worker = self.known.find_local(name)
        try:
            worker.comparison = _comparison_decoder.decode(body)
        except DECODE_ERRORS as wrong:
            raise BadInput(f"a report of a comparison: {wrong}") from None
        worker.compared_at = self._clock()

    def on_notice(self, body: bytes, node: str) -> None:
        """Take another master's notice."""
        if self.notices.receive(body, node):
            self.update_watermarks()
            self.divergence.detect()

    # Watermarks

    def update_watermarks(self) -> None:
        """Move the applied watermarks to the reported positions, as far as this master's log confirms them."""
        durability = self._durability
        if not (self.workers or self.remote_workers or durability.applied.value or durability.applied_all.value):
            return  # called in every turn, long before the first report
        self.settle_literals()
        if durability.truncation_count != self._truncations_seen:  # what is stable now was on the log before, too
            self._truncations_seen, kept = durability.truncation_count, durability.stable.value
            self._proved = {name: (min(index, kept), fence) for name, (index, fence) in self._proved.items()}
        self._forget_removed()
        self._judge_stores()
        local = [self._applied_index(name, worker) for name, worker in self.workers.items()]
        remote = [
            self._applied_index(f"{centre}/{name}", worker)
            for centre, of in self.remote_workers.items()
            for name, worker in of.items()
        ]
        remote += [0 for member in self._status.configured_members if not self._knows_workers_of(member.data_center)]
        applied, applied_all = max(local, default=0), min([*local, *remote], default=0)
        if applied != durability.applied.value:
            durability.applied.move_to(applied)
            self.reads.applied_history.record(applied)
        if applied_all != durability.applied_all.value:
            durability.applied_all.move_to(applied_all)
        self.reads.move_watermarks()
        for worker in self.workers.values():
            if worker.txid and worker.state == "Blocked":
                for future in self._refusal_waiters.pop(worker.txid, ()):
                    if not future.done():
                        future.set_result(True)

    def _forget_removed(self) -> None:
        """A later worker of the same name is another store: nothing is proved of it."""
        known = {*self.workers, *(f"{centre}/{name}" for centre, of in self.remote_workers.items() for name in of)}
        for name in self._proved.keys() - known:
            del self._proved[name]

    def _applied_index(self, name: str, worker: RegisteredWorker) -> int:
        """The index up to which a worker has executed this master's log; 0 when the worker is not on this log."""
        position, stable = worker.position, self._durability.stable.value
        if position is None or worker.refusal is not None or self.is_off_chain(worker):
            return 0
        if position.index <= stable or self.is_on_chain(position):
            self._proved[name] = position.index, position.fence
            return min(position.index, stable)
        if self._is_only_branch:
            # Only what is stable here is in the worker's log, too: of what comes next, a split may make two logs.
            self._proved[name] = stable, position.fence
            return stable
        # It may be the log of others from which a split parts this master. What was proved before that still counts.
        index, fence = self._proved.get(name, (0, position.fence))
        return min(index, stable) if fence == position.fence and index <= position.index else 0

    def _knows_workers_of(self, data_center: str) -> bool:
        """Whether this process knows which workers a data centre has: no master there may have sent a notice since this
        one started."""
        return data_center == self.data_center or data_center in self.remote_workers

    @property
    def _is_only_branch(self) -> bool:
        """Whether every log of this cluster begins with what is stable here: every configured master is in this view,
        so each later view keeps its stable entries."""
        view = self._status.view
        if view is None or not self._status.is_view_installed:
            return False
        return all(view.member(one.node) is not None for one in self._status.configured_members)

    def _judge_stores(self) -> None:
        for _, worker in self.known.all():
            worker.refusal = store_refusal(
                worker.name, worker.position, self._status.cluster_id, self._is_position_proved(worker)
            )

    def _is_position_proved(self, worker: RegisteredWorker) -> bool:
        """Whether a log of this cluster has the worker's position, as far as this master can know."""
        position, log = worker.position, self._status.log_state
        if position is None or log is None or position.cluster or (position.index, position.hash) == (0, NO_HASH.hex()):
            return True
        if not self.is_off_chain(worker) and not self.is_below_log_start(position):
            return True
        return find_branch_position(log, position.index, bytes.fromhex(position.hash)) is not None

    def is_off_chain(self, worker: RegisteredWorker) -> bool:
        """Whether the worker certainly executed something other than this master's log, so that it needs a restore."""
        position, agreement = worker.position, self._status.log_state
        if worker.state == "Diverged":
            return True
        if position is None or agreement is None:
            return False
        if position.index <= self._durability.stable.value:
            return not self.is_on_chain(position)
        # No worker was above the base of this view before the view existed. A worker of an abandoned branch may stay
        # above the log's end for long. Log pages cannot detect that, since there is no hash to compare.
        view = agreement.view
        return agreement.installed and position.epoch < view.epoch and position.index > view.base_index

    def is_on_chain(self, position: WorkerMarker) -> bool:
        """Whether this log has the position's hash at its index. Position 0 without a hash is on every log."""
        if position.index > self._durability.log_position().index:
            return False
        if position.index == 0 and position.hash == NO_HASH.hex():
            return True
        if self.is_below_log_start(position):
            return True  # it was when the worker was there; the hash is trimmed
        return self._durability.position_at(position.index).hash.hex() == position.hash

    def is_below_log_start(self, position: WorkerMarker) -> bool:
        """Whether the position is below this master's log start: the worker cannot continue from there."""
        agreement = self._status.log_state
        return agreement is not None and position.index < agreement.log_index.start

    # Waiting for a refusal

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
