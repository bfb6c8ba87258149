"""The index file of a sealed segment: what a start needs of its records, so that it need not read them.

``index-0000000001`` belongs to ``segment-0000000001``. It is written when the next segment exists, and is never
needed. If it is missing, broken, of another segment or of another version, the segment is read instead.
Little-endian::

    0   magic "TXLOGIDX"
    8   u32 crc32 of bytes 12..end
    12  u32 version 1              the offset of this and of the magic never changes
    16  u64 birth of the journal
    24  u64 segment number
    32  u64 number of the segment's first record, u64 of the one after its last
    48  16 bytes chain hash before the first record, 16 bytes after the last
    80  u64 length of the events
    88  events (MessagePack), then the chain hashes of the log entries in them, concatenated

*Events* are the effects of the records, in their order. A *block* combines any number of ordinary ones (``Held``,
``Added``, ``Started``, ``Stable``, ``Ceiling``, ``Seal``); every other record is stored as it is.
"""

from __future__ import annotations

from array import array
from struct import Struct
from typing import Final, NamedTuple
from zlib import crc32

import msgspec

from txlog.journal import format as fmt
from txlog.journal import record_bodies
from txlog.journal.log_order import LogOrder
from txlog.model.entry import Span
from txlog.model.ids import Origin

MAGIC: Final = b"TXLOGIDX"
VERSION: Final = 1
_HEAD = Struct("<8sIIQQQQ16s16sQ")
_CRC_FROM: Final = 12

assert _HEAD.size == 88


class OriginRecords(msgspec.Struct, array_like=True):
    """On disk. The Held records of one origin in a block: ``firsts`` (u64 each) and their offsets in the segment
    (``offsets``, u32 each, in units of 8 bytes). ``last``: the last seq of the last one; ``named``: first seqs of
    those with a key."""

    node: str
    birth: int
    firsts: bytes
    offsets: bytes
    last: int
    named: list[int]


class KeyedRow(msgspec.Struct, array_like=True):
    """On disk. A held transaction with a key."""

    node: str
    birth: int
    seq: int
    kind: int
    key: str
    stamp: int
    content: bytes
    first_stamp: int = 0


class IndexBlock(msgspec.Struct, array_like=True, tag=0):
    """On disk. ``spans`` enter the log; their chain hashes are stored after the events."""

    origins: list[OriginRecords]
    spans: list[Span]
    named: list[KeyedRow]


class IndexedRecord(msgspec.Struct, array_like=True, tag=1):
    """On disk. Any other record; ``offset`` is its byte offset in the segment."""

    kind: int
    flags: int
    a: int
    b: int
    offset: int
    front: bytes


class SegmentIdentity(NamedTuple):
    """Identifies a segment of one journal by its records: the number of its first record and of the first one after
    it, and the chain hash before each of the two."""

    birth: int
    segment: int
    first: int
    end: int
    chain_before: bytes
    chain_after: bytes


class SegmentIndex(NamedTuple):
    """``hashes``: those of the spans of all blocks, in order."""

    identity: SegmentIdentity
    events: list[IndexBlock | IndexedRecord]
    hashes: memoryview


_decode_events = msgspec.msgpack.Decoder(list[IndexBlock | IndexedRecord]).decode


def index_name(segment: int) -> str:
    """On disk: the name of the index file of a segment."""
    return fmt.segment_name(segment, "index")


def encode_index(
    identity: SegmentIdentity, events: list[IndexBlock | IndexedRecord], hashes: bytes | bytearray
) -> bytes:
    """Encode the whole file."""
    packed = msgspec.msgpack.encode(events)
    one = identity
    head = _HEAD.pack(
        *(MAGIC, 0, VERSION, one.birth, one.segment, one.first, one.end, one.chain_before, one.chain_after),
        len(packed),
    )
    crc = crc32(hashes, crc32(packed, crc32(head[_CRC_FROM:])))
    return b"".join((MAGIC, crc.to_bytes(4, "little"), head[_CRC_FROM:], packed, hashes))


def decode_index(data: bytes) -> SegmentIndex | None:
    """The inverse; None for anything but a whole file of this version."""
    if len(data) < _HEAD.size:
        return None
    magic, crc, version, birth, segment, first, behind, before, chain, packed = _HEAD.unpack_from(data)
    view = memoryview(data)
    if magic != MAGIC or version != VERSION or crc32(view[_CRC_FROM:]) != crc:
        return None
    events_end = _HEAD.size + packed
    events = _decode_events(view[_HEAD.size : events_end])
    return SegmentIndex(SegmentIdentity(birth, segment, first, behind, before, chain), events, view[events_end:])


class IndexRows:
    """The Held records of one origin collected so far."""

    __slots__ = ("firsts", "last", "named", "offsets", "origin")

    def __init__(self, origin: Origin) -> None:
        self.origin = origin
        self.firsts = array("Q")
        self.offsets = array("I")
        self.named: list[int] = []
        self.last = 0


class IndexBuilder:
    """Converts the records of one segment, added in order, to events. ``held``: the last seq of each origin before
    them."""

    def __init__(self, held: dict[Origin, int]) -> None:
        self.events: list[IndexBlock | IndexedRecord] = []
        self.hashes = bytearray()
        self._last = dict(held)
        self._origins: dict[bytes, Origin] = {}
        self._begin()

    def _begin(self) -> None:
        self._rows: dict[Origin, IndexRows] = {}
        self._order = LogOrder()
        self._named: list[KeyedRow] = []

    def add(self, kind: int, flags: int, a: int, b: int, front: bytes, offset: int) -> bool:
        """Add one good record. Returns False for one that contradicts those before it."""
        if kind == fmt.HELD and not flags & fmt.FLAG_REPAIR:
            return self._add_held(flags, a, b, front, offset)
        if kind == fmt.ADDED and not flags & fmt.FLAG_REPAIR:
            added = record_bodies.decode_added(front)
            self._order.add(added.spans, added.hashes)
        elif kind not in (fmt.STARTED, fmt.STABLE, fmt.CEILING, fmt.SEAL):
            self._end_block()
            if kind == fmt.KEY_ROWS and self._is_second_copy(a, b):
                return True
            self.events.append(IndexedRecord(kind, flags, a, b, offset, front))
            if kind == fmt.TRIMMED:
                self._add_trimmed(front)
        return True

    def _is_second_copy(self, a: int, b: int) -> bool:
        """Of the record that was added last."""
        last = self.events[-1] if self.events else None
        return isinstance(last, IndexedRecord) and (last.kind, last.a, last.b) == (fmt.KEY_ROWS, a, b)

    def _add_held(self, flags: int, a: int, b: int, front: bytes, offset: int) -> bool:
        named = front[: record_bodies.origin_length(front[0])]
        origin = self._origins.get(named)
        if origin is None:
            origin = self._origins[named] = record_bodies.parse_origin(front)
        if a != self._last.get(origin, 0) + 1:
            return False
        rows = self._rows.get(origin)
        if rows is None:
            rows = self._rows[origin] = IndexRows(origin)
        rows.firsts.append(a)
        rows.offsets.append(offset >> 3)
        rows.last = self._last[origin] = a + b - 1
        if flags & fmt.FLAG_KEYED:
            rows.named.append(a)
            columns = record_bodies.decode_held(front, b, flags)
            for at, key in enumerate(columns.keys):
                if key:
                    first_stamp = columns.first_stamps[at] if columns.first_stamps else 0
                    row = (columns.kinds[at], key, columns.stamps[at], columns.content(at), first_stamp)
                    self._named.append(KeyedRow(origin.node, origin.birth, a + at, *row))
        return True

    def _add_trimmed(self, front: bytes) -> None:
        """A log start above what is held belongs to another master's snapshot."""
        for node, birth, seq in record_bodies.decode_trimmed(front).seqs:
            origin = Origin(node, birth)
            self._last[origin] = max(seq, self._last.get(origin, 0))

    def _end_block(self) -> None:
        if not (self._rows or self._order.spans):
            return
        origins = [
            OriginRecords(*row.origin, row.firsts.tobytes(), row.offsets.tobytes(), row.last, row.named)
            for row in self._rows.values()
        ]
        self.events.append(IndexBlock(origins, self._order.spans, self._named))
        self.hashes += self._order.hashes
        self._begin()

    def finish(self) -> None:
        """Close the last block: no more records follow."""
        self._end_block()
