"""Which of several workers takes a read: the least busy of those that are hardly behind."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from aiohttp import ClientSession, web
from master_cluster import Cluster, free_ports, until
from worker_driver import Driver, OxigraphProcess

from txlog.runtime.lately import LAG_S

REPO = "/repositories/demo"
COUNT = "SELECT (COUNT(*) AS ?n) { ?s ?p ?o }"


class Gate:
    """A worker's address whose answers can be held back: what a slow store looks like."""

    def __init__(self, port: int, store: str) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.open = asyncio.Event()
        self.open.set()
        self.inside = 0
        self._port, self._store = port, store

    async def start(self) -> None:
        self._session = ClientSession(auto_decompress=False)
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._pass)
        self._runner = web.AppRunner(app)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self._port).start()

    async def _pass(self, request: web.Request) -> web.Response:
        self.inside += 1
        try:
            await self.open.wait()
            body = await request.read()
            kept = {name: request.headers[name] for name in ("Accept", "Content-Type") if name in request.headers}
            async with self._session.request(
                request.method, self._store + request.raw_path, data=body, headers=kept
            ) as told:
                media = told.headers.get("Content-Type", "")
                return web.Response(status=told.status, body=await told.read(), headers={"Content-Type": media})
        finally:
            self.inside -= 1

    async def close(self) -> None:
        self.open.set()
        await self._runner.cleanup()
        await self._session.close()


class Two:
    """A master with two stores behind gates."""

    def __init__(self, cluster: Cluster, gates: list[Gate], drivers: list[Driver]) -> None:
        self.cluster, self.gates, self.drivers = cluster, gates, drivers

    async def read(self, **headers: str) -> tuple[str, int]:
        """Who answered, and how many triples there are."""
        sent = {"Accept": "text/csv", **{name.replace("_", "-"): value for name, value in headers.items()}}
        async with self.cluster.session.get(self.cluster.url(0, REPO), params={"query": COUNT}, headers=sent) as answer:
            text = await answer.text()
            assert answer.status == 200, text
            return answer.headers["TxLog-Worker"], int(text.split()[1])

    async def both_at(self, index: int) -> None:
        workers = self.cluster.app(0).site.registry.workers.values()
        await until(lambda: all(worker.index >= index for worker in workers))

    def age(self) -> None:
        """Let the lag be over without waiting for it."""
        lately = self.cluster.app(0).site.registry.lately
        clock = lately.clock
        lately.clock = lambda: clock() + LAG_S


def insert(what: int) -> str:
    return f"INSERT DATA {{ <urn:s> <urn:p> {what} }}"


@pytest.fixture
async def two(tmp_path: Path, clusters: Callable[..., Cluster]) -> AsyncIterator[Two]:
    stores = [OxigraphProcess(tmp_path / f"store-{at}") for at in (1, 2)]
    gates = [Gate(port, store.url) for port, store in zip(free_ports(2), stores, strict=True)]
    for gate in gates:
        await gate.start()
    workers = [{"name": f"w-{at}", "url": gate.url} for at, gate in enumerate(gates, 1)]
    cluster = clusters(1, workers=workers)
    await cluster.start()
    drivers = [Driver(cluster.url(0), f"w-{at}", store) for at, store in enumerate(stores, 1)]
    two = Two(cluster, gates, drivers)
    await cluster.write(0, insert(1), TxLog_Durability="applied-all", Prefer="wait=30")
    yield two
    for driver in drivers:
        await asyncio.to_thread(driver.close)
    for gate in gates:
        await gate.close()
    for store in stores:
        store.kill()


async def test_equals_take_turns(two: Two) -> None:
    asked = Counter([(await two.read())[0] for _ in range(10)])
    assert asked == {"w-1": 5, "w-2": 5}


async def test_a_slow_worker_gets_what_it_can_do(two: Two) -> None:
    two.gates[1].open.clear()
    first = [asyncio.create_task(two.read()) for _ in range(2)]
    await until(lambda: two.gates[1].inside == 1)
    asked = Counter([(await two.read())[0] for _ in range(20)])
    assert asked == {"w-1": 20}
    two.gates[1].open.set()
    assert sorted([(await task)[0] for task in first]) == ["w-1", "w-2"]


async def test_reads_under_way_are_spread_evenly(two: Two) -> None:
    for gate in two.gates:
        gate.open.clear()
    reads = [asyncio.create_task(two.read()) for _ in range(12)]
    await until(lambda: sum(gate.inside for gate in two.gates) == 12)
    assert [gate.inside for gate in two.gates] == [6, 6]
    for gate in two.gates:
        gate.open.set()
    await asyncio.gather(*reads)


async def test_one_that_is_hardly_behind_takes_its_share_until_more_was_shown(two: Two) -> None:
    two.cluster.app(0).site.registry.lately.clock = lambda: 0.0  # no time goes by
    await asyncio.to_thread(two.drivers[1].pause)
    told = await two.cluster.write(0, insert(2))
    await until(lambda: two.cluster.app(0).site.loop.applied.value >= int(told["TxLog-Position"].split(":")[1]))
    found = [await two.read() for _ in range(10)]
    assert found in ([("w-1", 2)] * 10, [("w-2", 1), *[("w-1", 2)] * 9]), "what was read once is not unread"
    mine = [await two.read(TxLog_Min_Position=told["TxLog-Position"]) for _ in range(4)]
    assert mine == 4 * [("w-1", 2)]


async def test_one_that_stays_behind_takes_none(two: Two) -> None:
    await asyncio.to_thread(two.drivers[1].pause)
    told = await two.cluster.write(0, insert(2))
    index = int(told["TxLog-Position"].split(":")[1])
    await until(lambda: two.cluster.app(0).site.loop.applied.value >= index)
    two.age()
    assert [await two.read() for _ in range(4)] == 4 * [("w-1", 2)]
    two.drivers[1].resume()
    await two.both_at(index)
    assert {await two.read() for _ in range(4)} == {("w-1", 2), ("w-2", 2)}


async def test_who_was_told_that_it_is_applied_reads_it(two: Two) -> None:
    two.cluster.app(0).site.registry.lately.clock = lambda: 0.0
    await asyncio.to_thread(two.drivers[1].pause)
    await two.cluster.write(0, insert(2), TxLog_Durability="applied", Prefer="wait=30")
    assert [await two.read() for _ in range(6)] == 6 * [("w-1", 2)]


async def test_one_that_is_behind_answers_where_no_other_can(two: Two) -> None:
    await asyncio.to_thread(two.drivers[1].pause)
    await two.cluster.write(0, insert(2), TxLog_Durability="applied", Prefer="wait=30")
    two.age()
    two.cluster.app(0).site.registry.workers["w-1"].url = "http://127.0.0.1:9"
    assert await two.read() == ("w-2", 1)
