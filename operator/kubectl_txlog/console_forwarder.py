"""The console of a master in a browser on this machine, through Kubernetes' API server. Needs Python's own library
alone.

A small web server on loopback passes each request to the proxy of the master's pod, with the credentials of the
kubeconfig and of TxLog. Who reaches this server has those rights. So its address holds a random part, which other
users of the machine and other web sites do not know. The page asks by relative addresses only, so it works below it.
"""

from __future__ import annotations

import hmac
import http.client
import secrets
import ssl
import threading
from collections.abc import Callable, Mapping
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BufferedIOBase
from typing import Any, Final
from urllib.parse import urlsplit

from kubectl_txlog.api_server import open_connection
from txlog.auth.csrf import is_cross_site

LOOPBACK: Final = "127.0.0.1"
SECRET_BYTES: Final = 16
CONNECT_TIMEOUT_S: Final = 10.0
SILENCE_MAX_S: Final = 60.0
"""Between two pieces of an answer. The live view writes every 15 s."""
UPLOAD_BYTES_MAX: Final = 1 << 30
PIECE_BYTES: Final = 1 << 16
HOP_HEADERS: Final = frozenset(
    {
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
"""Those of one connection (RFC 9110, 7.6.1)."""
OWN_HEADERS: Final = HOP_HEADERS | {"host", "authorization", "cookie", "content-length", "origin", "referer"}
"""Not passed on with a request: the credentials are the plugin's. A master compares a page's origin with its own name,
which is another one here; this server has compared it with its own."""


class ConsoleForwarder:
    """Passes requests below its random path to ``target``, the URL of a master, with ``headers`` added. ``tls``: for an
    https target. :attr:`url` is the address of the page once :meth:`start` has returned."""

    def __init__(self, target: str, headers: Mapping[str, str], tls: ssl.SSLContext | None) -> None:
        self.target = urlsplit(target.rstrip("/"))
        self.headers = dict(headers)
        self.tls = tls
        self.secret = secrets.token_urlsafe(SECRET_BYTES)
        self._server: ThreadingHTTPServer | None = None
        self.url = ""

    def start(self, port: int) -> None:
        """Listen on loopback; 0 chooses a free port. Raises ``OSError`` for a port in use."""
        self._server = ThreadingHTTPServer((LOOPBACK, port), partial(_ConsoleHandler, self))
        self._server.daemon_threads = True  # a live view has no end
        self._server.block_on_close = False
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.url = f"http://{LOOPBACK}:{self._server.server_address[1]}/{self.secret}/console/"

    def close(self) -> None:
        """Stop listening."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()

    def connect(self) -> http.client.HTTPConnection:
        """A connection to the target. Raises ``OSError``."""
        made = open_connection(self.target.hostname or "", self.target.port, self.tls, CONNECT_TIMEOUT_S)
        made.connect()
        made.sock.settimeout(SILENCE_MAX_S)
        return made


class _ConsoleHandler(BaseHTTPRequestHandler):
    """One connection of a browser."""

    protocol_version = "HTTP/1.1"

    def __init__(self, console: ConsoleForwarder, *rest: Any) -> None:
        self.console = console
        super().__init__(*rest)  # serves the connection

    def forward(self) -> None:
        """Answer one request."""
        secret, _, path = self.path.removeprefix("/").partition("/")
        if not hmac.compare_digest(secret.encode(), self.console.secret.encode()):
            self._refuse(404, "see the address that kubectl txlog console has printed")
            return
        sent = self.headers
        if is_cross_site(self.command, sent.get("Host"), sent.get("Origin"), sent.get("Sec-Fetch-Site")):
            self._refuse(403, "a page of another site asks")
            return
        text = sent.get("Content-Length", "0")
        if sent.get("Transfer-Encoding") is not None or not (text.isascii() and text.isdecimal()):
            self._refuse(411, "a request with a body needs its length")
            return
        length = int(text)
        if length > UPLOAD_BYTES_MAX:
            self._refuse(413, f"expected at most {UPLOAD_BYTES_MAX} bytes")
            return
        try:
            connection = self.console.connect()
        except OSError as failed:
            self._refuse(502, f"the master is not reached through the API server: {failed!r}")
            return
        try:
            self._pass_on(connection, path, length)
        finally:
            connection.close()

    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = forward  # noqa: N815

    def _pass_on(self, connection: http.client.HTTPConnection, path: str, length: int) -> None:
        kept = {name: value for name, value in self.headers.items() if name.lower() not in OWN_HEADERS}
        body = _Bounded(self.rfile, length) if length else None
        if "Content-Length" in self.headers:
            kept["Content-Length"] = str(length)
        try:
            url = f"{self.console.target.path}/{path}"
            connection.request(self.command, url, body, {**kept, **self.console.headers})
            answer = connection.getresponse()
        except (OSError, http.client.HTTPException) as failed:
            self._refuse(502, f"the master is not reached through the API server: {failed!r}")
            return
        try:
            self._answer(answer)
        except (OSError, http.client.HTTPException):  # one of the two is gone, in the middle of the answer
            self.close_connection = True

    def _answer(self, answer: http.client.HTTPResponse) -> None:
        """The answer, piece by piece as it arrives: the live view has no end."""
        self.send_response_only(answer.status, answer.reason)
        for name, value in answer.getheaders():
            if name.lower() not in HOP_HEADERS:
                self.send_header(name, value)
        has_body = self.command != "HEAD" and answer.status >= 200 and answer.status not in (204, 304)
        chunked = has_body and answer.getheader("Content-Length") is None
        if chunked:
            self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        while has_body and (piece := answer.read1(PIECE_BYTES)):
            self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece) if chunked else piece)
        if chunked:
            self.wfile.write(b"0\r\n\r\n")

    def _refuse(self, status: int, why: str) -> None:
        """The rest of the request is not read, so the connection ends."""
        self.close_connection = True
        text = f"{why}\n".encode()
        self.send_response_only(status)
        for name, value in (
            ("Content-Type", "text/plain"),
            ("Content-Length", str(len(text))),
            ("Connection", "close"),
        ):
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(text)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Nothing: the terminal shows the address alone."""


class _Bounded:
    """A body of known length, read as it arrives."""

    def __init__(self, source: BufferedIOBase, length: int) -> None:
        self._source, self._left = source, length

    def read(self, size: int = PIECE_BYTES) -> bytes:
        """The next bytes; none at the end."""
        piece = self._source.read(min(size, self._left))
        self._left -= len(piece)
        return piece


def serve_console(forwarder: ConsoleForwarder, port: int, on_ready: Callable[[str], None]) -> None:
    """Serve until the process is interrupted. ``on_ready`` receives the address of the page."""
    try:
        forwarder.start(port)
        on_ready(forwarder.url)
        threading.Event().wait()
    finally:
        forwarder.close()
