"""``FROM rdf4j:nil``: which clauses are taken out, and which queries stay as they are."""

from __future__ import annotations

import pytest

from txlog.model.errors import BadInput
from txlog.sparql.rewrite.default_graph_clause import parse_default_graphs, take_default_graph_clause

RDF4J = "http://rdf4j.org/schema/rdf4j#nil"
SESAME = "http://www.openrdf.org/schema/sesame#nil"


@pytest.mark.parametrize(
    ("query", "rest"),
    [
        (f"SELECT * FROM <{RDF4J}> {{ ?s ?p ?o }}", "SELECT *   { ?s ?p ?o }"),
        (f"SELECT * from<{SESAME}>WHERE {{ ?s ?p ?o }}", "SELECT *  WHERE { ?s ?p ?o }"),
        ("SELECT * FROM sesame:nil { ?s ?p ?o }", "SELECT *   { ?s ?p ?o }"),
        (
            "PREFIX n: <http://rdf4j.org/schema/rdf4j#> ASK FROM n:nil { ?s ?p ?o }",
            "PREFIX n: <http://rdf4j.org/schema/rdf4j#> ASK   { ?s ?p ?o }",
        ),
        (f"CONSTRUCT FROM <{RDF4J}> FROM <{RDF4J}> WHERE {{ ?s ?p ?o }}", "CONSTRUCT     WHERE { ?s ?p ?o }"),
        (f"DESCRIBE <urn:a> FROM <{RDF4J}>", "DESCRIBE <urn:a>  "),
    ],
)
def test_the_default_graph_is_a_clause_of_its_own(query: str, rest: str) -> None:
    assert take_default_graph_clause(query) == (rest, True)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * { ?s ?p ?o }",
        "SELECT * FROM <urn:nil> { ?s ?p ?o }",
        "PREFIX sesame: <urn:other#> SELECT * FROM sesame:nil { ?s ?p ?o }",
        "SELECT * { ?s ?p 'FROM sesame:nil' }",
        f"SELECT * # FROM <{RDF4J}>\n{{ ?s ?p ?o }}",
        f"SELECT * FROM NAMED <{RDF4J}> {{ GRAPH ?g {{ ?s ?p ?o }} }}",
    ],
)
def test_other_queries_stay_as_they_are(query: str) -> None:
    assert take_default_graph_clause(query) == (query, False)


@pytest.mark.parametrize("clause", ["FROM <urn:g>", "FROM NAMED <urn:g>"])
def test_it_is_not_asked_together_with_other_graphs(clause: str) -> None:
    with pytest.raises(BadInput, match="together with other graphs"):
        take_default_graph_clause(f"SELECT * FROM <{RDF4J}> {clause} {{ ?s ?p ?o }}")


def test_graphs_of_the_request() -> None:
    assert parse_default_graphs([]) == []
    assert parse_default_graphs(["urn:g", "urn:h"]) == ["urn:g", "urn:h"]
    for name in ("null", RDF4J, SESAME):
        assert parse_default_graphs([name]) is None
        with pytest.raises(BadInput, match="together with other graphs"):
            parse_default_graphs([name, "urn:g"])
