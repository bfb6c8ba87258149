"""Which synchronous transactions of an archive take effect, and where. Pure; bytes come through a
:data:`~txlog.archive.timeline.FileReader`.

Files have them as they are in the log: the payload at its own place, and the decisions. So this folds the entries with
the fold of the masters (:mod:`txlog.protocol.log.limbo`). A stream begins at the log start of a master, which precedes
all that is open at the first position that workers can go on from: what takes effect later has its payload here.

The fold begins with a range of files. What a decision before the range says about an entry of it, the entry has.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from txlog.archive.archive_errors import EntryRefused
from txlog.archive.block_codec import ArchivedEntry
from txlog.archive.timeline import ArchivedRange, FileFacts, FileReader
from txlog.model.errors import BadInput
from txlog.model.ids import Txid
from txlog.model.synchronous_entry import (
    KIND_DECISION,
    SYNCHRONOUS_AND_DECISION,
    DecisionKind,
    decode_decision,
)
from txlog.protocol.log.limbo import EarlyDecision, Effect, Limbo, LimboEntry, OpenSynchronous


class EntryDecided(NamedTuple):
    """What a synchronous transaction or a decision comes to. ``effects``: what takes effect at its index, in order.
    ``repeats``: what would, but repeats a key. ``missing``: what takes effect there, and is before the range."""

    effects: tuple[Effect, ...]
    repeats: tuple[Effect, ...] = ()
    missing: tuple[Txid, ...] = ()


class EffectFold:
    """The state after the entries of a range; each synchronous transaction and decision of it, in order, is applied."""

    def __init__(self) -> None:
        self._limbo = Limbo()

    @property
    def open(self) -> list[OpenSynchronous]:
        """What no decision has named, in the order of the log."""
        return list(self._limbo.open.values())

    @property
    def rolled_back(self) -> dict[Txid, int]:
        """What never takes effect, each with the index where that was decided."""
        return self._limbo.rolled_back

    def first_needed(self, index: int) -> int:
        """The place after which entries are needed to go on from ``index``, where this fold is."""
        return min([index, *(one.log_index - 1 for one in self.open)])

    def apply(self, entry: ArchivedEntry) -> EntryDecided:
        """The next one. :class:`EntryRefused`: a key that no master makes."""
        limbo, txid = self._limbo, entry.txid
        if entry.verdict and txid not in limbo.early:
            limbo.early[txid] = EarlyDecision(DecisionKind(entry.verdict), entry.stamp)
        stamp = entry.first_stamp or entry.stamp
        try:
            found = limbo.apply(
                LimboEntry(entry.index, txid, entry.kind, entry.key, stamp, entry.content), _not_there_yet
            )
        except BadInput as wrong:
            raise EntryRefused(
                f"the entry {entry.index} ({txid}) holds what no master accepts: {wrong}; compare the archive with "
                "another copy, and find out who wrote it"
            ) from None
        limbo.mark_final(entry.index)
        limbo.trim(entry.index)
        named = {effect.transaction.txid for effect in found}
        repeats = named if entry.is_noop else named.intersection(entry.passed_over)
        return EntryDecided(
            tuple(effect for effect in found if effect.transaction.txid not in repeats),
            tuple(effect for effect in found if effect.transaction.txid in repeats),
            tuple(txid for txid in _named_by_commit(entry) if txid not in named and txid not in entry.passed_over),
        )


def _not_there_yet(_: Txid) -> int:
    """A decision may name what was decided before, or is not there yet: both have no effect at it. A transaction is in
    the log once, so a note of what was decided before changes nothing."""
    return 0


def _named_by_commit(entry: ArchivedEntry) -> list[Txid]:
    if entry.kind != KIND_DECISION:
        return []
    decision = decode_decision(entry.key)
    return list(decision.names()) if decision.verdict is DecisionKind.COMMIT else []


def fold_range(found: ArchivedRange, index: int, read: FileReader) -> EffectFold:
    """The state after the entry at ``index`` of a range. Only files with synchronous transactions are read."""
    fold = EffectFold()
    for entry in synchronous_entries(found.files, index, read):
        fold.apply(entry)
    return fold


def synchronous_entries(files: Sequence[FileFacts], index: int, read: FileReader) -> Iterator[ArchivedEntry]:
    """The synchronous transactions and decisions of consecutive files, up to this index."""
    for file in files:
        if file.name.first > index:
            return
        if file.has_synchronous:
            for entry in read(file.name):
                if entry.kind in SYNCHRONOUS_AND_DECISION and entry.index <= index:
                    yield entry


def find_effect_index(found: ArchivedRange, entry: ArchivedEntry, read: FileReader) -> int | None:
    """Where a synchronous transaction of a range takes effect, also one that repeats a key; None when no decision of
    the range names it. :class:`BadInput`: it is rolled back."""
    fold, files = EffectFold(), [file for file in found.files if file.name.last >= entry.index]
    for each in synchronous_entries(files, found.end.index, read):
        decided = fold.apply(each)
        if any(one.transaction.txid == entry.txid for one in (*decided.effects, *decided.repeats)):
            return each.index
        if entry.txid in fold.rolled_back:
            raise BadInput(f"{entry.txid} is rolled back at index {each.index}: it never takes effect")
    return None
