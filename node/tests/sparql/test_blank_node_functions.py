"""Functions that tell blank nodes from IRIs: what a store with IRIs in place of blank nodes answers to the rewritten
text is what a store with blank nodes answers to the client's."""

from __future__ import annotations

from collections.abc import Sequence

import pyoxigraph as ox
import pytest

from txlog.model.errors import BadInput
from txlog.sparql import prepare_evaluated, prepare_update
from txlog.sparql.rewrite.blank_node_functions import GROWTH_CHARS, tell_blank_nodes
from txlog.sparql.skolem_iris import SKOLEM_PREFIX, label_to_iri

NOW = "2026-01-01T00:00:00Z"
XSD = "http://www.w3.org/2001/XMLSchema#"
Term = ox.NamedNode | ox.BlankNode | ox.Literal | ox.Triple
VALUES: tuple[Term, ...] = (
    ox.BlankNode("b1"),
    ox.BlankNode("b2"),
    ox.NamedNode("http://example.org/a"),
    ox.NamedNode("urn:a"),
    ox.NamedNode("urn:z"),
    ox.Literal("urn:txlog:bnode:kept:b1"),
    ox.Literal("text"),
    ox.Literal("text", language="en"),
    ox.Literal(5),
    ox.Triple(ox.NamedNode("urn:s"), ox.NamedNode("urn:p"), ox.Literal("o")),
)


def stored(term: Term) -> Term:
    return ox.NamedNode(label_to_iri(term.value)) if isinstance(term, ox.BlankNode) else term


def stores() -> tuple[ox.Store, ox.Store]:
    """One with blank nodes, and one as a worker holds the same."""
    plain, worker = ox.Store(), ox.Store()
    for number, value in enumerate(VALUES):
        subject = ox.NamedNode(f"urn:s{number}")
        plain.add(ox.Quad(subject, ox.NamedNode("urn:p"), value))
        worker.add(ox.Quad(subject, ox.NamedNode("urn:p"), stored(value)))
    return plain, worker


def rows(store: ox.Store, text: str) -> list[tuple[str, ...]]:
    found = store.query(text)
    assert isinstance(found, ox.QuerySolutions)
    return [tuple(str(stored(value)) if value is not None else "" for value in row) for row in found]


@pytest.mark.parametrize(
    "expression",
    [
        "isBlank(?o)",
        "isblank( # a comment )\n ?o)",
        "isIRI(?o)",
        "isURI((?o))",
        "!isIRI(?o)",
        "STR(?o)",
        "STRLEN(STR(?o))",
        "COALESCE(STR(?o), 'none')",
        f"<{XSD}string>(?o)",
        "xsd:string(?o)",
        "IRI(?o)",
        "URI(?o)",
        "STR(IRI(STR(?o)))",
        "isBlank(IF(isBlank(?o), ?s, ?o))",
        "STR(COALESCE(?unbound, ?o))",
        "isBlank(COALESCE(?unbound, ?o))",
        "isBlank(?unbound)",
        "isIRI(?unbound)",
        "DATATYPE(?o)",
        "LANG(?o)",
        "isLiteral(?o)",
        "isNumeric(?o)",
        "sameTerm(?o, ?o)",
        "isBlank(BNODE())",
        "isIRI(BNODE())",
        "STR(BNODE())",
        "STR(DATATYPE(?o))",
        "STR(?o = ?s)",
        "STR(?o) IN ('urn:a', 'text')",
        "CONCAT(STR(?s), ' ', STR(?o))",
        "EXISTS { ?s <urn:p> ?x FILTER(isBlank(?x)) }",
    ],
)
def test_an_expression_has_the_value_that_it_has_for_blank_nodes(expression: str) -> None:
    plain, worker = stores()
    text = f"PREFIX xsd: <{XSD}> SELECT ?s ({expression} AS ?value) {{ ?s <urn:p> ?o }}"
    wanted = rows(plain, text)
    assert sorted(rows(worker, tell_blank_nodes(text))) == sorted(wanted)
    text = f"PREFIX xsd: <{XSD}> SELECT ?s {{ ?s <urn:p> ?o FILTER({expression}) }}"
    assert sorted(rows(worker, tell_blank_nodes(text))) == sorted(rows(plain, text))


@pytest.mark.parametrize(
    "key", ["?o", "DESC(?o)", "ASC((?o))", "isIRI(?o) DESC(?o)", "?unbound DESC(?o) ?s", "STR(?o) ?s"]
)
def test_blank_nodes_come_before_iris_and_literals(key: str) -> None:
    plain, worker = stores()
    text = f"SELECT ?o {{ ?s <urn:p> ?o }} ORDER BY {key} LIMIT 9"
    wanted, found = rows(plain, text), rows(worker, tell_blank_nodes(text))
    assert [_kind(row[0]) for row in found] == [_kind(row[0]) for row in wanted]


BLANKS, IRIS, LITERALS, TRIPLE = (0, 1), (2, 3, 4), (5, 6, 7, 8), (9,)
GROUPS = (
    BLANKS,
    IRIS,
    LITERALS,
    TRIPLE,
    (*BLANKS, *IRIS),
    (*BLANKS, *LITERALS),
    (*IRIS, *LITERALS),
    (*BLANKS, *TRIPLE),
    (0, 3),
    (1, 4),
    (),
    range(len(VALUES)),
)


@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize(
    "expression",
    [
        "MIN(?o)",
        "MAX(?o)",
        "min( DISTINCT ?o )",
        "MAX(DISTINCT(?o))",
        "GROUP_CONCAT(?o)",
        'GROUP_CONCAT(DISTINCT ?o ; SEPARATOR = ";(")',
        "GROUP_CONCAT(COALESCE(STR(?o), 'none'); separator=',')",
        "MIN(IF(isBlank(?o), ?s, ?o))",
        "MAX(?unbound)",
        "MIN(COALESCE(?unbound, ?o))",
        "isBlank(MIN(?o))",
        "STR(MAX(?o))",
        "COUNT(DISTINCT ?o)",
        "COUNT(?o)",
        "SUM(?o)",
    ],
)
def test_an_aggregate_has_the_value_that_it_has_for_blank_nodes(group: Sequence[int], expression: str) -> None:
    plain, worker = stores()
    members = " ".join(f"<urn:s{number}>" for number in group)
    text = f"SELECT ({expression} AS ?v) {{ VALUES ?s {{ {members} }} ?s <urn:p> ?o }}"
    wanted, found = rows(plain, text), rows(worker, tell_blank_nodes(text))
    if expression.upper().startswith("GROUP_CONCAT"):
        assert [sorted(value) for row in found for value in row] == [sorted(value) for row in wanted for value in row]
    else:
        assert [[_kind(value) for value in row] for row in found] == [[_kind(value) for value in row] for row in wanted]


@pytest.mark.parametrize(
    "text",
    [
        "SELECT ?p { ?s ?p ?o } GROUP BY ?p HAVING (isBlank(MIN(?o)))",
        "SELECT ?p (MAX(?o) AS ?top) { ?s ?p ?o FILTER(!isLiteral(?o) && !isTRIPLE(?o)) } GROUP BY ?p ORDER BY MIN(?o)",
        "SELECT ?b { ?s <urn:p> ?o { SELECT (MIN(?x) AS ?b) { ?y <urn:p> ?x } } } LIMIT 1",
        "SELECT ?o { { SELECT ?o { ?s <urn:p> ?o } ORDER BY ?o LIMIT 2 } }",
        "SELECT ?o { { SELECT ?o { ?s <urn:p> ?o } ORDER BY DESC(?o) LIMIT 8 } }",
        "SELECT (isBlank(SAMPLE(?o)) AS ?b) { ?s <urn:p> ?o FILTER(isBlank(?o)) }",
        "SELECT (isBlank(SAMPLE(?o)) AS ?b) { ?s <urn:p> ?o FILTER(isIRI(?o)) }",
        "SELECT (COUNT(DISTINCT ?o) AS ?n) { { SELECT ?o { ?s <urn:p> ?o FILTER(isBlank(?o)) } } }",
    ],
)
def test_groups_and_selects_inside_know_blank_nodes(text: str) -> None:
    plain, worker = stores()
    wanted, found = rows(plain, text), rows(worker, tell_blank_nodes(text))
    assert sorted(_kind(value) for row in found for value in row) == sorted(
        _kind(value) for row in wanted for value in row
    )


def test_an_aggregate_in_an_update_is_written_once_for_all_engines() -> None:
    _, worker = stores()
    where = "SELECT (MIN(?o) AS ?min) (MAX(?o) AS ?max) { ?s ?p ?o FILTER(!isLiteral(?o) && !isTRIPLE(?o)) }"
    text = f"INSERT {{ <urn:r> <urn:min> ?min ; <urn:max> ?max }} WHERE {{ {where} }}"
    worker.update(prepare_update(text, base=None, now=NOW, draw=lambda: 7).payload.decode())
    made = {quad.predicate.value: str(quad.object) for quad in worker if str(quad.subject) == "<urn:r>"}
    assert _kind(made["urn:min"]) == "blank"
    assert made["urn:max"] == "<urn:z>"


def _kind(text: str) -> str:
    return "blank" if SKOLEM_PREFIX in text and text[0] == "<" else text


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * { ?s ?p ?o }",
        "SELECT (COUNT(*) AS ?n) ?p { ?s ?p ?o } GROUP BY ?p ORDER BY DESC(?n)",
        "SELECT * { ?s ?p ?o FILTER(STR(LANG(?o)) = 'en' && isLiteral(?o)) }",
        "SELECT * { ?s ?p ?o FILTER(isIRI(<urn:x>) && CONTAINS(STR('a'), 'isBlank(?o)')) } # isBlank(?o)",
        "SELECT * { ?s <http://www.w3.org/2001/XMLSchema#string> (?a) }",
        "SELECT * { ?s ?p ?o FILTER(isBlank(?o }",
        "SELECT * { ?s ?p ?o } ORDER BY",
    ],
)
def test_a_text_without_such_a_call_stays(text: str) -> None:
    assert tell_blank_nodes(text) == text


def test_our_own_filters_and_guards_stay() -> None:
    where = "GRAPH ?g { OPTIONAL { ?s ?p ?o } } ?s ?p ?o BIND(IRI(?o) AS ?x)"
    text = f"INSERT {{ GRAPH ?g {{ ?s <urn:q> ?x }} }} WHERE {{ {where} }}"
    once = prepare_evaluated(text, base=None, now=NOW, draw=lambda: 7).text
    assert 'FILTER(COALESCE(!STRSTARTS(STR(?g),"urn:txlog:system"),true))' in once
    assert once.count(SKOLEM_PREFIX) == 1, once
    told = f'COALESCE(IF(isIRI(?o)&&STRSTARTS(STR(?o),"{SKOLEM_PREFIX}"),DATATYPE(?o),STR(?o)))'
    assert f'IRI(IF(REGEX({told},"^[A-Za-z][A-Za-z0-9+.-]*:")' in once


def test_an_update_sees_blank_nodes_as_the_client_means_them() -> None:
    _, worker = stores()
    text = "DELETE { ?s ?p ?o } INSERT { ?s <urn:text> ?t } WHERE { ?s ?p ?o FILTER(!isBlank(?o)) BIND(STR(?o) AS ?t) }"
    worker.update(prepare_update(text, base=None, now=NOW, draw=lambda: 7).payload.decode())
    left = [str(quad.object) for quad in worker if quad.predicate.value == "urn:p"]
    assert sorted(left) == [f"<{SKOLEM_PREFIX}kept:b1>", f"<{SKOLEM_PREFIX}kept:b2>"]
    worker.update(
        prepare_update(
            "INSERT { ?s <urn:iri> ?x } WHERE { ?s <urn:p> ?o BIND(IRI(?o) AS ?x) }", base=None, now=NOW, draw=lambda: 7
        ).payload.decode()
    )
    assert not [quad for quad in worker if quad.predicate.value == "urn:iri"]


def test_calls_inside_one_another_are_bounded() -> None:
    deep = "STR(COALESCE(" * 20 + "?o" + "))" * 20
    with pytest.raises(BadInput, match="BIND the inner ones first"):
        tell_blank_nodes(f"SELECT * {{ ?s ?p ?o FILTER({deep} = 'x') }}")
    assert len(tell_blank_nodes("SELECT * { ?s ?p ?o FILTER(isBlank(?o)) }")) < GROWTH_CHARS
