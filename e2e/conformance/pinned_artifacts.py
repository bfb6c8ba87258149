"""Files of Maven Central that checks need, pinned by hash."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from txlog.local.engines import maven_artifacts
from txlog.local.engines.maven_artifacts import MavenArtifact

FOLDER: Final = Path(__file__).parents[2] / "build" / "maven"

W3C_TESTS: Final = MavenArtifact(
    "org.eclipse.rdf4j",
    "rdf4j-sparql-testsuite",
    "5.2.0",
    "b085ef49f807c24cd01b66087f86af1aec1801a3abbe51f519636d8b05659df0",
)
"""Holds the W3C's tests of SPARQL 1.0 and 1.1 as they were published."""


def fetch_pinned(artifact: MavenArtifact) -> Path:
    """As :func:`txlog.local.engines.maven_artifacts.fetch_pinned`, kept in this folder's ``build``."""
    return maven_artifacts.fetch_artifact(artifact, FOLDER)
