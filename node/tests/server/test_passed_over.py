"""A transaction that ends or stalls every worker is named and skipped everywhere alike, without an operator.

Real stores, lanes as the pipeline has them, and masters. The transaction is logged past the bounds of the front door,
which refuse it.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "pipeline"))
from master_cluster import Cluster, until
from store_process import Store
from synchronous_cluster import RULES, decides

from txlog.client import MasterClient
from txlog.config.process_config import PipelineConfig
from txlog.local.stalled_stores import stalled_workers
from txlog.model.durability import Durability
from txlog.model.entry import KIND_UPDATE
from txlog.model.errors import TxLogError
from txlog.model.hashes import content_hash
from txlog.model.quorum import MAJORITY
from txlog.model.synchronous_entry import (
    KIND_SYNCHRONOUS_QUADS,
    KIND_SYNCHRONOUS_UPDATE,
    SynchronousKey,
    encode_synchronous_key,
)
from txlog.pipeline.worker_applier import WorkerApplier
from txlog.pipeline.worker_lanes import ApplyRequest, LaneSet
from txlog.protocol.events import Submission

BOUND_S = 60.0


def star(count: int, head: str) -> bytes:
    patterns = " ".join(f"?s <urn:p{n}> ?o{n} ." for n in range(count))
    return f"{head} {{ {patterns} ?s <urn:k> ?o }}".encode()


ENDS = star(10_000, "DELETE { ?s <urn:k> ?o } WHERE")
"""Oxigraph overflows its stack."""
STALLS = star(400, "DELETE { ?s <urn:k> ?o } WHERE")
"""Oxigraph plans for minutes."""


class Workers:
    """The stores and the pipeline of a data centre. A store that ends is started again, as supervisors do."""

    def __init__(self, folder: Path, names: list[str]) -> None:
        self.stores = {name: Store(folder / name) for name in names}
        self.ends = dict.fromkeys(names, 0)
        self._started_at = dict.fromkeys(names, 0.0)
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []

    def begin(self, folder: Path, urls: list[str], execution_s: float) -> None:
        config = PipelineConfig.model_validate(
            {
                "data_center": "uk",
                "masters": urls,
                "workers": [{"name": name, "url": store.url} for name, store in self.stores.items()],
                "scratch_folder": folder / "scratch",
                "budget_s": 0.5,
                "execution_s": execution_s,
            }
        )
        lanes = LaneSet(config, WorkerApplier)
        for run in (lambda: self._apply(lanes, urls[0]), lambda: self._supervise(urls[0])):
            self._threads.append(threading.Thread(target=run, daemon=True))
            self._threads[-1].start()

    def _apply(self, lanes: LaneSet, url: str) -> None:
        with MasterClient(url, 5) as master:
            while not self._stop.wait(0.2):
                try:
                    upto = master.doorbell(0, 0, 0.0).stable.index
                except TxLogError:
                    continue
                lanes.apply_workers([ApplyRequest(name, upto) for name in self.stores], 0.25)

    def _supervise(self, url: str) -> None:
        with MasterClient(url, 5) as master:
            while not self._stop.wait(0.2):
                for name, store in self.stores.items():
                    if store._process is not None and store._process.poll() is not None:
                        self.ends[name] += 1
                        store.start()
                        self._started_at[name] = time.time()
                try:
                    stalled = stalled_workers(master.workers())
                except TxLogError:
                    continue
                for worker in stalled:
                    # A report from before its start speaks of the process that has ended.
                    if float(worker.reported_at or 0.0) > self._started_at[worker.name]:
                        self.stores[worker.name]._process.kill()  # type: ignore[union-attr]

    def close(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(30)
        for store in self.stores.values():
            store.kill()


@pytest.fixture
async def site(tmp_path: Path, clusters: Callable[..., Cluster]) -> AsyncIterator[tuple[Cluster, Workers]]:
    """Two masters, two stores."""
    workers = Workers(tmp_path, ["w-1", "w-2"])
    listed = [{"name": name, "url": store.url} for name, store in workers.stores.items()]
    cluster = clusters(2, workers=listed, durability="applied-all")
    await cluster.start()
    yield cluster, workers
    await asyncio.to_thread(workers.close)


async def log_past_the_door(cluster: Cluster, payload: bytes) -> str:
    write = cluster.service(0).loop.write(
        [Submission(KIND_UPDATE, "", payload, content_hash(KIND_UPDATE, "", payload))], Durability.SYNCED
    )
    await asyncio.wait_for(write.reached, 20)
    return str(write.answers[0].txid)  # type: ignore[union-attr]


async def assert_skipped(cluster: Cluster, workers: Workers, txid: str, began: float, fault: str) -> None:
    """It is skipped, later transactions are applied within the bound, and the stores are equal."""
    await cluster.write(1, 'INSERT DATA { <urn:after> <urn:k> "it" }', TxLog_Durability="synced")

    def all_have_it() -> bool:
        return all(store.select("SELECT ?o { <urn:after> <urn:k> ?o }") == ["it"] for store in workers.stores.values())

    async def applied() -> bool:
        try:
            return await asyncio.to_thread(all_have_it)
        except OSError:
            return False

    await until(applied, BOUND_S + 30)
    took_s = time.monotonic() - began
    print(f"held the log for {took_s:.1f} s; ends {workers.ends}")
    assert took_s <= BOUND_S
    for at in range(2):
        told: dict[str, Any] = await cluster.get(at, f"/txlog/transactions/{txid}")
        assert told["state"] == "skipped"
        if not at:  # the master that decided it
            faults = {name: answer["fault"] for name, answer in told["workers"].items()}
            assert faults == {"uk/w-1": fault, "uk/w-2": fault}
    assert '"Skipped"' in cluster.logs[0].getvalue()
    assert "not survived by every reachable worker" in str(await log_of(cluster))
    for store in workers.stores.values():
        assert store.select("SELECT ?o { <urn:before> <urn:k> ?o }") == ["it"]
        graphs = store.select("SELECT ?g { GRAPH ?g {} }")
        assert len([graph for graph in graphs if graph.startswith("urn:txlog:system")]) == 1, graphs


async def log_of(cluster: Cluster) -> list[dict[str, Any]]:
    page = await cluster.get(0, "/txlog/log?after=0", headers={"Accept": "application/json"})
    return list(page["entries"])


@pytest.mark.parametrize("beside", [0, 20])
async def test_one_that_ends_every_worker(site: tuple[Cluster, Workers], tmp_path: Path, beside: int) -> None:
    """Alone, and among others that are executed all the same."""
    cluster, workers = site
    await cluster.write(0, 'INSERT DATA { <urn:before> <urn:k> "it" }', TxLog_Durability="synced")
    for n in range(beside):
        await cluster.write(0, f"INSERT DATA {{ <urn:n> <urn:n> {n} }}", TxLog_Durability="synced")
    txid = await log_past_the_door(cluster, ENDS)
    for n in range(beside, 2 * beside):
        await cluster.write(0, f"INSERT DATA {{ <urn:n> <urn:n> {n} }}", TxLog_Durability="synced")
    began = time.monotonic()
    workers.begin(tmp_path, [cluster.url(at) for at in range(2)], execution_s=20.0)
    await assert_skipped(cluster, workers, txid, began, "ended")
    assert all(3 <= ends <= 4 for ends in workers.ends.values())
    for store in workers.stores.values():
        assert len(store.select("SELECT ?n { <urn:n> <urn:n> ?n }")) == 2 * beside


async def test_one_that_stalls_every_worker(site: tuple[Cluster, Workers], tmp_path: Path) -> None:
    cluster, workers = site
    await cluster.write(0, 'INSERT DATA { <urn:before> <urn:k> "it" }', TxLog_Durability="synced")
    txid = await log_past_the_door(cluster, STALLS)
    began = time.monotonic()
    workers.begin(tmp_path, [cluster.url(at) for at in range(2)], execution_s=4.0)
    await assert_skipped(cluster, workers, txid, began, "stalled")


@pytest.fixture
async def synchronous_site(tmp_path: Path, clusters: Callable[..., Cluster]) -> AsyncIterator[tuple[Cluster, Workers]]:
    """As ``site``, of masters that serve synchronous transactions."""
    workers = Workers(tmp_path, ["w-1", "w-2"])
    listed = [{"name": name, "url": store.url} for name, store in workers.stores.items()]
    cluster = clusters(2, workers=listed, durability="applied-all", graphs=RULES)
    await cluster.start()
    await until(lambda: all(decides(cluster, at) for at in range(2)))
    yield cluster, workers
    await asyncio.to_thread(workers.close)


@pytest.mark.parametrize(("harmful", "fault", "execution_s"), [(ENDS, "ended", 20.0), (STALLS, "stalled", 4.0)])
async def test_of_one_commit_the_others_take_effect(
    synchronous_site: tuple[Cluster, Workers], tmp_path: Path, harmful: bytes, fault: str, execution_s: float
) -> None:
    """Three transactions of one COMMIT, of which the second one ends or stalls every worker."""
    cluster, workers = synchronous_site
    await cluster.write(0, 'INSERT DATA { <urn:before> <urn:k> "it" }', TxLog_Durability="synced")
    key = encode_synchronous_key(SynchronousKey(MAJORITY, 30_000))
    parts = [
        (KIND_SYNCHRONOUS_QUADS, b"A <urn:n> <urn:n> <urn:1> .\n"),
        (KIND_SYNCHRONOUS_UPDATE, harmful),
        (KIND_SYNCHRONOUS_QUADS, b"A <urn:n> <urn:n> <urn:2> .\n"),
    ]
    write = cluster.service(0).loop.write(
        [Submission(kind, key, payload, content_hash(kind, key, payload)) for kind, payload in parts], Durability.SYNCED
    )
    await asyncio.wait_for(write.reached, 20)
    txid = str(write.answers[1].txid)  # type: ignore[union-attr]
    (commit,) = [each for each in await log_of(cluster) if len(each.get("effects", ())) > 1]
    assert len(commit["effects"]) == 3
    began = time.monotonic()
    workers.begin(tmp_path, [cluster.url(at) for at in range(2)], execution_s=execution_s)
    await assert_skipped(cluster, workers, txid, began, fault)
    assert all(1 <= ends <= 5 for ends in workers.ends.values())
    for store in workers.stores.values():
        assert sorted(store.select("SELECT ?n { <urn:n> <urn:n> ?n }")) == ["urn:1", "urn:2"]
