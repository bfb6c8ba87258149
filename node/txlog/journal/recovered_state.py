"""Builds the state that recovery hands to a master: :class:`txlog.model.records.RecoveredState`."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator

from txlog.journal.log_order import HOLE, subtract_spans
from txlog.journal.origin_index import OriginIndex, RecordLocation
from txlog.journal.record_reader import HeldRecordHead, RecordReader, RecordUnreadable
from txlog.journal.replay import DamagedRecords
from txlog.journal.scan import JournalScan
from txlog.journal.segment_gc import seqs_at
from txlog.model.entry import Span
from txlog.model.hashes import HASH_BYTES
from txlog.model.ids import Origin, Txid
from txlog.model.records import AbandonedBranch, Damage, QueuedMetadata, RecoveredKeyEntry, RecoveredState
from txlog.model.synchronous_entry import KINDS_WITH_OWN_KEYS


def rebuild_state(found: JournalScan, reader: RecordReader) -> RecoveredState:
    """``start`` is the journal's present one; the caller increments it."""
    state = found.state
    accepted = found.view(state.accepted)
    installed = state.installed == state.accepted
    settled_at = accepted.final_index(state.stable, installed) if accepted is not None else state.stable
    log_start = found.log_start
    settled = seqs_at(log_start) | _last_seqs_within(found.order.spans, settled_at - log_start.index)
    return RecoveredState(
        node=found.own.node,
        birth=found.own.birth,
        start=state.start,
        is_new=state.start == 0,
        accepted=accepted,
        installed=accepted if installed else None,
        ceiling=state.ceiling,
        stable=state.stable,
        log_spans=found.order.spans,
        log_hashes=found.order.hashes,
        log_stamp=_last_stamp(found, reader),
        queued=[
            meta
            for held in found.index.all()
            for meta in _queued_transactions(held, settled.get(held.origin, 0), reader)
        ],
        keys=_idempotency_keys(found),
        damage=find_damage(found),
        accepted_number=state.accepted,
        promised=state.promised,
        left=state.left,
        abandoned_branches=[*log_start.abandoned_branches, *_abandoned_branches(found)],
        log_start=log_start,
        overrides=state.overrides,
    )


def _last_seqs_within(spans: list[Span], index: int) -> dict[Origin, int]:
    """The last seq of each origin at or before ``index``."""
    last: dict[Origin, int] = {}
    for span in spans:
        if index <= 0:
            break
        if span.node != HOLE:
            last[Origin(span.node, span.birth)] = span.first_seq + min(span.count, index) - 1
        index -= span.count
    return last


def _last_stamp(found: JournalScan, reader: RecordReader) -> int:
    span = found.order.spans[-1] if found.order.spans else None
    if span is None:
        return found.log_start.stamp
    if span.node == HOLE:
        return 0
    seq = span.first_seq + span.count - 1
    held = found.index.get_or_create(Origin(span.node, span.birth))
    head = _read_head(held.locate(seq), seq, reader)
    return held.restamps.get(seq, head.columns.stamps[seq - head.first_seq] if head else 0)


def _read_head(place: RecordLocation | None, seq: int, reader: RecordReader) -> HeldRecordHead | None:
    if place is None:
        return None
    try:
        head = reader.read_head(place)
    except RecordUnreadable:
        return None
    return head if seq <= head.last_seq else None


def _queued_transactions(held: OriginIndex, settled: int, reader: RecordReader) -> Iterator[QueuedMetadata]:
    """Transactions held beyond the stable part of the log; several pieces where something between them is damaged."""
    origin, piece = held.origin, None
    for head, first in _heads_from(held, settled + 1, reader):
        seq = head.first_seq + first
        if piece is not None and seq != piece.first_seq + len(piece.stamps):
            yield _restamp_piece(piece, held)
            piece = None
        piece = piece or QueuedMetadata(origin.node, origin.birth, seq, array("Q"), [], array("Q"), bytearray())
        columns = head.columns
        piece.stamps.extend(columns.stamps[first:])
        piece.keys.extend(columns.keys[first:])
        sizes = columns.sizes[first:]
        piece.kinds.extend([kind | size << 8 for kind, size in zip(columns.kinds[first:], sizes, strict=True)])
        piece.contents.extend(columns.contents[first * HASH_BYTES :])
        if columns.first_stamps or piece.first_stamps:
            piece.first_stamps.extend([0] * (len(piece.stamps) - len(sizes) - len(piece.first_stamps)))
            piece.first_stamps.extend(columns.first_stamps[first:] or [0] * len(sizes))
    if piece is not None:
        yield _restamp_piece(piece, held)


def _restamp_piece(piece: QueuedMetadata, held: OriginIndex) -> QueuedMetadata:
    first = piece.first_seq
    for seq, stamps in held.restamps.ranges(first, first + len(piece.stamps)):
        piece.stamps[seq - first : seq - first + len(stamps)] = stamps
    return piece


def _heads_from(held: OriginIndex, seq: int, reader: RecordReader) -> Iterator[tuple[HeldRecordHead, int]]:
    """The records from ``seq`` on, and in each the position of the first requested item."""
    at = max(0, bisect_left(held.first_seqs, seq + 1) - 1)
    for first_seq, segment, offset in zip(held.first_seqs[at:], held.segments[at:], held.offsets[at:], strict=True):
        head = reader.read_head(RecordLocation(first_seq, segment, offset << 3))
        if head.last_seq >= seq:
            yield head, max(0, seq - head.first_seq)


def _idempotency_keys(found: JournalScan) -> list[RecoveredKeyEntry]:
    """Walks the order once, and only if an origin has transactions with keys."""
    if not found.keyed:
        return []
    seqs = {origin: sorted(named) for origin, named in found.keyed.items()}
    keys, index = [], found.log_start.index + 1
    for span in found.order.spans:
        origin = Origin(span.node, span.birth)
        mine = seqs.get(origin, [])
        stop = span.first_seq + span.count
        for seq in mine[bisect_left(mine, span.first_seq) : bisect_left(mine, stop)]:
            one, named = Span(span.node, span.birth, seq, 1), found.keyed[origin][seq]
            stamp = found.index.get_or_create(origin).restamps.get(seq, named.stamp)
            at = index + seq - span.first_seq
            if at > found.log_start.keys_index or named.kind in KINDS_WITH_OWN_KEYS:  # else the table of keys has it
                keys.append(RecoveredKeyEntry(at, named.kind, named.key, stamp, named.content, one, named.first_stamp))
        index += span.count
    return keys


def _abandoned_branches(found: JournalScan) -> list[AbandonedBranch]:
    return [
        AbandonedBranch(after, value, spans, hashes, [key for span in spans for key in _keys_in(found, span)])
        for after, value, spans, hashes in found.abandoned
    ]


def _keys_in(found: JournalScan, span: Span) -> Iterator[tuple[str, Txid]]:
    origin = Origin(span.node, span.birth)
    for seq, named in sorted(found.keyed.get(origin, {}).items()):
        if span.first_seq <= seq < span.first_seq + span.count and named.kind not in KINDS_WITH_OWN_KEYS:
            yield named.key, Txid(origin, seq)


def find_damage(found: JournalScan) -> list[Damage]:
    """Damage that no repair has replaced, or whose repair is itself damaged."""
    open_ones = []
    for bad in found.damaged:
        damage = _unrepaired_part(found, bad)
        is_repaired = any(repaired.covers(bad) for repaired in found.repaired)
        if not is_repaired or damage.spans or damage.log_to >= damage.log_from:
            open_ones.append(damage)
    return open_ones


def _unrepaired_part(found: JournalScan, bad: DamagedRecords) -> Damage:
    holes = [(a, b) for a, b in found.order.missing_ranges() if a <= bad.log_to and b >= bad.log_from]
    log_from = max(bad.log_from, holes[0][0]) if holes else bad.log_to + 1
    log_to = min(bad.log_to, holes[-1][1]) if holes else bad.log_to
    end_hash = found.order.hash_at(log_to) if holes else bad.end_hash
    where = f"{bad.where} (case {bad.case_letter})"
    below = [Span(node, birth, 1, seq) for node, birth, seq in found.log_start.seqs if seq]
    missing = subtract_spans(subtract_spans(bad.spans, found.refilled_spans), below)
    return Damage(bad.first, bad.last, where, log_from, log_to, end_hash, missing)
