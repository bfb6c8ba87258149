"""One run: a plan, a calendar of events, masters, a network; first anything goes, then it must come good."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from heapq import heappop, heappush
from random import Random

from txlog.model.entry import KIND_QUADS, KIND_SKIP, KIND_UPDATE
from txlog.model.ids import Origin
from txlog.model.records import Added, Held, Record, Stable, Trimmed, ViewAccepted, ViewInstalled
from txlog.model.view import Number
from txlog.protocol.events import Submission
from txlog_simulation import liveness
from txlog_simulation.checkers.acknowledgements import Acknowledgements, Promises
from txlog_simulation.checkers.log import Log
from txlog_simulation.checkers.orders import Orders
from txlog_simulation.checkers.transactions import Transactions
from txlog_simulation.checkers.views import Views
from txlog_simulation.faults import strike
from txlog_simulation.machine import ENDED, PAUSED, UP, Machine, configured, submission
from txlog_simulation.member_faults import expected, judge_configurations, start_late
from txlog_simulation.mirror import Mirror
from txlog_simulation.network import Network
from txlog_simulation.operators import prefer
from txlog_simulation.parting import part
from txlog_simulation.plan import NAMES, Plan, Work
from txlog_simulation.trace import Trace
from txlog_simulation.trims import Trims
from txlog_simulation.violation import LIVENESS, LOG, Findings, Violation

WORK_MS = 100
"""Within which everybody gets a transaction when all is healed."""


@dataclass
class Result:
    """What a run came to. ``judged``: whether liveness was asked for. ``healed_ms``: how long that took.
    ``cluster_ms``: how much time of a cluster passed."""

    seed: int
    profile: str
    violations: list[Violation]
    transactions: int
    messages: int
    met: Counter[str]
    refused: Counter[str]
    faults: int
    judged: bool
    healed_ms: int
    trace_digest: str
    trace: list[str]
    cluster_ms: int


class World:
    """``now_ms`` is the true time; events of one millisecond happen in the order in which they were put down."""

    def __init__(self, plan: Plan, trace: bool, counting: tuple[str, ...] | None) -> None:
        self.plan = plan
        self.now_ms = 0
        self.trace = Trace(trace)
        self.findings = Findings(counting)
        self.met: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.removed: set[str] = set()
        """Whom the log did without for good, as processes said that are no more."""
        self.transactions = Transactions(self.findings)
        self.log = Log(self.findings, self.transactions, plan.key_retention_ms)
        names = NAMES[: plan.masters]
        self.slots = {name: slot for slot, name in enumerate(names)}
        self.masters = configured(plan.masters, plan.centres, plan.weights, names)
        self.members = tuple(m for slot, m in enumerate(self.masters) if slot != plan.late)
        self.acknowledgements = Acknowledgements(
            self.findings, self.transactions, self.log, {m.node: m.weight for m in self.members}
        )
        self.views = Views(self.findings)
        self.orders = Orders(self.findings, {m.node: m.weight for m in self.masters})
        self.promises = Promises(self.findings, self.transactions)
        self.mirrors: dict[Origin, Mirror] = {}
        self.rng = Random(f"world {plan.seed}")
        self.network = Network(plan, Random(f"network {plan.seed}"), self.met, self._deliver)
        self.machines = [Machine(self, slot, name) for slot, name in enumerate(names)]
        self.trims = Trims(self)
        self._receivers = [machine.receive for machine in self.machines]
        self.damaged = False
        self.forged = self.old = False
        self.quiet = False
        self.faults = 0
        self.healing = False
        self._calendar: list[tuple[int, int, Callable[..., None], tuple[object, ...]]] = []
        self._count = 0
        self._keys: list[tuple[str, str]] = []
        self._made = 0
        self._links_cut = False
        self.target = Random(f"target {plan.seed}").random() > 0.1
        """Whether there is room for backups before all is healed."""

    # The calendar

    def at(self, at_ms: int, what: Callable[..., None], *arguments: object) -> None:
        """Have something happen."""
        self._count += 1
        heappush(self._calendar, (at_ms, self._count, what, arguments))

    def note(self, where: str, event: str, detail: str = "") -> None:
        """A line of the trace."""
        if self.trace.wanted:
            self.trace.add(self.now_ms, where, event, detail)

    def run(self) -> Result:
        """The whole run."""
        plan = self.plan
        for machine in self.machines:
            if machine.slot != plan.late and machine.slot not in plan.away:
                self.at(self.rng.choice((0, 0, 0, 30)), machine.start)
        start_late(self)
        for at_ms, slot, strategy in self.plan.preferring:
            self.at(at_ms, prefer, self, slot, strategy)
        for work in plan.work:
            self.at(work.at_ms, self.work, work)
        for fault in plan.faults:
            self.at(fault.at_ms, strike, self, fault)
        if plan.links:
            self.at(plan.links_ms, self._cut_links)
        self.trims.begin()
        self.run_until(plan.safety_ms)
        healed_ms = self._come_good() if not self.findings.found else 0
        judged = not self.damaged and not self.orders.torn and not self.has_ended
        complete = judged and not self.findings.found and liveness.is_good(self)
        self.met["majorities parted by order"] += self.views.majority_parted
        self.acknowledgements.final(self.mirrors, self._lost(), complete)
        trace = self.trace
        return Result(
            plan.seed,
            plan.profile,
            self.findings.found,
            self.transactions.accepted_count,
            self.network.sent,
            self.met,
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
        calendar, findings = self._calendar, self.findings
        while calendar and calendar[0][0] <= end_ms and not findings.found:
            self.now_ms, _, what, arguments = heappop(calendar)
            findings.now_ms = self.now_ms
            what(*arguments)
        self.now_ms = max(self.now_ms, end_ms)

    # Work

    def work(self, work: Work) -> None:
        """A client brings its transactions."""
        if self.quiet:
            return
        machine = self.machines[work.a]
        batch: list[Submission] = []
        for _ in range(work.many):
            self._made += 1
            text, key = f"t{self.plan.seed}.{self._made}", f"k{self._made}" if work.keyed else ""
            if work.repeat and self._keys and self.rng.random() < 0.5:
                key, before = self.rng.choice(self._keys)
                self.met["idempotency key repeated"] += 1
                if self.rng.random() < 0.8:
                    text = before
            elif key:
                self._keys.append((key, text))
            batch.append(submission(text, key, self.rng.choice((KIND_UPDATE, KIND_QUADS))))
        if work.skip and self.log.longest:
            txid = self.rng.choice(self.log.longest).txid
            batch.append(submission(f"why {self._made}", str(txid), KIND_SKIP))
            self.met["skip entry"] += 1
        if machine.executor is not None and machine.executor.core.agreement is None:
            self.met["submission while founding"] += 1
        self.met["single submission" if work.many == 1 else "batch"] += 1
        if (
            not machine.submit(batch)
            and not self.healing
            and self.now_ms + 150 < self.plan.safety_ms
            and work.at_ms + 500 > self.now_ms
        ):
            # a client tries the next master, later the first one again
            other = self.rng.randrange(len(self.machines))
            self.at(self.now_ms + 100, self.work, work._replace(a=other))

    # What faults do

    def another_disk(self, machine: Machine) -> None:
        """A master goes on with a disk that is not what it was. What nobody else holds of it has never been."""
        origin = machine.origin
        if origin is None:
            return
        self.transactions.lost.add(origin)
        self.mirrors[origin] = machine.mirror
        kept = max(mirror.held.get(origin, 0) for mirror in self.mirrors.values())
        del self.transactions.made.get(origin, [])[kept:]
        self._forget_unknown_views()
        longest: dict[Number, int] = {}
        for mirror in self.mirrors.values():
            for number in mirror.accepted.chain if mirror.accepted is not None else ():
                longest[number] = max(longest.get(number, 0), mirror.log)
        self.log.forget_behind(longest)

    def wipe(self, machine: Machine) -> None:
        """Its disk is empty: it comes back with a new birth, as a learner that must be taken in. What only it held has
        never been."""
        machine.disk.wipe()
        if machine.origin is not None:
            self.transactions.lost.add(machine.origin)
            self.mirrors.pop(machine.origin)
            for origin in sorted(
                self.transactions.lost - set(self.mirrors)
            ):  # it may have held what others lost before
                kept = max((mirror.held.get(origin, 0) for mirror in self.mirrors.values()), default=0)
                del self.transactions.made.get(origin, [])[kept:]
                told = self.transactions.accepted
                told[origin] = min(told.get(origin, 0), kept)
        machine.empty()
        self._forget_unknown_views()
        machine.rejoined = True  # its worker may have executed what nobody knows any more

    def _forget_unknown_views(self) -> None:
        """What nobody has accepted or grown from any more has never been: its number may be given again."""
        views = [view for mirror in self.mirrors.values() if (view := mirror.accepted) is not None]
        known = {number for view in views for number in (*view.history, view.number)}
        self.log.forget_all_but(known)
        begun = {number for mirror in self.mirrors.values() if mirror.accepted for number in mirror.accepted.history}
        begun |= {mirror.accepted.number for mirror in self.mirrors.values() if mirror.accepted and mirror.installed}
        self.views.forget_all_but(known, begun)

    def lose(self, machine: Machine) -> None:
        """Its disk is not what it was: from here on only safety is asked of this run."""
        machine.damaged = self.damaged = True
        machine.rejoined = True  # its worker may have executed what nobody knows any more

    def gone(self, machine: Machine, birth: int, start: int) -> None:
        """A process has ended. Its supervisor may notice, and tell whom it reaches, some of them late."""
        if not self.plan.proofs or self.rng.random() > self.plan.proofs:
            return
        self.met["proof of down"] += 1
        notice_ms = self.now_ms + self.rng.choice((1, 5, 30, 100))
        for other in self.machines:
            if other is not machine and self.rng.random() < 0.8:
                self.at(notice_ms + self.rng.choice((0, 0, 10, 200)), other.told_down, machine, birth, start)

    def crash_for(self, machine: Machine, back_ms: int) -> None:
        """It ends, and is started again at that time."""
        machine.crash("by the plan")
        self.at(back_ms, machine.start, machine.life)

    def cut(self, links: list[tuple[int, int]], end_ms: int) -> None:
        """These links are cut until then, unless all is healed before."""
        if self.healing:
            return
        for link in links:
            self.network.cuts[link] += 1
        self.at(end_ms, self.mend, links)

    def hold_cut(self, links: list[tuple[int, int]]) -> None:
        """These links are cut until they are mended, or all is healed."""
        if self.healing:
            return
        for link in links:
            self.network.cuts[link] += 1

    def mend(self, links: list[tuple[int, int]]) -> None:
        """One reason less for which these are cut."""
        if not self.healing:
            for link in links:
                self.network.cuts[link] -= 1

    def slow(self, links: list[tuple[int, int]], end_ms: int) -> None:
        """Messages on these links come late, until then."""
        for link in links:
            self.network.slow[link] += 1
        self.at(end_ms, self._quicken, links)

    def _quicken(self, links: list[tuple[int, int]]) -> None:
        for link in links:
            self.network.slow[link] -= 1

    def _cut_links(self) -> None:
        """The cuts that last, once the cluster is founded (founding asks every master directly)."""
        if self.healing:
            return
        if not all(m.mirror.installed for m in self.machines):
            self.at(self.now_ms + 50, self._cut_links)
            return
        self._links_cut = True
        self.met["deaf for good" if self.plan.deaf >= 0 else "lasting cut"] += 1
        for link in self.plan.links:
            self.network.cuts[link] += 1 << 20

    # Coming good

    @property
    def has_ended(self) -> bool:
        """A process has ended by name, for good."""
        return any(m.state == ENDED for m in self.machines)

    def _come_good(self) -> int:
        """Heal everything but the cuts that last; returns how long it took (rule 32)."""
        self._heal()
        began_ms = self.now_ms
        if self.damaged or self.orders.torn or self.has_ended:
            self.run_until(began_ms + 300)
            if self.forged:
                self._until_named(began_ms + liveness.named_ms(self.plan))
            return 0
        if self._links_cut and self.plan.deaf >= 0:
            self._without_the_deaf()
            began_ms = self.now_ms
        if self.plan.parted:
            part(self)
            began_ms = self.now_ms
        bound_ms = liveness.bound_ms(self.plan, self._links_cut) + liveness.mending_ms(self)
        while self.now_ms < began_ms + bound_ms and not self.findings.found:
            self.run_until(self.now_ms + 20)
            if self.has_ended:
                self.run_until(self.now_ms + 300)
                return 0
            if liveness.is_good(self):
                judge_configurations(self, expected(self) or [])
                return self.now_ms - began_ms
        if not self.findings.found and liveness.stays_damaged(self):
            self.damaged = True
            self.met["damage that nobody can mend"] += 1
        elif not self.findings.found:
            self.findings.add(LIVENESS, "32", f"not good after {bound_ms} ms: {liveness.describe(self)}")
        return self.now_ms - began_ms

    def _without_the_deaf(self) -> None:
        """While one master hears nobody, all that the others are brought becomes stable in a view without it; then it
        hears again."""
        plan, began_ms = self.plan, self.now_ms
        bound_ms = liveness.bound_ms(plan, chain=False) + liveness.term_ms(plan)
        self.run_until(began_ms + WORK_MS)
        while not self.findings.found and not self.has_ended:
            if liveness.is_good_without(self, NAMES[plan.deaf]):
                self.met["good without a deaf one"] += 1
                break
            if any(liveness.has_left(machine) for machine in self.machines if machine.slot != plan.deaf):
                self.met["left, and waits for a deaf one"] += 1
                break
            if self.now_ms >= began_ms + bound_ms:
                deaf = f"{NAMES[plan.deaf]} is deaf, and the others are"
                self.findings.add(LIVENESS, "22", f"{deaf} not good after {bound_ms} ms: {liveness.describe(self)}")
                break
            self.run_until(self.now_ms + 20)
        self.note(NAMES[plan.deaf], "hears", "")
        self.network.cuts = dict.fromkeys(self.network.cuts, 0)
        self._links_cut = False
        self.bring_work()

    def _until_named(self, end_ms: int) -> None:
        """Of two masters that run and hear each other, neither has another log than the other (rule 17): one of them
        has ended by name."""
        fork = self._fork()
        while self.now_ms < end_ms and not self.findings.found:
            if not fork and any(m.ended_by == "Forked" for m in self.machines):
                return
            self.run_until(min(end_ms, self.now_ms + 50))
            fork = self._fork()
        if fork and not self.findings.found:
            self.findings.add(LOG, "17", fork)

    def _fork(self) -> str:
        running = [m for m in self.machines if m.state == UP and m.executor is not None]
        logs = [(m, a.history) for m in running if m.executor and (a := m.executor.core.agreement) is not None]
        for at, (one, history) in enumerate(logs):
            for other, theirs in logs[at + 1 :]:
                index = min(history.length, theirs.length)
                if index < max(history.start, theirs.start):
                    continue
                if history.hash_at(index) != theirs.hash_at(index):
                    return f"{one.name} and {other.name} differ at or before index {index}, and both go on"
        return ""

    def _heal(self) -> None:
        self.healing = True
        self.note("run", "heal", "")
        self.network.healed = True
        self.network.losing.clear()
        self.network.cuts = dict.fromkeys(self.network.cuts, 0)
        if self._links_cut:
            for link in self.plan.links:
                self.network.cuts[link] = 1
        for machine in self.machines:
            machine.fuse = 0
            machine.traps.clear()
            machine.hunted = False
            machine.disk.fill(False)
            if machine.state == PAUSED:
                machine.resume(machine.life)
            if machine.executor is not None and machine.executor.core.closing:
                machine.crash("still leaving")
            machine.start()
        self.bring_work()

    def bring_work(self) -> None:
        """Each master's clients bring one transaction soon."""
        for machine in self.machines:
            at_ms = self.now_ms + self.rng.randint(1, WORK_MS)
            self.at(at_ms, self.work, Work(0, machine.slot, 1, False, False, False))

    # What is reported to the checkers

    def durable(self, machine: Machine, record: Record) -> None:
        """A record has become durable; ``machine.mirror`` is the state just before it. What a forged log goes on with
        is no news until another master takes it over."""
        if machine.forged and not isinstance(record, Held):
            return
        match record:
            case Held():
                self.transactions.held(machine.name, record)
                self.log.held(machine.name, record)
            case Added():
                self.log.added(machine.name, record, machine.mirror)
                if record.stable > machine.mirror.stable:
                    self.log.settle(machine.name, record.stable, machine.mirror, self.sound_mirrors())
            case Stable():
                self.log.settle(machine.name, record.index, machine.mirror, self.sound_mirrors())
            case ViewAccepted():
                self.log.accepted(machine.name, record, machine.mirror)
                self.views.accept(record.view)
                if machine.origin is not None:
                    self.transactions.restamp(machine.origin, record.stamped)
            case Trimmed():
                self.trims.judge(machine, record.foot)
            case ViewInstalled() if machine.mirror.accepted is not None:
                base = machine.mirror.accepted.base_index
                self.log.settle(machine.name, base, machine.mirror, self.sound_mirrors())
                if not self.damaged:
                    view = machine.mirror.accepted
                    self.views.install(machine.name, view, torn=self.orders.torn)
                    self.met["founded by order"] += not view.history and len(view.members) < len(self.members)
            case _:
                pass

    def sound_mirrors(self) -> dict[Origin, Mirror]:
        """Those of the masters whose disk was never lost."""
        if not self.damaged:
            return self.mirrors
        lost = self._lost()
        return {origin: mirror for origin, mirror in self.mirrors.items() if origin not in lost}

    def _lost(self) -> set[Origin]:
        return {m.origin for m in self.machines if m.damaged and m.origin is not None}

    def _deliver(self, at_ms: int, source: int, target: int, data: bytes) -> None:
        self._count += 1
        heappush(self._calendar, (at_ms, self._count, self._receivers[target], (source, data)))


def run(plan: Plan, *, trace: bool = False, counting: tuple[str, ...] | None = None) -> Result:
    """One run of one plan. ``counting`` limits the kinds of violation that end it."""
    was = gc.isenabled()
    gc.disable()  # a run makes little garbage in cycles and is over soon
    try:
        return World(plan, trace, counting).run()
    finally:
        if was:
            gc.enable()
