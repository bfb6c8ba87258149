"""A listening port of a master, with TLS or without.

With TLS, the listener examines each connection before the handshake. A client that sends plain HTTP gets an error in
plain HTTP, and a failed handshake has a named reason. Renewed certificates apply to the next connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable, Coroutine
from typing import Any, Final, Protocol

from txlog.auth.tls import Certificates, describe_handshake_failure
from txlog.telemetry.event_log import EventLog

BACKLOG: Final = 1024
HANDSHAKE_TIMEOUT_S: Final = 10.0
"""Seconds from the connection to the end of the handshake."""
SHUTDOWN_TIMEOUT_S: Final = 1.0
"""Seconds for which the listener still reads a connection after its last answer, so that the client receives it."""
ACCEPT_RETRY_S: Final = 0.1
"""Seconds after a connection could not be accepted (no file handle left)."""

_TLS_HANDSHAKE: Final = 0x16
_PLAIN_HTTP_BODY: Final = b"this port speaks TLS: ask with https://\n"
_PLAIN_HTTP_RESPONSE: Final = (
    b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nTxLog-Error: PlainAtTlsPort\r\n"
    b"Connection: close\r\nContent-Length: %d\r\n\r\n%b" % (len(_PLAIN_HTTP_BODY), _PLAIN_HTTP_BODY)
)


class Listener(Protocol):
    """An open port."""

    def close(self) -> None:
        """Accepts no more connections; open ones stay."""


def ignore_refusals(reason: str, message: str) -> None:
    """A ``refused`` callback that does nothing."""
    return


async def listen(
    factory: Callable[[], asyncio.Protocol],
    host: str,
    port: int,
    log: EventLog,
    certificates: Certificates | None,
    refused: Callable[[str, str], None] = ignore_refusals,
) -> Listener:
    """Opens the port. ``certificates``: None for plain connections. The listener calls ``refused(reason, message)`` for
    each failed handshake. ``OSError`` if the port cannot be opened."""
    if certificates is None:
        return await asyncio.get_running_loop().create_server(factory, host, port, backlog=BACKLOG, reuse_address=True)
    listening = _TlsListener(factory, log, certificates, refused)
    await listening.open(host, port)
    return listening


class _TlsListener:
    def __init__(
        self,
        factory: Callable[[], asyncio.Protocol],
        log: EventLog,
        certificates: Certificates,
        refused: Callable[[str, str], None],
    ) -> None:
        self._factory = factory
        self._log = log
        self._certificates = certificates
        self._on_refused = refused
        self._socket: socket.socket | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def open(self, host: str, port: int) -> None:
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, _, _, _, address = found[0]
        listening = socket.create_server(address[:2], family=family, backlog=BACKLOG)
        listening.setblocking(False)
        self._socket = listening
        self._spawn(self._accept(listening))

    def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        if self._socket is not None:
            self._socket.close()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                sock, address = await loop.sock_accept(listening)
            except OSError as wrong:
                self._log.warning_rate_limited("CannotAccept", "", message=str(wrong))
                await asyncio.sleep(ACCEPT_RETRY_S)
                continue
            self._spawn(self._handle_connection(sock, str(address[0])))

    async def _handle_connection(self, sock: socket.socket, address: str) -> None:
        """Handles one connection until the factory's protocol takes it over."""
        taken = False
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            async with asyncio.timeout(HANDSHAKE_TIMEOUT_S):
                first = await _first_byte(sock)
                if first is None:
                    return
                if first != _TLS_HANDSHAKE:
                    self._log.warning_rate_limited("PlainAtTlsPort", address, address=address)
                    await _reply_plain_http(sock)
                    return
                taken = True  # from now on its transport closes it
                await asyncio.get_running_loop().connect_accepted_socket(
                    self._factory,
                    sock,
                    ssl=self._certificates.server_context,
                    ssl_handshake_timeout=HANDSHAKE_TIMEOUT_S,
                    ssl_shutdown_timeout=SHUTDOWN_TIMEOUT_S,
                )
        except (ssl.SSLError, OSError, TimeoutError) as failed:
            reason, message = describe_handshake_failure(failed)
            self._log.warning_rate_limited(reason, address, address=address, message=message)
            self._on_refused(reason, message)
        finally:
            if not taken:
                sock.close()


async def _first_byte(sock: socket.socket) -> int | None:
    """The first byte, which stays unread. None if the connection ended without one."""
    loop = asyncio.get_running_loop()
    while True:
        try:
            peeked = sock.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            ready: asyncio.Future[None] = loop.create_future()
            loop.add_reader(sock, _set_ready, ready)
            try:
                await ready
            finally:
                loop.remove_reader(sock)
            continue
        return peeked[0] if peeked else None


def _set_ready(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)


async def _reply_plain_http(sock: socket.socket) -> None:
    """Answers, and reads what is still being sent. A connection that is closed with unread bytes is reset, and its last
    answer is lost."""
    loop = asyncio.get_running_loop()
    with contextlib.suppress(OSError, TimeoutError):
        async with asyncio.timeout(SHUTDOWN_TIMEOUT_S):
            await loop.sock_sendall(sock, _PLAIN_HTTP_RESPONSE)
            sock.shutdown(socket.SHUT_WR)
            while await loop.sock_recv(sock, 1 << 16):
                pass
