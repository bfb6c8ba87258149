"""Sites for tests of links: each a cluster of one real master, with a store, change sets and a link process."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pyoxigraph as ox
from master_cluster import Cluster
from test_change_sets import Capturing
from worker_driver import Driver, OxigraphProcess

from e2e.lib.ports import free_ports

PROGRAM = Path(__file__).parent / "link_process.py"
QUADS = {"Accept": "application/n-quads"}


class Site:
    """A cluster of one master with one store and its change sets."""

    def __init__(self, name: str, folder: Path, **more: Any) -> None:
        folder.mkdir()
        self.name, self.folder = name, folder
        self.store = OxigraphProcess(folder / "store")
        [port] = free_ports(1)
        graphs = {"updates_without_graph": "all"} if name == "lon" else {}
        config = {
            "workers": [{"name": "w-1", "url": self.store.url}],
            "change_sets": {"url": f"http://127.0.0.1:{port}"},
        }
        self.cluster = Cluster(folder, 1, **config, **graphs, **more)
        self._port = port
        self.link: subprocess.Popen[bytes] | None = None

    async def start(self) -> None:
        await self.cluster.start()
        self.driver = Driver(self.cluster.url(0), "w-1", self.store)
        self.capturing = Capturing(self.folder, self.cluster, self.driver, self._port)
        self.capturing.start()

    def link_config(self, other: Site, **changes: Any) -> dict[str, Any]:
        return {
            "data_center": "uk",
            "site": self.name,
            "repository": "demo",
            "masters": [self.cluster.url(0)],
            "other": {"name": other.name, "masters": [other.cluster.url(0)]},
            "folder": str(self.folder / "link"),
            "lag_ms": 0,
            **changes,
        }

    def start_link(self, other: Site, **changes: Any) -> None:
        config = self.link_config(other, **changes)
        path = self.folder / "link.json"
        path.write_text(json.dumps(config))
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
        with (self.folder / "link.log").open("ab") as log:
            command = [sys.executable, str(PROGRAM), "--config", str(path)]
            self.link = subprocess.Popen(command, stdout=log, stderr=log, env=environment)

    async def end_link(self, how: int) -> int | None:
        if self.link is None:
            return None
        self.link.send_signal(how)
        link, self.link = self.link, None
        return await asyncio.to_thread(link.wait, 30)

    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.folder / "link.log").read_text().splitlines() if line[:1] == "{"]

    async def write(self, text: str) -> None:
        await self.cluster.write(0, text)

    async def quads(self) -> set[str]:
        text = await self.cluster.get(0, "/repositories/demo/statements", headers=QUADS)
        return {str(quad) for quad in ox.parse(text.encode(), ox.RdfFormat.N_QUADS) if "urn:txlog:" not in str(quad)}

    async def stable(self) -> int:
        return int((await self.cluster.get(0, "/txlog/status"))["stable"]["index"])

    async def close(self) -> None:
        await self.end_link(signal.SIGKILL)
        await self.capturing.stop()
        await self.cluster.close()
        await asyncio.to_thread(self.driver.close)
        with contextlib.suppress(ProcessLookupError):
            self.store.kill()


@asynccontextmanager
async def two_sites(folder: Path) -> AsyncIterator[tuple[Site, Site]]:
    """``lon`` and ``nyc``, which run without links."""
    sites = Site("lon", folder / "lon"), Site("nyc", folder / "nyc")
    for each in sites:
        await each.start()
    yield sites
    for each in sites:
        await each.close()


async def equal(lon: Site, nyc: Site) -> set[str] | None:
    """What both hold; None while they differ, or one of them has not applied its log."""
    one, other = await lon.quads(), await nyc.quads()
    return (one or {""}) if one == other else None


async def holds(site: Site, quad: str) -> bool:
    return quad in await site.quads()


async def reported(site: Site, state: str, error: str = "") -> bool:
    links = (await site.cluster.get(0, "/txlog/sites"))["links"]
    return any(each["state"] == state and error in each["error"] for each in links)


async def report_link(site: Site, peer: Site, **changes: Any) -> None:
    """What a link process of ``site`` reports when it begins."""
    here, there = [(await each.cluster.get(0, "/txlog/status"))["clusterId"] for each in (site, peer)]
    report = {"site": site.name, "other": peer.name, "state": "Starting", "key": "property"}
    report |= {"cluster": here, "otherCluster": there, **changes}
    await site.cluster.post(0, "/txlog/sites", json.dumps(report), 200)
