"""``/txlog/watch?updates=quads``: the change sets that a process of the data centre makes, as masters give them."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import re
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from master_cluster import TOKEN, Cluster, until
from worker_driver import Driver, OxigraphProcess

from e2e.lib.ports import free_ports
from txlog.capture.__main__ import run_capture
from txlog.config.process_config import ChangeSetsConfig
from txlog.telemetry.event_log import EventLog
from txlog.wire.change_page import change_set_token

MODIFY = "DELETE { ?s <urn:p> ?o } INSERT { ?s <urn:q> ?o } WHERE { ?s <urn:p> ?o }"


class Capturing:
    """Masters with one store, and the process that makes change sets, in this process."""

    def __init__(self, folder: Path, cluster: Cluster, store: OxigraphProcess, driver: Driver, port: int) -> None:
        self.folder, self.cluster, self.store, self.driver, self.port = folder, cluster, store, driver, port
        self.log = io.StringIO()
        self._stop = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def config(self, **changes: Any) -> ChangeSetsConfig:
        masters = [self.cluster.url(at) for at in range(len(self.cluster.nodes))]
        (self.folder / "own-token").write_bytes(TOKEN + b"\n")
        fields = {"keep_ms": 3_600_000, **changes}
        return ChangeSetsConfig(
            data_center="uk",
            masters=masters,
            folder=self.folder / "changesets",
            port=self.port,
            peer_token_file=self.folder / "own-token",
            **fields,
        )

    def start(self, **changes: Any) -> None:
        self._stop = asyncio.Event()
        log = EventLog("uk-changesets", self.log, limit_s=0.0)
        self._task = asyncio.create_task(run_capture(self.config(**changes), log, self._stop))

    async def stop(self) -> None:
        if self._task is not None:
            self._stop.set()
            await self._task
            self._task = None

    async def status(self, at: int = 0) -> dict[str, Any]:
        [found] = (await self.cluster.get(at, "/txlog/status"))["changeSets"]
        return dict(found)

    async def captured(self, index: int, at: int = 0) -> None:
        async def is_there() -> bool:
            executed = (await self.status(at))["executed"]
            return executed is not None and executed["index"] >= index

        await until(is_there)

    async def watch(self, query: str, at: int = 0, status: int = 200, **headers: str) -> str:
        sent = {"Accept": "application/rdf-patch", **{name.replace("_", "-"): value for name, value in headers.items()}}
        url = self.cluster.url(at, f"/txlog/watch?updates=quads&{query}")
        async with self.cluster.session.get(url, headers=sent) as answer:
            text = await answer.text()
            assert answer.status == status, (answer.status, text)
            return text


@pytest.fixture
async def capturing(tmp_path: Path, clusters: Callable[..., Cluster]) -> AsyncIterator[Capturing]:
    store = OxigraphProcess(tmp_path / "store")
    [port] = free_ports(1)
    changes = {"url": f"http://127.0.0.1:{port}"}
    cluster = clusters(2, workers=[{"name": "w-1", "url": store.url}], change_sets=changes)
    await cluster.start()
    driver = Driver(cluster.url(0), "w-1", store)
    made = Capturing(tmp_path, cluster, store, driver, port)
    yield made
    await made.stop()
    await asyncio.to_thread(driver.close)
    with contextlib.suppress(ProcessLookupError):
        store.kill()


def rows(patch: str) -> list[str]:
    return [line for line in patch.splitlines() if line[:2] in ("A ", "D ")]


async def test_an_update_comes_as_the_quads_that_it_changed(capturing: Capturing) -> None:
    cluster = capturing.cluster
    assert (await capturing.status())["state"] == "Unknown"
    await cluster.write(0, 'INSERT DATA { <urn:a> <urn:p> "1" , "2" }')
    capturing.start()
    await cluster.write(1, MODIFY)
    await capturing.captured(2)
    text = await capturing.watch("from=0&until=now")
    assert rows(text) == [
        'A <urn:a> <urn:p> "1" .',
        'A <urn:a> <urn:p> "2" .',
        'D <urn:a> <urn:p> "1" .',
        'D <urn:a> <urn:p> "2" .',
        'A <urn:a> <urn:q> "1" .',
        'A <urn:a> <urn:q> "2" .',
    ]
    assert text.count("TC .") == 2
    [first, _] = re.findall("H id <urn:txlog:log:(.*)> .", text)
    assert rows(await capturing.watch(f"from={first}&until=now")) == rows(text)[2:]
    found = await capturing.status()
    assert (found["state"], found["entriesBehind"], found["delaySeconds"]) == ("Following", 0, 0.0)
    lines = [
        json.loads(line)
        for line in (await capturing.watch("from=0&until=2", Accept="application/x-ndjson")).splitlines()
    ]
    assert [(line["kind"], line["index"]) for line in lines[1:]] == [("quads", 1), ("quads", 2)]


async def test_masters_read_with_a_token(capturing: Capturing) -> None:
    capturing.start()
    await capturing.captured(0)
    url = f"http://127.0.0.1:{capturing.port}/changes"
    for headers, status in (
        ({}, 401),
        ({"Authorization": f"Bearer {TOKEN.decode()}"}, 401),
        ({"Authorization": f"Bearer {change_set_token(TOKEN)}"}, 200),
    ):
        async with capturing.cluster.session.get(url, headers=headers) as answer:
            assert answer.status == status, await answer.text()
