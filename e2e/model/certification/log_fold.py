"""What the entries of a log do, one after the other. Each effect that counts is evaluated again in its place."""

from __future__ import annotations

from collections import Counter

from e2e.model.certification.log_chain import LogNode
from e2e.model.certification.values import (
    EntryId,
    EntryKey,
    LeftOut,
    LogEntryOfModel,
    ModelRefusal,
    RuleBroken,
    State,
    store_change,
)
from e2e.model.certification.verdicts import ModelCertifier


class ChainFold:
    """``entries``: by txid. The same entries in the same order are folded once, on whichever side they are."""

    def __init__(self, left_out: frozenset[LeftOut], counts: Counter[str]) -> None:
        self.entries: dict[EntryId, LogEntryOfModel] = {}
        self._left_out = left_out
        self._counts = counts
        self._certifier = ModelCertifier(left_out)
        self._known: dict[tuple[int, int, EntryId], LogNode] = {}

    def next_node(self, log: list[LogNode], stamp: int, txid: EntryId) -> LogNode:
        """The entry at the end of this log. :class:`RuleBroken` where it counts, and would do something else in this
        place; or where its request counts already."""
        step = (log[-1].hash, stamp, txid)
        if step not in self._known:
            self._known[step] = self._fold(log, stamp, txid, hash(step))
        return self._known[step]

    def _fold(self, log: list[LogNode], stamp: int, txid: EntryId, chain_hash: int) -> LogNode:
        before, entry = log[-1], self.entries[txid]
        master, sequence = txid
        assert sequence == before.vector[master] + 1, (txid, before.vector)
        refusal = ModelRefusal.NONE
        if entry.key is not None and entry.key in before.keys:
            refusal = ModelRefusal.KEY
        elif entry.base is not None:
            refusal = self._certifier.verdict(log, entry)
        state = before.state if refusal else _change_of(before.state, entry)
        requests = before.requests
        if entry.base is not None:
            self._counts["effects: " + (refusal or "count")] += 1
            if not refusal:
                if entry.request in requests:
                    raise RuleBroken("a request took effect twice")
                requests |= {entry.request}
        return LogNode(
            before.index + 1,
            chain_hash,
            txid,
            stamp,
            entry,
            refusal,
            state,
            (*before.vector[:master], sequence, *before.vector[master + 1 :]),
            self._keys_after(before.keys, txid, entry, refusal),
            before.tried_keys if entry.key is None else before.tried_keys | {entry.key},
            requests,
        )

    def _keys_after(
        self, keys: dict[EntryKey, EntryId], txid: EntryId, entry: LogEntryOfModel, refusal: ModelRefusal
    ) -> dict[EntryKey, EntryId]:
        """C6: a key belongs to the first entry with it that is not refused."""
        if entry.key is None or refusal is ModelRefusal.KEY or (refusal and LeftOut.KEY_FIRST not in self._left_out):
            return keys
        return {**keys, entry.key: txid}


def _change_of(state: State, entry: LogEntryOfModel) -> State:
    if entry.text is not None:
        return entry.text.apply(state)
    after = store_change(state, entry.deletes, entry.adds)
    if entry.evaluate is not None and store_change(state, *entry.evaluate(state)) != after:
        raise RuleBroken("not serialisable: an effect that counts would be another one in its place")
    return after
