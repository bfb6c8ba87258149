"""One run: a plan, a calendar of events, masters, a network; first anything goes, then it must come good."""

from __future__ import annotations

import asyncio
import gc
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from heapq import heappop, heappush
from random import Random

from txlog.model.entry import KIND_QUADS, KIND_SKIP, KIND_UPDATE
from txlog.model.ids import Origin
from txlog.model.records import (
    LogAppended,
    LogTrimmed,
    Record,
    StableAdvanced,
    TransactionsPersisted,
    ViewAccepted,
    ViewInstalled,
)
from txlog.model.view import Number
from txlog.protocol.events import Submission
from txlog_simulation import liveness
from txlog_simulation.checkers.acknowledgements import AcknowledgementChecker, PromiseChecker
from txlog_simulation.checkers.clients import ClientChecker
from txlog_simulation.checkers.clocks import ClockChecker
from txlog_simulation.checkers.log import LogChecker
from txlog_simulation.checkers.master_states import MasterStateChecker
from txlog_simulation.checkers.overrides import OverrideChecker
from txlog_simulation.checkers.transactions import TransactionChecker
from txlog_simulation.checkers.views import ViewChecker
from txlog_simulation.client_starts import start_clients
from txlog_simulation.durable_state import DurableState
from txlog_simulation.faults import inject_fault
from txlog_simulation.log_trims import LogTrims
from txlog_simulation.lost_disks import FoundingChecker
from txlog_simulation.membership_faults import start_late
from txlog_simulation.old_life import begin_old
from txlog_simulation.operator_overrides import change_split_recovery
from txlog_simulation.process_states import ENDED
from txlog_simulation.recovery import WORK_MS, check_liveness
from txlog_simulation.run_plan import NAMES, PlannedWork, RunPlan
from txlog_simulation.simulated_master import EPOCH_MS, SimulatedMaster
from txlog_simulation.simulated_network import SimulatedNetwork
from txlog_simulation.submissions import build_submission, configured_members
from txlog_simulation.synchronous_world import SynchronousWorld
from txlog_simulation.trace import EventTrace
from txlog_simulation.violation import PROCESS, Violation, ViolationLog


@dataclass
class RunResult:
    """What a run came to. ``judged``: whether liveness was asked for. ``healed_ms``: how long that took.
    ``cluster_ms``: how much time of a cluster passed."""

    seed: int
    profile: str
    violations: list[Violation]
    transactions: int
    messages: int
    coverage: Counter[str]
    refused: Counter[str]
    faults: int
    judged: bool
    healed_ms: int
    trace_digest: str
    trace: list[str]
    cluster_ms: int


class Simulation:
    """``now_ms`` is the true time; events of one millisecond happen in the order in which they were put down."""

    def __init__(self, plan: RunPlan, trace: bool, counting: tuple[str, ...] | None) -> None:
        self.plan = plan
        self.now_ms = 0
        self.trace = EventTrace(trace)
        self.violations = ViolationLog(counting if plan.liar < 0 else (PROCESS,))
        self.coverage: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.removed: set[str] = set()
        """Whom the log did without for good, as processes said that are no more."""
        self.transactions = TransactionChecker(self.violations)
        self.log = LogChecker(self.violations, self.transactions, plan.key_retention_ms)
        names = NAMES[: plan.masters]
        self.slots = {name: slot for slot, name in enumerate(names)}
        self.masters = configured_members(plan.masters, plan.centres, plan.weights, names)
        self.members = tuple(m for slot, m in enumerate(self.masters) if slot != plan.late_master)
        self.acknowledgements = AcknowledgementChecker(
            self.violations, self.transactions, self.log, {m.node: m.weight for m in self.members}
        )
        self.views = ViewChecker(self.violations)
        self.master_states = MasterStateChecker(self.violations)
        self.clocks = ClockChecker(plan, EPOCH_MS // 1000, self.violations)
        self.clients = ClientChecker(plan, self.violations, self.transactions)
        self.overrides = OverrideChecker(self.violations, {m.node: m.weight for m in self.masters})
        self.promises = PromiseChecker(self.violations, self.transactions)
        self.durable_states: dict[Origin, DurableState] = {}
        self.transactions.on_own = self.clients.on_persisted
        self.rng = Random(f"world {plan.seed}")
        self.network = SimulatedNetwork(plan, Random(f"network {plan.seed}"), self.coverage, self._deliver)
        self.simulated_masters = [SimulatedMaster(self, slot, name) for slot, name in enumerate(names)]
        self.trims = LogTrims(self)
        self.synchronous = SynchronousWorld(self)
        self.foundings = FoundingChecker(self)
        self._receivers = [machine.receive for machine in self.simulated_masters]
        self.damaged = plan.liar >= 0
        self.liar_rng = Random(f"liar {plan.seed}")
        self.forged = self.old_disk = False
        self.quiet = False
        self.asleep_until_ms = 0
        """Until then no process runs."""
        self.faults = 0
        self.healing = False
        self._calendar: list[tuple[int, int, Callable[..., None], tuple[object, ...]]] = []
        self._count = 0
        self._keys: list[tuple[str, str]] = []
        self._made = 0
        self.links_cut = False
        self.target = Random(f"target {plan.seed}").random() > 0.1
        """Whether there is room for backups before all is healed."""

    # The calendar

    def schedule(self, at_ms: int, what: Callable[..., None], *arguments: object) -> None:
        """Have something happen."""
        self._count += 1
        heappush(self._calendar, (at_ms, self._count, what, arguments))

    def trace_event(self, where: str, event: str, detail: str = "") -> None:
        """A line of the trace."""
        if self.trace.wanted:
            self.trace.add(self.now_ms, where, event, detail)

    def run(self) -> RunResult:
        """The whole run."""
        plan = self.plan
        if plan.old is not None:
            self._keys += begin_old(self)
        for machine in self.simulated_masters:
            if machine.slot != plan.late_master and machine.slot not in plan.absent_at_start:
                self.schedule(self.rng.choice((0, 0, 0, 30)), machine.start)
        start_late(self)
        for at_ms, slot, strategy in self.plan.strategy_changes:
            self.schedule(at_ms, change_split_recovery, self, slot, strategy)
        for at_ms, slot, size_ms in plan.clock_jumps:
            self.schedule(at_ms, self.simulated_masters[slot].jump_clock, size_ms)
        for work in plan.work:
            self.schedule(work.at_ms, self.submit_work, work)
        for fault in plan.faults:
            self.schedule(fault.at_ms, inject_fault, self, fault)
        if plan.links:
            self.schedule(plan.links_ms, self._apply_lasting_cuts)
        self.trims.begin()
        start_clients(self)
        self.run_until(plan.safety_ms)
        healed_ms = check_liveness(self) if not self.violations.violations else 0
        judged = not self.damaged and not self.overrides.may_be_two_clusters and not self.has_ended
        complete = judged and not self.violations.violations and liveness.has_converged(self)
        self.coverage["majorities parted by order"] += self.views.majority_diverged
        self.acknowledgements.check_final(self.durable_states, self._damaged_origins(), complete)
        if complete:
            self.clients.check_final(self.log.longest)
            self.synchronous.check_final()
        trace = self.trace
        return RunResult(
            plan.seed,
            plan.profile,
            self.violations.violations,
            self.transactions.accepted_count,
            self.network.sent,
            self.coverage,
            self.refused,
            self.faults,
            judged,
            healed_ms,
            trace.digest() if trace.wanted else "",
            trace.lines,
            self.now_ms,
        )

    def run_until(self, end_ms: int) -> None:
        """What the calendar has until then happens."""
        calendar, findings = self._calendar, self.violations
        while calendar and calendar[0][0] <= end_ms and not findings.violations:
            self.now_ms, _, what, arguments = heappop(calendar)
            findings.now_ms = self.now_ms
            what(*arguments)
        self.now_ms = max(self.now_ms, end_ms)

    # Work

    def submit_work(self, work: PlannedWork) -> None:
        """A client brings its transactions."""
        if self.quiet:
            return
        machine = self.simulated_masters[work.a]
        batch: list[Submission] = []
        for _ in range(work.many):
            self._made += 1
            text, key = f"t{self.plan.seed}.{self._made}", f"k{self._made}" if work.keyed else ""
            if work.repeat and self._keys and self.rng.random() < 0.5:
                key, before = self.rng.choice(self._keys)
                self.coverage["idempotency key repeated"] += 1
                if self.rng.random() < 0.8:
                    text = before
            elif key:
                self._keys.append((key, text))
            one = build_submission(text, key, self.rng.choice((KIND_UPDATE, KIND_QUADS)))
            batch.append(self.synchronous.submission(one))
        if work.skip and self.log.longest:
            txid = self.rng.choice(self.log.longest).txid
            batch.append(build_submission(f"why {self._made}", str(txid), KIND_SKIP))
            self.coverage["skip entry"] += 1
        if machine.executor is not None and machine.executor.core.log_state is None:
            self.coverage["submission while founding"] += 1
        self.coverage["single submission" if work.many == 1 else "batch"] += 1
        if (
            not machine.submit(batch)
            and not self.healing
            and self.now_ms + 150 < self.plan.safety_ms
            and work.at_ms + 500 > self.now_ms
        ):
            # a client tries the next master, later the first one again
            other = self.rng.randrange(len(self.simulated_masters))
            self.schedule(self.now_ms + 100, self.submit_work, work._replace(a=other))

    def build_client_submission(self, number: int) -> Submission:
        """The write of a client of the plan, which comes under one key and with one body."""
        return build_submission(
            f"c{self.plan.seed}.{number}", f"client {number}", (KIND_UPDATE, KIND_QUADS)[number % 2]
        )

    # What faults do

    def on_disk_replaced(self, machine: SimulatedMaster) -> None:
        """A master goes on with a disk that is not what it was. What nobody else holds of it has never been."""
        origin = machine.origin
        if origin is None:
            return
        self.transactions.lost.add(origin)
        self.durable_states[origin] = machine.durable_state
        kept = max(mirror.held_seqs.get(origin, 0) for mirror in self.durable_states.values())
        del self.transactions.by_origin.get(origin, [])[kept:]
        self._forget_unknown_views()
        longest: dict[Number, int] = {}
        for mirror in self.durable_states.values():
            for number in self.views.lineage_of(mirror.accepted) if mirror.accepted is not None else ():
                longest[number] = max(longest.get(number, 0), mirror.log_length)
        self.log.forget_after(longest)

    def wipe(self, machine: SimulatedMaster) -> None:
        """Its disk is empty: it comes back with a new birth, as a learner that must be taken in. What only it held has
        never been."""
        machine.disk.wipe()
        if machine.origin is not None:
            self.transactions.lost.add(machine.origin)
            self.acknowledgements.on_wiped(machine.origin, self.durable_states.pop(machine.origin))
            for origin in sorted(
                self.transactions.lost - set(self.durable_states)
            ):  # it may have held what others lost before
                kept = max((mirror.held_seqs.get(origin, 0) for mirror in self.durable_states.values()), default=0)
                del self.transactions.by_origin.get(origin, [])[kept:]
                told = self.transactions.accepted
                told[origin] = min(told.get(origin, 0), kept)
        machine.on_disk_wiped()
        self._forget_unknown_views()
        machine.rejoined = True  # its worker may have executed what nobody knows any more

    def _forget_unknown_views(self) -> None:
        """What nobody has accepted or grown from any more has never been: its number may be given again."""
        views = [view for mirror in self.durable_states.values() if (view := mirror.accepted) is not None]
        known = {number for view in views for number in self.views.lineage_of(view)}
        self.log.forget_all_but(known)
        begun = {number for view in views for number in self.views.ancestors_of(view)}
        begun |= {
            mirror.accepted.number for mirror in self.durable_states.values() if mirror.accepted and mirror.installed
        }
        self.views.forget_all_but(known, begun)

    def mark_damaged(self, machine: SimulatedMaster) -> None:
        """Its disk is not what it was: from here on only safety is asked of this run."""
        machine.damaged = self.damaged = True
        machine.rejoined = True  # its worker may have executed what nobody knows any more

    def on_process_ended(self, machine: SimulatedMaster, birth: int, start: int) -> None:
        """A process has ended. Its supervisor may notice, and tell whom it reaches, some of them late."""
        if not self.plan.proofs or self.rng.random() > self.plan.proofs:
            return
        self.coverage["proof of down"] += 1
        notice_ms = self.now_ms + self.rng.choice((1, 5, 30, 100))
        for other in self.simulated_masters:
            if other is not machine and self.rng.random() < 0.8:
                self.schedule(notice_ms + self.rng.choice((0, 0, 10, 200)), other.on_peer_down, machine, birth, start)

    def crash_for(self, machine: SimulatedMaster, back_ms: int) -> None:
        """It ends, and is started again at that time."""
        machine.crash("by the plan")
        self.schedule(back_ms, machine.start, machine.incarnation)

    def cut(self, links: list[tuple[int, int]], end_ms: int) -> None:
        """These links are cut until then, unless all is healed before."""
        if self.healing:
            return
        for link in links:
            self.network.cuts[link] += 1
        self.schedule(end_ms, self.restore_links, links)

    def cut_until_healed(self, links: list[tuple[int, int]]) -> None:
        """These links are cut until they are mended, or all is healed."""
        if self.healing:
            return
        for link in links:
            self.network.cuts[link] += 1

    def restore_links(self, links: list[tuple[int, int]]) -> None:
        """One reason less for which these are cut."""
        if not self.healing:
            for link in links:
                self.network.cuts[link] -= 1

    def slow(self, links: list[tuple[int, int]], end_ms: int) -> None:
        """Messages on these links come late, until then."""
        for link in links:
            self.network.slow[link] += 1
        self.schedule(end_ms, self._end_slow, links)

    def _end_slow(self, links: list[tuple[int, int]]) -> None:
        for link in links:
            self.network.slow[link] -= 1

    def _apply_lasting_cuts(self) -> None:
        """The cuts that last, once the cluster is founded (founding asks every master directly)."""
        if self.healing:
            return
        if not all(m.durable_state.installed for m in self.simulated_masters):
            self.schedule(self.now_ms + 50, self._apply_lasting_cuts)
            return
        self.links_cut = True
        self.coverage["deaf for good" if self.plan.deaf_master >= 0 else "lasting cut"] += 1
        for link in self.plan.links:
            self.network.cuts[link] += 1 << 20

    @property
    def has_ended(self) -> bool:
        """A process has ended by name, for good."""
        return any(m.state == ENDED for m in self.simulated_masters)

    def submit_final_work(self) -> None:
        """Each master's clients bring one transaction soon."""
        for machine in self.simulated_masters:
            at_ms = self.now_ms + self.rng.randint(1, WORK_MS)
            self.schedule(at_ms, self.submit_work, PlannedWork(0, machine.slot, 1, False, False, False))

    # What is reported to the checkers

    def on_durable(self, machine: SimulatedMaster, record: Record) -> None:
        """A record has become durable; ``machine.durable_state`` is the state just before it. What a forged log goes on
        with is no news until another master takes it over."""
        if machine.forged and not isinstance(record, TransactionsPersisted):
            return
        match record:
            case TransactionsPersisted():
                self.transactions.on_persisted(machine.name, record)
                self.log.on_persisted(machine.name, record)
            case LogAppended():
                self.log.on_appended(machine.name, record, machine.durable_state)
                if record.stable > machine.durable_state.stable:
                    self.log.on_stable(machine.name, record.stable, machine.durable_state, self.undamaged_states())
            case StableAdvanced():
                self.log.on_stable(machine.name, record.index, machine.durable_state, self.undamaged_states())
            case ViewAccepted():
                self.log.on_view_accepted(
                    machine.name, record, machine.durable_state, self.views.ancestors_of(record.view)
                )
                self.views.on_accepted(record.view)
                if machine.origin is not None:
                    self.transactions.on_restamped(machine.origin, record.reassigned)
            case LogTrimmed():
                self.trims.check_trim(machine, record.log_start)
            case ViewInstalled() if machine.durable_state.accepted is not None:
                base = machine.durable_state.accepted.base_index
                self.log.on_stable(machine.name, base, machine.durable_state, self.undamaged_states())
                self.foundings.on_installed(machine.durable_state.accepted)
                if not self.damaged:
                    view = machine.durable_state.accepted
                    self.views.on_installed(machine.name, view, torn=self.overrides.may_be_two_clusters)
                    self.coverage["founded by order"] += not view.ancestors and len(view.members) < len(self.members)
            case _:
                pass

    def undamaged_states(self) -> dict[Origin, DurableState]:
        """Those of the masters whose disk was never lost."""
        if not self.damaged:
            return self.durable_states
        lost = self._damaged_origins()
        return {origin: mirror for origin, mirror in self.durable_states.items() if origin not in lost}

    def _damaged_origins(self) -> set[Origin]:
        return {m.origin for m in self.simulated_masters if m.damaged and m.origin is not None}

    def _deliver(self, at_ms: int, source: int, target: int, data: bytes) -> None:
        self._count += 1
        heappush(self._calendar, (at_ms, self._count, self._receivers[target], (source, data)))


def run(plan: RunPlan, *, trace: bool = False, counting: tuple[str, ...] | None = None) -> RunResult:
    """One run of one plan. ``counting`` limits the kinds of violation that end it."""
    was = gc.isenabled()
    gc.disable()  # a run makes little garbage in cycles and is over soon
    try:
        loop = asyncio.new_event_loop()  # futures of clients belong to one; nothing runs on it
        try:
            return loop.run_until_complete(_run(plan, trace, counting))
        finally:
            loop.close()
    finally:
        if was:
            gc.enable()


async def _run(plan: RunPlan, trace: bool, counting: tuple[str, ...] | None) -> RunResult:
    return Simulation(plan, trace, counting).run()
