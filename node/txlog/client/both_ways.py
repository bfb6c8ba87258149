"""TLS over one connection that two threads use at once: one reads the answer while the other still sends the request.

Python's own socket lets both into OpenSSL together, whose connection has one state for both directions and is no two
threads' to use: now and then an answer seemed to have ended. Here OpenSSL works in memory, for one thread at a time,
and no thread waits for the network meanwhile.
"""

from __future__ import annotations

import contextlib
import io
import socket
import ssl
import threading
from collections.abc import Callable
from typing import Any, Final, TypeVar

PIECE: Final = 1 << 16
T = TypeVar("T")


class TlsSocket:
    """What :mod:`http.client` asks of a socket, over a connected one, which it owns. ``host``: whom the certificate
    must name. One thread may read and one may write. Raises what :class:`ssl.SSLSocket` would: ``OSError`` of some
    kind; the time-outs are those of the connected socket."""

    def __init__(self, connected: socket.socket, context: ssl.SSLContext, host: str) -> None:
        self._wire = connected
        self._coming, self._leaving = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls: Any = context.wrap_bio(self._coming, self._leaving, server_hostname=host)
        self._state = threading.Lock()
        """Whoever asks OpenSSL holds it, and never while it waits for anything else."""
        self._sending, self._receiving = threading.RLock(), threading.Lock()
        self._received = 0
        try:
            self._shake_hands()
        except BaseException:
            connected.close()
            raise

    def sendall(self, data: bytes) -> None:
        rest = memoryview(data)
        with self._sending:
            while rest:
                rest = rest[self._done(lambda part=rest[:PIECE]: self._tls.write(part)) :]  # type: ignore[misc]
                self._send()

    def recv_into(self, buffer: memoryview) -> int:
        """0 at the end, also at one that was not announced: HTTP itself says where an answer ends."""
        try:
            return self._done(lambda: int(self._tls.read(len(buffer), buffer)))
        except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
            return 0

    def makefile(self, mode: str) -> io.BufferedReader:
        """To be read; the connection is closed when this is, too."""
        assert mode == "rb", "nobody writes to it as to a file"
        return io.BufferedReader(_Reading(self, self._wire.makefile("rb", buffering=0)))

    def has_bytes(self) -> bool:
        """Whether something was received that nobody has read."""
        return self._coming.pending > 0

    def fileno(self) -> int:
        return self._wire.fileno()

    def settimeout(self, seconds: float | None) -> None:
        self._wire.settimeout(seconds)

    def shutdown(self, how: int) -> None:
        self._wire.shutdown(how)

    def close(self) -> None:
        self._wire.close()

    def _shake_hands(self) -> None:
        try:
            with self._sending:
                self._done(self._tls.do_handshake)
                self._send()
        except ssl.SSLError:
            with contextlib.suppress(OSError):
                self._send()  # why this end does not go on
            raise

    def _done(self, step: Callable[[], T]) -> T:
        """What OpenSSL answers, as soon as it has received all that it needs for it."""
        while True:
            with self._state:
                seen = self._received
                with contextlib.suppress(ssl.SSLWantReadError):
                    return step()
            self._send_what_waits()
            self._receive(seen)

    def _receive(self, seen: int) -> None:
        """More bytes, unless the other thread took some in since."""
        with self._receiving:
            if self._received != seen:
                return
            data = self._wire.recv(PIECE)
            with self._state:
                if data:
                    self._coming.write(data)
                else:
                    self._coming.write_eof()
                self._received += 1

    def _send_what_waits(self) -> None:
        """What OpenSSL itself has to say. While the other thread sends, it goes along with what that one does."""
        if self._leaving.pending and self._sending.acquire(blocking=False):
            try:
                self._send()
            finally:
                self._sending.release()

    def _send(self) -> None:
        """By whom ``_sending`` belongs to: in the order in which OpenSSL made it."""
        while True:
            with self._state:
                data = self._leaving.read(PIECE)
            if not data:
                return
            self._wire.sendall(data)


class _Reading(io.RawIOBase):
    """``kept``: a file of the connected socket, which stays open until it is closed."""

    def __init__(self, of: TlsSocket, kept: io.RawIOBase) -> None:
        self._of = of
        self._kept = kept

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        return self._of.recv_into(memoryview(buffer))

    def close(self) -> None:
        self._kept.close()
        super().close()
