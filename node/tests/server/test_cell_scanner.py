"""Stores compared by cells while entries are applied: real stores, a real master, a log in memory."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from master_cluster import Cluster
from oxigraph_process import ADAPTER, OxigraphProcess

from txlog.config.process_config import PipelineConfig
from txlog.divergence import cell_schedule
from txlog.divergence.cell_schedule import MISSES_MAX, REREAD_S, SUSPECT_REREAD_S, TOUCH_WAIT_S, CellRead
from txlog.model.entry import KIND_QUADS, KIND_UPDATE, LogEntry, Position
from txlog.model.errors import Unavailable
from txlog.model.graph_digests import build_graph_digests
from txlog.model.hashes import NO_HASH
from txlog.model.ids import Origin, Txid
from txlog.model.quads import encode_quads
from txlog.model.store_cell import StoreCell
from txlog.pipeline import cell_scanner
from txlog.pipeline.cell_scanner import CellScanner
from txlog.pipeline.scan_pace import ScanPace
from txlog.workers.adapter import MarkerPosition, StoreOperation
from txlog.workers.digest import digest_worker
from txlog.workers.http_transport import HttpTransport

G = StoreCell("urn:g", "urn:p")


def add(*lines: str) -> StoreOperation:
    return StoreOperation(KIND_QUADS, encode_quads([], [line.encode() for line in lines]))


def quad(value: int, graph: str = "urn:g", predicate: str = "urn:p") -> str:
    number = f'"{value}"^^<http://www.w3.org/2001/XMLSchema#integer>'
    return f"<urn:s> <{predicate}> {number} <{graph}> ."


DATA = add(quad(1), quad(2), quad(1, "urn:h"), quad(1, "urn:h", "urn:q"))


class Log:
    """The entries that workers executed."""

    def __init__(self) -> None:
        self.entries: list[LogEntry] = []

    def append(self, operation: StoreOperation) -> Position:
        index = len(self.entries) + 1
        digest = bytes([index]) * 16
        txid = Txid(Origin("uk-1", 1), index)
        self.entries.append(LogEntry(index, digest, txid, index, operation.kind, operation.payload, ""))
        return self.end

    @property
    def end(self) -> Position:
        return Position(1, len(self.entries), self.entries[-1].hash if self.entries else NO_HASH)

    def page(
        self, after: Position | None, upto: int, max_bytes: int, unordered: Sequence[tuple[int, bytes]] = ()
    ) -> list[LogEntry]:
        return self.entries[0 if after is None else after.index : upto]


class Compared:
    """Two stores that execute a log, and what compares them. The test moves the clock."""

    def __init__(self, cluster: Cluster, stores: dict[str, OxigraphProcess], folder: Path) -> None:
        self.cluster, self.stores, self.now = cluster, stores, 1000.0
        self.log = Log()
        self.markers = dict.fromkeys(stores, MarkerPosition(Position(0, 0, NO_HASH), 0))
        self.scanner = self.scan(folder)

    def scan(self, folder: Path) -> CellScanner:
        config = PipelineConfig.model_validate(
            {
                "data_center": "uk",
                "masters": [self.cluster.url(0)],
                "workers": [{"name": name, "url": store.url} for name, store in self.stores.items()],
                "scratch_folder": str(folder / "scratch"),
                "compare_share": 1,
            }
        )
        pace = ScanPace(config, lambda: self.now)
        end, clock = (lambda: self.log.end), (lambda: self.now)
        return CellScanner(config, threading.Lock(), pace, source=self.log, stable=end, clock=clock)

    async def execute(self, operation: StoreOperation, *names: str) -> None:
        """Append it to the log, and have these workers execute it (none: all)."""
        position = self.log.append(operation)
        for name in names or self.stores:
            await self.apply(name, operation, position)

    async def apply(self, name: str, operation: StoreOperation, position: Position) -> None:
        before = self.markers[name]
        new = MarkerPosition(position, before.fence)
        expected = None if before.position.index == 0 else before
        assert self.stores[name].send(ADAPTER.apply([operation], expected, new)).ok
        self.markers[name] = new
        place = {"epoch": 1, "index": position.index, "hash": position.hash.hex(), "fence": new.fence}
        await self.cluster.post(0, f"/txlog/workers/{name}", None, 200, json={"position": place, "state": "Working"})

    async def turns(self, seconds: float) -> None:
        """Compare for so long, by the clock of the test."""
        until = self.now + seconds
        while self.now < until:
            self.now += 1.0
            await asyncio.to_thread(self.scanner.turn, threading.Event())

    async def end_pass(self) -> None:
        """Compare until the present pass has ended."""
        until, count = self.now + 500, self.scanner.schedule.pass_count
        while self.scanner.schedule.pass_count == count:
            assert self.now < until, "the pass does not end"
            await self.turns(1.0)

    async def found(self) -> dict[str, Any]:
        workers = (await self.cluster.get(0, "/txlog/workers"))["workers"]
        return {worker["name"]: worker["divergence"] for worker in workers if worker["divergence"]}


def exchange(store: OxigraphProcess, old: int, new: int, graph: str = "urn:g") -> None:
    there = f"GRAPH <{graph}> {{{{ <urn:s> <urn:p> {{}} }}}}"
    assert store.update(f"DELETE DATA {{ {there.format(old)} }} ; INSERT DATA {{ {there.format(new)} }}").ok


@pytest.fixture
async def compared(tmp_path: Path, clusters: Callable[..., Cluster]) -> AsyncIterator[Compared]:
    stores = {name: OxigraphProcess(tmp_path / name) for name in ("w-1", "w-2")}
    cluster = clusters(1, workers=[{"name": name, "url": store.url} for name, store in stores.items()])
    await cluster.start()
    made = Compared(cluster, stores, tmp_path)
    await made.execute(DATA)
    yield made
    made.scanner.close()
    for store in stores.values():
        store.kill()


async def test_one_quad_exchanged_in_a_cell_that_nothing_touches_is_found_within_a_pass(compared: Compared) -> None:
    await compared.end_pass()
    assert await compared.found() == {}
    exchange(compared.stores["w-2"], 2, 3)
    await compared.end_pass()
    found = await compared.found()
    assert list(found) == ["w-2"], "it held something else, and no entry wrote that"
    one = found["w-2"]
    assert (one["kind"], one["wrong"], one["graphs"], one["right"]) == ("cells", True, ["urn:g"], ["uk/w-1"])
    assert one["cells"] == [["urn:g", "urn:p"]]


async def test_a_difference_in_a_cell_that_entries_touch_is_found_within_a_minute(compared: Compared) -> None:
    await compared.end_pass()
    compared.scanner._pace._idle_share = 1e-9  # the next pass never ends
    for _ in range(70):
        await compared.turns(1.0)
    exchange(compared.stores["w-2"], 2, 3)
    await compared.execute(add(quad(7)))
    began = compared.now
    while not (found := await compared.found()):
        assert compared.now < began + 60, "not found in a minute"
        await compared.turns(1.0)
    assert compared.now >= began + TOUCH_WAIT_S, "writes of some seconds cost one reading"
    assert {name: each["cells"] for name, each in found.items()} == {
        "w-1": [["urn:g", "urn:p"]],
        "w-2": [["urn:g", "urn:p"]],
    }, "an entry wrote the cell, so nothing says which of two is wrong"


async def test_a_quad_of_a_new_predicate_is_found_in_a_store_alone(compared: Compared) -> None:
    await compared.cluster.post(0, "/txlog/workers/w-2", None, 200, json={"state": "Unreachable"})
    await compared.end_pass()
    assert compared.stores["w-1"].update("INSERT DATA { GRAPH <urn:g> { <urn:s> <urn:new> 1 } }").ok
    await compared.end_pass()
    found = (await compared.found())["w-1"]
    assert (found["wrong"], found["cells"]) == (True, [["urn:g", "urn:new"]])


async def test_other_data_centres_see_that_a_store_holds_again_what_it_held(compared: Compared) -> None:
    """Its own finding stays until they do: it has changed twice without an entry."""
    await compared.cluster.post(0, "/txlog/workers/w-2", None, 200, json={"state": "Unreachable"})
    await compared.end_pass()

    def sums() -> list[str]:
        looks = compared.cluster.service(0).context.registry.workers["w-1"].looks
        return [look.fingerprint for look in looks if look.kind == "sums"]

    await compared.turns(1.0)
    (before,) = sums()
    assert compared.stores["w-1"].update("INSERT DATA { GRAPH <urn:g> { <urn:s> <urn:new> 1 } }").ok
    for _ in range(2):  # one pass has listed the cells already
        await compared.end_pass()
    assert (await compared.found())["w-1"]["wrong"] is True
    await compared.turns(SUSPECT_REREAD_S + 2)
    assert sums()[0] == before != sums()[1]
    assert compared.stores["w-1"].update("DELETE WHERE { GRAPH <urn:g> { ?s <urn:new> 1 } }").ok
    await compared.turns(2 * SUSPECT_REREAD_S + 4)
    assert sums()[-1] == before


async def test_workers_at_different_positions_are_compared_and_equal(compared: Compared) -> None:
    await compared.end_pass()
    await compared.execute(add(quad(9, "urn:other")), "w-1")
    await compared.end_pass()
    assert await compared.found() == {}
    exchange(compared.stores["w-2"], 2, 3)
    await compared.end_pass()
    assert list(await compared.found()) == ["w-2"]


async def test_what_is_equal_again_is_no_finding(compared: Compared) -> None:
    await compared.end_pass()
    exchange(compared.stores["w-2"], 2, 3)
    await compared.end_pass()
    assert list(await compared.found()) == ["w-2"]
    exchange(compared.stores["w-2"], 3, 2)
    await compared.turns(REREAD_S + 2)
    assert await compared.found() == {}
    await compared.turns(REREAD_S + 2)
    assert compared.scanner.schedule.is_settled


async def test_the_sums_of_all_cells_are_those_of_a_whole_reading(compared: Compared) -> None:
    """Other data centres compare them."""
    await compared.end_pass()
    await compared.turns(5.0)
    with HttpTransport(compared.stores["w-1"].url, 30.0) as transport:
        whole = digest_worker(ADAPTER, transport)
    looks = compared.cluster.service(0).context.registry.workers["w-1"].looks
    (sums,) = [look for look in looks if look.kind == "sums"]
    table: dict[str, tuple[int, int | None]] = {**whole.graphs}
    assert sums == build_graph_digests("sums", 1, bytes([1]).hex() * 16, 0, table)


async def test_nothing_differs_where_cells_become_graphs(compared: Compared, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was read of single predicates, and what listings have shown of them, says nothing of whole graphs."""
    monkeypatch.setattr(cell_schedule, "CELLS_MAX", 3)
    for _ in range(2):  # the second listing is compared with the first one
        await compared.end_pass()
    assert not compared.scanner.schedule.reads_graphs
    await compared.execute(add(quad(1, "urn:i"), quad(1, "urn:i", "urn:q")))
    for _ in range(2):
        await compared.end_pass()
        assert await compared.found() == {}
    assert compared.scanner.schedule.reads_graphs
    await compared.turns(cell_scanner.SUMS_S + 5.0)
    with HttpTransport(compared.stores["w-1"].url, 30.0) as transport:
        whole = digest_worker(ADAPTER, transport)
    looks = compared.cluster.service(0).context.registry.workers["w-1"].looks
    table: dict[str, tuple[int, int | None]] = {**whole.graphs}
    expected = build_graph_digests("sums", 2, bytes([2]).hex() * 16, 0, table)
    assert [look for look in looks if look.kind == "sums"][-1] == expected


async def test_a_cell_that_never_rests_is_compared_with_workers_paused_at_one_index(
    compared: Compared, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each reading of w-1 is followed by a write, before w-2 is read."""
    await compared.end_pass()
    loop, read, value = asyncio.get_running_loop(), cell_scanner.read_cells, 100
    held: list[bool] = []

    def busily(adapter: Any, transport: Any, cells: Any, pace: Any, on_begun: Any) -> Any:
        nonlocal value
        if transport.url == compared.stores["w-2"].url and G in cells:
            workers = asyncio.run_coroutine_threadsafe(compared.cluster.get(0, "/txlog/workers"), loop).result(30)
            held.append(any(worker["hold"] is not None for worker in workers["workers"]))
            if not held[-1]:
                assert first.wait(30)
                value += 1
                asyncio.run_coroutine_threadsafe(compared.execute(add(quad(value))), loop).result(30)
        found = read(adapter, transport, cells, pace, on_begun)
        if transport.url == compared.stores["w-1"].url:
            first.set()
        return found

    first = threading.Event()
    monkeypatch.setattr(cell_scanner, "read_cells", busily)
    await compared.execute(add(quad(99)))
    until = compared.now + 600
    while not any(held):
        assert compared.now < until, "never paused"
        first.clear()
        await compared.turns(1.0)
    assert held.count(False) == MISSES_MAX
    await compared.turns(1.0)
    workers = (await compared.cluster.get(0, "/txlog/workers"))["workers"]
    assert all(worker["hold"] is None for worker in workers)
    assert await compared.found() == {}


async def test_a_pass_goes_on_while_more_is_written_than_can_be_read_in_time(
    compared: Compared, monkeypatch: pytest.MonkeyPatch
) -> None:
    await compared.end_pass()
    monkeypatch.setattr(cell_scanner.CellSchedule, "next_due", lambda self, now: CellRead([G], False, True))
    exchange(compared.stores["w-2"], 1, 3, "urn:h")
    await compared.end_pass()
    assert list(await compared.found()) == ["w-2"]


async def test_cells_that_a_text_adds_are_compared_soon(compared: Compared) -> None:
    await compared.end_pass()
    compared.scanner._pace._idle_share = 1e-9  # the next pass never ends
    await compared.turns(70)
    text = b"INSERT { GRAPH <urn:g> { ?s ?p 5 } } WHERE { GRAPH <urn:h> { ?s ?p ?o } }"
    await compared.execute(StoreOperation(KIND_UPDATE, text))
    there = "GRAPH <urn:g> {{ <urn:s> <urn:q> {} }}"
    exchanged = f"DELETE DATA {{ {there.format(5)} }} ; INSERT DATA {{ {there.format(6)} }}"
    assert compared.stores["w-2"].update(exchanged).ok
    began = compared.now
    while not (found := await compared.found()):
        assert compared.now < began + 60, "not found in a minute"
        await compared.turns(1.0)
    assert found["w-2"]["cells"] == [["urn:g", "urn:q"]]


async def test_a_repaired_worker_is_compared_again_and_its_finding_ends(compared: Compared) -> None:
    await compared.end_pass()
    exchange(compared.stores["w-2"], 2, 3)
    await compared.end_pass()
    assert list(await compared.found()) == ["w-2"]
    exchange(compared.stores["w-2"], 3, 2)
    before = compared.markers["w-2"]
    raised = before._replace(fence=1)
    assert compared.stores["w-2"].send(ADAPTER.apply([], before, raised)).ok
    compared.markers["w-2"] = raised
    await compared.execute(add(quad(50)))
    await compared.turns(1.0)
    assert not compared.scanner.schedule.is_settled, "nothing is known of it"
    compared.scanner._next_pass_at = 1e9  # a pass may take hours
    await compared.turns(60)
    assert await compared.found() == {}


async def test_a_finding_from_before_a_restart_of_the_pipeline_ends(compared: Compared, tmp_path: Path) -> None:
    await compared.end_pass()
    exchange(compared.stores["w-2"], 2, 3)
    await compared.end_pass()
    assert list(await compared.found()) == ["w-2"]
    exchange(compared.stores["w-2"], 3, 2)
    compared.scanner.close()
    compared.scanner = compared.scan(tmp_path)
    compared.scanner._next_pass_at = 1e9  # a pass may take hours
    await compared.turns(60)
    assert await compared.found() == {}


async def test_a_store_that_does_not_answer_is_left_out_and_compared_when_it_is_back(compared: Compared) -> None:
    compared.stores["w-2"].kill()
    await compared.end_pass()
    assert await compared.found() == {}
    compared.stores["w-2"].start()
    exchange(compared.stores["w-2"], 2, 3)
    await compared.end_pass()
    assert set(await compared.found()) == {"w-1", "w-2"}, "nothing says which is wrong"


async def test_no_pass_ends_while_no_store_answers(compared: Compared) -> None:
    for store in compared.stores.values():
        store.kill()
    await compared.turns(20)
    assert compared.scanner.schedule.pass_s is None
    for store in compared.stores.values():
        store.start()
    until = compared.now + 30
    while not compared.scanner.schedule.is_listed:
        assert compared.now < until, "nothing is listed"
        await compared.turns(1.0)
    for store in compared.stores.values():
        store.kill()
    for _ in range(20):
        compared.now += 1.0
        with suppress(Unavailable):
            await asyncio.to_thread(compared.scanner.turn, threading.Event())
    assert compared.scanner.schedule.pass_s is None
    for store in compared.stores.values():
        store.start()
    await compared.end_pass()
    exchange(compared.stores["w-2"], 2, 3)
    await compared.end_pass()
    assert list(await compared.found()) == ["w-2"]
