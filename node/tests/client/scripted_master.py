"""An HTTP server that answers what a test tells it, and remembers what it was asked."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class ScriptedMaster:
    """``answers[(method, path without query)]``: ``(status, body)``, or a function that answers itself."""

    def __init__(self, server: ThreadingHTTPServer, scheme: str = "http") -> None:
        self.server = server
        self.url = f"{scheme}://127.0.0.1:{server.server_address[1]}"
        self.answers: dict[tuple[str, str], Any] = {}
        self.asked: list[tuple[str, str, bytes]] = []
        self.connections = 0
        self.headers: dict[str, str] = {}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    master: ScriptedMaster

    def setup(self) -> None:
        super().setup()
        self.master.connections += 1

    def _any(self) -> None:
        path = self.path.partition("?")[0]
        answer = self.master.answers.get((self.command, path), (404, {"error": "NotFound", "message": path}))
        if callable(answer):
            self.master.asked.append((self.command, self.path, b""))
            answer(self)
            return
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.master.asked.append((self.command, self.path, body))
        self.answer(*answer)

    do_GET = do_POST = do_PUT = do_DELETE = _any  # noqa: N815 - names that http.server looks for

    def answer(self, status: int, body: Any) -> None:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        for name, value in self.master.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def lines_in(self) -> Iterator[bytes]:
        """The lines of a chunked request body, as they arrive."""
        rest = b""
        while size := int(self.rfile.readline(), 16):
            *lines, rest = (rest + self.rfile.read(size)).split(b"\n")
            self.rfile.readline()
            yield from lines
        self.rfile.readline()

    def start_lines_out(self) -> Callable[[bytes], None]:
        """Begin a chunked answer; the function writes one line, an empty one ends it."""
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

        def line(data: bytes) -> None:
            self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))
            self.wfile.flush()

        return line

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def scripted_master(tls: ssl.SSLContext | None = None) -> Iterator[ScriptedMaster]:
    """``tls``: what it speaks, None: plainly."""
    handler = type("Handler", (Handler,), {})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    if tls is not None:  # hands are shaken by the thread of each connection
        server.handle_error = lambda *_: None  # type: ignore[method-assign, assignment]  # who does not trust it goes
        server.socket = tls.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    server.daemon_threads = True
    server.block_on_close = False
    handler.master = master = ScriptedMaster(server, "https" if tls is not None else "http")  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield master
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
