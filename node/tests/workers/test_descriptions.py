"""A DESCRIBE goes on through blank nodes in every engine, in both directions, and ends at a cycle."""

from __future__ import annotations

import re

import pyoxigraph as ox
import pytest
from engines import ALL, stores_of
from server_process import StoreProcess

from txlog.sparql import hide_marker
from txlog.sparql.rewrite import describe_query
from txlog.sparql.rewrite.describe_query import Row, describe_steps, parse_describe, read_rows, statement_queries

running, worker = stores_of(ALL)
NODE = "urn:txlog:bnode:kept:"
TEXT = """<urn:a> <urn:p> n:b1 . n:b1 <urn:q> n:b2 . n:b2 <urn:q> n:b1 , <urn:c> , "x"@en . <urn:c> <urn:p> <urn:d> .
n:i1 <urn:in> <urn:a> . n:i2 <urn:in> n:i1 . <urn:e> <urn:in> n:i2 . <urn:f> <urn:p> <urn:e> . n:i1 <urn:out> 1 .
<urn:g> <urn:in> <urn:a> . <urn:h> <urn:q> n:b2 . <urn:z> <urn:p> "x"@en"""
DATA = "INSERT DATA {{ {} }}".format(re.sub(r"\bn:(\w+)", rf"<{NODE}\1>", TEXT))
LINES = "application/n-triples"
BRACKETS = {ord("<"): "", ord(">"): ""}
OF_A = ["a p b1", "b1 q b2", "b2 q b1", "b2 q c", 'b2 q "x"@en', "i1 in a", "i2 in i1", "e in i2", "g in a"]


def described(worker: StoreProcess, text: str) -> list[str]:
    query = parse_describe(text)
    assert query is not None
    steps = describe_steps(query)
    try:
        asked = next(steps)
        while True:
            asked = steps.send(_rows(worker, asked))
    except StopIteration as done:
        texts = statement_queries(query, done.value)
    triples = [
        str(each.triple) for text in texts for each in ox.parse(_answer(worker, text, LINES), ox.RdfFormat.N_TRIPLES)
    ]
    return sorted({line.replace(NODE, "").replace("urn:", "").translate(BRACKETS) for line in triples})


def _rows(worker: StoreProcess, text: str) -> list[Row]:
    return read_rows(_answer(worker, text, "application/sparql-results+json"))


def _answer(worker: StoreProcess, text: str, accept: str) -> bytes:
    if not worker.adapter.capabilities.hidden_marker:
        text = hide_marker(text)
    answer = worker.send(worker.adapter.query(text, accept, union=False))
    assert answer.ok, (text, answer.text)
    return answer.body


@pytest.mark.parametrize("per_query", [500, 2])
@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("DESCRIBE <urn:a>", OF_A),
        ("DESCRIBE <urn:none>", []),
        ("DESCRIBE ?x <urn:d> WHERE { ?x <urn:p> ?y FILTER(isIRI(?y)) } ORDER BY ?x LIMIT 1", [*OF_A, "c p d"]),
        ("DESCRIBE <urn:d> { ?x <urn:none> ?y }", []),
        ("DESCRIBE <urn:d> { ?x <urn:p> <urn:d> }", ["c p d"]),
        ("DESCRIBE ?y { <urn:z> <urn:p> ?y }", ['b2 q "x"@en', "b1 q b2", "a p b1", "h q b2", 'z p "x"@en', "b2 q b1"]),
        ("DESCRIBE * { <urn:c> <urn:p> ?y }", ["c p d"]),
        ("DESCRIBE ?x", []),
    ],
)
def test_it_is_what_rdf4j_describes(
    worker: StoreProcess, monkeypatch: pytest.MonkeyPatch, text: str, wanted: list[str], per_query: int
) -> None:
    monkeypatch.setattr(describe_query, "NODES_PER_QUERY", per_query)
    assert worker.update(DATA).ok
    assert described(worker, text) == sorted(wanted)
