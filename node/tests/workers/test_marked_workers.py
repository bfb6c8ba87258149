"""What the adapters of engines without empty graphs rest on, checked on a real store of each."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from engines import MARKED
from fuseki_process import FusekiProcess
from store_process import StoreProcess, swift_folder

from txlog.model.entry import KIND_QUADS, KIND_UPDATE, Position
from txlog.workers.base import NOTHING, Loading, MarkerPosition, Operation, Verdict
from txlog.workers.digest import DEFAULT_GRAPH, digest_of_worker, statements
from txlog.workers.probe import probe

OURS = "<urn:txlog:system> <urn:txlog:system> <urn:txlog:system>"


def at(index: int, fence: int = 0) -> MarkerPosition:
    return MarkerPosition(Position(1, index, index.to_bytes(16, "big")), fence)


def quads(*lines: str) -> Operation:
    return Operation(KIND_QUADS, "".join(f"A {line}\n" for line in lines).encode())


def update(text: str) -> Operation:
    return Operation(KIND_UPDATE, text.encode())


@pytest.fixture(scope="module", params=MARKED)
def running(request: pytest.FixtureRequest) -> Iterator[StoreProcess]:
    with swift_folder() as folder:
        process: StoreProcess = request.param(folder / "worker")
        yield process
        process.kill()


@pytest.fixture
def worker(running: StoreProcess) -> StoreProcess:
    running.clear()
    return running


def apply(
    worker: StoreProcess, expected: MarkerPosition | Loading | None, new: MarkerPosition | Loading, *what: Operation
) -> Verdict:
    return worker.adapter.verdict(worker.send(worker.adapter.apply(what, expected, new)))


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
    assert worker.adapter.is_empty_in(worker.send(worker.adapter.is_empty()))
    assert apply(worker, at(1), at(2), one) is Verdict.MOVED, "an empty store has no marker"
    assert worker.quads() == []
    assert apply(worker, None, at(1), one) is Verdict.APPLIED
    before = worker.quads()
    for expected, new in ((None, at(1)), (at(2), at(3)), (at(1, 1), at(2, 1)), (Loading(at(1).position, 7), at(2))):
        assert apply(worker, expected, new, quads("<urn:x> <urn:y> <urn:z> .")) is Verdict.MOVED
        assert worker.quads() == before
    assert apply(worker, at(1), at(2), quads("<urn:a> <urn:b> <urn:d> .")) is Verdict.APPLIED
    assert worker.system().markers == (at(2),)
    assert worker.adapter.is_at_in(worker.send(worker.adapter.is_at(at(2))))
    assert not worker.adapter.is_at_in(worker.send(worker.adapter.is_at(at(2, 1))))


@pytest.mark.parametrize("last", ["LOAD <urn:nowhere>", "INSERT DATA { nonsense", "COPY <urn:none> TO"])
def test_a_request_that_fails_changes_nothing(worker: StoreProcess, last: str) -> None:
    apply(worker, None, at(1), quads("<urn:a> <urn:b> <urn:c> ."))
    before = worker.quads()
    assert apply(worker, at(1), at(2), quads("<urn:x> <urn:y> <urn:z> ."), update(last)) is Verdict.REFUSED
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
        assert apply(worker, at(index), at(index + 1), update(text)) is Verdict.APPLIED
        assert worker.system().markers == (at(index + 1),)
        if index == 1:
            assert worker.select("SELECT ?o { GRAPH <urn:seen> { ?s ?p ?o } }") == ["urn:g"]
    assert len(worker.quads()) == 1


def test_nothing_of_ours_is_counted_listed_or_given_out(worker: StoreProcess) -> None:
    apply(worker, None, at(1), quads("<urn:a> <urn:b> <urn:c> .", "<urn:a> <urn:b> <urn:c> <urn:g> ."))
    assert worker.adapter.size_in(worker.send(worker.adapter.size())) == 2
    assert worker.adapter.size_in(worker.send(worker.adapter.size([None, "urn:g", "urn:none"]))) == 2
    assert worker.adapter.contexts_in(worker.send(worker.adapter.contexts())) == ["urn:g"]
    with statements(worker.adapter, worker.transport) as chunks:
        assert OURS.encode() not in b"".join(chunks)
    told = digest_of_worker(worker.adapter, worker.transport)
    assert {name: count for name, (count, _) in told.graphs.items()} == {DEFAULT_GRAPH: 1, "urn:g": 1}
    rows = worker.send(worker.adapter.everything()).body.decode().splitlines()
    assert sorted(rows[1:])[0] == "\t<urn:a>\t<urn:b>\t<urn:c>"
    assert sum(1 for row in rows if row.startswith("<urn:txlog:system:") and row.endswith("\t\t\t")) == 1
    union = worker.send(worker.adapter.query("SELECT ?s { ?s <urn:b> ?o }", "text/csv")).body.decode().split()
    assert union == ["s", "urn:a"], "the union holds it once"
    plain = worker.send(
        worker.adapter.query("SELECT ?s { ?s <urn:b> ?o }", "text/csv", union=False, named_graphs=["urn:g"])
    )
    assert plain.body.decode().split() == ["s"]


def test_a_load_and_what_takes_its_place(worker: StoreProcess) -> None:
    loading = Loading(at(9).position, 5)
    assert worker.send(worker.adapter.begin_loading(loading, 0)).ok
    assert worker.adapter.is_at_in(worker.send(worker.adapter.is_loading(loading)))
    assert (
        worker.adapter.verdict(worker.send(worker.adapter.begin_loading(Loading(at(9).position, 6), 0)))
        is Verdict.MOVED
    )
    line = b'<urn:a> <urn:b> "01"^^<http://www.w3.org/2001/XMLSchema#int> <urn:g> .\n'
    assert worker.send(worker.adapter.load(line + b"<urn:x> <urn:y> <urn:z> .\n")).ok
    assert worker.send(worker.adapter.erase([line.rstrip()], [b"<urn:g>"])).ok
    assert worker.send(worker.adapter.erase([], [b"<urn:g>"])).ok
    assert worker.send(worker.adapter.end_loading(loading, at(9))).ok
    assert worker.adapter.verdict(worker.send(worker.adapter.end_loading(loading, at(9)))) is Verdict.MOVED
    assert worker.system().markers == (at(9),)
    assert worker.adapter.size_in(worker.send(worker.adapter.size())) == 1
    again = Loading(at(12).position, 8)
    assert worker.send(worker.adapter.condemn(worker.system(), again, 0)).ok
    assert worker.system().loading == (again,)
    assert worker.send(worker.adapter.empty()).ok
    assert worker.adapter.is_empty_in(worker.send(worker.adapter.is_empty()))


def test_a_takeover_raises_the_fence(worker: StoreProcess) -> None:
    apply(worker, None, at(1), quads("<urn:a> <urn:b> <urn:c> ."))
    assert worker.send(worker.adapter.take_over(at(1), 0)).ok
    assert not worker.send(worker.adapter.take_over(at(1), 0)).ok
    assert apply(worker, at(1), at(2)) is Verdict.MOVED
    assert apply(worker, at(1, 1), at(2, 1)) is Verdict.APPLIED
    assert worker.send(worker.adapter.drop_marker(at(2, 1))).ok
    assert not worker.system().markers


def test_foreign_data_is_no_empty_store(worker: StoreProcess) -> None:
    assert worker.update("INSERT DATA { GRAPH <urn:g> { <urn:a> <urn:b> 1 } }").ok
    assert not worker.adapter.is_empty_in(worker.send(worker.adapter.is_empty()))
    assert apply(worker, None, at(1)) is Verdict.MOVED
    assert (
        worker.adapter.verdict(worker.send(worker.adapter.begin_loading(Loading(NOTHING.position, 1), 0)))
        is Verdict.MOVED
    )


@pytest.mark.parametrize("running", [pytest.param(FusekiProcess, marks=pytest.mark.spark)], indirect=True)
def test_no_update_makes_a_fuseki_ask_another_address(worker: StoreProcess) -> None:
    answer = worker.update("INSERT { <urn:a> <urn:b> ?o } WHERE { SERVICE <http://127.0.0.1:1/> { ?s ?p ?o } }")
    assert answer.status == 500
    asked = worker.ask("SELECT * { SERVICE <http://127.0.0.1:1/> { ?s ?p ?o } }")
    assert not asked.ok


def test_counts_and_the_marker_come_from_one_answer(worker: StoreProcess) -> None:
    data = quads("<urn:s> <urn:p> <urn:o> .", "<urn:s> <urn:p> <urn:o> <urn:g> .", '<urn:s> <urn:p> "," <urn:g> .')
    assert worker.send(worker.adapter.apply([data], None, at(1))).ok
    counted = worker.adapter.counts_in(worker.send(worker.adapter.counts()))
    assert counted.graphs == {"": 1, "urn:g": 2}
    assert counted.system.markers == (at(1),)
