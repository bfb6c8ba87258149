"""Obtains and starts an Apache Jena Fuseki: its server as one jar, on Spark's Java.

TDB2 keeps nearly everything in mapped files, outside Java's heap, and the heap is limited. A Fuseki that needs more
exits and is restarted, and has executed nothing of that request.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from txlog.local.engines.java_runtime import java_command
from txlog.local.engines.maven_artifacts import MavenArtifact, fetch_artifact

SERVER_JAR: Final = MavenArtifact(
    "org.apache.jena",
    "jena-fuseki-server",
    "5.6.0",
    "d28c1eaf703122ee628895a460c20fa4aa60a892f435d403ea8c036f241da1f8",
)
"""The last version for Java 17; newer ones need 21, which is often not installed."""
DATASET: Final = "txlog"
"""The end of a worker's URL."""


def obtain_fuseki() -> Path:
    """The server's jar. :class:`~txlog.local.local_errors.CannotRun` as
    :func:`txlog.local.engines.maven_artifacts.fetch_artifact`."""
    return fetch_artifact(SERVER_JAR)


def fuseki_command(jar: Path, java_home: Path, folder: Path, port: int) -> tuple[str, ...]:
    """The process that serves ``folder``, which must exist, at ``http://127.0.0.1:<port>/txlog``."""
    return (
        *java_command(java_home),
        *("-cp", str(jar), "org.apache.jena.fuseki.main.cmds.FusekiMainCmd", "--quiet", "--modules=false"),
        *("--localhost", "--port", str(port), "--no-cors", "--compact"),
        # A worker must not connect to other addresses; the appliers' guard relies on this, too.
        *("--set", "http://jena.apache.org/ARQ#httpServiceAllowed=false"),
        *("--tdb2", "--loc", str(folder), "--update", f"/{DATASET}"),
    )
