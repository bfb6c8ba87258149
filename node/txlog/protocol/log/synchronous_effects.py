"""What synchronous transactions come to along the log: where each takes effect or is rolled back, its client's key, and
what a log start has to carry of them (rules S7, S11, S13).

A synchronous transaction has no effect at its own place, unless its COMMIT precedes it. So the key of its client
belongs to it from its effect on; before, the key is known as a hint for retries only.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from typing import Final

from txlog.model.entry import Span
from txlog.model.ids import Origin, Txid
from txlog.model.quorum import Quorum
from txlog.model.records import LogStart, OpenRecord, SynchronousState
from txlog.model.stamp import stamp_ms
from txlog.model.synchronous_entry import (
    KIND_DECISION,
    DecisionKind,
    SynchronousKey,
    decode_decision,
    decode_synchronous_key,
    encode_synchronous_key,
    join_spans,
)
from txlog.protocol.log.effect_places import EffectPlaces
from txlog.protocol.log.idempotency_keys import IdempotencyKeys
from txlog.protocol.log.key_table import FirstUse
from txlog.protocol.log.limbo import (
    EarlyDecision,
    Effect,
    Limbo,
    LimboEntry,
    LimboSnapshot,
    OpenSynchronous,
    find_log_start,
    synchronous_of,
)
from txlog.protocol.log.log_index import LogIndex

NO_REPEATS: Final[Mapping[Txid, Txid]] = {}
LAG_BOUNDS_MS: Final = (5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10_000, 30_000, 60_000)
"""Upper bounds of the classes of :class:`CommitCounts`; one more class has the rest."""


class CommitCounts:
    """How many transactions took effect along the log in this process, by the milliseconds from their acceptance to
    their COMMIT. Counted again where the log was truncated, and they take effect in it once more."""

    def __init__(self) -> None:
        self.by_lag = [0] * (len(LAG_BOUNDS_MS) + 1)
        self.lag_ms = 0
        self.last_lag_ms = 0

    def add(self, lag_ms: int) -> None:
        """One more."""
        self.by_lag[bisect_left(LAG_BOUNDS_MS, lag_ms)] += 1
        self.lag_ms += lag_ms
        self.last_lag_ms = lag_ms


class SynchronousEffects:
    """``limbo``: what is open. ``known_until``: the log start has decided everything up to this index. ``repeats``: by
    index, the transactions that would take effect there but repeat a key, and those that count instead. ``waiting``:
    kinds and keys of persisted synchronous transactions that are not in the log."""

    def __init__(self, keys: IdempotencyKeys) -> None:
        self.limbo = Limbo()
        self.known_until = 0
        self.repeats: dict[int, dict[Txid, Txid]] = {}
        self.waiting: dict[Txid, tuple[int, SynchronousKey]] = {}
        self.version = 0
        """Grows with every change of what is undecided."""
        self.decisions_waiting: dict[Txid, tuple[DecisionKind, dict[Txid, None]]] = {}
        """What the decisions say that are persisted and not in the log."""
        self.commits = CommitCounts()
        self._keys = keys
        self._places = EffectPlaces()
        self._commits: list[tuple[int, int]] = []
        """Of each COMMIT after the log start, its index and that of the first transaction that it commits."""

    # The queue

    def wait(self, txid: Txid, kind: int, key: str) -> None:
        """A synchronous transaction or a decision is persisted and not in the log."""
        self.version += 1
        if kind == KIND_DECISION:
            decision = decode_decision(key)
            self.decisions_waiting[txid] = decision.verdict, dict.fromkeys(decision.names())
        else:
            self.waiting[txid] = kind, decode_synchronous_key(key)

    @property
    def is_empty(self) -> bool:
        """Whether nothing is undecided, in the log or waiting."""
        return not self.limbo.open and not self.waiting

    @property
    def is_unused(self) -> bool:
        """Whether this master has no synchronous transaction and no decision that may still change its place."""
        return not (self.waiting or self.decisions_waiting or self.limbo.open or self.limbo.early or self._places) and (
            not self.limbo.rolled_back
        )

    # Along the log

    def apply(self, entry: LimboEntry, history: LogIndex) -> None:
        """The next synchronous transaction or decision in log order. ``history`` may have later entries already."""
        self.version += 1
        is_decision = entry.kind == KIND_DECISION
        (self.decisions_waiting if is_decision else self.waiting).pop(entry.txid, None)
        if entry.log_index <= self.known_until:
            self._apply_known(entry, history)
        elif is_decision:
            self._decide(entry, history)
        else:
            one = synchronous_of(entry)
            for effect in self.limbo.enter(one):
                self._take_effect(one.log_index, effect)
            if one.txid in self.limbo.rolled_back:
                self._keys.forget_waiting(one.key.client_key, one.txid)

    def _decide(self, entry: LimboEntry, history: LogIndex) -> None:
        names = decode_decision(entry.key).names()
        named = [self.limbo.open[txid] for txid in names if txid in self.limbo.open]
        effects = self.limbo.apply(entry, lambda txid: _place_of(txid, history))
        for effect in effects:
            self._take_effect(entry.log_index, effect)
        if effects:
            self._commits.append((entry.log_index, effects[0].transaction.log_index))
        else:
            for one in named:  # what is rolled back leaves its key to others (rule S11)
                self._keys.forget_waiting(one.key.client_key, one.txid)

    def _apply_known(self, entry: LimboEntry, history: LogIndex) -> None:
        """An entry that the log start has decided: only where it takes effect is not known yet."""
        if entry.kind == KIND_DECISION:
            names = self.committed_at(entry.log_index, entry.key, history)
            for txid in names:
                self._places.set(txid, entry.log_index)
        elif entry.log_index in self.limbo.early_commits:
            self._places.set(entry.txid, entry.log_index)

    def _take_effect(self, index: int, effect: Effect) -> None:
        one = effect.transaction
        self._places.set(one.txid, index)
        self.commits.add(stamp_ms(effect.stamp) - stamp_ms(one.stamp))
        if one.key.client_key:
            use = FirstUse(one.txid, effect.stamp, one.content)
            counts = self._keys.record_use(index, one.key.client_key, use)
            if counts is not None:
                self.repeats.setdefault(index, {})[one.txid] = counts

    def mark_final(self, index: int) -> None:
        """No entry up to here leaves the log again."""
        self.limbo.mark_final(index)

    def truncate(self, cut: int) -> None:
        """The entries after ``cut`` have left the log."""
        self.version += 1
        known = max(cut, self.known_until)
        self.limbo.truncate(known)
        self._places.truncate(cut)
        self.repeats = {at: names for at, names in self.repeats.items() if at <= known}
        self._commits = [one for one in self._commits if one[0] <= known]
        self.wait_for_open()

    def wait_for_open(self) -> None:
        """The keys of what is open are hints for retries."""
        for one in self.limbo.open.values():
            if one.key.client_key:
                self._keys.wait(one.key.client_key, FirstUse(one.txid, one.stamp, one.content))

    # Log starts

    def trim(self, index: int) -> None:
        """The log begins after ``index``."""
        self.limbo.trim(index)
        self._places.trim(index)
        self.repeats = {at: names for at, names in self.repeats.items() if at > index}
        self._commits = [one for one in self._commits if one[0] > index]

    def log_start_for(self, served_from: int) -> int:
        """Where a log may begin that serves positions from ``served_from`` on (rule S13): before the first transaction
        that is open there, since its payload is still to be served."""
        open_there = tuple(one for one in self.limbo.open.values() if one.log_index <= served_from)
        later = [first for at, first in self._commits if at > served_from >= first]
        return min([find_log_start(served_from, LimboSnapshot(open_there)), *(first - 1 for first in later)])

    def state_at(self, index: int, log_start: int) -> SynchronousState | None:
        """The state at a final index, for a log start at ``log_start`` or before. None when there never was any."""
        limbo = self.limbo.copy_at(max(index, self.known_until))
        index = max(index, self.known_until)
        if not (self._places or self._commits or limbo.open or limbo.early or limbo.rolled_back or limbo.idle_names):
            return None
        return SynchronousState(
            index,
            [_record_of(one) for one in limbo.open.values()],
            [
                (*txid.origin, txid.seq, early.verdict is DecisionKind.COMMIT, early.stamp)
                for txid, early in limbo.early.items()
            ],
            join_spans(limbo.rolled_back),
            [(at, join_spans(names)) for at, names in sorted(limbo.idle_names.items()) if log_start < at <= index],
            sorted(at for at in limbo.early_commits if log_start < at <= index),
            [
                (at, (*txid.origin, txid.seq), (*counts.origin, counts.seq))
                for at, names in sorted(self.repeats.items())
                if log_start < at <= index
                for txid, counts in sorted(names.items())
            ],
            [one for one in self._commits if log_start < one[0] <= index],
        )

    def restore(self, start: LogStart) -> None:
        """The log begins after this log start."""
        state, seqs = start.synchronous, {Origin(node, birth): seq for node, birth, seq in start.seqs}
        if seqs:
            self.waiting = {t: one for t, one in self.waiting.items() if t.seq > seqs.get(t.origin, 0)}
            self.decisions_waiting = {
                t: one for t, one in self.decisions_waiting.items() if t.seq > seqs.get(t.origin, 0)
            }
        self.limbo, self.known_until = Limbo(), 0
        self.repeats, self._places, self._commits = {}, EffectPlaces(), []
        if state is None:
            return
        snapshot = LimboSnapshot(
            tuple(_open_of(one) for one in state.open),
            tuple((_txid_of(*row[:3]), _early_of(row[3], row[4])) for row in state.early),
            tuple((txid, state.index) for span in state.rolled_back for txid in _names_of(span)),
        )
        self.limbo = Limbo.restored(snapshot, state.index)
        self.limbo.idle_names = {
            at: frozenset(txid for span in spans for txid in _names_of(span)) for at, spans in state.idle_names
        }
        self.limbo.early_commits = set(state.early_commits)
        for at, txid, counts in state.repeats:
            self.repeats.setdefault(at, {})[_txid_of(*txid)] = _txid_of(*counts)
        self._commits = list(state.reaches)
        self.known_until = state.index
        self.wait_for_open()

    # What is asked

    def effect_index(self, txid: Txid) -> int:
        """Where a synchronous transaction takes effect: its COMMIT, or its own place where that comes later; 0 for
        none, and for one that took effect before the log start."""
        return self._places.get(txid)

    def is_undecided(self, txid: Txid) -> bool:
        """Whether this master has the synchronous transaction, and no decision in its log names it."""
        return txid in self.limbo.open or txid in self.waiting

    def has_undecided_of(self, origin: Origin) -> bool:
        """Whether one of this origin may be undecided."""
        return any(txid.origin == origin for names in (self.waiting, self.limbo.open) for txid in names)

    def quorum_of(self, txid: Txid) -> Quorum | None:
        """The quorum that an undecided transaction needs; None for any other one."""
        one, waiting = self.limbo.open.get(txid), self.waiting.get(txid)
        if one is not None:
            return one.key.quorum
        return waiting[1].quorum if waiting is not None else None

    def has_no_effect(self, txid: Txid) -> bool:
        """Whether a transaction of the log does not take effect at its own place: it is synchronous, and not decided,
        rolled back, or in effect elsewhere."""
        return self._places.get(txid) > 0 or self.is_undecided(txid) or txid in self.limbo.rolled_back

    def is_commit_known(self, txid: Txid) -> bool:
        """Whether this master has a COMMIT of the transaction, in its log or not. None is written before a quorum holds
        the transaction, so that it takes effect in any case."""
        if self._places.get(txid):
            return True
        early = self.limbo.early.get(txid)
        if early is not None and early.verdict is DecisionKind.COMMIT:
            return True
        for verdict, names in self.decisions_waiting.values():
            if verdict is DecisionKind.COMMIT and txid in names:
                return True
        return False

    def are_decisions(self, origin: Origin, seqs: tuple[int, int]) -> bool:
        """Whether all transactions of this origin from the first to the last of these seqs are decisions that wait for
        their place in the log."""
        waiting = self.decisions_waiting
        return bool(waiting) and all(Txid(origin, seq) in waiting for seq in range(seqs[0], seqs[1] + 1))

    def rollback_index(self, txid: Txid) -> int:
        """Where a transaction is rolled back, 0 for none."""
        return self.limbo.rolled_back.get(txid, 0)

    def undecided_at(self, index: int, history: LogIndex) -> list[Txid]:
        """What no decision of the log up to this index names, which can be served, in the order of the log."""
        decided = (*self._places.items(), *self.limbo.rolled_back.items())
        found = [*self.limbo.open, *(txid for txid, at in decided if at > index)]
        return sorted(
            (txid for txid in found if 0 < history.index_of(*txid) <= index), key=lambda txid: history.index_of(*txid)
        )

    def is_passed_over(self, index: int, kind: int) -> bool:
        """Whether a worker only moves its position at the synchronous transaction of this index: it takes effect
        elsewhere, or never."""
        return kind != KIND_DECISION and index not in self.limbo.early_commits

    def committed_at(self, index: int, key: str, history: LogIndex) -> list[Txid]:
        """What takes effect at the decision with this key at this index, in order, with those that repeat a key
        (:meth:`repeats_at`)."""
        return self.limbo.committed_at(index, decode_decision(key), lambda txid: _place_of(txid, history))

    def repeats_at(self, index: int) -> Mapping[Txid, Txid]:
        """Of what takes effect at this index, the transactions that repeat a key, and those that count instead."""
        return self.repeats.get(index, NO_REPEATS)


def _place_of(txid: Txid, history: LogIndex) -> int:
    index = history.index_of(txid.origin, txid.seq)
    return index or (history.start if history.is_trimmed(txid.origin, txid.seq) else 0)


def _txid_of(node: str, birth: int, seq: int) -> Txid:
    return Txid(Origin(node, birth), seq)


def _names_of(span: Span) -> list[Txid]:
    return [_txid_of(span.node, span.birth, seq) for seq in range(span.first_seq, span.first_seq + span.count)]


def _early_of(commits: bool, stamp: int) -> EarlyDecision:
    return EarlyDecision(DecisionKind.COMMIT if commits else DecisionKind.ROLLBACK, stamp)


def _open_of(one: OpenRecord) -> OpenSynchronous:
    txid = _txid_of(one.node, one.birth, one.seq)
    return OpenSynchronous(one.index, txid, one.kind, decode_synchronous_key(one.key), one.stamp, one.content)


def _record_of(one: OpenSynchronous) -> OpenRecord:
    (node, birth), seq = one.txid
    key = encode_synchronous_key(one.key)
    return OpenRecord(one.log_index, node, birth, seq, one.kind, key, one.stamp, one.content)
