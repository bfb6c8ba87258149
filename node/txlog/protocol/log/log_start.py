"""Log starts as bytes, and how each follows from the one before. Not compiled: MessagePack reads types."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from typing import NamedTuple

import msgspec

from txlog.model.entry import RunItem
from txlog.model.ids import Origin, Txid
from txlog.model.records import LogStart
from txlog.protocol.log.idempotency_keys import FirstUse
from txlog.protocol.log.log_state import LogState
from txlog.wire.messages import SnapshotChunk

decode_log_start = msgspec.msgpack.Decoder(LogStart).decode
_encode = msgspec.msgpack.Encoder().encode


class KeyedLogEntry(NamedTuple):
    """An entry of the log with an idempotency key."""

    log_index: int
    origin: Origin
    seq: int
    item: RunItem
    content: bytes


def next_log_start(agreement: LogState, index: int, stamp: int, named: Iterable[KeyedLogEntry]) -> LogStart:
    """The log start at ``index``, whose entry has this stamp. ``named``: the keyed entries between it and the current
    log start, in log order. Keys are decided from the log alone, so they follow from the current log start and
    these."""
    history = agreement.log_index
    keys = agreement.keys.copy_at(history.log_start)
    changes = agreement.keys.retention_changes(history.start, index)
    for one in named:
        while changes and changes[0][0] < one.log_index:
            keys.change_retention(*changes.pop(0))
        keys.record_use(one.log_index, one.item.key, FirstUse(Txid(one.origin, one.seq), one.item.stamp, one.content))
    for change in changes:
        keys.change_retention(*change)
    place = agreement.configurations.at_index(index)
    last = history.spans(index - 1, index)[0]
    skips = sorted((txid, at) for txid, at in agreement.skips.items() if at <= index)
    return LogStart(
        index,
        history.hash_at(index),
        (last.node, last.birth),
        stamp,
        history.seqs_at(index),
        keys.retained_uses(stamp),
        skips,
        list(agreement.abandoned_branches),
        (place.since, place.configuration),
        *keys.retention_state,
    )


class SnapshotChunks:
    """A log start as the chunks in which it is sent, encoded once for each log start."""

    def __init__(self) -> None:
        self._log_start: LogStart | None = None
        self._data = b""
        self._digest = b""

    def chunk(self, log_start: LogStart, index: int, offset: int, size: int) -> SnapshotChunk | None:
        """The bytes from ``offset`` on; None when the requested log start is not the current one any more."""
        if log_start is not self._log_start:
            self._log_start, self._data = log_start, _encode(log_start)
            self._digest = blake2b(self._data, digest_size=16).digest()
        if (index and index != log_start.index) or not 0 <= offset < len(self._data):
            return None
        return SnapshotChunk(log_start.index, len(self._data), self._digest, offset, self._data[offset : offset + size])
