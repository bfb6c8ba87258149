"""Masters come, are muted and go while clients write: real processes, and nothing that was acknowledged is lost."""

from __future__ import annotations

import asyncio
import json
import sys
from asyncio.subprocess import PIPE, STDOUT
from collections.abc import Callable
from typing import Any

from aiohttp import ClientError
from master_cluster import SYNCED, Cluster, until

from e2e.lib.ports import free_ports
from txlog.model.errors import Fatal


class Load:
    """One client for each master: it writes, and notes what it was told."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.acknowledged: dict[str, int] = {}
        self.refused: dict[int, list[str]] = {}
        self.count: dict[int, int] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._ending = False

    def begin(self, at: int) -> None:
        self._tasks.append(asyncio.create_task(self._write(at)))

    async def _write(self, at: int) -> None:
        number = 0
        while not self._ending:
            number += 1
            update = f'INSERT DATA {{ <urn:{at}> <urn:n> "{number}" }}'
            url = self.cluster.url(at, "/repositories/demo/statements")
            try:
                async with self.cluster.session.post(url, data=update, headers=SYNCED) as answer:
                    await answer.read()
                    if answer.status == 204:
                        self.acknowledged[answer.headers["TxLog-Transaction"]] = at
                        self.count[at] = self.count.get(at, 0) + 1
                    elif answer.status != 202:
                        self.refused.setdefault(at, []).append(f"{answer.status} {answer.headers.get('TxLog-Error')}")
            except (OSError, ClientError):
                if self.cluster.processes[at] is None:
                    return
            await asyncio.sleep(0.005)

    async def more(self, *which: int) -> None:
        """Each of these masters has acknowledged something new."""
        before = dict(self.count)
        await until(lambda: all(self.count.get(at, 0) > before.get(at, 0) + 3 for at in which))

    async def end(self) -> None:
        self._ending = True
        await asyncio.gather(*self._tasks)


async def ask(cluster: Cluster, how: str, at: int, path: str, body: Any = None, status: int = 200) -> dict[str, Any]:
    data = None if body is None else json.dumps(body).encode()
    async with cluster.session.request(how, cluster.url(at, path), data=data) as answer:
        told: dict[str, Any] = json.loads(await answer.read())
        assert answer.status == status, (answer.status, told)
        return told


async def txlog(cluster: Cluster, *words: str) -> str:
    """``txlog peer …``, as people give it; all masters are asked, the last first."""
    urls = [word for at in reversed(range(len(cluster.nodes))) for word in ("--master", cluster.url(at))]
    command = (sys.executable, "-m", "txlog.cli.main", "peer", *words, *urls)
    process = await asyncio.create_subprocess_exec(*command, stdout=PIPE, stderr=STDOUT)
    said, _ = await process.communicate()
    assert process.returncode == 0, said.decode()
    return said.decode()


async def is_joined(cluster: Cluster, at: int, *members: str) -> bool:
    try:
        status = await cluster.get(at, "/txlog/status")
    except (OSError, ClientError):
        return False
    return status["state"] == "Joined" and sorted(m["node"] for m in status["members"]) == sorted(members)


async def log_of(cluster: Cluster, at: int) -> list[tuple[str, str]]:
    """Txid and chain hash of every entry."""
    found: list[tuple[str, str]] = []
    while True:
        page = await cluster.get(at, f"/txlog/log?after={len(found)}", headers={"Accept": "application/json"})
        if not page["entries"]:
            return found
        found += [(one["txid"], one["hash"]) for one in page["entries"]]


def third(cluster: Cluster) -> None:
    """The manifest of one more names itself and those that are there; theirs say nothing of it."""
    cluster.ports += free_ports(1)
    cluster.nodes.append("uk-3")
    cluster.configs.append(cluster.config(2, {}))
    cluster.apps.append(None)
    cluster.processes.append(None)


async def test_a_cluster_of_two_gets_a_third_and_lets_one_go_under_load(clusters: Callable[..., Cluster]) -> None:
    cluster = clusters(2)
    cluster.spawn()
    await cluster.ready()
    load = Load(cluster)
    load.begin(0)
    load.begin(1)
    await load.more(0, 1)
    # one more
    third(cluster)
    cluster.spawn(2)
    told = await ask(cluster, "POST", 0, "/txlog/peers", {"node": "uk-3", "dataCenter": "uk", "urls": [cluster.url(2)]})
    assert [m["node"] for m in told["masters"]] == ["uk-1", "uk-2", "uk-3"]
    for at in range(3):
        await until(lambda at=at: is_joined(cluster, at, "uk-1", "uk-2", "uk-3"))
    load.begin(2)
    await load.more(0, 1, 2)
    again = await ask(cluster, "POST", 1, "/txlog/peers", {"node": "uk-3", "dataCenter": "uk"}, 409)
    assert again["error"] == "Conflict"
    # one takes no writes, and orders all the same
    said = await txlog(cluster, "mute", "uk-1")
    assert "uk-1 is muted" in said
    await until(lambda: "503 Muted" in load.refused.get(0, []))
    muted = load.count[0]
    await load.more(1, 2)
    assert load.count[0] == muted
    assert (await cluster.get(0, "/txlog/status"))["state"] == "Joined"
    await txlog(cluster, "unmute", "uk-1")
    await load.more(0)
    # one goes for good, with all that it was given
    assert "uk-2 is taken out" in await txlog(cluster, "remove", "uk-2")
    await until(lambda: cluster.process(1).poll() is not None)
    assert cluster.process(1).returncode == Fatal.EXIT_CODE
    said = (cluster.folder / "uk-2.log").read_text()
    assert '"event":"Removed"' in said
    cluster.processes[1] = None
    for at in (0, 2):
        await until(lambda at=at: is_joined(cluster, at, "uk-1", "uk-3"))
    await load.more(0, 2)
    await load.end()
    # and is refused by name when it comes back
    cluster.spawn(1)
    await until(lambda: cluster.process(1).poll() is not None)
    assert (cluster.folder / "uk-2.log").read_text().count('"event":"Removed"') == 2
    cluster.processes[1] = None
    configuration = await ask(cluster, "GET", 2, "/txlog/configuration")
    assert configuration["removed"] == ["uk-2"]
    assert configuration["pending"] is None
    # nothing acknowledged is lost, nothing is there twice, the journals are one
    status = await cluster.get(0, "/txlog/status")
    await until(lambda: _stands_at(cluster, 2, status["log"]))
    await until(lambda: _stands_at(cluster, 0, status["log"]))
    first, other = await log_of(cluster, 0), await log_of(cluster, 2)
    assert first == other
    names = [txid for txid, _ in first]
    assert len(set(names)) == len(names)
    assert set(load.acknowledged) <= set(names)
    assert set(load.acknowledged.values()) == {0, 1, 2}


async def _stands_at(cluster: Cluster, at: int, place: dict[str, Any]) -> bool:
    status = await cluster.get(at, "/txlog/status")
    return bool(status["stable"]["index"] >= place["index"] and status["log"]["hash"] == place["hash"])


async def test_a_stranger_is_refused_by_name(clusters: Callable[..., Cluster]) -> None:
    cluster = clusters(2)
    await cluster.start()
    third(cluster)
    cluster.spawn(2)

    async def is_refused() -> bool:
        peers = await cluster.get(0, "/txlog/peers")
        return {"node": "uk-3", "reason": "UnknownPeer"}.items() <= (peers["refused"] or [{}])[0].items()

    await until(is_refused)


async def test_two_changes_at_once_are_refused_by_name(clusters: Callable[..., Cluster]) -> None:
    cluster = clusters(3, max_peer_lag_ms=60_000, write_timeout_s=0.5)
    await cluster.start()
    await cluster.crash(2)
    await until(lambda: cluster.service(0).loop.executor.core.state == "Suspected")
    waiting = await ask(cluster, "PATCH", 0, "/txlog/peers/uk-2", {"weight": 2}, 202)
    assert waiting["pending"] == waiting["txid"]
    refused = await ask(cluster, "PATCH", 0, "/txlog/peers/uk-2", {"weight": 3}, 409)
    assert refused["error"] == "ChangePending"
    lost = await ask(cluster, "PATCH", 0, "/txlog/configuration", {"splitMode": "Sometimes"}, 400)
    assert "Majority" in lost["message"]
    missing = await ask(cluster, "DELETE", 0, "/txlog/peers/uk-9", None, 404)
    assert "uk-1, uk-2, uk-3" in missing["message"]
