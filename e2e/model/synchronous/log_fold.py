"""What the entries of a log do, one after the other (S7, S11), and where a log may begin (S13)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from e2e.model.synchronous.values import DecisionVerdict, Missing, ModelEntry, ModelTransaction, TransactionKind


@dataclass(slots=True, eq=False)
class LogFold:
    """The state after the first entries of a log. ``open``: synchronous transactions that no decision has named.
    ``decided``: the others. ``ahead``: decisions that precede what they name. ``effects``: index and transaction of
    each effect since the log start."""

    open: dict[str, ModelTransaction] = field(default_factory=dict)
    decided: dict[str, DecisionVerdict] = field(default_factory=dict)
    ahead: dict[str, DecisionVerdict] = field(default_factory=dict)
    keys: dict[int, str] = field(default_factory=dict)
    effects: list[tuple[int, str]] = field(default_factory=list)

    def copy(self) -> LogFold:
        """A fold that can be continued without changing this one."""
        return LogFold(dict(self.open), dict(self.decided), dict(self.ahead), dict(self.keys), list(self.effects))

    def step(self, index: int, entry: ModelEntry, places: dict[str, int], missing: frozenset[Missing]) -> None:
        """Continue by the entry at this index. ``places``: the index of each entry of the log."""
        transaction = entry.transaction
        if transaction.kind is TransactionKind.ORDINARY:
            self._take_effect(index, transaction, Missing.ENTRY_KEY in missing)
        elif transaction.kind is TransactionKind.SYNCHRONOUS:
            self._enter(index, transaction, Missing.ENTRY_KEY in missing)
        elif transaction.kind is TransactionKind.DECISION:
            self._decide(index, transaction, places, Missing.ENTRY_KEY in missing)

    def _enter(self, index: int, transaction: ModelTransaction, keys_by_entry: bool) -> None:
        if keys_by_entry and transaction.key is not None:
            if transaction.key in self.keys:
                self.decided[transaction.txid] = DecisionVerdict.REPEATED
                return
            self.keys[transaction.key] = transaction.txid
        verdict = self.ahead.pop(transaction.txid, None)
        if verdict is None:
            self.open[transaction.txid] = transaction
        else:
            self._conclude(index, transaction, verdict, keys_by_entry)

    def _decide(self, index: int, decision: ModelTransaction, places: dict[str, int], keys_by_entry: bool) -> None:
        """S7: the first decision that names a transaction counts, with the effects in the order of the log."""
        for transaction in [each for txid, each in self.open.items() if txid in decision.names]:
            del self.open[transaction.txid]
            self._conclude(index, transaction, decision.verdict, keys_by_entry)
        for txid in decision.names:
            if places.get(txid, index) >= index:
                self.ahead.setdefault(txid, decision.verdict)

    def _conclude(
        self, index: int, transaction: ModelTransaction, verdict: DecisionVerdict, keys_by_entry: bool
    ) -> None:
        self.decided[transaction.txid] = verdict
        if verdict is DecisionVerdict.COMMIT:
            self._take_effect(index, transaction, keys_by_entry)
        elif keys_by_entry and transaction.key is not None and self.keys.get(transaction.key) == transaction.txid:
            del self.keys[transaction.key]

    def _take_effect(self, index: int, transaction: ModelTransaction, keys_by_entry: bool) -> None:
        """S11: a key belongs to the first effect with it."""
        is_counted = keys_by_entry and transaction.kind is TransactionKind.SYNCHRONOUS
        if transaction.key is not None and not is_counted:
            if transaction.key in self.keys:
                return
            self.keys[transaction.key] = transaction.txid
        self.effects.append((index, transaction.txid))


@dataclass(frozen=True, slots=True, eq=False)
class ModelLogStart:
    """S13: what a master keeps of the entries that it has trimmed. Positions from ``served_from`` on are served."""

    index: int
    hash: int
    fold: LogFold
    served_from: int


WHOLE_LOG: Final = ModelLogStart(0, 0, LogFold(), 0)


def log_start_at(
    index: int, chain_hash: int, whole: LogFold, served: int, missing: frozenset[Missing]
) -> ModelLogStart:
    """The log start behind ``index``, where ``whole`` is the fold: keys, what is open, decisions ahead, what was rolled
    back. It has no payload."""
    kept = LogFold(
        open={} if Missing.FOOT_BARE in missing else dict(whole.open),
        decided={txid: verdict for txid, verdict in whole.decided.items() if verdict is DecisionVerdict.ROLLBACK},
        ahead={} if Missing.FOOT_EARLY in missing else dict(whole.ahead),
        keys=dict(whole.keys),
    )
    if Missing.FOOT_FORGETS in missing:
        kept.decided = {}
    return ModelLogStart(index, chain_hash, kept, index if Missing.SERVE_EARLY in missing else served)


class FoldMemo:
    """Folds by log start and hash of the last entry: each is computed once."""

    def __init__(self, missing: frozenset[Missing]) -> None:
        self._missing = missing
        self._known: dict[tuple[int, int], LogFold] = {}

    def fold_at(
        self, start: ModelLogStart, log: list[ModelEntry], hashes: list[int], places: dict[str, int], end: int
    ) -> LogFold:
        """The fold of the first ``end`` entries as a master knows it whose log begins at ``start``."""
        if end <= start.index:
            return start.fold
        at, known = end, self._known
        while at > start.index and (start.hash, hashes[at]) not in known:
            at -= 1
        fold = known[start.hash, hashes[at]] if at > start.index else start.fold
        if at == end:
            return fold
        fold = fold.copy()
        for index in range(at, end):
            fold.step(index + 1, log[index], places, self._missing)
        known[start.hash, hashes[end]] = fold
        return fold
