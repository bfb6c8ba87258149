"""Sends the lines of one request in a thread of its own, while another thread reads the answer."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterable

from txlog.client.full_duplex_tls import FullDuplexTlsSocket


class LineSender:
    """Sends ``lines`` over ``sock`` as chunks of a body whose header was already sent. It bypasses ``http.client``,
    which would open a new connection when this one was closed. The owner calls :meth:`release` at the end."""

    def __init__(self, sock: socket.socket | FullDuplexTlsSocket, lines: Iterable[bytes]) -> None:
        self._sock = sock
        self._lines = lines
        self._kept = sock.makefile("rb")
        """Keeps the descriptor open after the connection was closed. Otherwise another connection could get its number
        while this thread still sends."""
        self._failures: list[BaseException] = []
        self._sending, self._is_over = threading.Lock(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="txlog-client-submit", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def has_sent_everything(self, timeout_s: float) -> bool:
        """Wait at most ``timeout_s`` seconds for the thread. Returns whether it has sent all lines."""
        self._thread.join(timeout_s)
        return not self._failures and not self._thread.is_alive()

    def abort(self) -> None:
        """Nothing is sent from now on. A send that waits for the other end fails."""
        self._is_over.set()
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)

    def release(self) -> None:
        """Let the descriptor go, after a running send."""
        with self._sending:
            self._kept.close()

    def raise_producer_error(self) -> None:
        """Raise what the iterator of the lines raised, if it did. A failure of the connection is not raised here."""
        for failure in self._failures:
            if not isinstance(failure, OSError):
                raise failure

    def _run(self) -> None:
        try:
            for line in self._lines:
                if line:
                    self._send(b"%x\r\n%b\r\n" % (len(line), line))
            self._send(b"0\r\n\r\n")
        except OSError as failure:
            self._failures.append(failure)  # the master closed: its answer, if any, names the reason
        except BaseException as failure:  # noqa: BLE001 - the iterator of the lines failed: raise_producer_error
            self._failures.append(failure)
            with contextlib.suppress(OSError):
                self._sock.shutdown(socket.SHUT_RDWR)

    def _send(self, data: bytes) -> None:
        with self._sending:
            if self._is_over.is_set():
                raise ConnectionAbortedError("the answer is over")
            self._sock.sendall(data)
