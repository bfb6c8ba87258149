"""DESCRIBE: a master describes what a real RDF4J server describes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from rdflib import Graph
from rdflib.compare import isomorphic

from e2e.conformance.rdf4j.differences import ComparedServer, compared_servers
from e2e.conformance.rdf4j.request_script import TRIG, RequestStep
from e2e.lib.cluster.harness import StoreKind

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

DATA = """
<urn:a> <urn:p> [ <urn:q> ( 1 "two"@en ) ] , <urn:b> , "text" . <urn:b> <urn:p> "text" ; <urn:q> <urn:c> .
_:i <urn:name> "in" ; <urn:in> <urn:a> . _:j <urn:in> _:k . _:k <urn:in> <urn:a> .
<urn:far> <urn:in> _:j . <urn:d> <urn:p> <urn:far> .
<urn:e> <urn:p> _:x . _:x <urn:q> _:y . _:y <urn:q> _:x . <urn:f> <urn:p> _:x .
<urn:g> { <urn:a> <urn:p> [ <urn:g> 1 ] . <urn:h> <urn:p> <urn:a> } <urn:k> { _:m <urn:k> <urn:h> ; <urn:p> <urn:k> }
"""
QUERIES = (
    "DESCRIBE <urn:a>",
    "DESCRIBE <urn:b>",
    "DESCRIBE <urn:e>",
    "DESCRIBE <urn:c> <urn:h>",
    "DESCRIBE <urn:none>",
    "DESCRIBE <urn:a> FROM <urn:g>",
    "DESCRIBE <urn:a> FROM NAMED <urn:g>",
    "DESCRIBE ?x { ?x <urn:p> ?y FILTER(isBlank(?y)) }",
    "DESCRIBE ?y { <urn:b> <urn:p> ?y }",
    "DESCRIBE ?y { <urn:f> <urn:p> ?y }",
    "DESCRIBE * { <urn:b> ?p ?y }",
    "DESCRIBE <urn:a> { ?x <urn:none> ?y }",
    "DESCRIBE <urn:b> ?x { ?x <urn:none> ?y }",
    "DESCRIBE <urn:b> ?x { ?x <urn:p> <urn:far> }",
    "DESCRIBE ?x ?y { ?x <urn:in> ?y } ORDER BY ?x LIMIT 100",
    "DESCRIBE ?g { GRAPH ?g { ?s <urn:p> <urn:a> } }",
    "DESCRIBE ?x { VALUES ?x { <urn:c> <urn:h> UNDEF } }",
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


@pytest.mark.parametrize("query", QUERIES)
def test_both_describe_the_same(both: tuple[ComparedServer, ComparedServer], query: str) -> None:
    headers = {"Content-Type": "application/sparql-query", "Accept": "application/n-triples"}
    rdf4j, master = (server.send(RequestStep("ask", "POST", "@", query, headers)) for server in both)
    assert (rdf4j.status, master.status) == (200, 200), master
    wanted, found = (Graph().parse(data=answer.body, format="nt") for answer in (rdf4j, master))
    assert isomorphic(found, wanted), (rdf4j.body, master.body)
