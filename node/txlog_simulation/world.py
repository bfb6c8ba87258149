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
from txlog.protocol.events import Submission
from txlog_simulation import directed, liveness
from txlog_simulation.change_faults import CHANGE_FAULTS, set_trap
from txlog_simulation.checkers.acknowledgements import Acknowledgements, Promises
from txlog_simulation.checkers.log import Log
from txlog_simulation.checkers.transactions import Transactions
from txlog_simulation.checkers.views import Views
from txlog_simulation.machine import ENDED, PAUSED, UP, Machine, configured, submission
from txlog_simulation.member_faults import MEMBER_FAULTS, expected, judge_configurations, order, start_late
from txlog_simulation.mirror import Mirror
from txlog_simulation.network import Network
from txlog_simulation.plan import BEGIN_MS, NAMES, Fault, Plan, Work
from txlog_simulation.trace import Trace
from txlog_simulation.trims import Trims
from txlog_simulation.violation import LIVENESS, LOG, Findings, Violation

STEPS = ("append", "begin_sync", "pwrite", "fdatasync", "run", "end_sync", "release")
"""At which a process may end; see ``machine.py``."""


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
        self.promises = Promises(self.findings, self.transactions)
        self.mirrors: dict[Origin, Mirror] = {}
        self.rng = Random(f"world {plan.seed}")
        self.network = Network(plan, Random(f"network {plan.seed}"), self.met, self._deliver)
        self.machines = [Machine(self, slot, name) for slot, name in enumerate(names)]
        self.trims = Trims(self)
        self._receivers = [machine.receive for machine in self.machines]
        self.damaged = False
        self.forged = self.old = False
        self._quiet = False
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
            if machine.slot != plan.late:
                self.at(self.rng.choice((0, 0, 0, 30)), machine.start)
        start_late(self)
        for work in plan.work:
            self.at(work.at_ms, self.work, work)
        for fault in plan.faults:
            self.at(fault.at_ms, self._fault, fault)
        if plan.links:
            self.at(BEGIN_MS // 2, self._cut_links)
        self.trims.begin()
        self._until(plan.safety_ms)
        healed_ms = self._come_good() if not self.findings.found else 0
        judged = not self.damaged and not any(m.state == ENDED for m in self.machines)
        complete = judged and not self.findings.found and liveness.is_good(self)
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

    def _until(self, end_ms: int) -> None:
        calendar, findings = self._calendar, self.findings
        while calendar and calendar[0][0] <= end_ms and not findings.found:
            self.now_ms, _, what, arguments = heappop(calendar)
            findings.now_ms = self.now_ms
            what(*arguments)
        self.now_ms = max(self.now_ms, end_ms)

    # Work

    def work(self, work: Work) -> None:
        """A client brings its transactions."""
        if self._quiet:
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

    # Faults

    def _fault(self, fault: Fault) -> None:
        self.faults += 1
        self.met[fault.kind] += 1
        if fault.kind == "clock":
            self.met["clock forward" if fault.size > 0 else "clock back"] += 1
        self.note(NAMES[fault.a], fault.kind, f"b={NAMES[fault.b]} lasts_ms={fault.lasts_ms} size={fault.size}")
        a, b, machine = fault.a, fault.b, self.machines[fault.a]
        end_ms = self.now_ms + fault.lasts_ms
        match fault.kind:
            case "cut":
                self.cut([(a, b), (b, a)], end_ms)
            case "cut-one-way":
                self.cut([(a, b)], end_ms)
            case "partition":
                side = {slot for slot in range(self.plan.masters) if self.rng.random() < 0.5} | {a}
                across = [(i, j) for i in range(self.plan.masters) for j in range(self.plan.masters)]
                self.cut([(i, j) for i, j in across if (i in side) != (j in side)], end_ms)
            case "isolate":
                others = [slot for slot in range(self.plan.masters) if slot != a]
                self.cut([pair for o in others for pair in ((a, o), (o, a))], end_ms)
            case "deaf":
                self.cut([(o, a) for o in range(self.plan.masters) if o != a], end_ms)
            case "amnesia":
                self._amnesia(machine)
            case "hearsay":
                self._hearsay(machine)
            case "relapse":
                self._relapse(machine, b)
            case "slow":
                self.slow([(a, b), (b, a)], end_ms)
            case "crash":
                self.crash_for(machine, end_ms)
            case "crash-at-step":
                machine.fuse, machine.fuse_step = fault.size, ""
                if fault.size % 2:  # a certain step, soon
                    machine.fuse, machine.fuse_step = 1 + fault.size % 3, STEPS[fault.size // 2 % len(STEPS)]
            case "restart-all":
                for each in self.machines:
                    self.crash_for(each, self.now_ms + self.rng.choice((10, 100, 300)))
            case "pause":
                machine.pause()
                self.at(end_ms, machine.resume, machine.life)
            case "clock":
                machine.offset_ms += fault.size
            case _:
                self._disk_fault(fault, machine, end_ms)

    def _amnesia(self, machine: Machine) -> None:
        """What makes a promise forgotten in a crash do harm: a master that hears nobody goes on promising, the
        others rely on it, it crashes, its clock goes back, and a client finds it before anybody speaks to it."""
        plan, a = self.plan, machine.slot
        others = [slot for slot in range(plan.masters) if slot != a]
        unheard_ms = self.now_ms + plan.round_timeout_ms + 30
        crash_ms = unheard_ms + 2 * plan.idle_interval_ms + 60
        again_ms = crash_ms + plan.round_timeout_ms + 60
        self.cut([(o, a) for o in others], again_ms + 100)
        for other in others:
            self.at(unheard_ms, self.work, Work(unheard_ms, other, 2, False, False, False))
        self.at(crash_ms, self._forget, machine)
        for later_ms in (0, 30):
            self.at(again_ms + later_ms, self.work, Work(again_ms, a, 2, False, False, False))

    def _hearsay(self, machine: Machine) -> None:
        """What makes a counter do harm that is read apart from what came with it: two masters that have not heard each
        other for a while submit in one instant, and a third, the first to hear of it, tells one the other's counter."""
        plan, a = self.plan, machine.slot
        between, *_, other = [slot for slot in range(plan.masters) if slot != a] * 2
        self.machines[other].offset_ms = machine.offset_ms
        begin_ms = self.now_ms + plan.round_timeout_ms + 40
        told_ms = begin_ms + plan.network_ms(a, between) + plan.disk_ms
        self.cut([(a, other), (other, a)], told_ms + plan.round_timeout_ms)
        for at_ms, slot, many in (
            (begin_ms, a, 20),
            (begin_ms, other, 5),
            (told_ms, between, 1),
            (told_ms + 1, between, 1),
        ):
            self.at(at_ms, self.work, Work(at_ms, slot, many, False, False, False))

    def _relapse(self, machine: Machine, lost: int) -> None:
        """What makes counters kept over a restart do harm: two masters that do not hear each other submit in one
        instant; a third crashes before it has synced what came from the one, who is then silent for a while."""
        plan, crashing = self.plan, machine.slot
        others = [slot for slot in range(plan.masters) if slot not in (crashing, lost)]
        if not others:
            self.crash_for(machine, self.now_ms + 20)
            return
        other = others[0]
        begin_ms = self.now_ms + 20
        hops_ms = max(plan.near_ms, plan.far_ms) + plan.jitter_ms
        apart = [pair for o in others for pair in ((lost, o), (o, lost))]
        end_ms = begin_ms + hops_ms + plan.round_timeout_ms + 350
        self.cut(apart, end_ms)
        self.machines[other].offset_ms = self.machines[lost].offset_ms
        machine.disk_stalls_until = begin_ms + hops_ms + 60
        self.at(begin_ms, self.work, Work(begin_ms, lost, 20, False, False, False))
        self.at(begin_ms, self.work, Work(begin_ms, other, 5, False, False, False))
        self.at(begin_ms + hops_ms + 4, self.cut, [(lost, crashing), (crashing, lost)], end_ms)
        self.at(begin_ms + hops_ms + 8, self.crash_for, machine, begin_ms + hops_ms + 20)

    def _forget(self, machine: Machine) -> None:
        if not self.healing:
            machine.offset_ms -= 30_000
            self.crash_for(machine, self.now_ms + 10)

    def _disk_fault(self, fault: Fault, machine: Machine, end_ms: int) -> None:
        match fault.kind:
            case "full":
                machine.disk.fill(True)
                self.at(end_ms, machine.disk.fill, False)
            case "wipe":
                self.crash_for(machine, end_ms)
                self.wipe(machine)
            case "old-image":
                self.at(end_ms, self._restore, machine, machine.disk.image())
            case "flip" if self.rng.random() < 0.5 and self.plan.masters > 2:
                # what is lost is news that the first one to be asked has not heard of
                away, plan = min(slot for slot in range(self.plan.masters) if slot != fault.a), self.plan
                flip_ms = self.now_ms + 2 * (max(plan.near_ms, plan.far_ms) + plan.jitter_ms + plan.disk_ms) + 5
                links = [pair for o in range(plan.masters) if o != away for pair in ((o, away), (away, o))]
                self.cut(links, flip_ms + 20)
                self.at(self.now_ms + 1, self.work, Work(self.now_ms, fault.a, 9, False, False, False))
                self.at(flip_ms, self._flip, machine, flip_ms + 20, True)
            case "flip":
                self._flip(machine, end_ms, False)
            case "forge":
                self._forge(machine, fault.b, fault.lasts_ms)
            case "disk-error":
                self.met["disk-error"] -= 1  # counted when it happens
                machine.disk.fail()
            case "stop":
                if machine.executor is not None and machine.state == UP:
                    self.at(self.now_ms, machine.stop_gently, machine.life, end_ms)
                    self.at(end_ms + 50, machine.start)
            case _ if fault.kind in MEMBER_FAULTS:
                order(self, fault)
            case "crash-ahead":
                machine.hunted = True
            case _ if fault.kind in CHANGE_FAULTS:
                set_trap(self, fault)
            case _ if fault.kind in directed.DIRECTED:
                self.met[fault.kind] -= fault.kind != "flap"  # counted when it comes about
                directed.begin(self, fault)
            case "stop-all":
                for each in self.machines:
                    if each.executor is not None and each.state == UP:
                        stop_ms = self.now_ms + self.rng.choice((0, 5, 50, 100))
                        self.at(stop_ms, each.stop_gently, each.life, stop_ms + 150)
                        self.at(end_ms + self.rng.choice((200, 220, 300)), each.start)
            case _:
                raise AssertionError(fault.kind)

    def _flip(self, machine: Machine, back_ms: int, late: bool) -> None:
        """Only behind a seal: without one a flipped last record reads as a torn tail, as the journal says."""
        if not self.healing and machine.rest(sealed=True) and machine.disk.flip(late):
            machine.flipped = True
            self.met["bit flipped"] += 1
        self.at(back_ms, machine.start, machine.life)

    def _forge(self, machine: Machine, behind: int, lasts_ms: int) -> None:
        """One master comes back with another log, another one with a shorter log, which the first may offer to mend.
        That one was deaf, so that it holds what the others have ordered since, and hears of their order from the first
        alone; or it had crashed. Or nobody is behind, and nothing is written any more: idle posts alone can tell."""
        plan = self.plan
        hop_ms = max(plan.near_ms, plan.far_ms) + plan.jitter_ms
        begin_ms = self.now_ms + 5
        third = next((slot for slot in range(plan.masters) if slot not in (machine.slot, behind)), behind)
        for slot in (machine.slot, third):
            self.at(begin_ms, self.work, Work(begin_ms, slot, 4, False, False, False))
        how = self.rng.random()
        if how < 0.35:
            self.at(begin_ms + 5 * hop_ms + 4 * plan.disk_ms + 60, self._put_forged, machine, machine, lasts_ms, 30)
            return
        if how < 0.45:
            crash_ms = begin_ms + 2 * hop_ms + self.rng.randint(1, 12)
            self.at(crash_ms, self.crash_for, self.machines[behind], crash_ms + 300)
        else:
            self.at(begin_ms + 1, self._deafen, self.machines[behind], {machine.name, NAMES[third]}, machine.slot, 150)
        forge_ms = begin_ms + 3 * hop_ms + 2 * plan.disk_ms + 20
        self.at(forge_ms, self._put_forged, machine, self.machines[behind], lasts_ms, 30)
        back_ms = forge_ms + lasts_ms
        for later_ms in (60, 150):  # what is added behind a forged log shows it
            for slot in (machine.slot, third):
                self.at(back_ms + later_ms, self.work, Work(back_ms, slot, 2, False, False, False))

    def _deafen(self, machine: Machine, waiting: set[str], speaker: int, tries: int) -> None:
        """As soon as it holds transactions of these that are not in its log; ``speaker`` is heard again first."""
        plan = self.plan
        agreement = machine.executor.core.agreement if machine.executor else None
        if tries and not (agreement and {q.origin.node for q in agreement.queues if len(q)} >= waiting):
            self.at(self.now_ms + 1, self._deafen, machine, waiting, speaker, tries - 1)
            return
        others = [slot for slot in range(plan.masters) if slot != machine.slot]
        end_ms = self.now_ms + 4 * plan.round_timeout_ms + 200
        self.cut([(slot, machine.slot) for slot in others if slot != speaker], end_ms)
        self.cut([(speaker, machine.slot)], self.now_ms + plan.round_timeout_ms + 50)

    def _put_forged(self, machine: Machine, behind: Machine, lasts_ms: int, tries: int) -> None:
        if self.healing:
            return
        quiet = behind is machine
        if machine.forge(behind.mirror.log if tries and not quiet else 0):
            self.met["log forged"] += 1
            self.forged, self._quiet = True, quiet
            self.lose(machine)
            self.at(self.now_ms + lasts_ms, machine.start, machine.life)
            if not quiet:
                rest = [slot for slot in range(self.plan.masters) if slot not in (machine.slot, behind.slot)]
                away = [(machine.slot, slot) for slot in rest] + [(slot, machine.slot) for slot in rest]
                self.cut(away, self.now_ms + lasts_ms + self.plan.round_timeout_ms + 150)
        elif tries:  # it is down, or its log has no such neighbours yet
            self.at(self.now_ms + 20, self._put_forged, machine, behind, lasts_ms, tries - 1)

    def _restore(self, machine: Machine, image: dict[str, bytes]) -> None:
        if self.healing:
            return
        self.crash_for(machine, self.now_ms + 50)
        self.lose(machine)
        self.old = True
        machine.disk.restore(image)

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

    def wipe(self, machine: Machine) -> None:
        """Its disk is empty: it comes back with a new birth, as a learner that must be taken in. What only it held has
        never been."""
        machine.disk.wipe()
        if machine.origin is not None:
            self.transactions.lost.add(machine.origin)
            self.mirrors.pop(machine.origin)
            kept = max((mirror.held.get(machine.origin, 0) for mirror in self.mirrors.values()), default=0)
            del self.transactions.made.get(machine.origin, [])[kept:]
            told = self.transactions.accepted
            told[machine.origin] = min(told.get(machine.origin, 0), kept)
        machine.empty()
        self._forget_unknown_views()
        machine.rejoined = True  # its worker may have executed what nobody knows any more

    def _forget_unknown_views(self) -> None:
        """What nobody has accepted or grown from any more has never been: its number may be given again."""
        views = [view for mirror in self.mirrors.values() if (view := mirror.accepted) is not None]
        known = {number for view in views for number in (*view.history, view.number)}
        self.log.forget_all_but(known)
        self.views.forget_all_but(known)

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
        if self._links_cut or not all(m.mirror.installed for m in self.machines):
            if not self._links_cut and not self.healing:
                self.at(self.now_ms + 50, self._cut_links)
            return
        self._links_cut = True
        self.met["lasting cut"] += 1
        for link in self.plan.links:
            self.network.cuts[link] += 1 << 20

    # Coming good

    def _come_good(self) -> int:
        """Heal everything but the cuts that last; returns how long it took (rule 32)."""
        self._heal()
        began_ms = self.now_ms
        if self.damaged or any(m.state == ENDED for m in self.machines):
            self._until(began_ms + 300)
            if self.forged:
                self._until_named(began_ms + liveness.named_ms(self.plan))
            return 0
        bound_ms = liveness.bound_ms(self.plan, self._links_cut) + liveness.mending_ms(self)
        while self.now_ms < began_ms + bound_ms and not self.findings.found:
            self._until(self.now_ms + 20)
            if any(m.state == ENDED for m in self.machines):
                self._until(self.now_ms + 300)
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

    def _until_named(self, end_ms: int) -> None:
        """Of two masters that run and hear each other, neither has another log than the other (rule 17): one of them
        has ended by name."""
        fork = self._fork()
        while self.now_ms < end_ms and not self.findings.found:
            if not fork and any(m.ended_by == "Forked" for m in self.machines):
                return
            self._until(min(end_ms, self.now_ms + 50))
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
        for machine in self.machines:
            self.at(self.now_ms + self.rng.randint(1, 100), self.work, Work(0, machine.slot, 1, False, False, False))

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
                    self.views.install(machine.name, machine.mirror.accepted)
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
