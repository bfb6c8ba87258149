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


def fetched(artifact: Artifact) -> Path:
    """As :func:`txlog.local.maven.fetched`, kept in this folder's ``build``."""
    return maven.fetched(artifact, FOLDER)
