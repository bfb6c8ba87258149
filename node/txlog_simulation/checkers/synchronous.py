"""Synchronous transactions take effect where a decision says so, once, held by a quorum, and as clients were answered.

The fold over the log is written here once more, in the plainest way: what masters serve is compared with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from txlog.model.ids import Origin, Txid
from txlog.model.synchronous_entry import KIND_DECISION, DecisionKind, decode_decision, decode_synchronous_key
from txlog_simulation.violation import ACKNOWLEDGEMENT, WORKER, ViolationLog


class ObservedSynchronous(NamedTuple):
    """A synchronous transaction as the log has it. ``age``: the stamp from which the age of its key counts."""

    txid: Txid
    key: str
    age: int


class ObservedEffect(NamedTuple):
    """A transaction that takes effect. ``counts_instead``: the one of the same key that does, if any."""

    txid: Txid
    counts_instead: Txid | None


class SynchronousFold:
    """``open``: in the order of the log. ``early``: decisions about what is not in the log yet: whether each is a
    COMMIT, and its stamp. ``decided``: whether each took effect."""

    def __init__(self) -> None:
        self.open: dict[Txid, ObservedSynchronous] = {}
        self.early: dict[Txid, tuple[bool, int]] = {}
        self.decided: dict[Txid, bool] = {}

    def step(self, one: ObservedSynchronous, kind: int) -> list[ObservedSynchronous]:
        """The next entry; what takes effect there, in order."""
        if kind != KIND_DECISION:
            mine = one._replace(key=decode_synchronous_key(one.key).client_key)
            if one.txid not in self.early:
                self.open[one.txid] = mine
                return []
            commits, stamp = self.early.pop(one.txid)
            self.decided[one.txid] = commits
            return [mine._replace(age=max(mine.age, stamp))] if commits else []
        decision = decode_decision(one.key)
        commits, names = decision.verdict is DecisionKind.COMMIT, set(decision.names())
        found = [each for txid, each in self.open.items() if txid in names]
        for each in found:
            del self.open[each.txid]
            self.decided[each.txid] = commits
        for txid in names - self.decided.keys():
            self.early.setdefault(txid, (commits, one.age))
        return [each._replace(age=max(each.age, one.age)) for each in found] if commits else []


class SynchronousChecker:
    """What clients were answered, and what workers have executed."""

    def __init__(self, findings: ViolationLog) -> None:
        self._findings = findings
        self._taken_ms: dict[Txid, int] = {}
        self._committed: dict[Txid, str] = {}
        self._rolled_back: dict[Txid, str] = {}
        self._synced: list[tuple[int, Txid]] = []
        self._states: dict[tuple[int, bytes], tuple[int, str]] = {}

    def on_taken(self, txid: Txid, now_ms: int) -> None:
        """A master has taken it; an earlier one of this name was lost in a crash."""
        self._taken_ms[txid] = now_ms

    def on_committed(self, node: str, txid: Txid, now_ms: int, *, synced: bool) -> None:
        """A client was answered that it takes effect. ``synced``: and that its place is fixed."""
        self._committed.setdefault(txid, node)
        if synced:
            self._synced.append((now_ms, txid))
        self._check_one_answer(txid)

    def on_rolled_back(self, node: str, txid: Txid) -> None:
        """A client was answered that it never takes effect."""
        self._rolled_back.setdefault(txid, node)
        self._check_one_answer(txid)

    def _check_one_answer(self, txid: Txid) -> None:
        if txid in self._committed and txid in self._rolled_back:
            text = f"{self._committed[txid]} answers committed for {txid}, {self._rolled_back[txid]} rolled-back"
            self._findings.add(ACKNOWLEDGEMENT, "S10", text)

    def on_state(self, node: str, index: int, value: bytes, state: int) -> None:
        """A worker is at a position. ``state``: of the transactions that it has executed. Two workers at one position
        have executed the same."""
        before, other = self._states.setdefault((index, value), (state, node))
        if before != state:
            text = f"the workers of {node} and {other} are at {index} and have not executed the same"
            self._findings.add(WORKER, "S7", text)

    def check_final(
        self,
        fold: SynchronousFold,
        effects: Sequence[tuple[int, Sequence[ObservedEffect]]],
        lost: set[Origin],
        *,
        decided: bool,
    ) -> None:
        """All is good. ``effects``: by index, along the log. ``lost``: origins whose disk is lost, so that what only
        they had may be gone. ``decided``: a quorate view has been at work for long enough; without one, what was
        answered as committed may wait for its COMMIT."""
        places: dict[Txid, int] = {}
        for _, some in effects:
            for effect in some:
                places[effect.txid] = len(places)
        early = {txid for txid, (commits, _) in fold.early.items() if commits}
        waiting = set[Txid]() if decided else early.union(fold.open)
        for txid, node in self._committed.items():
            if txid not in places and txid.origin not in lost and txid not in waiting:
                self._findings.add(ACKNOWLEDGEMENT, "S10", f"{node} answered committed for {txid}: it has no effect")
        for txid, node in self._rolled_back.items():
            if txid in places:
                self._findings.add(ACKNOWLEDGEMENT, "S10", f"{node} answered rolled-back for {txid}: it has effect")
        if decided and (fold.open or fold.early):
            text = f"{', '.join(map(str, [*fold.open, *fold.early]))} are undecided"
            self._findings.add(ACKNOWLEDGEMENT, "S6", text)
        self._check_order(places)

    def _check_order(self, places: dict[Txid, int]) -> None:
        """What was asked for after another one's ``synced`` takes effect after it."""
        rows = [(at_ms, 0, txid) for txid, at_ms in self._taken_ms.items() if txid in places]
        rows += [(at_ms, 1, txid) for at_ms, txid in self._synced if txid in places]
        last: Txid | None = None
        for _, is_synced, txid in sorted(rows):
            if is_synced:
                last = txid if last is None or places[txid] > places[last] else last
            elif last is not None and places[txid] < places[last]:
                text = f"{txid} was asked for when {last} was answered as synced, and takes effect before it"
                self._findings.add(ACKNOWLEDGEMENT, "S10", text)
