"""Bytes of segments and records. The package's docstring specifies them; constants marked *on disk* are part of it."""

from __future__ import annotations

import re
from collections.abc import Callable
from struct import Struct
from struct import error as StructError  # noqa: N812
from typing import Final, NamedTuple
from zlib import crc32

import msgspec

from txlog.journal.state_header import StateHeader
from txlog.model.hashes import NO_HASH, short_hash
from txlog.model.view import View

FORMAT_VERSION: Final = 1
"""On disk."""
WIDE_FORMAT_VERSION: Final = 2
"""On disk: the header has 32 bits for the length of its views. It is written only where 16 bits are too few, so that an
older program reads every other segment."""
FORMAT_VERSIONS: Final = (FORMAT_VERSION, WIDE_FORMAT_VERSION)
SEGMENT_MAGIC: Final = b"TXLOGSEG"
"""On disk."""
RECORD_MARK: Final = b"\xf1TxR"
"""On disk."""
SECTOR: Final = 512
"""On disk: a header copy is a multiple of this, so that two copies never share a sector."""
RECORD_HEAD = Struct("<4sIIBBHQQ16sIIQII")
"""On disk: mark, head crc, length, kind, flags, vitals length, number, synced, chain, tail crc, front length, a, b,
tail length."""
HEAD_BYTES: Final = RECORD_HEAD.size
CRC_FROM: Final = 8
"""On disk: the head crc covers the record from here to the end of its front."""

_REST = Struct("<IBBHQQ16sIIQII")
_PADDING: Final = [bytes(count) for count in range(8)]
_FRAME = Struct("<4sI")
_SEED = Struct("<QQ")
_SEGMENT = Struct("<8sIIIIQQQQ16sHHI")
_SEGMENT_CRC_FROM: Final = 12

STARTED, HELD, ADDED, STABLE, CEILING, VIEW_ACCEPTED, VIEW_INSTALLED, SEAL, REPAIRED, PROMISED, LEFT = range(1, 12)
TRIMMED: Final = 12
ORDERS: Final = 13
KEY_ROWS: Final = 14
"""On disk: the kinds."""
KIND_NAMES: Final = (
    "",
    "Started",
    "Held",
    "Added",
    "Stable",
    "Ceiling",
    "ViewAccepted",
    "ViewInstalled",
    "Seal",
    "Repaired",
    "Promised",
    "Left",
    "Trimmed",
    "Orders",
    "KeyRows",
)
FLAG_KEYED: Final = 1
"""On disk: a Held record with a key in it: idempotency keys, and the txids that skips name."""
FLAG_FIRST_STAMPS: Final = 4
"""On disk: a Held record, with keys, that has the first stamps of its transactions."""
FLAG_REPAIR: Final = 2
"""On disk: written by a repair; fills a gap before its own position."""

HEADERS_BYTES: Final = 1 << 18
"""Both copies of a header fit, unless its views are very long."""
HEADERS_MAX: Final = 1 << 23
"""Both copies of a header fit: no views are longer than 4 MiB."""
_NARROW_MAX: Final = (1 << 16) - 1

_NAME = re.compile(r"^(segment|index|spare|making)-([0-9]{10})$")

assert HEAD_BYTES == 72
assert _SEGMENT.size == 80


class UnknownSegmentFormat(Exception):
    """A segment of a newer format version."""


class RecordBody:
    """A record without its frame."""

    __slots__ = ("a", "b", "flags", "front", "kind", "tail")

    def __init__(self, kind: int, flags: int, a: int, b: int, front: bytes, tail: bytes) -> None:
        self.kind = kind
        self.flags = flags
        self.a = a
        self.b = b
        self.front = front
        self.tail = tail


class SegmentHeader(NamedTuple):
    """``header_bytes``: of one copy. ``copies``: how many of the two are good."""

    header_bytes: int
    size: int
    number: int
    first: int
    birth: int
    chain: bytes
    state_header: StateHeader
    accepted: View | None
    installed: View | None
    copies: int = 2

    @property
    def records_from(self) -> int:
        """Offset of the first record: after both copies."""
        return 2 * self.header_bytes


def segment_name(number: int, prefix: str = "segment") -> str:
    """On disk: the file name of a segment."""
    return f"{prefix}-{number:010d}"


def parse_name(name: str) -> tuple[str, int] | None:
    """``("segment" | "index" | "spare" | "making", number)``, or None for a file that is not the journal's."""
    found = _NAME.match(name)
    return (found[1], int(found[2])) if found else None


def segment_seed(birth: int, number: int) -> int:
    """Start value of the head crc of every record in this segment: a record of another segment never fits."""
    return crc32(_SEED.pack(birth, number))


def seal_bytes(vitals_bytes: int) -> int:
    """Room for both seals."""
    return 2 * (HEAD_BYTES + vitals_bytes) + SECTOR


def align_to_8(length: int) -> int:
    """``length`` rounded up to a multiple of 8."""
    return (length + 7) & ~7


def crc_with_padding(crc: int, zeros: int) -> int:
    """The checksum of a tail with checksum ``crc`` and this many zeros (0 to 7) after it."""
    return crc32(_PADDING[zeros], crc)


def next_chain_hash(previous: bytes, front: bytes) -> bytes:
    """The chain hash of a record: of the previous record's hash and this record's front."""
    return short_hash(previous + front)


def record_length(body: RecordBody, vitals_bytes: int) -> int:
    """Length of a whole record in bytes, with padding; ``vitals_bytes``: of its state header."""
    return align_to_8(HEAD_BYTES + vitals_bytes + len(body.front) + len(body.tail))


def encode_record(
    body: RecordBody, length: int, number: int, synced: int, chain: bytes, vitals: bytes, seed: int
) -> tuple[bytes, bytes, bytes, bytes]:
    """Frame, head, tail, zeros. ``length``: :func:`record_length`. ``chain`` is the hash after this record."""
    tail = body.tail
    zeros = _PADDING[length - HEAD_BYTES - len(vitals) - len(body.front) - len(tail)]
    frame, head = encode_head(body, length, number, synced, chain, vitals, seed, crc32(zeros, crc32(tail)))
    return frame, head, tail, zeros


def encode_head(
    body: RecordBody, length: int, number: int, synced: int, chain: bytes, vitals: bytes, seed: int, tail_crc: int
) -> tuple[bytes, bytes]:
    """The bytes before the tail, for a tail that is already on the disk. ``tail_crc``: with the zeros after it."""
    front = body.front
    state_bytes, front_bytes, tail_bytes = len(vitals), len(front), len(body.tail)
    fixed = _REST.pack(
        *(length, body.kind, body.flags, state_bytes, number, synced, chain, tail_crc),
        *(front_bytes, body.a, body.b, tail_bytes),
    )
    head = fixed + vitals + front
    return _FRAME.pack(RECORD_MARK, crc32(head, seed)), head


class FramedRecord(NamedTuple):
    """A record that passed its checksums, at ``offset`` of the bytes read."""

    offset: int
    length: int
    kind: int
    flags: int
    number: int
    synced: int
    chain: bytes
    a: int
    b: int
    state_header: bytes
    front: bytes
    tail_from: int
    tail_bytes: int


def read_record_head(data: bytes, offset: int, seed: int) -> FramedRecord | None:
    """The record at this offset, without checking its tail; None when there is none, or a broken one."""
    if offset + HEAD_BYTES > len(data):
        return None
    fields = RECORD_HEAD.unpack_from(data, offset)
    mark, crc, length, kind, flags, vitals_bytes, number, synced, chain, _, front_bytes, a, b, tail_bytes = fields
    vitals_end = offset + HEAD_BYTES + vitals_bytes
    front_end = vitals_end + front_bytes
    if mark != RECORD_MARK or front_end > len(data) or length != align_to_8(front_end - offset + tail_bytes):
        return None
    if crc32(memoryview(data)[offset + CRC_FROM : front_end], seed) != crc:
        return None
    return FramedRecord(
        offset,
        length,
        kind,
        flags,
        number,
        synced,
        chain,
        a,
        b,
        data[offset + HEAD_BYTES : vitals_end],
        data[vitals_end:front_end],
        front_end,
        tail_bytes,
    )


def read_record(data: bytes, offset: int, seed: int) -> FramedRecord | None:
    """The record at this offset with a good head and a good tail, or None."""
    record = read_record_head(data, offset, seed)
    if record is None or offset + record.length > len(data):
        return None
    (tail_crc,) = Struct("<I").unpack_from(data, offset + 48)
    if crc32(memoryview(data)[record.tail_from : offset + record.length]) != tail_crc:
        return None
    return record


def segment_header_bytes(vitals: StateHeader, views: list[View | None]) -> int:
    """Of one copy."""
    used = _SEGMENT.size + len(vitals.encoded) + len(msgspec.msgpack.encode(views))
    return -(-used // SECTOR) * SECTOR


def encode_segment_header(
    size: int, number: int, first: int, birth: int, chain: bytes, vitals: StateHeader, views: list[View | None]
) -> bytes:
    """Both copies."""
    state = vitals.encoded
    packed = msgspec.msgpack.encode(views)
    length = segment_header_bytes(vitals, views)
    narrow = len(packed) <= _NARROW_MAX
    widths = (len(packed), 0) if narrow else (0, len(packed))
    fields = (length, 0, size, number, first, birth, chain, len(state), *widths)
    version = FORMAT_VERSION if narrow else WIDE_FORMAT_VERSION
    copy = _SEGMENT.pack(SEGMENT_MAGIC, 0, version, *fields) + state + packed
    copy += bytes(length - len(copy))
    copy = SEGMENT_MAGIC + crc32(copy[_SEGMENT_CRC_FROM:]).to_bytes(4, "little") + copy[_SEGMENT_CRC_FROM:]
    return copy * 2


def read_segment_header(data: bytes, number: int) -> SegmentHeader | None:
    """The header of segment ``number`` from its first bytes, or None when both copies are broken.

    Raises :class:`UnknownSegmentFormat` when no copy is of our version and a whole one names another.
    """
    whole = [(at, copy) for at in _find_magics(data) if (copy := _whole_copy(data, at, number)) is not None]
    if not whole:
        _refuse_unknown(data)
        return None
    found = _parse_copy(data, *whole[0])
    return found._replace(copies=sum(copy.length == found.header_bytes for _, copy in whole))


def load_segment_header(read: Callable[[int], bytes], number: int) -> SegmentHeader | None:
    """As :func:`read_segment_header`; ``read`` returns so many of the first bytes of the segment. Only where a copy is
    missing in the usual ones are more read."""
    header = read_segment_header(read(HEADERS_BYTES), number)
    if header is None or header.copies < 2:
        header = read_segment_header(read(HEADERS_MAX), number) or header
    return header


def _find_magics(data: bytes) -> list[int]:
    places, at = [], data.find(SEGMENT_MAGIC)
    while at >= 0:
        if at % SECTOR == 0:
            places.append(at)
        at = data.find(SEGMENT_MAGIC, at + 1)
    return places


class _CopyFields(NamedTuple):
    """The fields of one copy in front of its state; ``narrow`` and ``wide``: bytes of the views in each version."""

    magic: bytes
    crc: int
    version: int
    length: int
    reserved: int
    size: int
    number: int
    first: int
    birth: int
    chain: bytes
    state: int
    narrow: int
    wide: int


def _whole_copy(data: bytes, at: int, number: int) -> _CopyFields | None:
    """The fields of the copy at this place, if its checksum is right."""
    try:
        copy = _CopyFields(*_SEGMENT.unpack_from(data, at))
    except StructError:
        return None
    length = copy.length
    whole = length >= _SEGMENT.size and at in (0, length) and at + length <= len(data) and copy.number == number
    if copy.version not in FORMAT_VERSIONS or not whole:
        return None
    return copy if crc32(data[at + _SEGMENT_CRC_FROM : at + length]) == copy.crc else None


def _parse_copy(data: bytes, at: int, copy: _CopyFields) -> SegmentHeader:
    state_end = at + _SEGMENT.size + copy.state
    views_bytes = copy.narrow if copy.version == FORMAT_VERSION else copy.wide
    vitals = StateHeader.parse(data[at + _SEGMENT.size : state_end])
    views = msgspec.msgpack.decode(data[state_end : state_end + views_bytes], type=list[View | None])
    return SegmentHeader(
        copy.length, copy.size, copy.number, copy.first, copy.birth, copy.chain, vitals, views[0], views[1]
    )


def _refuse_unknown(data: bytes) -> None:
    """A version is believed when both of its copies agree: a flipped bit is damage, not a format."""
    versions = [int.from_bytes(data[at + 12 : at + 16], "little") for at in _find_magics(data)]
    if len(versions) > 1 and len(set(versions)) == 1 and versions[0] not in FORMAT_VERSIONS:
        known = " and ".join(str(version) for version in FORMAT_VERSIONS)
        raise UnknownSegmentFormat(f"format version {versions[0]}; this program reads versions {known}")


EMPTY_CHAIN: Final = NO_HASH
"""On disk: the chain hash before record 1."""
