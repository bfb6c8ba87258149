"""One connection between two masters: an HTTP request for the upgrade, then frames in both directions.

A frame is four bytes of length (big-endian) and that many bytes of :mod:`txlog.wire`; an empty frame is a heartbeat.
There is no task and no queue between the socket and the core. A received frame is passed on as it is read, and a sent
message is written at once.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Callable
from struct import Struct
from typing import Final, cast

UPGRADE: Final = "txlog-frames"
"""The token of the ``Upgrade`` header; another framing would have another token."""
WRITE_BUFFER_BYTES: Final = (1 << 18, 1 << 20)
"""Low and high mark of the bytes that are written and not yet taken by the system. Above the high mark no more is
written until they are below the low mark."""
HEAD_BYTES_MAX: Final = 16 << 10
LEVEL_HEADER: Final = "TxLog-Link-Level"
"""What its sender reads on this connection, as a number (``LEVEL_…`` in :mod:`txlog.wire.envelope`). An older master
sends none."""
LEVEL_DIGITS_MAX: Final = 4
CLOSED_BEFORE_ANSWER: Final = "closed before an answer"

_LENGTH = Struct(">I")


def parse_link_level(text: str) -> int:
    """The level of a header's value; 0 for none, and for what is no number."""
    text = text.strip()
    return int(text) if text.isascii() and text.isdigit() and len(text) <= LEVEL_DIGITS_MAX else 0


class FrameConnection(asyncio.Protocol):
    """A connection after the handshake. ``received(frame)`` must not raise. ``drained()``: the connection can be
    written again. ``ended`` gets the reason when the connection is gone. ``ssl_context``: the context of its TLS, None
    without TLS. ``under``: the protocol that had the transport before, and must be notified of its end. ``link_level``:
    what the peer announced."""

    def __init__(
        self,
        received: Callable[[bytes], None],
        drained: Callable[[], None],
        ended: asyncio.Future[str],
        frame_bytes_max: int,
        under: asyncio.BaseProtocol | None = None,
    ) -> None:
        self.last_received = time.monotonic()
        self.is_paused = False
        self.is_closed = False
        self._on_frame = received
        self._on_drained = drained
        self.ended = ended
        self._frame_max = frame_bytes_max
        self._previous_protocol = under
        self._close_reason = "the connection ended"
        self._transport: asyncio.Transport | None = None
        self._chunks: list[bytes] = []
        self._buffered_bytes = 0
        self._needed_bytes = _LENGTH.size
        self.ssl_context: ssl.SSLContext | None = None
        self.link_level = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Takes over the transport."""
        self._transport = cast(asyncio.Transport, transport)
        self.ssl_context = transport.get_extra_info("sslcontext")
        self._transport.set_write_buffer_limits(WRITE_BUFFER_BYTES[1], WRITE_BUFFER_BYTES[0])

    def send(self, message: bytes) -> None:
        """Sends a message as one frame. Never blocks; see ``is_paused``."""
        transport = self._transport
        if transport is not None and not self.is_closed:
            transport.writelines((_LENGTH.pack(len(message)), message))

    def data_received(self, data: bytes) -> None:
        """Passes on each complete frame, and keeps the rest."""
        if self._chunks:
            self._chunks.append(data)
            self._buffered_bytes += len(data)
            if self._buffered_bytes < self._needed_bytes:
                return
            data = b"".join(self._chunks)
            self._chunks.clear()
        self.last_received = time.monotonic()
        at, end = 0, len(data)
        while end - at >= 4:
            (length,) = _LENGTH.unpack_from(data, at)
            if length > self._frame_max:
                self.close(f"a frame of {length} bytes was announced, {self._frame_max} may be sent")
                return
            if end - at - 4 < length:
                self._buffer(data[at:], 4 + length)
                return
            at += 4
            if length:
                self._on_frame(data[at : at + length])
                if self.is_closed:
                    return
            at += length
        if at < end:
            self._buffer(data[at:], _LENGTH.size)

    def _buffer(self, rest: bytes, wanted: int) -> None:
        self._chunks = [rest]
        self._buffered_bytes = len(rest)
        self._needed_bytes = wanted

    def pause_writing(self) -> None:
        """The peer takes less than this master sends: the link keeps its messages."""
        self.is_paused = True

    def resume_writing(self) -> None:
        """The peer has caught up: the link sends what it kept."""
        self.is_paused = False
        self._on_drained()

    def eof_received(self) -> None:
        """The peer has closed its side; asyncio then closes the connection."""
        self._close_reason = "the peer closed the connection"

    def close(self, why: str) -> None:
        """Closes the connection; written bytes still go out if the peer takes them at once."""
        self._close_reason = why
        self.is_closed = True
        if self._transport is not None:
            self._transport.close()

    def abort(self, why: str) -> None:
        """Closes a connection whose other end may be gone."""
        self._close_reason = why
        self.is_closed = True
        if self._transport is not None:
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection has ended, in order or not."""
        self.is_closed = True
        self._transport = None
        if self._previous_protocol is not None:
            self._previous_protocol.connection_lost(exc)
        if not self.ended.done():
            self.ended.set_result(f"{type(exc).__name__}: {exc}" if exc is not None else self._close_reason)


class UpgradeHandshake(asyncio.Protocol):
    """The client's side: sends ``request``, reads the head of the answer, and gives the connection to ``frames``.

    ``done`` has the result None, or a ``ConnectionError`` with what was answered instead. ``judge(transport)`` runs
    before anything is sent; it returns why the other end is not the intended peer.
    """

    def __init__(
        self,
        request: bytes,
        frames: FrameConnection,
        done: asyncio.Future[None],
        judge: Callable[[asyncio.BaseTransport], str | None] | None = None,
    ) -> None:
        self._request = request
        self._frames = frames
        self._done = done
        self._check_peer = judge
        self._data = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Checks the peer's certificate, then sends the request."""
        self._transport = cast(asyncio.Transport, transport)
        wrong = self._check_peer(transport) if self._check_peer is not None else None
        if wrong is not None:
            self._fail(wrong)
            return
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        """Hands the connection over to the frames once the peer has answered 101; any other answer ends it."""
        transport = self._transport
        assert transport is not None
        self._data += data
        head, end, rest = self._data.partition(b"\r\n\r\n")
        if not end and len(head) < HEAD_BYTES_MAX:
            return
        status = head.partition(b"\r\n")[0].split(b" ", 2)
        if len(status) < 2 or status[0] != b"HTTP/1.1" or status[1] != b"101":
            answer = b" ".join(status[1:])[:100].decode(errors="replace")
            self._fail(f"answered {answer or 'no HTTP'}: {rest[:300].decode(errors='replace').strip()}")
            return
        self._frames.link_level = _announced_level(head)
        transport.set_protocol(self._frames)
        self._frames.connection_made(transport)
        if not self._done.done():
            self._done.set_result(None)
        else:
            self._frames.abort("the handshake took too long")
        if rest:
            self._frames.data_received(rest)

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection has ended before the answer."""
        self._fail(f"{type(exc).__name__}: {exc}" if exc is not None else CLOSED_BEFORE_ANSWER)

    def _fail(self, why: str) -> None:
        if not self._done.done():
            self._done.set_exception(ConnectionError(why))
        if self._transport is not None:
            self._transport.abort()


def _announced_level(head: bytes) -> int:
    """The level in the head of an answer."""
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.strip().lower() == LEVEL_HEADER.lower().encode():
            return parse_link_level(value.decode("latin-1"))
    return 0
