"""Stores that answer with 200 and something else, or with a part: it is named, and the comparison goes on."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from feed_stub import FeedStub, StubLog
from store_process import until

from txlog.config.process_config import PipelineConfig
from txlog.model.store_cell import StoreCell
from txlog.pipeline import cell_scanner, divergence_scanner
from txlog.pipeline.cell_reader import ReadPace, read_cells
from txlog.pipeline.scan_pace import ScanPace
from txlog.workers import ADAPTERS
from txlog.workers.adapter import StreamedResponse, UnexpectedAnswer, WorkerRequest, WorkerResponse

PAGES = [b"", b"<html>Down for maintenance</html>", b"g\r\nurn:txlog:system:1", b"g\r\n\xff\r\n"]
CELLS = [StoreCell("urn:g", "urn:p")]


class OddStore:
    """``page``: the body of each answer."""

    url = "http://odd"

    def __init__(self, page: bytes) -> None:
        self.page = page

    def send(self, _: WorkerRequest) -> WorkerResponse:
        return WorkerResponse(200, {}, self.page)

    def settled(self) -> bool:
        return True

    @contextmanager
    def stream(self, _: WorkerRequest) -> Iterator[StreamedResponse]:
        yield StreamedResponse(200, {}, iter([self.page]))


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize("engine", ["oxigraph", "fuseki", "rdf4j"])
def test_no_parser_takes_it_for_an_answer(engine: str, page: bytes) -> None:
    adapter, answer = ADAPTERS[engine], WorkerResponse(200, {}, page)
    for parse in (adapter.parse_system_graphs, adapter.parse_size, adapter.parse_counts, adapter.parse_contexts):
        with pytest.raises(UnexpectedAnswer):
            parse(answer)
    with pytest.raises(UnexpectedAnswer):
        read_cells(adapter, OddStore(page), CELLS, ReadPace(lambda: 1.0, threading.Event()))


def test_the_number_in_a_part_of_an_answer_is_no_size() -> None:
    for page in (b"n\r\n12", b"n\r\n", b"n\r\ntwelve\r\n"):
        with pytest.raises(UnexpectedAnswer):
            ADAPTERS["oxigraph"].parse_size(WorkerResponse(200, {}, page))


@pytest.fixture
def config(tmp_path: Path) -> Iterator[PipelineConfig]:
    feed = FeedStub(StubLog(), ["w1"])
    yield PipelineConfig.model_validate(
        {
            "data_center": "uk",
            "masters": [feed.url],
            "workers": [{"name": "w1", "url": "http://127.0.0.1:1"}],
            "scratch_folder": str(tmp_path),
            "compare_s": 0.01,
        }
    )
    feed.stop()


@pytest.mark.parametrize("kind", ["cells", "counts", "sums"])
def test_no_error_ends_a_comparison(config: PipelineConfig, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    def fail(self: object, *_: object) -> float:
        calls.append(kind)
        raise ValueError("an error that nothing foresaw")

    meeting, pace, stop = threading.Lock(), ScanPace(config), threading.Event()
    monkeypatch.setattr(cell_scanner, "PACE_POLL_S", 0.01)
    monkeypatch.setattr(cell_scanner.CellScanner, "turn", fail)
    monkeypatch.setattr(divergence_scanner.DivergenceScanner, f"compare_{kind}", fail, raising=False)
    loop: Callable[[], None] = (
        (lambda: cell_scanner.run_cell_scan(config, meeting, pace, stop))
        if kind == "cells"
        else (lambda: divergence_scanner._scan_loop(config, kind, 0.01, stop, meeting, pace))
    )
    thread = threading.Thread(target=loop, daemon=True)
    thread.start()
    try:
        until(lambda: len(calls) > 1, 10.0)
    finally:
        stop.set()
        thread.join(10)
