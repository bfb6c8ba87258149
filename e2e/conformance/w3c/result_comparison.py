"""Answers of queries and contents of stores, and when two of them are the same.

Blank nodes are matched by isomorphism. Literals are compared by the form in which the engine keeps them (``01`` is
``1``): which form a store gives back is not what is asked here (docs/limits.md). Solutions are compared with their
number, in any order unless the suite says one.
"""

from __future__ import annotations

import csv
import io
import posixpath
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

import pyoxigraph as ox

BNODES: Final = "urn:txlog:bnode:"
"""A blank node that went through a master is an IRI that begins so."""
JSON: Final = "application/sparql-results+json"
XML: Final = "application/sparql-results+xml"
CSV: Final = "text/csv"
TSV: Final = "text/tab-separated-values"
N_TRIPLES: Final = "application/n-triples"
_FORMS: Final = {
    JSON: ox.QueryResultsFormat.JSON,
    XML: ox.QueryResultsFormat.XML,
    TSV: ox.QueryResultsFormat.TSV,
}
_OF_FILE: Final = {".srj": JSON, ".srx": XML, ".csv": CSV, ".tsv": TSV}
_RS: Final = "http://www.w3.org/2001/sw/DataAccess/tests/result-set#"
_RDF: Final = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
_NUMBER: Final = re.compile(r"[+-]?\d+(?:\.\d*)?(?:[eE][+-]?\d+)?")
_ROW, _VALUE, _NEXT = (ox.NamedNode(f"urn:row:{name}") for name in ("row", "value", "next"))
_TERM_PARTS: Final = tuple(ox.NamedNode(f"urn:term:{name}") for name in ("subject", "predicate", "object"))
Term = ox.NamedNode | ox.BlankNode | ox.Literal | ox.Triple
Statement = tuple[Term, ox.NamedNode, Term, Term | None]


class Solutions(NamedTuple):
    """``rows``: values by variable; where nothing is bound, nothing stands. ``ordered``: the order counts."""

    variables: frozenset[str]
    rows: tuple[tuple[tuple[str, Term], ...], ...]
    ordered: bool = False


class Cells(NamedTuple):
    """CSV does not say what is an IRI and what a literal."""

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


class Statements(NamedTuple):
    """A graph (without names) or a dataset."""

    quads: frozenset[Statement]


QueryOutcome = bool | Solutions | Cells | Statements


def media_of(result: str, expected: QueryOutcome) -> str:
    """In which form to ask, so that the suite's own files are met by answers of their kind."""
    if isinstance(expected, Statements):
        return N_TRIPLES
    return _OF_FILE.get(posixpath.splitext(result)[1], JSON)


def read_answer(body: bytes, media: str) -> QueryOutcome:
    """An answer in the form that was asked for. SyntaxError, ValueError when it is none."""
    if media == CSV:
        header, *lines = csv.reader(io.StringIO(body.decode(), newline=""))
        return Cells(tuple(header), tuple(tuple(line) for line in lines))
    if media == N_TRIPLES:
        return statements_of(ox.parse(body, ox.RdfFormat.N_TRIPLES))
    found = ox.parse_query_results(body, _FORMS[media])
    if isinstance(found, ox.QueryBoolean):
        return bool(found)
    names = [variable.value for variable in found.variables]
    rows: list[tuple[tuple[str, Term], ...]] = []
    for solution in found:
        cells = [(name, solution[name]) for name in names]
        rows.append(tuple((name, _kept(value)) for name, value in cells if value is not None))
    return Solutions(frozenset(names), tuple(rows))


def read_result(body: bytes, path: str, triples: Sequence[ox.Triple] | None) -> QueryOutcome:
    """What a file of the suite says must come out; ``triples``: the same, where it is RDF."""
    if triples is None:
        return read_answer(body, _OF_FILE[posixpath.splitext(path)[1]])
    facts: dict[object, list[tuple[str, Term]]] = {}
    for triple in triples:
        facts.setdefault(triple.subject, []).append((triple.predicate.value.removeprefix(_RS), _term(triple.object)))
    sets = [node for node, told in facts.items() if (_RDF + "type", ox.NamedNode(_RS + "ResultSet")) in told]
    if not sets:
        return statements_of(triples)
    [told] = [facts[node] for node in sets]
    for name, value in told:
        if name == "boolean":
            return _text(value) == "true"
    rows: list[tuple[int, tuple[tuple[str, Term], ...]]] = []
    for solution in (node for name, node in told if name == "solution"):
        row: list[tuple[str, Term]] = []
        index = -1
        for name, value in facts[solution]:
            if name == "index":
                index = int(_text(value))
            elif name == "binding":
                binding = dict(facts[value])
                row.append((_text(binding["variable"]), _kept(binding["value"])))
        rows.append((index, tuple(row)))
    variables = frozenset(_text(value) for name, value in told if name == "resultVariable")
    ordered = bool(rows) and all(index >= 0 for index, _ in rows)
    if ordered:
        rows.sort(key=lambda row: row[0])
    return Solutions(variables, tuple(row for _, row in rows), ordered)


def statements_of(quads: Iterable[ox.Quad | ox.Triple]) -> Statements:
    """What stands there, each once."""
    found = set()
    for quad in quads:
        graph = quad.graph_name if isinstance(quad, ox.Quad) else ox.DefaultGraph()
        named = None if isinstance(graph, ox.DefaultGraph) else _unskolemised(graph)
        found.add((_unskolemised(_term(quad.subject)), quad.predicate, _kept(_term(quad.object)), named))
    return Statements(frozenset(found))


def is_equal(wanted: QueryOutcome, found: QueryOutcome, *, lax: bool = False) -> bool:
    """``lax``: of equal solutions at least one and not more than ``wanted`` has (REDUCED)."""
    match wanted, found:
        case bool(), bool():
            return wanted == found
        case Statements(), Statements():
            return _canonical(_quads(wanted)) == _canonical(_quads(found))
        case Cells(), Cells():
            # SPARQL does not say in which order the columns of SELECT * stand.
            return sorted(wanted.header) == sorted(found.header) and _cells(wanted) == _cells(found)
        case Solutions(), Solutions():
            if wanted.variables != found.variables:
                return False
            if lax:
                more, less = Counter(_sorted(wanted)), Counter(_sorted(found))
                return set(more) == set(less) and less <= more
            ordered = wanted.ordered
            return _canonical(_rows(wanted, ordered)) == _canonical(_rows(found, ordered))
    return False


def describe_result(found: QueryOutcome, rows: int = 6) -> str:
    """For people, in a line or some."""
    match found:
        case bool():
            return str(found).lower()
        case Solutions():
            shown = [" ".join(f"?{name}={value}" for name, value in row) for row in found.rows]
        case Cells():
            shown = [",".join(row) for row in found.rows]
        case Statements():
            shown = sorted(" ".join(str(term) for term in quad if term is not None) for quad in found.quads)
    more = [f"(and {len(shown) - rows} more)"] if len(shown) > rows else []
    return f"{len(shown)}: " + " | ".join(shown[:rows] + more)


def _term(term: object) -> Term:
    assert isinstance(term, ox.NamedNode | ox.BlankNode | ox.Literal | ox.Triple), f"no term of RDF: {term}"
    return term


def _text(term: Term) -> str:
    assert not isinstance(term, ox.Triple), term
    return term.value


def _unskolemised(term: Term) -> Term:
    if isinstance(term, ox.NamedNode) and term.value.startswith(BNODES):
        return ox.BlankNode("s" + term.value.removeprefix(BNODES).replace(":", "x"))
    return term


def _kept(term: object) -> Term:
    made = _unskolemised(_term(term))
    if isinstance(made, ox.Triple):
        subject = _unskolemised(_term(made.subject))
        assert isinstance(subject, ox.NamedNode | ox.BlankNode)
        return ox.Triple(subject, made.predicate, _kept(made.object))
    return _kept_literal(made) if isinstance(made, ox.Literal) else made


@lru_cache(maxsize=4096)
def _kept_literal(literal: ox.Literal) -> ox.Literal:
    store = ox.Store()
    store.add(ox.Quad(_ROW, _VALUE, literal))
    [quad] = store
    assert isinstance(quad.object, ox.Literal)
    return quad.object


def _sorted(solutions: Solutions) -> list[tuple[tuple[str, Term], ...]]:
    return [tuple(sorted(row, key=lambda cell: cell[0])) for row in solutions.rows]


def _rows(solutions: Solutions, ordered: bool) -> list[ox.Quad]:
    """As a graph, a blank node for each row: so isomorphism of graphs is that of solutions."""
    quads = []
    before: ox.BlankNode | None = None
    for row in solutions.rows:
        node = ox.BlankNode()
        quads.append(ox.Quad(_ROW, _ROW, node))
        quads += [ox.Quad(node, ox.NamedNode(f"urn:variable:{name}"), value) for name, value in row]
        if ordered and before is not None:
            quads.append(ox.Quad(before, _NEXT, node))
        before = node
    return quads


def _quads(statements: Statements) -> list[ox.Quad]:
    made = []
    for subject, predicate, value, graph in statements.quads:
        assert not isinstance(subject, ox.Literal | ox.Triple)
        assert not isinstance(graph, ox.Literal | ox.Triple)
        made.append(ox.Quad(subject, predicate, value, graph))
    return made


def _canonical(quads: Iterable[ox.Quad]) -> ox.Dataset:
    dataset = ox.Dataset(_without_triple_terms(quads))
    dataset.canonicalize(ox.CanonicalizationAlgorithm.RDFC_1_0)
    return dataset


def _without_triple_terms(quads: Iterable[ox.Quad]) -> list[ox.Quad]:
    """The same with a blank node for each triple term, and its three parts: canonical labels are those of RDF 1.1."""
    nodes: dict[ox.Triple, ox.BlankNode] = {}
    found: list[ox.Quad] = []

    def plain(term: Term) -> ox.NamedNode | ox.BlankNode | ox.Literal:
        if not isinstance(term, ox.Triple):
            return term
        if term not in nodes:
            node = nodes[term] = ox.BlankNode()
            parts = (term.subject, term.predicate, term.object)
            found.extend(ox.Quad(node, name, plain(_term(part))) for name, part in zip(_TERM_PARTS, parts, strict=True))
        return nodes[term]

    found += [ox.Quad(quad.subject, quad.predicate, plain(_term(quad.object)), quad.graph_name) for quad in quads]
    return found


def _cells(cells: Cells) -> Counter[frozenset[tuple[str, str | float]]]:
    """Numbers as such; blank nodes without their labels (the suite's tables have one each)."""
    return Counter(
        frozenset((name, _cell(cell)) for name, cell in zip(cells.header, row, strict=True)) for row in cells.rows
    )


def _cell(text: str) -> str | float:
    if text.startswith(("_:", BNODES)):
        return "_:"
    return float(text) if _NUMBER.fullmatch(text) else text
