"""One random run: clients, rounds, view changes, crashes, trims, splits; then everything heals and must agree."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass
from typing import Final, NamedTuple

from e2e.model.synchronous.anchors import AnchorRules
from e2e.model.synchronous.assertions import Assertions
from e2e.model.synchronous.branches import BranchRules
from e2e.model.synchronous.clients import ModelClients
from e2e.model.synchronous.decisions import DecisionRules
from e2e.model.synchronous.log_fold import WHOLE_LOG, FoldMemo, LogFold
from e2e.model.synchronous.masters import ModelMaster
from e2e.model.synchronous.network import ModelNetwork
from e2e.model.synchronous.readers import LogReaders
from e2e.model.synchronous.values import (
    DecisionVerdict,
    Missing,
    Mode,
    ModelAnchor,
    ModelView,
    ModelViolation,
    TransactionKind,
    Weights,
)
from e2e.model.synchronous.view_changes import ViewChanges

STEPS: Final = 1800
QUIET_STEPS: Final = 600
"""Steps at the end of a run in which no disk is lost."""


class RunOptions(NamedTuple):
    """``weights``: votes change through the log. ``disks``: disks are lost, and masters begin without a log."""

    mode: Mode
    masters: int
    missing: frozenset[Missing] = frozenset()
    weights: bool = False
    disks: bool = False


@dataclass(frozen=True, slots=True)
class RunPace:
    """How often things happen in one run: probabilities by step."""

    requests: float
    decisions: float
    rollbacks: float
    view_changes: float
    crashes: float
    disk_losses: float
    isolated: float


def run(seed: int, options: RunOptions) -> Counter[str]:
    """Counts of one run; :class:`ModelViolation` when a rule is broken."""
    return RandomRun(seed, options).run()


class RandomRun:
    """The cluster of one run."""

    def __init__(self, seed: int, options: RunOptions) -> None:
        self.chance = chance = random.Random(seed)
        self.options = options
        self.missing = options.missing
        self.ids = range(options.masters)
        self.counts: Counter[str] = Counter()
        self.network = ModelNetwork(
            chance,
            options.masters,
            lost=chance.choice([0, 0.1, 0.3]),
            repeated=chance.choice([0, 0.2]),
            parted=chance.choice([0.003, 0.01, 0.02]),
            nests=chance.random() < 0.35,
        )
        self.pace = RunPace(
            requests=chance.choice([0.05, 0.12]),
            decisions=chance.choice([0.05, 0.15]),
            rollbacks=chance.choice([0.1, 0.5]),
            view_changes=chance.choice([0.006, 0.012, 0.03]),
            crashes=chance.choice([0, 0.003, 0.01]),
            disk_losses=chance.choice([0.002, 0.006]),
            isolated=chance.choice([0, 0, 0.6]),
        )
        weights = self._initial_weights()
        self.assertions = Assertions(self.missing, options.mode is Mode.SIMPLE, self.counts)
        anchors = AnchorRules(self.missing, weights)
        self.masters = [ModelMaster(each, self._first_view(weights)) for each in self.ids]
        view = self.masters[0].view
        for master in self.masters:
            master.view = view
        self.readers = LogReaders(chance, self.missing, self.assertions, self.counts, FoldMemo(self.missing))
        self.clients = ModelClients(
            chance, anchors, self.assertions, self.counts, self.readers.fold_of, changes_weights=options.weights
        )
        self.decisions = DecisionRules(anchors)
        self.changes = ViewChanges(
            options.mode,
            anchors,
            BranchRules(options.mode, self.missing, weights),
            self.network,
            self.readers,
            self.clients,
            self.masters,
            self.note,
        )
        self.lost_disks = 0

    def _initial_weights(self) -> Weights:
        chance, count = self.chance, self.options.masters
        equal = (1,) * count
        weights = tuple(chance.choice([1, 1, 1, 2]) for _ in self.ids) if chance.random() < 0.3 else equal
        return weights if 2 * max(weights) < sum(weights) else equal

    def _first_view(self, weights: Weights) -> ModelView:
        anchor = ModelAnchor((0, 0), dict.fromkeys(self.ids, 0), weights, (), frozenset(), frozenset())
        return ModelView((0, 0), tuple(self.ids), True, anchor, ((0, 0),))

    def run(self) -> Counter[str]:
        """All steps, then the end."""
        for now in range(STEPS):
            self.clients.now = now
            self._step()
        self._heal()
        fold = self._whole_fold()
        self.assertions.finish(self.masters, self.clients.accepted, self.clients.lost, fold.keys)
        if fold.open:
            raise ModelViolation("not decided in the end")
        self.counts["rolled back in the end"] += sum(
            verdict is DecisionVerdict.ROLLBACK for verdict in fold.decided.values()
        )
        self.counts["transactions"] += len(self.clients.accepted)
        return self.counts

    def _whole_fold(self) -> LogFold:
        master = self.masters[0]
        memo = FoldMemo(self.missing)
        return memo.fold_at(WHOLE_LOG, master.log, master.hashes, master.places, len(master.log))

    # -- one step

    def _step(self) -> None:
        chance, pace = self.chance, self.pace
        for each in self.masters:
            if each.down:
                each.down -= 1
        master = self.masters[chance.randrange(len(self.masters))]
        if not master.down:
            self._act(master, chance.random())
        for _ in range(2):
            self._deliver()
        if master.is_active:
            self._advance(master)
        self.network.change()
        if chance.random() < pace.crashes and not master.down:
            master.crash()
            master.down = chance.choice([1, 20, 200])
            self.counts["crashes"] += 1
        if self.options.disks and chance.random() < pace.disk_losses:
            master = self._lose_disk(master)
        if chance.random() < pace.view_changes and not master.down and not master.is_learner:
            self._propose(master)

    def _act(self, master: ModelMaster, draw: float) -> None:
        chance, pace = self.chance, self.pace
        if draw < pace.requests:
            self.clients.request(master)
        elif draw < 0.45:
            self.changes.post(master)
        elif draw < 0.45 + pace.decisions:
            self._decide(master)
        elif 0.60 < draw < 0.64 and master.is_active:
            other = self.masters[chance.randrange(len(self.masters))]
            if other.view is master.view and other.installed and not other.down:
                self.readers.execute(other, master, master.stable_length())
        elif 0.64 < draw < 0.67 and master.is_active and len(master.view.members) == len(self.masters):
            self.readers.trim(master, self.masters)
        elif 0.69 < draw < 0.70 and master.is_active:
            self.readers.restore(master, master)
        elif 0.67 < draw < 0.69 and master.is_active and self.clients.asked:
            txid = chance.choice(self.clients.asked)
            verdict = self.readers.what_became_of(master, txid)
            if verdict is not None:
                self.assertions.answer(txid, verdict)

    def _deliver(self) -> None:
        arrived = self.network.take()
        if arrived is None or self.masters[arrived[1]].down:
            return
        sender, receiver, message = arrived
        self.changes.receive(sender, receiver, message)
        if self.masters[receiver].is_active:
            self._advance(self.masters[receiver])

    def _advance(self, master: ModelMaster) -> None:
        everybody = self.options.mode is Mode.MAJORITY
        groups = self.network.groups
        master.add({each for each in self.ids if everybody or groups[each] == groups[master.number]})
        self.note(master)

    def note(self, master: ModelMaster) -> None:
        """What is stable now: answers, and the master's own worker."""
        stable = master.stable_length()
        worker, now = master.worker, (master.view.number, stable)
        if now != master.noted:
            master.noted = now
            self._answer(master, stable)
        if worker.index < stable or not master.is_on_chain(worker.index, worker.hash):
            if worker.index <= stable and not master.is_on_chain(worker.index, worker.hash):
                raise ModelViolation("a worker is on no chain and was not sent back")
            self.readers.execute(master, master, stable)

    def _answer(self, master: ModelMaster, stable: int) -> None:
        fold = self.readers.fold_of(master, stable)
        for txid, verdict in fold.decided.items():
            self.assertions.answer(txid, verdict)
            if verdict is DecisionVerdict.COMMIT and (master.view.quorate or Missing.SYNCED_ANYWHERE in self.missing):
                self.assertions.answer_synced(txid)
        if master.view.quorate:
            self.assertions.note_stable(master, stable)

    # -- decisions

    def _decide(self, master: ModelMaster) -> None:
        if not master.is_active:
            return
        before = master.sequence
        self._write_decisions(master)
        if master.sequence > before and self.chance.random() < self.pace.isolated and not self.network.is_whole:
            self.network.isolate(master.number)

    def _write_decisions(self, master: ModelMaster) -> None:
        chance, clients, is_end = self.chance, self.clients, self.network.is_whole
        undecided = self.decisions.judge(master, clients.now, clients.due)
        if undecided.late_own:
            clients.originate(
                master, TransactionKind.DECISION, verdict=DecisionVerdict.ROLLBACK, names=undecided.late_own
            )
            for txid in undecided.late_own:
                self.assertions.answer(txid, DecisionVerdict.ROLLBACK)
            return
        for txid in undecided.certain:
            self.assertions.answer(txid, DecisionVerdict.COMMIT)
        own = f"{master.number}.{master.birth}."
        is_own = any(txid.startswith(own) for txid in undecided.certain)
        if undecided.certain and (is_own or is_end or chance.random() < 0.15):
            clients.originate(master, TransactionKind.DECISION, verdict=DecisionVerdict.COMMIT, names=undecided.certain)
            self.counts["COMMITs"] += 1
            assert master.view.anchor is not None
            for txid in undecided.certain:
                self.assertions.committed_in.setdefault(txid, master.view.anchor.electorate)
        if undecided.doomed and (is_end or chance.random() < self.pace.rollbacks):
            clients.originate(
                master, TransactionKind.DECISION, verdict=DecisionVerdict.ROLLBACK, names=undecided.doomed
            )
            self.counts["ROLLBACKs"] += 1

    # -- view changes and disks

    def _propose(self, master: ModelMaster) -> None:
        chance, network = self.chance, self.network
        likely = 0.97 if self.options.mode is Mode.MAJORITY else 0.9
        reachable = [
            each
            for each in self.ids
            if each != master.number
            and (
                (network.connects(master.number, each) and network.connects(each, master.number))
                or chance.random() < 0.1
            )
        ]
        members = sorted([master.number, *(each for each in reachable if chance.random() < likely)])
        self.changes.propose(master, tuple(members))

    def _lose_disk(self, master: ModelMaster) -> ModelMaster:
        """Its worker stays; the master begins without a log, under a new birth. Never so many that no quorum has a disk
        left."""
        limit = 1 if self.options.weights else (len(self.masters) - 1) // 2
        if (
            self.clients.now >= STEPS - QUIET_STEPS
            or self.lost_disks >= limit
            or any(each.is_learner or not each.has_voted for each in self.masters)
        ):
            return master
        for txid in (*master.queue, *master.places):
            if not any(each is not master and each.has(txid) for each in self.masters):
                self.clients.lose(txid)
        fresh = ModelMaster(
            master.number,
            ModelView((-1, master.number), ()),
            birth=master.birth + 1,
            boots=master.boots + 1,
            promised=(-1, 0),
            highest_seen=max(master.highest_seen, master.promised[0]),
            installed=False,
            has_voted=False,
            is_learner=True,
            worker=master.worker,
        )
        self.masters[master.number] = fresh
        self.lost_disks += 1
        self.counts["disks lost"] += 1
        if self.chance.random() < 0.5:
            self.network.favour(master.number)
        return fresh

    # -- the end

    def _heal(self) -> None:
        self.network.heal()
        for each in self.masters:
            each.down = 0
        first = next(each for each in self.masters if not each.is_learner)
        for _ in range(3):
            first.highest_seen = max(each.promised[0] for each in self.masters)
            self.changes.propose(first, tuple(self.ids))
            self._settle()
        for _ in range(10 * len(self.masters)):
            for each in self.masters:
                self.changes.post(each)
                self._settle()
            for each in self.masters:
                self._decide(each)
            self.clients.now += 1

    def _settle(self) -> None:
        while self.network.in_flight:
            sender, receiver, message = self.network.in_flight.pop(0)
            self.changes.receive(sender, receiver, message)
            if self.masters[receiver].is_active:
                self._advance(self.masters[receiver])
