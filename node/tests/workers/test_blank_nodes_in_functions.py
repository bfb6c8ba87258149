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
