"""A master's paths as far as `txlog load` and the questions of the command line use them, over real HTTP."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
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
        self.more: dict[str, Any] = {}
        """What else is answered, by path; None: no such path."""
        self.server = _Server(self)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def take(self, line: dict[str, Any]) -> dict[str, Any]:
        """One line of a load: what is answered to it."""
        self.lines += 1
        answer = self.trouble(self.lines, line)
        if answer is not None:
            return answer
        self.store.setdefault(line["key"], line["quads"])
        return {"txid": f"{self.node}.00c0ffee00c0ffee.{self.lines}", "durability": "synced"}

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


class _Server(ThreadingHTTPServer):
    def __init__(self, stub: StubMaster) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.stub = stub

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass  # clients go away in the middle, on purpose


class _Handler(BaseHTTPRequestHandler):
    """The paths: how each is asked and answered over HTTP; what is answered is the stub's."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # a body that follows its headers would wait for 40 ms
    server: _Server

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        stub = self.server.stub
        answers: dict[str, Any] = {
            "/txlog/status": stub.status(),
            "/txlog/workers": stub.workers,
            "/txlog/duties": {"duties": []},
            "/txlog/peers": [{"node": "uk-1", "state": "Joined"}, {"node": "us-1", "state": "Joined"}],
            **stub.more,
        }
        answer = answers.get(self.path.partition("?")[0])
        if answer is None:
            self._answer({"error": "NotFound", "message": f"no such path: {self.path}"}, 404)
        else:
            self._answer(answer)

    def do_PUT(self) -> None:
        self.server.stub.holds[self._worker] = self._told()["index"]
        self._answer({})

    def do_DELETE(self) -> None:
        self.server.stub.holds.pop(self._worker, None)
        self._answer({})

    def do_POST(self) -> None:
        if self.path.startswith("/txlog/workers/"):
            self.server.stub.reports.append(self._told())
            self._answer({"hold": self.server.stub.holds.get(self._worker)})
        else:
            self._load()

    @property
    def _worker(self) -> str:
        return self.path.rpartition("/")[2]

    def _told(self) -> dict[str, Any]:
        told: dict[str, Any] = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        return told

    def _answer(self, value: Any, code: int = 200) -> None:
        body = json.dumps(value).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _load(self) -> None:
        """A line is answered when all are there, as a chunk of its own."""
        lines = b"".join(self._chunks()).splitlines()
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        try:
            for line in lines:
                body = json.dumps(self.server.stub.take(json.loads(line))).encode() + b"\n"
                self.wfile.write(b"%x\r\n%b\r\n" % (len(body), body))
        except ConnectionError:
            self.close_connection = True
            return
        self.wfile.write(b"0\r\n\r\n")

    def _chunks(self) -> Iterator[bytes]:
        while size := int(self.rfile.readline(), 16):
            yield self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
