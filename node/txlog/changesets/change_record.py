"""Records of a change log, as bytes.

::

    file    8 B "TXLOGCHG" | u16 version | u64 index | 16 B hash | 16 B chain | u32 crc32 of all of these
    record  u32 crc32 of the rest | u32 bytes of the body | body (MessagePack, a flat array)

The head of a file names the position before its first record, and the chain there. Numbers are little-endian. The chain
hash of an entry covers what the log says of it and its change set, so two capture stores that agree in it have the same
change sets up to there. The time of a record is not part of it.

Version 1 has no records of large changes. Both versions are read, and new files have version 2.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from enum import IntEnum
from typing import Final
from zlib import crc32

import msgspec

from txlog.changesets.change_set import ChangeSet, decode_change_set
from txlog.model.decode_errors import DECODE_ERRORS
from txlog.model.hashes import HASH_BYTES, short_hash

VERSION: Final = 2
VERSIONS_READ: Final = (1, 2)
MAGIC: Final = b"TXLOGCHG"
_FIELDS: Final = struct.Struct(f"<8sHQ{HASH_BYTES}s{HASH_BYTES}s")
_CRC: Final = struct.Struct("<I")
_PREFIX: Final = struct.Struct("<II")
_SIZE: Final = struct.Struct("<I")
HEAD_BYTES: Final = _FIELDS.size + _CRC.size
PREFIX_BYTES: Final = _PREFIX.size
CHAIN_START: Final = bytes(HASH_BYTES)


class RecordKind(IntEnum):
    """``PART``: the change of one operation of the entry that comes next. ``ENTRY``: a whole entry. ``LARGE``: a whole
    entry of which the change is too large to be kept. ``LARGE_BEGUN``: the store changes by such an entry from here on,
    and only its last checkpoint is sure until the entry follows."""

    PART = 1
    ENTRY = 2
    LARGE = 3
    LARGE_BEGUN = 4

    @property
    def is_entry(self) -> bool:
        """Whether this is a whole entry."""
        return self in (RecordKind.ENTRY, RecordKind.LARGE)


class LargeChange(msgspec.Struct, array_like=True, frozen=True):
    """What is kept of a large change: the hash of all its lines, so that chain hashes still prove it, and the IRIs of
    the graphs that it changed; empty for the default graph."""

    digest: bytes
    graphs: list[str]


class CapturedEntry(msgspec.Struct, array_like=True, frozen=True):
    """What the log says of an entry: as in :class:`~txlog.wire.log_page.PageEntry`, without its payload."""

    index: int
    hash: bytes
    txid: str = ""
    stamp: int = 0
    kind: int = 0
    noop: str = ""
    key: str = ""


class ChangeRecord(msgspec.Struct, array_like=True, frozen=True):
    """One record. ``change``: the change set as a payload of kind QUADS; of a large one, a :class:`LargeChange`.
    ``chain``: the chain hash after the entry; of a part, before it. ``at_ms``: when it was written, in milliseconds
    since 1970."""

    record: RecordKind
    entry: CapturedEntry
    change: bytes
    chain: bytes
    at_ms: int = 0

    @property
    def large_graphs(self) -> list[str]:
        """The graphs of a large change; empty for any other."""
        if self.record is not RecordKind.LARGE:
            return []
        return msgspec.msgpack.decode(self.change, type=LargeChange).graphs

    @property
    def change_set(self) -> ChangeSet:
        """The change set."""
        if self.record is RecordKind.LARGE:
            return ChangeSet(graphs=tuple(self.large_graphs))
        return decode_change_set(self.change)


class FileHead(msgspec.Struct, frozen=True):
    """The position before the first record of a file, and the chain there."""

    index: int
    hash: bytes
    chain: bytes

    def encode(self) -> bytes:
        """The first bytes of the file."""
        fields = _FIELDS.pack(MAGIC, VERSION, self.index, self.hash, self.chain)
        return fields + _CRC.pack(crc32(fields))


class BadHead(ValueError):
    """The first bytes of a file are no head. ``is_unknown``: of another format or version, and not damaged."""

    def __init__(self, why: str, is_unknown: bool) -> None:
        super().__init__(why)
        self.is_unknown = is_unknown


def decode_head(data: bytes) -> FileHead:
    """The head of a file. Raises :class:`BadHead`."""
    if data[:8] != MAGIC:
        raise BadHead("it is no change log of TxLog", is_unknown=True)
    version = int.from_bytes(data[8:10], "little")
    if version not in VERSIONS_READ:
        known = " and ".join(map(str, VERSIONS_READ))
        raise BadHead(f"it has version {version}, and this program reads {known}", is_unknown=True)
    if len(data) < HEAD_BYTES or _CRC.pack(crc32(data[: _FIELDS.size])) != data[_FIELDS.size : HEAD_BYTES]:
        raise BadHead("its head is damaged", is_unknown=False)
    _, _, index, value, chain = _FIELDS.unpack_from(data)
    return FileHead(index, value, chain)


def encode_record(record: ChangeRecord) -> bytes:
    """The bytes of a record."""
    body = msgspec.msgpack.encode(record)
    length = len(body).to_bytes(4, "little")
    return _CRC.pack(crc32(length + body)) + length + body


_decoder = msgspec.msgpack.Decoder(ChangeRecord)


def decode_record(data: bytes, at: int) -> tuple[ChangeRecord, int] | None:
    """The record at an offset, and the offset behind it; None where the bytes are no whole, sound record."""
    if at + PREFIX_BYTES > len(data):
        return None
    crc, size = _PREFIX.unpack_from(data, at)
    end = at + PREFIX_BYTES + size
    if end > len(data) or crc32(data[at + _CRC.size : end]) != crc:
        return None
    try:
        return _decoder.decode(data[at + PREFIX_BYTES : end]), end
    except DECODE_ERRORS:
        return None


def holds_record(data: bytes, begin: int) -> bool:
    """Whether a sound record begins at any offset from ``begin`` on. Zeros are none."""
    for at in range(begin, len(data) - PREFIX_BYTES):
        size = _SIZE.unpack_from(data, at + _CRC.size)[0]
        if 0 < size <= len(data) - at - PREFIX_BYTES and decode_record(data, at) is not None:
            return True
    return False


def encode_large(change: ChangeSet, graphs: Iterable[str]) -> bytes:
    """The bytes that are kept of a large change."""
    return msgspec.msgpack.encode(LargeChange(short_hash(change.encode()), sorted(graphs)))


def next_chain(chain: bytes, entry: CapturedEntry, change: bytes) -> bytes:
    """The chain hash after an entry with this change set."""
    return short_hash(chain + msgspec.msgpack.encode(entry) + change)
