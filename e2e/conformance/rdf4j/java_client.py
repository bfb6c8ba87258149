"""RDF4J's own Java client, out of the web application, compiled and run in one go: ``Client.java``."""

from __future__ import annotations

import subprocess
import tempfile
import zipfile
from pathlib import Path
from typing import Final

from e2e.conformance.pinned_artifacts import fetch_pinned
from txlog.local.engines.java_runtime import obtain_java_home
from txlog.local.engines.rdf4j_server import SERVER_WAR
from txlog.local.local_errors import CannotRun

SOURCE: Final = Path(__file__).with_name("Client.java")
TIMEOUT_S: Final = 300.0
_JARS: Final = "WEB-INF/lib/"


def run_java_client(server: str, repository: str) -> int:
    """How many checks it made against ``server`` (the URL that ends with ``/rdf4j-server``).

    :class:`CannotRun` without a Java that compiles and where the jars cannot be fetched; AssertionError with what the
    client said when something was wrong."""
    with tempfile.TemporaryDirectory(prefix="txlog-java-") as place:
        folder = Path(place)
        java = obtain_java_home(folder / "java") / "bin" / "java"
        modules = subprocess.run([java, "--list-modules"], capture_output=True, text=True, timeout=60, check=True)
        if "jdk.compiler@" not in modules.stdout:
            raise CannotRun(f"{java} has no compiler (jdk.compiler): a JDK is needed")
        with zipfile.ZipFile(fetch_pinned(SERVER_WAR)) as war:
            for name in war.namelist():
                # Without a logger's backend: the client would write each byte that it sends.
                if name.startswith(_JARS) and name.endswith(".jar") and "logback" not in name:
                    (folder / name.removeprefix(_JARS)).write_bytes(war.read(name))
        done = subprocess.run(
            [java, "-Xmx256m", "-cp", f"{folder}/*", SOURCE, server, repository],
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    words = done.stdout.split()
    if done.returncode != 0 or len(words) < 2 or words[-2] != "checks":
        raise AssertionError(f"{done.stdout}{done.stderr}".strip()[:1500])
    return int(words[-1])
