"""Which synchronous transactions are open, and where each takes effect: a fold over the log.

A synchronous transaction in the log is *open*, without effect, until a decision names it. The first decision in log
order that names it counts. It takes effect where that decision is in the log; at its own place where the decision
precedes it. So what a worker has is a function of index and hash of its position, as for all other entries.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import NamedTuple

from txlog.model.ids import Txid
from txlog.model.synchronous_entry import (
    KIND_DECISION,
    SYNCHRONOUS_KINDS,
    Decision,
    DecisionKind,
    SynchronousKey,
    decode_decision,
    decode_synchronous_key,
)

PlaceOf = Callable[[Txid], int]
"""The index of a transaction in the log; 0 for none. A trimmed one has any index up to the log start."""


class LimboEntry(NamedTuple):
    """An entry of the log: a synchronous transaction or a decision. ``stamp``: the one from which the age of its key
    counts. ``content``: its content hash."""

    log_index: int
    txid: Txid
    kind: int
    key: str
    stamp: int
    content: bytes


class OpenSynchronous(NamedTuple):
    """A synchronous transaction of the log that no decision has named. Fields as in :class:`LimboEntry`."""

    log_index: int
    txid: Txid
    kind: int
    key: SynchronousKey
    stamp: int
    content: bytes


class EarlyDecision(NamedTuple):
    """What the first decision says about a transaction that is not in the log yet. ``stamp``: of the decision."""

    verdict: DecisionKind
    stamp: int


class Effect(NamedTuple):
    """A transaction that takes effect. ``stamp``: the greater one of its own and its COMMIT's, from which the age of
    its client's key counts. ``is_early``: the COMMIT precedes it, so it takes effect at its own place."""

    transaction: OpenSynchronous
    stamp: int
    is_early: bool = False


class LimboSnapshot(NamedTuple):
    """The state after an entry, without payloads: what a log start carries. ``open``: in the order of the log.
    ``rolled_back``: each with the index where that was decided."""

    open: tuple[OpenSynchronous, ...] = ()
    early: tuple[tuple[Txid, EarlyDecision], ...] = ()
    rolled_back: tuple[tuple[Txid, int], ...] = ()


class _Change:
    """What one entry changed, to be undone. ``opened``: it opened itself. ``concluded``: what it decided.
    ``foreseen``: what it named before that is in the log. ``met``: the earlier decision about itself."""

    __slots__ = ("concluded", "foreseen", "log_index", "met", "opened")

    def __init__(
        self,
        log_index: int,
        opened: Txid | None = None,
        met: tuple[Txid, EarlyDecision] | None = None,
        concluded: Sequence[OpenSynchronous] = (),
        foreseen: Sequence[Txid] = (),
    ) -> None:
        self.log_index = log_index
        self.opened = opened
        self.met = met
        self.concluded = concluded
        self.foreseen = foreseen


class Limbo:
    """The state after the entries of the log. ``open``: in the order of the log. ``early``: decisions that precede what
    they name. ``rolled_back``: each with the index where that was decided; it is kept for ever.

    What is committed takes no memory once its decision is final: the key of the decision names it. ``idle_names``: by
    index of a decision, what it names in vain, since an earlier decision counts, or it is not there yet.
    ``early_commits``: indices of transactions that take effect at their own place."""

    def __init__(self) -> None:
        self.open: dict[Txid, OpenSynchronous] = {}
        self.early: dict[Txid, EarlyDecision] = {}
        self.rolled_back: dict[Txid, int] = {}
        self.idle_names: dict[int, frozenset[Txid]] = {}
        self.early_commits: set[int] = set()
        self.final_index = 0
        self._changes: list[_Change] = []

    def copy_at(self, index: int) -> Limbo:
        """The state after this entry of the log, which is final or later."""
        other = Limbo()
        other.open, other.early, other.rolled_back = dict(self.open), dict(self.early), dict(self.rolled_back)
        other.idle_names, other.early_commits = dict(self.idle_names), set(self.early_commits)
        other.final_index, other._changes = self.final_index, list(self._changes)
        other.truncate(index)
        return other

    def apply(self, entry: LimboEntry, place_of: PlaceOf) -> list[Effect]:
        """The next synchronous transaction or decision in log order; returns what takes effect at its index, in order.
        ``place_of``: of the log, which may have later entries already. :class:`BadInput`: a key that no master makes;
        then nothing has changed."""
        if entry.kind == KIND_DECISION:
            return self._decide(entry, decode_decision(entry.key), place_of)
        assert entry.kind in SYNCHRONOUS_KINDS, entry
        return self.enter(synchronous_of(entry))

    def enter(self, one: OpenSynchronous) -> list[Effect]:
        """As :meth:`apply`, for a synchronous transaction."""
        early = self.early.pop(one.txid, None)
        if early is None:
            self.open[one.txid] = one
            self._changes.append(_Change(one.log_index, one.txid))
            return []
        self._changes.append(_Change(one.log_index, None, (one.txid, early)))
        if early.verdict is DecisionKind.ROLLBACK:
            self.rolled_back[one.txid] = one.log_index
            return []
        self.early_commits.add(one.log_index)
        return [Effect(one, max(one.stamp, early.stamp), is_early=True)]

    def _decide(self, entry: LimboEntry, decision: Decision, place_of: PlaceOf) -> list[Effect]:
        index, stamp = entry.log_index, entry.stamp
        concluded: list[OpenSynchronous] = []
        others: list[Txid] = []
        for txid in decision.names():
            one = self.open.pop(txid, None)
            if one is not None:
                concluded.append(one)
            else:
                others.append(txid)
        concluded.sort()
        foreseen = [txid for txid in others if txid not in self.early and not 0 < place_of(txid) < index]
        for txid in foreseen:
            self.early[txid] = EarlyDecision(decision.verdict, stamp)
        if others:
            self.idle_names[index] = frozenset(others)
        self._changes.append(_Change(index, None, None, concluded, foreseen))
        if decision.verdict is DecisionKind.ROLLBACK:
            for one in concluded:
                self.rolled_back[one.txid] = index
            return []
        return [Effect(one, max(one.stamp, stamp), False) for one in concluded]

    def committed_at(self, index: int, decision: Decision, place_of: PlaceOf) -> list[Txid]:
        """The transactions that take effect at a decision of the log, in order, those with a repeated key included."""
        if decision.verdict is DecisionKind.ROLLBACK:
            return []
        idle = self.idle_names.get(index, frozenset())
        return sorted((txid for txid in decision.names() if txid not in idle), key=place_of)

    def mark_final(self, index: int) -> None:
        """No entry up to here leaves the log again."""
        self.final_index = max(self.final_index, index)
        count = bisect_left(self._changes, self.final_index + 1, key=lambda change: change.log_index)
        del self._changes[:count]

    def truncate(self, index: int) -> None:
        """The entries after ``index``, none of them final, have left the log."""
        assert index >= self.final_index, (index, self.final_index)
        reopened = False
        while self._changes and self._changes[-1].log_index > index:
            change = self._changes.pop()
            self._undo(change)
            reopened = reopened or bool(change.concluded)
        if reopened:
            self.open = {one.txid: one for one in sorted(self.open.values())}

    def _undo(self, change: _Change) -> None:
        if change.opened is not None:
            del self.open[change.opened]
        if change.met is not None:
            txid, early = change.met
            self.early[txid] = early
            self.rolled_back.pop(txid, None)
        for one in change.concluded:
            self.open[one.txid] = one
            self.rolled_back.pop(one.txid, None)
        for txid in change.foreseen:
            del self.early[txid]
        self.idle_names.pop(change.log_index, None)
        self.early_commits.discard(change.log_index)

    def trim(self, index: int) -> None:
        """The log begins after ``index``, which is final."""
        self.idle_names = {at: names for at, names in self.idle_names.items() if at > index}
        self.early_commits = {at for at in self.early_commits if at > index}

    def snapshot(self) -> LimboSnapshot:
        """The state, which :meth:`restored` continues."""
        return LimboSnapshot(tuple(self.open.values()), tuple(self.early.items()), tuple(self.rolled_back.items()))

    @classmethod
    def restored(cls, snapshot: LimboSnapshot, index: int) -> Limbo:
        """The state at a log start: the log begins after ``index``."""
        found = cls()
        found.open = {one.txid: one for one in snapshot.open}
        found.early = dict(snapshot.early)
        found.rolled_back = dict(snapshot.rolled_back)
        found.final_index = index
        return found


def synchronous_of(entry: LimboEntry) -> OpenSynchronous:
    """The synchronous transaction that an entry of the log is, with its key read."""
    key = decode_synchronous_key(entry.key)
    return OpenSynchronous(entry.log_index, entry.txid, entry.kind, key, entry.stamp, entry.content)


def find_log_start(served_from: int, at_served: LimboSnapshot) -> int:
    """Where a log may begin that serves positions from ``served_from`` on, where it is in this state: before the first
    transaction that is open there, since its payload is still to be served."""
    return min([served_from, *(one.log_index - 1 for one in at_served.open)])
