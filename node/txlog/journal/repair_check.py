"""Checks what other masters sent to repair a damage, before a byte of it is written (rule 28)."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import NoReturn

from txlog.journal.log_order import HOLE, subtract_spans
from txlog.model.entry import Span, TransactionRun
from txlog.model.errors import JournalDamaged
from txlog.model.hashes import HASH_BYTES, NO_HASH, chain_hash, content_hash, origin_tag
from txlog.model.ids import Origin
from txlog.model.records import Damage, LogAppended, RecoveredState

MetaLookup = Callable[[Origin, int], tuple[int, bytes] | None]
"""Stamp and content hash of a held transaction, or None."""
StampLookup = Callable[[Origin, int, int], int]
"""The stamp that a transaction has here, given the stamp that the sender sent."""


class LoggedTransactions:
    """The log indexes of transactions in the readable part of a log, as it was when the journal was opened. ``start``:
    the chain hash before index 1, ``NO_HASH`` where no view is left that contains it. It takes 24 bytes for each span
    of the log, from the first lookup on."""

    def __init__(self, recovered: RecoveredState, start: bytes) -> None:
        self._recovered = recovered
        self._start = start
        self._spans: dict[Origin, tuple[array[int], array[int], array[int]]] | None = None
        """First seqs, their indexes in the log, counts."""

    def index_of(self, origin: Origin, seq: int) -> int:
        """The log index; 0 for a transaction that is not in it."""
        if self._spans is None:
            self._spans = self._find_spans()
        firsts, indexes, counts = self._spans.get(origin, _NO_SPANS)
        at = bisect_right(firsts, seq) - 1
        return indexes[at] + seq - firsts[at] if at >= 0 and seq < firsts[at] + counts[at] else 0

    def _find_spans(self) -> dict[Origin, tuple[array[int], array[int], array[int]]]:
        found: dict[Origin, tuple[array[int], array[int], array[int]]] = {}
        index = self._recovered.log_start.index + 1
        for span in self._recovered.log_spans:
            if span.node != HOLE:
                place = found.setdefault(Origin(span.node, span.birth), (array("Q"), array("Q"), array("Q")))
                for column, value in zip(place, (span.first_seq, index, span.count), strict=True):
                    column.append(value)
            index += span.count
        return found

    def provable_prefix(self, run: TransactionRun, stamp: StampLookup) -> int:
        """How many of the first of these match their entries' chain hashes, or are not in the log."""
        tag = origin_tag(run.origin)
        for at, item in enumerate(run.items):
            seq = run.first_seq + at
            index = self.index_of(run.origin, seq)
            before = self._hash_before(index) if index else NO_HASH
            if before != NO_HASH:
                content = content_hash(item.kind, item.key, item.payload)
                value = chain_hash(before, stamp(run.origin, seq, item.stamp), tag, seq, content)
                if value != self._recovered.hash_at(index):
                    return at
        return len(run.items)

    def _hash_before(self, index: int) -> bytes:
        kept = index - 1 >= max(1, self._recovered.log_start.index)
        return self._recovered.hash_at(index - 1) if kept else self._start


_NO_SPANS = (array("Q"), array("Q"), array("Q"))


def check_repair(
    damage: Damage,
    runs: Sequence[TransactionRun],
    contents: Sequence[bytes],
    added: LogAppended | None,
    before: bytes,
    held: MetaLookup,
    stamp: StampLookup,
    logged: LoggedTransactions,
) -> None:
    """Raises :class:`JournalDamaged` unless this is exactly what is missing. ``before``: the chain hash before it."""
    for run, hashes in zip(runs, contents, strict=True):
        _check_contents(damage, run, hashes)
        fitting = logged.provable_prefix(run, stamp)
        if fitting < len(run.items):
            _refuse(damage, f"{run.origin}.{run.first_seq + fitting} is in the log with another stamp")
    missing = subtract_spans(damage.spans, [Span(r.node, r.birth, r.first_seq, len(r.items)) for r in runs])
    if missing:
        _refuse(damage, f"{missing[0]} is still missing")
    if damage.log_from <= damage.log_to:
        if added is None:
            _refuse(damage, f"the order of entries {damage.log_from} to {damage.log_to} is still missing")
        _check_order(damage, added, before, _lookup_meta(runs, contents, held, stamp))
    elif added is not None:
        _refuse(damage, "it comes with an order although none is missing")


def proves_all_stamps(
    runs: Sequence[TransactionRun],
    added: LogAppended | None,
    logged: LoggedTransactions,
    known: Callable[[Origin, int], bool],
) -> bool:
    """Whether the stamps of everything sent are certain: by the chain hash of the log, or since a view accepted here
    assigned them (``known``). For a transaction that only waited for its order, the sender may have another stamp."""
    sent = [Span(run.node, run.birth, run.first_seq, len(run.items)) for run in runs]
    return all(
        logged.index_of(Origin(span.node, span.birth), seq) or known(Origin(span.node, span.birth), seq)
        for span in subtract_spans(sent, added.spans if added is not None else [])
        for seq in range(span.first_seq, span.first_seq + span.count)
    )


def _check_contents(damage: Damage, run: TransactionRun, hashes: bytes) -> None:
    if len(hashes) != HASH_BYTES * len(run.items):
        _refuse(damage, f"{run.origin}: {len(run.items)} transactions and {len(hashes)} bytes of hashes")
    for i, item in enumerate(run.items):
        if content_hash(item.kind, item.key, item.payload) != hashes[HASH_BYTES * i : HASH_BYTES * (i + 1)]:
            _refuse(damage, f"{run.origin}.{run.first_seq + i} has another content hash")
    outside = subtract_spans([Span(run.node, run.birth, run.first_seq, len(run.items))], damage.spans)
    if outside:
        _refuse(damage, f"{outside[0]} was not missing")


def _lookup_meta(
    runs: Sequence[TransactionRun], contents: Sequence[bytes], held: MetaLookup, stamp: StampLookup
) -> MetaLookup:
    """Looks in what the sender sent, then in what is held."""

    def meta(origin: Origin, seq: int) -> tuple[int, bytes] | None:
        for run, hashes in zip(runs, contents, strict=True):
            if run.origin == origin and run.first_seq <= seq <= run.last_seq:
                at = seq - run.first_seq
                return stamp(origin, seq, run.items[at].stamp), hashes[HASH_BYTES * at : HASH_BYTES * (at + 1)]
        return held(origin, seq)

    return meta


def _check_order(damage: Damage, added: LogAppended, before: bytes, meta: MetaLookup) -> None:
    count = damage.log_to - damage.log_from + 1
    spans = sum(span.count for span in added.spans)
    if (added.first_index, spans, len(added.hashes)) != (damage.log_from, count, HASH_BYTES * count):
        _refuse(damage, f"entries from {added.first_index} on, {spans} of them, are not what is missing")
    at, chain = 0, before
    for span in added.spans:
        origin = Origin(span.node, span.birth)
        tag = origin_tag(origin)
        for seq in range(span.first_seq, span.first_seq + span.count):
            found = meta(origin, seq)
            if found is None:
                _refuse(damage, f"{origin}.{seq} is in the order and not held")
            chain = chain_hash(chain, found[0], tag, seq, found[1])
            if chain != added.hashes[HASH_BYTES * at : HASH_BYTES * (at + 1)]:
                _refuse(damage, f"entry {damage.log_from + at} has another chain hash")
            at += 1
    if chain != damage.end_hash:
        _refuse(damage, f"the chain hash at {damage.log_to} is another one")


def _refuse(damage: Damage, why: str) -> NoReturn:
    raise JournalDamaged(
        f"repairing records {damage.first} to {damage.last}: {why}. Nothing was written. Next: ask another master"
    )
