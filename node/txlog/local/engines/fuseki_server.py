"""How an Apache Jena Fuseki is obtained and started here: its server as one jar, on the Java that Spark runs on.

TDB2 keeps nearly everything in mapped files, outside Java's heap; what the heap holds is bounded, and a Fuseki that
needs more ends, is started again, and has carried out nothing of that request.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from txlog.local.engines.maven_artifacts import MavenArtifact, fetch_artifact

SERVER_JAR: Final = MavenArtifact(
    "org.apache.jena",
    "jena-fuseki-server",
    "5.6.0",
    "d28c1eaf703122ee628895a460c20fa4aa60a892f435d403ea8c036f241da1f8",
)
"""The last one that runs on Java 17; newer ones need 21, which not everybody has."""
DATASET: Final = "txlog"
"""A worker's URL ends with it."""
HEAP_MIB: Final = 1024


def obtain_fuseki() -> Path:
    """The server's jar. :class:`~txlog.local.local_errors.CannotRun` as
    :func:`txlog.local.engines.maven_artifacts.fetch_artifact`."""
    return fetch_artifact(SERVER_JAR)


def fuseki_command(jar: Path, java_home: Path, folder: Path, port: int) -> tuple[str, ...]:
    """The process that serves ``folder``, which is there, at ``http://127.0.0.1:<port>/txlog``."""
    return (
        *(str(java_home / "bin" / "java"), f"-Xmx{HEAP_MIB}m", "-XX:+UseSerialGC", "-XX:+ExitOnOutOfMemoryError"),
        *("-cp", str(jar), "org.apache.jena.fuseki.main.cmds.FusekiMainCmd", "--quiet", "--modules=false"),
        *("--localhost", "--port", str(port), "--no-cors", "--compact"),
        # A worker asks no other address, whoever tells it to; the appliers' guard rests on this, too.
        *("--set", "http://jena.apache.org/ARQ#httpServiceAllowed=false"),
        *("--tdb2", "--loc", str(folder), "--update", f"/{DATASET}"),
    )
