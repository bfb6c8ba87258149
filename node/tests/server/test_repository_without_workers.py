"""A repository whose workers are all gone, beside one whose workers are there: what is shown, and what is answered."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from master_cluster import Cluster, until
from people import raw
from test_log_links import write
from test_several_repositories import LIST, all_open, put, start_all
from typer.testing import CliRunner
from worker_driver import Driver, OxigraphProcess

from txlog.cli.main import app

APPLIED = {"TxLog-Durability": "applied"}
NEVER_APPLIED = {**APPLIED, "Prefer": "wait=4"}
SYNCED = {"TxLog-Durability": "synced"}


class Groups:
    """One master, with one store for each of two repositories."""

    def __init__(self, cluster: Cluster, stores: dict[str, OxigraphProcess]) -> None:
        self.cluster, self.stores = cluster, stores
        self._drivers = [
            Driver(cluster.url(0, "" if name == "demo" else f"{LIST}/{name}"), "w-1", store)
            for name, store in stores.items()
        ]

    async def listed(self) -> dict[str, Any]:
        found: dict[str, Any] = await self.cluster.get(0, LIST)
        return found

    async def operational(self) -> str:
        return str((await self.listed())["operational"])

    async def read(self, name: str, prefix: str = "") -> tuple[int, str]:
        url = self.cluster.url(0, f"{prefix}/repositories/{name}/size")
        async with self.cluster.session.get(url) as answer:
            await answer.read()
            return answer.status, answer.headers.get("TxLog-Error", "")

    async def query(self, name: str) -> tuple[int, bytes]:
        """On the fast path."""
        head = f"GET /repositories/{name}?query=ASK%20%7B%7D HTTP/1.1\r\nHost: x\r\nAccept: text/boolean\r\n\r\n"
        return await raw(self.cluster, head.encode())

    async def close(self) -> None:
        for driver in self._drivers:
            await asyncio.to_thread(driver.close)


@pytest.fixture
async def groups(clusters: Callable[..., Cluster], tmp_path: Path) -> AsyncIterator[Groups]:
    stores = {name: OxigraphProcess(tmp_path / f"store-{name}") for name in ("demo", "stock")}
    workers = {name: [{"name": "w-1", "url": store.url}] for name, store in stores.items()}
    cluster = clusters(1, workers=workers["demo"], repositories={"workers": {"stock": workers["stock"]}})
    await start_all(cluster)
    await put(cluster, 0, "stock", None, 202, wait="0.5")
    await put(cluster, 0, "bare")
    await all_open(cluster)
    made = Groups(cluster, stores)
    for name in stores:
        assert await write(cluster, 0, name, 1, **{"TxLog-Durability": "applied"}) == 204
    yield made
    await made.close()
    for store in stores.values():
        store.kill()


async def test_a_repository_without_workers_is_named_while_the_others_go_on(groups: Groups) -> None:
    cluster = groups.cluster

    async def is_full() -> bool:
        return await groups.operational() == "full"

    async def is_partial() -> bool:
        return await groups.operational() == "partial"

    await until(is_full)
    groups.stores["stock"].kill()
    await until(is_partial)
    listed = {one["name"]: one for one in (await groups.listed())["repositories"]}
    assert [listed[name]["workers"] for name in ("demo", "stock")] == [
        {"working": 1, "of": 1},
        {"working": 0, "of": 1},
    ]
    assert (listed["stock"]["state"], listed["stock"]["failed"]) == ("Joined", {}), "its log works"
    for prefix in ("", "/rdf4j-server"):
        assert await groups.read("stock", prefix) == (503, "NoWorker")
        assert (await groups.read("demo", prefix))[0] == 200
    assert (await groups.query("stock"))[0] == 503
    assert (await groups.query("demo"))[0] == 200
    assert await write(cluster, 0, "stock", 2, **NEVER_APPLIED) == 202, "in the log, and no store has it"
    assert await write(cluster, 0, "stock", 3, **SYNCED) == 204
    assert await write(cluster, 0, "demo", 2, **APPLIED) == 204
    assert (await cluster.get(0, "/repositories/stock/health", 206))["status"] == "yellow"
    assert (await cluster.get(0, "/repositories/demo/health"))["status"] == "green"
    await cluster.get(0, "/health/ready")
    assert (await cluster.get(0, f"{LIST}/stock/status"))["state"] == "Joined"
    shown = await asyncio.to_thread(CliRunner().invoke, app, ["repository", "list", "--master", cluster.url(0)])
    assert "no worker of stock works in this master's data centre" in " ".join(shown.output.split())

    groups.stores["stock"].start()
    await until(is_full)
    assert groups.stores["stock"].select("SELECT DISTINCT ?p { ?s ?p ?o }") == ["urn:uk-1"]
    assert (await groups.read("stock"))[0] == 200


async def test_no_group_has_a_worker(groups: Groups) -> None:
    for store in groups.stores.values():
        store.kill()

    async def is_none() -> bool:
        return await groups.operational() == "none"

    await until(is_none)
    for name in ("demo", "stock"):
        assert await groups.read(name) == (503, "NoWorker")
        assert await write(groups.cluster, 0, name, 5, **SYNCED) == 204


async def test_a_repository_that_has_no_workers_here_is_not_missed(groups: Groups) -> None:
    listed = await groups.listed()
    assert listed["operational"] == "full"
    [bare] = [one for one in listed["repositories"] if one["name"] == "bare"]
    assert bare["workers"] == {"working": 0, "of": 0}
    assert await groups.read("bare") == (503, "NoWorker")
    assert await write(groups.cluster, 0, "bare", 1, **SYNCED) == 204
    assert await write(groups.cluster, 0, "bare", 2, **NEVER_APPLIED) == 202
