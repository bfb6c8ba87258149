"""Entries of the log as columns in a compressed block: the inner part of a file of the archive.

::

    block  u32 crc32 of the rest | u32 bytes | u32 plain | u32 entries | u64 first | 16 B hash before | one zstd frame
    plain  u8 slot[n] | u8 kind[n] (bit 7: a no-op by its key) | u64 stamp[n] (the first whole, then differences)
           | u64 first stamp[n] (0: none) | u64 seq[n] | u32 payload length[n] | u32 key length[n] | keys | payloads

Numbers are little-endian. The chain hashes of the entries are not stored: the reader computes them again, which is the
proof that the entries are those of the log.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from itertools import accumulate, islice
from typing import Final
from zlib import crc32

import msgspec
import zstandard

from txlog.archive.archive_errors import FileDamaged
from txlog.model.hashes import chain_hash, content_hash, origin_tag
from txlog.model.ids import Origin, Txid

BLOCK_PLAIN_BYTES: Final = 1 << 20
"""A block ends before it has more; a larger entry has a block of its own."""
BLOCK_PLAIN_BYTES_MAX: Final = 17 << 20
"""No reader decompresses more: a transaction has at most 16 MiB, and a key 64 KiB."""
LEVEL: Final = 1
"""zstd level. Level 1 takes half the time of level 3 for 0.3 % more bytes."""
HEAD: Final = struct.Struct("<IIIIQ16s")
ENTRY_BYTES: Final = 34
"""Bytes of an entry besides its key and payload."""
_NOOP: Final = 0x80
_MASK: Final = (1 << 64) - 1


class ArchivedEntry(msgspec.Struct, frozen=True, gc=False):
    """An entry of the log. ``hash``: the chain hash after it. ``first_stamp``: as in
    :class:`~txlog.model.entry.RunItem`. ``is_noop``: another transaction counts for its idempotency key.

    ``passed_over``: of a COMMIT, the transactions that it names and that take no effect there: they repeat a key, or
    another decision precedes it. ``verdict``: of a synchronous transaction whose decision precedes it, what that says
    (:class:`~txlog.model.synchronous_entry.DecisionKind`). Both may depend on entries that the archive lacks."""

    index: int
    hash: bytes
    origin: Origin
    seq: int
    stamp: int
    first_stamp: int
    kind: int
    is_noop: bool
    key: str
    payload: bytes
    passed_over: tuple[Txid, ...] = ()
    verdict: str = ""

    @property
    def txid(self) -> Txid:
        """The id of its transaction."""
        return Txid(self.origin, self.seq)

    @property
    def content(self) -> bytes:
        """The content hash."""
        return content_hash(self.kind, self.key, self.payload)

    @property
    def plain_bytes(self) -> int:
        """Its bytes in a block, before compression."""
        return ENTRY_BYTES + len(self.key.encode()) + len(self.payload)


def split_blocks(entries: Sequence[ArchivedEntry]) -> Iterator[Sequence[ArchivedEntry]]:
    """The entries of each block."""
    begin, size = 0, 0
    for at, entry in enumerate(entries):
        more = entry.plain_bytes
        if at > begin and size + more > BLOCK_PLAIN_BYTES:
            yield entries[begin:at]
            begin, size = at, 0
        size += more
    if begin < len(entries):
        yield entries[begin:]


def encode_block(entries: Sequence[ArchivedEntry], before: bytes, slots: dict[Origin, int], level: int) -> bytes:
    """``before``: the chain hash before the first of these consecutive entries. ``slots``: the place of each origin."""
    count = len(entries)
    keys = [entry.key.encode() for entry in entries]
    stamps = [entry.stamp for entry in entries]
    steps = [stamps[0], *((now - then) & _MASK for then, now in zip(stamps, islice(stamps, 1, None), strict=False))]
    plain = b"".join(
        [
            bytes(slots[entry.origin] for entry in entries),
            bytes(entry.kind | _NOOP if entry.is_noop else entry.kind for entry in entries),
            struct.pack(f"<{count}Q", *steps),
            struct.pack(f"<{count}Q", *(entry.first_stamp for entry in entries)),
            struct.pack(f"<{count}Q", *(entry.seq for entry in entries)),
            struct.pack(f"<{count}I", *(len(entry.payload) for entry in entries)),
            struct.pack(f"<{count}I", *map(len, keys)),
            *keys,
            *(entry.payload for entry in entries),
        ]
    )
    frame = zstandard.ZstdCompressor(level=level, write_checksum=True).compress(plain)
    rest = HEAD.pack(0, len(frame), len(plain), count, entries[0].index, before)[4:] + frame
    return crc32(rest).to_bytes(4, "little") + rest


def decode_block(
    data: memoryview, first: int, before: bytes, origins: Sequence[Origin], name: str
) -> tuple[list[ArchivedEntry], int]:
    """The entries of the block at the beginning of ``data``, and the block's length. ``first`` and ``before``: the
    index and the chain hash at which it must begin. :class:`FileDamaged` with ``name`` when anything differs."""
    where = f"{name}: the block of index {first}"
    if len(data) < HEAD.size:
        raise FileDamaged(f"{where} is cut off")
    crc, size, plain_size, count, begins, hash_before = HEAD.unpack_from(data)
    end = HEAD.size + size
    if end > len(data) or crc32(data[4:end]) != crc:
        raise FileDamaged(f"{where} has another checksum than was written")
    if begins != first or hash_before != before:
        raise FileDamaged(f"{where} begins at index {begins}, or on another chain")
    plain = _decompress(bytes(data[HEAD.size : end]), plain_size, where)
    if count == 0 or count * ENTRY_BYTES > len(plain):
        raise FileDamaged(f"{where} has {count} entries in {len(plain)} bytes")
    entries: list[ArchivedEntry] = []
    tags = [origin_tag(origin) for origin in origins]
    value = before
    for at, (slot, kind, stamp, first_stamp, seq, key, payload) in enumerate(_read_columns(plain, count, where)):
        if slot >= len(origins):
            raise FileDamaged(f"{where} names origin {slot} of {len(origins)}")
        value = chain_hash(value, stamp, tags[slot], seq, content_hash(kind & ~_NOOP, key, payload))
        is_noop = bool(kind & _NOOP)
        entries.append(
            ArchivedEntry(
                first + at, value, origins[slot], seq, stamp, first_stamp, kind & ~_NOOP, is_noop, key, payload
            )
        )
    return entries, end


def _decompress(frame: bytes, plain_size: int, where: str) -> bytes:
    try:
        # Before any memory is taken: a few bytes could claim to become all of it.
        if plain_size > BLOCK_PLAIN_BYTES_MAX or zstandard.frame_content_size(frame) != plain_size:
            raise FileDamaged(f"{where} would not become {plain_size} bytes")
        plain = zstandard.ZstdDecompressor().decompress(frame, max_output_size=plain_size)
    except zstandard.ZstdError as error:
        raise FileDamaged(f"{where} cannot be decompressed: {error}") from None
    if len(plain) != plain_size:
        raise FileDamaged(f"{where} became {len(plain)} of {plain_size} bytes")
    return plain


def _read_columns(plain: bytes, count: int, where: str) -> Iterator[tuple[int, int, int, int, int, str, bytes]]:
    slots, kinds = plain[:count], plain[count : 2 * count]
    at = 2 * count
    steps = struct.unpack_from(f"<{count}Q", plain, at)
    first_stamps = struct.unpack_from(f"<{count}Q", plain, at + 8 * count)
    seqs = struct.unpack_from(f"<{count}Q", plain, at + 16 * count)
    sizes = struct.unpack_from(f"<{count}I", plain, at + 24 * count)
    key_sizes = struct.unpack_from(f"<{count}I", plain, at + 28 * count)
    key_at = count * ENTRY_BYTES
    payload_at = key_at + sum(key_sizes)
    if payload_at + sum(sizes) != len(plain):
        raise FileDamaged(f"{where} has keys and payloads of another length than it says")
    stamps = accumulate(steps, lambda then, step: (then + step) & _MASK)
    for slot, kind, stamp, first_stamp, seq, size, key_size in zip(
        slots, kinds, stamps, first_stamps, seqs, sizes, key_sizes, strict=True
    ):
        try:
            key = plain[key_at : key_at + key_size].decode() if key_size else ""
        except UnicodeDecodeError:
            raise FileDamaged(f"{where} has a key that is no text") from None
        yield slot, kind, stamp, first_stamp, seq, key, plain[payload_at : payload_at + size]
        key_at += key_size
        payload_at += size
