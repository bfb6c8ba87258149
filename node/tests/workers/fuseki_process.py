"""A real Apache Jena Fuseki, with TDB2 on disk, on a free port and a folder of its own, that a test can kill."""

from __future__ import annotations

import os
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from txlog.local.fuseki import DATASET, find_fuseki, fuseki_command
from txlog.local.java import find_java_home
from txlog.workers import FusekiAdapter
from txlog.workers.base import SystemGraphs, WorkerRequest, WorkerResponse
from txlog.workers.transport import HttpTransport

ADAPTER = FusekiAdapter()
START_S = 60.0


@contextmanager
def swift_folder() -> Iterator[Path]:
    """In memory where there is such a place: TDB2 waits for the disk some twenty times in a commit, and what a killed
    process leaves there is the same."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as folder:
        yield Path(folder)


class FusekiProcess:
    """``without``: an argument of the command that is left out, with its value."""

    def __init__(self, folder: Path, *, without: str = "") -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port: int = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}/{DATASET}"
        java = find_java_home(folder.parent / f"{folder.name}-java")
        self.command = list(fuseki_command(find_fuseki(), java, folder, self.port))
        if without:
            at = self.command.index(without)
            del self.command[at : at + 2]
        self.start()

    def start(self) -> None:
        with open(self.folder.parent / f"{self.folder.name}.log", "ab") as log:
            # Its start is most of what these tests cost, and less with the quick compiler alone.
            environment = {**os.environ, "JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1"}
            self.process = subprocess.Popen(self.command, stdout=log, stderr=log, env=environment)
        deadline = time.monotonic() + START_S
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                break
            except OSError:
                assert self.process.poll() is None, f"fuseki ended at once; see {self.folder}.log"
                assert time.monotonic() < deadline, "fuseki does not listen"
                time.sleep(0.02)
        self.transport = HttpTransport(self.url, 60)

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
        """Everything, ours too."""
        answer = self.send(WorkerRequest("GET", "/data", {"Accept": "application/n-quads"}))
        assert answer.ok, answer.text
        return sorted(answer.body.decode().splitlines())

    def system(self) -> SystemGraphs:
        return ADAPTER.system_in(self.send(ADAPTER.read_system()))

    def clear(self) -> None:
        assert self.update("DROP ALL").ok
