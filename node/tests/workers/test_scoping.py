"""SPARQL as RDF4J is to have it, as text; what it does there is in ``node/tests/apply/test_engines_agree.py``."""

from __future__ import annotations

import pyoxigraph
import pytest

from txlog.workers.union_default_graph import (
    DefaultGraphScope,
    canonical_constants,
    exclude_default_graph,
    give_if_its_errors,
    has_dataset_clause,
    scoped_query,
    scoped_update,
)

NIL = "<http://rdf4j.org/schema/rdf4j#nil>"
XSD = "http://www.w3.org/2001/XMLSchema#"


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("INSERT DATA { <urn:a> <urn:b> 1 }", "INSERT DATA { <urn:a> <urn:b> 1 }"),
        ("CLEAR SILENT DEFAULT", "CLEAR SILENT DEFAULT"),
        ("COPY SILENT <urn:g> TO DEFAULT", "COPY SILENT <urn:g> TO DEFAULT"),
        (
            "INSERT { ?s <urn:q> ?o } WHERE { ?s <urn:p> ?o }",
            f"INSERT {{ ?s <urn:q> ?o }} WHERE {{ GRAPH {NIL} {{ ?s <urn:p> ?o }} }}",
        ),
        (
            "DELETE { ?s ?p ?o . GRAPH ?g { ?s ?p ?o } . ?o ?p ?s } WHERE { GRAPH ?g { ?s ?p ?o } }",
            f"DELETE {{ GRAPH {NIL} {{ ?s ?p ?o . }} GRAPH ?g {{ ?s ?p ?o }} . GRAPH {NIL} {{ ?o ?p ?s }} }} "
            f"WHERE {{ GRAPH {NIL} {{ GRAPH ?g {{ ?s ?p ?o }} }} }}",
        ),
        (
            "DELETE WHERE { ?s ?p '} ;' . GRAPH ?g { ?s ?p ?o } }",
            f"DELETE {{ GRAPH {NIL} {{ ?s ?p '}} ;' . }} GRAPH ?g {{ ?s ?p ?o }} }} "
            f"WHERE {{ GRAPH {NIL} {{ ?s ?p '}} ;' . GRAPH ?g {{ ?s ?p ?o }} }} }}",
        ),
        (
            "WITH <urn:w> DELETE { ?s ?p ?o } INSERT { ?s ?p 1 . GRAPH <urn:g> { ?s ?p 2 } } WHERE { ?s ?p ?o }",
            "DELETE { GRAPH <urn:w> { ?s ?p ?o } } INSERT { GRAPH <urn:w> { ?s ?p 1 . } GRAPH <urn:g> { ?s ?p 2 } } "
            "WHERE { GRAPH <urn:w> { ?s ?p ?o } }",
        ),
        (
            "WITH <urn:w> DELETE { ?s ?p ?o } USING <urn:u> USING NAMED <urn:n> WHERE { ?s ?p ?o }",
            "DELETE { GRAPH <urn:w> { ?s ?p ?o } } USING <urn:u> USING NAMED <urn:n> WHERE { ?s ?p ?o }",
        ),
        (
            "DELETE { ?s ?p ?o } USING <urn:u> WHERE { ?s ?p ?o }",
            f"DELETE {{ GRAPH {NIL} {{ ?s ?p ?o }} }} USING <urn:u> WHERE {{ ?s ?p ?o }}",
        ),
        (
            "INSERT { } WHERE { } ;\nDELETE WHERE { } ; CLEAR ALL",
            f"INSERT {{ }} WHERE {{ GRAPH {NIL} {{ }} }} ; DELETE {{ }} WHERE {{ GRAPH {NIL} {{ }} }} ; CLEAR ALL",
        ),
    ],
)
def test_updates_reach_the_default_graph(said: str, expected: str) -> None:
    told = scoped_update(said)
    assert told.split() == expected.split()
    pyoxigraph.Store().update(told)  # it is SPARQL


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("SELECT ?s { ?s ?p ?o } LIMIT 10", f"SELECT ?s {{ GRAPH {NIL} {{ ?s ?p ?o }} }} LIMIT 10"),
        (
            "CONSTRUCT { ?s ?p ?o } WHERE { ?s ?p ?o { SELECT ?s { ?s ?p ?x } } }",
            f"CONSTRUCT {{ ?s ?p ?o }} WHERE {{ GRAPH {NIL} {{ ?s ?p ?o {{ SELECT ?s {{ ?s ?p ?x }} }} }} }}",
        ),
        ("DESCRIBE <urn:a>", "DESCRIBE <urn:a>"),
        ("ASK {}", f"ASK {{ GRAPH {NIL} {{}} }}"),
    ],
)
def test_queries_of_the_default_graph(said: str, expected: str) -> None:
    assert scoped_query(said).split() == expected.split()
    assert not has_dataset_clause(said)


def test_from_is_a_word_and_nothing_inside_a_string() -> None:
    assert has_dataset_clause("SELECT * from <urn:g> { }")
    assert not has_dataset_clause("SELECT * { ?s <urn:from> 'FROM' }")


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (f'"01"^^<{XSD}int>', f'"1"^^<{XSD}integer>'),
        (f"'''1.10'''^^<{XSD}decimal>", f'"1.1"^^<{XSD}decimal>'),
        ("2.50", f'"2.5"^^<{XSD}decimal>'),
        ("2.5", "2.5"),
        ("01", f'"1"^^<{XSD}integer>'),
        ("10", "10"),
        ("1e0", f'"1"^^<{XSD}double>'),
        ("-2.0", f'"-2"^^<{XSD}decimal>'),
        ('"x"@EN-us', '"x"@en-us'),
        ('"x 01 1.10"', '"x 01 1.10"'),
        (f'"x\\"01"^^<{XSD}int>', f'"x\\"01"^^<{XSD}int>'),
        ('"01"^^<urn:type>', '"01"^^<urn:type>'),
    ],
)
def test_constants_get_the_form_of_all_engines(said: str, expected: str) -> None:
    text = "INSERT DATA { <urn:s> <urn:p> %s }"
    assert canonical_constants(text % said) == text % expected


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("FILTER(IF(?a, 1, 2) != 3)", "FILTER(COALESCE(IF((!(!(?a ))) = (RAND() >= 0), 1, 2)) != 3)"),
        ("BIND(if (IF(?a, ')', 2), IF(1, 2, 3), 4) AS ?x)", None),
        ("FILTER(IF(?a<1, 2, ?b))", "FILTER(COALESCE(IF((!(!(?a<1 ))) = (RAND() >= 0), 2, ?b)))"),
        ("FILTER(?if = <urn:IF(1)> && ?a = 'IF(1)')", "FILTER(?if = <urn:IF(1)> && ?a = 'IF(1)')"),
    ],
)
def test_an_if_gets_its_errors(said: str, expected: str | None) -> None:
    expected = expected or (
        "BIND(COALESCE(if ((!(!(COALESCE(IF((!(!(?a ))) = (RAND() >= 0), ')', 2)) ))) = (RAND() >= 0), "
        "COALESCE(IF((!(!(1 ))) = (RAND() >= 0), 2, 3)), 4)) AS ?x)"
    )
    assert give_if_its_errors(f"DELETE {{ }} WHERE {{ {said} }}") == f"DELETE {{ }} WHERE {{ {expected} }}"


def test_a_text_that_ends_inside_an_if_is_left_to_the_engine() -> None:
    for said in ("ASK { FILTER(IF(?a, 1", "ASK { FILTER(IF(", "ASK { FILTER(IF"):
        assert give_if_its_errors(said) == said


def test_a_difference_stays_one() -> None:
    text = "SELECT (?a -1.50 AS ?x) (?a - 1.50 AS ?y) (1.50 -1.50 AS ?z) { VALUES ?a { 2.00 } }"
    told = canonical_constants(text)
    assert told != text
    for query in (text, told):
        found = pyoxigraph.Store().query(query)
        assert isinstance(found, pyoxigraph.QuerySolutions)
        [row] = found
        assert [row[name].value for name in "xyz"] == ["0.5", "0.5", "0"]


HIDING = DefaultGraphScope("<urn:d>", inserts=True, hides=True)


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (
            "INSERT { ?s <urn:q> ?o } WHERE { ?s <urn:p> ?o }",
            "INSERT { GRAPH <urn:d> { ?s <urn:q> ?o } } WHERE { GRAPH <urn:d> { ?s <urn:p> ?o } }",
        ),
        (
            "DELETE { GRAPH ?g { ?s ?p ?o } } WHERE { GRAPH ?g { ?s ?p ?o } ?s ?p ?x }",
            "DELETE { GRAPH ?g { ?s ?p ?o } } "
            "WHERE { GRAPH <urn:d> { GRAPH ?g { ?s ?p ?o } FILTER(?g != <urn:d>) ?s ?p ?x } }",
        ),
        (
            "DELETE WHERE { GRAPH ?g { ?s ?p ?o } }",
            "DELETE { GRAPH ?g { ?s ?p ?o } } WHERE { GRAPH <urn:d> { GRAPH ?g { ?s ?p ?o } FILTER(?g != <urn:d>) } }",
        ),
        (
            "INSERT { ?s ?p ?o } USING <urn:u> WHERE { GRAPH ?g { ?s ?p ?o } }",
            "INSERT { GRAPH <urn:d> { ?s ?p ?o } } USING <urn:u> WHERE { GRAPH ?g { ?s ?p ?o } }",
        ),
    ],
)
def test_where_the_default_graph_is_a_graph_like_others(said: str, expected: str) -> None:
    assert " ".join(scoped_update(said, HIDING).split()) == expected
    pyoxigraph.Store().update(scoped_update(said, HIDING))


def test_a_query_meets_that_graph_by_no_variable() -> None:
    said = "SELECT * { OPTIONAL { GRAPH ?g { ?s ?p ?o } } GRAPH <urn:x> { ?a ?b ?c } GRAPH $h { } }"
    assert exclude_default_graph(said, HIDING) == (
        "SELECT * { OPTIONAL { GRAPH ?g { ?s ?p ?o } FILTER(?g != <urn:d>) } GRAPH <urn:x> { ?a ?b ?c } "
        "GRAPH $h { } FILTER($h != <urn:d>) }"
    )
    assert exclude_default_graph(said, DefaultGraphScope("<urn:d>")) == said
