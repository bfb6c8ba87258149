"""SPARQL editors in browsers: cross-origin requests, OPTIONS and HEAD."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from master_cluster import Cluster
from worker_driver import Driver, OxigraphProcess, Served

EDITOR = "https://editor.example"
REPOSITORY = "/repositories/demo"
QUERY = {"Content-Type": "application/sparql-query"}
UPDATE = {"Content-Type": "application/sparql-update"}
INSERT = "INSERT DATA { <urn:s> <urn:p> 1 }"


async def asked(
    cluster: Cluster, method: str, path: str, data: str | None = None, **headers: str
) -> tuple[int, dict[str, str], bytes]:
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    async with cluster.session.request(method, cluster.url(0, path), data=data, headers=sent) as answer:
        return answer.status, dict(answer.headers), await answer.read()


async def preflight(cluster: Cluster, path: str, origin: str = EDITOR, method: str = "POST") -> dict[str, str]:
    _, headers, body = await asked(
        cluster,
        "OPTIONS",
        path,
        Origin=origin,
        Access_Control_Request_Method=method,
        Access_Control_Request_Headers="content-type,authorization",
    )
    assert body == b"" or b"Traceback" not in body
    return {name: value for name, value in headers.items() if name.startswith("Access-Control")}


@pytest.fixture
async def open_to_editor(clusters: Callable[..., Cluster]) -> Cluster:
    cluster = clusters(1, cors_origins=[EDITOR, "http://127.0.0.1:8080"])
    await cluster.start()
    return cluster


async def test_by_default_no_page_of_another_origin_is_admitted(one: Cluster) -> None:
    assert await preflight(one, REPOSITORY) == {}
    status, headers, _ = await asked(one, "GET", "/protocol", Origin=EDITOR)
    assert status == 200
    assert not any(name.startswith("Access-Control") for name in headers)
    status, _, _ = await asked(one, "POST", f"{REPOSITORY}/statements", INSERT, Origin=EDITOR, **UPDATE)
    assert status == 403


@pytest.mark.parametrize(
    "path", [REPOSITORY, f"{REPOSITORY}/statements", f"/rdf4j-server{REPOSITORY}", "/protocol", "/repositories/other"]
)
async def test_a_browser_learns_that_it_may_ask(open_to_editor: Cluster, path: str) -> None:
    found = await preflight(open_to_editor, path)
    assert found["Access-Control-Allow-Origin"] == EDITOR
    assert "POST" in found["Access-Control-Allow-Methods"]
    assert {"content-type", "authorization"} <= set(found["Access-Control-Allow-Headers"].split(", "))
    assert "Access-Control-Allow-Credentials" not in found


@pytest.mark.parametrize(
    ("path", "origin"),
    [
        (REPOSITORY, "https://evil.example"),
        (REPOSITORY, "https://editor.example.evil.example"),
        (REPOSITORY, "http://editor.example"),
        (REPOSITORY, "null"),
        ("/txlog/transactions", EDITOR),
        ("/txlog/status", EDITOR),
        ("/jolokia", EDITOR),
        ("/metrics", EDITOR),
    ],
)
async def test_other_origins_and_administration_are_not_admitted(
    open_to_editor: Cluster, path: str, origin: str
) -> None:
    assert await preflight(open_to_editor, path, origin) == {}
    for method in ("GET", "POST"):
        status, headers, _ = await asked(open_to_editor, method, path, Origin=origin, Sec_Fetch_Site="cross-site")
        assert "Access-Control-Allow-Origin" not in headers
        assert method == "GET" or status == 403


async def test_a_page_may_send_every_header_of_a_write(open_to_editor: Cluster) -> None:
    allowed = (await preflight(open_to_editor, f"{REPOSITORY}/statements"))["Access-Control-Allow-Headers"].split(", ")
    assert {"idempotency-key", "prefer", "txlog-durability", "txlog-synchronous"} <= set(allowed)


async def test_a_page_writes_and_reads_the_answers(open_to_editor: Cluster) -> None:
    page = {"Origin": EDITOR, "Sec_Fetch_Site": "cross-site", "TxLog_Durability": "synced"}
    for path, kind, body, status in (
        (f"{REPOSITORY}/statements", UPDATE, INSERT, 204),
        (f"{REPOSITORY}/statements", UPDATE, "nonsense", 400),
        (f"{REPOSITORY}/nowhere", UPDATE, "", 404),
        (REPOSITORY, QUERY, "ASK {}", 503),
    ):
        found, headers, _ = await asked(open_to_editor, "POST", path, body, **page, **kind)
        assert (found, headers.get("Access-Control-Allow-Origin")) == (status, EDITOR), path
        exposed = headers["Access-Control-Expose-Headers"]
        assert {"TxLog-Position", "TxLog-Synchronous", "TxLog-Literals"} <= set(exposed.split(", "))
        assert "Origin" in headers["Vary"]
    assert open_to_editor.service(0).loop.durability.stable.value == 1


async def test_a_page_reads_results_and_streams(tmp_path: Any, clusters: Any) -> None:
    store = OxigraphProcess(tmp_path / "store")
    cluster = clusters(1, workers=[{"name": "w-1", "url": store.url}], durability="applied", cors_origins=[EDITOR])
    await cluster.start()
    driver = Driver(cluster.url(0), "w-1", store)
    try:
        served = Served(cluster, store, driver)
        text = "".join(f"<urn:s{n}> <urn:p> <urn:o> .\n" for n in range(100))
        await served.send("PUT", "/statements", text, Content_Type="application/n-quads")
        for path in (f"{REPOSITORY}/statements", f"{REPOSITORY}?query=SELECT*%7B?s+?p+?o%7D", f"{REPOSITORY}/size"):
            status, headers, body = await asked(
                cluster, "GET", path, Origin=EDITOR, Sec_Fetch_Site="cross-site", Accept_Encoding="gzip"
            )
            assert (status, headers["Access-Control-Allow-Origin"]) == (200, EDITOR)
            assert "Origin" in headers["Vary"]
            assert (headers.get("Content-Encoding") == "gzip") == (not path.endswith("size"))
            assert body
        status, headers, _ = await asked(cluster, "GET", f"{REPOSITORY}/statements")
        assert "Access-Control-Allow-Origin" not in headers
        assert "Origin" in headers["Vary"]
    finally:
        await asyncio.to_thread(driver.close)
        store.kill()


@pytest.mark.parametrize(
    ("path", "methods"),
    [
        (REPOSITORY, "DELETE, GET, HEAD, OPTIONS, POST, PUT"),
        (f"{REPOSITORY}/statements", "DELETE, GET, HEAD, OPTIONS, POST, PUT"),
        (f"{REPOSITORY}/size", "GET, HEAD, OPTIONS"),
        (f"/rdf4j-server{REPOSITORY}/namespaces/p", "DELETE, GET, HEAD, OPTIONS, PUT"),
        (f"{REPOSITORY}/transactions", "OPTIONS, POST"),
        ("/protocol", "GET, HEAD, OPTIONS"),
        ("/txlog/settings", "GET, HEAD, OPTIONS, PATCH"),
        ("/txlog/transactions", "OPTIONS, POST"),
        ("/health/live", "GET, HEAD, OPTIONS"),
    ],
)
async def test_options_and_405_name_the_methods_of_a_path(one: Cluster, path: str, methods: str) -> None:
    status, headers, body = await asked(one, "OPTIONS", path)
    assert (status, headers["Allow"], body) == (200, methods, b"")
    status, headers, body = await asked(one, "TRACE", path)
    assert (status, headers["Allow"]) == (405, methods)
    assert methods.encode() in body


async def test_options_of_nothing_is_404_and_of_the_server_is_everything(one: Cluster) -> None:
    status, _, _ = await asked(one, "OPTIONS", "/nowhere")
    assert status == 404
    reader, writer = await asyncio.open_connection("127.0.0.1", one.ports[0])
    writer.write(b"OPTIONS * HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    text = await reader.read()
    assert text.startswith(b"HTTP/1.1 200 ")
    assert b"Allow: DELETE, GET, HEAD, OPTIONS, PATCH, POST, PUT" in text
    writer.close()


async def test_health_names_reads_and_writes(served: Served) -> None:
    def parts(found: Any) -> dict[str, str]:
        return {one["name"]: one["status"] for one in found["components"]}

    await served.send("POST", "/statements", INSERT, Content_Type="application/sparql-update")
    found = await served.cluster.get(0, f"{REPOSITORY}/health")
    assert (found["name"], found["status"]) == ("demo", "green")
    assert parts(found) == {"read-availability": "green", "write-availability": "green"}
    await served.cluster.get(0, "/repositories/other/health", 404)


async def test_health_without_a_worker_is_yellow(one: Cluster) -> None:
    found = await one.get(0, f"{REPOSITORY}/health", 206)
    assert found["status"] == "yellow"


async def test_a_query_plan_is_refused_in_words(served: Served) -> None:
    text = await served.send("GET", "?query=ASK%7B%7D&explain=Executed", status=400)
    assert "its engine's plan is not available" in text
