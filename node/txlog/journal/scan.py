"""Reads a whole journal once, in order. It changes nothing on the disk; :mod:`txlog.journal.recovery_table` decides.

One ``pread`` reads a segment; the loop over its records creates no object per entry. A segment that another follows is
not read if it has a valid index: the scan reads that index instead (:mod:`txlog.journal.segment_index`).
"""

from __future__ import annotations

from array import array
from hashlib import blake2b
from typing import NamedTuple
from zlib import crc32

from txlog.journal import format as fmt
from txlog.journal import record_bodies
from txlog.journal.format import FramedRecord, SegmentHeader
from txlog.journal.origin_index import RecordLocation
from txlog.journal.record_structs import ViewAcceptedPrologue
from txlog.journal.recovery_table import EndOfRecords, Observation, RecoveryCase, RecoveryDecision, decide
from txlog.journal.replay import START_EMPTY, DamagedRecords, JournalReplay, KeyedTransaction
from txlog.journal.segment_index import (
    IndexBlock,
    IndexedRecord,
    SegmentIdentity,
    SegmentIndex,
    decode_index,
    index_name,
)
from txlog.journal.state_header import StateHeader, missing_spans
from txlog.journal.tail_scan import classify_end, find_next_record, iterate_valid_records, read_prefix, read_whole
from txlog.journal.vfs import Vfs
from txlog.model.errors import JournalDamaged
from txlog.model.hashes import HASH_BYTES
from txlog.model.ids import Origin

_FRONT_FROM = fmt.HEAD_BYTES - fmt.CRC_FROM


class StaleBytes(NamedTuple):
    """Bytes ``start``..``stop`` of a segment are no records and must be zeroed."""

    segment: int
    start: int
    stop: int


class UnprovenRecords(NamedTuple):
    """The last records of the journal as they were read: nothing on the disk proves that a sync of them succeeded."""

    segment: int
    offset: int
    content: bytes


class JournalTail(NamedTuple):
    """The offset of the next record. ``size`` equals ``end`` when that segment must not be extended."""

    segment: int
    end: int
    size: int
    first: int


class ScannedSegment(NamedTuple):
    """A segment that exists. ``first``, ``chain``, ``state_header``: before its first (good) record."""

    number: int
    header: SegmentHeader | None
    records_from: int
    size: int
    first: int
    chain: bytes | None
    state_header: StateHeader


class JournalScan(JournalReplay):
    """The result of a scan. :func:`scan_journal` fills it."""

    def __init__(self, files: Vfs, own: Origin, indexes: frozenset[int] = frozenset()) -> None:
        super().__init__(own)
        self.files = files
        self._indexes = indexes
        """Numbers of the segments with an index that may be used."""
        self.indexed_segments: list[int] = []
        """Segments that were not read, since their index replaced them."""
        self.intact_segments: list[int] = []
        """Segments that were read and have no damage."""
        self.chain: bytes | None = fmt.EMPTY_CHAIN
        """The chain hash before the next record; None after damage."""
        self.segments: list[ScannedSegment] = []
        self.notes: list[str] = []
        self.cases: list[str] = []
        self.stale_bytes: StaleBytes | None = None
        self.tail = JournalTail(0, 0, 0, 1)
        self.last_synced = 0
        """The last record known to be synced."""
        self._unproven_from = 0
        """The offset, in the segment that is read, of the first record that is not known to be synced."""
        self.unproven: UnprovenRecords | None = None
        """At the end of the last segment, if there are any."""

    # -- segments

    def read_segments(self, pieces: list[ScannedSegment], broken: list[int], *, trimmed: bool = False) -> None:
        """Replay all segments in order. ``trimmed``: the segments before the first one are gone for good."""
        self.segments = pieces
        if trimmed:
            self._begin_at(pieces[0])
        self._end_segment(
            Observation(EndOfRecords.TOO_SHORT, False, True, pieces[0].first > self.number, True),
            pieces[0],
            "the first segments",
        )
        for at, piece in enumerate(pieces):
            following = pieces[at + 1] if at + 1 < len(pieces) else None
            if following is not None and self._apply_index(piece, following):
                self.indexed_segments.append(piece.number)
                continue
            bad = len(self.damaged)
            self._read_segment(piece, following)
            has_headers = following is not None and piece.header is not None and following.header is not None
            if has_headers and len(self.damaged) == bad:
                self.intact_segments.append(piece.number)
        if broken and broken[-1] > pieces[-1].number:
            name = fmt.segment_name(broken[-1])
            self._refuse(f"nothing in the last segment, {name}, can be read", "R")
        self.sync_state_header()
        self.order.apply_repairs()

    def _begin_at(self, piece: ScannedSegment) -> None:
        """Start at a segment in the middle of the journal: a trim removed the earlier ones."""
        self.state = piece.state_header.copy()
        self.number, self.chain = piece.first, piece.chain
        for origin, last in self.state.held.items():
            self.index.get_or_create(origin).last = last
        self.order.begin(self.state.log_end, self.state.log_hash)

    @property
    def is_whole(self) -> bool:
        """Whether every segment that a trim retained exists."""
        first = self.segments[0]
        return first.first == 1 or (0 < first.number <= self.first_segment and self.order.start == self.log_start.index)

    def _read_segment(self, piece: ScannedSegment, following: ScannedSegment | None) -> None:
        name = fmt.segment_name(piece.number)
        self._begin_segment(piece, name)
        data = read_whole(self.files, name)[: piece.size]
        seed = fmt.segment_seed(self.own.birth, piece.number)
        offset = self._unproven_from = piece.records_from
        while True:
            offset = self._replay_records(data, offset, seed, piece.number)
            end = classify_end(data, offset)
            later, promise = (
                (None, 0) if end is EndOfRecords.ZEROS else find_next_record(data, offset, seed, self.number + 1)
            )
            known = max(promise, following.first - 1 if following else 0)
            whole = len(data) >= piece.size
            seen = Observation(end, later is not None, following is not None, known >= self.number, whole)
            case = self._end_segment(seen, following, f"{name} at byte {offset}", later)
            if case.decision is not RecoveryDecision.DAMAGE_RESUME:
                break
            assert later is not None
            offset = later.offset
        self._set_tail(case, piece, data, offset)
        if following is None and self._unproven_from < offset:
            self.unproven = UnprovenRecords(piece.number, self._unproven_from, data[self._unproven_from : offset])

    # -- segments that need not be read

    def _apply_index(self, piece: ScannedSegment, following: ScannedSegment) -> bool:
        """Apply the segment's index in place of its records, if it belongs to exactly this segment. Its record numbers
        and chain hashes must match this segment's header and the next one's."""
        header, next_header = piece.header, following.header
        if piece.number not in self._indexes or header is None or next_header is None:
            return False
        name = fmt.segment_name(piece.number)
        if (self.number, self.chain) != (header.first, header.chain) or self.files.size(name) < header.size:
            return False
        found = decode_index(read_whole(self.files, index_name(piece.number)))
        wanted = SegmentIdentity(
            self.own.birth, piece.number, header.first, next_header.first, header.chain, next_header.chain
        )
        if found is None or found.identity != wanted:
            self.notes.append(f"{index_name(piece.number)} cannot be used; the segment was read")
            return False
        self._begin_segment(piece, name)
        try:
            self._replay_index(found, piece.number)
        except JournalDamaged as wrong:
            raise IndexContradicts(piece.number, str(wrong)) from None
        self._check_index_result(piece.number, next_header.state_header)
        self.number, self.chain, self.state = next_header.first, next_header.chain, next_header.state_header.copy()
        self.last_synced = self.number - 1
        return True

    def _replay_index(self, found: SegmentIndex, segment: int) -> None:
        at = 0
        for event in found.events:
            if isinstance(event, IndexedRecord):
                self._replay_single(event, segment)
                continue
            count = HASH_BYTES * sum([span.count for span in event.spans])
            self._replay_block(event, found.hashes[at : at + count], segment)
            at += count

    def _replay_single(self, event: IndexedRecord, segment: int) -> None:
        if event.kind == fmt.HELD:
            self._replay_held(event.flags, event.a, event.b, event.front, segment, event.offset)
        else:
            place = RecordLocation(event.a, segment, event.offset)
            self._replay_other(event.kind, event.flags, event.a, event.b, event.front, place)

    def _replay_block(self, block: IndexBlock, hashes: memoryview, segment: int) -> None:
        for rows in block.origins:
            held = self.index.get_or_create(Origin(rows.node, rows.birth))
            firsts, offsets = array("Q", rows.firsts), array("I", rows.offsets)
            if firsts[0] != held.last + 1:
                self._refuse(f"{held.origin} continues at {firsts[0]} after {held.last}", "X")
            held.extend(firsts, segment, offsets, rows.last)
        for row in block.named:
            named = self.keyed.setdefault(Origin(row.node, row.birth), {})
            named[row.seq] = KeyedTransaction(row.kind, row.key, row.stamp, row.content, row.first_stamp)
        if block.spans:
            self.order.add(block.spans, hashes)
            self.state.set_log(self.order.end, bytes(hashes[-HASH_BYTES:]), self.state.stable)

    def _check_index_result(self, segment: int, end: StateHeader) -> None:
        """Check that the index leads to the state that the next segment's header records."""
        self.sync_state_header()
        state = self.state
        views = (state.changes, state.accepted, state.installed, state.promised, state.left, state.overrides)
        same = views == (end.changes, end.accepted, end.installed, end.promised, end.left, end.overrides)
        same = same and self.order.end == state.log_end == end.log_end and state.log_hash == end.log_hash
        if not same or state.held != end.held:
            raise IndexContradicts(segment, f"it leads to entry {state.log_end}, and the segment to {end.log_end}")

    def _begin_segment(self, piece: ScannedSegment, name: str) -> None:
        header = piece.header
        if header is None:
            no_records = self.number, self.number - 1
            self.damaged.append(DamagedRecords(*no_records, piece.number, f"the header of {name}", "G", 1, 0, b"", []))
            return
        if header.copies < 2:
            self.notes.append(f"{name}: one of the two header copies is broken; nothing is lost")
        self._remember_views(header.accepted, header.installed)
        self.sync_state_header()
        if header.chain != self.chain or header.state_header.encoded != self.state.encoded:
            self._refuse(f"{name} does not continue the segment before it", "X")

    def _set_tail(self, case: RecoveryCase, piece: ScannedSegment, data: bytes, offset: int) -> None:
        if case.decision is RecoveryDecision.CUT:
            self.stale_bytes = StaleBytes(piece.number, offset, len(data.rstrip(b"\0")))
        elif case.letter == "E":
            self.notes.append(f"{fmt.segment_name(piece.number)} at byte {offset}: stale bytes after the last record")
        size = piece.size if len(data) >= piece.size else offset
        self.tail = JournalTail(piece.number, offset, size, piece.first)

    # -- where the records stop

    def _end_segment(
        self, seen: Observation, following: ScannedSegment | None, where: str, later: FramedRecord | None = None
    ) -> RecoveryCase:
        case = decide(seen)
        self.cases.append(case.letter)
        if case.decision is RecoveryDecision.REFUSE:
            self._refuse(f"{where}: record {self.number} cannot be read ({seen.end.value})", case.letter)
        if case.decision is RecoveryDecision.DAMAGE_RESUME:
            assert later is not None
            self._skip_damage(later.number, None, StateHeader.parse(later.state_header), where, case.letter)
        elif case.decision is RecoveryDecision.DAMAGE_NEXT:
            assert following is not None
            self._skip_damage(following.first, following.chain, following.state_header, where, case.letter)
        return case

    def _skip_damage(self, number: int, chain: bytes | None, after: StateHeader, where: str, letter: str) -> None:
        """Skip lost records up to ``number``; the state header after them contains their effects."""
        self.sync_state_header()
        before, self.state = self.state, after.copy()
        spans = missing_spans(before, after)
        text = f"records {self.number} to {number - 1}: {where}"
        end = self.order.end
        self.damaged.append(
            DamagedRecords(self.number, number - 1, 0, text, letter, end + 1, end, after.log_hash, spans)
        )
        for origin, last in after.held.items():
            self.index.get_or_create(origin).last = last
        for change in range(before.changes + 1, after.changes + 1):
            found = self._find_change(change, where)
            if isinstance(found, FramedRecord):
                self._apply_trim(found.a, self._with_key_table(record_bodies.decode_trimmed(found.front)))
            else:
                self._apply_view_change(*found)
        self._add_missing_span(after.log_end, after.log_hash)
        if self.order.end != after.log_end:
            self._refuse(f"{where}: the log ends at {self.order.end}, and after it at {after.log_end}", "X")
        self.number, self.chain = number, chain

    def _find_change(self, change: int, where: str) -> tuple[int, ViewAcceptedPrologue] | FramedRecord:
        """Find a good copy of the record of this change in any segment: mostly it directly follows the lost one."""
        for piece in self.segments:
            data = read_whole(self.files, fmt.segment_name(piece.number))[: piece.size]
            for record in iterate_valid_records(data, 0, fmt.segment_seed(self.own.birth, piece.number)):
                if record.kind == fmt.VIEW_ACCEPTED and record.b == change:
                    return record.a, record_bodies.decode_accepted(record.front)
                if record.kind == fmt.TRIMMED and record.b == change:
                    return record
        raise JournalDamaged(
            f"recovering the journal of {self.own}: {where}: both copies of the accepted view or trim that changed the"
            f" order of the log or its stamps as number {change} cannot be read (case V). No other master"
            " knows what this one has accepted, so none can repair it. Next: bring the file back, or " + START_EMPTY
        )

    # -- records

    def _replay_records(self, data: bytes, offset: int, seed: int, segment: int) -> int:
        """Replay good records from ``offset`` on; returns the offset after the last one. A record whose ``synced`` is
        above that of the record before it begins a batch, or is a seal: what precedes it is synced."""
        unpack, size = fmt.RECORD_HEAD.unpack_from, len(data)
        number, chain, by_data = self.number, self.chain, self.index.by_encoded_origin
        last_synced = self.last_synced
        while offset + fmt.HEAD_BYTES <= size:
            mark, crc, length, kind, flags, vitals, n, synced, recorded, tail_crc, front_bytes, a, b, tail = unpack(
                data, offset
            )
            front_end = offset + fmt.HEAD_BYTES + vitals + front_bytes
            stop = offset + length
            covered = data[offset + fmt.CRC_FROM : front_end]
            if (
                n != number
                or mark != fmt.RECORD_MARK
                or stop > size
                or length != (front_end - offset + tail + 7) & ~7
                or crc32(covered, seed) != crc
                or crc32(data[front_end:stop]) != tail_crc
            ):
                break
            front = covered[vitals + _FRONT_FROM :]
            if chain is not None and blake2b(chain + front, digest_size=16).digest() != recorded:
                break
            chain = recorded
            if kind == fmt.HELD:
                held = by_data.get(front[: (front[0] + 16) & ~7])
                if held is not None and a == held.last + 1 and not flags:
                    held.last = a + b - 1
                    held.add(a, segment, offset)
                else:
                    self._replay_held(flags, a, b, front, segment, offset)
            else:
                self._replay_other(kind, flags, a, b, front, RecordLocation(a, segment, offset))
            number += 1
            if synced > last_synced:
                last_synced, self._unproven_from = synced, offset
            offset = stop
        self.number, self.chain, self.last_synced = number, chain, last_synced
        return offset


class IndexContradicts(Exception):
    """A whole index of this segment contradicts the headers. That is a defect of this program, so the segment is
    read."""

    def __init__(self, segment: int, why: str) -> None:
        super().__init__(f"{index_name(segment)} contradicts the headers: {why}; the segment was read")
        self.segment = segment


def scan_journal(files: Vfs, segment_bytes: int, *, by_index: bool = True) -> JournalScan | None:
    """Scan the folder; None for a folder without a journal. ``by_index``: segments that have an index are not read.

    Raises :class:`JournalDamaged` for damage that no other master can repair, and for an unknown format.
    """
    parsed = [one for name in files.list() if (one := fmt.parse_name(name)) is not None]
    numbers = [number for kind, number in parsed if kind == "segment"]
    if not numbers:
        return None
    indexes = frozenset(number for kind, number in parsed if kind == "index" and by_index)
    notes: list[str] = []
    while True:
        try:
            found = _scan_segments(files, numbers, indexes, segment_bytes)
        except IndexContradicts as wrong:
            notes.append(str(wrong))
            indexes -= {wrong.segment}
        else:
            found.notes += notes
            return found


def _scan_segments(files: Vfs, numbers: list[int], indexes: frozenset[int], segment_bytes: int) -> JournalScan:
    headers = {number: _read_header(files, number) for number in numbers}
    first = next((header for header in headers.values() if header is not None), None)
    if first is None:
        raise JournalDamaged(
            f"opening the journal: no header of {len(numbers)} segments can be read, so this master cannot be"
            " identified; no other master can repair it. Next: bring the files back, or " + START_EMPTY
        )
    own = first.state_header.own
    pieces = [_locate_segment(files, number, headers[number], own, segment_bytes) for number in numbers]
    there = [piece for piece in pieces if piece is not None]
    broken = [number for number, piece in zip(numbers, pieces, strict=True) if piece is None]
    found = JournalScan(files, own, indexes)
    notes = [f"{fmt.segment_name(number)}: nothing in it can be read" for number in broken]
    found.notes += notes
    found.read_segments(there, broken, trimmed=there[0].first > 1)
    if not found.is_whole:
        log_start, found = found.log_start, JournalScan(files, own, indexes)
        if log_start.index:
            raise JournalDamaged(
                f"opening the journal of {own}: {fmt.segment_name(there[0].number)} is the first that is there, and the"
                f" log, trimmed at {log_start.index}, needs earlier ones (case T)."
                f" Next: bring them back, or {START_EMPTY}"
            )
        found.notes += notes
        found.read_segments(there, broken)
    found.require_key_table()
    return found


def _read_header(files: Vfs, number: int) -> SegmentHeader | None:
    name = fmt.segment_name(number)
    try:
        return fmt.load_segment_header(lambda count: read_prefix(files, name, count), number)
    except fmt.UnknownSegmentFormat as refused:
        raise JournalDamaged(
            f"opening the journal: {name} has UnknownFormat: {refused}. Next: start the newer program, which wrote it"
        ) from None


def _locate_segment(
    files: Vfs, number: int, header: SegmentHeader | None, own: Origin, segment_bytes: int
) -> ScannedSegment | None:
    if header is not None:
        return ScannedSegment(
            number, header, header.records_from, header.size, header.first, header.chain, header.state_header
        )
    data = read_whole(files, fmt.segment_name(number))
    later, _ = find_next_record(data, 0, fmt.segment_seed(own.birth, number), 1)
    if later is None:
        return None
    size = max(len(data), segment_bytes)
    return ScannedSegment(number, None, later.offset, size, later.number, None, StateHeader.parse(later.state_header))
