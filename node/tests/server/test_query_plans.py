"""``explain`` at a worker whose engine tells plans, and at an older one that ignores the parameter."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import quote

from aiohttp import web
from master_cluster import Cluster
from worker_driver import Driver, OxigraphProcess

QUERY = "/repositories/demo?query=" + quote("SELECT ?s { ?s ?p ?o }")
TEXT = "Projection (resultSizeActual=0)\n   StatementPattern\n"
PLAN = '{"type":"Projection","plans":[]}'
RESULTS = '{"head":{"vars":["s"]},"results":{"bindings":[]}}'
LEVELS = ["Unoptimized", "Optimized", "Executed", "Timed"]
Handler = Callable[[web.Request], Awaitable[web.Response]]


@asynccontextmanager
async def _master_of(tmp_path: Path, clusters: Callable[..., Cluster], handle: Handler) -> AsyncIterator[Cluster]:
    """A master whose only worker is called RDF4J's; another store applies the log for it."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handle)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    url = f"{site._server.sockets[0].getsockname()[0]}:{site._server.sockets[0].getsockname()[1]}"  # type: ignore[union-attr]
    cluster = clusters(1, workers=[{"name": "w-1", "url": f"http://{url}", "engine": "rdf4j"}], durability="applied")
    await cluster.start()
    store = OxigraphProcess(tmp_path / "store")
    driver = Driver(cluster.url(0), "w-1", store)
    try:
        await cluster.write(0, "INSERT DATA { <urn:s> <urn:p> <urn:o> }", TxLog_Durability="applied")
        yield cluster
    finally:
        await asyncio.to_thread(driver.close)
        store.kill()
        await runner.cleanup()


async def _get(cluster: Cluster, path: str, **headers: str) -> tuple[int, str, str]:
    async with cluster.session.get(cluster.url(0, path), headers=headers) as answer:
        return answer.status, answer.content_type, await answer.text()


async def test_a_plan_is_that_of_a_worker_whose_engine_tells_it(
    tmp_path: Path, clusters: Callable[..., Cluster]
) -> None:
    asked = []

    async def newer(request: web.Request) -> web.Response:
        asked.append((request.query.get("explain"), await request.text()))
        is_json = request.headers["Accept"] == "application/json"
        return web.Response(
            text=PLAN if is_json else TEXT, content_type="application/json" if is_json else "text/plain"
        )

    async with _master_of(tmp_path, clusters, newer) as cluster:
        asked.clear()
        for level in LEVELS:
            found = await _get(cluster, f"{QUERY}&explain={level}", Accept="application/json")
            assert found == (200, "application/json", PLAN)
            assert await _get(cluster, f"{QUERY}&explain={level}") == (200, "text/plain", TEXT)
        assert [level for level, _ in asked] == [level for level in LEVELS for _ in range(2)]
        assert all("?s ?p ?o" in text for _, text in asked)
        assert (await _get(cluster, f"{QUERY}&explain=Timed&Accept=application/json"))[2] == PLAN
        status, _, text = await _get(cluster, f"{QUERY}&explain=timed")
        assert (status, "Invalid explanation level: timed" in text) == (400, True)


async def test_what_an_older_server_answers_is_no_plan(tmp_path: Path, clusters: Callable[..., Cluster]) -> None:
    given = {"body": "", "type": ""}

    async def older(request: web.Request) -> web.Response:
        return web.Response(text=given["body"], content_type=given["type"])

    async with _master_of(tmp_path, clusters, older) as cluster:
        for accept in ("application/json", "text/plain"):
            for body in (RESULTS, "true", "<urn:s> <urn:p> <urn:o> .\n", "", "Type " + "x" * (5 << 20)):
                given.update(body=body, type=accept)
                status, _, text = await _get(cluster, f"{QUERY}&explain=Executed", Accept=accept)
                assert (status, "from version 5.2 on" in text) == (400, True), (accept, body[:20], text)
