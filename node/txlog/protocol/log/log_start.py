"""Log starts as bytes, and how each follows from the log. Not compiled: MessagePack reads types."""

from __future__ import annotations

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

decode_log_start = msgspec.msgpack.Decoder(LogStart).decode
_encode = msgspec.msgpack.Encoder().encode


class PlannedLogStart:
    """A log start that is being written: the table of keys, part by part, then the log start itself.

    The table and what it decides are those of the final part of the log now. That may end behind the log start at
    ``index``, whose entry has the stamp ``stamp``: so the journal's entries are not read again."""

    def __init__(self, log: LogState, index: int, stamp: int) -> None:
        self.log = log
        self.index = index
        self.table: KeyTableSnapshot = log.keys.snapshot()
        self.parts = 0
        self._fields = {"stamp": stamp, "noops": _noops(log, index), **log.keys.log_start_fields(log.final_index)}

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
    return [(at, *txid.origin, txid.seq) for at, txid in sorted(log.noops.items()) if index < at <= log.final_index]


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
    """A log start with its table of keys, as the chunks in which it is sent. Encoded once for each log start, with the
    keys of that moment: all parts of one snapshot belong together."""

    def __init__(self) -> None:
        self._log_start: LogStart | None = None
        self._data = b""
        self._digest = b""

    def chunk(self, log: LogState, index: int, offset: int, size: int) -> SnapshotChunk | None:
        """The bytes from ``offset`` on; None when the requested log start is not the current one any more."""
        log_start = log.log_index.log_start
        if log_start is not self._log_start:
            self._log_start, self._data = log_start, _encode(_with_keys(log))
            self._digest = blake2b(self._data, digest_size=16).digest()
        if (index and index != log_start.index) or not 0 <= offset < len(self._data):
            return None
        return SnapshotChunk(log_start.index, len(self._data), self._digest, offset, self._data[offset : offset + size])


def _with_keys(log: LogState) -> LogStart:
    start, table, parts = log.log_index.log_start, log.keys.snapshot(), []
    while not table.is_complete:
        parts.append(table.next_part(KEY_PART_BYTES))
    fields = log.keys.log_start_fields(log.final_index)
    noops = _noops(log, start.index)
    return msgspec.structs.replace(start, keys=[], key_parts=0, key_table=parts, noops=noops, **fields)
