"""What no run may do. Each method raises :class:`ModelViolation`."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from e2e.model.synchronous.masters import ModelMaster, ModelWorker
from e2e.model.synchronous.values import (
    DecisionVerdict,
    Missing,
    ModelEntry,
    ModelTransaction,
    ModelView,
    ModelViolation,
    Number,
    TransactionKind,
    Weights,
    is_majority,
    votes_of,
)


@dataclass(slots=True, eq=False)
class Assertions:
    """What an observer of the cluster remembers. ``moves``: whether a stable place may move at a rejoin (Simple)."""

    missing: frozenset[Missing]
    moves: bool
    counts: Counter[str]
    transactions: dict[str, ModelTransaction] = field(default_factory=dict)
    ever_held: dict[str, set[int]] = field(default_factory=dict)
    committed_in: dict[str, Weights] = field(default_factory=dict)
    answered_committed: set[str] = field(default_factory=set)
    answered_rolled_back: set[str] = field(default_factory=set)
    executed: set[str] = field(default_factory=set)
    synced: list[str] = field(default_factory=list)
    synced_before: dict[str, int] = field(default_factory=dict)
    """By transaction: how many of :attr:`synced` were answered before it was asked for."""
    _synced: set[str] = field(default_factory=set)
    _contents: dict[int, tuple[str, ...]] = field(default_factory=dict)
    _stable_decisions: dict[int, int] = field(default_factory=lambda: {0: 0})
    _quorate_installed: dict[Number, Number] = field(default_factory=dict)

    def persisted(self, master: int, txid: str) -> None:
        """A master's disk has a transaction."""
        self.ever_held.setdefault(txid, set()).add(master)

    def answer(self, txid: str, verdict: DecisionVerdict) -> None:
        """A client hears what became of a transaction. It may never hear both."""
        if verdict is DecisionVerdict.COMMIT and txid not in self.answered_committed:
            self.answered_committed.add(txid)
            self.counts["answered committed"] += 1
        if verdict is DecisionVerdict.ROLLBACK and txid not in self.answered_rolled_back:
            self.answered_rolled_back.add(txid)
            self.counts["answered rolled back"] += 1
        if txid in self.answered_rolled_back:
            if txid in self.answered_committed:
                raise ModelViolation("answered committed and rolled back")
            if txid in self.executed:
                raise ModelViolation("executed, then answered rolled back")

    def answer_synced(self, txid: str) -> None:
        """Its COMMIT is stable: what is asked for from now on takes effect behind it."""
        if txid not in self._synced:
            self._synced.add(txid)
            self.synced.append(txid)

    def execute(self, view: ModelView, txid: str) -> None:
        """A worker executes a synchronous transaction. A quorum must have held it."""
        assert view.anchor is not None, view
        electorate = self.committed_in.get(txid, view.anchor.electorate)
        held = self.ever_held[txid]
        is_held = is_majority(electorate, held)
        if Missing.WEAK in self.missing:  # S3 itself is the mutant here: what it breaks has to be seen elsewhere
            is_held = 2 * votes_of(electorate, held) >= sum(electorate)
        if not is_held:
            raise ModelViolation("executed without a quorum")
        if self.transactions[txid].needs_all and any(
            votes and each not in held for each, votes in enumerate(electorate)
        ):
            raise ModelViolation("executed without all")
        self.executed.add(txid)
        self.counts["executed"] += 1
        if txid in self.answered_rolled_back:
            raise ModelViolation("answered rolled back, then executed")

    def moved(self, worker: ModelWorker) -> None:
        """Workers at one (index, hash) have one state."""
        if self._contents.setdefault(worker.hash, worker.content) != worker.content:
            raise ModelViolation("two states of workers at one index and hash")

    def install(self, view: ModelView) -> None:
        """Quorate views at work form one line: each was counted after every earlier one."""
        if not view.quorate:
            return
        self._quorate_installed[view.number] = view.counted_after
        for number, counted_after in self._quorate_installed.items():
            if number > view.number > counted_after or view.number > number > view.counted_after:
                raise ModelViolation("two lines of quorate views")

    def note_stable(self, master: ModelMaster, length: int) -> None:
        """A decision that is stable in a quorate view never moves (not under Simple, which merges by stamps)."""
        if self.moves:
            return
        fixed = self._stable_decisions
        top = max(fixed)
        end = next((at for at in range(length, 0, -1) if _is_decision(master.log[at - 1])), 0)
        expected = fixed.get(end) if end < top else fixed[top]
        if expected != master.hashes[min(end, top)]:
            raise ModelViolation("a decision that was stable in a quorate view has moved")
        fixed.update((at, master.hashes[at]) for at in range(top + 1, end + 1) if _is_decision(master.log[at - 1]))

    def final_order(self, master: ModelMaster) -> None:
        """At the end the log has every decision that was ever stable in a quorate view."""
        top = max(self._stable_decisions)
        if not self.moves and not master.is_on_chain(top, self._stable_decisions[top]):
            raise ModelViolation("a decision that was stable in a quorate view has moved")

    def finish(self, masters: list[ModelMaster], accepted: set[str], lost: set[str], keys: dict[int, str]) -> None:
        """All masters agree, everything is there once and decided, and every answer was true."""
        log, content = masters[0].log, masters[0].worker.content
        for master in masters:
            if master.log != log:
                raise ModelViolation("logs differ at the end")
            if not master.installed or master.queue:
                raise ModelViolation("something still waits at the end")
            if master.worker.index != len(log):
                raise ModelViolation("a worker is not at the end")
            if master.worker.content != content:
                raise ModelViolation("workers differ at the end")
        ids = [entry.txid for entry in log]
        if len(ids) != len(set(ids)) or set(ids) - lost != accepted:
            raise ModelViolation("a transaction is lost, foreign or there twice")
        self.final_order(masters[0])
        self._check_answers(ids, content, keys)

    def _check_answers(self, ids: list[str], content: tuple[str, ...], keys: dict[int, str]) -> None:
        places = {txid: at for at, txid in enumerate(content)}
        if len(places) != len(content):
            raise ModelViolation("a transaction took effect twice")
        by_key = Counter(each.key for txid in content if (each := self.transactions[txid]).key is not None)
        if any(count > 1 for count in by_key.values()):
            raise ModelViolation("two effects with one key")

        def place_of(txid: str) -> int | None:
            """Where the transaction, or the one with its key, took effect."""
            key = self.transactions[txid].key
            return places.get(txid, places.get(keys.get(key, "")) if key is not None else None)

        for txid in self.answered_committed:
            if place_of(txid) is None:
                raise ModelViolation("answered committed, without effect in the end")
        for txid in ids:
            if txid in places and txid in self.synced_before:
                for earlier in self.synced[: self.synced_before[txid]]:
                    place = place_of(earlier)
                    if place is not None and place > places[txid]:
                        raise ModelViolation("an effect before one that was answered synced before it was asked for")


def _is_decision(entry: ModelEntry) -> bool:
    return entry.transaction.kind is TransactionKind.DECISION
