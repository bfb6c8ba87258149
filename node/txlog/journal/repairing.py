"""What other masters sent to mend a damage is checked here before a byte of it is written (rule 28)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NoReturn

from txlog.journal.order import subtract
from txlog.model.entry import Run, Span
from txlog.model.errors import JournalDamaged
from txlog.model.hashes import HASH_BYTES, chain_hash, content_hash, origin_tag
from txlog.model.ids import Origin
from txlog.model.records import Added, Damage

Meta = Callable[[Origin, int], tuple[int, bytes] | None]
"""Stamp and content hash of a held transaction, or None."""
Stamp = Callable[[Origin, int, int], int]
"""The stamp that a transaction has here, given the one with which it was sent."""


def check_repair(
    damage: Damage,
    runs: Sequence[Run],
    contents: Sequence[bytes],
    added: Added | None,
    before: bytes,
    held: Meta,
    stamp: Stamp,
) -> None:
    """:class:`JournalDamaged` unless this is exactly what is missed. ``before``: the chain hash in front of it."""
    for run, hashes in zip(runs, contents, strict=True):
        _check_contents(damage, run, hashes)
    missing = subtract(damage.spans, [Span(r.node, r.birth, r.first_seq, len(r.items)) for r in runs])
    if missing:
        _refuse(damage, f"{missing[0]} is still missing")
    if damage.log_from <= damage.log_to:
        if added is None:
            _refuse(damage, f"the order of entries {damage.log_from} to {damage.log_to} is still missing")
        _check_order(damage, added, before, _with(runs, contents, held, stamp))
    elif added is not None:
        _refuse(damage, "it comes with an order although none is missing")


def _check_contents(damage: Damage, run: Run, hashes: bytes) -> None:
    if len(hashes) != HASH_BYTES * len(run.items):
        _refuse(damage, f"{run.origin}: {len(run.items)} transactions and {len(hashes)} bytes of hashes")
    for i, item in enumerate(run.items):
        if content_hash(item.kind, item.key, item.payload) != hashes[HASH_BYTES * i : HASH_BYTES * (i + 1)]:
            _refuse(damage, f"{run.origin}.{run.first_seq + i} has another content hash")
    outside = subtract([Span(run.node, run.birth, run.first_seq, len(run.items))], damage.spans)
    if outside:
        _refuse(damage, f"{outside[0]} was not missing")


def _with(runs: Sequence[Run], contents: Sequence[bytes], held: Meta, stamp: Stamp) -> Meta:
    """What is held, and what was sent."""

    def meta(origin: Origin, seq: int) -> tuple[int, bytes] | None:
        for run, hashes in zip(runs, contents, strict=True):
            if run.origin == origin and run.first_seq <= seq <= run.last_seq:
                at = seq - run.first_seq
                return stamp(origin, seq, run.items[at].stamp), hashes[HASH_BYTES * at : HASH_BYTES * (at + 1)]
        return held(origin, seq)

    return meta


def _check_order(damage: Damage, added: Added, before: bytes, meta: Meta) -> None:
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
