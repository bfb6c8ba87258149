"""The bodies of the records: model values <-> bytes (kinds and layouts: the package's docstring)."""

from __future__ import annotations

import sys
from array import array
from struct import Struct, pack
from typing import NamedTuple

import msgspec

from txlog.journal import format as fmt
from txlog.journal.format import RecordBody
from txlog.journal.record_structs import AppendedPrologue, RestampedPrologue, ViewAcceptedPrologue
from txlog.model.entry import RunItem, TransactionRun
from txlog.model.hashes import HASH_BYTES
from txlog.model.ids import Origin
from txlog.model.records import (
    CounterCeiling,
    KeyTablePart,
    KeyTableWritten,
    LogAppended,
    LogStart,
    OperatorOverrides,
    Record,
    StableAdvanced,
    ViewAccepted,
    ViewLeft,
    ViewPromised,
)
from txlog.model.view import Number

_U64 = Struct("<Q")

_decode_added = msgspec.msgpack.Decoder(AppendedPrologue).decode
_decode_accepted = msgspec.msgpack.Decoder(ViewAcceptedPrologue).decode
_decode_view_number = msgspec.msgpack.Decoder(tuple[int, int, str]).decode
_decode_orders = msgspec.msgpack.Decoder(OperatorOverrides).decode
_decode_log_start = msgspec.msgpack.Decoder(LogStart).decode
_decode_key_part = msgspec.msgpack.Decoder(KeyTablePart).decode
_decode_range = msgspec.msgpack.Decoder(tuple[int, int, int]).decode
_pack = msgspec.msgpack.encode


def encode_origin(origin: Origin) -> bytes:
    """The first bytes of the front of a Held record; a multiple of 8 long."""
    node = origin.node.encode()
    data = bytes((len(node),)) + node + _U64.pack(origin.birth)
    return data + bytes(-len(data) % 8)


def origin_length(node_bytes: int) -> int:
    """Length of :func:`encode_origin` for a node id of ``node_bytes`` bytes."""
    return fmt.align_to_8(1 + node_bytes + 8)


def parse_origin(front: bytes) -> Origin:
    """The origin at the beginning of a Held record's front."""
    end = 1 + front[0]
    return Origin(front[1:end].decode(), _U64.unpack_from(front, end)[0])


def encode_held(origin: bytes, run: TransactionRun, contents: bytes, flags: int = 0) -> RecordBody:
    """``origin`` is :func:`encode_origin`. Columns, not rows: one call makes each column for the whole run."""
    items = run.items
    count = len(items)
    assert len(contents) == HASH_BYTES * count
    payloads = [item.payload for item in items]
    keys = [item.key for item in items]
    numbers = pack(f"<{count}Q{count}I", *[item.stamp for item in items], *map(len, payloads))
    columns = [origin, numbers, contents, bytes([item.kind for item in items])]
    if any(keys):
        flags |= fmt.FLAG_KEYED
        names = [key.encode() for key in keys]
        columns += [array("H", map(len, names)).tobytes(), *names]
        if any(item.first_stamp for item in items):
            flags |= fmt.FLAG_FIRST_STAMPS
            columns.append(array("Q", [item.first_stamp for item in items]).tobytes())
    return RecordBody(fmt.HELD, flags, run.first_seq, count, b"".join(columns), b"".join(payloads))


def single_content_hash(origin: bytes, front: bytes) -> bytes:
    """The content hash in the front of a Held record of one transaction. ``origin``: :func:`encode_origin`."""
    at = len(origin) + 12
    return front[at : at + HASH_BYTES]


class HeldPrologue(NamedTuple):
    """The columns of a Held record, without payloads."""

    origin: Origin
    stamps: array[int]
    sizes: array[int]
    contents: bytes
    kinds: bytes
    keys: list[str]
    first_stamps: array[int]
    """Empty if none is recorded."""

    def content(self, i: int) -> bytes:
        """The content hash of item ``i``."""
        return self.contents[HASH_BYTES * i : HASH_BYTES * (i + 1)]


def decode_held(front: bytes, count: int, flags: int) -> HeldPrologue:
    """Decode the front of a Held record with ``count`` items."""
    at = origin_length(front[0])
    stamps = _read_column("Q", front, at, count)
    at += 8 * count
    sizes = _read_column("I", front, at, count)
    at += 4 * count
    contents = front[at : at + HASH_BYTES * count]
    at += HASH_BYTES * count
    kinds = front[at : at + count]
    at += count
    keys = _decode_keys(front, at, count) if flags & fmt.FLAG_KEYED else [""] * count
    first_stamps = array("Q")
    if flags & fmt.FLAG_FIRST_STAMPS:
        at += 2 * count + sum(_read_column("H", front, at, count))
        first_stamps = _read_column("Q", front, at, count)
    return HeldPrologue(parse_origin(front), stamps, sizes, contents, kinds, keys, first_stamps)


def _read_column(code: str, front: bytes, at: int, count: int) -> array[int]:
    column = array(code)
    column.frombytes(front[at : at + column.itemsize * count])
    return column


def _decode_keys(front: bytes, at: int, count: int) -> list[str]:
    lengths = _read_column("H", front, at, count)
    at += 2 * count
    keys = []
    for length in lengths:
        keys.append(front[at : at + length].decode())
        at += length
    return keys


def encode_added(record: LogAppended, flags: int = 0) -> RecordBody:
    """Encode the entries by which the log grew."""
    front = _pack(AppendedPrologue(record.spans, record.hashes, record.stable))
    return RecordBody(fmt.ADDED, flags, record.first_index, len(record.hashes) // HASH_BYTES, front, b"")


def decode_added(front: bytes) -> AppendedPrologue:
    """Decode the front of an Added record."""
    return _decode_added(front)


def encode_accepted(record: ViewAccepted, change: int, flags: int = 0) -> RecordBody:
    """``change``: the number of the change that it makes, 0 for none."""
    stamped = [
        RestampedPrologue(s.node, s.birth, s.first_seq, array("Q", s.stamps).tobytes()) for s in record.reassigned
    ]
    front = _pack(ViewAcceptedPrologue(record.view, record.spans, record.hashes, stamped))
    return RecordBody(fmt.VIEW_ACCEPTED, flags, record.cut, change, front, b"")


def decode_accepted(front: bytes) -> ViewAcceptedPrologue:
    """Decode the front of a ViewAccepted record."""
    return _decode_accepted(front)


def decode_stamps(stamps: bytes) -> array[int]:
    """Decode stamps, u64 each."""
    return _read_column("Q", stamps, 0, len(stamps) // 8)


def encode_installed(number: Number, base_index: int) -> RecordBody:
    """Encode an installed view; ``base_index``: the log index of its base."""
    return RecordBody(fmt.VIEW_INSTALLED, 0, base_index, 0, _pack(number), b"")


def decode_view_number(front: bytes) -> Number:
    """The view number of a record that names a view: installed, promised, left."""
    return _decode_view_number(front)


def encode_started(start: int) -> RecordBody:
    """Encode the number of a start."""
    return RecordBody(fmt.STARTED, 0, start, 0, b"", b"")


def encode_seal(zeros: int) -> RecordBody:
    """Encode a Seal with this many zeros in its tail."""
    return RecordBody(fmt.SEAL, 0, 0, 0, b"", bytes(zeros))


def encode_repaired(first: int, last: int, segment: int) -> RecordBody:
    """Records ``first``..``last`` and the header of ``segment`` are repaired."""
    return RecordBody(fmt.REPAIRED, 0, 0, 0, _pack((first, last, segment)), b"")


def decode_repaired(front: bytes) -> tuple[int, int, int]:
    """First record, last record and segment of a repair."""
    return _decode_range(front)


def encode_trimmed(log_start: LogStart, first_segment: int, change: int) -> RecordBody:
    """``first_segment``: the first one that is retained. ``change``: its number, counted with those of the views."""
    return RecordBody(fmt.TRIMMED, 0, first_segment, change, _pack(log_start), b"")


def decode_trimmed(front: bytes) -> LogStart:
    """The log start of a Trimmed record."""
    return _decode_log_start(front)


def encode_key_rows(record: KeyTableWritten, row: int) -> RecordBody:
    """Encode a part of a table of keys. ``row``: the number of the first record of this table's parts."""
    return RecordBody(fmt.KEY_ROWS, 0, record.number, row & 0xFFFFFFFF, _pack(record.part), b"")


def decode_key_part(front: bytes) -> KeyTablePart:
    """The part of a table of keys in a KeyRows record."""
    return _decode_key_part(front)


def encode_orders(orders: OperatorOverrides) -> RecordBody:
    """Encode the operator's overrides."""
    return RecordBody(fmt.ORDERS, 0, 0, 0, _pack(orders), b"")


def decode_orders(front: bytes) -> OperatorOverrides:
    """Decode the operator's overrides."""
    return _decode_orders(front)


def encode_scalar_record(record: Record) -> RecordBody:
    """Encode a record that is only a number, or the number of a view."""
    match record:
        case StableAdvanced():
            return RecordBody(fmt.STABLE, 0, record.index, 0, b"", b"")
        case CounterCeiling():
            return RecordBody(fmt.CEILING, 0, record.stamp, 0, b"", b"")
        case ViewPromised():
            return RecordBody(fmt.PROMISED, 0, 0, 0, _pack((record.epoch, record.ballot, record.coordinator)), b"")
        case ViewLeft():
            return RecordBody(fmt.LEFT, 0, 0, 0, _pack((record.epoch, record.ballot, record.coordinator)), b"")
        case _:
            raise AssertionError(f"no small record: {record!r}")


def make_items(held: HeldPrologue, first: int, payloads: list[bytes]) -> list[RunItem]:
    """Items ``first``.. of the record, one for each payload."""
    columns = (held.stamps, held.kinds, held.keys)
    stop = first + len(payloads)
    rows = zip(*(c[first:stop] for c in columns), payloads, strict=True)
    if not held.first_stamps:
        return [RunItem(s, k, key, p) for s, k, key, p in rows]
    firsts = held.first_stamps[first:stop]
    return [RunItem(s, k, key, p, f) for (s, k, key, p), f in zip(rows, firsts, strict=True)]


assert sys.byteorder == "little", "columns are written in the byte order of memory"
assert array("I").itemsize == 4
assert array("Q").itemsize == 8
