"""Cells of a real store: listed, and read with the digests that a reading of everything gives."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from oxigraph_process import ADAPTER, OxigraphProcess

from txlog.divergence.cell_list import CellListing
from txlog.model.entry import Position
from txlog.model.store_cell import StoreCell
from txlog.pipeline.cell_reader import ReadPace, read_cells
from txlog.workers.adapter import MarkerPosition, UnexpectedAnswer, WorkerResponse
from txlog.workers.digest import digest_worker
from txlog.workers.http_transport import HttpTransport

AT = MarkerPosition(Position(1, 7, bytes([7]) * 16), 3)
XSD = "http://www.w3.org/2001/XMLSchema#"
VALUES = (
    "1", "-7", "1.5", "1e300", "true",
    '"plain"', '"a \\"quoted\\" \\\\ text"', '"a\\ttab\\nand a line\\r"', '"\\u0007"', '"\\u007F"',
    '"hallo"@de', '"hej"@da-DK', f'"2024-01-01"^^<{XSD}date>', '"x"^^<urn:dt>', '"01"',
    '"true"', "<urn:o>", '"<urn:o>"',
    '"<<( not a term )>>"', "<<( <urn:a> <urn:b> 1 )>>", '<<( <urn:a> <urn:b> "x\\ty" )>>',
    '"äöü 漢"', '""', f'"a"^^<{XSD}integer>',
)  # fmt: skip


@pytest.fixture
def store(tmp_path: Path) -> Iterator[OxigraphProcess]:
    made = OxigraphProcess(tmp_path / "store")
    for graph in ("{}", "GRAPH <urn:g> {{ {} }}", "GRAPH <urn:h,1> {{ {} }}"):
        for predicate in ("urn:p", "urn:q,1"):
            there = graph.format(" ".join(f"<urn:s> <{predicate}> {value} ." for value in VALUES))
            assert made.update(f"INSERT DATA {{ {there} }}").ok
    assert made.plant(AT).ok
    yield made
    made.kill()


def pace() -> ReadPace:
    return ReadPace(lambda: 1.0, threading.Event())


@pytest.mark.parametrize("predicates", [("urn:p", "urn:q,1"), (None,)])
def test_cells_have_the_sums_of_a_reading_of_everything(store: OxigraphProcess, predicates: tuple[str | None]) -> None:
    cells = [StoreCell(graph, predicate) for graph in ("", "urn:g", "urn:h,1") for predicate in predicates]
    begun = list[bool]()
    with HttpTransport(store.url, 30.0) as transport:
        whole = digest_worker(ADAPTER, transport)
        found = read_cells(ADAPTER, transport, cells, pace(), lambda: begun.append(True))
    assert found is not None
    assert begun == [True]
    sums: dict[str, tuple[int, int]] = {}
    for cell, reading in found.readings.items():
        assert (reading.log_index, reading.hash, reading.fence) == (7, bytes([7]) * 16, 3)
        quads, total = sums.get(cell.graph, (0, 0))
        sums[cell.graph] = quads + reading.quads, (total + reading.total) % (1 << 128)
    assert sums == whole.graphs


def test_a_store_without_one_marker_is_not_read(store: OxigraphProcess) -> None:
    assert store.plant(AT._replace(fence=4)).ok
    with HttpTransport(store.url, 30.0) as transport:
        assert read_cells(ADAPTER, transport, [StoreCell("", "urn:p")], pace()) is None


def test_what_a_store_refuses_is_an_error_by_name(store: OxigraphProcess) -> None:
    with HttpTransport(store.url, 30.0) as transport, pytest.raises(UnexpectedAnswer, match="reading cells"):
        read_cells(ADAPTER, transport, [StoreCell("not an IRI", None)], pace())


def test_cells_are_listed_by_queries_of_bounded_size(store: OxigraphProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("txlog.divergence.cell_list.LIST_QUADS", 10)
    listing, queries = CellListing(["", *ADAPTER.parse_contexts(store.send(ADAPTER.contexts()))]), 0
    while (part := listing.next_part) is not None:
        request = ADAPTER.list_cells(part.graphs, part.first, 10)
        found = ADAPTER.parse_cells(part.graphs, store.send(request))
        assert sum(found.values()) <= 10
        listing.add(found)
        queries += 1
    count = len(set(VALUES))
    cells = {StoreCell(graph, predicate) for graph in ("", "urn:g", "urn:h,1") for predicate in ("urn:p", "urn:q,1")}
    assert set(listing.cells) == cells
    assert sum(listing.cells.values()) == 3 * 2 * count
    assert queries > 3 * 2 * count // 10


@pytest.mark.parametrize("body", [b"c,p,n\r\n9,urn:p,1\r\n", b"c,p,n\r\n0,urn:p,many\r\n"])
def test_an_answer_that_lists_no_cells_is_an_error(body: bytes) -> None:
    with pytest.raises(UnexpectedAnswer, match="listing"):
        ADAPTER.parse_cells([""], WorkerResponse(200, {}, body))


def test_a_size_is_counted_up_to_a_limit(store: OxigraphProcess) -> None:
    assert ADAPTER.parse_size(store.send(ADAPTER.size_up_to(10))) == 10
    whole = ADAPTER.parse_size(store.send(ADAPTER.size_up_to(10_000)))
    assert whole == ADAPTER.parse_size(store.send(ADAPTER.size()))
