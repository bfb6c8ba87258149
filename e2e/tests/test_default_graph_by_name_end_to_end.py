"""Queries that name the default graph: a master means by them what a real RDF4J server means."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from e2e.conformance.rdf4j.differences import ComparedServer, compared_servers
from e2e.conformance.rdf4j.request_script import TRIG, RequestStep
from e2e.lib.cluster.harness import StoreKind

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

DATA = """<urn:a> <urn:p> 1 . <urn:d> <urn:q> <urn:a> . <urn:g> { <urn:b> <urn:p> 2 . <urn:d> <urn:q> <urn:b> }
<urn:h> { <urn:c> <urn:p> 3 . <urn:a> <urn:q> 4 }"""
QUERIES = (
    "SELECT ?s FROM DEFAULT { ?s ?p ?o }",
    "SELECT * FROM rdf4j:nil { ?s ?p ?o }",
    "select ?s from <http://www.openrdf.org/schema/sesame#nil> where { ?s ?p ?o }",
    "PREFIX r: <http://rdf4j.org/schema/rdf4j#> SELECT ?s FROM r:nil { ?s <urn:q> ?o . ?o <urn:p> ?v }",
    "SELECT ?s FROM rdf4j:nil FROM <urn:g> { ?s ?p ?o }",
    "SELECT * FROM DEFAULT FROM <urn:g> { ?s <urn:q> ?o . ?o <urn:p> ?v FILTER(?v < 3) BIND(?v + 1 AS ?w) }",
    "SELECT * FROM DEFAULT FROM <urn:g> { ?s <urn:q> ?o OPTIONAL { ?o <urn:p> ?v } MINUS { ?o <urn:p> 2 } }",
    "SELECT * FROM DEFAULT FROM <urn:g> { { SELECT ?s (COUNT(*) AS ?n) { ?s ?p ?o } GROUP BY ?s } ?s <urn:p> ?x }",
    "SELECT * FROM DEFAULT FROM <urn:g> { VALUES (?s ?n) { (<urn:a> 1) (<urn:b> 2) } ?s <urn:p> ?n }",
    "SELECT ?s FROM NAMED rdf4j:nil { ?s ?p ?o }",
    "SELECT ?s FROM rdf4j:nil FROM NAMED <urn:g> { ?s ?p ?o }",
    "SELECT ?s ?g FROM rdf4j:nil FROM NAMED <urn:g> { GRAPH ?g { ?s ?p ?o } }",
    "SELECT ?s ?g FROM rdf4j:nil { GRAPH ?g { ?s ?p ?o } }",
    "SELECT * WHERE { GRAPH rdf4j:nil { ?s ?p ?o } }",
    "SELECT ?s { GRAPH sesame:nil { ?s <urn:q> [ <urn:p> ?o ] } }",
    "SELECT * { GRAPH rdf4j:nil { ?s ?p ?o } ?s ?q ?w }",
    "SELECT ?s ?w { ?s ?q ?w FILTER NOT EXISTS { GRAPH rdf4j:nil { ?s ?p ?o } } } ORDER BY ?s ?w LIMIT 2",
    "SELECT ?s ?g { GRAPH rdf4j:nil { ?s ?p ?o GRAPH ?g { ?s ?q ?w } } }",
    "SELECT ?s { GRAPH rdf4j:nil { ?s ?p ?o { SELECT ?s { ?s ?p ?x } } } }",
    "SELECT ?s { GRAPH rdf4j:nil { ?s <urn:q>+ ?o } }",
    "SELECT ?s FROM <urn:g> { GRAPH rdf4j:nil { ?s ?p ?o } }",
    "SELECT ?s FROM rdf4j:nil { GRAPH rdf4j:nil { ?s ?p ?o } }",
    "SELECT (COUNT(*) AS ?n) FROM DEFAULT FROM <urn:h> { ?s ?p ?o } HAVING (COUNT(*) > 1) VALUES ?z { 1 }",
    "CONSTRUCT { ?s <urn:new> ?o } FROM rdf4j:nil FROM <urn:h> { ?s ?p ?o }",
    "CONSTRUCT FROM rdf4j:nil FROM <urn:h> WHERE { ?s <urn:q> ?o }",
    "ASK FROM DEFAULT { ?s ?p 2 }",
    "ASK { GRAPH rdf4j:nil { ?s ?p 1 } }",
    "DESCRIBE <urn:d> FROM DEFAULT",
    "DESCRIBE ?s FROM DEFAULT { ?s <urn:q> ?o } LIMIT 5",
)
DATA_SETS = ("", "?default-graph-uri=null&default-graph-uri=urn:g", "?default-graph-uri=urn:h&named-graph-uri=urn:g")
PLAIN = (
    "SELECT ?s ?v { ?s <urn:q> ?o . ?o <urn:p> ?v }",
    "SELECT ?s ?o { ?s <urn:p> ?o }",
    "SELECT ?g ?s { GRAPH ?g { ?s ?p 2 } }",
)


@pytest.fixture(scope="module", params=[StoreKind.DISK, StoreKind.RDF4J])
def both(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[ComparedServer, ComparedServer]]:
    with compared_servers(tmp_path_factory.mktemp("both"), request.param) as servers:
        for server in servers:
            answer = server.send(RequestStep("data", "POST", "@/statements", DATA, {"Content-Type": TRIG}))
            assert answer.status == 204, answer
        yield servers


def rows_of(server: ComparedServer, query: str, data_set: str = "") -> list[bytes]:
    form = query.upper()
    accept = "text/boolean" if "ASK" in form else "text/csv" if "SELECT" in form else "application/n-triples"
    headers = {"Content-Type": "application/sparql-query", "Accept": accept}
    answer = server.send(RequestStep("ask", "POST", f"@{data_set}", query, headers))
    assert answer.status == 200, (query, answer)
    return sorted(line.rstrip(b" .").replace(b"> .", b">") for line in answer.body.splitlines())


@pytest.mark.parametrize("query", QUERIES)
def test_both_mean_the_same(both: tuple[ComparedServer, ComparedServer], query: str) -> None:
    rdf4j, master = (rows_of(server, query) for server in both)
    assert master == rdf4j


@pytest.mark.parametrize("data_set", DATA_SETS)
def test_a_request_may_name_it_beside_others(both: tuple[ComparedServer, ComparedServer], data_set: str) -> None:
    for query in PLAIN:
        rdf4j, master = (rows_of(server, query, data_set) for server in both)
        assert master == rdf4j, query


def test_what_plain_sparql_cannot_say_is_refused(both: tuple[ComparedServer, ComparedServer]) -> None:
    headers = {"Content-Type": "application/sparql-query"}
    for query, why in (
        ("SELECT ?s FROM rdf4j:nil FROM <urn:g> { ?s <urn:q>+ ?o }", b"a path of any length, cannot be asked"),
        ("DESCRIBE <urn:d> FROM DEFAULT FROM <urn:g>", b"DESCRIBE, cannot be asked"),
        ("DESCRIBE ?s { GRAPH rdf4j:nil { ?s ?p ?o } }", b"DESCRIBE, cannot be asked"),
    ):
        answer = both[1].send(RequestStep("ask", "POST", "@", query, headers))
        assert (answer.status, why in answer.body) == (400, True), answer
