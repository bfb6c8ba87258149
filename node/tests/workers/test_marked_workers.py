"""What the adapters of engines without empty graphs rest on, checked on a real store of each."""

from __future__ import annotations

from pathlib import Path

import pyoxigraph
import pytest
from engines import BARE, stores_of
from fuseki_process import FusekiProcess
from rdf4j_process import ADAPTER, Rdf4jProcess
from server_process import StoreProcess

from txlog.model.entry import KIND_QUADS, KIND_UPDATE, Position
from txlog.workers.adapter import (
    EMPTY_MARKER,
    ApplyResult,
    LoadMarker,
    LockAction,
    MarkerPosition,
    StoreOperation,
    WorkerRequest,
    WorkerResponse,
)
from txlog.workers.digest import DEFAULT_GRAPH, digest_worker, stream_statements
from txlog.workers.http_transport import HttpTransport
from txlog.workers.probe import probe

OURS = "<urn:txlog:system> <urn:txlog:system> <urn:txlog:system>"


def at(index: int, fence: int = 0) -> MarkerPosition:
    return MarkerPosition(Position(1, index, index.to_bytes(16, "big")), fence)


NEW = LoadMarker(at(9).position, 2)


def quads(*lines: str) -> StoreOperation:
    return StoreOperation(KIND_QUADS, "".join(f"A {line}\n" for line in lines).encode())


def update(text: str) -> StoreOperation:
    return StoreOperation(KIND_UPDATE, text.encode())


running, worker = stores_of(BARE)


def apply(
    worker: StoreProcess,
    expected: MarkerPosition | LoadMarker | None,
    new: MarkerPosition | LoadMarker,
    *what: StoreOperation,
) -> ApplyResult:
    return worker.adapter.parse_apply_result(worker.send(worker.adapter.apply(what, expected, new)))


def locked(worker: StoreProcess, request: WorkerRequest) -> WorkerResponse:
    """The answer to a request that confirms the lock 0, where there are locks."""
    assert worker.send(worker.adapter.claim(0)).ok
    answer = worker.send(request)
    assert worker.send(worker.adapter.release_claim(0)).ok
    return answer


def test_the_probe_accepts_it_and_leaves_nothing_behind(worker: StoreProcess) -> None:
    assert probe(worker.adapter, worker.transport).refused is None
    assert worker.quads() == []


@pytest.mark.spark
def test_the_probe_refuses_a_fuseki_that_asks_other_addresses(tmp_path: Path) -> None:
    process = FusekiProcess(tmp_path / "open", without="--set")
    try:
        refused = probe(process.adapter, process.transport).refused
        assert refused is not None
        assert refused.reason == "NoGuard"
    finally:
        process.kill()


def test_the_guard_lets_only_the_expected_marker_pass(worker: StoreProcess) -> None:
    one = quads("<urn:a> <urn:b> <urn:c> .")
    assert worker.adapter.parse_is_empty(worker.send(worker.adapter.is_empty()))
    assert apply(worker, at(1), at(2), one) is ApplyResult.MOVED, "an empty store has no marker"
    assert worker.quads() == []
    assert apply(worker, None, at(1), one) is ApplyResult.APPLIED
    before = worker.quads()
    for expected, new in ((None, at(1)), (at(2), at(3)), (at(1, 1), at(2, 1)), (LoadMarker(at(1).position, 7), at(2))):
        assert apply(worker, expected, new, quads("<urn:x> <urn:y> <urn:z> .")) is ApplyResult.MOVED
        assert worker.quads() == before
    assert apply(worker, at(1), at(2), quads("<urn:a> <urn:b> <urn:d> .")) is ApplyResult.APPLIED
    assert worker.system().markers == (at(2),)
    assert worker.adapter.parse_is_at(worker.send(worker.adapter.is_at(at(2))))
    assert not worker.adapter.parse_is_at(worker.send(worker.adapter.is_at(at(2, 1))))


@pytest.mark.parametrize("last", ["LOAD <urn:nowhere>", "INSERT DATA { nonsense", "COPY <urn:none> TO"])
def test_a_request_that_fails_changes_nothing(worker: StoreProcess, last: str) -> None:
    apply(worker, None, at(1), quads("<urn:a> <urn:b> <urn:c> ."))
    before = worker.quads()
    assert apply(worker, at(1), at(2), quads("<urn:x> <urn:y> <urn:z> ."), update(last)) is ApplyResult.REFUSED
    assert worker.quads() == before


def test_updates_that_sweep_neither_see_nor_take_the_marker(worker: StoreProcess) -> None:
    apply(worker, None, at(1), quads("<urn:a> <urn:b> <urn:c> <urn:g> ."))
    texts = [
        "INSERT { GRAPH <urn:seen> { ?s ?p ?g } } WHERE { GRAPH ?g { ?s ?p ?o } }",
        "COPY SILENT <urn:g> TO <urn:h>",
        "DELETE WHERE { GRAPH ?g { ?s ?p ?o } }",
        "DROP ALL",
        "CLEAR SILENT NAMED",
    ]
    for index, text in enumerate(texts, 1):
        assert apply(worker, at(index), at(index + 1), update(text)) is ApplyResult.APPLIED
        assert worker.system().markers == (at(index + 1),)
        if index == 1:
            assert worker.select("SELECT ?o { GRAPH <urn:seen> { ?s ?p ?o } }") == ["urn:g"]
    assert worker.data() == []


def test_nothing_of_ours_is_counted_listed_or_given_out(worker: StoreProcess) -> None:
    apply(worker, None, at(1), quads("<urn:a> <urn:b> <urn:c> .", "<urn:a> <urn:b> <urn:c> <urn:g> ."))
    assert worker.adapter.parse_size(worker.send(worker.adapter.size())) == 2
    assert worker.adapter.parse_size(worker.send(worker.adapter.size([None, "urn:g", "urn:none"]))) == 2
    assert worker.adapter.parse_contexts(worker.send(worker.adapter.contexts())) == ["urn:g"]
    with stream_statements(worker.adapter, worker.transport) as chunks:
        assert OURS.encode() not in b"".join(chunks)
    digest = digest_worker(worker.adapter, worker.transport)
    assert {name: count for name, (count, _) in digest.graphs.items()} == {DEFAULT_GRAPH: 1, "urn:g": 1}
    everything = pyoxigraph.parse_query_results(
        worker.send(worker.adapter.dump()).body,
        pyoxigraph.QueryResultsFormat.from_media_type(worker.adapter.dump_media_type),
    )
    assert isinstance(everything, pyoxigraph.QuerySolutions)
    told = sorted(" ".join(str(term) for term in row if term is not None) for row in everything)
    assert told[0] == "<urn:a> <urn:b> <urn:c>"
    assert told[1] == "<urn:g> <urn:a> <urn:b> <urn:c>"
    assert [line.startswith("<urn:txlog:system:1:") and " " not in line for line in told[2:]] == [True]
    union = worker.send(worker.adapter.query("SELECT ?s { ?s <urn:b> ?o }", "text/csv")).body.decode()
    once = worker.adapter.engine == "fuseki"  # docs/limits.md: the others give a statement once for each graph
    assert union.replace('"', "").split() == (["s", "urn:a"] if once else ["s", "urn:a", "urn:a"])
    plain = worker.send(
        worker.adapter.query("SELECT ?s { ?s <urn:b> ?o }", "text/csv", union=False, named_graphs=["urn:g"])
    )
    assert plain.body.decode().replace('"', "").split() == ["s"]


def test_a_load_and_what_takes_its_place(worker: StoreProcess) -> None:
    loading = LoadMarker(at(9).position, 5)
    assert locked(worker, worker.adapter.begin_loading(loading, 0)).ok
    assert worker.adapter.parse_is_at(worker.send(worker.adapter.is_loading(loading)))
    another = locked(worker, worker.adapter.begin_loading(LoadMarker(at(9).position, 6), 0))
    assert worker.adapter.parse_apply_result(another) is ApplyResult.MOVED
    line = b'<urn:a> <urn:b> "01"^^<http://www.w3.org/2001/XMLSchema#int> <urn:g> .\n'
    assert worker.send(worker.adapter.load(line + b"<urn:x> <urn:y> <urn:z> .\n")).ok
    assert worker.send(worker.adapter.delete_quads([line.rstrip()], [b"<urn:g>"])).ok
    assert worker.send(worker.adapter.delete_quads([], [b"<urn:g>"])).ok
    assert worker.send(worker.adapter.end_loading(loading, at(9))).ok
    assert (
        worker.adapter.parse_apply_result(worker.send(worker.adapter.end_loading(loading, at(9)))) is ApplyResult.MOVED
    )
    assert worker.system().markers == (at(9),)
    assert worker.adapter.parse_size(worker.send(worker.adapter.size())) == 1
    again = LoadMarker(at(12).position, 8)
    assert locked(worker, worker.adapter.mark_unusable(worker.system(), again, 0)).ok
    assert worker.system().loading == (again,)
    assert worker.send(worker.adapter.clear()).ok
    assert worker.adapter.parse_is_empty(worker.send(worker.adapter.is_empty()))


def test_a_takeover_raises_the_fence(worker: StoreProcess) -> None:
    apply(worker, None, at(1), quads("<urn:a> <urn:b> <urn:c> ."))
    assert worker.send(worker.adapter.take_over(at(1), 0)).ok
    assert not worker.send(worker.adapter.take_over(at(1), 0)).ok
    assert apply(worker, at(1), at(2)) is ApplyResult.MOVED
    assert apply(worker, at(1, 1), at(2, 1)) is ApplyResult.APPLIED
    assert worker.send(worker.adapter.drop_marker(at(2, 1))).ok
    assert not worker.system().markers


def test_foreign_data_is_no_empty_store(worker: StoreProcess) -> None:
    assert worker.update("INSERT DATA { GRAPH <urn:g> { <urn:a> <urn:b> 1 } }").ok
    assert not worker.adapter.parse_is_empty(worker.send(worker.adapter.is_empty()))
    assert apply(worker, None, at(1)) is ApplyResult.MOVED
    begun = locked(worker, worker.adapter.begin_loading(LoadMarker(EMPTY_MARKER.position, 1), 0))
    assert worker.adapter.parse_apply_result(begun) is ApplyResult.MOVED


@pytest.mark.parametrize("running", [pytest.param(FusekiProcess, marks=pytest.mark.spark)], indirect=True)
def test_no_update_makes_a_fuseki_ask_another_address(worker: StoreProcess) -> None:
    answer = worker.update("INSERT { <urn:a> <urn:b> ?o } WHERE { SERVICE <http://127.0.0.1:1/> { ?s ?p ?o } }")
    assert answer.status == 500
    asked = worker.ask("SELECT * { SERVICE <http://127.0.0.1:1/> { ?s ?p ?o } }")
    assert not asked.ok


def test_counts_and_the_marker_come_from_one_answer(worker: StoreProcess) -> None:
    data = quads("<urn:s> <urn:p> <urn:o> .", "<urn:s> <urn:p> <urn:o> <urn:g> .", '<urn:s> <urn:p> "," <urn:g> .')
    assert worker.send(worker.adapter.apply([data], None, at(1))).ok
    counted = worker.adapter.parse_counts(worker.send(worker.adapter.counts()))
    assert counted.graphs == {"": 1, "urn:g": 2}
    assert counted.system.markers == (at(1),)


RDF4J = [pytest.param(Rdf4jProcess, id="rdf4j", marks=pytest.mark.spark)]
rdf4j = pytest.mark.parametrize("running", RDF4J, indirect=True)


@rdf4j
def test_the_lock_of_an_rdf4j(worker: StoreProcess) -> None:
    def applied(lock: LockAction, token: int, old: int, *what: StoreOperation, release: bool = False) -> ApplyResult:
        request = ADAPTER.apply(what, at(old), at(old + 1), lock=lock, token=token, release=release)
        return ADAPTER.parse_apply_result(worker.send(request))

    mine, other = 7, 1 << 61
    assert worker.send(ADAPTER.apply([], None, at(1))).ok
    assert applied(LockAction.CONFIRM, mine, 1) is ApplyResult.CONTENDED, "never claimed"
    assert worker.send(ADAPTER.claim(mine)).ok
    assert not worker.send(ADAPTER.claim(other)).ok
    assert worker.system().claims == ADAPTER.claims_for_token(mine)
    # Two claims that overlapped: neither of the two is alone.
    assert worker.update(f"INSERT DATA {{ GRAPH <urn:txlog:system:lock:{other}> {{ {OURS} }} }}").ok
    assert applied(LockAction.CONFIRM, mine, 1) is ApplyResult.CONTENDED
    assert applied(LockAction.CONFIRM, other, 1) is ApplyResult.CONTENDED
    assert worker.send(ADAPTER.release_claim(other)).ok
    assert applied(LockAction.CONFIRM, mine, 1) is ApplyResult.APPLIED
    assert worker.system().claims == ADAPTER.claims_for_token(mine)
    # What looks at all graphs meets nothing of ours, and the lock is there afterwards.
    seen = update("INSERT { GRAPH <urn:seen> { ?s ?p ?g } } WHERE { GRAPH ?g { ?s ?p ?o } }")
    assert applied(LockAction.KEEP, mine, 2, seen, update("CLEAR SILENT ALL")) is ApplyResult.APPLIED
    assert worker.system().claims == ADAPTER.claims_for_token(mine)
    assert applied(LockAction.KEEP, mine, 3, quads("<urn:a> <urn:b> <urn:c> .")) is ApplyResult.APPLIED
    assert applied(LockAction.KEEP, mine, 4, release=True) is ApplyResult.APPLIED
    assert (worker.system().claims, worker.data()) == (frozenset(), ["<urn:a> <urn:b> <urn:c> ."])
    assert worker.send(ADAPTER.claim(mine)).ok
    assert worker.send(ADAPTER.renew(mine, 8)).ok
    assert not worker.send(ADAPTER.renew(mine, 9)).ok
    # Taken over: the fence keeps out whoever held it.
    assert worker.send(ADAPTER.take_over(at(5), other)).ok
    assert worker.system().claims == ADAPTER.claims_for_token(other)
    assert worker.system().markers == (at(5, 1),)
    assert applied(LockAction.KEEP, 8, 5) is ApplyResult.MOVED
    assert applied(LockAction.CONFIRM, 8, 5) is ApplyResult.CONTENDED
    for request in (
        ADAPTER.begin_loading(LoadMarker(at(9).position, 1), 8),
        ADAPTER.mark_unusable(worker.system(), NEW, 8),
    ):
        assert ADAPTER.parse_apply_result(worker.send(request)) is ApplyResult.CONTENDED
    assert worker.send(ADAPTER.mark_unusable(worker.system(), NEW, other)).ok
    assert (worker.system().claims, worker.system().loading) == (frozenset(), (NEW,))


@rdf4j
def test_every_literal_reaches_an_rdf4j_as_it_is(worker: StoreProcess) -> None:
    literals = [
        r'"\t\b\n\r\f\"\\"',
        r'"\u0001\u001F\u007F \\u0041 \\\\u0041"',
        '"\u00e9\U0001f600 } ; DROP ALL # "',
        '"it\'s <urn:g> ."@en-gb',
        '"x"^^<urn:type>',
    ]
    lines = [f"<urn:s> <urn:p:{n}> {text}{g} ." for n, text in enumerate(literals) for g in ("", " <urn:g>")]
    body = "".join(f"{line}\n" for line in lines).encode()
    by_hand = pyoxigraph.Store()
    by_hand.load(body, format=pyoxigraph.RdfFormat.N_QUADS)
    wanted = by_hand.dump(format=pyoxigraph.RdfFormat.N_QUADS)
    assert wanted is not None
    assert apply(worker, None, at(1), quads(*lines)) is ApplyResult.APPLIED
    with stream_statements(ADAPTER, worker.transport) as chunks:
        assert sorted(b"".join(chunks).split(b"\n")) == sorted(wanted.split(b"\n"))
    gone = StoreOperation(KIND_QUADS, b"".join(b"D %s\n" % line.encode() for line in lines))
    assert apply(worker, at(1), at(2), gone) is ApplyResult.APPLIED
    assert worker.data() == []
    assert worker.send(ADAPTER.load(body)).ok
    with stream_statements(ADAPTER, worker.transport) as chunks:
        assert sorted(b"".join(chunks).split(b"\n")) == sorted(wanted.split(b"\n"))


@rdf4j
def test_a_query_of_the_default_graph_is_not_one_of_all(worker: StoreProcess) -> None:
    one, two = (f'"{n}"^^<http://www.w3.org/2001/XMLSchema#integer>' for n in (1, 2))
    data = quads(f"<urn:a> <urn:b> {one} .", f"<urn:a> <urn:b> {two} <urn:g> .")
    assert apply(worker, None, at(1), data) is ApplyResult.APPLIED

    def found(text: str, **how: object) -> list[str]:
        request = ADAPTER.query(text, "text/csv", **how)  # type: ignore[arg-type]
        return sorted(worker.send(request).body.decode().split()[1:])

    both = ADAPTER.query("SELECT ?o { }", "text/csv, application/x-binary-rdf-results-table")
    assert worker.send(both).headers["content-type"].startswith("text/csv")
    values = "SELECT ?o {} {{ <urn:a> <urn:b> ?o }}"
    assert found(values.format("")) == ["1", "2"]
    assert found(values.format(""), union=False) == ["1"]
    assert found(values.format("FROM <urn:g>"), union=False) == ["2"]
    assert found(values.format(""), default_graphs=["urn:g"], union=False) == ["2"]
    assert found("SELECT ?o { <urn:a> <urn:b> 01 ; ?p ?o }", union=False) == ["1"]
    for graph, count in ((None, 1), ("urn:g", 1), ("urn:none", 0)):
        answer = worker.send(ADAPTER.export("application/n-triples", graph))
        assert (answer.status, answer.body.count(b"\n")) == (200, count)


@rdf4j
def test_the_probe_refuses_what_is_no_repository_of_an_rdf4j(worker: StoreProcess) -> None:
    with HttpTransport(f"{worker.url}-of-nobody") as transport:
        refused = probe(ADAPTER, transport).refused
    assert refused is not None
    assert refused.reason == "NotAWorker"
    assert "/rdf4j-server/repositories/name" in str(refused)


IRIS = [
    r"http://ex/ü",
    r"http://ex/%zz",
    r"http://ex/%",
    r"http://ex:99999999/",
    r"http://ex:port/",
    r"urn:x",
    r"urn:",
    r"http://[::1]/",
    r"http:///x",
    r"http:x",
    r"mailto:a@b",
    r"tag:x,2020:y",
    r"http://ex/😀",
    r"http://ex/a#b#c",
    r"http://ex/a[1]",
    r"x-y:z",
    r"urn:a:?q",
    r"http://ex/a'b",
    r"http://ex/../a",
    r"http://ex/./a",
    r"http://EX/A",
    r"urn:x:../y",
    r"http://a@b@c/",
    r"http://ex/?q[]=1",
    r"doi:10.1/x",
]


@rdf4j
def test_an_rdf4j_keeps_every_iri_that_an_oxigraph_takes(worker: StoreProcess) -> None:
    by_hand = pyoxigraph.Store()
    for iri in IRIS:
        try:
            by_hand.load(f"<{iri}> <urn:p> <{iri}> .\n".encode(), format=pyoxigraph.RdfFormat.N_QUADS)
        except SyntaxError:
            continue
    wanted = by_hand.dump(format=pyoxigraph.RdfFormat.N_QUADS)
    assert wanted is not None
    assert wanted.count(b"\n") > 15
    assert apply(worker, None, at(1), quads(*wanted.decode().splitlines())) is ApplyResult.APPLIED
    assert sorted(worker.data()) == sorted(wanted.decode().splitlines())
    worker.clear()
    assert worker.send(ADAPTER.load(wanted)).ok
    assert sorted(worker.data()) == sorted(wanted.decode().splitlines())
