"""Sends an answer to a read in pieces, compressed if its client accepts that."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping

from aiohttp import ClientError, web

from txlog.http.body_compression import choose_coding, compress_unless_short
from txlog.http.cors import add_cors_headers
from txlog.http.router import Request, Response
from txlog.server.frontdoor.stream_converter import closing_stream
from txlog.server.frontdoor.worker_connections import WorkerConnection

CLIENT_IDLE_S = 120.0
"""Seconds for which a client may read nothing of its answer. It holds a connection to a worker, of which all clients
share :data:`~.read_router.CONNECTIONS_MAX`."""


async def read_pieces(connection: WorkerConnection, idle_s: float) -> AsyncGenerator[bytes, None]:
    """The rest of a worker's answer as it comes. The errors are those of :meth:`.WorkerConnection.read`."""
    while piece := await connection.read(idle_s):
        yield piece


async def send_stream(request: Request, headers: Mapping[str, str], pieces: AsyncIterator[bytes]) -> Response:
    """Sends the pieces. If they break off, so does the answer: the client sees an incomplete body. Nothing is read for
    HEAD."""
    coding = "" if request.method == "HEAD" else choose_coding(request)
    try:
        async with closing_stream(pieces):
            if coding:
                coding, pieces = await compress_unless_short(pieces, coding)
            if coding:
                headers = {**headers, "Content-Encoding": coding}
            response = web.StreamResponse(headers=add_cors_headers(request, headers))
            await response.prepare(request)
            if request.method == "HEAD":
                return response
            async with closing_stream(pieces):
                async for piece in pieces:
                    await _write(request, response, piece)
    except (TimeoutError, ClientError, SyntaxError, ValueError) as broken:  # the last two: from a conversion
        raise ConnectionResetError(f"the worker broke off: {broken}") from broken
    await response.write_eof()
    return response


async def _write(request: Request, response: web.StreamResponse, piece: bytes) -> None:
    try:
        async with asyncio.timeout(CLIENT_IDLE_S) as limit:
            await response.write(piece)
    except TimeoutError:
        if limit.expired() and request.transport is not None:
            request.transport.abort()  # to close it would mean to wait until the client reads
        raise ConnectionResetError("the client reads nothing") from None
