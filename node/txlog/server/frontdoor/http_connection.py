"""A connection whose requests aiohttp answers. Between two of them the fast path may take it back.

A client of RDF4J begins with a request that only aiohttp answers, and reads for hours on the same connection. aiohttp
keeps the bytes of an incomplete head to itself, so the connection is taken back only where none can be there: every
earlier request has come to its last byte, and is answered.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import Final, cast

from txlog.http.aiohttp_server import RequestServer

_LENGTH: Final = re.compile(rb"\r\ncontent-length:[\t ]*([0-9]{1,18})[\t ]*\r\n", re.IGNORECASE)
_CHUNKED: Final = re.compile(rb"\r\ntransfer-encoding:", re.IGNORECASE)
_END_OF_HEAD: Final = b"\r\n\r\n"
_UNKNOWN: Final = -1


class HttpConnection(asyncio.Protocol):
    """``server``: aiohttp's side. ``take_back``: gets the transport and the bytes of a next request; False leaves both
    here."""

    def __init__(
        self,
        server: RequestServer,
        take_back: Callable[[asyncio.Transport, bytes, Callable[[], None]], bool],
    ) -> None:
        self._server = server
        self._take_back = take_back
        self._transport: asyncio.Transport | None = None
        self._missing = 0
        """As :func:`missing_bytes` counts them."""
        self._ends_head = False
        """Whether the last bytes that came end a head, or chunks."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Takes over the transport."""
        self._transport = cast(asyncio.Transport, transport)
        self._server.connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """The client has disconnected, or aiohttp has closed the connection."""
        self._transport = None
        self._server.connection_lost(exc)

    def eof_received(self) -> None:
        """The client sends nothing more."""
        self._server.eof_received()

    def pause_writing(self) -> None:
        """The client reads more slowly than it is sent to."""
        self._server.pause_writing()

    def resume_writing(self) -> None:
        """The client has read most of what was sent."""
        self._server.resume_writing()

    def data_received(self, data: bytes) -> None:
        """Gives the bytes to aiohttp, or the connection back."""
        transport = self._transport
        if transport is not None and self._server.is_between_requests:
            # What aiohttp has not answered can only be the beginning of a head, and that never ends like a head.
            if self._ends_head:
                self._missing = 0
            if self._missing == 0 and self._take_back(transport, data, self._server.leave):
                self._transport = None
                return
        self._missing = missing_bytes(self._missing, data)
        self._ends_head = data.endswith(_END_OF_HEAD)
        self._server.data_received(data)


def missing_bytes(missing: int, data: bytes) -> int:
    """How many bytes of the last request are still to come after ``data``, of which ``missing`` were to come before it.
    0: every request has come to its last byte, and nothing of a next one. :data:`_UNKNOWN` where the bytes alone do not
    say it: in a part of a head, and from chunks on."""
    while missing != _UNKNOWN:
        if missing >= len(data):
            return missing - len(data)
        data = data[missing:]
        end = data.find(_END_OF_HEAD)
        head = data[: end + 2]
        if end < 0 or _CHUNKED.search(head):
            return _UNKNOWN
        length = _LENGTH.search(head)
        missing, data = 0 if length is None else int(length[1]), data[end + len(_END_OF_HEAD) :]
    return _UNKNOWN
