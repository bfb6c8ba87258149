"""Log starts as bytes, and how each follows from the log. Not compiled: MessagePack reads types."""

from __future__ import annotations

from bisect import bisect_right
from hashlib import blake2b
from typing import Final

import msgspec

from txlog.model.entry import Span
from txlog.model.ids import Origin
from txlog.model.records import AbandonedBranch, LogStart
from txlog.protocol.log.key_table import ROW_BYTES, KeyTableSnapshot
from txlog.protocol.log.log_state import LogState
from txlog.wire.messages import SnapshotChunk

KEY_PART_BYTES: Final = 1 << 20
"""Bytes of a table of keys in one record of the journal, and in one turn of the loop."""
BUCKETS_IN_A_PART: Final = 256
"""Buckets of a table of keys in one part of a snapshot: at most about 1 MiB. Their number tells the number of parts, so
no turn has to look at every bucket."""
PARTS_IN_A_TURN: Final = 4
"""Parts that one turn of the loop reads when a snapshot is prepared: some milliseconds."""

decode_log_start = msgspec.msgpack.Decoder(LogStart).decode
_encode = msgspec.msgpack.Encoder().encode


class PlannedLogStart:
    """A log start that is being written: the table of keys, part by part, then the log start itself.

    The table and what it decides are those of the final part of the log now. That may end behind the log start at
    ``index``, whose entry has the stamp ``stamp``: so the journal's entries are not read again. ``served_from``: the
    lowest position that can be served from then on."""

    def __init__(self, log: LogState, index: int, stamp: int, served_from: int = 0) -> None:
        self.log = log
        self.index = index
        self.table: KeyTableSnapshot = log.keys.snapshot()
        self.parts = 0
        self._fields = {
            "stamp": stamp,
            "noops": _noops(log, index),
            "served_from": served_from if served_from > index else 0,
            "synchronous": log.synchronous.state_at(log.final_index, index),
            **log.keys.log_start_fields(log.final_index),
        }

    def log_start(self, *, keeps_branches: bool) -> LogStart:
        """The log start, once all parts are written. ``keeps_branches``: with all abandoned branches, because a worker
        names positions on them."""
        in_use = keeps_branches or _are_branches_in_use(self.log, self.index)
        branches = list(self.log.abandoned_branches) if in_use else []
        return _log_start(self.log, self.index, branches, key_parts=self.parts, **self._fields)


def key_table_bytes(log: LogState) -> int:
    """The bytes that the table of keys takes in a log start."""
    return ROW_BYTES * len(log.keys.final)


def _noops(log: LogState, index: int) -> list[tuple[int, str, int, int]]:
    last = log.keys.decided_up_to(log.final_index)
    return [(at, *txid.origin, txid.seq) for at, txid in sorted(log.noops.items()) if index < at <= last]


def _log_start(log: LogState, index: int, branches: list[AbandonedBranch], **fields: object) -> LogStart:
    history = log.log_index
    place = log.configurations.at_index(index)
    last = history.spans(index - 1, index)[0]
    found = LogStart(
        index,
        history.hash_at(index),
        (last.node, last.birth),
        0,
        history.seqs_at(index),
        [],
        sorted((txid, at) for txid, at in log.skips.items() if at <= index),
        branches,
        (place.since, place.configuration),
    )
    return msgspec.structs.replace(found, **fields)


def _are_branches_in_use(log: LogState, index: int) -> bool:
    """Whether a transaction of an abandoned branch follows ``index``, up to which the log is trimmed: a worker may
    still pass over it. All branches are kept then, because one may begin on another."""
    history = log.log_index

    def is_below(span: Span) -> bool:
        origin, last = Origin(span.node, span.birth), span.first_seq + span.count - 1
        return history.is_trimmed(origin, last) or 1 <= history.index_of(origin, last) <= index

    return not all(is_below(span) for branch in log.abandoned_branches for span in branch.spans)


class SnapshotChunks:
    """A log start with its table of keys, as the chunks in which it is sent. All chunks of one snapshot have the keys
    of one moment. Its bytes are never all in memory: they are encoded again where they are sent, from the buckets of
    that moment, which the log has too."""

    def __init__(self) -> None:
        self._snapshot: _EncodedSnapshot | None = None
        self._receivers: set[str] = set()
        """The peers that have got a chunk, and not the last one."""

    def prepare(self, log: LogState) -> bool:
        """Does one turn's work on the snapshot of the current log start; True once its chunks can be sent."""
        if self._snapshot is None or log.log_index.log_start is not self._snapshot.source:
            self._snapshot = _EncodedSnapshot(log)
            self._receivers.clear()
        return self._snapshot.measure()

    def chunk(self, peer: str, index: int, offset: int, size: int) -> SnapshotChunk | None:
        """The bytes from ``offset`` on, of a snapshot that is prepared; None when the requested log start is not the
        current one any more. After the last chunk of the last peer, the buckets of that moment are forgotten."""
        found = self._snapshot
        assert found is not None, "a snapshot is prepared before a chunk of it is sent"
        if (index and index != found.source.index) or not 0 <= offset < found.total:
            return None
        data = found.read(offset, size)
        self._receivers.add(peer)
        if offset + len(data) == found.total:
            self._receivers.discard(peer)
            if not self._receivers:
                self._snapshot = None
        return SnapshotChunk(found.source.index, found.total, found.digest, offset, data)


class _EncodedSnapshot:
    """The encoding of a log start: what is before the parts of its table of keys, each part, and what is behind them.
    ``total`` and ``digest`` are those of all of it, once :meth:`measure` has returned True."""

    def __init__(self, log: LogState) -> None:
        self.source = log.log_index.log_start
        self.digest = b""
        self.total = 0
        self._table = log.keys.snapshot()
        self._hash = blake2b(digest_size=16)
        self._ends: list[int] = []
        """Where each piece ends in the encoding: the beginning, each part, the rest."""
        self._last_read = (-1, b"")
        fields = log.keys.log_start_fields(log.final_index)
        noops = _noops(log, self.source.index)
        fields["synchronous"] = log.synchronous.state_at(log.final_index, self.source.index)
        self._log_start = msgspec.structs.replace(self.source, keys=[], key_parts=0, noops=noops, **fields)
        self._table_parts = -(-self._table.bucket_count // BUCKETS_IN_A_PART)
        self._add(self._piece(0))

    def measure(self) -> bool:
        """Reads the next parts, at most :data:`PARTS_IN_A_TURN`. True when all are read."""
        for _ in range(PARTS_IN_A_TURN):
            if self.digest:
                break
            self._add(self._piece(len(self._ends)))
            if len(self._ends) == self._table_parts + 2:
                self.total, self.digest = self._ends[-1], self._hash.digest()
        return bool(self.digest)

    def read(self, offset: int, size: int) -> bytes:
        """The bytes from ``offset`` on, up to ``size`` of them."""
        found, at = bytearray(), bisect_right(self._ends, offset)
        while len(found) < size and at < len(self._ends):
            if self._last_read[0] != at:
                self._last_read = (at, self._piece(at))
            piece = self._last_read[1]
            begin = offset + len(found) - (self._ends[at] - len(piece))
            found += piece[begin : begin + size - len(found)]
            at += 1
        return bytes(found)

    def _add(self, piece: bytes) -> None:
        self._hash.update(piece)
        self._ends.append((self._ends[-1] if self._ends else 0) + len(piece))

    def _piece(self, at: int) -> bytes:
        """A struct is an array in MessagePack, so its encoding is a header and the encodings of its fields."""
        names = LogStart.__struct_fields__
        before = names.index("key_table")
        if at == 0:
            values = [getattr(self._log_start, name) for name in names[:before]]
            return _array_header(len(names)) + b"".join(map(_encode, values)) + _array_header(self._table_parts)
        if at <= self._table_parts:
            return _encode(self._table.part((at - 1) * BUCKETS_IN_A_PART, at * BUCKETS_IN_A_PART))
        return b"".join(_encode(getattr(self._log_start, name)) for name in names[before + 1 :])


def _array_header(count: int) -> bytes:
    if count < 16:
        return bytes((0x90 | count,))
    return b"\xdc" + count.to_bytes(2, "big") if count < 1 << 16 else b"\xdd" + count.to_bytes(4, "big")
