"""The expressions that stand for functions of blank nodes have the same values in every engine."""

from __future__ import annotations

import json

import pytest
from engines import ALL, stores_of
from server_process import StoreProcess

from txlog.sparql.rewrite.blank_node_functions import tell_blank_nodes

running, worker = stores_of(ALL)
DATA = """INSERT DATA { <urn:1> <urn:p> <urn:txlog:bnode:kept:b> . <urn:2> <urn:p> <http://x/> .
<urn:3> <urn:p> "text" . <urn:4> <urn:p> 5 }"""


def found(worker: StoreProcess, text: str) -> list[str]:
    """The last character of each subject that the query returns."""
    request = worker.adapter.query(tell_blank_nodes(text), "application/sparql-results+json", union=False)
    answer = worker.send(request)
    assert answer.ok, answer.text
    return [row["s"]["value"][-1] for row in json.loads(answer.body)["results"]["bindings"]]


@pytest.mark.parametrize(
    ("expression", "rows"),
    [
        ("isBlank(?o)", "1"),
        ("!isBlank(?o)", "234"),
        ("isIRI(?o)", "2"),
        ("!isURI(?o)", "134"),
        ("STR(?o) <= 'zzz'", "234"),
        ("COALESCE(STR(?o), 'none') = 'none'", "1"),
        ("STR(?unbound) <= 'zzz'", ""),
        ("isBlank(?unbound) || isIRI(?unbound)", ""),
        ("STRLEN(STR(?o)) = 1", "4"),
    ],
)
def test_a_filter_has_the_rows_that_it_has_for_blank_nodes(worker: StoreProcess, expression: str, rows: str) -> None:
    assert worker.update(DATA).ok
    text = f"SELECT ?s {{ ?s <urn:p> ?o FILTER({expression}) }}"
    assert "".join(sorted(found(worker, text))) == rows


def test_blank_nodes_come_first(worker: StoreProcess) -> None:
    assert worker.update(DATA).ok
    assert found(worker, "SELECT ?s ?o { ?s <urn:p> ?o } ORDER BY ?o")[0] == "1"
    assert found(worker, "SELECT ?s ?o { ?s <urn:p> ?o } ORDER BY DESC(?o)")[-1] == "1"


@pytest.mark.parametrize(
    ("expression", "among", "wanted"),
    [
        ("isBlank(MIN(?o))", "<urn:1> <urn:2>", "true"),
        ("isBlank(MIN(?o))", "<urn:1>", "true"),
        ("isBlank(MAX(?o))", "<urn:1>", "true"),
        ("STR(MAX(?o)) = 'http://x/'", "<urn:2>", "true"),
        ("MIN(?o) = 5", "<urn:4>", "true"),
        ("MAX(?o) = 5", "<urn:4>", "true"),
        ("COALESCE(STRLEN(GROUP_CONCAT(?o)), 0)", "<urn:1>", "0"),
        ("GROUP_CONCAT(?o)", "<urn:3>", "text"),
        ("COUNT(DISTINCT ?o)", "<urn:1> <urn:2> <urn:3>", "3"),
    ],
)
def test_an_aggregate_knows_blank_nodes(worker: StoreProcess, expression: str, among: str, wanted: str) -> None:
    assert worker.update(DATA).ok
    assert aggregate(worker, expression, among) in (wanted, {"true": "1"}.get(wanted))


def test_an_iri_is_greater_than_a_blank_node(worker: StoreProcess) -> None:
    if worker.adapter.engine == "virtuoso":
        pytest.skip("it does not order IRIs by their text")
    assert worker.update(DATA).ok
    assert aggregate(worker, "STR(MAX(?o))", "<urn:1> <urn:2>") == "http://x/"


def aggregate(worker: StoreProcess, expression: str, among: str) -> str:
    """The value of an aggregate over the objects of these subjects."""
    text = f"SELECT ({expression} AS ?s) {{ VALUES ?x {{ {among} }} ?x <urn:p> ?o }}"
    request = worker.adapter.query(tell_blank_nodes(text), "application/sparql-results+json", union=False)
    answer = worker.send(request)
    assert answer.ok, answer.text
    [row] = json.loads(answer.body)["results"]["bindings"]
    return str(row["s"]["value"])
