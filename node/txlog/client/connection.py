"""One blocking keep-alive connection to a master, with a time-out on every wait, for one thread at a time."""

from __future__ import annotations

import http.client
import re
import select
import socket
import ssl
from collections.abc import Generator, Iterable, Iterator, Mapping
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from txlog.client.ca_trust import CaTrust, describe_tls_error
from txlog.client.credentials import Credentials
from txlog.client.errors import MasterUnreachable, parse_error
from txlog.client.full_duplex_tls import FullDuplexTlsSocket
from txlog.client.line_sender import LineSender

_NO_HEADERS: Mapping[str, str] = {}
API_PATH: Final = "/txlog/"
REPOSITORIES_PATH: Final = "/txlog/repositories"
_REPOSITORY_URL: Final = re.compile(rf"(?P<root>.*){REPOSITORIES_PATH}/(?P<name>[^/]+)")


def _has_bytes(sock: socket.socket | FullDuplexTlsSocket) -> bool:
    """Whether bytes, or the end of the stream, can be read without waiting."""
    if isinstance(sock, FullDuplexTlsSocket) and sock.has_bytes():
        return True
    waiting = select.poll()
    waiting.register(sock, select.POLLIN)
    return bool(waiting.poll(0))


class HttpReply(NamedTuple):
    """A whole answer: status below 400, headers and body."""

    status: int
    headers: http.client.HTTPMessage
    body: bytes


class _HttpsConnection(http.client.HTTPSConnection):
    """``name``: the host that a certificate must name, None: the one that is connected to."""

    def __init__(self, host: str, port: int | None, name: str | None, timeout: float, context: ssl.SSLContext) -> None:
        super().__init__(host, port, timeout=timeout, context=context)
        self._name = name or self.host
        self._tls = context

    def connect(self) -> None:
        http.client.HTTPConnection.connect(self)
        self.sock = FullDuplexTlsSocket(self.sock, self._tls, self._name)


class MasterConnection:
    """One connection to a master. ``connect_s`` bounds connecting, ``timeout_s`` each wait for bytes of an answer (not
    the whole answer); both are seconds. ``credentials``: the credentials that it sends. ``tls``: the authorities that
    it trusts. By default the environment names both. ``name``: the host that a certificate must name, where that is
    not the URL's.

    ``url`` may end in ``/txlog/repositories/NAME``: then TxLog's paths are those of that repository's log. So whatever
    takes the URL of a master works on the log of a further repository."""

    def __init__(
        self,
        url: str,
        *,
        timeout_s: float,
        connect_s: float = 2.0,
        tls: ssl.SSLContext | None = None,
        credentials: Credentials | None = None,
        name: str | None = None,
    ) -> None:
        parts = urlsplit(url)
        assert parts.scheme in ("http", "https"), f"a master's URL begins with http:// or https://: {url!r}"
        assert parts.hostname, f"no host in {url!r}"
        self.url = url.rstrip("/")
        of_repository = _REPOSITORY_URL.fullmatch(parts.path.rstrip("/"))
        self._root = of_repository["root"] if of_repository is not None else parts.path.rstrip("/")
        self._api = parts.path.rstrip("/") + "/" if of_repository is not None else self._root + API_PATH
        self._credentials = Credentials.from_environment() if credentials is None else credentials
        self._timeout_s = timeout_s
        self._connect_s = min(connect_s, timeout_s)
        self._is_https, self._host, self._port = parts.scheme == "https", parts.hostname, parts.port
        self._tls = tls
        self._name = name
        self._http = http.client.HTTPConnection(self._host, self._port)  # never opened: see _connect

    def _new_connection(self) -> http.client.HTTPConnection:
        # http.client sets TCP_NODELAY itself when it connects
        if not self._is_https:
            return http.client.HTTPConnection(self._host, self._port, timeout=self._connect_s)
        context = self._tls or CaTrust.from_environment().context()
        return _HttpsConnection(self._host, self._port, self._name, self._connect_s, context)

    def _full_path(self, path: str) -> str:
        """Where the master has this path of TxLog's or of the RDF4J protocol. The list of repositories belongs to the
        process."""
        if path.startswith(API_PATH) and not path.startswith(REPOSITORIES_PATH):
            return self._api + path.removeprefix(API_PATH)
        return self._root + path

    def close(self) -> None:
        """Close the connection. The next request opens another one."""
        self._http.close()

    def request(
        self,
        method: str,
        path: str,
        *,
        body: bytes | None = None,
        headers: Mapping[str, str] = _NO_HEADERS,
        timeout_s: float | None = None,
        repeatable: bool = True,
    ) -> HttpReply:
        """The whole answer. Raises :class:`MasterUnreachable` when there is none, and the master's own typed error when
        the status is 400 or more.

        The master may have closed a kept connection just before it is used. A ``repeatable`` request is then sent
        once more on a new connection."""
        for attempt in (1, 2):
            kept = self._http.sock is not None
            try:
                return self._attempt(method, path, body, headers, timeout_s or self._timeout_s)
            except MasterUnreachable as gone:
                stale = kept and isinstance(gone.__cause__, (ConnectionError, http.client.RemoteDisconnected))
                if attempt == 2 or not stale or not (repeatable or not gone.sent):
                    raise
        raise AssertionError("unreachable")

    def _attempt(
        self, method: str, path: str, body: bytes | None, headers: Mapping[str, str], timeout_s: float
    ) -> HttpReply:
        sent = {**self._credentials.headers(), **headers}
        self._connect()
        try:
            self._http.sock.settimeout(timeout_s)
            self._http.request(method, self._full_path(path), body=body, headers=sent)
            answer = self._http.getresponse()
            reply = HttpReply(answer.status, answer.headers, answer.read())
        except (OSError, http.client.HTTPException) as broken:
            self.close()
            raise MasterUnreachable(self.url, _describe_error(broken), sent=True) from broken
        except BaseException:
            self.close()  # an interrupt in the middle: the connection is in no known state
            raise
        if reply.status >= 400:
            raise parse_error(self.url + path, reply.status, reply.headers, reply.body)
        return reply

    def _connect(self) -> None:
        if self._http.sock is not None and _has_bytes(self._http.sock):
            self.close()  # no answer is due, so what can be read is the master's end of an idle connection
        if self._http.sock is not None:
            return
        self._http = self._new_connection()
        try:
            self._http.connect()
        except (OSError, http.client.HTTPException) as refused:
            self.close()
            raise MasterUnreachable(self.url, _describe_error(refused), sent=False) from refused

    def follow_lines(self, path: str, *, headers: Mapping[str, str], timeout_s: float) -> Iterator[bytes]:
        """GET an answer that need not end, and yield its lines as they arrive, without their newlines. An incomplete
        last line is dropped. ``timeout_s`` bounds the wait for bytes. Errors as in :meth:`request`; a truncated answer
        is one. The connection is closed afterwards."""
        shown = self._credentials.headers()
        self._connect()
        try:
            self._http.sock.settimeout(timeout_s)
            self._http.request("GET", self._full_path(path), headers={**shown, **headers})
            answer = self._http.getresponse()
            if answer.status >= 400:
                raise parse_error(self.url + path, answer.status, answer.headers, answer.read())
            yield from _complete_lines(answer)
        except (OSError, http.client.HTTPException) as broken:
            raise MasterUnreachable(self.url, _describe_error(broken), sent=True) from broken
        finally:
            self.close()

    def stream_lines(
        self, path: str, lines: Iterable[bytes], *, headers: Mapping[str, str], timeout_s: float
    ) -> Iterator[bytes]:
        """POST ``lines`` as the caller produces them, and yield the answer's lines as they arrive, without newlines.

        Both directions run at once: a master may answer the first line before it has read the last. It would stop
        reading while the client does not read its answers. ``timeout_s`` bounds the wait for each line. Errors as in
        :meth:`request`; never repeated. The connection is closed when the caller stops early."""
        shown = self._credentials.headers()
        self._connect()
        wire, sender = self._http, LineSender(self._http.sock, lines)
        complete = False
        try:
            wire.sock.settimeout(timeout_s)
            wire.putrequest("POST", self._full_path(path))
            for name, value in {**shown, **headers, "Transfer-Encoding": "chunked"}.items():
                wire.putheader(name, value)
            wire.endheaders()
            sender.start()
            answer = wire.getresponse()
            if answer.status >= 400:
                raise parse_error(self.url + path, answer.status, answer.headers, answer.read())
            rest = yield from _complete_lines(answer)
            if answer.length:  # read1() accepts that an answer of known length is truncated
                raise http.client.IncompleteRead(rest, answer.length)
            answer.close()  # otherwise it would count as unread, and its connection as busy
            if rest:
                yield rest
            complete = sender.has_sent_everything(timeout_s)
        except (OSError, http.client.HTTPException) as broken:
            sender.raise_producer_error()
            raise MasterUnreachable(self.url, _describe_error(broken), sent=True) from broken
        finally:
            if not complete:
                sender.abort()
                self.close()
            sender.release()
        sender.raise_producer_error()
        if not complete:
            raise MasterUnreachable(self.url, "the answer ended before everything was sent", sent=True)


def _complete_lines(answer: http.client.HTTPResponse) -> Generator[bytes, None, bytes]:
    """Yield the lines of an answer as they arrive, without newlines. Returns the bytes after the last newline."""
    rest = b""
    while piece := answer.read1(1 << 16):  # unlike readline() it raises when a chunked answer is truncated
        *whole, rest = (rest + piece).split(b"\n")
        yield from whole
    return rest


def _describe_error(error: Exception) -> str:
    trouble = describe_tls_error(error)
    if trouble is not None:
        return trouble
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
