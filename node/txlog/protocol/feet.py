"""Feet of logs as bytes, and how the next one follows from the one before. Not compiled: MessagePack reads types."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from typing import NamedTuple

import msgspec

from txlog.model.entry import Item
from txlog.model.ids import Origin, Txid
from txlog.model.records import Foot
from txlog.protocol.agreement import Agreement
from txlog.protocol.keys import First
from txlog.wire.messages import SnapshotChunk

decode_foot = msgspec.msgpack.Decoder(Foot).decode
_encode = msgspec.msgpack.Encoder().encode


class Named(NamedTuple):
    """An entry of the log with an idempotency key."""

    at: int
    origin: Origin
    seq: int
    item: Item
    content: bytes


def next_foot(agreement: Agreement, index: int, stamp: int, named: Iterable[Named]) -> Foot:
    """The foot at ``index``, whose entry has this stamp; ``named``: the keyed entries between it and the foot of now,
    in the order of the log. Keys are decided from the log alone, so they follow from the foot and these."""
    history = agreement.history
    keys = agreement.keys.copy_at(history.foot)
    changes = agreement.keys.changes(history.start, index)
    for one in named:
        while changes and changes[0][0] < one.at:
            keys.retain(*changes.pop(0))
        keys.entered(one.at, one.item.key, First(Txid(one.origin, one.seq), one.item.stamp, one.content))
    for change in changes:
        keys.retain(*change)
    place = agreement.configurations.place(index)
    last = history.spans(index - 1, index)[0]
    skips = sorted((txid, at) for txid, at in agreement.skips.items() if at <= index)
    return Foot(
        index,
        history.hash_at(index),
        (last.node, last.birth),
        stamp,
        history.seqs_at(index),
        keys.kept(stamp),
        skips,
        list(agreement.abandoned),
        (place.since, place.configuration),
        *keys.times,
    )


class Pieces:
    """The foot as it is sent, made once for each."""

    def __init__(self) -> None:
        self._foot: Foot | None = None
        self._data = b""
        self._digest = b""

    def piece(self, foot: Foot, index: int, offset: int, size: int) -> SnapshotChunk | None:
        """The bytes from ``offset`` on; None when the foot asked for is not this one any more."""
        if foot is not self._foot:
            self._foot, self._data = foot, _encode(foot)
            self._digest = blake2b(self._data, digest_size=16).digest()
        if (index and index != foot.index) or not 0 <= offset < len(self._data):
            return None
        return SnapshotChunk(foot.index, len(self._data), self._digest, offset, self._data[offset : offset + size])
