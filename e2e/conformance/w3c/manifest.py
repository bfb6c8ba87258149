"""A manifest of the W3C's tests: what each of its entries says.

Source: https://www.w3.org/2009/sparql/docs/tests/README.html, https://w3c.github.io/rdf-tests/
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Final

import pyoxigraph as ox

from e2e.conformance.w3c.case_kinds import QueryTest, SyntaxTest, TestDataset, UpdateTest, UploadTest, W3cTest

BASE: Final = "http://w3c.example/"
"""The files' IRIs begin so."""
_RDF: Final = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
_MF: Final = "http://www.w3.org/2001/sw/DataAccess/tests/test-manifest#"
_QT: Final = "http://www.w3.org/2001/sw/DataAccess/tests/test-query#"
_UT: Final = "http://www.w3.org/2009/sparql/tests/test-update#"
_DAWGT: Final = "http://www.w3.org/2001/sw/DataAccess/tests/test-dawg#"
_RDFT: Final = "http://www.w3.org/ns/rdftest#"
_LABEL: Final = "http://www.w3.org/2000/01/rdf-schema#label"
_EVALUATIONS: Final = frozenset(("QueryEvaluationTest", "CSVResultFormatTest", "UpdateEvaluationTest"))
_SYNTAX: Final = re.compile(r"(Positive|Negative)(Update)?SyntaxTest")
_UPLOAD: Final = re.compile(r"Test(Turtle|Trig|NTriples|NQuads|XML)(Eval|(?:Positive|Negative)(?:Syntax|Eval))")
_FROM: Final = re.compile(r"\bFROM\s+(?:NAMED\s+)?<([^>]*)>", re.IGNORECASE)
Term = ox.NamedNode | ox.BlankNode | ox.Literal


class SuiteManifest:
    """One file of the suite, from its triples. ``read``: the bytes of a file of the suite."""

    def __init__(self, path: str, triples: Iterable[ox.Triple], read: Callable[[str], bytes]) -> None:
        self._read = read
        self._path = path
        self._folder = posixpath.dirname(path)
        self._facts: dict[object, list[tuple[str, Term]]] = {}
        for triple in triples:
            assert not isinstance(triple.object, ox.Triple)
            self._facts.setdefault(triple.subject, []).append((triple.predicate.value, triple.object))

    def included(self) -> list[str]:
        """The manifests that this one includes."""
        return [posixpath.normpath(self._file(term)) for term in self._list(_MF + "include")]

    def evaluations(self) -> Iterator[QueryTest | UpdateTest]:
        """The tests whose result is compared, by the names that the suite gives them."""
        for test in self._list(_MF + "entries"):
            kinds = self._kinds(test)
            if kinds & _EVALUATIONS and not self._is_withdrawn(test):
                name = f"{posixpath.basename(self._folder)}/{self._one(test, _MF + 'name').value}"
                yield self._evaluation(test, name, "UpdateEvaluationTest" in kinds)

    def tests(self, root: str) -> Iterator[W3cTest]:
        """All tests that a server can be asked, by their paths below ``root``: the suites of RDF 1.2 use one name for
        several tests."""
        for test in self._list(_MF + "entries"):
            if self._is_withdrawn(test):
                continue
            name = f"{self._folder.removeprefix(root)}/{test.value.rpartition('#')[2]}"
            for kind in self._kinds(test):
                if kind in _EVALUATIONS:
                    yield self._evaluation(test, name, kind == "UpdateEvaluationTest")
                elif (syntax := _SYNTAX.fullmatch(kind)) is not None:
                    text = self._text(self._file(self._one(test, _MF + "action")))
                    yield SyntaxTest(name, text, bool(syntax[2]), syntax[1] == "Positive")
                elif (upload := _UPLOAD.fullmatch(kind)) is not None:
                    yield self._upload(test, name, upload[2])

    def _kinds(self, test: Term) -> set[str]:
        return {term.value.removeprefix(_MF).removeprefix(_RDFT) for term in self._all(test, _RDF + "type")}

    def _is_withdrawn(self, test: Term) -> bool:
        states = {term.value for name in (_DAWGT, _RDFT) for term in self._all(test, name + "approval")}
        return not states.isdisjoint((_DAWGT + "Withdrawn", _RDFT + "Rejected"))

    def _list(self, name: str) -> Iterator[Term]:
        """The members of the lists that this manifest has under a name."""
        heads = [term for facts in self._facts.values() for predicate, term in facts if predicate == name]
        for head in heads:
            at: Term = head
            while at != ox.NamedNode(_RDF + "nil"):
                yield self._one(at, _RDF + "first")
                at = self._one(at, _RDF + "rest")

    def _upload(self, test: Term, name: str, what: str) -> UploadTest:
        path = self._file(self._one(test, _MF + "action"))
        bases = [term.value for facts in self._facts.values() for key, term in facts if key == _MF + "assumedTestBase"]
        base = bases[0] if bases else BASE + self._folder + "/"
        result = self._file(self._one(test, _MF + "result")) if what == "Eval" else ""
        below = posixpath.relpath(path, self._folder)
        return UploadTest(name, path, base + below, result, not what.startswith("Negative"))

    def _evaluation(self, test: Term, name: str, is_update: bool) -> QueryTest | UpdateTest:
        action = self._one(test, _MF + "action")
        if is_update:
            request = self._file(self._one(action, _UT + "request"))
            after = self._world(self._one(test, _MF + "result"), _UT, _UT + "graph")
            return UpdateTest(name, self._text(request), self._world(action, _UT, _UT + "graph"), after)
        text = self._text(self._file(self._one(action, _QT + "query")))
        result = self._file(self._one(test, _MF + "result"))
        lax = ox.NamedNode(_MF + "LaxCardinality") in self._all(test, _MF + "resultCardinality")
        return QueryTest(name, text, self._world(action, _QT, _QT + "graph", text), result, lax)

    def _world(self, node: Term, words: str, graph: str, text: str = "") -> TestDataset:
        default = tuple(self._file(term) for term in self._all(node, words + "data"))
        named: list[tuple[str, str]] = []
        for term in self._all(node, words + "graphData"):
            file = next(iter(self._all(term, graph)), term)
            label = next(iter(self._all(term, _LABEL)), file)
            named.append((label.value, self._file(file)))
        if not default and not named:
            # A query that says itself which files it is about.
            named += [(BASE + path, path) for path in _files_in(text, self._folder)]
        return TestDataset(default, tuple(named))

    def _text(self, path: str) -> str:
        return f"BASE <{BASE}{path}>\n{self._read(path).decode()}"

    def _file(self, term: Term) -> str:
        assert isinstance(term, ox.NamedNode), term
        return term.value.removeprefix(BASE)

    def _all(self, node: object, name: str) -> list[Term]:
        return [term for predicate, term in self._facts.get(node, []) if predicate == name]

    def _one(self, node: object, name: str) -> Term:
        return self._all(node, name)[0]


def _files_in(text: str, folder: str) -> list[str]:
    return list(dict.fromkeys(f"{folder}/{name}" for name in _FROM.findall(text)))
