"""A proxy before a real S3 server. It is the faulty network or store that an archiver sees; a direct client sees none
of it.

Requests go on byte for byte, with their own ``Host``, so their signatures stay valid.
"""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final
from urllib.parse import urlsplit

FORWARD_TIMEOUT_S: Final = 30.0
FILE_SUFFIX: Final = ".txl"
METHODS: Final = ("GET", "HEAD", "PUT", "POST", "DELETE")

REFUSED: Final = {"unavailable": (503, "SlowDown"), "denied": (403, "AccessDenied"), "full": (507, "QuotaExceeded")}
"""Faults that are an answer: its status and the code in its body. ``full`` concerns writes alone."""
LATER: Final = ("slow", "lost-answer", "flip-stored", "flip-read")
"""Faults of requests that reach the server."""


class S3FaultProxy:
    """Listens on a free port until :meth:`close`. ``fault``: the present one, empty for none. ``hits``: the requests
    that met it. ``slow_s``: how long each request waits under ``slow``."""

    def __init__(self, url: str, slow_s: float = 2.0) -> None:
        self.fault = ""
        self.hits = 0
        self.slow_s = slow_s
        self._host = urlsplit(url).netloc
        self._server = _QuietServer(("127.0.0.1", 0), self._handler())
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, name="s3-proxy", daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    @contextmanager
    def during(self, fault: str) -> Iterator[None]:
        """``fault``: ``away``, one of :data:`REFUSED` or of :data:`LATER`. Flipped bits are those of one file."""
        self.hits, self.fault = 0, fault
        try:
            yield
        finally:
            self.fault = ""

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_any(self) -> None:
                proxy._serve(self)

            def log_message(self, *_: object) -> None:
                pass

        for method in METHODS:
            setattr(Handler, f"do_{method}", Handler.do_any)
        return Handler

    def _serve(self, request: BaseHTTPRequestHandler) -> None:
        body = request.rfile.read(int(request.headers.get("Content-Length") or 0))
        fault, method = self.fault, request.command
        is_file = urlsplit(request.path).path.endswith(FILE_SUFFIX)
        if fault == "away":
            self.hits += 1
            request.close_connection = True
            return
        if fault in REFUSED and (fault != "full" or method == "PUT"):
            self.hits += 1
            status, code = REFUSED[fault]
            _answer(request, status, {}, f"<Error><Code>{code}</Code></Error>".encode())
            return
        if fault == "slow":
            self.hits += 1
            time.sleep(self.slow_s)
        answer = self._forward(request, body)
        if fault == "lost-answer" and method == "PUT" and is_file:
            self.hits += 1
            request.close_connection = True
            return
        if is_file and fault == "flip-read" and method == "GET" and answer.content and not self.hits:
            self.hits += 1
            answer.content = _flip(answer.content)
        if is_file and fault == "flip-stored" and method == "PUT" and answer.status == 200 and not self.hits:
            self.hits += 1
            self.on_stored(urlsplit(request.path).path)
        _answer(request, answer.status, answer.headers, answer.content)

    def on_stored(self, path: str) -> None:
        """Called under ``flip-stored`` with the path of an object that was just stored, before the answer. The owner
        of the proxy replaces it: the proxy has no credentials."""

    def _forward(self, request: BaseHTTPRequestHandler, body: bytes) -> _Answer:
        connection = http.client.HTTPConnection(self._host, timeout=FORWARD_TIMEOUT_S)
        try:
            connection.putrequest(request.command, request.path, skip_host=True, skip_accept_encoding=True)
            for name, value in request.headers.items():
                connection.putheader(name, value)
            connection.endheaders(body or None)
            found = connection.getresponse()
            return _Answer(found.status, dict(found.getheaders()), found.read())
        except OSError:
            return _Answer(502, {}, b"<Error><Code>BadGateway</Code></Error>")
        finally:
            connection.close()


class _QuietServer(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        """A client that is gone is what these tests do."""


class _Answer:
    def __init__(self, status: int, headers: dict[str, str], content: bytes) -> None:
        self.status = status
        self.headers = headers
        self.content = content


def _answer(request: BaseHTTPRequestHandler, status: int, headers: dict[str, str], content: bytes) -> None:
    try:
        request.send_response_only(status)
        for name, value in headers.items():
            if name.lower() not in ("transfer-encoding", "connection", "content-length"):
                request.send_header(name, value)
        length = headers.get("Content-Length") if request.command == "HEAD" else None
        request.send_header("Content-Length", length or str(len(content)))
        request.end_headers()
        if request.command != "HEAD":
            request.wfile.write(content)
    except OSError:
        request.close_connection = True  # the client waited no longer


def _flip(data: bytes) -> bytes:
    at = len(data) // 2
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
