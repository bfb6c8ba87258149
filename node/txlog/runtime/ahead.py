"""Large payloads travel ahead of the posts that bring their transactions.

A log has one order: whatever has a later stamp waits until everybody holds what is before it. With 14 MB in a post that
is a long time, and on the link nothing passes them. So a payload of :data:`LARGE_BYTES` goes to the other masters
first, in pieces between which small messages pass, while its transaction has neither txid nor stamp and nobody waits
for it. The post then says its content hash where the payload would stand.

On each master it is also written to the disk meanwhile, beside the syncs, into the file that will be the segment of its
record (``laying.py``); it is confirmed when it is there. So nothing is left to be written of it when its transaction
stands before all others.

Nothing here is a promise. What came ahead is bounded and may be forgotten at any time: it is held when the journal
holds its record, as ever. Whoever does not have it takes nothing of the run from there on, its answer says so,
and it gets the run again with the payload in it (a payload is named once). A master that does not know these notices
answers none, and gets everything whole.
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

from txlog.journal.laid import Laid
from txlog.model.decoding import MALFORMED
from txlog.model.entry import Item, Run
from txlog.model.errors import PeerFault
from txlog.model.hashes import HASH_BYTES, content_state
from txlog.model.ids import Txid
from txlog.runtime.company import Company
from txlog.runtime.laying import Laying
from txlog.wire import messages as wire

TOPIC: Final = "ahead"
LARGE_BYTES: Final = 1 << 20
"""A payload of this size goes ahead; a smaller one is over before it is noticed."""
PIECE_BYTES: Final = 64 << 10
UNDER_WAY_BYTES: Final = 1 << 20
"""Sent to a peer and not confirmed: what a small message may find before it on the link. Over a round trip of 100 ms
that is 10 MB/s."""
WRITTEN_BYTES: Final = 256 << 10
"""Given to the disk at once, and then confirmed."""
GIVE_WAY_S: Final = 0.007
"""So long others, if there are any, have the processors, the link and the disk for themselves after so much: no more
than 36 MB/s."""
KEPT_BYTES: Final = 64 << 20
"""Of one peer, kept here until its posts name it; then the oldest is forgotten."""
PATIENCE_S: Final = 2.0
"""A peer that confirms nothing for so long gets the payload with the post."""
WHOLE_S: Final = 10.0
"""So long at most does a transaction wait for its payload to go ahead."""
DEAF_S: Final = 30.0
"""Whoever confirmed not one piece is not tried again for so long: it does not know of this, or is gone."""
TRANSFERS_MAX: Final = 2
"""At once, so that they do not hold up one another."""
NAMED_MAX: Final = 4
"""Payloads that a peer has and no post has named yet."""


class Piece(msgspec.Struct, array_like=True, frozen=True, tag="piece"):
    """Bytes from ``offset`` on of a payload of ``size`` bytes; with ``kind`` and ``key`` it has this ``content`` hash.
    The first one begins it anew."""

    content: bytes
    kind: int
    key: str
    size: int
    offset: int
    data: bytes


class Had(msgspec.Struct, array_like=True, frozen=True, tag="had"):
    """The sender has the first ``upto`` bytes; -1: it does not know the beginning."""

    content: bytes
    upto: int


_decode = msgspec.msgpack.Decoder(Piece | Had).decode


class _Coming:
    """A payload that is on its way here."""

    __slots__ = ("got", "key", "kind", "laid", "payload", "size", "state", "unwritten")

    def __init__(self, kind: int, key: str, size: int, laid: Laid | None) -> None:
        self.laid = laid
        self.kind = kind
        self.key = key
        self.size = size
        self.got = 0
        self.payload = BytesIO()
        """Grows as it comes, and is handed over without a copy: one of megabytes at its end would hold up everybody."""
        self.unwritten: list[bytes] = []
        self.state: blake2b = content_state(kind, key)


class _Going:
    """A payload that is on its way to a peer."""

    __slots__ = ("had", "news")

    def __init__(self) -> None:
        self.had = 0
        self.news = asyncio.Event()


class Ahead:
    """``send(peer, message)`` must not block. ``connected()``: the peers that hear it now. ``bytes_max``: of a
    payload. ``laying``: who writes payloads to the disk; without it they stand in memory only. ``company``: to whom all
    this gives way."""

    def __init__(
        self,
        send: Callable[[str, bytes], None],
        connected: Callable[[], Iterable[str]],
        bytes_max: int,
        laying: Laying | None = None,
        company: Company | None = None,
    ) -> None:
        self._send = send
        self._company = company or Company()
        self._laying = laying
        self._connected = connected
        self._bytes_max = bytes_max
        self._coming: dict[str, dict[bytes, _Coming]] = {}
        self._came: dict[str, dict[bytes, Item]] = {}
        """By content hash, without a stamp."""
        self._going: dict[tuple[str, bytes], _Going] = {}
        self._there: dict[str, dict[int, tuple[bytes, bytes]]] = {}
        """Per peer what it has: payload and content hash, by the identity of the payload, which is kept for that."""
        self._deaf: dict[str, float] = {}
        self._transfers = asyncio.Semaphore(TRANSFERS_MAX)
        self.named = 0
        """Payloads that posts have named instead of bringing them."""
        self.missed = 0
        """Payloads that a peer named and that were not here."""

    # Out

    async def spread(self, kind: int, key: str, payload: bytes, content: bytes) -> None:
        """Returns when every peer that is connected has it, or is known to need it with the post, and it is on the disk
        here."""
        if len(payload) < LARGE_BYTES:
            return
        async with self._transfers:
            now = time.monotonic()
            peers = [peer for peer in self._connected() if now - self._deaf.get(peer, -DEAF_S) >= DEAF_S]
            ways = [self._to(peer, kind, key, payload, content) for peer in peers]
            if self._laying is not None:
                ways.append(self._lay(self._laying, key, payload, content))
            await asyncio.gather(*ways)
            self._company.large()

    async def _lay(self, laying: Laying, key: str, payload: bytes, content: bytes) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(WHOLE_S):
                await laying.lay(content, key, payload)

    async def _to(self, peer: str, kind: int, key: str, payload: bytes, content: bytes) -> None:
        going = self._going[peer, content] = _Going()
        size, sent = len(payload), 0
        try:
            async with asyncio.timeout(WHOLE_S):
                while 0 <= going.had < size:
                    while sent < size and sent - going.had < UNDER_WAY_BYTES:
                        data = payload[sent : sent + PIECE_BYTES]
                        self._say(peer, Piece(content, kind, key, size, sent, data))
                        sent += len(data)
                        if sent % WRITTEN_BYTES == 0:
                            break
                    await self._company.rest(GIVE_WAY_S)
                    goes_on = sent < size and sent - going.had < UNDER_WAY_BYTES
                    if 0 <= going.had < size and not goes_on:
                        going.news.clear()
                        await asyncio.wait_for(going.news.wait(), PATIENCE_S)
        except TimeoutError:
            if not going.had and self._going.get((peer, content)) is going:
                self._deaf[peer] = time.monotonic()
            return
        finally:
            if self._going.get((peer, content)) is going:
                del self._going[peer, content]
        if going.had == size:
            there = self._there.setdefault(peer, {})
            there[id(payload)] = (payload, content)
            while len(there) > NAMED_MAX:
                del there[next(iter(there))]

    def refer(self, peer: str, runs: list[Run]) -> tuple[list[Run], int]:
        """The runs for a post to this peer, with content hashes for the payloads that it has, and how many these
        are. It has them for this once."""
        there = self._there.get(peer)
        if not there:
            return runs, 0
        count = 0
        found: list[Run] = []
        for run in runs:
            items: list[Item] = []
            for item in run.items:
                known = there.pop(id(item.payload), None) if len(item.payload) >= LARGE_BYTES else None
                count += known is not None
                items.append(item if known is None else Item(item.stamp, -item.kind, item.key, known[1]))
            found.append(Run(run.node, run.birth, run.first_seq, items))
        self.named += count
        return (found, count) if count else (runs, 0)

    def _say(self, peer: str, what: Piece | Had) -> None:
        self._send(peer, wire.encode(wire.Notice(TOPIC, msgspec.msgpack.encode(what))))

    # In

    def hear(self, peer: str, topic: str, body: bytes) -> None:
        """A notice of another master. :class:`PeerFault` for one that nobody sends."""
        if topic != TOPIC:
            return
        try:
            told = _decode(body)
        except MALFORMED as wrong:
            raise PeerFault(peer, "Malformed", f"a payload ahead of its post: {wrong}") from None
        if isinstance(told, Piece):
            self._take(peer, told)
            return
        going = self._going.get((peer, told.content))
        if going is not None:
            self._deaf.pop(peer, None)
            going.had = told.upto if told.upto < 0 else max(going.had, told.upto)
            going.news.set()

    def _take(self, peer: str, piece: Piece) -> None:
        """It is answered how much of it is here now, -1 without its beginning."""
        if not LARGE_BYTES <= piece.size <= self._bytes_max or len(piece.content) != HASH_BYTES:
            raise PeerFault(peer, "Malformed", f"{piece.size} bytes ahead of a post; {self._bytes_max} may be")
        if piece.offset == 0:
            self._begin(peer, piece)
        coming = self._coming.setdefault(peer, {})
        one = coming.get(piece.content)
        if one is None or one.got != piece.offset:
            self._say(peer, Had(piece.content, -1))
            return
        if one.size != piece.size or one.got + len(piece.data) > one.size or not piece.data:
            self._forget(coming, piece.content)
            raise PeerFault(peer, "Malformed", f"a piece of {len(piece.data)} bytes at {piece.offset} of {one.size}")
        one.state.update(piece.data)
        one.payload.write(piece.data)
        one.got += len(piece.data)
        if one.got == one.size and one.state.digest() != piece.content:
            self._forget(coming, piece.content)
            raise PeerFault(peer, "WrongContent", f"{one.size} bytes ahead of a post are not what their hash says")
        if one.laid is None or self._laying is None:
            if one.got == one.size:
                self._keep(peer, piece.content, one)
            else:
                self._say(peer, Had(piece.content, one.got))
            return
        one.unwritten.append(piece.data)
        if one.got == one.size:
            self._laying.write(one.laid, one.unwritten, _nothing)
            self._laying.finish(one.laid, partial(self._keep, peer, piece.content, one))
        elif sum(map(len, one.unwritten)) >= WRITTEN_BYTES:
            self._laying.write(one.laid, one.unwritten, partial(self._say, peer, Had(piece.content, one.got)))
            one.unwritten = []

    def _keep(self, peer: str, content: bytes, one: _Coming) -> None:
        """All of it is here, and on the disk if it can be."""
        if self._coming[peer].get(content) is not one:
            return  # forgotten meanwhile
        del self._coming[peer][content]
        self._company.large()
        self._came.setdefault(peer, {})[content] = Item(0, one.kind, one.key, one.payload.getvalue())
        self._say(peer, Had(content, one.size))

    def _begin(self, peer: str, piece: Piece) -> None:
        coming = self._coming.setdefault(peer, {})
        self._forget(coming, piece.content)
        self._make_room(peer, piece.size)
        laid = None if self._laying is None else self._laying.begin(piece.content, piece.size, piece.key)
        coming[piece.content] = _Coming(piece.kind, piece.key, piece.size, laid)

    def _forget(self, coming: dict[bytes, _Coming], content: bytes) -> None:
        one = coming.pop(content, None)
        if one is not None and one.laid is not None and self._laying is not None:
            self._laying.drop(one.laid)

    def _make_room(self, peer: str, size: int) -> None:
        """The oldest of this peer goes; first what is here in whole, for its post may never come."""
        coming, came = self._coming[peer], self._came.setdefault(peer, {})
        kept = sum(len(one.payload) for one in came.values()) + sum(one.size for one in coming.values())
        while kept + size > KEPT_BYTES and came:
            kept -= len(came.pop(next(iter(came))).payload)
        while kept + size > KEPT_BYTES and coming:
            content = next(iter(coming))
            kept -= coming[content].size
            self._forget(coming, content)

    def resolve(self, peer: str, runs: list[Run]) -> tuple[list[Run], dict[Txid, bytes], int]:
        """The runs of a post that names payloads, with these in them; up to the first that is not here. The content
        hashes of those that were found, and how many bytes they are."""
        came = self._came.get(peer, {})
        contents: dict[Txid, bytes] = {}
        size = 0
        found: list[Run] = []
        for run in runs:
            items: list[Item] = []
            for seq, item in enumerate(run.items, run.first_seq):
                if item.kind < 0:
                    one = came.pop(item.payload, None)
                    if one is None or (one.kind, one.key) != (-item.kind, item.key):
                        self.missed += 1
                        found.append(Run(run.node, run.birth, run.first_seq, items))
                        return found, contents, size
                    contents[Txid(run.origin, seq)] = item.payload
                    size += len(one.payload)
                    items.append(Item(item.stamp, one.kind, one.key, one.payload))
                else:
                    items.append(item)
            found.append(Run(run.node, run.birth, run.first_seq, items))
        return found, contents, size


def _nothing() -> None:
    """What is left is confirmed with the whole."""
