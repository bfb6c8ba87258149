"""Large payloads travel ahead of the posts that bring their transactions.

A log has one order: a transaction with a later stamp waits until every member holds all earlier ones. With 14 MB in a
post that takes long, and no other message passes it on the link. So this module first sends a payload of
:data:`LARGE_PAYLOAD_BYTES` to the other masters, in chunks between which small messages pass. Meanwhile its
transaction has neither txid nor stamp, and no other transaction waits for it. The post then carries the content hash
in place of the payload.

Each master also writes the payload to the disk meanwhile, in parallel with the syncs. It writes into the file that
will be the segment of its record (``payload_writer.py``), and acknowledges it when it is there. So no payload is left
to write when its transaction is first in the order.

Nothing here is a promise. The buffer is bounded, and a receiver may forget a payload at any time. A payload is held
only when the journal holds its record, as always. A receiver without the payload takes nothing of the run from there
on, and its answer reports that. The sender then sends the run again with the payload in it (a payload is named once).
A master that does not know these notices answers none, and receives every payload with its post.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterable
from functools import partial
from hashlib import blake2b
from io import BytesIO
from typing import Final

import msgspec

from txlog.journal.staged_payload import StagedPayload
from txlog.model.bounds import Count, Key, Kind
from txlog.model.decode_errors import DECODE_ERRORS
from txlog.model.entry import RunItem, TransactionRun
from txlog.model.errors import PeerFault
from txlog.model.hashes import HASH_BYTES, content_state
from txlog.model.ids import Txid
from txlog.runtime.interactive_load import InteractiveLoad
from txlog.runtime.payload_writer import PayloadWriter
from txlog.wire import messages as wire

TOPIC: Final = "ahead"
LARGE_PAYLOAD_BYTES: Final = 1 << 20
"""A payload of this size is sent ahead; a smaller one causes no noticeable delay."""
CHUNK_BYTES: Final = 64 << 10
UNACKED_BYTES_MAX: Final = 1 << 20
"""Sent to a peer and not acknowledged: the most that a small message finds before it on the link. Over a round trip of
100 ms that is 10 MB/s."""
WRITE_BATCH_BYTES: Final = 256 << 10
"""Written to the disk at once, and then acknowledged."""
YIELD_S: Final = 0.007
"""Seconds of yield to interactive load, if there is any, after each batch: processors, link and disk are free for it.
That allows no more than 36 MB/s."""
BUFFERED_BYTES_MAX: Final = 64 << 20
"""Of one peer, kept here until its posts name it; then the oldest is forgotten."""
ACK_TIMEOUT_S: Final = 2.0
"""A peer that acknowledges nothing for so long gets the payload with the post."""
TRANSFER_TIMEOUT_S: Final = 10.0
"""The longest time that a transaction waits for its payload to be sent ahead."""
RETRY_UNRESPONSIVE_S: Final = 30.0
"""A peer that acknowledged no chunk is not tried again for so long: it does not know these notices, or is gone."""
TRANSFERS_MAX: Final = 2
"""Concurrent transfers, few so that they do not delay each other."""
REPLICATED_PAYLOADS_MAX: Final = 4
"""Payloads that a peer has and no post has named yet."""


class PayloadChunk(msgspec.Struct, array_like=True, frozen=True, tag="piece"):
    """Bytes from ``offset`` on of a payload of ``size`` bytes; with ``kind`` and ``key`` it has this ``content`` hash.
    The chunk at offset 0 restarts the transfer."""

    content: bytes
    kind: Kind
    key: Key
    size: Count
    offset: Count
    data: bytes


class TransferAck(msgspec.Struct, array_like=True, frozen=True, tag="had"):
    """The sender has the first ``upto`` bytes; -1: it lacks the beginning."""

    content: bytes
    upto: int


_decode_message = msgspec.msgpack.Decoder(PayloadChunk | TransferAck).decode


class _IncomingTransfer:
    """A payload that this master is receiving."""

    __slots__ = ("hasher", "key", "kind", "payload", "received_bytes", "size", "staged", "unwritten")

    def __init__(self, kind: int, key: str, size: int, laid: StagedPayload | None) -> None:
        self.staged = laid
        self.kind = kind
        self.key = key
        self.size = size
        self.received_bytes = 0
        self.payload = BytesIO()
        """Grows with each chunk, and is handed over without a copy: a copy of megabytes at its end would delay all
        requests."""
        self.unwritten: list[bytes] = []
        self.hasher: blake2b = content_state(kind, key)


class _OutgoingTransfer:
    """A payload that this master is sending to a peer."""

    __slots__ = ("acked_bytes", "progress")

    def __init__(self) -> None:
        self.acked_bytes = 0
        self.progress = asyncio.Event()


class PayloadTransfer:
    """``send(peer, message)`` must not block. ``connected()``: the peers that are connected now. ``bytes_max``: the
    limit of a payload. ``laying``: writes payloads to the disk; without it they are in memory only. ``company``: the
    interactive load to which all this yields."""

    def __init__(
        self,
        send: Callable[[str, bytes], None],
        connected: Callable[[], Iterable[str]],
        bytes_max: int,
        laying: PayloadWriter | None = None,
        company: InteractiveLoad | None = None,
    ) -> None:
        self._send = send
        self._interactive_load = company or InteractiveLoad()
        self._payload_writer = laying
        self._connected = connected
        self._bytes_max = bytes_max
        self._incoming: dict[str, dict[bytes, _IncomingTransfer]] = {}
        self._received: dict[str, dict[bytes, RunItem]] = {}
        """By content hash, without a stamp."""
        self._outgoing: dict[tuple[str, bytes], _OutgoingTransfer] = {}
        self._payloads_at_peer: dict[str, dict[int, tuple[bytes, bytes]]] = {}
        """Per peer, the payloads that it has: payload and content hash, by the identity of the payload, which is kept
        alive for that."""
        self._unresponsive_since: dict[str, float] = {}
        self._transfer_slots = asyncio.Semaphore(TRANSFERS_MAX)
        self.substituted = 0
        """Payloads that posts have named instead of carrying them."""
        self.missed = 0
        """Payloads that a peer named and that this master does not have."""

    # Out

    async def replicate(self, kind: int, key: str, payload: bytes, content: bytes) -> None:
        """Send a payload ahead. Returns when every connected peer has it or is known to need it with the post, and it
        is on the local disk."""
        if len(payload) < LARGE_PAYLOAD_BYTES:
            return
        async with self._transfer_slots:
            now = time.monotonic()
            peers = [
                peer
                for peer in self._connected()
                if now - self._unresponsive_since.get(peer, -RETRY_UNRESPONSIVE_S) >= RETRY_UNRESPONSIVE_S
            ]
            ways = [self._send_to(peer, kind, key, payload, content) for peer in peers]
            if self._payload_writer is not None:
                ways.append(self._write_locally(self._payload_writer, key, payload, content))
            await asyncio.gather(*ways)
            self._interactive_load.expect_large_entry()

    async def _write_locally(self, laying: PayloadWriter, key: str, payload: bytes, content: bytes) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(TRANSFER_TIMEOUT_S):
                await laying.write_all(content, key, payload)

    async def _send_to(self, peer: str, kind: int, key: str, payload: bytes, content: bytes) -> None:
        going = self._outgoing[peer, content] = _OutgoingTransfer()
        size, sent = len(payload), 0
        try:
            async with asyncio.timeout(TRANSFER_TIMEOUT_S):
                while 0 <= going.acked_bytes < size:
                    while sent < size and sent - going.acked_bytes < UNACKED_BYTES_MAX:
                        data = payload[sent : sent + CHUNK_BYTES]
                        self._send_message(peer, PayloadChunk(content, kind, key, size, sent, data))
                        sent += len(data)
                        if sent % WRITE_BATCH_BYTES == 0:
                            break
                    await self._interactive_load.throttle(YIELD_S)
                    goes_on = sent < size and sent - going.acked_bytes < UNACKED_BYTES_MAX
                    if 0 <= going.acked_bytes < size and not goes_on:
                        going.progress.clear()
                        await asyncio.wait_for(going.progress.wait(), ACK_TIMEOUT_S)
        except TimeoutError:
            if not going.acked_bytes and self._outgoing.get((peer, content)) is going:
                self._unresponsive_since[peer] = time.monotonic()
            return
        finally:
            if self._outgoing.get((peer, content)) is going:
                del self._outgoing[peer, content]
        if going.acked_bytes == size:
            there = self._payloads_at_peer.setdefault(peer, {})
            there[id(payload)] = (payload, content)
            while len(there) > REPLICATED_PAYLOADS_MAX:
                del there[next(iter(there))]

    def substitute(self, peer: str, runs: list[TransactionRun]) -> tuple[list[TransactionRun], int]:
        """The runs for a post to this peer, with content hashes for the payloads that it has, and the number of these
        payloads. Each is substituted once."""
        there = self._payloads_at_peer.get(peer)
        if not there:
            return runs, 0
        count = 0
        found: list[TransactionRun] = []
        for run in runs:
            items: list[RunItem] = []
            for item in run.items:
                known = there.pop(id(item.payload), None) if len(item.payload) >= LARGE_PAYLOAD_BYTES else None
                count += known is not None
                items.append(item if known is None else _with_payload(item, -item.kind, known[1]))
            found.append(TransactionRun(run.node, run.birth, run.first_seq, items))
        self.substituted += count
        return (found, count) if count else (runs, 0)

    def _send_message(self, peer: str, what: PayloadChunk | TransferAck) -> None:
        self._send(peer, wire.encode(wire.Notice(TOPIC, msgspec.msgpack.encode(what))))

    # In

    def on_notice(self, peer: str, topic: str, body: bytes) -> None:
        """Process a notice of another master. Raises :class:`PeerFault` for a malformed one."""
        if topic != TOPIC:
            return
        try:
            message = _decode_message(body)
        except DECODE_ERRORS as wrong:
            raise PeerFault(peer, "Malformed", f"a payload ahead of its post: {wrong}") from None
        if isinstance(message, PayloadChunk):
            self._on_chunk(peer, message)
            return
        going = self._outgoing.get((peer, message.content))
        if going is not None:
            self._unresponsive_since.pop(peer, None)
            going.acked_bytes = message.upto if message.upto < 0 else max(going.acked_bytes, message.upto)
            going.progress.set()

    def _on_chunk(self, peer: str, piece: PayloadChunk) -> None:
        """Acknowledge how much of the payload is here now; -1 without its beginning."""
        if not LARGE_PAYLOAD_BYTES <= piece.size <= self._bytes_max or len(piece.content) != HASH_BYTES:
            raise PeerFault(peer, "Malformed", f"{piece.size} bytes ahead of a post; {self._bytes_max} may be")
        if piece.offset == 0:
            self._begin_incoming(peer, piece)
        coming = self._incoming.setdefault(peer, {})
        one = coming.get(piece.content)
        if one is None or one.received_bytes != piece.offset:
            self._send_message(peer, TransferAck(piece.content, -1))
            return
        if one.size != piece.size or one.received_bytes + len(piece.data) > one.size or not piece.data:
            self._drop_incoming(coming, piece.content)
            raise PeerFault(peer, "Malformed", f"a piece of {len(piece.data)} bytes at {piece.offset} of {one.size}")
        one.hasher.update(piece.data)
        one.payload.write(piece.data)
        one.received_bytes += len(piece.data)
        if one.received_bytes == one.size and one.hasher.digest() != piece.content:
            self._drop_incoming(coming, piece.content)
            raise PeerFault(peer, "WrongContent", f"{one.size} bytes ahead of a post are not what their hash says")
        if one.staged is None or self._payload_writer is None:
            if one.received_bytes == one.size:
                self._complete(peer, piece.content, one)
            else:
                self._send_message(peer, TransferAck(piece.content, one.received_bytes))
            return
        one.unwritten.append(piece.data)
        if one.received_bytes == one.size:
            self._payload_writer.write(one.staged, one.unwritten, _no_op)
            self._payload_writer.finish(one.staged, partial(self._complete, peer, piece.content, one))
        elif sum(map(len, one.unwritten)) >= WRITE_BATCH_BYTES:
            self._payload_writer.write(
                one.staged,
                one.unwritten,
                partial(self._send_message, peer, TransferAck(piece.content, one.received_bytes)),
            )
            one.unwritten = []

    def _complete(self, peer: str, content: bytes, one: _IncomingTransfer) -> None:
        """The whole payload is here, and on the disk if it can be."""
        if self._incoming[peer].get(content) is not one:
            return  # forgotten meanwhile
        del self._incoming[peer][content]
        self._interactive_load.expect_large_entry()
        self._received.setdefault(peer, {})[content] = RunItem(0, one.kind, one.key, one.payload.getvalue())
        self._send_message(peer, TransferAck(content, one.size))

    def _begin_incoming(self, peer: str, piece: PayloadChunk) -> None:
        coming = self._incoming.setdefault(peer, {})
        self._drop_incoming(coming, piece.content)
        self._make_room(peer, piece.size)
        laid = (
            None if self._payload_writer is None else self._payload_writer.begin(piece.content, piece.size, piece.key)
        )
        coming[piece.content] = _IncomingTransfer(piece.kind, piece.key, piece.size, laid)

    def _drop_incoming(self, coming: dict[bytes, _IncomingTransfer], content: bytes) -> None:
        one = coming.pop(content, None)
        if one is not None and one.staged is not None and self._payload_writer is not None:
            self._payload_writer.discard(one.staged)

    def _make_room(self, peer: str, size: int) -> None:
        """Drop the oldest payloads of this peer; complete ones first, for their post may never come."""
        coming, came = self._incoming[peer], self._received.setdefault(peer, {})
        kept = sum(len(one.payload) for one in came.values()) + sum(one.size for one in coming.values())
        while kept + size > BUFFERED_BYTES_MAX and came:
            kept -= len(came.pop(next(iter(came))).payload)
        while kept + size > BUFFERED_BYTES_MAX and coming:
            content = next(iter(coming))
            kept -= coming[content].size
            self._drop_incoming(coming, content)

    def restore(self, peer: str, runs: list[TransactionRun]) -> tuple[list[TransactionRun], dict[Txid, bytes], int]:
        """The runs of a post that names payloads, with these payloads inserted, up to the first one that is missing.
        Also the content hashes of the payloads found, and their total size in bytes."""
        came = self._received.get(peer, {})
        contents: dict[Txid, bytes] = {}
        size = 0
        found: list[TransactionRun] = []
        for run in runs:
            items: list[RunItem] = []
            for seq, item in enumerate(run.items, run.first_seq):
                if item.kind < 0:
                    one = came.pop(item.payload, None)
                    if one is None or (one.kind, one.key) != (-item.kind, item.key):
                        self.missed += 1
                        found.append(TransactionRun(run.node, run.birth, run.first_seq, items))
                        return found, contents, size
                    contents[Txid(run.origin, seq)] = item.payload
                    size += len(one.payload)
                    items.append(_with_payload(item, one.kind, one.payload))
                else:
                    items.append(item)
            found.append(TransactionRun(run.node, run.birth, run.first_seq, items))
        return found, contents, size


def _with_payload(item: RunItem, kind: int, payload: bytes) -> RunItem:
    return RunItem(item.stamp, kind, item.key, payload, item.first_stamp)


def _no_op() -> None:
    """The last chunk needs no acknowledgement of its own: the whole payload is acknowledged."""
