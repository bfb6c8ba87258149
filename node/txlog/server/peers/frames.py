"""One connection between two masters: an HTTP request that asks for the upgrade, then frames both ways.

A frame is four bytes of length (big-endian) and so many bytes of :mod:`txlog.wire`; an empty one says *alive*. There
is no task and no queue between the socket and the core: what comes is handed over as it is read, what is said is
written at once.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Callable
from struct import Struct
from typing import Final, cast

UPGRADE: Final = "txlog-frames"
"""The token of the ``Upgrade`` header; another framing would have another."""
BUFFER_BYTES: Final = (1 << 18, 1 << 20)
"""Written and not yet taken by the system: above the second no more is written until it is below the first."""
HEAD_BYTES_MAX: Final = 16 << 10
ENDED: Final = "closed before an answer"

_LENGTH = Struct(">I")


class Frames(asyncio.Protocol):
    """After the handshake. ``received(frame)``: must not raise. ``drained()``: there is room again. ``ended`` gets the
    reason when the connection is gone. ``shaken_with``: the context of its TLS, None without. ``under``: the protocol
    that had it before and wants to hear of its end."""

    def __init__(
        self,
        received: Callable[[bytes], None],
        drained: Callable[[], None],
        ended: asyncio.Future[str],
        frame_bytes_max: int,
        under: asyncio.BaseProtocol | None = None,
    ) -> None:
        self.heard = time.monotonic()
        self.paused = False
        self.closed = False
        self._received = received
        self._drained = drained
        self.ended = ended
        self._frame_max = frame_bytes_max
        self._under = under
        self._why = "the connection ended"
        self._transport: asyncio.Transport | None = None
        self._pieces: list[bytes] = []
        self._gathered = 0
        self._wanted = _LENGTH.size
        self.shaken_with: ssl.SSLContext | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self.shaken_with = transport.get_extra_info("sslcontext")
        self._transport.set_write_buffer_limits(BUFFER_BYTES[1], BUFFER_BYTES[0])

    def send(self, message: bytes) -> None:
        """Never blocks; see ``paused``."""
        transport = self._transport
        if transport is not None and not self.closed:
            transport.writelines((_LENGTH.pack(len(message)), message))

    def data_received(self, data: bytes) -> None:
        if self._pieces:
            self._pieces.append(data)
            self._gathered += len(data)
            if self._gathered < self._wanted:
                return
            data = b"".join(self._pieces)
            self._pieces.clear()
        self.heard = time.monotonic()
        at, end = 0, len(data)
        while end - at >= 4:
            (length,) = _LENGTH.unpack_from(data, at)
            if length > self._frame_max:
                self.close(f"a frame of {length} bytes was announced, {self._frame_max} may be sent")
                return
            if end - at - 4 < length:
                self._keep(data[at:], 4 + length)
                return
            at += 4
            if length:
                self._received(data[at : at + length])
                if self.closed:
                    return
            at += length
        if at < end:
            self._keep(data[at:], _LENGTH.size)

    def _keep(self, rest: bytes, wanted: int) -> None:
        self._pieces = [rest]
        self._gathered = len(rest)
        self._wanted = wanted

    def pause_writing(self) -> None:
        self.paused = True

    def resume_writing(self) -> None:
        self.paused = False
        self._drained()

    def eof_received(self) -> None:
        self._why = "the peer closed the connection"

    def close(self, why: str) -> None:
        """Let go of the connection; what was written still goes out if the peer takes it at once."""
        self._why = why
        self.closed = True
        if self._transport is not None:
            self._transport.close()

    def abort(self, why: str) -> None:
        """Let go of a connection whose other end may be gone."""
        self._why = why
        self.closed = True
        if self._transport is not None:
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        self._transport = None
        if self._under is not None:
            self._under.connection_lost(exc)
        if not self.ended.done():
            self.ended.set_result(f"{type(exc).__name__}: {exc}" if exc is not None else self._why)


class Handshake(asyncio.Protocol):
    """The client's side: sends ``request``, reads the answer's head, and gives the connection to ``frames``.

    ``done`` has the result None, or a ``ConnectionError`` that says what was answered instead. ``judge(transport)`` is
    asked before anything is sent, and says why this is not who was meant."""

    def __init__(
        self,
        request: bytes,
        frames: Frames,
        done: asyncio.Future[None],
        judge: Callable[[asyncio.BaseTransport], str | None] | None = None,
    ) -> None:
        self._request = request
        self._frames = frames
        self._done = done
        self._judge = judge
        self._data = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        wrong = self._judge(transport) if self._judge is not None else None
        if wrong is not None:
            self._fail(wrong)
            return
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        transport = self._transport
        assert transport is not None
        self._data += data
        head, end, rest = self._data.partition(b"\r\n\r\n")
        if not end and len(head) < HEAD_BYTES_MAX:
            return
        status = head.partition(b"\r\n")[0].split(b" ", 2)
        if len(status) < 2 or status[0] != b"HTTP/1.1" or status[1] != b"101":
            told = b" ".join(status[1:])[:100].decode(errors="replace")
            self._fail(f"answered {told or 'no HTTP'}: {rest[:300].decode(errors='replace').strip()}")
            return
        transport.set_protocol(self._frames)
        self._frames.connection_made(transport)
        if not self._done.done():
            self._done.set_result(None)
        else:
            self._frames.abort("the handshake took too long")
        if rest:
            self._frames.data_received(rest)

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail(f"{type(exc).__name__}: {exc}" if exc is not None else ENDED)

    def _fail(self, why: str) -> None:
        if not self._done.done():
            self._done.set_exception(ConnectionError(why))
        if self._transport is not None:
            self._transport.abort()
