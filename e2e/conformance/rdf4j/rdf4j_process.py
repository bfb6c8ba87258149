"""A real RDF4J server of its own process, with one repository in memory."""

from __future__ import annotations

import http.client
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

from e2e.conformance.pinned_artifacts import fetch_pinned
from e2e.lib.cluster.masters import REPOSITORY, stop_processes
from e2e.lib.ports import free_ports
from e2e.lib.report import CannotMeasure
from txlog.local.engines.java_runtime import obtain_java_home
from txlog.local.engines.rdf4j_server import JETTY_JAR, SERVER_WAR

PATH: Final = "/rdf4j-server"
START_S: Final = 120.0
_CONFIG: Final = f"""
@prefix rep: <http://www.openrdf.org/config/repository#> .
@prefix sr: <http://www.openrdf.org/config/repository/sail#> .
@prefix sail: <http://www.openrdf.org/config/sail#> .
@prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
[] a rep:Repository ; rep:repositoryID "{REPOSITORY}" ; rdfs:label "TxLog cluster {REPOSITORY}" ;
   rep:repositoryImpl [ rep:repositoryType "openrdf:SailRepository" ;
                        sr:sailImpl [ sail:sailType "openrdf:MemoryStore" ] ] .
"""


@contextmanager
def rdf4j_server(folder: Path) -> Iterator[str]:
    """Its address, ``host:port``, until the end. :class:`~txlog.local.local_errors.CannotRun` when it cannot be
    fetched,
    :class:`CannotMeasure` when it does not start."""
    jetty, war = fetch_pinned(JETTY_JAR), fetch_pinned(SERVER_WAR)
    java = obtain_java_home(folder / "java") / "bin" / "java"
    folder.mkdir(parents=True, exist_ok=True)
    [port] = free_ports(1)
    command: list[str | Path] = [
        *(java, "-Xmx512m", f"-Dorg.eclipse.rdf4j.appdata.basedir={folder / 'data'}", "-jar", jetty),
        *("--host", "127.0.0.1", "--port", str(port), "--path", PATH, war),
    ]
    with (folder / "rdf4j.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        where = f"127.0.0.1:{port}"
        _ready(where, process, folder / "rdf4j.log")
        yield where
    finally:
        stop_processes([process])


def _ready(where: str, process: subprocess.Popen[bytes], log: Path) -> None:
    until, last = time.monotonic() + START_S, "nothing"
    while time.monotonic() < until and process.poll() is None:
        with closing(http.client.HTTPConnection(where, timeout=START_S)) as connection:
            try:
                connection.request(
                    "PUT", f"{PATH}/repositories/{REPOSITORY}", _CONFIG.encode(), {"Content-Type": "text/turtle"}
                )
                answer = connection.getresponse()
                last = f"{answer.status} {answer.read()[:300]!r}"
                if answer.status == 204:
                    return
            except OSError as not_yet:
                last = str(not_yet)
        time.sleep(0.2)
    raise CannotMeasure(f"RDF4J's server is not ready: {last}; its log ends: {log.read_text(errors='replace')[-1500:]}")
