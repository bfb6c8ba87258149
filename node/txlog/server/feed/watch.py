"""The log as a feed that does not end: ``GET /txlog/watch``, for caches, search indexes, audits, copies elsewhere.

A follower is told what stands in the stable log, in its order, from any place that the log still holds. What it was
told is taken back in one case only, and by name: where a rejoin ordered anew what its side had ordered alone
(``rewound``). Who asks for ``level=settled`` is told only what no rejoin moves.

A follower costs one page in memory. It is written no faster than it reads, and holds back neither the log's trim nor
other followers; one that reads nothing for :data:`STALLED_S` is let go.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import msgspec
from aiohttp import web

from txlog.model.entry import NOT_FOR_WORKERS, Position
from txlog.model.errors import (
    BadInput,
    LogAhead,
    LogDiverged,
    LogGone,
    LogNeedsRestore,
    NotAcceptable,
    Unavailable,
)
from txlog.protocol.agreement import Agreement
from txlog.runtime.site import Site
from txlog.runtime.web import API_HEADER, API_VERSION, Request, Response, Route, number_of
from txlog.server.feed.pages import Pages
from txlog.wire.feed import (
    BEAT,
    EVENTS,
    FORMS,
    LINES,
    PATCH,
    Asked,
    FeedEvent,
    entry_event,
    name_of,
    place_of,
    stops_patch,
    write,
)
from txlog.wire.pages import PageEntry

FOLLOWERS_MAX: Final = 64
"""At one master."""
PAGE_BYTES: Final = 256 << 10
"""Read at a time for one follower; a larger entry comes alone."""
HEARTBEAT_S: Final = 15
HEARTBEAT_S_MAX: Final = 300
LOOK_S: Final = 1.0
"""How soon a follower that has gone away is noticed, and one of what is settled hears of it."""
AHEAD_S: Final = 2.0
"""A follower may come from a master that is a little further; so long it waits for this one."""
STALLED_S: Final = 120.0
RETRY_MS: Final = 1000
"""After what time a browser comes back."""
_PARAMETERS: Final = frozenset({"from", "until", "level", "heartbeat", "updates"})


class _Wish(msgspec.Struct, frozen=True):
    """What a follower asked for. ``start`` None: from now on; ``until`` -1: what is stable now, None: for ever."""

    form: str
    start: Asked | None
    until: int | None
    settled: bool
    heartbeat_s: int
    updates: bool


class Watch:
    """``shared(index, hash)``: the last index that the log has in common with an order that this master gave up."""

    def __init__(self, site: Site, pages: Pages, shared: Callable[[int, bytes], Awaitable[int | None]]) -> None:
        self._site = site
        self._loop = site.loop
        self._pages = pages
        self._shared = shared
        self._waiting: set[asyncio.Future[bool]] = set()
        self.feeds: set[_Feed] = set()
        self._begun = 0

    def routes(self) -> list[Route]:
        return [Route("GET", "/txlog/watch", self.get)]

    def wake(self) -> None:
        """The log was cut, or this master ends: every follower looks."""
        for future in self._waiting:
            if not future.done():
                future.set_result(True)

    async def get(self, request: Request, _: Mapping[str, str]) -> Response:
        """Server-sent events, JSON lines or RDF Patch by ``Accept``. ``from`` (or ``Last-Event-ID``, which counts
        more): the place behind which it begins, ``now`` by default; ``until``: the index at which it ends, or ``now``;
        ``level``: ``stable`` or ``settled``; ``heartbeat``: seconds between signs of life; ``updates=header``: RDF
        Patch carries SPARQL updates in a header. :class:`LogGone`, :class:`LogDiverged`, :class:`LogAhead`."""
        wish = _wish_of(request)
        if self._site.closing:
            raise _closing()
        if self._begun >= FOLLOWERS_MAX:
            raise Unavailable("TooManyFollowers", f"{self._begun} follow this master already; ask another one", 10)
        self._begun += 1
        try:
            return await self._follow(request, wish)
        finally:
            self._begun -= 1

    async def _follow(self, request: Request, wish: _Wish) -> Response:
        at = await self._begin(wish)
        if wish.until == -1:
            wish = msgspec.structs.replace(wish, until=max(self.end(wish.settled), at.index))
        await self._refuse_update(wish, at)
        response = web.StreamResponse(
            headers={
                "Content-Type": wish.form,
                "Cache-Control": "no-store",
                "X-Accel-Buffering": "no",
                "TxLog-Position": str(at),
                API_HEADER: API_VERSION,
            }
        )
        await response.prepare(request)
        if request.method == "HEAD":
            return response
        feed = _Feed(self, request, response, wish, at)
        self.feeds.add(feed)
        try:
            await feed.run()
        finally:
            self.feeds.discard(feed)
        await response.write_eof()
        return response

    # Where it begins

    async def _begin(self, wish: _Wish) -> Position:
        loop, start = self._loop, wish.start
        if start is None:
            self.agreement()
            return loop.position_at(self.end(wish.settled))
        deadline = time.monotonic() + AHEAD_S
        while start.index > loop.stable.value and time.monotonic() < deadline:
            await self.wait(start.index - 1, deadline - time.monotonic())
            if self._site.closing:
                raise _closing()
        agreement = self.agreement()
        if start.index > loop.stable.value:
            raise LogAhead(
                f"index {start.index} is above this master's stable index {loop.stable.value}; ask again later, or "
                "another master"
            )
        if start.index < agreement.history.start:
            raise LogGone(_gone(start.index, agreement))
        mine = loop.position_at(start.index)
        if start.hash is None or start.hash == mine.hash:
            return mine
        if await self._shared(start.index, start.hash) is None:
            raise LogDiverged(
                f"at index {start.index} this log's hash is {mine.hash.hex()}, not {start.hash.hex()}, and this master "
                "never had that order: ask one that was on the same side of the split, or begin anew behind a place "
                "that was settled"
            )
        return Position(mine.epoch, start.index, start.hash)

    async def _refuse_update(self, wish: _Wish, at: Position) -> None:
        if wish.form != PATCH or wish.updates or not self.follows(at) or at.index >= self._loop.stable.value:
            return
        (entry, *_) = await self.read(at, at.index + 1)
        if stops_patch(entry):
            raise NotAcceptable(_not_quads(entry))

    # What is there

    def agreement(self) -> Agreement:
        agreement = self._loop.agreement
        if agreement is None:
            raise Unavailable("NotFounded", "the cluster is not founded yet: no log here")
        return agreement

    @property
    def stable(self) -> int:
        return self._loop.stable.value

    def end(self, settled: bool) -> int:
        """Up to where a follower may be told."""
        stable = self._loop.stable.value
        return min(stable, self.agreement().settled_at) if settled else stable

    @property
    def is_closing(self) -> bool:
        return self._site.closing or self._loop.given_up or self._loop.dead is not None

    @property
    def is_installed(self) -> bool:
        """While a view is accepted and not installed, nobody knows what will stand behind its cut."""
        return self.agreement().installed

    def follows(self, at: Position) -> bool:
        """Whether the log is the one that has this place."""
        history = self.agreement().history
        return history.keeps(at.index) and history.hash_at(at.index) == at.hash

    async def shared(self, at: Position) -> int | None:
        """The last index of the path to ``at`` that is on the log; None when nobody knows it here."""
        return await self._shared(at.index, at.hash)

    def place(self, index: int) -> Position | None:
        """None while that is not stable, or no longer kept."""
        known = index <= self._loop.stable.value and self.agreement().history.keeps(index)
        return self._loop.position_at(index) if known else None

    async def read(self, at: Position, upto: int) -> list[FeedEvent]:
        """The next entries, at least one."""
        found: list[FeedEvent] = []
        settled, previous = self.agreement().settled_at, at.hash
        for entry in await self._pages.read(at, upto, PAGE_BYTES):
            found.append(entry_event(entry, previous, self._key(entry), entry.index <= settled))
            previous = entry.hash
        return found

    def _key(self, entry: PageEntry) -> str:
        if entry.kind not in NOT_FOR_WORKERS:
            return ""
        return self._loop.executor.journal.read(entry.node, entry.birth, entry.seq, 1, 1).items[0].key

    async def wait(self, index: int, seconds: float) -> None:
        """Until the stable index is above ``index``, something has happened, or the time is over."""
        future = self._loop.wait_index(self._loop.stable, index + 1)
        self._waiting.add(future)
        try:
            await self._loop.within(future, seconds)
        finally:
            self._waiting.discard(future)

    def stalled(self, request: Request) -> None:
        self._site.log.limited("FollowerStalled", "watch", seconds=STALLED_S)
        if request.transport is not None:
            request.transport.abort()


class _Feed:
    """One follower; ``at`` is the place up to which it has been written to."""

    def __init__(self, room: Watch, request: Request, response: web.StreamResponse, wish: _Wish, at: Position) -> None:
        self._room = room
        self._request = request
        self._response = response
        self._wish = wish
        self._at = at
        self._over = False
        self._written = 0.0

    async def run(self) -> None:
        """Until it is over; every event that was begun is whole."""
        if self._wish.form == EVENTS:
            await self._response.write(f"retry: {RETRY_MS}\n".encode())
        await self._tell(FeedEvent(event="position", id=self._id))
        room, wish = self._room, self._wish
        while not self._over:
            seen = room.stable
            await self._look()
            if self._over or self._is_through:
                return
            upto = min(room.end(wish.settled), wish.until if wish.until is not None else 1 << 62)
            if room.follows(self._at) and upto > self._at.index and await self._step(upto):
                continue
            if time.monotonic() - self._written >= wish.heartbeat_s:
                await self._write(BEAT[wish.form])
            await room.wait(seen, min(LOOK_S, wish.heartbeat_s))

    @property
    def index(self) -> int:
        """How far it has been told."""
        return self._at.index

    @property
    def _id(self) -> str:
        return name_of(self._at.index, self._at.hash)

    @property
    def _is_through(self) -> bool:
        """It has all that it asked for, or has gone away."""
        transport = self._request.transport
        if transport is None or transport.is_closing():
            return True
        return self._wish.until is not None and self._at.index >= self._wish.until and self._room.follows(self._at)

    async def _look(self) -> None:
        """Whether the log still goes on from where this follower is."""
        room, at = self._room, self._at
        if room.is_closing:
            await self._end("closing", "this master ends; another one goes on from here")
            return
        if not room.is_installed or room.follows(at):
            return
        agreement = room.agreement()
        if at.index < agreement.history.start:
            await self._end("gone", _gone(at.index, agreement))
            return
        index = await room.shared(at)
        if index is None:
            await self._end("diverged", "the log was ordered anew; from where on, this master cannot say: begin anew")
            return
        there = room.place(index) if room.is_installed else None
        if there is not None:
            self._at = there
            await self._tell(FeedEvent(event="rewound", id=self._id, previous=name_of(at.index, at.hash)))

    async def _step(self, upto: int) -> bool:
        """Tell what follows. False when it could not be read: the log has just changed."""
        try:
            events = await self._room.read(self._at, upto)
        except (LogDiverged, LogAhead, LogNeedsRestore, Unavailable):
            return False
        form = self._wish.form
        if form == PATCH and not self._wish.updates:
            count = next((at for at, event in enumerate(events) if stops_patch(event)), len(events))
        else:
            count = len(events)
        if count:
            last = events[count - 1]
            self._at = Position(self._at.epoch, last.index, bytes.fromhex(last.id.partition(":")[2]))
            await self._write(b"".join(write(event, form) for event in events[:count]))
        if count < len(events):
            await self._end("not-quads", _not_quads(events[count]))
        return True

    # Writing

    async def _tell(self, event: FeedEvent) -> None:
        await self._write(write(event, self._wish.form))

    async def _end(self, event: str, message: str) -> None:
        self._over = True
        await self._tell(FeedEvent(event=event, id=self._id, message=message))

    async def _write(self, data: bytes) -> None:
        """Returns when the follower has read most of what was written before."""
        try:
            async with asyncio.timeout(STALLED_S):
                await self._response.write(data)
        except TimeoutError:
            self._room.stalled(self._request)
            raise ConnectionResetError("it reads nothing") from None
        self._written = time.monotonic()


def _wish_of(request: Request) -> _Wish:
    query = request.query
    unknown = sorted(set(query) - _PARAMETERS)
    if unknown:
        raise BadInput(f"{unknown[0][:40]}: no parameter of a feed; there are {', '.join(sorted(_PARAMETERS))}")
    last = request.headers.get("Last-Event-ID")
    start = query.get("from", "now")
    level, updates, until = query.get("level", "stable"), query.get("updates", "stop"), query.get("until")
    if level not in ("stable", "settled"):
        raise BadInput(f"level={level[:40]}: stable or settled")
    if updates not in ("stop", "header"):
        raise BadInput(f"updates={updates[:40]}: stop (the feed ends before a SPARQL update) or header")
    if last is not None:
        begin: Asked | None = place_of(last, "Last-Event-ID")
    else:
        begin = None if start == "now" else place_of(start, "from")
    return _Wish(
        _form_of(request.headers.get("Accept", "")),
        begin,
        -1 if until == "now" else number_of(query, "until", 0) if until is not None else None,
        level == "settled",
        number_of(query, "heartbeat", HEARTBEAT_S, least=1, most=HEARTBEAT_S_MAX),
        updates == "header",
    )


def _form_of(accept: str) -> str:
    """What the follower likes best; of equal weight what it names first."""
    wanted: list[tuple[float, str]] = []
    for part in accept.lower().split(","):
        name, *parameters = (piece.strip() for piece in part.split(";"))
        weight = next((text[2:] for text in parameters if text.startswith("q=")), "1")
        try:
            wanted.append((float(weight), name))
        except ValueError:
            raise BadInput(f"Accept: {part.strip()[:80]!r}: q is a number from 0 to 1") from None
    for liking, name in sorted(wanted, key=lambda one: -one[0]):
        if liking <= 0:
            continue
        if name in FORMS:
            return name
        if name in ("", "*/*", "text/*"):
            return EVENTS
        if name == "application/*":
            return LINES
    raise NotAcceptable(f"Accept: {accept[:80]}; there are {', '.join(FORMS)}")


def _closing() -> Unavailable:
    return Unavailable("Closing", "this master is ending; ask another one")


def _gone(index: int, agreement: Agreement) -> str:
    return (
        f"index {index} is below {agreement.history.start}, from which the log is kept: restore a backup (its position "
        "stands in its manifest) or copy the repository, and follow from there"
    )


def _not_quads(entry: FeedEvent) -> str:
    return (
        f"the entry behind {entry.previous}, {entry.txid}, is a SPARQL update, which RDF Patch cannot say: ask with "
        "updates=header, or for another format, and carry it out yourself"
    )
