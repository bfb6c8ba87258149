"""The W3C's tests of queries and updates that are evaluated, as their manifests say them.

Left out: entailment (no store here infers), SERVICE, and the protocol's and the syntax's own tests.

Source: https://www.w3.org/2009/sparql/docs/tests/README.html
"""

from __future__ import annotations

import posixpath
import re
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

import pyoxigraph as ox

from e2e.conformance.pinned_artifacts import W3C_TESTS, fetch_pinned

BASE: Final = "http://w3c.example/"
"""The files' IRIs begin so."""
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
_RDF: Final = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
_MF: Final = "http://www.w3.org/2001/sw/DataAccess/tests/test-manifest#"
_QT: Final = "http://www.w3.org/2001/sw/DataAccess/tests/test-query#"
_UT: Final = "http://www.w3.org/2009/sparql/tests/test-update#"
_DAWGT: Final = "http://www.w3.org/2001/sw/DataAccess/tests/test-dawg#"
_LABEL: Final = "http://www.w3.org/2000/01/rdf-schema#label"
_EVALUATIONS: Final = ("QueryEvaluationTest", "CSVResultFormatTest", "UpdateEvaluationTest")
_MEDIA: Final = {
    ".ttl": ox.RdfFormat.TURTLE,
    ".n3": ox.RdfFormat.TURTLE,
    ".nt": ox.RdfFormat.N_TRIPLES,
    ".rdf": ox.RdfFormat.RDF_XML,
}
_FROM: Final = re.compile(r"\bFROM\s+(?:NAMED\s+)?<([^>]*)>", re.IGNORECASE)
Term = ox.NamedNode | ox.BlankNode | ox.Literal


@dataclass(frozen=True)
class TestDataset:
    """Data that a test begins or ends with: files (their paths in the suite) of the default graph, and by graph."""

    default: tuple[str, ...]
    named: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class QueryTest:
    """``text`` names its own base; ``result``: the file with what must come out; ``lax``: how often is left open."""

    name: str
    text: str
    before: TestDataset
    result: str
    lax: bool


@dataclass(frozen=True)
class UpdateTest:
    name: str
    request: str
    before: TestDataset
    after: TestDataset


class W3cSuite:
    """The files, out of the jar that holds them."""

    def __init__(self, jar: Path | None = None) -> None:
        self._jar = zipfile.ZipFile(jar or fetch_pinned(W3C_TESTS))

    def read(self, path: str) -> bytes:
        return self._jar.read(path)

    def triples(self, path: str) -> list[ox.Triple]:
        """A file of RDF. SyntaxError when it is none."""
        form = _MEDIA[posixpath.splitext(path)[1]]
        quads = ox.parse(self.read(path), form, base_iri=BASE + path, rename_blank_nodes=True)
        return [ox.Triple(quad.subject, quad.predicate, quad.object) for quad in quads]

    @cached_property
    def tests(self) -> list[QueryTest | UpdateTest]:
        """Those that were approved, in the order of their manifests."""
        found: list[QueryTest | UpdateTest] = []
        for root, names in FOLDERS.items():
            for folder in names.split():
                found += _Manifest(self, f"{root}/{folder}/manifest.ttl").tests()
        return found


class _Manifest:
    def __init__(self, suite: W3cSuite, path: str) -> None:
        self._suite = suite
        self._folder = posixpath.dirname(path)
        self._facts: dict[object, list[tuple[str, Term]]] = {}
        for triple in suite.triples(path):
            assert not isinstance(triple.object, ox.Triple)
            self._facts.setdefault(triple.subject, []).append((triple.predicate.value, triple.object))

    def tests(self) -> Iterator[QueryTest | UpdateTest]:
        at: object = next(facts for facts in self._entries())
        while at != ox.NamedNode(_RDF + "nil"):
            test = self._one(at, _RDF + "first")
            kinds = {term.value.removeprefix(_MF) for term in self._all(test, _RDF + "type")}
            states = {term.value for term in self._all(test, _DAWGT + "approval")}
            if kinds & set(_EVALUATIONS) and _DAWGT + "Withdrawn" not in states:
                yield self._test(test, "UpdateEvaluationTest" in kinds)
            at = self._one(at, _RDF + "rest")

    def _entries(self) -> Iterator[Term]:
        for facts in self._facts.values():
            yield from (term for name, term in facts if name == _MF + "entries")

    def _test(self, test: Term, is_update: bool) -> QueryTest | UpdateTest:
        name = f"{posixpath.basename(self._folder)}/{self._one(test, _MF + 'name').value}"
        action = self._one(test, _MF + "action")
        if is_update:
            request = self._path(self._one(action, _UT + "request"))
            after = self._world(self._one(test, _MF + "result"), _UT, _UT + "graph")
            return UpdateTest(name, self._text(request), self._world(action, _UT, _UT + "graph"), after)
        text = self._text(self._path(self._one(action, _QT + "query")))
        result = self._path(self._one(test, _MF + "result"))
        lax = ox.NamedNode(_MF + "LaxCardinality") in self._all(test, _MF + "resultCardinality")
        return QueryTest(name, text, self._world(action, _QT, _QT + "graph", text), result, lax)

    def _world(self, node: Term, words: str, graph: str, text: str = "") -> TestDataset:
        default = tuple(self._path(term) for term in self._all(node, words + "data"))
        named: list[tuple[str, str]] = []
        for term in self._all(node, words + "graphData"):
            file = next(iter(self._all(term, graph)), term)
            label = next(iter(self._all(term, _LABEL)), file)
            named.append((label.value, self._path(file)))
        if not default and not named:
            # A query that says itself which files it is about.
            named += [(BASE + path, path) for path in _files_in(text, self._folder)]
        return TestDataset(default, tuple(named))

    def _text(self, path: str) -> str:
        return f"BASE <{BASE}{path}>\n{self._suite.read(path).decode()}"

    def _path(self, term: Term) -> str:
        assert isinstance(term, ox.NamedNode), term
        return term.value.removeprefix(BASE)

    def _all(self, node: object, name: str) -> list[Term]:
        return [term for predicate, term in self._facts.get(node, []) if predicate == name]

    def _one(self, node: object, name: str) -> Term:
        return self._all(node, name)[0]


def _files_in(text: str, folder: str) -> list[str]:
    return list(dict.fromkeys(f"{folder}/{name}" for name in _FROM.findall(text)))


def quads_of(suite: W3cSuite, world: TestDataset) -> list[ox.Quad]:
    """What stands in its files."""
    files: list[tuple[ox.NamedNode | ox.DefaultGraph, str]] = [(ox.DefaultGraph(), path) for path in world.default]
    files += [(ox.NamedNode(name), path) for name, path in world.named]
    return [
        ox.Quad(triple.subject, triple.predicate, triple.object, graph)
        for graph, path in files
        for triple in suite.triples(path)
    ]
