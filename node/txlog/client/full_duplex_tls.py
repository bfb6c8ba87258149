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

RECV_BYTES: Final = 1 << 16
T = TypeVar("T")


class FullDuplexTlsSocket:
    """What :mod:`http.client` asks of a socket, over a connected one, which it owns. ``host``: whom the certificate
    must name. One thread may read and one may write. Raises what :class:`ssl.SSLSocket` would: ``OSError`` of some
    kind; the time-outs are those of the connected socket."""

    def __init__(self, connected: socket.socket, context: ssl.SSLContext, host: str) -> None:
        self._socket = connected
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls: Any = context.wrap_bio(self._incoming, self._outgoing, server_hostname=host)
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
                rest = rest[self._run_tls_step(lambda part=rest[:RECV_BYTES]: self._tls.write(part)) :]  # type: ignore[misc]
                self._send()

    def recv_into(self, buffer: memoryview) -> int:
        """0 at the end, also at one that was not announced: HTTP itself says where an answer ends."""
        try:
            return self._run_tls_step(lambda: int(self._tls.read(len(buffer), buffer)))
        except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
            return 0

    def makefile(self, mode: str) -> io.BufferedReader:
        """To be read; the connection is closed when this is, too."""
        assert mode == "rb", "nobody writes to it as to a file"
        return io.BufferedReader(_TlsReader(self, self._socket.makefile("rb", buffering=0)))

    def has_bytes(self) -> bool:
        """Whether something was received that nobody has read."""
        return self._incoming.pending > 0

    def fileno(self) -> int:
        return self._socket.fileno()

    def settimeout(self, seconds: float | None) -> None:
        self._socket.settimeout(seconds)

    def shutdown(self, how: int) -> None:
        self._socket.shutdown(how)

    def close(self) -> None:
        self._socket.close()

    def _shake_hands(self) -> None:
        try:
            with self._sending:
                self._run_tls_step(self._tls.do_handshake)
                self._send()
        except ssl.SSLError:
            with contextlib.suppress(OSError):
                self._send()  # why this end does not go on
            raise

    def _run_tls_step(self, step: Callable[[], T]) -> T:
        """What OpenSSL answers, as soon as it has received all that it needs for it."""
        while True:
            with self._state:
                seen = self._received
                with contextlib.suppress(ssl.SSLWantReadError):
                    return step()
            self._flush_outgoing()
            self._receive(seen)

    def _receive(self, seen: int) -> None:
        """More bytes, unless the other thread took some in since."""
        with self._receiving:
            if self._received != seen:
                return
            data = self._socket.recv(RECV_BYTES)
            with self._state:
                if data:
                    self._incoming.write(data)
                else:
                    self._incoming.write_eof()
                self._received += 1

    def _flush_outgoing(self) -> None:
        """What OpenSSL itself has to say. While the other thread sends, it goes along with what that one does."""
        if self._outgoing.pending and self._sending.acquire(blocking=False):
            try:
                self._send()
            finally:
                self._sending.release()

    def _send(self) -> None:
        """By whom ``_sending`` belongs to: in the order in which OpenSSL made it."""
        while True:
            with self._state:
                data = self._outgoing.read(RECV_BYTES)
            if not data:
                return
            self._socket.sendall(data)


class _TlsReader(io.RawIOBase):
    """``kept``: a file of the connected socket, which stays open until it is closed."""

    def __init__(self, of: FullDuplexTlsSocket, kept: io.RawIOBase) -> None:
        self._owner = of
        self._kept_file = kept

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        return self._owner.recv_into(memoryview(buffer))

    def close(self) -> None:
        self._kept_file.close()
        super().close()
