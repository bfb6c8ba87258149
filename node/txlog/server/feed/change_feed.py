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

from txlog.http.min_position import await_min_position, read_min_position
from txlog.http.router import API_HEADER, API_VERSION, Request, Response, Route
from txlog.model.entry import Position
from txlog.model.errors import (
    LogAhead,
    LogDiverged,
    LogGone,
    LogNeedsRestore,
    NotAcceptable,
    Unavailable,
)
from txlog.protocol.log.log_state import LogState
from txlog.runtime.master_context import MasterContext
from txlog.server.feed.change_set_source import ChangeSetSource
from txlog.server.feed.entry_sources import ChangeSetEntrySource, EntrySource, LogEntrySource, log_state
from txlog.server.feed.feed_request import FeedRequest, parse_feed_request
from txlog.server.feed.log_pages import LogPageHandler
from txlog.wire.change_feed import (
    HEARTBEAT,
    RDF_PATCH_MEDIA_TYPE,
    SSE_MEDIA_TYPE,
    FeedEvent,
    format_feed_position,
    render_event,
    render_event_in_pieces,
)

FOLLOWERS_MAX: Final = 64
"""Followers at one master."""
POLL_S: Final = 1.0
"""Poll interval, in seconds: how soon the master notices that a follower has left, and sends newly final entries."""
CATCH_UP_WAIT_S: Final = 2.0
"""A follower may come from a master that is slightly ahead; it waits this long for this master to catch up."""
STALL_TIMEOUT_S: Final = 120.0
RETRY_MS: Final = 1000
"""Time in milliseconds after which a browser reconnects."""
LARGE_CHARS: Final = 1 << 20
"""A longer payload is written in pieces, and other requests are served in between."""


class ChangeFeedHandler:
    """``GET /txlog/watch``. ``common_index(index, hash)`` returns the last index that the log shares with an order that
    this master abandoned. ``changes``: the change sets of this data centre."""

    def __init__(
        self,
        site: MasterContext,
        pages: LogPageHandler,
        shared: Callable[[int, bytes], Awaitable[int | None]],
        changes: ChangeSetSource,
    ) -> None:
        self._context = site
        self._loop = site.loop
        self._durability = site.durability
        self._status = site.status
        self._entries = LogEntrySource(site, pages)
        self._changes = changes
        self._change_sets = ChangeSetEntrySource(site, self._entries, changes)
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
        carries SPARQL updates in a header; ``updates=quads``: each entry is what it deleted and added. The header
        ``TxLog-Min-Position``: the feed begins when there is something to read up to there. Errors: :class:`LogGone`,
        :class:`LogDiverged`, :class:`LogAhead`, :class:`NoChangeSets`."""
        wish = parse_feed_request(request)
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

    def source(self, wish: FeedRequest) -> EntrySource:
        """Where this follower's entries come from."""
        return self._change_sets if wish.wants_change_sets else self._entries

    async def _stream(self, request: Request, wish: FeedRequest) -> Response:
        await self._await_min_position(request, wish)
        at = await self._start_position(wish)
        if wish.until == -1:
            now = max(self.source(wish).end(wish.settled), at.index, read_min_position(request)[0])
            wish = msgspec.structs.replace(wish, until=now)
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

    async def _await_min_position(self, request: Request, wish: FeedRequest) -> None:
        if not wish.wants_change_sets:
            await await_min_position(self._context, request, self._durability.stable)
            return
        self._changes.check_enabled()
        self.log_state()
        if self._changes.captured.value == 0 and self._durability.stable.value > 0:
            raise Unavailable("ChangeSetsLoading", "no change set of this log is here yet; ask again")
        await await_min_position(
            self._context, request, self._changes.captured, "ChangeSetsBehind", "no change set here"
        )

    async def _start_position(self, wish: FeedRequest) -> Position:
        if wish.wants_change_sets:
            at = await self._start_of_changes(wish)
            await self._change_sets.check_start(at)
            return at
        return await self._start_on_log(wish)

    async def _start_of_changes(self, wish: FeedRequest) -> Position:
        """The place may be below the log's start, where change sets are kept longer than the log."""
        start, log = wish.start, self.log_state().log_index
        if start is None:
            end = self._change_sets.end(wish.settled)
            if log.has_hash_at(end):
                return self._durability.position_at(end)
            return await self._change_sets.position(end, None)
        await self._await_start(self._change_sets, start.index)
        if start.index > self._changes.captured.value:
            raise LogAhead(
                f"index {start.index} is above {self._changes.captured.value}, where the change sets end; ask again "
                "later"
            )
        if start.index < self.log_state().log_index.served_from:
            return await self._change_sets.position(start.index, start.hash)
        return await self._start_on_log(wish)

    async def _start_on_log(self, wish: FeedRequest) -> Position:
        durability, start = self._durability, wish.start
        if start is None:
            self.log_state()
            return durability.position_at(self._entries.end(wish.settled))
        await self._await_start(self._entries, start.index)
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

    async def _await_start(self, source: EntrySource, index: int) -> None:
        """Waits for as long as a follower from another master may be ahead."""
        deadline = time.monotonic() + CATCH_UP_WAIT_S
        while index > source.mark.value and time.monotonic() < deadline:
            await self.wait_past(source, index - 1, deadline - time.monotonic())
            if self._context.is_closing:
                raise _closing_error()

    async def _refuse_update(self, wish: FeedRequest, at: Position) -> None:
        entries = self._entries
        if wish.form != RDF_PATCH_MEDIA_TYPE or wish.wants_change_sets or not entries.is_on_log(at):
            return
        if at.index >= self._durability.stable.value:
            return
        (entry, *_) = await entries.read(at, at.index + 1)
        if not wish.count_expressible([entry]):
            raise NotAcceptable(_not_quads_message(entry))

    # The state of the log

    def log_state(self) -> LogState:
        """The log; :class:`Unavailable` before the cluster is bootstrapped."""
        return log_state(self._context)

    @property
    def is_closing(self) -> bool:
        """Whether this master is about to end."""
        return self._context.is_closing or self._durability.is_aborted or self._loop.end_reason is not None

    @property
    def is_installed(self) -> bool:
        """False while a view is accepted and not installed: the entries after its truncation point are not known
        yet."""
        return self.log_state().installed

    async def common_index(self, at: Position) -> int | None:
        """The last index of the path to ``at`` that is on the log; None if this master does not know that path."""
        return await self._common_index(at.index, at.hash)

    def position_if_stable(self, index: int) -> Position | None:
        """The position at this index; None while the index is not stable, or no longer kept."""
        known = index <= self._durability.stable.value and self.log_state().log_index.has_hash_at(index)
        return self._durability.position_at(index) if known else None

    async def wait_past(self, source: EntrySource, index: int, seconds: float) -> None:
        """Waits until there are entries above ``index``, another event wakes the follower, or the time is over."""
        future = self._durability.wait_index(source.mark, index + 1)
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
        self, room: ChangeFeedHandler, request: Request, response: web.StreamResponse, wish: FeedRequest, at: Position
    ) -> None:
        self._handler = room
        self._request = request
        self._response = response
        self._options = wish
        self._source = room.source(wish)
        self._position = at
        self._is_ended = False
        self._last_written = 0.0

    async def run(self) -> None:
        """Runs until the stream is over. Every event is sent whole."""
        if self._options.form == SSE_MEDIA_TYPE:
            await self._response.write(f"retry: {RETRY_MS}\n".encode())
        await self._send_event(FeedEvent(event="position", id=self._id))
        room, wish, source = self._handler, self._options, self._source
        while not self._is_ended:
            seen = source.mark.value
            await self._check_log()
            if self._is_ended or self._is_finished:
                return
            upto = min(source.end(wish.settled), wish.until if wish.until is not None else 1 << 62)
            if source.is_on_log(self._position) and upto > self._position.index and await self._send_entries(upto):
                continue
            if time.monotonic() - self._last_written >= wish.heartbeat_s:
                await self._write(HEARTBEAT[wish.form])
            await room.wait_past(source, seen, min(POLL_S, wish.heartbeat_s))

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
            and self._source.is_on_log(self._position)
        )

    async def _check_log(self) -> None:
        """Checks that the log still continues from the position of this follower."""
        room, at = self._handler, self._position
        if room.is_closing:
            await self._end("closing", "this master ends; another one goes on from here")
            return
        if not room.is_installed or self._source.is_on_log(at):
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
        """Sends the next entries. False when they cannot be read now, as after a change of the log."""
        try:
            events = await self._source.read(self._position, upto)
        except (LogDiverged, LogAhead, LogNeedsRestore, Unavailable):
            return False
        except LogGone as gone:
            await self._end("gone", str(gone))
            return True
        if not events:
            return False
        form = self._options.form
        count = len(events)
        if form == RDF_PATCH_MEDIA_TYPE:
            count = self._options.count_expressible(events)
        if count:
            last = events[count - 1]
            self._position = Position(self._position.epoch, last.index, bytes.fromhex(last.id.partition(":")[2]))
            await self._write_entries(events[:count])
        if count < len(events):
            await self._end("not-quads", _not_quads_message(events[count]))
        return True

    # Writing

    async def _write_entries(self, events: Sequence[FeedEvent]) -> None:
        form, data = self._options.form, bytearray()
        for event in events:
            if len(event.payload) < LARGE_CHARS:
                data += render_event(event, form)
                continue
            if data:
                await self._write(bytes(data))
                data.clear()
            for piece in render_event_in_pieces(event, form):
                await self._write(piece)
        if data:
            await self._write(bytes(data))

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
