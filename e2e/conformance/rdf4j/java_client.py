"""RDF4J's own Java clients: the one out of the web application (4.1), and a newer one (5.2).

``Client.java`` runs in one go, ``SynchronousClient.java`` step by step.
"""

from __future__ import annotations

import subprocess
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import Empty, Queue
from threading import Thread
from typing import IO, Final

from e2e.conformance.pinned_artifacts import FOLDER, fetch_pinned
from e2e.conformance.rdf4j.suite_programs import LOCK_FILE, read_lock
from txlog.local.engines.java_runtime import obtain_java_home
from txlog.local.engines.maven_artifacts import fetch_artifacts
from txlog.local.engines.rdf4j_server import SERVER_WAR
from txlog.local.local_errors import CannotRun

CLIENT_LOCK_FILE: Final = Path(__file__).with_name("client_artifacts.lock")
SOURCE: Final = Path(__file__).with_name("Client.java")
STEPS_SOURCE: Final = Path(__file__).with_name("SynchronousClient.java")
TIMEOUT_S: Final = 300.0
STEP_S: Final = 60.0
_JARS: Final = "WEB-INF/lib/"


def run_java_client(server: str, repository: str, *, newer: bool = False) -> int:
    """How many checks it made against ``server`` (the URL that ends with ``/rdf4j-server``). ``newer``: the client of
    RDF4J 5.2.

    :class:`CannotRun` without a Java that compiles and where the jars cannot be fetched; AssertionError with what the
    client said when something was wrong."""
    with tempfile.TemporaryDirectory(prefix="txlog-java-") as place:
        folder = Path(place)
        java = _compiling_java(folder)
        path = _newer_path() if newer else _unpack_war(folder)
        done = subprocess.run(
            [java, "-Xmx256m", "-cp", path, SOURCE, server, repository],
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    words = done.stdout.split()
    if done.returncode != 0 or len(words) < 2 or words[-2] != "checks":
        raise AssertionError(f"{done.stdout}{done.stderr}".strip()[:1500])
    return int(words[-1])


class ClientSteps:
    """One running ``SynchronousClient.java``."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._lines: Queue[str] = Queue()
        self._answers: dict[tuple[str, str], str] = {}
        assert process.stdout is not None
        Thread(target=self._read, args=(process.stdout,), daemon=True).start()
        self._next_line(TIMEOUT_S)  # it is compiled

    def send(self, connection: str, *words: str) -> None:
        """Begin a step of ``plain`` (each of its writes is a request of its own) or ``transaction``."""
        assert self._process.stdin is not None
        self._process.stdin.write(" ".join((connection, *words)) + "\n")
        self._process.stdin.flush()

    def outcome(self, connection: str, action: str) -> str:
        """What the client said of a step that was sent: ``done``, or its exception. AssertionError if it says nothing
        for :data:`STEP_S` seconds."""
        while (connection, action) not in self._answers:
            where, what, said = self._next_line(STEP_S).split(" ", 2)
            self._answers[where, what] = said
        return self._answers.pop((connection, action))

    def run(self, connection: str, *words: str) -> str:
        """One step with its outcome."""
        self.send(connection, *words)
        return self.outcome(connection, words[0])

    def _read(self, stream: IO[str]) -> None:
        for line in stream:
            self._lines.put(line.strip())

    def _next_line(self, seconds: float) -> str:
        try:
            return self._lines.get(timeout=seconds)
        except Empty:
            raise AssertionError(f"RDF4J's client said nothing for {seconds:g} s") from None


@contextmanager
def client_steps(server: str, repository: str) -> Iterator[ClientSteps]:
    """The client of RDF4J 5.2, which runs step by step against ``server``. Errors as :func:`run_java_client`."""
    with tempfile.TemporaryDirectory(prefix="txlog-java-") as place:
        java = _compiling_java(Path(place))
        command = [str(java), "-Xmx256m", "-cp", _newer_path(), str(STEPS_SOURCE), server, repository]
        pipe = subprocess.PIPE
        with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True) as process:
            try:
                yield ClientSteps(process)
            finally:
                process.kill()


def _compiling_java(folder: Path) -> Path:
    java = obtain_java_home(folder / "java") / "bin" / "java"
    modules = subprocess.run([java, "--list-modules"], capture_output=True, text=True, timeout=60, check=True)
    if "jdk.compiler@" not in modules.stdout:
        raise CannotRun(f"{java} has no compiler (jdk.compiler): a JDK is needed")
    return java


def _unpack_war(folder: Path) -> str:
    with zipfile.ZipFile(fetch_pinned(SERVER_WAR)) as war:
        for name in war.namelist():
            if name.startswith(_JARS) and name.endswith(".jar") and _is_wanted(name):
                (folder / name.removeprefix(_JARS)).write_bytes(war.read(name))
    return f"{folder}/*"


def _newer_path() -> str:
    files = [artifact for lock in (LOCK_FILE, CLIENT_LOCK_FILE) for artifact in read_lock(lock.read_text())]
    return ":".join(str(jar) for jar in fetch_artifacts(files, FOLDER) if _is_wanted(jar.name))


def _is_wanted(name: str) -> bool:
    """All but a logger's backend, with which the client writes each byte that it sends."""
    return "logback" not in name
