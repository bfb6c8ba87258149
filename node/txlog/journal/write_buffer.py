"""Records that wait for a sync: each is framed, numbered and chained, and has its offset in a segment.

Nothing is written here; :class:`txlog.journal.group_commit.GroupCommit` does that. Only the owner's thread uses it.
"""

from __future__ import annotations

from typing import Final

from txlog.journal import format as fmt
from txlog.journal import record_bodies
from txlog.journal.format import RecordBody
from txlog.journal.group_commit import OpenSegment, WriteExtent
from txlog.journal.scan import JournalScan
from txlog.journal.segment_gc import SegmentSet, SegmentStart
from txlog.journal.segment_pool import SegmentPool
from txlog.journal.staged_payload import StagedPayload
from txlog.journal.startup_cleanup import open_tail_segment
from txlog.journal.state_header import StateHeader
from txlog.model.errors import JournalFull
from txlog.model.view import Number, View

STATE_HEADER_GROWTH: Final = 96
"""Bytes by which one record may lengthen the state header: a new origin."""
ORIGIN_BYTES_MAX: Final = 80
"""Of the origin's name in a Held record, padded."""
ORDINARY_RECORD_BYTES: Final = 1 << 16
"""``has_room_for`` promises room for a record of this size (less where segments are tiny)."""


class WriteBuffer:
    """The future end of a journal, ahead of the bytes on the disk."""

    def __init__(self, space: SegmentPool, segments: SegmentSet, found: JournalScan) -> None:
        self._space = space
        self._segments = segments
        self._birth = found.own.birth
        self.state_header: StateHeader = found.state
        """The state before the next record. The caller that appends a record updates it afterwards."""
        self.views: dict[Number, View] = dict(found.views)
        if any(number in self.views for number in self._view_numbers):
            self.forget_views()
        self.number = found.number
        """Number of the next record."""
        self.tail = open_tail_segment(found.tail, self._birth)
        """The segment of the next record, if it fits."""
        self.extents: list[WriteExtent] = []
        self.retired: list[OpenSegment] = []
        """Segments that the next batch, or earlier synced records, have filled."""
        self._chain = found.chain if found.chain is not None else fmt.EMPTY_CHAIN
        self._batch_first = found.number
        """Every record below it is synced before a byte of the next batch is written."""

    def take_batch(self) -> tuple[list[WriteExtent], list[OpenSegment]]:
        """The next batch: the waiting extents, and the segments that are full once it is written. Its last record is
        the one below :attr:`number`."""
        taken = self.extents, self.retired
        self.extents, self.retired = [], []
        self._batch_first = self.number
        return taken

    # -- records

    def append(self, body: RecordBody, *, work: bool = False) -> tuple[OpenSegment, int]:
        """Frame the record and allocate its bytes. Returns the segment and the offset in it."""
        vitals = self.state_header.encoded
        length = fmt.record_length(body, len(vitals))
        extent, offset = self._allocate(length, len(vitals), work, sealing=body.kind == fmt.SEAL)
        self._chain = fmt.next_chain_hash(self._chain, body.front)
        segment = extent.segment
        synced = self._batch_first - 1
        extent.parts += fmt.encode_record(body, length, self.number, synced, self._chain, vitals, segment.seed)
        self.number += 1
        return segment, offset

    def append_staged(self, staged: StagedPayload, body: RecordBody) -> tuple[OpenSegment, int]:
        """Append a record whose tail is on the disk: that file becomes the next segment. A Seal fills the unused bytes
        before the tail; later records are written after it."""
        tail = self._open(staged.file_bytes, staged.name, False)
        tail.has_staged_payload = True
        vitals = self.state_header.encoded
        frames = 2 * (fmt.HEAD_BYTES + len(vitals))
        self.append(record_bodies.encode_seal(staged.offset - tail.end - frames - len(body.front)))
        length = fmt.record_length(body, len(vitals))
        offset = tail.end
        assert offset + fmt.HEAD_BYTES + len(vitals) + len(body.front) == staged.offset
        self._chain = fmt.next_chain_hash(self._chain, body.front)
        crc = fmt.crc_with_padding(staged.crc, offset + length - staged.offset - staged.size)
        self.extents[-1].parts += fmt.encode_head(
            body, length, self.number, self._batch_first - 1, self._chain, vitals, tail.seed, crc
        )
        tail.end += length
        self.extents.append(WriteExtent(tail, tail.end))
        self.number += 1
        return tail, offset

    def append_seals(self) -> WriteExtent | None:
        """Two seals, written at the end without a sync. The second one begins in a sector that contains no part of the
        last record. None if they do not fit, or if records wait: those prove the same."""
        if self.extents or not self.fits(0):
            return None
        first_end = self.tail.end + fmt.HEAD_BYTES + len(self.state_header.encoded)
        self.append(record_bodies.encode_seal(-first_end % fmt.SECTOR))
        self.append(record_bodies.encode_seal(0))
        return self.extents.pop()

    def _allocate(self, length: int, vitals_bytes: int, work: bool, sealing: bool) -> tuple[WriteExtent, int]:
        """Allocate bytes for a record. This always leaves room for the seals."""
        tail, seals = self.tail, fmt.seal_bytes(vitals_bytes)
        if tail.end + length + seals > tail.size and not sealing:
            tail = self._rotate(length + seals, work)
        if not self.extents or self.extents[-1].segment is not tail:
            self.extents.append(WriteExtent(tail, tail.end))
        offset = tail.end
        tail.end += length
        return self.extents[-1], offset

    # -- segments

    def _rotate(self, length: int, work: bool) -> OpenSegment:
        """The next segment; its header promises that all earlier records are synced, and the sync keeps that
        promise."""
        size = self._segment_size(length)
        spare = self._space.acquire(size, work)
        return self._open(size, spare or self._space.next_name(), spare is None)

    def _open(self, size: int, source: str, to_make: bool) -> OpenSegment:
        old, vitals = self.tail, self.state_header
        if self.number > self._batch_first and not self.extents:
            self.extents.append(WriteExtent(old, old.end))
        self.retired.append(old)
        self._segments.add(SegmentStart(old.number + 1, vitals.log_end, dict(vitals.held)))
        number, views = old.number + 1, self._views_in_header()
        header = fmt.encode_segment_header(size, number, self.number, self._birth, self._chain, vitals, views)
        seed = fmt.segment_seed(self._birth, number)
        self.tail = OpenSegment(number, size, len(header), seed, header, source, to_make)
        self._batch_first = self.number
        return self.tail

    @property
    def _view_numbers(self) -> list[Number]:
        return [self.state_header.accepted, self.state_header.installed]

    def forget_views(self) -> None:
        """Forget the views that no header has any more: the accepted and the installed one remain."""
        self.views = {number: self.views[number] for number in self._view_numbers if number in self.views}

    def _views_in_header(self) -> list[View | None]:
        return [self.views.get(number) for number in self._view_numbers]

    @property
    def header_bytes(self) -> int:
        """Of one copy of a segment's header in the present state."""
        return fmt.segment_header_bytes(self.state_header, self._views_in_header())

    def _segment_size(self, length: int) -> int:
        """A record larger than a segment gets a segment of its own size."""
        return max(self._space.segment_bytes, fmt.align_to_8(2 * self.header_bytes + length))

    # -- room

    @property
    def is_half_full(self) -> bool:
        """Whether more than half of the segment in use is taken."""
        return self.tail.size - self.tail.end < self.tail.size // 2

    @property
    def bytes_to_create(self) -> int:
        """Bytes of the segments that the next sync must create."""
        waiting = {extent.segment for extent in self.extents if extent.segment.header is not None}
        return sum(segment.size for segment in waiting if segment.must_create)

    @property
    def bytes_free(self) -> int:
        """Bytes that work may still take: the rest of the current segment, spares beyond the reserve, the disk beyond
        that."""
        self._space.refresh()
        kept = len(self._space.spares) - 1
        beyond = max(0, self._space.unclaimed_bytes + kept * self._space.segment_bytes)
        return self.tail.size - self.tail.end + beyond if self._space.has_reserve else 0

    def length(self, body: RecordBody) -> int:
        """Upper bound of the record's length, whatever the records before it do to the state."""
        return fmt.record_length(body, len(self.state_header.encoded) + STATE_HEADER_GROWTH)

    def fits(self, length: int) -> bool:
        """Whether a record of this length, and the seals after it, fit into the segment in use."""
        return self.tail.end + length + fmt.seal_bytes(len(self.state_header.encoded)) <= self.tail.size

    def has_room_for(self, length: int) -> bool:
        """Whether a ``Held`` of ``length`` bytes, or of ordinary size if that is more, is taken now."""
        frame = fmt.HEAD_BYTES + len(self.state_header.encoded) + STATE_HEADER_GROWTH + ORIGIN_BYTES_MAX
        size = max(length + frame, min(ORDINARY_RECORD_BYTES, self._space.segment_bytes // 8))
        return self._has_room(size)

    def require_room(self, length: int) -> None:
        """Raises :class:`JournalFull` unless records of work of this total length have room."""
        if not self._has_room(length):
            raise JournalFull(
                f"holding {length} bytes in segment {self.tail.name}: the disk is full up to the reserve that the"
                " protocol itself needs. Next: free space or add some; work is taken again without a restart"
            )

    def _has_room(self, length: int) -> bool:
        """Query the disk again before the answer is no."""
        if self._has_room_cached(length):
            return True
        self._space.refresh()
        return self._has_room_cached(length)

    def _has_room_cached(self, length: int) -> bool:
        if self.fits(length):
            return self._space.has_reserve
        length += fmt.seal_bytes(len(self.state_header.encoded))
        return self._space.can_open_segment(self._segment_size(length))
