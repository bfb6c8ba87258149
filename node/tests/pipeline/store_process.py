"""A real worker for tests: an Oxigraph server with a folder, that can be killed, frozen and put back."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from pathlib import Path

from e2e.lib.ports import free_port
from txlog.model.entry import KIND_UPDATE

OXIGRAPH = Path(sys.executable).parent / "oxigraph"
COUNTED = KIND_UPDATE
COUNT_ONE = (
    b"DELETE { <urn:count> <urn:is> ?n } INSERT { <urn:count> <urn:is> ?more } "
    b"WHERE { OPTIONAL { <urn:count> <urn:is> ?n } BIND(COALESCE(?n, 0) + 1 AS ?more) }"
)
"""An update that shows how often it was carried out."""


def until(true: Callable[[], bool], seconds: float = 120.0, what: str = "") -> None:
    """Poll; fail with ``what`` when it is not true in time."""
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, what or "not in time"
        time.sleep(0.01)


class Store:
    def __init__(self, folder: Path, *options: str) -> None:
        self.folder = folder
        self._options = options
        self._port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def start(self) -> None:
        self._process = subprocess.Popen(
            [str(OXIGRAPH), "serve", "-l", str(self.folder), "-b", f"127.0.0.1:{self._port}", *self._options],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        until(self._answers, 120, "the store did not start")

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(self.url, timeout=1):
                return True
        except (urllib.error.URLError, OSError):
            return False

    def kill(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)
            self._process.kill()
            self._process.wait()
            self._process = None

    def freeze(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def copy_to(self, folder: Path) -> None:
        """A copy of the folder as a stopped store leaves it; the store runs again afterwards."""
        self.kill()
        shutil.copytree(self.folder, folder)
        self.start()

    def put_back(self, folder: Path) -> None:
        """The store as it was when ``folder`` was copied."""
        self.kill()
        shutil.rmtree(self.folder)
        shutil.copytree(folder, self.folder)
        self.start()

    def update(self, text: str) -> None:
        self._post("/update", "application/sparql-update", text)

    def select(self, text: str) -> list[str]:
        """The only column, sorted."""
        return sorted(self._post("/query", "application/sparql-query", text).split("\r\n")[1:-1])

    def count(self) -> int:
        """How often :data:`COUNT_ONE` was carried out."""
        return int((self.select("SELECT ?n { <urn:count> <urn:is> ?n }") or ["0"])[0])

    def _post(self, path: str, kind: str, text: str) -> str:
        headers = {"Content-Type": kind, "Accept": "text/csv"}
        with urllib.request.urlopen(
            urllib.request.Request(self.url + path, text.encode(), headers), timeout=10
        ) as answer:
            return str(answer.read().decode())
