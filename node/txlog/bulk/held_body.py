"""A load whose request's body is held open: nothing of it is visible before its end, and then all of it.

The store builds its files while the body arrives, and takes them in one step at its end. While the body is held, the
worker executes other transactions as ever. A body that breaks off leaves nothing. So everything up to :meth:`end` may
be lost, and who ends a body first writes into the worker that it may land (:func:`in_flight_mark`).
"""

from __future__ import annotations

import http.client
import secrets
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from enum import StrEnum
from typing import Final
from urllib.parse import urlsplit

from txlog.model.entry import Position
from txlog.model.errors import TxLogError
from txlog.workers.adapter import LoadMarker, MarkerPosition, WorkerRequest
from txlog.workers.marker_names import IN_FLIGHT_BIT, may_land

STORE_BATCH: Final = 1_000_000
"""Lines that the store sorts and writes at a time, while the body arrives."""
FILL_FROM: Final = 50_000
"""A last batch of more lines is filled up by repeating its shortest line: the store would sort it at the end, while its
worker waits. Of fewer lines that takes about three seconds at most."""
FILL_BYTES_MAX: Final = 256 << 20
"""A batch of long lines is not filled up with more than this: the store would take longer than it saves."""
DRIP_S: Final = 5.0
"""A held body gets a comment line so often: the store ends a silent one after a minute."""
KEEP_S: Final = 120.0
"""A held body of which its lane says nothing for so long is given up: another process may have the worker."""
SEND_TIMEOUT_S: Final = 300.0
"""The store reads nothing while it sorts a batch."""
LAND_TIMEOUT_S: Final = 3600.0
CONNECT_TIMEOUT_S: Final = 5.0
IDLE_MAX_S: Final = 15.0
"""A store may close a connection that is idle for longer. That proves nothing."""
WATCHED_MAX_S: Final = IDLE_MAX_S + 2 * CONNECT_TIMEOUT_S
"""From one use to the end of the next one. A process that was stopped in between finds a closed connection, too."""
_COMMENT: Final = b"#\n"
_PIECE_BYTES: Final = 256 << 10


class BodyPhase(StrEnum):
    """How far a body is."""

    SENDING = "Sending"
    HELD = "Held"
    """All is sent but the end."""
    FAILED = "Failed"
    """It broke off before its end: nothing of it is in the store, or will be."""
    LANDING = "Landing"
    """The end was sent."""
    LANDED = "Landed"
    """The store has answered that all of it is in."""
    REFUSED = "Refused"
    """The store has answered the end with an error: nothing of it is in."""
    CLOSED = "Closed"
    """The store has closed the connection without an answer, as an ending process does: all of it is in, or nothing."""
    UNKNOWN = "Unknown"
    """No answer in time, or none that shows what the store does: it may still land."""


def in_flight_mark(position: Position, since: MarkerPosition) -> LoadMarker:
    """The mark to put into a worker before a body is ended."""
    return LoadMarker(position, IN_FLIGHT_BIT | secrets.randbits(62), since)


def landed_mark(mark: LoadMarker) -> LoadMarker:
    """The mark in place of an in-flight one when nothing can land any more: the load is repeated from there."""
    return LoadMarker(mark.position, secrets.randbits(62), mark.since)


def may_be_landed(mark: LoadMarker) -> bool:
    """Whether this may be a :func:`landed_mark`, by what it covers: one entry. The log shows whether that is a bulk
    load."""
    return not may_land(mark) and mark.since is not None and mark.position.index == mark.since.position.index + 1


def shortest_line(piece: bytes, before: bytes) -> bytes:
    """The shortest of the whole lines of ``piece``, and of ``before`` (empty: none yet)."""
    lines = piece.splitlines(keepends=True)
    return min([*lines, before] if before else lines, key=len, default=b"")


def count_filler(quads: int, line: bytes) -> int:
    """How often ``line`` follows a body of so many lines, so that the store sorts its last batch before the end."""
    missing = -quads % STORE_BATCH
    is_worth_it = STORE_BATCH - missing > FILL_FROM and line.endswith(b"\n")
    return missing if is_worth_it and missing * len(line) <= FILL_BYTES_MAX else 0


class HeldBody:
    """One body, sent by a thread of its own. ``request``: of the adapter, without a body. ``open_quads``: called once
    in that thread; whole lines of N-Quads. Its :class:`~txlog.model.errors.TxLogError` fails the body."""

    def __init__(self, url: str, request: WorkerRequest, open_quads: Callable[[], Iterator[bytes]]) -> None:
        self._parts = urlsplit(url)
        self._request, self._open_quads = request, open_quads
        self._lock = threading.Lock()
        self._phase: BodyPhase = BodyPhase.SENDING
        self._commanded = threading.Event()
        self._ends = self._dropped = False
        self._connection: http.client.HTTPConnection | None = None
        self._kept_until = 0.0
        self.began_at = time.monotonic()
        self.keep()
        self.quads = 0
        self.error: str | None = None
        """Why it failed, was refused, or has an unknown outcome."""
        threading.Thread(target=self._run, name=f"txlog-bulk {url}", daemon=True).start()

    @property
    def phase(self) -> BodyPhase:
        """How far it is now."""
        with self._lock:
            return self._phase

    def keep(self) -> None:
        """It stays held for :data:`KEEP_S` seconds more."""
        self._kept_until = time.monotonic() + KEEP_S

    def end(self) -> bool:
        """Ends a held body, so that it lands. False: it is not held any more, and nothing of it lands."""
        with self._lock:
            if self._phase is not BodyPhase.HELD:
                return False
            self._phase, self._ends = BodyPhase.LANDING, True
            self._commanded.set()
            return True

    def drop(self) -> None:
        """Breaks off a body that was not ended."""
        with self._lock:
            self._dropped = True
            self._commanded.set()
            if not self._ends:
                self._phase = BodyPhase.FAILED
                if self._connection is not None and self._connection.sock is not None:
                    # Its thread may be in the middle of sending, which a close does not end. It closes the socket.
                    with suppress(OSError):
                        self._connection.sock.shutdown(socket.SHUT_RDWR)

    # -- its thread

    def _run(self) -> None:
        try:
            sock = self._connect()
            self._send_quads(sock)
            with self._lock:
                if self._phase is BodyPhase.SENDING:
                    self._phase = BodyPhase.HELD
            while not self._commanded.wait(DRIP_S):
                if time.monotonic() > self._kept_until:
                    raise ConnectionAbortedError("it was asked for no more")
                self._send(sock, _COMMENT)
            if not self._ends:
                return
            self._land(sock)
        except TxLogError as damaged:
            self._fail(f"{damaged.name}: {damaged}")
        except Exception as lost:  # noqa: BLE001 - a body without a thread would count as one that is sent for ever
            self._fail(f"{type(lost).__name__}: {lost}")
        finally:
            if self._connection is not None:
                self._connection.close()

    def _connect(self) -> socket.socket:
        kind = http.client.HTTPSConnection if self._parts.scheme == "https" else http.client.HTTPConnection
        connection = kind(self._parts.hostname or "", self._parts.port, timeout=CONNECT_TIMEOUT_S)
        connection.connect()
        with self._lock:
            self._connection = connection
        sock: socket.socket = connection.sock
        sock.settimeout(SEND_TIMEOUT_S)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        host = self._parts.netloc.rpartition("@")[2]
        path = self._parts.path.rstrip("/") + self._request.path
        head = [f"{self._request.method} {path} HTTP/1.1", f"Host: {host}", "Transfer-Encoding: chunked"]
        head += [f"{name}: {value}" for name, value in self._request.headers.items()]
        sock.sendall("\r\n".join([*head, "\r\n"]).encode())
        return sock

    def _send_quads(self, sock: socket.socket) -> None:
        shortest = b""
        for piece in self._open_quads():
            for at in range(0, len(piece), _PIECE_BYTES):
                self._send(sock, piece[at : at + _PIECE_BYTES])
            self.quads += piece.count(b"\n")
            shortest = shortest_line(piece, shortest)
        missing = count_filler(self.quads, shortest)
        lines = max(1, _PIECE_BYTES // max(1, len(shortest)))
        while missing > 0:
            self._send(sock, shortest * min(lines, missing))
            missing -= lines

    def _send(self, sock: socket.socket, data: bytes) -> None:
        if self._dropped:
            raise ConnectionAbortedError("it was given up")
        if _is_readable(sock):
            raise ConnectionError(self._read_early_answer(sock))
        if data:
            sock.sendall(b"%x\r\n%s\r\n" % (len(data), data))

    def _read_early_answer(self, sock: socket.socket) -> str:
        """What the store says before the end: it refuses a line, or ends."""
        answer = http.client.HTTPResponse(sock, method="POST")
        try:
            answer.begin()
            return f"the store answered {answer.status}: {answer.read(2000).decode('utf-8', 'replace')[:500]}"
        except (OSError, http.client.HTTPException) as closed:
            return f"the store closed the connection: {closed}"

    def _land(self, sock: socket.socket) -> None:
        try:
            if _is_readable(sock):
                # The end was never sent, so nothing lands.
                self._finish(BodyPhase.REFUSED, self._read_early_answer(sock))
                return
            sock.settimeout(LAND_TIMEOUT_S)
            sock.sendall(b"0\r\n\r\n")
            answer = http.client.HTTPResponse(sock, method="POST")
            answer.begin()
            text = answer.read(2000).decode("utf-8", "replace")[:500]
        except (ConnectionError, http.client.IncompleteRead) as closed:
            self._finish(BodyPhase.CLOSED, f"{type(closed).__name__}: {closed}")
        except Exception as late:  # noqa: BLE001 - a time-out, no HTTP: the store may be at work on it
            self._finish(BodyPhase.UNKNOWN, f"no answer: {type(late).__name__}: {late}")
        else:
            if 200 <= answer.status < 300:
                self._finish(BodyPhase.LANDED, None)
            elif answer.status in (502, 503, 504):
                self._finish(BodyPhase.UNKNOWN, f"answered {answer.status}: {text}")
            else:
                self._finish(BodyPhase.REFUSED, f"answered {answer.status}: {text}")

    def _fail(self, error: str) -> None:
        self._finish(BodyPhase.REFUSED if self._ends else BodyPhase.FAILED, error)

    def _finish(self, phase: BodyPhase, error: str | None) -> None:
        with self._lock:
            self._phase, self.error = phase, error


def _is_readable(sock: socket.socket) -> bool:
    poller = select.poll()
    poller.register(sock, select.POLLIN)
    return bool(poller.poll(0))


class StoreWitness:
    """Shows whether the process of a store has ended, by a connection that it would not close by itself: it is used
    again and again. A new connection shows nothing of an earlier process, so it only begins another watch: the store is
    restarted once more, and that is seen. A store that does not answer in time is slow, and has not ended. Not
    thread-safe."""

    def __init__(self, url: str) -> None:
        self._parts = urlsplit(url)
        self._connection: http.client.HTTPConnection | None = None
        self._used_at = 0.0

    def has_ended(self, request: WorkerRequest) -> bool:
        """Whether the process that answered the first call has ended since. ``request``: any that only reads."""
        connection, used_at = self._connection, self._used_at
        if connection is None or connection.sock is None or time.monotonic() - used_at > IDLE_MAX_S:
            self.close()
            return self._begin(request)
        try:
            self._ask(connection, request)
        except (ConnectionError, http.client.IncompleteRead):
            self.close()
            return time.monotonic() - used_at <= WATCHED_MAX_S
        except (OSError, http.client.HTTPException):
            # Above all a time-out. Its answer may still come, so this connection can be used no more.
            self.close()
            return False
        self._used_at = time.monotonic()
        return False

    def _begin(self, request: WorkerRequest) -> bool:
        kind = http.client.HTTPSConnection if self._parts.scheme == "https" else http.client.HTTPConnection
        connection = kind(self._parts.hostname or "", self._parts.port, timeout=CONNECT_TIMEOUT_S)
        try:
            connection.connect()
            connection.auto_open = 0  # a new connection would show nothing of the old process
            self._ask(connection, request)
        except ConnectionRefusedError:
            connection.close()
            return True  # no process is there at all
        except (OSError, http.client.HTTPException):
            connection.close()
            return False
        self._connection, self._used_at = connection, time.monotonic()
        return False

    def _ask(self, connection: http.client.HTTPConnection, request: WorkerRequest) -> None:
        path = self._parts.path.rstrip("/") + request.path
        connection.request(request.method, path, request.body, dict(request.headers))
        connection.getresponse().read()

    def close(self) -> None:
        """Closes the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
