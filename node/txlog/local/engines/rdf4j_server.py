"""Obtains and starts an RDF4J server: the web application that RDF4J publishes, in a servlet container of one jar, on
Spark's Java.

Its repository is in LMDB: a commit there is one switch of a root, so a process that dies leaves the last commit.
"""

from __future__ import annotations

import os
import tempfile
import zipfile
from pathlib import Path
from typing import Final, NamedTuple

from txlog.config.atomic_file import write_atomically
from txlog.local.engines.java_runtime import java_command
from txlog.local.engines.maven_artifacts import MavenArtifact, fetch_artifact

SERVER_WAR: Final = MavenArtifact(
    "org.eclipse.rdf4j",
    "rdf4j-http-server",
    "4.1.3",
    "7cee02ac474451a09d8e012af9807aaa71e6e44c6380dc7f1a7e892fc8f629b3",
    "war",
)
"""The newest RDF4J server that is published as a web application; it contains RDF4J's HTTP client, too."""
JETTY_JAR: Final = MavenArtifact(
    "org.eclipse.jetty",
    "jetty-runner",
    "9.4.54.v20240208",
    "53fd433d18f4de5e87d78fa75ce8633e1533df2284fe1e4bb9beaedd17b30650",
)
"""The servlet container. The last line of Jetty that is available as one jar; RDF4J 4 needs its servlet interface."""
REPOSITORY: Final = "txlog"
REPOSITORY_PATH: Final = f"/rdf4j-server/repositories/{REPOSITORY}"
"""The end of a worker's URL."""
DEFAULT_SAIL: Final = '[ sail:sailType "rdf4j:LmdbStore" ]'
_CONFIG: Final = """\
@prefix rep: <http://www.openrdf.org/config/repository#> .
@prefix sr: <http://www.openrdf.org/config/repository/sail#> .
@prefix sail: <http://www.openrdf.org/config/sail#> .
[] a rep:Repository ; rep:repositoryID "{name}" ;
   rep:repositoryImpl [ rep:repositoryType "openrdf:SailRepository" ; sr:sailImpl {sail} ] .
"""


class Rdf4jFiles(NamedTuple):
    """``application``: the web application, unpacked."""

    jetty: Path
    application: Path


def obtain_rdf4j(folder: Path) -> Rdf4jFiles:
    """``folder``: where the application is unpacked, unless it exists. In a container's own temporary folder each start
    would leave another copy. :class:`~txlog.local.local_errors.CannotRun` as
    :func:`txlog.local.engines.maven_artifacts.fetch_artifact`."""
    jetty, war = fetch_artifact(JETTY_JAR), fetch_artifact(SERVER_WAR)
    application = folder / war.stem
    if not application.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as place, zipfile.ZipFile(war) as packed:
            new = Path(place) / application.name
            packed.extractall(new)
            os.replace(new, application)
    return Rdf4jFiles(jetty, application)


def prepare_rdf4j(folder: Path, sail: str = DEFAULT_SAIL) -> None:
    """Prepares a folder for :func:`rdf4j_command`: the repository's configuration, if there is none, and a folder for
    the container's files."""
    config = folder / "server" / "repositories" / REPOSITORY / "config.ttl"
    if not config.exists():
        config.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(config, _CONFIG.format(name=REPOSITORY, sail=sail).encode())
    (folder / "container").mkdir(parents=True, exist_ok=True)


def rdf4j_command(files: Rdf4jFiles, java_home: Path, folder: Path, port: int) -> tuple[str, ...]:
    """The process that serves a folder of :func:`prepare_rdf4j` at ``http://127.0.0.1:<port>`` and
    :data:`REPOSITORY_PATH`."""
    return (
        *java_command(java_home),
        *(f"-Dorg.eclipse.rdf4j.appdata.basedir={folder}", f"-Djava.io.tmpdir={folder / 'container'}"),
        *("-jar", str(files.jetty), "--host", "127.0.0.1", "--port", str(port)),
        *("--path", "/rdf4j-server", str(files.application)),
    )
