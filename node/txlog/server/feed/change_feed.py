"""The log as a feed without end: ``GET /txlog/watch``, for caches, search indexes, audits and external copies.

A follower receives the stable log in its order, from any position that the log still holds. The feed revokes events in
one case only, and by name (``rewound``): a rejoin gave other indexes to entries that one side had ordered alone. With
``level=settled`` a follower receives only final entries, which no rejoin moves.

A follower costs one page in memory. The master writes to it no faster than it reads. A follower delays neither the trim
of the log nor other followers. The master drops a follower that reads nothing for :data:`STALL_TIMEOUT_S`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

import msgspec
from aiohttp import web

from txlog.http.router import API_HEADER, API_VERSION, Request, Response, Route, int_parameter
from txlog.model.entry import CONTROL_KINDS, Position
from txlog.model.errors import (
    BadInput,
    LogAhead,
    LogDiverged,
    LogGone,
    LogNeedsRestore,
    NotAcceptable,
    Unavailable,
)
from txlog.model.synchronous_entry import KIND_DECISION
from txlog.protocol.log.log_state import LogState
from txlog.runtime.master_context import MasterContext
from txlog.server.feed.log_pages import LogPageHandler
from txlog.wire.change_feed import (
    FEED_MEDIA_TYPES,
    HEARTBEAT,
    NDJSON_MEDIA_TYPE,
    RDF_PATCH_MEDIA_TYPE,
    SSE_MEDIA_TYPE,
    FeedEvent,
    FeedPosition,
    entry_event,
    format_feed_position,
    is_inexpressible_in_patch,
    parse_feed_position,
    render_event,
)

FOLLOWERS_MAX: Final = 64
"""Followers at one master."""
PAGE_BYTES: Final = 256 << 10
"""Bytes that are read at a time for one follower; a larger entry is a page of its own."""
HEARTBEAT_S: Final = 15
HEARTBEAT_S_MAX: Final = 300
POLL_S: Final = 1.0
"""Poll interval, in seconds: how soon the master notices that a follower has left, and sends newly final entries."""
CATCH_UP_WAIT_S: Final = 2.0
"""A follower may come from a master that is slightly ahead; it waits this long for this master to catch up."""
STALL_TIMEOUT_S: Final = 120.0
RETRY_MS: Final = 1000
"""Time in milliseconds after which a browser reconnects."""
_PARAMETERS: Final = frozenset({"from", "until", "level", "heartbeat", "updates"})


class _FeedRequest(msgspec.Struct, frozen=True):
    """What a follower requested. ``start`` None: from now on. ``until`` -1: the current stable index; None: without
    end."""

    form: str
    start: FeedPosition | None
    until: int | None
    settled: bool
    heartbeat_s: int
    updates: bool

    def count_expressible(self, events: Sequence[FeedEvent]) -> int:
        """How many of the events come before the first one that RDF Patch cannot express for this follower."""
        wrong = (at for at, each in enumerate(events) if is_inexpressible_in_patch(each, reads_updates=self.updates))
        return next(wrong, len(events))


class ChangeFeedHandler:
    """``GET /txlog/watch``. ``common_index(index, hash)`` returns the last index that the log shares with an order that
    this master abandoned."""

    def __init__(
        self, site: MasterContext, pages: LogPageHandler, shared: Callable[[int, bytes], Awaitable[int | None]]
    ) -> None:
        self._context = site
        self._loop = site.loop
        self._durability = site.durability
        self._status = site.status
        self._pages = pages
        self._common_index = shared
        self._waiters: set[asyncio.Future[bool]] = set()
        self.feeds: set[_FollowerStream] = set()
        self._follower_count = 0

    def routes(self) -> list[Route]:
        """The paths of this handler."""
        return [Route("GET", "/txlog/watch", self.get)]

    def wake_followers(self) -> None:
        """Wakes every follower: the log was truncated, or this master ends."""
        for future in self._waiters:
            if not future.done():
                future.set_result(True)

    async def get(self, request: Request, _: Mapping[str, str]) -> Response:
        """Sends server-sent events, JSON lines or RDF Patch, by ``Accept``. ``from``: the position after which the feed
        begins, ``now`` by default; ``Last-Event-ID`` overrides it. ``until``: the index at which it ends, or ``now``.
        ``level``: ``stable`` or ``settled``. ``heartbeat``: seconds between heartbeats. ``updates=header``: RDF Patch
        carries SPARQL updates in a header. Errors: :class:`LogGone`, :class:`LogDiverged`, :class:`LogAhead`."""
        wish = _parse_feed_request(request)
        if self._context.is_closing:
            raise _closing_error()
        if self._follower_count >= FOLLOWERS_MAX:
            raise Unavailable(
                "TooManyFollowers", f"{self._follower_count} follow this master already; ask another one", 10
            )
        self._follower_count += 1
        try:
            return await self._stream(request, wish)
        finally:
            self._follower_count -= 1

    async def _stream(self, request: Request, wish: _FeedRequest) -> Response:
        at = await self._start_position(wish)
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
        feed = _FollowerStream(self, request, response, wish, at)
        self.feeds.add(feed)
        try:
            await feed.run()
        finally:
            self.feeds.discard(feed)
        await response.write_eof()
        return response

    # The start position

    async def _start_position(self, wish: _FeedRequest) -> Position:
        durability, start = self._durability, wish.start
        if start is None:
            self.log_state()
            return durability.position_at(self.end(wish.settled))
        deadline = time.monotonic() + CATCH_UP_WAIT_S
        while start.index > durability.stable.value and time.monotonic() < deadline:
            await self.wait_past(start.index - 1, deadline - time.monotonic())
            if self._context.is_closing:
                raise _closing_error()
        agreement = self.log_state()
        if start.index > durability.stable.value:
            raise LogAhead(
                f"index {start.index} is above this master's stable index {durability.stable.value}; ask again "
                "later, or another master"
            )
        if start.index < agreement.log_index.served_from:
            raise LogGone(_gone_message(start.index, agreement))
        mine = durability.position_at(start.index)
        if start.hash is None or start.hash == mine.hash:
            return mine
        if await self._common_index(start.index, start.hash) is None:
            raise LogDiverged(
                f"at index {start.index} this log's hash is {mine.hash.hex()}, not {start.hash.hex()}, and this master "
                "never had that order: ask one that was on the same side of the split, or begin again behind a place "
                "that was settled"
            )
        return Position(mine.epoch, start.index, start.hash)

    async def _refuse_update(self, wish: _FeedRequest, at: Position) -> None:
        if wish.form != RDF_PATCH_MEDIA_TYPE or not self.is_on_log(at) or at.index >= self._durability.stable.value:
            return
        (entry, *_) = await self.read(at, at.index + 1)
        if not wish.count_expressible([entry]):
            raise NotAcceptable(_not_quads_message(entry))

    # The state of the log

    def log_state(self) -> LogState:
        """The log; :class:`Unavailable` before the cluster is bootstrapped."""
        agreement = self._status.log_state
        if agreement is None:
            raise Unavailable("NotFounded", "the cluster is not founded yet: no log here")
        return agreement

    @property
    def stable(self) -> int:
        """The stable index."""
        return self._durability.stable.value

    def end(self, settled: bool) -> int:
        """The last index that the feed may send: the final index for ``settled``, else the stable index."""
        stable = self._durability.stable.value
        return min(stable, self.log_state().final_index) if settled else stable

    @property
    def is_closing(self) -> bool:
        """Whether this master is about to end."""
        return self._context.is_closing or self._durability.is_aborted or self._loop.end_reason is not None

    @property
    def is_installed(self) -> bool:
        """False while a view is accepted and not installed: the entries after its truncation point are not known
        yet."""
        return self.log_state().installed

    def is_on_log(self, at: Position) -> bool:
        """Whether this position is on the log."""
        history = self.log_state().log_index
        return history.has_hash_at(at.index) and history.hash_at(at.index) == at.hash

    async def common_index(self, at: Position) -> int | None:
        """The last index of the path to ``at`` that is on the log; None if this master does not know that path."""
        return await self._common_index(at.index, at.hash)

    def position_if_stable(self, index: int) -> Position | None:
        """The position at this index; None while the index is not stable, or no longer kept."""
        known = index <= self._durability.stable.value and self.log_state().log_index.has_hash_at(index)
        return self._durability.position_at(index) if known else None

    async def read(self, at: Position, upto: int) -> list[FeedEvent]:
        """The next entries, at least one."""
        found: list[FeedEvent] = []
        settled, previous = self.log_state().final_index, at.hash
        for entry in await self._pages.read(at, upto, PAGE_BYTES, keys=True):
            key = entry.key if entry.kind in (*CONTROL_KINDS, KIND_DECISION) else ""
            found.append(entry_event(entry, previous, key, entry.index <= settled))
            previous = entry.hash
        return found

    async def wait_past(self, index: int, seconds: float) -> None:
        """Waits until the stable index is above ``index``, another event wakes the follower, or the time is over."""
        future = self._durability.wait_index(self._durability.stable, index + 1)
        self._waiters.add(future)
        try:
            await self._durability.wait_for(future, seconds)
        finally:
            self._waiters.discard(future)

    def abort_stalled(self, request: Request) -> None:
        """Aborts the connection of a follower that reads nothing."""
        self._context.log.warning_rate_limited("FollowerStalled", "watch", seconds=STALL_TIMEOUT_S)
        if request.transport is not None:
            request.transport.abort()


class _FollowerStream:
    """The stream of one follower; ``at`` is the position up to which it has been written."""

    def __init__(
        self, room: ChangeFeedHandler, request: Request, response: web.StreamResponse, wish: _FeedRequest, at: Position
    ) -> None:
        self._handler = room
        self._request = request
        self._response = response
        self._options = wish
        self._position = at
        self._is_ended = False
        self._last_written = 0.0

    async def run(self) -> None:
        """Runs until the stream is over. Every event is sent whole."""
        if self._options.form == SSE_MEDIA_TYPE:
            await self._response.write(f"retry: {RETRY_MS}\n".encode())
        await self._send_event(FeedEvent(event="position", id=self._id))
        room, wish = self._handler, self._options
        while not self._is_ended:
            seen = room.stable
            await self._check_log()
            if self._is_ended or self._is_finished:
                return
            upto = min(room.end(wish.settled), wish.until if wish.until is not None else 1 << 62)
            if room.is_on_log(self._position) and upto > self._position.index and await self._send_entries(upto):
                continue
            if time.monotonic() - self._last_written >= wish.heartbeat_s:
                await self._write(HEARTBEAT[wish.form])
            await room.wait_past(seen, min(POLL_S, wish.heartbeat_s))

    @property
    def index(self) -> int:
        """The index up to which the follower has been sent events."""
        return self._position.index

    @property
    def _id(self) -> str:
        return format_feed_position(self._position.index, self._position.hash)

    @property
    def _is_finished(self) -> bool:
        """Whether the follower has everything that it requested, or has disconnected."""
        transport = self._request.transport
        if transport is None or transport.is_closing():
            return True
        return (
            self._options.until is not None
            and self._position.index >= self._options.until
            and self._handler.is_on_log(self._position)
        )

    async def _check_log(self) -> None:
        """Checks that the log still continues from the position of this follower."""
        room, at = self._handler, self._position
        if room.is_closing:
            await self._end("closing", "this master ends; another one goes on from here")
            return
        if not room.is_installed or room.is_on_log(at):
            return
        agreement = room.log_state()
        if at.index < agreement.log_index.served_from:
            await self._end("gone", _gone_message(at.index, agreement))
            return
        index = await room.common_index(at)
        if index is None:
            await self._end("diverged", "the log was reordered; from where on, this master cannot say: begin again")
            return
        there = room.position_if_stable(index) if room.is_installed else None
        if there is not None:
            self._position = there
            await self._send_event(
                FeedEvent(event="rewound", id=self._id, previous=format_feed_position(at.index, at.hash))
            )

    async def _send_entries(self, upto: int) -> bool:
        """Sends the next entries. False when they cannot be read because the log has just changed."""
        try:
            events = await self._handler.read(self._position, upto)
        except (LogDiverged, LogAhead, LogNeedsRestore, Unavailable):
            return False
        form = self._options.form
        count = len(events)
        if form == RDF_PATCH_MEDIA_TYPE:
            count = self._options.count_expressible(events)
        if count:
            last = events[count - 1]
            self._position = Position(self._position.epoch, last.index, bytes.fromhex(last.id.partition(":")[2]))
            await self._write(b"".join(render_event(event, form) for event in events[:count]))
        if count < len(events):
            await self._end("not-quads", _not_quads_message(events[count]))
        return True

    # Writing

    async def _send_event(self, event: FeedEvent) -> None:
        await self._write(render_event(event, self._options.form))

    async def _end(self, event: str, message: str) -> None:
        self._is_ended = True
        await self._send_event(FeedEvent(event=event, id=self._id, message=message))

    async def _write(self, data: bytes) -> None:
        """Writes, and returns when the follower has read most of the earlier bytes."""
        try:
            async with asyncio.timeout(STALL_TIMEOUT_S):
                await self._response.write(data)
        except TimeoutError:
            self._handler.abort_stalled(self._request)
            raise ConnectionResetError("it reads nothing") from None
        self._last_written = time.monotonic()


def _parse_feed_request(request: Request) -> _FeedRequest:
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
        begin: FeedPosition | None = parse_feed_position(last, "Last-Event-ID")
    else:
        begin = None if start == "now" else parse_feed_position(start, "from")
    return _FeedRequest(
        _negotiate_format(request.headers.get("Accept", "")),
        begin,
        -1 if until == "now" else int_parameter(query, "until", 0) if until is not None else None,
        level == "settled",
        int_parameter(query, "heartbeat", HEARTBEAT_S, least=1, most=HEARTBEAT_S_MAX),
        updates == "header",
    )


def _negotiate_format(accept: str) -> str:
    """The format that the client prefers; of equal weights, the first that it names."""
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
        if name in FEED_MEDIA_TYPES:
            return name
        if name in ("", "*/*", "text/*"):
            return SSE_MEDIA_TYPE
        if name == "application/*":
            return NDJSON_MEDIA_TYPE
    raise NotAcceptable(f"Accept: {accept[:80]}; there are {', '.join(FEED_MEDIA_TYPES)}")


def _closing_error() -> Unavailable:
    return Unavailable("Closing", "this master is ending; ask another one")


def _gone_message(index: int, agreement: LogState) -> str:
    return (
        f"index {index} is below {agreement.log_index.served_from}, from which the log is kept: restore a backup "
        "(its manifest has its position) or copy the repository, and follow from there"
    )


def _not_quads_message(entry: FeedEvent) -> str:
    return (
        f"the entry behind {entry.previous}, {entry.txid}, is a SPARQL update, which RDF Patch cannot express: ask "
        "with updates=header, or for another format, and carry it out yourself"
        if len(entry.commits) < 2
        else f"the entry behind {entry.previous}, {entry.txid}, commits several transactions, one of them a SPARQL "
        "update, which RDF Patch cannot express: ask for another format"
    )
