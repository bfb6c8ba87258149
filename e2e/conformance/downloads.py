"""``python -m e2e.conformance.downloads``: fetches what tests need of Maven Central and Debian, before they run.

Each test fetches for itself what is missing, and waits a minute or two for many small files. ``make test`` fetches them
once, while other steps compute. The exit code is 1, with the reason, where something cannot be fetched.
"""

from __future__ import annotations

import sys

from e2e.conformance.pinned_artifacts import FOLDER, RDF12_TESTS, TLA_TOOLS, W3C_TESTS
from e2e.conformance.rdf4j.java_client import CLIENT_LOCK_FILE
from e2e.conformance.rdf4j.suite_programs import LOCK_FILE, read_lock
from txlog.local.engines import fuseki_server, rdf4j_server
from txlog.local.engines.maven_artifacts import MavenArtifact, fetch_artifacts
from txlog.local.engines.virtuoso_server import obtain_virtuoso
from txlog.local.local_errors import CannotRun


def pinned_files() -> list[MavenArtifact]:
    """The files of this checkout's ``build`` folder, each once."""
    locked = [artifact for lock in (LOCK_FILE, CLIENT_LOCK_FILE) for artifact in read_lock(lock.read_text())]
    return list({artifact.filename: artifact for artifact in (*locked, W3C_TESTS, RDF12_TESTS, TLA_TOOLS)}.values())


def engine_files() -> list[MavenArtifact]:
    """The files of the user's cache: the stores that run in Java."""
    return [fuseki_server.SERVER_JAR, rdf4j_server.JETTY_JAR, rdf4j_server.SERVER_WAR]


def main() -> int:
    try:
        fetch_artifacts(engine_files())
        obtain_virtuoso()
        fetch_artifacts(pinned_files(), FOLDER)
    except CannotRun as why:
        print(f"{why}\nThe tests that need it try again.", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
