"""A real Oxigraph server on a free port and a folder of its own, that a test can kill and start again."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from pathlib import Path

from txlog.workers import OxigraphAdapter
from txlog.workers.base import SystemGraphs, WorkerRequest, WorkerResponse
from txlog.workers.transport import HttpTransport

BINARY = Path(sys.executable).parent / "oxigraph"
ADAPTER = OxigraphAdapter()


class OxigraphProcess:
    def __init__(self, folder: Path, *arguments: str) -> None:
        self.folder = folder
        self.arguments = arguments
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port: int = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.start()

    def start(self) -> None:
        self.process = subprocess.Popen(
            [BINARY, "serve", "-l", self.folder, "-b", f"127.0.0.1:{self.port}", *self.arguments],
            stderr=subprocess.DEVNULL,
        )
        deadline = time.monotonic() + 30
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
            except OSError:
                assert self.process.poll() is None, "oxigraph ended at once"
                assert time.monotonic() < deadline, "oxigraph does not listen"
                time.sleep(0.005)
            else:
                break
        self.transport = HttpTransport(self.url, 30)

    def kill(self) -> None:
        self.transport.close()
        self.process.kill()
        self.process.wait(30)

    # -- what a test sees of it, without the code under test where that matters

    def send(self, request: WorkerRequest) -> WorkerResponse:
        return self.transport.send(request)

    def update(self, text: str) -> WorkerResponse:
        return self.send(WorkerRequest("POST", "/update", {"Content-Type": "application/sparql-update"}, text.encode()))

    def select(self, text: str) -> list[str]:
        """The rows of a query as lines of CSV, sorted."""
        headers = {"Content-Type": "application/sparql-query", "Accept": "text/csv"}
        answer = self.send(WorkerRequest("POST", "/query", headers, text.encode()))
        assert answer.ok, answer.text
        return sorted(answer.body.decode().split("\r\n")[1:-1])

    def quads(self) -> list[str]:
        answer = self.send(WorkerRequest("GET", "/store", {"Accept": "application/n-quads"}))
        assert answer.ok, answer.text
        return sorted(answer.body.decode().splitlines())

    def graphs(self) -> list[str]:
        """Every named graph, empty ones and ours too."""
        return self.select("SELECT ?g { GRAPH ?g {} }")

    def system(self) -> SystemGraphs:
        return ADAPTER.system_in(self.send(ADAPTER.read_system()))
