"""Gives the masters of a data centre pages of change sets, ``GET /changes``, values of keys, ``POST /values``, and the
whole state, ``GET /state``. They show a token that both derive from the token of the cluster; clients ask the
masters."""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Awaitable, Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import msgspec
from aiohttp import web

from txlog.changesets import ChangeLogReader, ChangeRecord
from txlog.model.errors import BadInput, TxLogError, Unauthorized, Unavailable
from txlog.model.hashes import HASH_BYTES
from txlog.sites.key_values import (
    REQUEST_BYTES_MAX,
    VALUES_PATH,
    ValuesAnswer,
    ValuesRequest,
    decode_values_request,
)
from txlog.sites.state_lines import STATE_MEDIA_TYPE, STATE_PATH
from txlog.wire.change_page import (
    MEDIA_TYPE,
    PAGES_PATH,
    ChangePage,
    PageChange,
    change_set_token,
    encode_change_page,
)
from txlog.wire.change_set_report import ChangeSetReport

PAGE_BYTES: Final = 1 << 20
PAGE_BYTES_MAX: Final = 8 << 20
"""Of change sets in a page; one that is larger is a page of its own."""
READERS_MAX: Final = 8
"""Pages that are read at once; others wait."""
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class ChangeServer:
    """``report()``: how far the store is now. ``values``: the values of keys, called in a thread. ``state(after)``: all
    quads, read by a thread of their own."""

    def __init__(
        self,
        reader: ChangeLogReader,
        report: Callable[[], ChangeSetReport],
        peer_token: bytes,
        values: Callable[[ChangeLogReader, ValuesRequest], ValuesAnswer],
        state: Callable[[int], Generator[bytes, None, None]],
    ) -> None:
        self._reader = reader
        self._values = values
        self._state = state
        self._report = report
        self._authorization = f"Bearer {change_set_token(peer_token)}"
        self._slots = asyncio.Semaphore(READERS_MAX)

    def application(self) -> web.Application:
        """All routes."""
        app = web.Application(middlewares=[self._guard], client_max_size=REQUEST_BYTES_MAX)
        app.add_routes(
            [
                web.get(PAGES_PATH, self.page),
                web.post(VALUES_PATH, self.values),
                web.get(STATE_PATH, self.state),
                web.get("/health/live", self.live),
                web.get("/health/ready", self.ready),
            ]
        )
        return app

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            if not request.path.startswith("/health/"):
                shown = request.headers.get("Authorization", "")
                if not hmac.compare_digest(shown.encode(), self._authorization.encode()):
                    raise Unauthorized("masters of this data centre only: ask a master for /txlog/watch?updates=quads")
            return await handler(request)
        except TxLogError as error:
            name = error.reason if isinstance(error, Unavailable) else error.name
            return web.json_response({"error": name, "message": str(error)}, status=error.status)

    async def live(self, _: web.Request) -> web.Response:
        """Whether the process is alive."""
        return web.Response(text="live\n")

    async def ready(self, _: web.Request) -> web.Response:
        """Whether there are change sets to read."""
        is_ready = self._report().executed is not None
        return web.json_response({"state": self._report().state}, status=200 if is_ready else 503)

    async def page(self, request: web.Request) -> web.Response:
        """``after``: the index before the first entry; ``hash``: that of the log there; ``upto``, ``maxBytes``."""
        after, upto = _number(request, "after", 0), _number(request, "upto", 1 << 62)
        bytes_max = min(_number(request, "maxBytes", PAGE_BYTES), PAGE_BYTES_MAX)
        at_hash = _hash(request)
        report = self._report()
        if report.executed is None:
            raise Unavailable("ChangeSetsLoading", "the change sets are being made; ask again")
        limit = min(upto, report.executed.index)
        async with self._slots:
            body = await asyncio.to_thread(self._read, after, at_hash, limit, bytes_max, report.executed.index)
        return web.Response(body=body, content_type=MEDIA_TYPE)

    async def values(self, request: web.Request) -> web.Response:
        """The body: a :class:`~txlog.sites.key_values.ValuesRequest`."""
        wanted = decode_values_request(await request.read())
        async with self._slots:
            body = await asyncio.to_thread(self._encode_values, wanted)
        return web.Response(body=body, content_type="application/json")

    async def state(self, request: web.Request) -> web.StreamResponse:
        """``after``: an entry that the state must contain. Answers as :mod:`txlog.sites.state_lines`."""
        loop, after = asyncio.get_running_loop(), _number(request, "after", 0)
        thread = ThreadPoolExecutor(1, "state")  # an iterator over a store belongs to one thread
        pieces = self._state(after)
        try:
            piece = await loop.run_in_executor(thread, next, pieces, None)
            response = web.StreamResponse(headers={"Content-Type": STATE_MEDIA_TYPE})
            await response.prepare(request)
            while piece is not None:
                await response.write(piece)
                piece = await loop.run_in_executor(thread, next, pieces, None)
        finally:
            thread.submit(pieces.close)
            thread.shutdown(wait=False)  # the loop goes on while the copy is removed
        await response.write_eof()
        return response

    def _encode_values(self, wanted: ValuesRequest) -> bytes:
        return msgspec.json.encode(self._values(self._reader, wanted))

    def _read(self, after: int, at_hash: bytes | None, upto: int, bytes_max: int, end: int) -> bytes:
        found, records = self._reader.read(after, at_hash, upto, bytes_max)
        page = ChangePage(after, found, [_page_change(each) for each in records], self._reader.begin().index, end)
        return encode_change_page(page)


def _page_change(record: ChangeRecord) -> PageChange:
    entry, graphs = record.entry, record.large_graphs
    change = b"" if graphs else record.change
    return PageChange(
        entry.index, entry.hash, entry.txid, entry.stamp, entry.kind, entry.noop, entry.key, change, graphs
    )


def _number(request: web.Request, name: str, default: int) -> int:
    text = request.query.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdecimal() and len(text) < 20):
        raise BadInput(f"{name}={text[:40]}: expected a whole number")
    return int(text)


def _hash(request: web.Request) -> bytes | None:
    text = request.query.get("hash")
    if text is None:
        return None
    try:
        value = bytes.fromhex(text)
    except ValueError:
        value = b""
    if len(value) != HASH_BYTES:
        raise BadInput(f"hash={text[:40]}: {2 * HASH_BYTES} hexadecimal digits")
    return value
