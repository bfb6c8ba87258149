"""A real store of its own process, on a free port and a folder of its own, that a test can kill and start again."""

from __future__ import annotations

import os
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from e2e.lib.ports import free_port
from txlog.workers import Adapter
from txlog.workers.adapter import SYSTEM, MarkerPosition, SystemGraphs, WorkerRequest, WorkerResponse
from txlog.workers.digest import Digest, digest_worker
from txlog.workers.http_transport import HttpTransport
from txlog.workers.marker_names import marker_name

START_S: Final = 180.0


@contextmanager
def swift_folder() -> Iterator[Path]:
    """In memory where there is such a place: some stores wait for the disk some twenty times in a commit, and what a
    killed process leaves there is the same."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as folder:
        yield Path(folder)


class StoreProcess:
    """``adapter``: of its engine. ``query_path``, ``update_path``, ``data_path``: as the store's own manual says.
    ``slow``: how many commits of the fastest engine fit into one of its."""

    adapter: Adapter
    slow = 20
    keeps_all = True
    """Whether what was answered outlives a kill at once; otherwise from :meth:`settle` on."""
    query_path = "/query"
    update_path = "/update"
    data_path = "/data"

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.url = self.at()
        self.command = self.told()
        self.start()

    def at(self) -> str:
        """Its URL as a worker."""
        return f"http://127.0.0.1:{self.port}"

    def told(self) -> list[str]:
        """The command that serves ``folder`` at ``port``."""
        raise NotImplementedError

    def start(self) -> None:
        with open(self.folder.parent / f"{self.folder.name}.log", "ab") as log:
            self.process = subprocess.Popen(self.command, stdout=log, stderr=log)
        deadline = time.monotonic() + START_S
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                assert self.process.poll() is None, f"somebody else listens; see {self.folder}.log"
                break
            except OSError:
                assert self.process.poll() is None, f"it ended at once; see {self.folder}.log"
                assert time.monotonic() < deadline, "it does not listen"
                time.sleep(0.005)
        self.transport = HttpTransport(self.url, 60)

    def kill(self) -> None:
        self.transport.close()
        self.process.kill()
        self.process.wait(30)

    def settle(self) -> None:
        """What was answered until now outlives a kill."""

    # -- what a test sees of it, without the code under test where that matters

    def send(self, request: WorkerRequest) -> WorkerResponse:
        return self.transport.send(request)

    def update(self, text: str) -> WorkerResponse:
        headers = {"Content-Type": "application/sparql-update"}
        return self.send(WorkerRequest("POST", self.update_path, headers, text.encode()))

    def ask(self, text: str, accept: str = "text/csv") -> WorkerResponse:
        headers = {"Content-Type": "application/sparql-query", "Accept": accept}
        return self.send(WorkerRequest("POST", self.query_path, headers, text.encode()))

    def select(self, text: str) -> list[str]:
        """The rows of a query as lines of CSV, sorted."""
        answer = self.ask(text)
        assert answer.ok, answer.text
        return sorted(answer.body.decode().split("\r\n")[1:-1])

    def quads(self) -> list[str]:
        """Everything that it gives out, ours too."""
        answer = self.send(WorkerRequest("GET", self.data_path, {"Accept": "application/n-quads"}))
        assert answer.ok, answer.text
        return sorted(answer.body.decode().splitlines())

    def data(self) -> list[str]:
        """The same without what is ours."""
        return [line for line in self.quads() if not line.startswith(f"<{SYSTEM}>")]

    def plant(self, marker: MarkerPosition) -> WorkerResponse:
        """A second marker, as two appliers that overlapped would leave it."""
        term = f"<{SYSTEM}>"
        return self.update(f"INSERT DATA {{ GRAPH <{marker_name(marker)}> {{ {term} {term} {term} }} }}")

    def system(self) -> SystemGraphs:
        return self.adapter.parse_system_graphs(self.send(self.adapter.read_system()))

    def digest(self) -> Digest:
        return digest_worker(self.adapter, self.transport)

    def clear(self) -> None:
        answer = self.update("DROP ALL")
        assert answer.ok, f"{answer.status}: {answer.text}"
