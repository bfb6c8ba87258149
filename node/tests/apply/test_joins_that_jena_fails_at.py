"""Jena 5.6.0 fails at a join inside the second part of another one, where the first part is empty; a worker goes on."""

from __future__ import annotations

import random

import pyoxigraph
import pytest
from engines import FUSEKI, stores_of
from fuseki_process import ADAPTER
from log_in_memory import MemoryLog
from server_process import StoreProcess

from txlog.apply import WorkerState, apply_up_to
from txlog.model.entry import KIND_QUADS, KIND_UPDATE
from txlog.workers.adapter import StoreOperation, WorkerResponse
from txlog.workers.jena_joins import FAULT, separate_joins

running, worker = stores_of(FUSEKI)
JOIN = "?a <urn:p1> ?c . { <urn:n6> <urn:p3> ?c } UNION { ?a <urn:p3> ?d . ?e <urn:p3> ?d }"
FAILS = (
    f"?e a ?b . GRAPH <urn:g1> {{ {JOIN} }}",
    f"?e a ?b OPTIONAL {{ {JOIN} }}",
    f"?e a ?b {{ SELECT ?e {{ {JOIN} }} }}",
    f"?e a ?b {{ SELECT ?e (COUNT(*) AS ?n) {{ {JOIN} }} GROUP BY ?e }}",
    f"?e a ?b {{ {JOIN} BIND(1 AS ?k) }}",
    f"?e a ?b . {{ ?z <urn:p> ?e OPTIONAL {{ {JOIN} }} }}",
)
OTHERS = (
    f"?e a ?b FILTER(?e != <urn:n1>) . GRAPH ?g {{ {JOIN} FILTER(?a != ?e) }}",
    f"?x <urn:p1> ?c FILTER EXISTS {{ ?a <urn:p3> ?y OPTIONAL {{ {JOIN} FILTER(?a = ?x) }} }}",
    "?a <urn:p1> ?c OPTIONAL { ?a <urn:p3> ?d BIND(?d AS ?k) FILTER(?c != ?d) } MINUS { ?a <urn:p9> ?c BIND(1 AS ?q) }",
)
DATA = "<urn:a> <urn:p1> <urn:c> . <urn:n6> <urn:p3> <urn:c> . <urn:a> <urn:p3> <urn:dd> . <urn:ee> <urn:p3> <urn:dd> "


def _update(where: str) -> str:
    return f"INSERT {{ GRAPH <urn:out> {{ ?a <urn:x> ?c . ?e <urn:y> ?d }} }} WHERE {{ {where} }}"


def test_only_that_fault_of_an_update_is_met_so() -> None:
    refused = WorkerResponse(500, {}, b'Cannot invoke "clear()" because "' + FAULT + b'" is null\n')
    update = StoreOperation(KIND_UPDATE, _update(FAILS[0]).encode())
    assert ADAPTER.rewrite_refused(update, refused) is not None
    assert ADAPTER.rewrite_refused(update, WorkerResponse(500, {}, b"another error")) is None
    assert ADAPTER.rewrite_refused(StoreOperation(KIND_QUADS, b"A <urn:a> <urn:b> <urn:c> .\n"), refused) is None
    assert ADAPTER.rewrite_refused(StoreOperation(KIND_UPDATE, b"DELETE WHERE { ?s ?p ?o }"), refused) is None


@pytest.mark.parametrize("where", [*FAILS, *OTHERS])
def test_the_other_form_finds_the_same(where: str) -> None:
    chance = random.Random(where)
    text = f"{_update(where)} ;\nDELETE WHERE {{ <urn:none> ?p ?o }} ;\nDROP SILENT GRAPH <urn:none>"
    separated = separate_joins(text)
    assert "UNION { FILTER(false) }" in separated
    for _ in range(40):
        names = [f"<urn:{name}>" for name in ("a", "c", "e", "n6", "dd")]
        verbs = ("<urn:p1>", "<urn:p3>", "<urn:p9>", "a")
        triples = " . ".join(
            " ".join((chance.choice(names), chance.choice(verbs), chance.choice(names))) for _ in range(9)
        )
        plain, other = pyoxigraph.Store(), pyoxigraph.Store()
        for store, update in ((plain, text), (other, separated)):
            store.update(f"INSERT DATA {{ {triples} GRAPH <urn:g1> {{ {triples} }} }}")
            store.update(update)
        assert set(plain) == set(other)


def test_a_real_fuseki_goes_on(worker: StoreProcess) -> None:
    assert worker.update(f"INSERT DATA {{ {DATA} }} ; COPY DEFAULT TO <urn:g1> ; DROP DEFAULT").ok
    failed = worker.update(_update(FAILS[0]))
    assert failed.status == 500, "Jena's fault is there"
    assert FAULT in failed.body
    assert worker.update("DROP ALL").ok
    log = MemoryLog()
    log.update(f"INSERT DATA {{ {DATA} GRAPH <urn:g1> {{ {DATA} }} }}")
    for where in FAILS:
        log.update(_update(where))
    log.add("<urn:last> <urn:p> <urn:o> .")
    outcome = apply_up_to(ADAPTER, worker.transport, log, log.end)
    assert (outcome.state, outcome.error) == (WorkerState.WORKING, None)
    assert outcome.position is not None
    assert outcome.position.position.index == log.end
