"""The blocking transport to a worker: one keep-alive HTTP connection, for a Spark task, a job or a test."""

from __future__ import annotations

import http.client
import select
import socket
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from urllib.parse import urlsplit

from txlog.workers.adapter import RequestOutcome, StreamedResponse, Unreachable, WorkerRequest, WorkerResponse

CHUNK_BYTES = 1 << 20
"""Bytes of a streamed answer that one read asks for."""
_NO_HEADERS: Mapping[str, str] = {}
_TRANSIENT = {502, 503, 504}
_KEEPALIVE = [
    (getattr(socket, name), value)
    for name, value in (("TCP_KEEPIDLE", 10), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 4))
    if hasattr(socket, name)
]
"""TCP keep-alive: a worker whose host is gone is detected within half a minute, however long a request may take."""


class _Sender:
    """One connection, and the outcome of the request on it."""

    def __init__(
        self, url: str, timeout_s: float, connect_s: float, tls: ssl.SSLContext | None, headers: Mapping[str, str]
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"not the URL of a worker: {url!r}; it looks like http://host:7878")
        self.url = url
        self.headers = headers
        self.base = parts.path.rstrip("/")
        self.host = parts.netloc.rpartition("@")[2]
        self.timeout_s = timeout_s
        self.timed_out_sockets: list[socket.socket] = []
        """Of requests that may change the worker: a store that hangs for long would collect those of all checks."""
        self.reads = False
        """Whether the last request changes nothing."""
        self.http: http.client.HTTPConnection
        if parts.scheme == "https":
            self.http = http.client.HTTPSConnection(parts.hostname, parts.port, timeout=connect_s, context=tls)
        else:
            self.http = http.client.HTTPConnection(parts.hostname, parts.port, timeout=connect_s)

    def send(self, request: WorkerRequest) -> http.client.HTTPResponse:
        head = [f"{request.method} {self.base}{request.path} HTTP/1.1", f"Host: {self.host}"]
        head += [f"{name}: {value}" for name, value in {**self.headers, **request.headers}.items()]
        head.append(f"Content-Length: {len(request.body)}")
        assert not any("\r" in line or "\n" in line for line in head), head
        sock = self._connect()
        self.reads = request.reads or request.method == "GET"
        wait_s = self.timeout_s if request.timeout_s is None else request.timeout_s
        try:
            sock.settimeout(wait_s)
            # Head and body in one segment: http.client would send two, and a small request would wait for both.
            try:
                sock.sendall("\r\n".join([*head, "\r\n"]).encode() + request.body)
            except ConnectionError as closed:
                return self._early_refusal(sock, request, closed)
            answer = http.client.HTTPResponse(sock, method=request.method)
            try:
                answer.begin()
            except BaseException:
                answer.close()  # it holds the socket, too, until it is collected
                raise
            return answer
        except (OSError, http.client.HTTPException) as lost:
            raise self.connection_lost(lost, wait_s) from lost

    def _early_refusal(
        self, sock: socket.socket, request: WorkerRequest, closed: ConnectionError
    ) -> http.client.HTTPResponse:
        """The answer of a worker, or of a proxy, that refused the request before all of it was sent, and closed the
        connection. Raises ``closed`` without such an answer: the worker may have ended."""
        answer = http.client.HTTPResponse(sock, method=request.method)
        try:
            answer.begin()
        except (OSError, http.client.HTTPException):
            raise closed from None
        if answer.status < 400:
            raise closed
        answer.will_close = True
        return answer

    def connection_lost(self, error: Exception, wait_s: float | None = None) -> Unreachable:
        """Close the broken connection; returns the error, with what is known of the request. ``wait_s``: for how many
        seconds its answer was awaited."""
        if isinstance(error, TimeoutError) and not self.reads:
            # The worker may still execute the request for a long time. The open connection will show its end.
            sock, self.http.sock = self.http.sock, None
            if sock is not None:
                self.timed_out_sockets.append(sock)
        self.http.close()
        if isinstance(error, TimeoutError):
            waited_s = self.timeout_s if wait_s is None else wait_s
            return Unreachable(self.url, f"no answer within {waited_s:g} s", RequestOutcome.UNKNOWN)
        closed = isinstance(
            error, ConnectionError | http.client.IncompleteRead | http.client.RemoteDisconnected | ssl.SSLEOFError
        )
        why = f"{type(error).__name__}: {error}"
        return Unreachable(self.url, why, RequestOutcome.CLOSED if closed else RequestOutcome.UNKNOWN)

    def _connect(self) -> socket.socket:
        sock: socket.socket | None = self.http.sock
        if sock is not None:
            # The worker has closed an idle connection that is readable. Detected before sending, the transport only
            # connects again. Detected after, it would not know whether the worker executed the request.
            if not _readable(sock):
                return sock
            self.http.close()
        try:
            self.http.connect()
        except OSError as refused:
            self.http.close()
            raise Unreachable(self.url, f"cannot connect: {refused}", RequestOutcome.NOT_SENT) from refused
        sock = self.http.sock
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in _KEEPALIVE:
            sock.setsockopt(socket.IPPROTO_TCP, option, value)
        return sock

    def settled(self) -> bool:
        for sock in [s for s in self.timed_out_sockets if _readable(s)]:  # an answer, the end, or no peer any more
            sock.close()
            self.timed_out_sockets.remove(sock)
        return not self.timed_out_sockets

    def close(self) -> None:
        self.http.close()
        for sock in self.timed_out_sockets:
            sock.close()
        self.timed_out_sockets = []


def _readable(sock: socket.socket) -> bool:
    poller = select.poll()  # not select(): file numbers above 1024 exist
    poller.register(sock, select.POLLIN)
    return bool(poller.poll(0))


class HttpTransport:
    """The transport to one worker, by its URL. ``timeout_s`` bounds each wait for bytes (not the whole answer),
    ``connect_s`` the connecting; both are seconds. ``headers``: sent with each request, for a proxy in between. One
    thread at a time."""

    def __init__(
        self,
        url: str,
        timeout_s: float = 30.0,
        *,
        connect_s: float = 2.0,
        tls: ssl.SSLContext | None = None,
        headers: Mapping[str, str] = _NO_HEADERS,
    ) -> None:
        self._arguments = (url, timeout_s, connect_s, tls, headers)
        self._sender = _Sender(*self._arguments)

    @property
    def url(self) -> str:
        return self._sender.url

    def settled(self) -> bool:
        """Whether every request that timed out is over by now: answered, or its connection is closed."""
        return self._sender.settled()

    def close(self) -> None:
        """Close the connections, also those of requests that timed out. A later request connects again."""
        self._sender.close()

    def __enter__(self) -> HttpTransport:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def send(self, request: WorkerRequest) -> WorkerResponse:
        """The answer, with any status except 502, 503 and 504; raises :class:`Unreachable`."""
        answer = self._sender.send(request)
        try:
            body = answer.read()
        except (OSError, http.client.HTTPException) as lost:
            answer.close()
            raise self._sender.connection_lost(lost) from lost
        if answer.will_close:
            self._sender.http.close()
        if answer.status in _TRANSIENT:
            # A worker sends 503 before it executes anything; 502 and 504 come from a proxy that cannot know.
            fate = RequestOutcome.NOT_SENT if answer.status == 503 else RequestOutcome.UNKNOWN
            why = f"answered {answer.status}: {body[:200].decode('utf-8', 'replace')}"
            # With 504 the proxy has stopped waiting: the worker is slow, and may still execute the request.
            raise Unreachable(self.url, why, fate) from (TimeoutError(why) if answer.status == 504 else None)
        return WorkerResponse(answer.status, _headers(answer), body)

    @contextmanager
    def stream(self, request: WorkerRequest) -> Iterator[StreamedResponse]:
        """The answer with its body in chunks, over a connection of its own."""
        sender = _Sender(*self._arguments)
        try:
            answer = sender.send(request)
            yield StreamedResponse(answer.status, _headers(answer), _chunks(sender, answer))
        finally:
            sender.close()


def _headers(answer: http.client.HTTPResponse) -> dict[str, str]:
    return {name.lower(): value for name, value in answer.getheaders()}


def _chunks(sender: _Sender, answer: http.client.HTTPResponse) -> Iterator[bytes]:
    while True:
        try:
            piece = answer.read1(CHUNK_BYTES)
        except (OSError, http.client.HTTPException) as lost:
            raise sender.connection_lost(lost) from lost
        if not piece:
            # A chunked body that ends early raises above; one of known length does not.
            if answer.length:
                raise sender.connection_lost(http.client.IncompleteRead(b"", answer.length))
            return
        yield piece
