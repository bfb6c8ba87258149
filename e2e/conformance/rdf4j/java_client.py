"""RDF4J's own Java clients, compiled with ``Client.java`` and run in one go: the one out of the web application (4.1),
and a newer one (5.2)."""

from __future__ import annotations

import subprocess
import tempfile
import zipfile
from pathlib import Path
from typing import Final

from e2e.conformance.pinned_artifacts import FOLDER, fetch_pinned
from e2e.conformance.rdf4j.suite_programs import LOCK_FILE, read_lock
from txlog.local.engines.java_runtime import obtain_java_home
from txlog.local.engines.maven_artifacts import fetch_artifacts
from txlog.local.engines.rdf4j_server import SERVER_WAR
from txlog.local.local_errors import CannotRun

CLIENT_LOCK_FILE: Final = Path(__file__).with_name("client_artifacts.lock")
SOURCE: Final = Path(__file__).with_name("Client.java")
TIMEOUT_S: Final = 300.0
_JARS: Final = "WEB-INF/lib/"


def run_java_client(server: str, repository: str, *, newer: bool = False) -> int:
    """How many checks it made against ``server`` (the URL that ends with ``/rdf4j-server``). ``newer``: the client of
    RDF4J 5.2.

    :class:`CannotRun` without a Java that compiles and where the jars cannot be fetched; AssertionError with what the
    client said when something was wrong."""
    with tempfile.TemporaryDirectory(prefix="txlog-java-") as place:
        folder = Path(place)
        java = obtain_java_home(folder / "java") / "bin" / "java"
        modules = subprocess.run([java, "--list-modules"], capture_output=True, text=True, timeout=60, check=True)
        if "jdk.compiler@" not in modules.stdout:
            raise CannotRun(f"{java} has no compiler (jdk.compiler): a JDK is needed")
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
