"""Stores looked at by a pipeline's thread, and what a master makes of it: real stores, a real master."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from master_cluster import Cluster, until
from oxigraph_process import ADAPTER, OxigraphProcess

from txlog.config.process_config import PipelineConfig
from txlog.model.entry import KIND_UPDATE, Position
from txlog.pipeline import divergence_scanner
from txlog.pipeline.divergence_scanner import DivergenceScanner
from txlog.pipeline.scan_pace import DUTY_CYCLE_SAMPLES, REST_S, DutyCycle, ScanPace, WorkerState
from txlog.pipeline.scanned_workers import ScannedWorkers
from txlog.workers.adapter import MarkerPosition, StoreOperation

DATA = StoreOperation(KIND_UPDATE, b"INSERT DATA { <urn:s> <urn:p> 0 . GRAPH <urn:g> { <urn:s> <urn:p> 1 , 2 } }")
MORE = StoreOperation(KIND_UPDATE, b"INSERT DATA { GRAPH <urn:h> { <urn:s> <urn:p> 1 } }")


def at(index: int) -> MarkerPosition:
    return MarkerPosition(Position(1, index, bytes([index]) * 16), 0)


def comparing_of(cluster: Cluster, stores: dict[str, OxigraphProcess], folder: Path) -> DivergenceScanner:
    """Of these stores of uk, as fast as it can."""
    told = {
        "data_center": "uk",
        "masters": [cluster.url(0)],
        "workers": [{"name": name, "url": store.url} for name, store in stores.items()],
        "scratch_folder": str(folder / "scratch"),
        "compare_share": 1,
    }
    return DivergenceScanner(PipelineConfig.model_validate(told), threading.Lock())


class Pair:
    def __init__(self, cluster: Cluster, stores: dict[str, OxigraphProcess], folder: Path) -> None:
        self.cluster, self.stores = cluster, stores
        self.comparing = comparing_of(cluster, stores, folder)

    async def move(self, name: str, operation: StoreOperation, index: int) -> None:
        expected = None if index == 1 else at(index - 1)
        assert self.stores[name].send(ADAPTER.apply([operation], expected, at(index))).ok
        place = {"epoch": 1, "index": index, "hash": at(index).position.hash.hex()}
        await self.cluster.post(0, f"/txlog/workers/{name}", None, 200, json={"position": place, "state": "Working"})

    async def counted(self) -> dict[str, Any]:
        await asyncio.to_thread(self.comparing.compare_counts)
        return await self.found()

    async def summed(self) -> dict[str, Any]:
        await asyncio.to_thread(self.comparing.compare_sums, threading.Event())
        return await self.found()

    async def found(self) -> dict[str, Any]:
        workers = (await self.cluster.get(0, "/txlog/workers"))["workers"]
        assert all(worker["hold"] is None for worker in workers), "nobody is held afterwards"
        return {worker["name"]: worker["divergence"] for worker in workers if worker["divergence"]}


@pytest.fixture
async def pair(
    tmp_path: Path, clusters: Callable[..., Cluster], monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Pair]:
    # Oxigraph is read by cells; here it is one whose engine has none.
    monkeypatch.setattr(divergence_scanner, "is_read_whole", lambda place: True)
    stores = {name: OxigraphProcess(tmp_path / name) for name in ("w-1", "w-2")}
    cluster = clusters(1, workers=[{"name": name, "url": store.url} for name, store in stores.items()])
    await cluster.start()
    made = Pair(cluster, stores, tmp_path)
    for name in stores:
        await made.move(name, DATA, 1)
    with made.comparing:
        yield made
    for store in stores.values():
        store.kill()


async def test_what_is_planted_is_found_by_counting_and_what_is_exchanged_by_sums(pair: Pair) -> None:
    assert await pair.counted() == {}
    assert await pair.summed() == {}
    store = pair.stores["w-2"]
    assert store.update("DELETE DATA { GRAPH <urn:g> { <urn:s> <urn:p> 2 } }").ok
    found = await pair.counted()
    assert list(found) == ["w-2"]
    assert (found["w-2"]["wrong"], found["w-2"]["graphs"], found["w-2"]["right"]) == (True, ["urn:g"], ["uk/w-1"])
    assert store.update("INSERT DATA { GRAPH <urn:g> { <urn:s> <urn:p> 3 } }").ok
    assert await pair.counted() == {}, "counts are equal again"
    found = await pair.summed()
    assert (found["w-2"]["kind"], found["w-2"]["wrong"], found["w-2"]["graphs"]) == ("sums", True, ["urn:g"])


async def test_a_difference_that_nobody_saw_arise_is_undecided_between_two(pair: Pair) -> None:
    assert pair.stores["w-2"].update("INSERT DATA { <urn:s> <urn:p> 9 }").ok
    found = await pair.counted()
    assert {name: (one["wrong"], one["graphs"]) for name, one in found.items()} == {
        "w-1": (False, [""]),
        "w-2": (False, [""]),
    }
    for name in pair.stores:
        await pair.move(name, MORE, 2)
    later = await pair.counted()
    assert {name: (one["firstIndex"], one["index"]) for name, one in later.items()} == {"w-1": (1, 2), "w-2": (1, 2)}


async def test_workers_that_do_not_meet_and_one_that_is_gone_are_no_difference(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("txlog.pipeline.scanned_workers.ALIGN_TIMEOUT_S", 0.1)
    await pair.move("w-2", MORE, 2)
    assert await pair.counted() == {}
    pair.stores["w-1"].kill()
    assert await pair.counted() == {}
    assert await pair.summed() == {}
    pair.stores["w-1"].start()


async def test_counts_that_met_at_no_index_are_taken_once_more(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("txlog.pipeline.scanned_workers.ALIGN_TIMEOUT_S", 0.1)
    await pair.move("w-2", MORE, 2)
    assert pair.stores["w-2"].update("INSERT DATA { <urn:s> <urn:p> 9 }").ok
    ask, loop, times = DivergenceScanner._query_workers, asyncio.get_running_loop(), 0

    def then_meet(self: DivergenceScanner, places: Any, how: Any) -> Any:
        nonlocal times
        told, times = ask(self, places, how), times + 1
        if times == 1:
            asyncio.run_coroutine_threadsafe(pair.move("w-1", MORE, 2), loop).result(30)
        return told

    monkeypatch.setattr(DivergenceScanner, "_query_workers", then_meet)
    assert set(await pair.counted()) == {"w-1", "w-2"}
    assert times == 2
    await pair.counted()
    assert times == 3, "they had met"


async def test_stores_are_held_until_each_has_begun_to_be_read(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    holds: list[int] = []
    hold, read_marker = ScannedWorkers.pause, divergence_scanner._read_marker

    def put(self: ScannedWorkers, names: Any, index: int) -> None:
        holds.append(index)
        hold(self, names, index)

    def slowly(place: Any) -> Any:
        until = time.monotonic() + 30
        while place.name == "w-2" and len(holds) < 4:
            assert time.monotonic() < until, "the hold is not put again"
            time.sleep(0.002)
        return read_marker(place)

    monkeypatch.setattr("txlog.pipeline.scanned_workers.PAUSE_RENEW_S", 0.01)
    monkeypatch.setattr("txlog.pipeline.scanned_workers.READ_START_TIMEOUT_S", 60.0)
    monkeypatch.setattr(ScannedWorkers, "pause", put)
    monkeypatch.setattr(divergence_scanner, "_read_marker", slowly)
    assert await pair.summed() == {}
    assert set(holds) == {1}


async def test_a_store_that_stands_still_holds_no_other_one(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, seconds in (("PAUSE_RENEW_S", 0.05), ("READ_START_TIMEOUT_S", 0.1)):
        monkeypatch.setattr(f"txlog.pipeline.scanned_workers.{name}", seconds)
    held: list[bool] = []
    hold = ScannedWorkers.pause

    def put(self: ScannedWorkers, names: Any, index: int) -> None:
        held.append(True)
        hold(self, names, index)

    monkeypatch.setattr(ScannedWorkers, "pause", put)
    store = pair.stores["w-2"]
    store.process.send_signal(signal.SIGSTOP)
    try:
        summing = asyncio.create_task(asyncio.to_thread(pair.comparing.compare_sums, threading.Event()))
        await until(lambda: bool(held))

        async def released() -> bool:
            workers = (await pair.cluster.get(0, "/txlog/workers"))["workers"]
            return all(worker["hold"] is None for worker in workers)

        deadline = time.monotonic() + 30
        while not await released():
            assert time.monotonic() < deadline, "still held"
        assert not summing.done(), "it still waits for the other one"
    finally:
        store.process.send_signal(signal.SIGCONT)
    await summing
    assert await pair.found() == {}


def paused(cycle: DutyCycle, busy: float) -> float:
    cycle.record(busy)
    return cycle.pause_s(0.1, at_rest=False)


def test_looks_keep_to_their_share_by_what_they_cost_when_nothing_else_runs() -> None:
    cycle = DutyCycle(5.0)
    assert paused(cycle, 2.0) == 5.0, "one alone says nothing"
    assert paused(cycle, 1.0) == 9.0
    assert paused(cycle, 3.0) == 9.0
    assert paused(cycle, 0.1) == 5.0
    for _ in range(DUTY_CYCLE_SAMPLES - 1):
        assert paused(cycle, 2.0) == 5.0
    assert paused(cycle, 2.0) == 18.0, "it has grown"


def test_a_store_at_rest_pays_for_its_first_sample() -> None:
    cycle = DutyCycle(5.0)
    cycle.record(2.0)
    assert cycle.pause_s(0.01, at_rest=True) == pytest.approx(198.0)


class Paced:
    """A pace with a clock that the test moves."""

    def __init__(self) -> None:
        self.now = 100.0
        workers = [{"name": "w-1", "url": "http://w"}]
        told = {"data_center": "uk", "masters": ["http://m"], "workers": workers, "scratch_folder": "/s"}
        config = PipelineConfig.model_validate(told)
        self.pace = ScanPace(config, lambda: self.now)

    def see(self, index: int, repairs: int = 0) -> bool:
        self.pace.observe([WorkerState("w-1", index, repairs)], has_cells=True)
        return self.pace.at_rest


def test_a_store_rests_a_minute_after_its_last_write_once_that_was_compared() -> None:
    paced = Paced()
    assert not paced.see(7)
    paced.now += REST_S
    assert not paced.see(7), "the write is not compared"
    paced.pace.on_all_compared(99.0)
    assert not paced.see(7), "that was compared before the write"
    paced.pace.on_all_compared(101.0)
    assert paced.see(7)
    kinds = [paced.pace.share(kind) for kind in ("counts", "cells")]
    assert sum(kinds) == pytest.approx(0.015)
    assert not paced.see(8), "a write"
    assert paced.pace.share("sums") == 0.1


def test_a_repair_ends_the_rest() -> None:
    paced = Paced()
    paced.see(7)
    paced.now += REST_S
    paced.pace.on_all_compared(paced.now)
    assert paced.see(7)
    assert not paced.see(7, repairs=1)


class Asked:
    """A lock that tells when somebody waits for it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.waited = threading.Event()

    def acquire(self, timeout: float) -> bool:
        if self._lock.acquire(blocking=False):
            return True
        self.waited.set()
        return self._lock.acquire(timeout=timeout)

    def release(self) -> None:
        self._lock.release()


async def test_two_that_compare_do_not_lift_each_others_holds(pair: Pair, tmp_path: Path) -> None:
    lock: Any = Asked()
    pair.comparing._workers._align_lock = lock
    with comparing_of(pair.cluster, pair.stores, tmp_path) as other:
        other._workers._align_lock = lock
        meets = pair.comparing._workers.paused_at_same_index(["w-1", "w-2"])
        await asyncio.to_thread(meets.__enter__)
        counting = asyncio.create_task(asyncio.to_thread(other.compare_counts))
        assert await asyncio.to_thread(lock.waited.wait, 10)
        workers = (await pair.cluster.get(0, "/txlog/workers"))["workers"]
        assert all(worker["hold"] is not None for worker in workers)
        await asyncio.to_thread(meets.__exit__, None, None, None)
        await counting
    assert await pair.found() == {}


async def test_a_large_store_is_not_counted_whole(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(divergence_scanner, "COUNT_QUADS_MAX", 2)
    assert pair.stores["w-2"].update("DELETE DATA { GRAPH <urn:g> { <urn:s> <urn:p> 2 } }").ok
    asked: list[str] = []
    counts = type(ADAPTER).counts
    monkeypatch.setattr(type(ADAPTER), "counts", lambda self: asked.append("counts") or counts(self))
    await pair.counted()
    assert asked == ["counts"], "w-1 has three quads, w-2 has two"
    await pair.counted()
    assert asked == ["counts"] * 2
    monkeypatch.setattr(divergence_scanner, "SIZE_S", 0.0)
    assert pair.stores["w-1"].update("DELETE DATA { GRAPH <urn:g> { <urn:s> <urn:p> 2 } }").ok
    await pair.counted()
    assert asked == ["counts"] * 4, "it has become small"
