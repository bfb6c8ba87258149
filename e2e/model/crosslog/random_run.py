"""One random run: transactions, cuts, rounds, view changes, crashes, splits; then everything heals and must agree."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass
from typing import Final, NamedTuple

from e2e.model.crosslog.assertions import ChainedWrite, CrosslogAssertions
from e2e.model.crosslog.cluster import CrosslogCluster
from e2e.model.crosslog.cuts import CutRules
from e2e.model.crosslog.forgotten import ForgetRules
from e2e.model.crosslog.log_fold import CrosslogFold
from e2e.model.crosslog.masters import CrosslogMaster, LogCopy
from e2e.model.crosslog.transactions import TransactionRules
from e2e.model.crosslog.values import (
    SYSTEM_LOG,
    CrosslogViolation,
    LogStrategy,
    LogView,
    MissingPart,
    ModelPrepare,
    ModelWrite,
)
from e2e.model.crosslog.view_changes import LogViewChanges

STEPS: Final = 420
POSTS_A_STEP: Final = 10
ROUNDS_TO_HEAL: Final = 80
"""When all masters reach each other, everything is decided after so many rounds."""
CLIENTS: Final = 3
"""Clients that write into one repository after the other, each write behind the one before."""


class CrosslogOptions(NamedTuple):
    """``strategy``: of the repositories; without one, each has one of both. The system log is under *Majority*.
    ``watermarks``: decisions are forgotten by origin, and not one by one."""

    strategy: LogStrategy | None = None
    watermarks: bool = False
    missing: frozenset[MissingPart] = frozenset()


@dataclass(frozen=True, slots=True)
class CrosslogPace:
    """How often things happen in one run: probabilities by step."""

    loss: float
    splits: float
    heals: float
    crashes: float
    view_changes: float
    transactions: float
    recoveries: float
    cuts: float


def run(seed: int, options: CrosslogOptions) -> Counter[str]:
    """Counts of one run; :class:`CrosslogViolation` when a rule is broken."""
    return CrosslogRun(seed, options).run()


class CrosslogRun:
    """The cluster of one run: 3 to 5 masters, the system log, 2 or 3 repositories."""

    def __init__(self, seed: int, options: CrosslogOptions) -> None:
        self.chance = chance = random.Random(seed)
        self.ids = range(chance.choice([3, 3, 4, 5]))
        repositories = chance.choice([2, 2, 3])
        weights = self._draw_weights()
        strategies = [options.strategy or chance.choice([*_REPOSITORY_STRATEGIES]) for _ in range(repositories)]
        self.pace = CrosslogPace(
            loss=chance.choice([0, 0.2, 0.5]),
            splits=chance.choice([0.01, 0.04]),
            heals=chance.choice([0.03, 0.1]),
            crashes=chance.choice([0, 0.01, 0.03]),
            view_changes=chance.choice([0.15, 0.4]),
            transactions=chance.choice([0.1, 0.25]),
            recoveries=chance.choice([0.02, 0.1]),
            cuts=chance.choice([0.05, 0.15]),
        )
        self.missing, self.counts = options.missing, Counter[str]()
        self.assertions = CrosslogAssertions(self.counts)
        self.cluster = CrosslogCluster(
            chance,
            options.missing,
            weights,
            (LogStrategy.MAJORITY, *strategies),
            self.pace.loss,
            [],
            self.assertions,
            self.counts,
            groups=[0 for _ in self.ids],
        )
        self.changes = LogViewChanges(self.cluster)
        self.transactions = TransactionRules(self.cluster)
        self.forgotten = ForgetRules(self.cluster, options.watermarks)
        self.cuts = CutRules(self.cluster)
        self.masters = self.cluster.masters
        views = [self.changes.first_view(self.ids) for _ in self.cluster.logs]
        for each in self.ids:
            self.masters.append(CrosslogMaster(each, self.missing, [self._copy(view) for view in views]))
        self.has_lost_a_disk = False

    def _draw_weights(self) -> tuple[int, ...]:
        """No master has half of the votes."""
        chance, equal = self.chance, tuple(1 for _ in self.ids)
        if chance.random() < 0.6:
            return equal
        weights = tuple(chance.choice([1, 1, 2]) for _ in self.ids)
        return equal if 2 * max(weights) >= sum(weights) else weights

    def _copy(self, view: LogView) -> LogCopy:
        return LogCopy(self.missing, view, CrosslogFold(self.missing, self.cluster.names))

    def run(self) -> Counter[str]:
        """The run; its counts."""
        for _ in range(STEPS):
            self._step()
        self._heal()
        self.assertions.finish(self.masters, self.cluster.participants)
        self.counts["half seen for a while"] += len(self.assertions.half_seen)
        self.counts["entries"] += sum(len(copy.entries) for copy in self.masters[0].logs)
        return self.counts

    # -- one step

    def _step(self) -> None:
        chance, pace, cluster = self.chance, self.pace, self.cluster
        if chance.random() < pace.splits:
            cluster.groups[:] = [chance.choice([0, 0, 1]) for _ in self.ids]
        elif chance.random() < pace.heals:
            cluster.groups[:] = [0 for _ in self.ids]
        if chance.random() < pace.crashes:
            self._crash(chance.choice(self.masters))
        for each in self.masters:
            if not each.is_up and chance.random() < 0.15:
                each.is_up = True
        if chance.random() < pace.view_changes:
            proposer = chance.choice(self.ids)
            if self.masters[proposer].is_up:
                self.changes.change(chance.choice(cluster.logs), cluster.reachable(proposer))
        for _ in range(POSTS_A_STEP):
            sender, receiver = chance.sample(self.ids, 2)
            cluster.post(sender, receiver, chance.choice(cluster.logs))
        master = chance.choice(self.masters)
        if master.is_up:
            self._act(master)

    def _act(self, master: CrosslogMaster) -> None:
        chance, pace, cluster = self.chance, self.pace, self.cluster
        for log in cluster.logs:
            cluster.add(master, log)
        if chance.random() < pace.transactions:
            self._prepare(master)
        if not master.is_up:
            return
        self._go_on(master)
        if chance.random() < pace.recoveries:
            undecided = self.transactions.undecided(master)
            if undecided:
                self.transactions.recover(master, chance.choice(undecided))
        if (
            chance.random() < pace.cuts
            and not self.transactions.decides_in_a_participant
            and self.cuts.may_start(master)
        ):
            self.cuts.start(master)
        self.cuts.advance(master, gives_up=chance.random() < 0.01)
        self._write(master)

    def _go_on(self, master: CrosslogMaster) -> None:
        """What a master does about transactions whenever its logs have grown."""
        self.transactions.coordinate(master)
        self.transactions.write_outcomes(master)
        self.forgotten.forget(master)
        self.assertions.note_halves(master, self.cluster.participants)

    def _prepare(self, master: CrosslogMaster) -> None:
        """R10: a prepare in each participant. The coordinator may die between two of them."""
        chance, cluster = self.chance, self.cluster
        gid, repositories = len(cluster.participants), cluster.repositories
        if self.forgotten.by_watermark and any(copy.view is None for copy in master.logs):
            return
        cluster.participants.append(
            tuple(chance.sample(repositories, chance.choice([2, 2, min(3, len(repositories))])))
        )
        self.counts["transactions"] += 1
        for log in cluster.participants[gid]:
            cluster.say(master, log, ModelPrepare(gid))
            if chance.random() < 0.06 and self.pace.crashes:
                self.counts["crashes"] += 1
                master.crash()
                return
        master.coordinated.append(gid)

    def _write(self, master: CrosslogMaster) -> None:
        """A client's next write begins when the one before it is synced, at any master."""
        chance, chains = self.chance, self.assertions.chains
        if len(chains) < CLIENTS:
            chains.append([])
        chain = chance.choice(chains)
        if chain and not chain[-1].is_synced:
            last = chain[-1]
            last.is_synced = any(each.is_up and last.uid in each.logs[last.log].ids for each in self.masters)
        elif chance.random() < 0.5:
            log = chance.choice(self.cluster.repositories)
            uid = self.cluster.say(master, log, ModelWrite())
            if uid is not None:
                chain.append(ChainedWrite(log, uid))

    def _crash(self, master: CrosslogMaster) -> None:
        """One disk is lost in a run, never that of half of the votes."""
        if not master.is_up:
            return
        master.crash()
        self.counts["crashes"] += 1
        is_minor = 2 * self.cluster.weights[master.number] < sum(self.cluster.weights)
        if not self.has_lost_a_disk and is_minor and self.chance.random() < 0.15:
            self.has_lost_a_disk = True
            self.counts["disks lost"] += 1
            master.lose_disk()

    # -- the end

    def _heal(self) -> None:
        """All masters work and reach each other. Everything is decided in time."""
        self.cluster.groups[:] = [0 for _ in self.ids]
        self.cluster.loss = 0
        for master in self.masters:
            master.is_up = True
        for at in range(ROUNDS_TO_HEAL):
            self._heal_logs()
            for master in self.masters:
                self._go_on(master)
                self.cuts.advance(master, gives_up=at > 20)
            first = self.masters[0]
            if at > 2:
                for gid in first.prepared():
                    if self.transactions.is_open(first, gid):
                        self.transactions.recover(first, gid, is_end=True)
            if at > 4 and self._is_at_rest():
                return
        raise CrosslogViolation("something is never decided")

    def _heal_logs(self) -> None:
        for log in self.cluster.logs:
            self.changes.change(log, self.ids)
        for _ in range(2):
            for log in self.cluster.logs:
                for sender in self.ids:
                    for receiver in self.ids:
                        if sender != receiver:
                            self.cluster.post(sender, receiver, log)
                for master in self.masters:
                    self.cluster.add(master, log)

    def _is_at_rest(self) -> bool:
        """Nothing waits, everything has its outcome, and no cut runs."""
        first = self.masters[0]
        return (
            not any(copy.queue for master in self.masters for copy in master.logs)
            and not any(self.transactions.is_open(first, gid) for gid in first.prepared())
            and first.logs[SYSTEM_LOG].fold.running_cut is None
        )


_REPOSITORY_STRATEGIES: Final = (LogStrategy.SMART, LogStrategy.SIMPLE)
