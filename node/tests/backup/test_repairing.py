"""A worker that came apart in some graphs, set right from another: on real stores, cut off at every request."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from log_in_memory import MemoryLog
from oxigraph_process import ADAPTER, OxigraphProcess
from pen import apply, chain_of, everything, filled_log

from txlog.apply import WorkerState, apply_up_to
from txlog.backup import SourceWorker, graph_repair, repair_graphs
from txlog.backup.backup_errors import TooMuchDiffers, WorkerMoved
from txlog.model.store_cell import StoreCell
from txlog.wire.divergence_report import DivergenceFinding
from txlog.workers.adapter import RequestOutcome, StreamedResponse, Unreachable, WorkerRequest, WorkerResponse
from txlog.workers.http_transport import HttpTransport

PLANTED = "INSERT DATA { GRAPH <urn:g:1> { <urn:planted> <urn:p> 1 } }"


@pytest.fixture
def pair(worker: OxigraphProcess, empty: OxigraphProcess) -> tuple[OxigraphProcess, OxigraphProcess, MemoryLog]:
    """Two workers at the end of one log."""
    log = filled_log(6)
    for each in (worker, empty):
        apply(each, log)
    return worker, empty, log


def of(worker: OxigraphProcess) -> SourceWorker:
    return SourceWorker(str(worker.port), ADAPTER, worker.transport)


def test_only_what_differs_is_copied_and_the_log_goes_on(
    pair: tuple[OxigraphProcess, OxigraphProcess, MemoryLog],
) -> None:
    right, wrong, log = pair
    held = right.quads()
    assert wrong.update(
        "DELETE WHERE { GRAPH <urn:g:2> { <urn:s:1:5> ?p ?o } } ; " + PLANTED + " ; "
        'INSERT DATA { <urn:default> <urn:p> _:blank . GRAPH <urn:g:new> { _:b <urn:p> "x" } }'
    ).ok
    before = wrong.system().markers[0]
    done = repair_graphs(of(right), of(wrong), chain_of(log))
    assert done.graphs == ["", "urn:g:1", "urn:g:2", "urn:g:new"]
    assert (done.added, done.removed) == (1, 3)
    assert wrong.quads() == right.quads() == held
    assert wrong.system().markers == (done.marker,) == (before._replace(fence=before.fence + 1),)
    assert not wrong.system().claims
    log.add("<urn:after> <urn:p> <urn:o> <urn:g:1> .")
    outcome = apply_up_to(
        ADAPTER, wrong.transport, log, log.end, epoch=1, cached=before
    )  # the pipeline knew the old one
    assert outcome.state is WorkerState.WORKING
    apply(right, log)
    assert wrong.quads() == right.quads()


def test_graphs_that_are_not_named_stay_as_they_are(pair: tuple[OxigraphProcess, OxigraphProcess, MemoryLog]) -> None:
    right, wrong, log = pair
    assert wrong.update(PLANTED + " ; INSERT DATA { <urn:default> <urn:p> 1 }").ok
    done = repair_graphs(of(right), of(wrong), chain_of(log), graphs=["urn:g:1", "urn:g:2"])
    assert done.graphs == ["urn:g:1"]
    assert set(wrong.quads()) - set(right.quads()) == {
        '<urn:default> <urn:p> "1"^^<http://www.w3.org/2001/XMLSchema#integer> .'
    }


def test_of_a_large_graph_only_the_cells_that_differ_are_read(
    pair: tuple[OxigraphProcess, OxigraphProcess, MemoryLog], monkeypatch: pytest.MonkeyPatch
) -> None:
    right, wrong, log = pair
    planted = 'INSERT DATA { GRAPH <urn:g:1> { <urn:s> <urn:p> 1 , "a\\tb" ; <urn:other> 1 } }'
    assert wrong.update(planted).ok
    cells = [StoreCell("urn:g:1", "urn:p")]
    monkeypatch.setattr(graph_repair, "WHOLE_QUADS_MAX", 1)
    monkeypatch.setattr(graph_repair, "_read_graph", None)
    done = repair_graphs(of(right), of(wrong), chain_of(log), graphs=["urn:g:1"], cells=cells)
    assert (done.graphs, done.added, done.removed) == (["urn:g:1"], 0, 2)
    assert [line for line in wrong.quads() if line not in right.quads()] == [
        '<urn:s> <urn:other> "1"^^<http://www.w3.org/2001/XMLSchema#integer> <urn:g:1> .'
    ]
    monkeypatch.undo()
    done = repair_graphs(of(right), of(wrong), chain_of(log), graphs=["urn:g:1"], cells=cells)
    assert done.removed == 1, "a small graph is read whole"
    monkeypatch.setattr(graph_repair, "WHOLE_QUADS_MAX", 1)
    monkeypatch.setattr(graph_repair, "GRAPH_BYTES_MAX", 1)
    with pytest.raises(TooMuchDiffers, match="larger than"):
        repair_graphs(of(right), of(wrong), chain_of(log), graphs=["urn:g:1"], cells=cells)


@pytest.mark.parametrize(
    ("more", "count"), [({}, 1), ({"graph_count": None}, 0), ({"kind": "sums"}, 0), ({"count": 20}, 0)]
)
def test_cells_are_known_only_where_a_finding_names_all(more: dict[str, Any], count: int) -> None:
    named = [StoreCell("urn:g", f"urn:p{n}") for n in range(more.pop("count", 1))]
    told = {"kind": "cells", "wrong": True, "why": "", "graphs": ["urn:g"], "graph_count": 1, "cells": named} | more
    assert len(graph_repair.known_cells(DivergenceFinding(**told))) == count


def test_nothing_is_written_where_nothing_differs(pair: tuple[OxigraphProcess, OxigraphProcess, MemoryLog]) -> None:
    right, wrong, log = pair
    before = everything(wrong)
    done = repair_graphs(of(right), of(wrong), chain_of(log))
    assert (done.graphs, done.marker) == ([], wrong.system().markers[0])
    assert everything(wrong) == before


def test_too_much_is_refused_and_nothing_is_touched(pair: tuple[OxigraphProcess, OxigraphProcess, MemoryLog]) -> None:
    right, wrong, log = pair
    assert wrong.update(PLANTED + " ; INSERT DATA { <urn:default> <urn:p> 1 }").ok
    before = everything(wrong)
    with pytest.raises(TooMuchDiffers, match="rebuild"):
        repair_graphs(of(right), of(wrong), chain_of(log), lines_max=1)
    assert everything(wrong) == before


def test_workers_that_do_not_stand_at_one_index_are_not_compared(
    pair: tuple[OxigraphProcess, OxigraphProcess, MemoryLog], monkeypatch: pytest.MonkeyPatch
) -> None:
    right, wrong, log = pair
    log.add("<urn:after> <urn:p> <urn:o> <urn:g:1> .")
    apply(right, log)
    monkeypatch.setattr("txlog.backup.graph_repair.ALIGN_TIMEOUT_S", 0.2)
    before = everything(wrong)
    with pytest.raises(WorkerMoved, match="did not come to one index"):
        repair_graphs(of(right), of(wrong), chain_of(log))
    assert everything(wrong) == before


class Dying:
    """The process that repairs ends at its nth request: before it left, or before its answer was heard."""

    def __init__(self, transport: HttpTransport, at: int, heard: bool) -> None:
        self._transport, self._left, self._heard = transport, at, heard
        self.url = transport.url

    def send(self, request: WorkerRequest) -> WorkerResponse:
        self._left -= 1
        if self._left < 0:
            if self._left == -1 and not self._heard:
                self._transport.send(request)
            raise Unreachable(self.url, "killed", RequestOutcome.UNKNOWN)
        return self._transport.send(request)

    @contextmanager
    def stream(self, request: WorkerRequest) -> Iterator[StreamedResponse]:
        self._left -= 1
        if self._left < 0:
            raise Unreachable(self.url, "killed", RequestOutcome.UNKNOWN)
        with self._transport.stream(request) as answer:
            yield answer

    def settled(self) -> bool:
        return True


def test_whatever_request_it_ends_at_the_worker_is_the_old_one_or_the_repaired_one(
    pair: tuple[OxigraphProcess, OxigraphProcess, MemoryLog],
) -> None:
    right, wrong, log = pair
    whole = right.quads()
    seen = set()
    for heard in (True, False):
        for at in range(100):
            assert wrong.update(PLANTED + " ; DELETE WHERE { GRAPH <urn:g:2> { <urn:s:1:5> ?p ?o } }").ok
            planted, fence = wrong.quads(), wrong.system().markers[0].fence
            assert planted != whole
            dying = Dying(wrong.transport, at, heard)
            ended = True
            try:
                repair_graphs(of(right), SourceWorker("dying", ADAPTER, dying), chain_of(log))
            except Unreachable:
                ended = False
            (marker,) = wrong.system().markers
            assert wrong.quads() == (planted if marker.fence == fence else whole)
            assert marker.fence in (fence, fence + 1)
            seen.add(marker.fence - fence)
            if ended:
                break
            claims = wrong.system().claims
            if claims:  # the lock that it left; an applier waits until its owner is known to be gone
                for name in claims:
                    assert wrong.update(f"DROP SILENT GRAPH <{name}>").ok
        assert ended
    assert seen == {0, 1}
