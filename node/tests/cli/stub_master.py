"""A master's paths as far as `txlog load` and the questions of the command line use them, over real HTTP."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class StubMaster:
    """Keeps what it was given, by Idempotency-Key. ``trouble`` may answer a line in its own way, or break off
    (ConnectionError)."""

    def __init__(self, node: str = "uk-1", store: dict[str, str] | None = None) -> None:
        self.node = node
        self.store: dict[str, str] = {} if store is None else store
        self.lines = 0
        self.trouble: Callable[[int, dict[str, Any]], dict[str, Any] | None] = lambda number, line: None
        self.workers: list[dict[str, Any]] = []
        self.holds: dict[str, int] = {}
        self.reports: list[dict[str, Any]] = []
        self.index = 7
        stub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: object) -> None:
                pass

            def do_GET(self) -> None:
                path = self.path.partition("?")[0]
                answers: dict[str, Any] = {
                    "/txlog/status": stub.status(),
                    "/txlog/workers": stub.workers,
                    "/txlog/duties": {"duties": []},
                    "/txlog/peers": [{"node": "uk-1", "state": "Joined"}, {"node": "us-1", "state": "Joined"}],
                }
                self.answer(answers[path])

            def do_PUT(self) -> None:
                told = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                stub.holds[self.path.rpartition("/")[2]] = told["index"]
                self.answer({})

            def do_DELETE(self) -> None:
                stub.holds.pop(self.path.rpartition("/")[2], None)
                self.answer({})

            def answer(self, value: Any) -> None:
                body = json.dumps(value).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def do_POST(self) -> None:
                if self.path.startswith("/txlog/workers/"):
                    stub.reports.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                    self.answer({"hold": stub.holds.get(self.path.rpartition("/")[2])})
                    return
                lines = self.chunked().splitlines()
                self.send_response(200)
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                try:
                    for text in lines:
                        line = json.loads(text)
                        stub.lines += 1
                        answer = stub.trouble(stub.lines, line)
                        if answer is None:
                            stub.store.setdefault(line["key"], line["quads"])
                            answer = {"txid": f"{stub.node}.00c0ffee00c0ffee.{stub.lines}", "durability": "synced"}
                        body = json.dumps(answer).encode() + b"\n"
                        self.wfile.write(b"%x\r\n%b\r\n" % (len(body), body))
                except ConnectionError:
                    self.close_connection = True
                    return
                self.wfile.write(b"0\r\n\r\n")

            def chunked(self) -> bytes:
                body = b""
                while size := int(self.rfile.readline(), 16):
                    body += self.rfile.read(size)
                    self.rfile.readline()
                self.rfile.readline()
                return body

        class Server(ThreadingHTTPServer):
            def handle_error(self, request: Any, client_address: Any) -> None:
                pass  # clients go away in the middle, on purpose

        self.server = Server(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def status(self) -> dict[str, Any]:
        place = {"epoch": 1, "index": self.index, "hash": "00" * 16}
        return {
            "node": self.node,
            "state": "Joined",
            "birth": "00c0ffee00c0ffee",
            "clusterId": "ab" * 16,
            "start": 1,
            "stable": place,
            "log": place,
            "dataCenter": self.node.rpartition("-")[0],
            "workers": self.workers,
        }

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
