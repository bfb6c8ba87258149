"""Clients of a run: ordinary and synchronous requests, repeated keys, and changes of weights."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from e2e.model.synchronous.anchors import AnchorRules
from e2e.model.synchronous.assertions import Assertions
from e2e.model.synchronous.log_fold import LogFold
from e2e.model.synchronous.masters import ModelMaster
from e2e.model.synchronous.values import (
    DecisionVerdict,
    ModelTransaction,
    Number,
    TransactionKind,
    Weights,
)

NEVER: Final = 1 << 30


@dataclass(slots=True, eq=False)
class ModelClients:
    """``due``: by synchronous transaction, the step from which it is late. ``keys``: of those that have one.
    ``fold_of``: what a master knows of the first entries of its log."""

    chance: random.Random
    anchors: AnchorRules
    assertions: Assertions
    counts: Counter[str]
    fold_of: Callable[[ModelMaster, int], LogFold]
    changes_weights: bool
    now: int = 0
    due: dict[str, int] = field(default_factory=dict)
    keys: dict[str, int] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    accepted: set[str] = field(default_factory=set)
    lost: set[str] = field(default_factory=set)
    synchronous_share: float = 0.0
    time_outs: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        self.synchronous_share = self.chance.choice([0.3, 0.45, 0.7])
        self.time_outs = self.chance.choice([(0, 20, 150, NEVER), (0, 0, 10), (20, 150, NEVER)])

    def originate(
        self,
        master: ModelMaster,
        kind: TransactionKind,
        *,
        needs_all: bool = False,
        due: int = 0,
        key: int | None = None,
        verdict: DecisionVerdict = DecisionVerdict.COMMIT,
        names: Iterable[str] = (),
        weights: Weights = (),
        version: int = 0,
        decided_in: Number = (0, 0),
    ) -> str:
        """A new transaction of this master, durable there. Returns its id."""
        master.sequence += 1
        txid = f"{master.number}.{master.birth}.{master.sequence:04d}"
        transaction = ModelTransaction(
            txid,
            master.number,
            master.birth,
            kind,
            needs_all=needs_all,
            due=due,
            key=key,
            verdict=verdict,
            names=frozenset(names),
            weights=weights,
            version=version,
            decided_in=decided_in,
        )
        self.assertions.transactions[txid] = transaction
        master.hold(transaction)
        self.accepted.add(txid)
        self.assertions.persisted(master.number, txid)
        return txid

    def lose(self, txid: str) -> None:
        """The only disk that had it is lost."""
        if txid in self.accepted:
            self.accepted.discard(txid)
            self.lost.add(txid)

    def request(self, master: ModelMaster) -> None:
        """One request to a master."""
        draw = self.chance.random()
        if draw > self.synchronous_share + 0.05:
            self.originate(master, TransactionKind.ORDINARY)
        elif self.changes_weights and draw < 0.05 and master.is_active:
            self._change_weights(master)
        else:
            self._write_synchronously(master)

    def _change_weights(self, master: ModelMaster) -> None:
        version, weights = self.anchors.configured_weights(master.log, master.view.history)
        wanted, count = list(weights), len(weights)
        if self.chance.random() < 0.5:
            wanted = [1] * count
            for each in self.chance.sample(range(count), 2):
                wanted[each] = 3
        else:
            wanted[self.chance.randrange(count)] = self.chance.choice([0, 1, 2, 3])
        if 2 * max(wanted) >= sum(wanted):
            wanted = [1] * count
        self.originate(
            master,
            TransactionKind.WEIGHTS,
            weights=tuple(wanted),
            version=version,
            decided_in=master.view.number,
        )
        self.counts["changes of weights"] += 1

    def _write_synchronously(self, master: ModelMaster) -> None:
        """S2: only in a quorate view that has the quorum. A client that misses an answer repeats its key elsewhere."""
        chance, view = self.chance, master.view
        needs_all = chance.random() < 0.15
        if not master.is_active or not view.quorate or view.anchor is None:
            self.counts["refused"] += 1
            return
        if needs_all and any(votes and each not in view.members for each, votes in enumerate(view.anchor.electorate)):
            self.counts["refused"] += 1
            return
        key = None
        if chance.random() < 0.3:
            key = self._choose_key(master)
            if key is None:
                return
        due = self.now + chance.choice(self.time_outs)
        before = len(self.assertions.synced)
        txid = self.originate(master, TransactionKind.SYNCHRONOUS, needs_all=needs_all, due=due, key=key)
        self.due[txid] = due
        self.assertions.synced_before[txid] = before
        self.asked.append(txid)
        self.counts["synchronous"] += 1
        if key is not None:
            self.keys[txid] = key

    def _choose_key(self, master: ModelMaster) -> int | None:
        """A new key; or one that a client sends again. None where the master knows that key, done or undecided, and
        repeats its answer."""
        if not self.keys or self.chance.random() >= 0.7:
            return len(self.keys)
        answered = self.assertions.answered_committed | self.assertions.answered_rolled_back
        is_lost = self.chance.random() < 0.3
        unsure = [key for txid, key in self.keys.items() if is_lost or txid not in answered]
        if not unsure:
            return len(self.keys)
        key = self.chance.choice(unsure)
        fold = self.fold_of(master, len(master.log))
        undecided = [*fold.open.values(), *(entry.transaction for entry in master.queue.values())]
        return None if key in fold.keys or any(each.key == key for each in undecided) else key
