"""One process with two logs: each has its core, its journal and its worker, and one door finds them by name. No
configuration leads here yet."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from master_cluster import TOKEN, Cluster, until
from worker_driver import Driver, OxigraphProcess

from txlog import server
from txlog.client import MasterClient
from txlog.config.process_config import NodeConfig
from txlog.server.log_service import LogService, LogStorage, open_journal
from txlog.server.peers.peer_links import PeerLinks
from txlog.telemetry.event_log import EventLog

NAMES = ("demo", "stock")
STOCK = 2
"""The number of the second repository's log."""
OF_THE_PROCESS = {"master_process.py", "coreless_server.py"}
"""They read the name of the first repository; everything else gets the name of its own log."""
QUADS = {"Content-Type": "application/n-quads"}
SPARQL_JSON = {"Accept": "application/sparql-results+json"}
JSON = {"Accept": "application/json"}


def add_stock(cluster: Cluster, **changes: Any) -> LogService:
    """A second log, with its own folder, in the process of the first master."""
    process = cluster.app(0)
    config = NodeConfig.model_validate(
        {**cluster.configs[0], "repository": "stock", "journal_folder": str(cluster.folder / "logs-2"), **changes}
    )
    links = PeerLinks(config, TOKEN, EventLog(config.node, cluster.logs[0]))
    log = process.add_log(STOCK, "stock", config, LogStorage(*open_journal(config)), links)
    log.start_tasks()
    log.settle_literals()
    return log


def client_of(name: str) -> Callable[[str], MasterClient]:
    """A client of the API of one log."""

    def connect(url: str) -> MasterClient:
        client = MasterClient(url, 5)
        request = client._connection.request

        def by_name(method: str, path: str, *more: Any, **named: Any) -> Any:
            return request(method, path.replace("/txlog/", f"/txlog/repositories/{name}/", 1), *more, **named)

        client._connection.request = by_name  # type: ignore[method-assign]
        return client

    return connect


@pytest.fixture
async def two(clusters: Callable[..., Cluster]) -> Cluster:
    """One master with two logs that have no workers."""
    cluster = clusters(1)
    await cluster.start()
    log = add_stock(cluster)
    await until(lambda: log.context.is_ready)
    return cluster


async def entries(cluster: Cluster, name: str) -> list[str]:
    page = await cluster.get(0, f"/txlog/repositories/{name}/log?after=0", headers=JSON)
    return [entry["payload"] for entry in page["entries"]]


async def send(cluster: Cluster, method: str, path: str, body: str = "", **headers: str) -> tuple[int, str, Any]:
    async with cluster.session.request(
        method, cluster.url(0, path), data=body.encode(), headers={**QUADS, **headers}
    ) as answer:
        return answer.status, await answer.text(), answer.headers


@pytest.fixture
async def stores(tmp_path: Path) -> AsyncIterator[dict[str, OxigraphProcess]]:
    made = {name: OxigraphProcess(tmp_path / f"store-{name}") for name in NAMES}
    yield made
    for store in made.values():
        store.kill()


async def test_each_log_is_written_and_read_by_its_name(
    clusters: Callable[..., Cluster], stores: dict[str, OxigraphProcess]
) -> None:
    workers = {name: [{"name": f"w-{name}", "url": store.url}] for name, store in stores.items()}
    cluster = clusters(1, workers=workers["demo"], durability="applied")
    await cluster.start()
    log = add_stock(cluster, workers=workers["stock"])
    await until(lambda: log.context.is_ready)
    drivers = [Driver(cluster.url(0), f"w-{name}", stores[name], client_of(name)) for name in NAMES]
    for number, prefix in enumerate(("", "/rdf4j-server", "")):
        for name in NAMES:
            body = f'<urn:{name}> <urn:p> "{number}" .'
            status, text, headers = await send(cluster, "POST", f"{prefix}/repositories/{name}/statements", body)
            assert (status, headers["TxLog-Durability"]) == (204, "applied-all"), text
    for name in NAMES:
        query = {"query": "SELECT ?s (COUNT(*) AS ?n) { ?s ?p ?o } GROUP BY ?s"}
        found = await cluster.get(0, f"/repositories/{name}", params=query, headers=SPARQL_JSON)
        assert [(row["s"]["value"], row["n"]["value"]) for row in found["results"]["bindings"]] == [
            (f"urn:{name}", "3")
        ]
        assert await cluster.get(0, f"/rdf4j-server/repositories/{name}/size") == "3"
        assert stores[name].select("SELECT ?o { ?s <urn:p> ?o } ORDER BY ?o") == ["0", "1", "2"]
        told = await cluster.get(0, f"/txlog/repositories/{name}/workers")
        assert [worker["name"] for worker in told["workers"]] == [f"w-{name}"]
    for driver in drivers:
        await asyncio.to_thread(driver.close)


async def test_the_journals_are_apart(two: Cluster) -> None:
    same = {"TxLog-Durability": "synced", "Idempotency-Key": "k-1"}
    for name in NAMES:
        status, _, headers = await send(
            two, "POST", f"/repositories/{name}/statements", f"<urn:{name}> <urn:p> <urn:o> .", **same
        )
        assert status == 204
        told = await two.get(0, f"/txlog/repositories/{name}/transactions/{headers['TxLog-Transaction']}")
        assert told["txid"] == headers["TxLog-Transaction"]
        others = NAMES[name == "demo"]
        assert (await send(two, "GET", f"/txlog/repositories/{others}/transactions/{told['txid']}"))[0] == 404
    births = {name: (await two.get(0, f"/txlog/repositories/{name}/status"))["birth"] for name in NAMES}
    assert births["demo"] != births["stock"]
    for name in NAMES:
        [payload] = await entries(two, name)
        assert f"urn:{name}" in payload
    await two.stop(0)
    left = [line for line in two.logged(0) if line in ("Left", "NotLeft")]
    assert left == ["Left", "Left"], "each log leaves its view"
    await two.start(0)
    page = await two.get(0, "/txlog/log?after=0", headers=JSON)
    assert ["urn:demo" in entry["payload"] for entry in page["entries"]] == [True]
    log = add_stock(two)
    await until(lambda: log.context.is_ready)
    assert ["urn:stock" in payload for payload in await entries(two, "stock")] == [True]


async def test_one_connection_writes_to_both_on_the_short_way(two: Cluster) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", two.ports[0])
    for number in range(6):
        name = NAMES[number % 2]
        body = f"<urn:{name}> <urn:p> <urn:{number}> .\n".encode()
        writer.write(
            f"POST /repositories/{name}/statements HTTP/1.1\r\nHost: x\r\nContent-Type: application/n-quads\r\n"
            f"TxLog-Durability: synced\r\nContent-Length: {len(body)}\r\n\r\n".encode()
            + body
        )
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        assert head.startswith("HTTP/1.1 204"), head
        birth = (await two.get(0, f"/txlog/repositories/{name}/status"))["birth"]
        assert f".{birth}." in head, "the log of that name gave the id"
    assert len(two.app(0)._fast_path.connections) == 1
    assert [log.loop.in_flight for log in two.app(0).logs.values()] == [0, 0]
    for name in NAMES:
        assert [f"<urn:{name}>" in payload for payload in await entries(two, name)] == [True] * 3
    writer.close()


async def test_answers_lead_to_the_log_that_they_are_about(two: Cluster) -> None:
    for name, path in (("demo", "/txlog"), ("stock", "/txlog/repositories/stock")):
        sent = {"TxLog-Durability": "applied", "Prefer": "wait=0.1"}
        status, text, headers = await send(
            two, "POST", f"/repositories/{name}/statements", "<urn:a> <urn:p> <urn:o> .", **sent
        )
        assert (status, headers["Location"].rpartition("/")[0]) == (202, f"{path}/transactions"), text
        assert headers["Location"] in text
        assert (await two.get(0, headers["Location"]))["txid"] == headers["TxLog-Transaction"]
    told = await two.get(0, "/txlog/status")
    assert told["repository"] == "demo", "without a name it is the first log"


async def test_the_process_knows_all_its_logs(two: Cluster) -> None:
    found = await two.get(0, "/repositories", headers=SPARQL_JSON)
    assert [row["id"]["value"] for row in found["results"]["bindings"]] == list(NAMES)
    metrics = await two.get(0, "/metrics")
    for name in NAMES:
        assert re.search(rf'^txlog_log_index{{repository="{name}"}} 0.0$', metrics, re.MULTILINE)
        assert f'txlog_state{{repository="{name}",state="Joined"}} 1.0' in metrics
        health = await two.get(0, f"/repositories/{name}/health", status=206)
        assert health["name"] == name
    assert len(re.findall(r"^txlog_uptime_seconds ", metrics, re.MULTILINE)) == 1
    families = re.findall(r"^# TYPE (\S+) ", metrics, re.MULTILINE)
    assert len(families) == len(set(families)), "a text of Prometheus has no family twice"
    two.app(0).first.context.is_closing = True
    assert (await two.get(0, "/health/ready"))["state"] == "Joined", "one log still takes requests"
    assert (await two.get(0, "/repositories/demo/health", status=503))["status"] == "red"


async def test_names_that_no_log_has(two: Cluster) -> None:
    for method, path in (
        ("GET", "/repositories/other/size"),
        ("POST", "/repositories/other/statements"),
        ("GET", "/txlog/repositories/other/status"),
        ("GET", "/repositories/demo%2Fstatements"),
    ):
        status, text, _ = await send(two, method, path)
        assert status == 404, (path, text)
        assert re.search("unknown repository .*; this cluster's is demo, stock", text), text
    for path in ("/txlog/repositories/stock", "/txlog/repositories/stock/nothing", "/repositories/stock/nothing"):
        status, text, _ = await send(two, "GET", path)
        assert (status, "there is nothing at " + path in text) == (404, True), text
    assert (await send(two, "GET", "/repositories/st%6Fck/contexts"))[0] == 503, "its name in another spelling"
    assert (await send(two, "PATCH", "/txlog/repositories/stock/status"))[0] == 405


async def test_a_process_with_one_log_has_no_paths_by_name(one: Cluster) -> None:
    status, text, _ = await send(one, "GET", "/txlog/repositories/demo/status")
    assert (status, "there is nothing at /txlog/repositories/demo/status" in text) == (404, True)
    assert "repository=" not in await one.get(0, "/metrics")


def test_only_the_process_reads_the_name_in_its_configuration() -> None:
    sources = {path.name: path.read_text() for path in Path(server.__file__).parent.rglob("*.py")}
    assert len(sources) > 80
    assert {name for name, text in sources.items() if "config.repository" in text} == OF_THE_PROCESS
