"""What the adapter of Virtuosos rests on, checked on a real one."""

from __future__ import annotations

import os
import subprocess

import pyoxigraph
import pytest
from engines import VIRTUOSO, stores_of
from virtuoso_process import ADAPTER, VirtuosoProcess

from txlog.local.engines.deb_packages import library_path
from txlog.local.engines.virtuoso_server import obtain_virtuoso
from txlog.model.entry import KIND_QUADS, KIND_UPDATE, Position
from txlog.workers.adapter import ApplyResult, MarkerPosition, StoreOperation, WorkerRequest
from txlog.workers.http_transport import HttpTransport
from txlog.workers.probe import probe
from txlog.workers.virtuoso import IRI_BYTES_MAX, ProcedureStep, encode_steps

XML = "application/sparql-results+xml"

running, worker = stores_of(VIRTUOSO)


def at(index: int) -> MarkerPosition:
    return MarkerPosition(Position(1, index, index.to_bytes(16, "big")), 0)


def applied(worker: VirtuosoProcess, index: int, kind: int, payload: str) -> ApplyResult:
    expected = at(index - 1) if index > 1 else None
    return ADAPTER.parse_apply_result(
        worker.send(ADAPTER.apply([StoreOperation(kind, payload.encode())], expected, at(index)))
    )


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (WorkerRequest("GET", "/txlog/nonsense"), 404),
        (WorkerRequest("GET", "/txlog"), 404),
        (WorkerRequest("POST", "/txlog/apply", {"Content-Type": "application/octet-stream"}, b""), 400),
        (
            WorkerRequest("POST", "/txlog/apply", {"Content-Type": "application/octet-stream"}, b"0000000009enter 0"),
            400,
        ),
        (
            WorkerRequest(
                "POST", "/txlog/apply", {"Content-Type": "application/octet-stream"}, b"0000000012enter 10 x:yab"
            ),
            400,
        ),
        (encode_steps([ProcedureStep("dance")]), 400),
        (encode_steps([ProcedureStep("add", "urn:g", b"<urn:a> <urn:b> <urn:c> .\n"), ProcedureStep("fail")]), 500),
        (
            encode_steps(
                [
                    ProcedureStep("add", "urn:g", b"<urn:a> <urn:b> <urn:c> .\n"),
                    ProcedureStep("add", "urn:g", b"nonsense"),
                ]
            ),
            500,
        ),
        (
            encode_steps(
                [
                    ProcedureStep("add", "urn:g", b"<urn:a> <urn:b> <urn:c> .\n"),
                    ProcedureStep("update", "-", b"INSERT {"),
                ]
            ),
            500,
        ),
        (encode_steps([ProcedureStep("add", "urn:g", b"_:a <urn:b> <urn:c> .\n")]), 400),
    ],
)
def test_a_request_that_is_wrong_changes_nothing(worker: VirtuosoProcess, request_: WorkerRequest, status: int) -> None:
    assert applied(worker, 1, KIND_QUADS, "A <urn:a> <urn:b> <urn:d> .\n") is ApplyResult.APPLIED
    before = worker.quads()
    assert worker.send(request_).status == status
    assert (worker.quads(), worker.system().markers) == (before, (at(1),))


def test_an_iri_that_would_be_cut_off_is_refused(worker: VirtuosoProcess) -> None:
    fits, longer = (f"urn:{'x' * (length - 4)}" for length in (IRI_BYTES_MAX, IRI_BYTES_MAX + 1))
    assert applied(worker, 1, KIND_QUADS, f"A <urn:a> <urn:b> <{fits}> <{fits}> .\n") is ApplyResult.APPLIED
    assert worker.quads() == [f"<urn:a> <urn:b> <{fits}> <{fits}> ."]
    assert applied(worker, 2, KIND_QUADS, f"A <urn:a> <urn:b> <{longer}> .\n") is ApplyResult.REFUSED
    assert applied(worker, 2, KIND_UPDATE, f"DELETE DATA {{ <urn:a> <urn:b> <{longer}> }}") is ApplyResult.REFUSED
    assert worker.system().markers == (at(1),)


def test_queries_see_graphs_as_elsewhere(worker: VirtuosoProcess) -> None:
    payload = "A <urn:a> <urn:b> <urn:c> .\nA <urn:a> <urn:b> <urn:d> <urn:g> .\n"
    assert applied(worker, 1, KIND_QUADS, payload) is ApplyResult.APPLIED

    def found(text: str, **how: object) -> list[str]:
        answer = worker.send(ADAPTER.query(text, XML, **how))  # type: ignore[arg-type]
        assert answer.ok, answer.text
        rows = pyoxigraph.parse_query_results(answer.body, pyoxigraph.QueryResultsFormat.XML)
        assert isinstance(rows, pyoxigraph.QuerySolutions)
        return sorted(str(row[0]) for row in rows)

    assert found("SELECT ?o { ?s ?p ?o }") == ["<urn:c>", "<urn:d>"]
    assert found("SELECT ?o { ?s ?p ?o }", union=False) == ["<urn:c>"]
    assert found("SELECT ?o FROM <urn:g> { ?s ?p ?o }", union=False) == ["<urn:d>"]
    assert found("SELECT ?o { ?s ?p ?o }", default_graphs=["urn:g"], union=False) == ["<urn:d>"]
    assert found("SELECT ?g { GRAPH ?g { ?s ?p ?o } }") == ["<urn:g>"]
    assert found("SELECT ?g { GRAPH ?g { ?s ?p ?o } }", union=False) == ["<urn:g>"]
    assert found("SELECT ?o { GRAPH ?g { ?s ?p ?o } }", named_graphs=["urn:g"], union=False) == ["<urn:d>"]
    wrong = worker.send(ADAPTER.query("SELEC", XML))
    assert (wrong.status, b"syntax error" in wrong.body) == (400, True)
    # Nobody who may only ask may write.
    asked = worker.send(ADAPTER.query("INSERT DATA { GRAPH <urn:g> { <urn:x> <urn:y> <urn:z> } }", XML))
    assert not asked.ok
    assert len(worker.quads()) == 2


def test_killed_it_is_at_its_last_checkpoint_marker_and_data(worker: VirtuosoProcess) -> None:
    assert applied(worker, 1, KIND_UPDATE, "INSERT DATA { <urn:counter> <urn:value> 0 }") is ApplyResult.APPLIED
    count = (
        "DELETE { <urn:counter> <urn:value> ?v } INSERT { <urn:counter> <urn:value> ?w } "
        "WHERE { <urn:counter> <urn:value> ?v BIND(?v + 1 AS ?w) }"
    )
    # Several changes of one row in one transaction are what Virtuoso's own log cannot repeat.
    assert applied(worker, 2, KIND_UPDATE, " ;\n".join([count] * 30)) is ApplyResult.APPLIED
    worker.settle()
    assert applied(worker, 3, KIND_UPDATE, " ;\n".join([count] * 5)) is ApplyResult.APPLIED
    for _ in range(2):
        worker.kill()
        worker.start()
        [marker] = worker.system().markers
        value = {2: 30, 3: 35}[marker.position.index]
        assert worker.data() == [f'<urn:counter> <urn:value> "{value}"^^<http://www.w3.org/2001/XMLSchema#integer> .']


def test_a_virtuoso_without_the_procedure_is_refused(worker: VirtuosoProcess) -> None:
    with HttpTransport(f"{worker.url}/elsewhere") as transport:
        refused = probe(ADAPTER, transport).refused
    assert refused is not None
    assert refused.reason == "NotAWorker"
    assert "txlog virtuoso-sql" in str(refused)


def test_nobody_is_let_in_with_the_password_that_a_new_virtuoso_has(worker: VirtuosoProcess) -> None:
    """The socket of SQL lies where every user of the machine reaches it."""
    program = obtain_virtuoso()
    asked = subprocess.run(
        [str(program.with_name("isql-vt")), str(worker.port), "dba", "dba", "exec=select 1;"],
        env={**os.environ, "LD_LIBRARY_PATH": library_path(program.parents[2])},
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert "Bad login" in asked.stdout + asked.stderr
