"""Plain HTTP/1.1 connections to workers, kept open, for reads of the fast path. ``httptools`` parses the answers."""

from __future__ import annotations

import asyncio
import time
from functools import lru_cache
from typing import Final, Protocol, cast
from urllib.parse import urlsplit

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from txlog.http.name_resolver import resolve_name

IDLE_S: Final = 15.0
"""A connection that nothing was sent on for so long is closed; seconds. Every store keeps one open for longer."""
PAUSE_BYTES: Final = 256 << 10
"""Bytes of an answer that wait for their client; above it, the connection stops reading."""


class AnswerReceiver(Protocol):
    """What receives an answer. It may look at the connection in both calls."""

    def on_answer(self) -> None:
        """More of the answer has come; its head is complete."""

    def on_lost(self) -> None:
        """The connection has ended before the answer has."""


class WorkerConnection(asyncio.Protocol):
    """One connection. It carries one request at a time.

    ``status``, ``media_type``: of the answer's head, 0 and "" before it. ``pieces``: what was received of the body and
    not taken, ``size`` bytes. ``is_complete``: the body has ended. ``has_length``: the head says where the body ends.
    ``was_used``: it has carried a request before this one, so the worker may be closing it.
    """

    def __init__(self, pool: WorkerConnections, url: str) -> None:
        self._pool = pool
        self.url = url
        self.status = 0
        self.media_type = ""
        self.pieces: list[bytes] = []
        self.size = 0
        self.is_complete = False
        self.has_length = False
        self.was_used = False
        self.is_lost = False
        self.idle_since = 0.0
        self._parser = HttpResponseParser(self)
        self._receiver: AnswerReceiver | None = None
        self._transport: asyncio.Transport | None = None
        self._is_paused = False
        self._stays_open = False
        self._more: asyncio.Future[None] | None = None

    # The transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Takes over the transport."""
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """The worker has closed the connection, or this master has."""
        self.is_lost = True
        self._transport = None
        self._pool.on_lost(self)
        self._wake()
        receiver, self._receiver = self._receiver, None
        if receiver is not None and not self.is_complete:
            receiver.on_lost()

    def data_received(self, data: bytes) -> None:
        """Parses what has come."""
        receiver = self._receiver
        if receiver is None:
            self.abort()  # nothing was asked
            return
        try:
            self._parser.feed_data(data)
        except (HttpParserError, HttpParserUpgrade):
            self.abort()
            return
        self._wake()
        if self.status:
            receiver.on_answer()

    # The parser

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keeps the headers that matter here."""
        name = name.lower()
        if name == b"content-type":
            self.media_type = value.decode("latin-1")
        elif name == b"content-length" or (name == b"transfer-encoding" and b"chunked" in value.lower()):
            self.has_length = True

    def on_headers_complete(self) -> None:
        """The head is complete. That of an interim answer (1xx) has another one behind it."""
        status = self._parser.get_status_code()
        self.status = status if status >= 200 else 0

    def on_body(self, body: bytes) -> None:
        """Keeps a piece of the body."""
        self.pieces.append(body)
        self.size += len(body)
        if self.size > PAUSE_BYTES and not self._is_paused and self._transport is not None:
            self._is_paused = True
            self._transport.pause_reading()

    def on_message_complete(self) -> None:
        """The answer is complete."""
        self.is_complete = self.status > 0
        self._stays_open = self._parser.should_keep_alive()  # the parser says so only here

    # The requests

    def send(self, request: bytes, receiver: AnswerReceiver) -> None:
        """Sends a request. Its answer is given to ``receiver`` as it comes."""
        self.status, self.size, self.media_type = 0, 0, ""
        self.pieces = []
        self.is_complete = self.has_length = False
        self._receiver = receiver
        if self._transport is not None:
            self._transport.write(request)

    def take_body(self) -> bytes:
        """What has come of the body since the last call."""
        pieces, self.pieces, self.size = self.pieces, [], 0
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    async def read(self, idle_s: float) -> bytes:
        """The next piece of the body, b"" at its end. ``ConnectionResetError`` if the worker breaks off;
        ``TimeoutError`` if it sends nothing for ``idle_s`` seconds."""
        while not self.size:
            if self.is_complete:
                return b""
            if self.is_lost:
                raise ConnectionResetError("the worker broke off")
            self._resume()
            more = self._more = asyncio.get_running_loop().create_future()
            async with asyncio.timeout(idle_s):
                await more
        return self.take_body()

    def _resume(self) -> None:
        if self._is_paused and self.size <= PAUSE_BYTES and self._transport is not None:
            self._is_paused = False
            self._transport.resume_reading()

    def _wake(self) -> None:
        more, self._more = self._more, None
        if more is not None and not more.done():
            more.set_result(None)

    def release(self) -> None:
        """The request is over. The connection is kept for the next one where its answer is complete."""
        self._receiver = None
        if self.is_complete and not self.is_lost and self._stays_open and not self.size:
            self._resume()
            self.was_used = True
            self._pool.put_back(self)
        else:
            self.abort()

    def abort(self) -> None:
        """Closes the connection at once, so that the worker stops."""
        if self._transport is not None:
            self._transport.abort()


class WorkerConnections:
    """The connections to all workers. ``connections_max``: to one worker."""

    def __init__(self, connections_max: int) -> None:
        self._max = connections_max
        self._idle: dict[str, list[WorkerConnection]] = {}
        self._open: dict[str, set[WorkerConnection]] = {}
        self._is_closed = False

    def has_room(self, url: str) -> bool:
        """Whether a request can go to this worker at once."""
        return bool(self._idle.get(url)) or len(self._open.get(url, ())) < self._max

    def take(self, url: str) -> WorkerConnection | None:
        """An open connection that is idle: the one that was used last."""
        idle = self._idle.get(url)
        return idle.pop() if idle else None

    async def connect(self, url: str, seconds: float) -> WorkerConnection:
        """A new connection. ``OSError`` or ``TimeoutError`` without one within ``seconds``."""
        address = worker_address(url)
        if address is None or self._is_closed:
            raise ConnectionRefusedError(url)
        made = WorkerConnection(self, url)
        self._open.setdefault(url, set()).add(made)
        try:
            async with asyncio.timeout(seconds):
                await _connect(made, *address)
        except BaseException:
            self.on_lost(made)
            made.abort()
            raise
        return made

    def put_back(self, connection: WorkerConnection) -> None:
        """Keeps a connection for the next request."""
        if self._is_closed:
            connection.abort()
            return
        connection.idle_since = time.monotonic()
        self._idle.setdefault(connection.url, []).append(connection)

    def on_lost(self, connection: WorkerConnection) -> None:
        """A connection has ended."""
        self._open.get(connection.url, set()).discard(connection)
        idle = self._idle.get(connection.url)
        if idle is not None and connection in idle:
            idle.remove(connection)

    def close_idle(self, now: float) -> None:
        """Closes what has been idle for :data:`IDLE_S`."""
        for idle in self._idle.values():
            for connection in [one for one in idle if now - one.idle_since > IDLE_S]:
                connection.abort()

    def close(self) -> None:
        """Closes all connections."""
        self._is_closed = True
        for connections in self._open.values():
            for connection in list(connections):
                connection.abort()


async def _connect(made: WorkerConnection, host: str, port: int) -> None:
    """Connects to the first address that answers. ``OSError`` of the last one if none does."""
    loop, last = asyncio.get_running_loop(), OSError(f"{host} has no address")
    for _, address in await resolve_name(host):
        try:
            await loop.create_connection(lambda: made, address, port)
        except OSError as failed:
            last = failed
        else:
            return
    raise last


@lru_cache(256)
def worker_address(url: str) -> tuple[str, int] | None:
    """Host and port of a worker that speaks plain HTTP; None for any other."""
    parts = urlsplit(url)
    if parts.scheme != "http" or parts.hostname is None or parts.username is not None:
        return None
    return parts.hostname, parts.port or 80


@lru_cache(256)
def worker_path(url: str) -> str:
    """The path below which a worker answers."""
    return urlsplit(url).path.rstrip("/")
