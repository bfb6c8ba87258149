"""Synchronous transactions and decisions in the pages of the log.

A page for workers has at each index what takes effect there: nothing (a no-op), one transaction as itself, or several
(:mod:`txlog.model.entry_effects`). A page with keys has the entries as they are in the log, so that their hashes can be
computed again, and beside them what takes effect.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from txlog.model.entry import KIND_SKIP, RunItem
from txlog.model.entry_effects import (
    EXECUTED_KINDS,
    KIND_NAME_ONLY,
    NOOP_ROLLED_BACK,
    NOOP_SKIP,
    NOOP_SYNCHRONOUS,
    EntryEffect,
    encode_effects,
)
from txlog.model.ids import Txid
from txlog.model.synchronous_entry import KIND_DECISION, SYNCHRONOUS_KINDS
from txlog.protocol.log.log_state import LogState
from txlog.wire.log_page import PageEntry


class EffectsInLog(Protocol):
    """Where the synchronous transactions of a log take effect."""

    def takes_effect_at_own_place(self, index: int) -> bool:
        """Whether the synchronous transaction at this index does: its COMMIT precedes it, and it repeats no key."""

    def is_rolled_back_before(self, index: int, txid: Txid) -> bool:
        """Whether the ROLLBACK of the synchronous transaction at this index precedes it."""

    def effects_at(self, index: int, key: str) -> Sequence[Txid]:
        """What takes effect at the decision with this key at this index, in order, without repeated keys."""


class LoggedEffects:
    """The effects in this master's log."""

    def __init__(self, log: LogState) -> None:
        self._log = log

    def takes_effect_at_own_place(self, index: int) -> bool:
        """See :class:`EffectsInLog`."""
        found = self._log.synchronous
        return index in found.limbo.early_commits and not found.repeats_at(index)

    def is_rolled_back_before(self, index: int, txid: Txid) -> bool:
        """See :class:`EffectsInLog`. A log start does not have the index: all that it names is rolled back by then."""
        found = self._log.synchronous
        return 0 < found.rollback_index(txid) <= max(index, found.known_until)

    def effects_at(self, index: int, key: str) -> Sequence[Txid]:
        """See :class:`EffectsInLog`."""
        found = self._log.synchronous
        repeats = found.repeats_at(index)
        return [txid for txid in found.committed_at(index, key, self._log.log_index) if txid not in repeats]


class SynchronousEntries:
    """Serves entries of these kinds. ``read``: a transaction of the log, with its payload. ``is_skipped``: whether a
    stable skip names it."""

    def __init__(
        self, effects: EffectsInLog, read: Callable[[Txid], RunItem], is_skipped: Callable[[Txid], bool]
    ) -> None:
        self._effects, self._read, self._is_skipped = effects, read, is_skipped

    def serve_names(self, entry: PageEntry) -> PageEntry:
        """The entry as a page with keys has it, of whose effects only the names are asked for: whatever is skipped."""
        names = self._find_names(entry)
        effects = [EntryEffect(*txid.origin, txid.seq, KIND_NAME_ONLY, b"") for txid in names]
        noop = entry.noop or ("" if effects else self._without_effect(entry))
        return msgspec.structs.replace(entry, noop=noop, effects=effects)

    def serve(self, entry: PageEntry, *, keys: bool) -> PageEntry:
        """The entry as a page has it. ``entry``: as it is in the log, with its key, and a no-op only where it is
        skipped. ``keys``: for a page with keys."""
        effects = [] if entry.noop else [self._read_effect(txid) for txid in self._find_names(entry)]
        without = self._without_effect(entry) if keys else NOOP_SYNCHRONOUS
        noop = entry.noop or ("" if effects else without)
        if effects and all(effect.kind == KIND_SKIP for effect in effects):
            effects, noop = [], NOOP_SKIP
        if keys:
            return msgspec.structs.replace(entry, noop=noop, effects=effects)
        if len(effects) == 1:
            (one,) = effects
            return msgspec.structs.replace(
                entry, node=one.node, birth=one.birth, seq=one.seq, kind=one.kind, payload=one.payload, key=""
            )
        payload = encode_effects(effects) if effects else b""
        return msgspec.structs.replace(entry, noop=noop, payload=payload, key="", first_stamp=0)

    def _find_names(self, entry: PageEntry) -> Sequence[Txid]:
        if entry.kind == KIND_DECISION:
            return self._effects.effects_at(entry.index, entry.key)
        assert entry.kind in SYNCHRONOUS_KINDS, entry.kind
        return [entry.txid] if self._effects.takes_effect_at_own_place(entry.index) else []

    def _without_effect(self, entry: PageEntry) -> str:
        is_transaction = entry.kind in SYNCHRONOUS_KINDS
        is_rolled_back = is_transaction and self._effects.is_rolled_back_before(entry.index, entry.txid)
        return NOOP_ROLLED_BACK if is_rolled_back else NOOP_SYNCHRONOUS

    def _read_effect(self, txid: Txid) -> EntryEffect:
        if self._is_skipped(txid):
            return EntryEffect(*txid.origin, txid.seq, KIND_SKIP, b"")
        item = self._read(txid)
        return EntryEffect(*txid.origin, txid.seq, EXECUTED_KINDS[item.kind], item.payload)
