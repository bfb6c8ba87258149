"""DESCRIBE of a master: through blank nodes, in every format, in transactions, refused by size."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from rdflib import Graph
from rdflib.compare import isomorphic
from worker_driver import Served

from txlog.server.frontdoor import describe
from txlog.sparql.rewrite import describe_query

TURTLE, LINES, QUERY = "text/turtle", "application/n-triples", "application/sparql-query"
DATA = """<urn:a> <urn:p> [ <urn:q> ( 1 "two"@en ) ] . [] <urn:in> <urn:a> . <urn:z> <urn:p> <urn:y> ."""
OF_A = """<urn:a> <urn:p> [ <urn:q> ( 1 "two"@en ) ] . [] <urn:in> <urn:a> ."""


async def describe_at(served: Served, path: str, text: str, accept: str, method: str = "POST") -> Graph:
    body = await served.send(method, path, text, status=200, Content_Type=QUERY, Accept=accept)
    return Graph().parse(data=body, format=accept)


@pytest.mark.parametrize("per_query", [500, 2])
async def test_it_goes_on_through_blank_nodes(served: Served, monkeypatch: pytest.MonkeyPatch, per_query: int) -> None:
    monkeypatch.setattr(describe_query, "NODES_PER_QUERY", per_query)
    await served.send("PUT", "/statements", DATA, Content_Type=TURTLE)
    wanted = Graph().parse(data=OF_A, format="turtle")
    for accept in (TURTLE, LINES, "application/rdf+xml", "application/ld+json"):
        for text in ("DESCRIBE <urn:a>", "DESCRIBE ?x { ?x <urn:p> ?y FILTER(isBlank(?y)) }"):
            assert isomorphic(await describe_at(served, "", text, accept), wanted), (accept, text)
    assert len(await describe_at(served, "", "DESCRIBE <urn:none>", LINES)) == 0
    found = await served.send("GET", "?query=DESCRIBE%20%3Fx&$x=%3Curn:a%3E", status=200, Accept=LINES)
    assert isomorphic(Graph().parse(data=found, format="nt"), wanted)


async def test_a_transaction_describes_its_own_statements(served: Served) -> None:
    await served.send("PUT", "/statements", DATA, Content_Type=TURTLE)
    async with served.cluster.session.post(served.cluster.url(0, "/repositories/demo/transactions")) as answer:
        at = "/transactions/" + answer.headers["Location"].rpartition("/")[2]
    await served.send("PUT", f"{at}?action=ADD", "<urn:y> <urn:p> [ <urn:q> [] ] .", status=200, Content_Type=TURTLE)
    wanted = Graph().parse(data="<urn:z> <urn:p> <urn:y> . <urn:y> <urn:p> [ <urn:q> [] ] .", format="turtle")
    found = await describe_at(served, f"{at}?action=QUERY", "DESCRIBE <urn:y>", LINES, "PUT")
    assert isomorphic(found, wanted)
    await served.send("PUT", f"{at}?action=COMMIT", status=200)
    assert isomorphic(await describe_at(served, "", "DESCRIBE <urn:y>", LINES), wanted)


async def test_too_much_is_refused_and_errors_are_in_the_words_of_the_client(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    await served.send("PUT", "/statements", DATA, Content_Type=TURTLE)
    for text in ("DESCRIBE ?x { ?x <urn:p> }", "DESCRIBE", "DESCRIBE ?x ?x { ?x ?y"):
        said = await served.send("POST", "", text, status=400, Content_Type=QUERY)
        assert said.startswith(f"MALFORMED QUERY: error at 1:{len(text) + (text[-1] != '}')}"), said
    monkeypatch.setattr(describe, "ROWS_BYTES_MAX", 100)
    said = await served.send("POST", "", "DESCRIBE ?s { ?s ?p ?o }", status=413, Content_Type=QUERY)
    assert "ask for less" in said
    monkeypatch.undo()
    monkeypatch.setattr(describe_query.describe_steps, "__defaults__", (3,))
    said = await served.send("POST", "", "DESCRIBE <urn:a>", status=413, Content_Type=QUERY)
    assert "describe fewer" in said


async def test_a_limit_of_time_holds_for_all_its_queries(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    await served.send("PUT", "/statements", DATA, Content_Type=TURTLE)
    assert await served.send("POST", "?timeout=30", "DESCRIBE <urn:a>", status=200, Content_Type=QUERY, Accept=LINES)

    clock = SimpleNamespace(monotonic=iter([0.0, 0.5, 2.0]).__next__)
    monkeypatch.setattr(describe, "time", clock)
    said = await served.send("POST", "?timeout=1", "DESCRIBE <urn:a>", status=503, Content_Type=QUERY)
    assert "longer than" in said
