"""Files of Maven Central that checks need, pinned by hash."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from txlog.local import maven
from txlog.local.maven import Artifact

FOLDER: Final = Path(__file__).parents[1] / "build" / "maven"

W3C_TESTS: Final = Artifact(
    "org.eclipse.rdf4j",
    "rdf4j-sparql-testsuite",
    "5.2.0",
    "b085ef49f807c24cd01b66087f86af1aec1801a3abbe51f519636d8b05659df0",
)
"""Holds the W3C's tests of SPARQL 1.0 and 1.1 as they were published."""
RDF4J_SERVER: Final = Artifact(
    "org.eclipse.rdf4j",
    "rdf4j-http-server",
    "4.1.3",
    "7cee02ac474451a09d8e012af9807aaa71e6e44c6380dc7f1a7e892fc8f629b3",
    "war",
)
"""The newest RDF4J server that is published as a web application; holds RDF4J's HTTP client, too."""
JETTY: Final = Artifact(
    "org.eclipse.jetty",
    "jetty-runner",
    "9.4.54.v20240208",
    "53fd433d18f4de5e87d78fa75ce8633e1533df2284fe1e4bb9beaedd17b30650",
)
"""Runs a web application."""


def fetched(artifact: Artifact) -> Path:
    """As :func:`txlog.local.maven.fetched`, kept in this folder's ``build``."""
    return maven.fetched(artifact, FOLDER)
