"""A file of the archive (``.txl``), format 1: consecutive stable entries of the log, proved by its chain.

::

    0   "TXLOGARC"  8 u32 crc32 of 12..h  12 u32 format  16 u32 h  20 u32 flags (1 compacted, 2 after a gap, 4 has keys,
        8 has updates, 16 has synchronous transactions or decisions)
    24  u64 first, last  40 16 B hash before, 16 B hash after  72 u64 stamp of the first, of the last entry
    88  u64 final index when it was written  96 u32 entries, blocks  104 u64 length of the file
    112 u64 writer (random)  120 u32 length of meta, u32 0  128 meta (MessagePack), zeros up to h, a multiple of 8
    h   blocks (:mod:`txlog.archive.block_codec`)
    end key table (MessagePack) | block table (u64 offset, first index, first stamp of each block)
        | u32 crc32, u64 offset of the key table, u32 crc32, u64 offset of the block table | "TXLOGEND"

Numbers are little-endian. Later versions may add fields at the end of ``meta``. A checksum covers each byte, and the
reader compares everything that is written twice. The chain covers stamps, seqs, origins, kinds, keys and payloads. Only
first stamps, no-ops and ``meta`` depend on the checksums alone. The chain is no signature: an attacker who can write to
the target can write a chain of his own.

A synchronous transaction and a decision are as they are in the log, the payload at its own place. Readers of the
entries fold them (:mod:`txlog.archive.archived_effects`).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple
from zlib import crc32

import msgspec

from txlog.archive.archive_errors import FileDamaged
from txlog.archive.block_codec import HEAD, LEVEL, ArchivedEntry, decode_block, encode_block, split_blocks
from txlog.archive.file_name import FileName
from txlog.backup.backup_errors import OtherCluster, UnknownFormat
from txlog.model.bounds import SLOTS_MAX
from txlog.model.decode_errors import DECODE_ERRORS
from txlog.model.entry import KIND_SKIP, KIND_UPDATE, Span
from txlog.model.ids import Origin, Txid
from txlog.model.synchronous_entry import (
    DECIDED_MAX,
    KIND_DECISION,
    KIND_SYNCHRONOUS_UPDATE,
    KINDS_WITH_OWN_KEYS,
    SYNCHRONOUS_AND_DECISION,
    SYNCHRONOUS_KINDS,
    DecisionKind,
    join_spans,
)
from txlog.model.view import NO_VIEW, Number

FORMAT: Final = 1
FILE_BYTES_MAX: Final = 64 << 20
"""No reader takes a longer file into memory. The archiver cuts at 16 MiB before compression."""
HEADER_BYTES_MAX: Final = 32 << 20
"""No reader takes a longer header into memory."""
FACT_BYTES_MAX: Final = 512 << 10
"""A file ends before its header has more about its entries: a client that sets many prefixes makes it long."""
COMPACTED: Final = 1
AFTER_GAP: Final = 2
HAS_KEYS: Final = 4
HAS_UPDATES: Final = 8
HAS_SYNCHRONOUS: Final = 16
_MAGIC: Final = b"TXLOGARC"
_END_MAGIC: Final = b"TXLOGEND"
_FIXED: Final = struct.Struct("<8sIIIIQQ16s16sQQQIIQQII")
_END: Final = struct.Struct("<IQIQ8s")
_TABLE_ROW: Final = struct.Struct("<QQQ")
_ROW_BYTES: Final = 24
"""Of a row of the header, in MessagePack, besides its texts."""
_SPAN_BYTES: Final = 32


class FileMeta(msgspec.Struct, array_like=True, frozen=True):
    """``view``: the number of the view in which the last entry was stable. ``history``: the numbers of the views from
    which that one descends, oldest first; None: as in the file before, or not known. ``skips``: index and skipped
    transaction of each entry that skips one. ``software``, ``written`` (seconds since 1970): for people.
    ``passed_over``, ``verdicts``: of the entries, by index, as in :class:`~txlog.archive.block_codec.ArchivedEntry`; a
    verdict is whether it is a COMMIT."""

    cluster: bytes
    data_center: str
    origins: list[tuple[str, int]] = []
    view: Number = NO_VIEW
    history: list[str] | None = None
    skips: list[tuple[int, str]] = []
    software: str = ""
    written: float = 0.0
    passed_over: list[tuple[int, list[Span]]] = []
    verdicts: list[tuple[int, bool]] = []


class KeyRow(msgspec.Struct, array_like=True, frozen=True):
    """The transaction that counts for an idempotency key, unless it is synchronous: its key counts only where it takes
    effect. ``stamp``: the one from which the age of the key counts."""

    index: int
    slot: int
    seq: int
    stamp: int
    content: bytes
    key: str


class FileHeader(NamedTuple):
    """The fields before the entries. ``settled``: the final index of the master when the file was written."""

    flags: int
    name: FileName
    first_stamp: int
    last_stamp: int
    settled: int
    blocks: int
    length: int
    writer: int
    meta: FileMeta
    header_bytes: int


class ArchiveFile(NamedTuple):
    """A whole file, proved."""

    header: FileHeader
    entries: list[ArchivedEntry]
    keys: list[KeyRow]


class EncodedFile(NamedTuple):
    """``data`` under ``name``."""

    name: FileName
    data: bytes


def encode_file(
    entries: Sequence[ArchivedEntry],
    before: bytes,
    meta: FileMeta,
    *,
    settled: int,
    writer: int,
    flags: int = 0,
    level: int = LEVEL,
) -> EncodedFile:
    """``entries``: at least one, consecutive. ``before``: the chain hash before the first one. ``meta``: origins and
    skips are those of the entries. ``flags``: :data:`COMPACTED` and :data:`AFTER_GAP`."""
    origins = _origins_of(entries)
    assert len(origins) <= SLOTS_MAX, "a log has no more incarnations"
    slots = {origin: slot for slot, origin in enumerate(origins)}
    name = FileName(entries[0].index, entries[-1].index, before, entries[-1].hash, level=flags & COMPACTED)
    keys = _key_rows(entries, slots)
    kinds = {entry.kind for entry in entries}
    if any(entry.key and entry.kind not in KINDS_WITH_OWN_KEYS for entry in entries):
        flags |= HAS_KEYS
    if kinds.intersection((KIND_UPDATE, KIND_SYNCHRONOUS_UPDATE)):
        flags |= HAS_UPDATES
    if kinds.intersection(SYNCHRONOUS_AND_DECISION):
        flags |= HAS_SYNCHRONOUS
    meta = msgspec.structs.replace(
        meta,
        origins=[(origin.node, origin.birth) for origin in origins],
        skips=_skips(entries),
        passed_over=[(entry.index, join_spans(entry.passed_over)) for entry in entries if entry.passed_over],
        verdicts=[(entry.index, entry.verdict == DecisionKind.COMMIT) for entry in entries if entry.verdict],
    )
    packed = msgspec.msgpack.encode(meta)
    header_bytes = (_FIXED.size + len(packed) + 7) // 8 * 8
    blocks: list[bytes] = []
    table: list[bytes] = []
    at, hash_before = header_bytes, before
    for each in split_blocks(entries):
        block = encode_block(each, hash_before, slots, level)
        table.append(_TABLE_ROW.pack(at, each[0].index, each[0].stamp))
        blocks.append(block)
        at, hash_before = at + len(block), each[-1].hash
    key_table, block_table = msgspec.msgpack.encode(keys), b"".join(table)
    end = _END.pack(crc32(key_table), at, crc32(block_table), at + len(key_table), _END_MAGIC)
    length = at + len(key_table) + len(block_table) + len(end)
    fixed = _FIXED.pack(
        *(_MAGIC, 0, FORMAT, header_bytes, flags, name.first, name.last, name.before, name.after),
        *(entries[0].stamp, entries[-1].stamp, settled, len(entries), len(blocks), length, writer, len(packed), 0),
    )
    checked = (fixed[12:] + packed).ljust(header_bytes - 12, b"\0")
    head = _MAGIC + crc32(checked).to_bytes(4, "little") + checked
    return EncodedFile(name, b"".join([head, *blocks, key_table, block_table, end]))


def fact_bytes(entry: ArchivedEntry) -> int:
    """At most so many bytes of a header tell of this entry: what it skips, and what synchronous ones come to."""
    size = _ROW_BYTES if entry.passed_over or entry.verdict else 0
    if entry.kind == KIND_SKIP:
        size += _ROW_BYTES + len(entry.key.encode())
    return size + sum(_SPAN_BYTES + len(txid.origin.node) for txid in entry.passed_over)


def header_length(data: bytes) -> int:
    """The length of the header that begins like this, as far as a reader takes it; 0 for what is no file."""
    if len(data) < _FIXED.size or data[:8] != _MAGIC:
        return 0
    length: int = _FIXED.unpack_from(data)[3]
    return min(length, HEADER_BYTES_MAX)


def decode_header(name: FileName, data: bytes | memoryview, cluster: bytes | None = None) -> FileHeader:
    """The header at the beginning of ``data``, which may end after it. :class:`FileDamaged`, also when it is not that
    of ``name``; :class:`UnknownFormat` for an intact one of another format; :class:`OtherCluster` when ``cluster`` is
    given and is another one."""
    if len(data) < _FIXED.size or data[:8] != _MAGIC:
        raise FileDamaged(f"{name} is no file of an archive, or is cut off")
    fields = _FIXED.unpack_from(data)
    _, crc, version, header_bytes, flags, first, last, before, after = fields[:9]
    first_stamp, last_stamp, settled, count, blocks, length, writer, meta_bytes, zero = fields[9:]
    if not _FIXED.size <= header_bytes <= min(len(data), HEADER_BYTES_MAX) or crc32(data[12:header_bytes]) != crc:
        raise FileDamaged(f"{name}: its header has another checksum than was written")
    if version != FORMAT:
        raise UnknownFormat(f"{name}: format {version}, this version reads {FORMAT}; use the TxLog that wrote it")
    try:
        meta = msgspec.msgpack.decode(data[_FIXED.size : _FIXED.size + meta_bytes], type=FileMeta)
    except DECODE_ERRORS as error:
        raise FileDamaged(f"{name}: its header cannot be read: {error}") from None
    said = FileName(first, last, before, after, name.attempt, flags & COMPACTED)
    rest = bytes(data[_FIXED.size + meta_bytes : header_bytes])
    if said != name or count != name.entries or zero or any(rest) or len(rest) > 7:
        raise FileDamaged(f"{name}: its header is that of another file: {said}")
    if cluster is not None and meta.cluster != cluster:
        raise OtherCluster(f"{name} belongs to cluster {meta.cluster.hex()}, not {cluster.hex()}")
    return FileHeader(flags, name, first_stamp, last_stamp, settled, blocks, length, writer, meta, header_bytes)


def decode_file(name: FileName, data: bytes, cluster: bytes | None = None) -> ArchiveFile:
    """The inverse of :func:`encode_file`, with every check; raises what :func:`decode_header` raises."""
    header = decode_header(name, data, cluster)
    if header.length != len(data) or len(data) < header.header_bytes + _END.size:
        raise FileDamaged(f"{name} has {len(data):,} of {header.length:,} bytes")
    view = memoryview(data)
    key_crc, keys_at, table_crc, table_at, magic = _END.unpack_from(data, len(data) - _END.size)
    key_table, block_table = view[keys_at:table_at], view[table_at : len(data) - _END.size]
    if magic != _END_MAGIC or crc32(key_table) != key_crc or crc32(block_table) != table_crc:
        raise FileDamaged(f"{name}: the tables at its end have other checksums than were written")
    origins = [Origin(node, birth) for node, birth in header.meta.origins]
    entries: list[ArchivedEntry] = []
    rows: list[bytes] = []
    at, value = header.header_bytes, name.before
    while len(entries) < name.entries:
        found, size = decode_block(view[at:keys_at], name.first + len(entries), value, origins, str(name))
        rows.append(_TABLE_ROW.pack(at, found[0].index, found[0].stamp))
        entries += found
        at, value = at + size, found[-1].hash
    if at != keys_at or len(entries) != name.entries or len(rows) != header.blocks or b"".join(rows) != block_table:
        raise FileDamaged(f"{name}: its blocks are not those that its tables name")
    if value != name.after:
        raise FileDamaged(f"{name}: its entries are not those of the log: the chain ends at {value.hex()}")
    keys = _decode_keys(name, key_table)
    slots = {origin: slot for slot, origin in enumerate(origins)}
    expected = _key_rows(entries, slots), _skips(entries), entries[0].stamp, entries[-1].stamp
    is_same = (keys, header.meta.skips, header.first_stamp, header.last_stamp) == expected
    if not is_same or _origins_of(entries) != origins:
        raise FileDamaged(f"{name}: its tables are not those of its entries")
    return ArchiveFile(header, _with_facts(name, header.meta, entries), keys)


def _origins_of(entries: Sequence[ArchivedEntry]) -> list[Origin]:
    return list(dict.fromkeys(entry.origin for entry in entries))


def _key_rows(entries: Sequence[ArchivedEntry], slots: dict[Origin, int]) -> list[KeyRow]:
    return [
        KeyRow(entry.index, slots[entry.origin], entry.seq, entry.first_stamp or entry.stamp, entry.content, entry.key)
        for entry in entries
        if entry.key and entry.kind not in KINDS_WITH_OWN_KEYS and not entry.is_noop
    ]


def _skips(entries: Sequence[ArchivedEntry]) -> list[tuple[int, str]]:
    return [(entry.index, entry.key) for entry in entries if entry.kind == KIND_SKIP]


def _with_facts(name: FileName, meta: FileMeta, entries: list[ArchivedEntry]) -> list[ArchivedEntry]:
    """The entries with what ``meta`` says of synchronous ones."""
    for index, spans in meta.passed_over:
        _change(name, entries, index, (KIND_DECISION,), passed_over=tuple(_names_of(name, spans)))
    for index, commits in meta.verdicts:
        verdict = DecisionKind.COMMIT if commits else DecisionKind.ROLLBACK
        _change(name, entries, index, SYNCHRONOUS_KINDS, verdict=verdict.value)
    return entries


def _change(name: FileName, entries: list[ArchivedEntry], index: int, kinds: Sequence[int], **facts: object) -> None:
    if not name.first <= index <= name.last or entries[index - name.first].kind not in kinds:
        raise FileDamaged(f"{name}: its header tells of synchronous transactions at index {index}, which has none")
    entries[index - name.first] = msgspec.structs.replace(entries[index - name.first], **facts)


def _names_of(name: FileName, spans: Sequence[Span]) -> list[Txid]:
    if sum(span.count for span in spans) > DECIDED_MAX:
        raise FileDamaged(f"{name}: its header tells of a decision about more than {DECIDED_MAX} transactions")
    return [
        Txid(Origin(span.node, span.birth), seq)
        for span in spans
        for seq in range(span.first_seq, span.first_seq + span.count)
    ]


def _decode_keys(name: FileName, data: memoryview) -> list[KeyRow]:
    try:
        return msgspec.msgpack.decode(data, type=list[KeyRow])
    except DECODE_ERRORS as error:
        raise FileDamaged(f"{name}: its table of keys cannot be read: {error}") from None


assert HEAD.size == 40
assert _FIXED.size == 128
