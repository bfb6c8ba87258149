"""TLS over one connection that two threads use at once: one reads the answer while the other still sends the request.

Python's own TLS socket lets both threads call OpenSSL at once. An OpenSSL connection has one state for both directions
and is not thread-safe: now and then an answer seemed to have ended. Here OpenSSL works on memory buffers, one thread at
a time, and no thread waits for the network while it holds the lock.
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
    """The socket interface that :mod:`http.client` needs, over a connected socket, which it owns. ``host``: the name
    that the certificate must contain. One thread may read and one may write. Raises what :class:`ssl.SSLSocket` would:
    an ``OSError``. The time-outs are those of the connected socket."""

    def __init__(self, connected: socket.socket, context: ssl.SSLContext, host: str) -> None:
        self._socket = connected
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls: Any = context.wrap_bio(self._incoming, self._outgoing, server_hostname=host)
        self._state = threading.Lock()
        """A thread holds it while it calls OpenSSL, and never while it waits for anything else."""
        self._sending, self._receiving = threading.RLock(), threading.Lock()
        self._received = 0
        try:
            self._shake_hands()
        except BaseException:
            connected.close()
            raise

    def sendall(self, data: bytes) -> None:
        """Send all bytes. Only one thread at a time sends."""
        rest = memoryview(data)
        with self._sending:
            while rest:
                rest = rest[self._run_tls_step(lambda part=rest[:RECV_BYTES]: self._tls.write(part)) :]  # type: ignore[misc]
                self._send()

    def recv_into(self, buffer: memoryview) -> int:
        """Read into ``buffer``; returns the number of bytes. 0 at the end, also without a TLS close notice: HTTP itself
        defines where an answer ends."""
        try:
            return self._run_tls_step(lambda: int(self._tls.read(len(buffer), buffer)))
        except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
            return 0

    def makefile(self, mode: str) -> io.BufferedReader:
        """A buffered reader. The connection stays open until the reader is closed, too."""
        assert mode == "rb", "it is read only"
        return io.BufferedReader(_TlsReader(self, self._socket.makefile("rb", buffering=0)))

    def has_bytes(self) -> bool:
        """Whether received bytes are waiting to be read."""
        return self._incoming.pending > 0

    def fileno(self) -> int:
        """The descriptor of the connected socket, for ``poll``."""
        return self._socket.fileno()

    def settimeout(self, seconds: float | None) -> None:
        """Bound each later wait, in seconds; None: no bound."""
        self._socket.settimeout(seconds)

    def shutdown(self, how: int) -> None:
        """As :meth:`socket.socket.shutdown`, without a TLS close notice."""
        self._socket.shutdown(how)

    def close(self) -> None:
        """Close the socket, once no reader of :meth:`makefile` is open."""
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
        """The result of an OpenSSL call, repeated until OpenSSL has received all bytes that it needs."""
        while True:
            with self._state:
                seen = self._received
                with contextlib.suppress(ssl.SSLWantReadError):
                    return step()
            self._flush_outgoing()
            self._receive(seen)

    def _receive(self, seen: int) -> None:
        """Receive more bytes, unless the other thread has received some since ``seen``."""
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
        """Send OpenSSL's own records. While the other thread sends, that thread sends these as well."""
        if self._outgoing.pending and self._sending.acquire(blocking=False):
            try:
                self._send()
            finally:
                self._sending.release()

    def _send(self) -> None:
        """Send the pending bytes in the order in which OpenSSL made them. Only the holder of ``_sending`` calls it."""
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
