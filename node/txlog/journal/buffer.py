"""Records that wait for a sync: each is framed, numbered and chained, and has its place in a segment.

Nothing is written here; :class:`txlog.journal.batch.Sync` does that. The owner's thread alone uses it.
"""

from __future__ import annotations

from typing import Final

from txlog.journal import bodies
from txlog.journal import format as fmt
from txlog.journal.batch import Extent, Segment
from txlog.journal.format import Body
from txlog.journal.laid import Laid
from txlog.journal.opening import tail_segment
from txlog.journal.scan import Scan
from txlog.journal.space import Space
from txlog.journal.trim import Segments, Start
from txlog.journal.vitals import Vitals
from txlog.model.errors import JournalFull
from txlog.model.view import Number, View

VITALS_GROWTH: Final = 96
"""How much longer the vitals may become by the record itself: an origin that was not there before."""
ORIGIN_BYTES_MAX: Final = 80
"""Of the origin's name in a Held record, padded."""
WORK_BYTES_MAX: Final = 1 << 16
"""``has_room_for`` promises room for a record of this size (less where segments are tiny)."""


class Buffer:
    """The end of a journal as it will be, ahead of what is on the disk."""

    def __init__(self, space: Space, segments: Segments, found: Scan) -> None:
        self._space = space
        self._segments = segments
        self._birth = found.own.birth
        self.vitals: Vitals = found.state
        """What the next record finds. Who puts a record in changes it, behind the record."""
        self.views: dict[Number, View] = dict(found.views)
        self.number = found.number
        """Of the next record."""
        self.tail = tail_segment(found.tail, self._birth)
        """Where the next record goes, if it fits."""
        self.extents: list[Extent] = []
        self.retired: list[Segment] = []
        """Segments that the next batch, or what was synced before it, has filled."""
        self._chain = found.chain if found.chain is not None else fmt.EMPTY_CHAIN
        self._batch_first = found.number
        """Every record below it is synced before a byte of the next batch is written."""

    def take(self) -> tuple[list[Extent], list[Segment]]:
        """What waits, and which segments are full when it is written: the next batch. Its last record is the one below
        :attr:`number`."""
        taken = self.extents, self.retired
        self.extents, self.retired = [], []
        self._batch_first = self.number
        return taken

    # -- records

    def put(self, body: Body, *, work: bool = False) -> tuple[Segment, int]:
        """Frame the record and give it its place, which is told: the segment, and the offset in it."""
        vitals = self.vitals.encoded
        length = fmt.record_length(body, len(vitals))
        extent, offset = self._place(length, len(vitals), work, sealing=body.kind == fmt.SEAL)
        self._chain = fmt.next_chain(self._chain, body.front)
        segment = extent.segment
        synced = self._batch_first - 1
        extent.parts += fmt.encode_record(body, length, self.number, synced, self._chain, vitals, segment.seed)
        self.number += 1
        return segment, offset

    def put_laid(self, laid: Laid, body: Body) -> tuple[Segment, int]:
        """A record whose tail is on the disk: that file is the next segment. What is over in front of the tail is a
        Seal; what follows is written behind it."""
        tail = self._open(laid.file_bytes, laid.name, False)
        tail.laid = True
        vitals = self.vitals.encoded
        frames = 2 * (fmt.HEAD_BYTES + len(vitals))
        self.put(bodies.encode_seal(laid.at - tail.end - frames - len(body.front)))
        length = fmt.record_length(body, len(vitals))
        offset = tail.end
        assert offset + fmt.HEAD_BYTES + len(vitals) + len(body.front) == laid.at
        self._chain = fmt.next_chain(self._chain, body.front)
        crc = fmt.padded_crc(laid.crc, offset + length - laid.at - laid.size)
        self.extents[-1].parts += fmt.encode_head(
            body, length, self.number, self._batch_first - 1, self._chain, vitals, tail.seed, crc
        )
        tail.end += length
        self.extents.append(Extent(tail, tail.end))
        self.number += 1
        return tail, offset

    def put_seals(self) -> Extent | None:
        """Two, to be written where they stand, without a sync. The second one begins in a sector of which the last
        record has no part. None where they find no room, or where records wait: those will tell the same."""
        if self.extents or not self.fits(0):
            return None
        first_end = self.tail.end + fmt.HEAD_BYTES + len(self.vitals.encoded)
        self.put(bodies.encode_seal(-first_end % fmt.SECTOR))
        self.put(bodies.encode_seal(0))
        return self.extents.pop()

    def _place(self, length: int, vitals_bytes: int, work: bool, sealing: bool) -> tuple[Extent, int]:
        """Always leaves room for the seals."""
        tail, seals = self.tail, fmt.seal_bytes(vitals_bytes)
        if tail.end + length + seals > tail.size and not sealing:
            tail = self._roll(length + seals, work)
        if not self.extents or self.extents[-1].segment is not tail:
            self.extents.append(Extent(tail, tail.end))
        offset = tail.end
        tail.end += length
        return self.extents[-1], offset

    # -- segments

    def _roll(self, length: int, work: bool) -> Segment:
        """The next segment; its header promises that all records up to here are synced, and the sync keeps it."""
        size = self._segment_size(length)
        spare = self._space.take(size, work)
        return self._open(size, spare or self._space.new_name(), spare is None)

    def _open(self, size: int, source: str, to_make: bool) -> Segment:
        old, vitals = self.tail, self.vitals
        if self.number > self._batch_first and not self.extents:
            self.extents.append(Extent(old, old.end))
        self.retired.append(old)
        self._segments.opened(Start(old.number + 1, vitals.log_end, dict(vitals.held)))
        number, views = old.number + 1, self._known_views()
        header = fmt.encode_segment_header(size, number, self.number, self._birth, self._chain, vitals, views)
        seed = fmt.segment_seed(self._birth, number)
        self.tail = Segment(number, size, len(header), seed, header, source, to_make)
        self._batch_first = self.number
        return self.tail

    def _known_views(self) -> list[View | None]:
        return [self.views.get(self.vitals.accepted), self.views.get(self.vitals.installed)]

    @property
    def header_bytes(self) -> int:
        """Of one copy of a segment's header, as things stand."""
        return fmt.segment_header_bytes(self.vitals, self._known_views())

    def _segment_size(self, length: int) -> int:
        """A record that is larger than a segment gets one of its own size."""
        return max(self._space.segment_bytes, fmt.padded(2 * self.header_bytes + length))

    # -- room

    @property
    def is_half_full(self) -> bool:
        """More than half of the segment in use is taken."""
        return self.tail.size - self.tail.end < self.tail.size // 2

    @property
    def bytes_to_make(self) -> int:
        """Of the segments that the sync of what waits will have to make."""
        waiting = {extent.segment for extent in self.extents if extent.segment.header is not None}
        return sum(segment.size for segment in waiting if segment.to_make)

    @property
    def bytes_free(self) -> int:
        """What work may still take: the current segment's rest, spares beyond the reserve, the disk beyond that."""
        self._space.refresh()
        kept = len(self._space.spares) - 1
        beyond = max(0, self._space.unclaimed + kept * self._space.segment_bytes)
        return self.tail.size - self.tail.end + beyond if self._space.reserve_kept else 0

    def length(self, body: Body) -> int:
        """Of its record, whatever the records before it do to the state."""
        return fmt.record_length(body, len(self.vitals.encoded) + VITALS_GROWTH)

    def fits(self, length: int) -> bool:
        """Whether a record of this length, and the seals behind it, have a place in the segment in use."""
        return self.tail.end + length + fmt.seal_bytes(len(self.vitals.encoded)) <= self.tail.size

    def has_room_for(self, length: int) -> bool:
        """Whether a ``Held`` of ``length`` bytes, or of ordinary size if that is more, is taken now."""
        frame = fmt.HEAD_BYTES + len(self.vitals.encoded) + VITALS_GROWTH + ORIGIN_BYTES_MAX
        size = max(length + frame, min(WORK_BYTES_MAX, self._space.segment_bytes // 8))
        return self._has_room(size)

    def refuse_work(self, length: int) -> None:
        """:class:`JournalFull` unless records of work of this length, all together, have room."""
        if not self._has_room(length):
            raise JournalFull(
                f"holding {length} bytes in segment {self.tail.name}: the disk is full up to the reserve that the"
                " protocol itself needs. Next: free space or add some; work is taken again without a restart"
            )

    def _has_room(self, length: int) -> bool:
        """The disk is asked anew before the answer is no."""
        if self._has_room_as_known(length):
            return True
        self._space.refresh()
        return self._has_room_as_known(length)

    def _has_room_as_known(self, length: int) -> bool:
        if self.fits(length):
            return self._space.reserve_kept
        length += fmt.seal_bytes(len(self.vitals.encoded))
        return self._space.may_open_for_work(self._segment_size(length))
