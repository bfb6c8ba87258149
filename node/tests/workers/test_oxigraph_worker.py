"""What we rely on of Oxigraph 0.5.13, and what a reader sees of a worker."""

from __future__ import annotations

from pathlib import Path

import pytest
from oxigraph_process import ADAPTER, OxigraphProcess

from txlog.model.entry import KIND_QUADS, KIND_UPDATE, Position
from txlog.model.quads import encode_quads
from txlog.workers import ADAPTERS, CAPABILITIES
from txlog.workers.adapter import (
    ApplyResult,
    GraphCounts,
    LoadMarker,
    LockAction,
    MarkerPosition,
    ProbeStep,
    StoreOperation,
    SystemGraphs,
    UnexpectedAnswer,
    WorkerRequest,
    WorkerResponse,
)
from txlog.workers.marker_names import marker_name, parse_marker
from txlog.workers.oxigraph import TOKEN_LIMIT, OxigraphAdapter
from txlog.workers.probe import probe


def at(index: int, fence: int = 0) -> MarkerPosition:
    return MarkerPosition(Position(2, index, bytes([index]) * 16), fence)


def update(text: str) -> StoreOperation:
    return StoreOperation(KIND_UPDATE, text.encode())


DATA = update("INSERT DATA { <urn:s> <urn:p> 1 . GRAPH <urn:g> { <urn:s> <urn:p> 2 , 3 } }")


def test_a_marker_says_where_an_unordered_worker_stood() -> None:
    marker = at(42, 3)._replace(unordered=((7, b"\1" * 16), (0, b"\2" * 16)))
    name = marker_name(marker)
    assert name == f"{marker_name(at(42, 3))}:u7-{'01' * 16}:u0-{'02' * 16}"
    assert parse_marker(name) == marker
    for other in (f"{name}:u", f"{name}:u7", f"{name}:7-{'01' * 16}", name.replace(":u0", ":ux"), f"{name}0"):
        assert parse_marker(other) is None


def test_marker_names_keep_their_form() -> None:
    name = marker_name(at(42, 3))
    assert name == "urn:txlog:system:42:2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a:3:2"
    assert parse_marker(name) == at(42, 3)
    for other in ("urn:txlog:system", "urn:txlog:system:lock:12", name + ":5", name[:-2], "urn:g", name.upper()):
        assert parse_marker(other) is None


def test_every_engine_has_a_row_in_the_table() -> None:
    assert ADAPTERS.keys() == CAPABILITIES.keys()
    assert all(adapter.engine == name for name, adapter in ADAPTERS.items())
    assert all(adapter.capabilities is CAPABILITIES[name] for name, adapter in ADAPTERS.items())


def test_the_guard(worker: OxigraphProcess) -> None:
    def apply(*args: object, **more: object) -> ApplyResult:
        return ADAPTER.parse_apply_result(worker.send(ADAPTER.apply(*args, **more)))  # type: ignore[arg-type]

    assert apply([DATA], None, at(1)) is ApplyResult.APPLIED
    assert worker.system().markers == (at(1),)
    before = worker.quads()
    assert len(before) == 3
    more = update("INSERT DATA { <urn:more> <urn:p> 1 }")
    for wrong in (None, at(0), at(2), at(1, 1), MarkerPosition(Position(2, 1, bytes(16)), 0)):
        assert apply([more], wrong, at(2)) is ApplyResult.MOVED
    assert (worker.quads(), worker.system().markers) == (before, (at(1),))
    # A failing operation, first or last, rolls back the data and the marker.
    for bad in (
        "CREATE GRAPH <urn:g>",
        "DROP GRAPH <urn:none>",
        "CLEAR GRAPH <urn:none>",
        "LOAD <http://127.0.0.1:1/>",
    ):
        assert apply([more, update(bad)], at(1), at(2)) is ApplyResult.REFUSED
        assert apply([update(bad), more], at(1), at(2)) is ApplyResult.REFUSED
    assert apply([more, update("nonsense")], at(1), at(2)) is ApplyResult.REFUSED
    assert (worker.quads(), worker.system().markers) == (before, (at(1),))
    # It survives a restart, and a wipe that goes with it.
    assert apply([update("DROP ALL")], at(1), at(2)) is ApplyResult.APPLIED
    worker.kill()
    worker.start()
    assert (worker.quads(), worker.system().markers) == ([], (at(2),))
    assert ADAPTER.parse_is_at(worker.send(ADAPTER.is_at(at(2))))
    assert not ADAPTER.parse_is_at(worker.send(ADAPTER.is_at(at(1))))


def test_the_lock(worker: OxigraphProcess) -> None:
    def apply(lock: LockAction, token: int, old: int, release: bool = False) -> ApplyResult:
        request = ADAPTER.apply([], at(old), at(old + 1), lock=lock, token=token, release=release)
        return ADAPTER.parse_apply_result(worker.send(request))

    mine, same_digits, no_digit = 0, 1, TOKEN_LIMIT - 1  # the last shares none with the first
    assert worker.send(ADAPTER.apply([], None, at(1))).ok
    assert apply(LockAction.CONFIRM, mine, 1) is ApplyResult.CONTENDED  # never claimed
    assert worker.send(ADAPTER.claim(mine)).ok
    assert not worker.send(ADAPTER.claim(mine)).ok
    assert not worker.send(ADAPTER.claim(same_digits)).ok
    assert worker.system().claims == ADAPTER.claims_for_token(mine)
    # A claim without a common digit passes, and then neither of the two is alone.
    assert worker.send(ADAPTER.claim(no_digit)).ok
    assert apply(LockAction.CONFIRM, mine, 1) is ApplyResult.CONTENDED
    assert apply(LockAction.CONFIRM, no_digit, 1) is ApplyResult.CONTENDED
    assert worker.send(ADAPTER.release_claim(no_digit)).ok
    assert apply(LockAction.CONFIRM, mine, 1) is ApplyResult.APPLIED
    assert worker.system().claims == ADAPTER.claims_for_token(mine)
    assert apply(LockAction.KEEP, mine, 2) is ApplyResult.APPLIED
    assert worker.system().claims == ADAPTER.claims_for_token(mine)
    assert apply(LockAction.KEEP, mine, 3, release=True) is ApplyResult.APPLIED
    assert not worker.system().claims
    # Taken over: the fence keeps out whoever held it.
    assert worker.send(ADAPTER.claim(mine)).ok
    assert worker.send(ADAPTER.take_over(at(4), no_digit)).ok
    assert worker.system().claims == ADAPTER.claims_for_token(no_digit)
    assert worker.system().markers == (at(4, 1),)
    assert apply(LockAction.KEEP, mine, 4) is ApplyResult.MOVED
    assert apply(LockAction.CONFIRM, mine, 4) is ApplyResult.CONTENDED


@pytest.fixture
def marked(worker: OxigraphProcess) -> OxigraphProcess:
    """A worker with data, a marker and a lock."""
    assert worker.send(ADAPTER.apply([DATA, update("CREATE GRAPH <urn:empty>")], None, at(9))).ok
    assert worker.send(ADAPTER.claim(77)).ok
    return worker


def test_readers_see_nothing_of_ours(marked: OxigraphProcess) -> None:
    assert ADAPTER.parse_size(marked.send(ADAPTER.size())) == 3
    assert ADAPTER.parse_size(marked.send(ADAPTER.size([None]))) == 1
    assert ADAPTER.parse_size(marked.send(ADAPTER.size([None, "urn:g", "urn:none"]))) == 3
    assert ADAPTER.parse_size(marked.send(ADAPTER.size(["urn:g"]))) == 2
    assert ADAPTER.parse_contexts(marked.send(ADAPTER.contexts())) == ["urn:g"]
    for accept in ("application/n-quads", "application/trig"):
        body = marked.send(ADAPTER.snapshot(accept)).body
        assert b"urn:g" in body
        assert b"txlog" not in body
    assert marked.send(ADAPTER.export("application/n-triples")).body.count(b"\n") == 1
    assert marked.send(ADAPTER.export("application/n-triples", "urn:g")).body.count(b"\n") == 2
    assert marked.send(ADAPTER.export("application/n-triples", "urn:none")).status == 404
    everything = "SELECT * { { ?s ?p ?o } UNION { GRAPH ?g { ?s ?p ?o } } UNION { GRAPH ?g { ?s ?p ?o } ?s ?p ?o } }"
    assert b"txlog" not in marked.send(ADAPTER.query(everything, "text/csv")).body
    assert not ADAPTER.parse_is_empty(marked.send(ADAPTER.is_empty()))


def test_the_adapter_alone_cannot_hide_a_pattern_that_matches_empty_graphs(marked: OxigraphProcess) -> None:
    """Why queries are rewritten before: an empty group matches every graph there is."""
    for text in ("SELECT ?g { GRAPH ?g { } }", "SELECT ?g { GRAPH ?g { OPTIONAL { ?s ?p ?o } } }"):
        assert b"txlog" in marked.send(ADAPTER.query(text, "text/csv")).body


def test_queries_ask_for_the_union_and_updates_do_not(marked: OxigraphProcess) -> None:
    def count(text: str, **more: object) -> int:
        return len(marked.send(ADAPTER.query(text, "text/csv", **more)).body.split()) - 1  # type: ignore[arg-type]

    values = "SELECT ?o {} {{ <urn:s> <urn:p> ?o }}"
    assert count(values.format("")) == 3
    assert count(values.format(""), union=False) == 1
    assert count(values.format("FROM <urn:g>"), union=False) == 2
    assert count(values.format("FROM <urn:g>")) == 3  # why ``union`` is False for a query with FROM
    assert count(values.format(""), default_graphs=["urn:g"]) == 2
    assert count("SELECT ?o { GRAPH ?g { <urn:s> <urn:p> ?o } }", named_graphs=["urn:g"]) == 2

    copy = update("INSERT { <urn:s> <urn:copy> ?o } WHERE { <urn:s> <urn:p> ?o }")
    with_graph = update("WITH <urn:g> INSERT { <urn:s> <urn:copy> ?o } WHERE { <urn:s> <urn:p> ?o }")
    using = update("INSERT { <urn:s> <urn:used> ?o } USING <urn:g> WHERE { <urn:s> <urn:p> ?o }")
    assert marked.send(ADAPTER.apply([copy, with_graph, using], at(9), at(10))).ok
    assert marked.select("SELECT ?o { <urn:s> <urn:copy> ?o }") == ["1"]
    assert marked.select("SELECT ?o { GRAPH <urn:g> { <urn:s> <urn:copy> ?o } }") == ["2", "3"]
    assert marked.select("SELECT ?o { <urn:s> <urn:used> ?o }") == ["2", "3"]
    gone = update("DELETE WHERE { ?s ?p ?o }")
    assert marked.send(ADAPTER.apply([gone], at(10), at(11))).ok
    assert marked.select("SELECT ?o { ?s ?p ?o }") == []
    assert len(marked.quads()) == 4


def test_every_literal_reaches_the_store_as_it_is(worker: OxigraphProcess) -> None:
    literals = [
        r'"\t\b\n\r\f\"\\"',
        r'"\u0000\u0001\u001F\u007F"',
        '"\u00e9\U0001f600 } ; DROP ALL # "',
        '"it\'s <urn:g> ."@en-gb',
        '"x"^^<urn:type>',
    ]
    lines = [
        f"<urn:s> <urn:p:{n}> {literal}{g} .".encode() for n, literal in enumerate(literals) for g in ("", " <urn:g>")
    ]
    request = ADAPTER.apply([StoreOperation(KIND_QUADS, encode_quads([], lines))], None, at(1))
    assert worker.send(request).status == 204
    assert worker.quads() == sorted(line.decode() for line in lines)
    request = ADAPTER.apply([StoreOperation(KIND_QUADS, encode_quads(lines, []))], at(1), at(2))
    assert worker.send(request).status == 204
    assert worker.quads() == []


# -- loading a whole data set

LOADING = LoadMarker(Position(2, 9, bytes(range(16))), 77)
TWO_QUADS = b"<urn:s> <urn:p> <urn:o> .\n<urn:s> <urn:p> <urn:o> <urn:g> .\n"


def begin(worker: OxigraphProcess, loading: LoadMarker, token: int = 5, *, condemn: bool = False) -> WorkerResponse:
    assert worker.send(ADAPTER.claim(token)).ok
    request = ADAPTER.begin_loading(loading, token)
    if condemn:
        request = ADAPTER.mark_unusable(worker.system(), loading, token)
    answer = worker.send(request)
    worker.send(ADAPTER.release_claim(token))
    return answer


def test_a_load_from_its_beginning_to_its_marker(worker: OxigraphProcess) -> None:
    assert begin(worker, LOADING).ok
    assert worker.system() == SystemGraphs((), frozenset(), (LOADING,))
    assert ADAPTER.parse_is_at(worker.send(ADAPTER.is_loading(LOADING)))
    assert worker.send(ADAPTER.load(TWO_QUADS)).status == 204
    assert len(worker.quads()) == 2
    assert worker.send(ADAPTER.end_loading(LOADING, at(9))).ok
    assert (worker.system().markers, worker.system().loading) == ((at(9),), ())
    assert not ADAPTER.parse_is_at(worker.send(ADAPTER.is_loading(LOADING)))


def test_only_an_empty_store_begins_to_load_another_is_condemned_and_emptied_first(worker: OxigraphProcess) -> None:
    assert worker.send(ADAPTER.apply([DATA], None, at(1))).ok
    assert ADAPTER.parse_apply_result(begin(worker, LOADING)) is ApplyResult.MOVED
    assert worker.system().markers == (at(1),)
    assert begin(worker, LOADING, condemn=True).ok
    assert (len(worker.quads()), worker.system()) == (3, SystemGraphs((), frozenset(), (LOADING,)))
    assert worker.send(ADAPTER.clear()).ok
    assert (worker.quads(), worker.graphs()) == ([], [])
    assert begin(worker, LOADING).ok


def test_a_worker_that_has_moved_is_not_condemned(worker: OxigraphProcess) -> None:
    assert worker.send(ADAPTER.apply([DATA], None, at(1))).ok
    found = worker.system()
    assert worker.send(ADAPTER.apply([], at(1), at(2))).ok
    assert worker.send(ADAPTER.claim(5)).ok
    assert ADAPTER.parse_apply_result(worker.send(ADAPTER.mark_unusable(found, LOADING, 5))) is ApplyResult.MOVED
    assert worker.system().markers == (at(2),)


def test_a_loading_store_takes_no_apply_and_another_load_only_by_emptying(worker: OxigraphProcess) -> None:
    assert begin(worker, LOADING).ok
    for expected in (None, at(1)):
        assert not worker.send(ADAPTER.apply([DATA], expected, at(2))).ok
    other = LOADING._replace(token=78)
    assert ADAPTER.parse_apply_result(begin(worker, other)) is ApplyResult.MOVED
    assert begin(worker, other, condemn=True).ok
    assert not worker.send(ADAPTER.end_loading(LOADING, at(9))).ok
    assert worker.system().loading == (other,)


def test_a_load_does_not_begin_beside_an_applier(worker: OxigraphProcess) -> None:
    applier, loader = 0, TOKEN_LIMIT - 1  # tokens that differ in every digit, so that both claims lie there
    assert worker.send(ADAPTER.claim(applier)).ok
    assert worker.send(ADAPTER.claim(loader)).ok
    nothing = SystemGraphs((), frozenset())
    for request in (ADAPTER.begin_loading(LOADING, loader), ADAPTER.mark_unusable(nothing, LOADING, loader)):
        assert ADAPTER.parse_apply_result(worker.send(request)) is ApplyResult.CONTENDED
    assert worker.system().loading == ()


# -- the probe


def test_the_probe_accepts_oxigraph_and_leaves_nothing(worker: OxigraphProcess) -> None:
    for _ in range(2):
        assert probe(ADAPTER, worker.transport).ok
    assert (worker.quads(), worker.graphs()) == ([], [])
    assert worker.send(ADAPTER.apply([DATA], None, at(1))).ok
    assert probe(ADAPTER, worker.transport).ok
    assert worker.system().markers == (at(1),)
    assert len(worker.quads()) == 3


def test_the_probe_refuses_a_server_whose_updates_mean_something_else(tmp_path: Path) -> None:
    flagged = OxigraphProcess(tmp_path / "flagged", "--union-default-graph")
    try:
        refused = probe(ADAPTER, flagged.transport).refused
        assert refused is not None
        assert refused.reason == "UnionDefaultGraph"
        assert "without --union-default-graph" in str(refused)
        assert flagged.graphs() == []
    finally:
        flagged.kill()


class Settled:
    """Never gives a request up."""

    def settled(self) -> bool:
        return True


class Torn(Settled):
    """Executes the operations of a request one after the other, as some stores do over HTTP."""

    def __init__(self, worker: OxigraphProcess, *, forgiving: bool = False) -> None:
        self.worker, self.forgiving, self.url = worker, forgiving, worker.url

    def send(self, request: WorkerRequest) -> WorkerResponse:
        if request.path != "/update":
            return self.worker.send(request)
        answer = WorkerResponse(204, {}, b"")
        for text in request.body.decode().split(" ;\n"):
            answer = self.worker.update(text.replace("DROP GRAPH", "DROP SILENT GRAPH") if self.forgiving else text)
            if not answer.ok:
                break
        return answer


def test_the_probe_refuses_a_store_that_tears_requests(worker: OxigraphProcess) -> None:
    refused = probe(ADAPTER, Torn(worker)).refused
    assert refused is not None
    assert refused.reason == "NotAtomic"


def test_the_probe_refuses_a_store_without_a_guard() -> None:
    class Forgiving(OxigraphAdapter):
        pass

    class Says(Settled):
        url = "http://forgiving"

        def __init__(self, steps: list[ProbeStep]) -> None:
            self.steps = steps

        def send(self, request: WorkerRequest) -> WorkerResponse:
            step = next(s for s in self.steps if s.request == request)
            if step.reason == "NoGuard":
                return WorkerResponse(204, {}, b"")
            return WorkerResponse(step.expected_statuses[0], {}, b"s\r\n" if step.empty else b"true")

    refused = probe(Forgiving(), Says(list(ADAPTER.probe_steps()))).refused
    assert refused is not None
    assert refused.reason == "NoGuard"


def test_the_probe_refuses_what_is_no_sparql_server() -> None:
    class Says404(Settled):
        url = "http://elsewhere"

        def send(self, request: WorkerRequest) -> WorkerResponse:
            return WorkerResponse(404, {}, b"not found")

    refused = probe(ADAPTER, Says404()).refused
    assert refused is not None
    assert refused.reason == "NotAWorker"


def test_an_unexpected_answer_is_an_error_that_says_what_was_asked() -> None:
    broken = WorkerResponse(500, {}, b"IO error: disk full")
    for read in (
        ADAPTER.parse_system_graphs,
        ADAPTER.parse_is_at,
        ADAPTER.parse_is_empty,
        ADAPTER.parse_size,
        ADAPTER.parse_contexts,
    ):
        with pytest.raises(UnexpectedAnswer, match="500: IO error: disk full"):
            read(broken)
    with pytest.raises(UnexpectedAnswer):
        ADAPTER.parse_is_at(WorkerResponse(200, {}, b"<html>"))


def test_counts_and_the_marker_come_from_one_answer(worker: OxigraphProcess) -> None:
    assert ADAPTER.parse_counts(worker.send(ADAPTER.counts())) == GraphCounts(SystemGraphs((), frozenset()), {})
    odd = 'INSERT DATA { GRAPH <urn:g,comma"> { <urn:s> <urn:p> 1 } }'.replace('"', "%22")
    assert worker.send(ADAPTER.apply([DATA, update(odd)], None, at(1))).ok
    assert worker.update("CREATE GRAPH <urn:empty>").ok
    counted = ADAPTER.parse_counts(worker.send(ADAPTER.counts()))
    assert counted.graphs == {"": 1, "urn:g": 2, "urn:g,comma%22": 1}
    assert counted.system == SystemGraphs((at(1),), frozenset())
    assert worker.send(ADAPTER.claim(5)).ok
    assert ADAPTER.parse_counts(worker.send(ADAPTER.counts())).system.claims == ADAPTER.claims_for_token(5)


@pytest.mark.parametrize("body", [b"g,n\r\nurn:g,many\r\n", b"g,n\r\nurn:g\r\n"])
def test_an_answer_that_counts_nothing_is_named(body: bytes) -> None:
    for response in (WorkerResponse(200, {}, body), WorkerResponse(500, {}, b"no")):
        with pytest.raises(UnexpectedAnswer):
            ADAPTER.parse_counts(response)
