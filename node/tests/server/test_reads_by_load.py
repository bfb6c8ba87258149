"""Which of several workers takes a read: the least busy of those that are hardly behind."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import ClientSession, TCPConnector, web
from master_cluster import Cluster, until
from worker_driver import Driver, OxigraphProcess

from e2e.lib.ports import free_ports
from txlog.apply.applier import apply_up_to
from txlog.apply.log_source import MasterLog
from txlog.client import MasterClient
from txlog.runtime.applied_history import READ_LAG_S
from txlog.server.frontdoor.monotonic_reads import TRACKED_CLIENTS_MAX, MonotonicReads
from txlog.workers import OxigraphAdapter

REPO = "/repositories/demo"
COUNT = "SELECT (COUNT(*) AS ?n) { ?s ?p ?o }"


class Gate:
    """A worker's address whose answers can be held back: what a slow store looks like."""

    def __init__(self, port: int, store: str) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.open = asyncio.Event()
        self.open.set()
        self.inside = 0
        self.fails = False
        self._port, self._store = port, store

    async def start(self) -> None:
        self._session = ClientSession(auto_decompress=False)
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._pass)
        self._runner = web.AppRunner(app)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self._port).start()

    async def _pass(self, request: web.Request) -> web.Response:
        if self.fails:
            return web.Response(status=503)
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

    def __init__(
        self, cluster: Cluster, gates: list[Gate], drivers: list[Driver], stores: list[OxigraphProcess]
    ) -> None:
        self.cluster, self.gates, self.drivers, self.stores = cluster, gates, drivers, stores

    async def read(self, session: ClientSession | None = None, **headers: str) -> tuple[str, int]:
        """Who answered, and how many triples there are."""
        sent = {"Accept": "text/csv", **{name.replace("_", "-"): value for name, value in headers.items()}}
        session = session or self.cluster.session
        async with session.get(self.cluster.url(0, REPO), params={"query": COUNT}, headers=sent) as answer:
            text = await answer.text()
            assert answer.status == 200, text
            return answer.headers["TxLog-Worker"], int(text.split()[1])

    async def executed_unsaid(self, at: int, told: dict[str, str]) -> None:
        """Let a store execute what was written, while nobody tells the master."""
        epoch, index, _ = told["TxLog-Position"].split(":")

        def execute() -> None:
            with MasterClient(self.cluster.url(0), 5) as master:
                store = self.stores[at].transport
                done = apply_up_to(OxigraphAdapter(), store, MasterLog(master), int(index), epoch=int(epoch))
            assert done.position is not None
            assert done.position.position.index == int(index)

        await until(lambda: self.cluster.service(0).context.loop.durability.stable.value >= int(index))
        await asyncio.to_thread(execute)

    @asynccontextmanager
    async def busy(self, name: str) -> AsyncIterator[None]:
        """Reads go to the other one."""
        reading = self.cluster.service(0).context.registry.reads.active_reads
        reading[name] += 100
        yield
        reading[name] -= 100

    async def both_at(self, index: int) -> None:
        workers = self.cluster.service(0).context.registry.workers.values()
        await until(lambda: all(worker.index >= index for worker in workers))

    def age(self) -> None:
        """Let the lag be over without waiting for it."""
        lately = self.cluster.service(0).context.registry.reads.applied_history
        clock = lately.clock
        lately.clock = lambda: clock() + READ_LAG_S


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
    two = Two(cluster, gates, drivers, stores)
    await cluster.write(0, insert(1), TxLog_Durability="applied-all", Prefer="wait=30")
    yield two
    for driver in drivers:
        await asyncio.to_thread(driver.close)
    for gate in gates:
        await gate.close()
    for store in stores:
        store.kill()


async def test_equals_take_turns(two: Two) -> None:
    two.age()
    asked = Counter([(await two.read())[0] for _ in range(10)])
    assert asked == {"w-1": 5, "w-2": 5}


async def test_a_slow_worker_gets_what_it_can_do(two: Two) -> None:
    for gate in two.gates:
        gate.open.clear()
    first = [asyncio.create_task(two.read()) for _ in range(2)]
    await until(lambda: [gate.inside for gate in two.gates] == [1, 1])
    two.gates[0].open.set()
    await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)  # until then both have one read under way
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
    two.cluster.service(0).context.registry.reads.applied_history.clock = lambda: 0.0  # no time goes by
    await asyncio.to_thread(two.drivers[1].pause)
    told = await two.cluster.write(0, insert(2))
    await until(
        lambda: (
            two.cluster.service(0).context.loop.durability.applied.value >= int(told["TxLog-Position"].split(":")[1])
        )
    )
    found = [await two.read() for _ in range(10)]
    assert found in ([("w-1", 2)] * 10, [("w-2", 1)] * 10), "while the log grows, a client stays at its worker"
    mine = [await two.read(TxLog_Min_Position=told["TxLog-Position"]) for _ in range(4)]
    assert mine == 4 * [("w-1", 2)]
    assert await two.read() == ("w-1", 2), "what was read once is not unread"


async def test_clients_of_one_address_wait_for_no_write_of_others(two: Two, monkeypatch: pytest.MonkeyPatch) -> None:
    """While entries come, no worker is known to be where the other one may be."""

    async def never(needed: Mapping[str, int], seconds: float) -> bool:
        raise AssertionError("a read waited")

    async with two.busy("w-2"):
        assert await two.read() == ("w-1", 1)
    for driver in two.drivers:
        await asyncio.to_thread(driver.pause)
    monkeypatch.setattr(two.cluster.service(0).context.registry.reads, "wait_any_at", never)
    for number in range(2, 6):
        await two.executed_unsaid(0, await two.cluster.write(0, insert(number)))
        async with two.busy("w-1"):
            reads = [await two.read() for _ in range(4)]
        assert reads == 4 * [("w-1", number)]


async def test_what_was_shown_before_its_worker_told_of_it_is_not_unread(two: Two) -> None:
    for driver in two.drivers:
        await asyncio.to_thread(driver.pause)
    await two.executed_unsaid(0, await two.cluster.write(0, insert(2)))
    async with two.busy("w-2"):
        assert await two.read() == ("w-1", 2)
    assert [await two.read() for _ in range(10)] == [("w-1", 2)] * 10
    async with ClientSession(connector=TCPConnector(local_addr=("127.0.0.2", 0))) as other, two.busy("w-1"):
        assert await two.read(other) == ("w-2", 1), "what others were shown is theirs"


async def test_another_worker_is_waited_for_when_the_first_is_gone(two: Two, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("txlog.server.frontdoor.read_router.MONOTONIC_WAIT_S", 60.0)
    for driver in two.drivers:
        await asyncio.to_thread(driver.pause)
    await two.executed_unsaid(0, await two.cluster.write(0, insert(2)))
    async with two.busy("w-2"):
        assert await two.read() == ("w-1", 2)
    registry = two.cluster.service(0).context.registry
    registry.workers["w-1"].url = "http://127.0.0.1:9"
    read = asyncio.create_task(two.read())
    await until(lambda: "w-2" in registry.reads.worker_watermarks)
    two.drivers[1].resume()
    assert await read == ("w-2", 2)


async def test_what_nobody_comes_to_is_waited_for_once(two: Two, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both have shown what neither has told, and their pipelines stand still."""
    for driver in two.drivers:
        await asyncio.to_thread(driver.pause)
    await two.executed_unsaid(0, await two.cluster.write(0, insert(2)))
    for gate in two.gates:
        gate.open.clear()
    first = [asyncio.create_task(two.read()) for _ in range(2)]
    await until(lambda: [gate.inside for gate in two.gates] == [1, 1])
    for gate in two.gates:
        gate.open.set()
    assert {await read for read in first} == {("w-1", 2), ("w-2", 1)}
    registry = two.cluster.service(0).context.registry
    wait, waits = registry.reads.wait_any_at, 0

    async def counted(needed: Mapping[str, int], seconds: float) -> bool:
        nonlocal waits
        waits += 1
        return await wait(needed, 0.01)

    monkeypatch.setattr(registry.reads, "wait_any_at", counted)
    found = [await two.read() for _ in range(5)]
    assert waits == 1
    assert len(set(found)) == 1, "who answered then goes on"


async def test_an_answer_that_shows_nothing_binds_nobody(two: Two) -> None:
    for driver in two.drivers:
        await asyncio.to_thread(driver.pause)
    await two.executed_unsaid(0, await two.cluster.write(0, insert(2)))
    two.gates[0].fails = True
    async with two.busy("w-2"):
        assert await two.read() == ("w-2", 1), "w-1 has answered 503"
    two.gates[0].fails = False
    assert [await two.read() for _ in range(3)] == [("w-2", 1)] * 3


async def test_one_that_stays_behind_takes_none(two: Two) -> None:
    await asyncio.to_thread(two.drivers[1].pause)
    told = await two.cluster.write(0, insert(2))
    index = int(told["TxLog-Position"].split(":")[1])
    await until(lambda: two.cluster.service(0).context.loop.durability.applied.value >= index)
    two.age()
    assert [await two.read() for _ in range(4)] == 4 * [("w-1", 2)]
    two.drivers[1].resume()
    await two.both_at(index)
    assert {await two.read() for _ in range(4)} == {("w-1", 2), ("w-2", 2)}


async def test_who_was_told_that_it_is_applied_reads_it(two: Two) -> None:
    two.cluster.service(0).context.registry.reads.applied_history.clock = lambda: 0.0
    await asyncio.to_thread(two.drivers[1].pause)
    await two.cluster.write(0, insert(2), TxLog_Durability="applied", Prefer="wait=30")
    assert [await two.read() for _ in range(6)] == 6 * [("w-1", 2)]


async def test_one_that_is_behind_answers_where_no_other_can(two: Two) -> None:
    await asyncio.to_thread(two.drivers[1].pause)
    await two.cluster.write(0, insert(2), TxLog_Durability="applied", Prefer="wait=30")
    two.age()
    two.cluster.service(0).context.registry.workers["w-1"].url = "http://127.0.0.1:9"
    assert await two.read() == ("w-2", 1)


def test_each_worker_needs_what_the_others_may_have_shown() -> None:
    shown = MonotonicReads()
    assert shown.min_index_for("a", "w-1", 10) == 0
    shown.record("a", "w-1", known=3, end=7)
    assert [shown.min_index_for("a", worker, 10) for worker in ("w-1", "w-2")] == [0, 7]
    assert shown.min_index_for("a", "w-2", 5) == 5, "a log that was cut off is not waited for"
    assert shown.min_index_for("b", "w-2", 10) == 0
    shown.record("a", "w-2", known=6, end=9)  # it was not waited for long enough: both count
    assert [shown.min_index_for("a", worker, 10) for worker in ("w-1", "w-2")] == [9, 7]
    shown.record("a", "w-1", known=9, end=10)  # has all that w-2 can have shown
    assert [shown.min_index_for("a", worker, 10) for worker in ("w-1", "w-2")] == [0, 10]


def test_the_addresses_that_are_remembered_are_the_latest() -> None:
    shown = MonotonicReads()
    for number in range(TRACKED_CLIENTS_MAX):
        shown.record(str(number), "w-1", 0, 7)
    shown.record("0", "w-1", 0, 8)
    shown.record("new", "w-1", 0, 7)
    assert [shown.min_index_for(client, "w-2", 10) for client in ("0", "1", "2", "new")] == [8, 0, 7, 7]
