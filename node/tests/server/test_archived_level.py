"""``TxLog-Durability: archived``: the answer waits until an archive has the transaction."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import aiohttp
import pytest
from apart import back_up, cut, states
from master_cluster import Cluster, until
from test_archive_reports import ARCHIVE, report, stable

UPDATE = {"Content-Type": "application/sparql-update"}
ARCHIVED = {"TxLog-Durability": "archived", "Prefer": "wait=30"}


async def send(cluster: Cluster, at: int, what: str, **headers: str) -> aiohttp.ClientResponse:
    url, update = cluster.url(at, "/repositories/demo/statements"), f"INSERT DATA {{ <urn:s:{what}> <urn:p> 1 }}"
    async with cluster.session.post(url, data=update, headers={**UPDATE, **headers}) as answer:
        await answer.read()
        return answer


def start(cluster: Cluster, at: int, what: str) -> asyncio.Task[aiohttp.ClientResponse]:
    return asyncio.create_task(send(cluster, at, what, **ARCHIVED))


async def wait_logged(cluster: Cluster, at: int, index: int) -> None:
    async def looked() -> bool:
        return bool((await stable(cluster, at))["index"] >= index)

    await until(looked)


async def test_it_waits_for_the_archive_of_any_data_centre(clusters: Callable[..., Cluster]) -> None:
    cluster = clusters(2, archive=ARCHIVE)
    await cluster.start()
    await cluster.write(0, "INSERT DATA { <urn:a> <urn:b> 0 }")
    before = await stable(cluster)
    waiting = [start(cluster, at, f"w{at}") for at in range(2)]
    await wait_logged(cluster, 0, before["index"] + 2)
    await report(cluster, 0, [before], [])
    short = await send(cluster, 0, "short", **{"TxLog-Durability": "archived", "Prefer": "wait=0.2"})
    assert (short.status, short.headers["TxLog-Durability"]) == (202, "synced")
    assert not any(one.done() for one in waiting)
    await report(cluster, 0, [await stable(cluster)], [])
    for one in waiting:  # that of the other master by a notice
        answer = await one
        assert (answer.status, answer.headers["TxLog-Durability"]) == (204, "archived")
        assert "TxLog-Position" in answer.headers
    path = f"/txlog/transactions/{short.headers['TxLog-Transaction']}"
    found = await cluster.get(1, f"{path}?durability=archived&wait=30")
    assert (found["state"], found["durability"]) == ("archived", "archived")
    assert (await cluster.get(1, path))["durability"] == "synced"


async def test_json_lines(clusters: Callable[..., Cluster]) -> None:
    cluster = clusters(1, archive=ARCHIVE)
    await cluster.start()
    line = json.dumps({"update": "INSERT DATA { <urn:a> <urn:b> 1 }"})

    async def post() -> Any:
        url, headers = cluster.url(0, "/txlog/transactions"), {"Content-Type": "application/x-ndjson", **ARCHIVED}
        async with cluster.session.post(url, data=f"{line}\n", headers=headers) as answer:
            return json.loads(await answer.text())

    waiting = asyncio.create_task(post())
    await wait_logged(cluster, 0, (await stable(cluster))["index"] + 1)
    assert not waiting.done()
    await report(cluster, 0, [await stable(cluster)], [])
    assert (await waiting)["durability"] == "archived"


async def test_what_workers_refuse_is_archived_all_the_same(clusters: Callable[..., Cluster]) -> None:
    """The level says where the entry is, and a person may still decide what becomes of it."""
    cluster = clusters(1, archive=ARCHIVE, workers=[{"name": "w-1", "url": "http://127.0.0.1:9"}])
    await cluster.start()
    waiting = start(cluster, 0, "a")
    await wait_logged(cluster, 0, 1)
    place = await stable(cluster)
    blocked = {
        "state": "Blocked",
        "txid": (await cluster.get(0, "/txlog/log", headers={"Accept": "application/json"}))["entries"][-1]["txid"],
        "status": 400,
    }
    await cluster.post(0, "/txlog/workers/w-1", json.dumps({"position": None, **blocked}), 200)
    await report(cluster, 0, [place], [])
    assert (await waiting).status == 204


async def test_a_place_that_is_ahead_counts_once_it_is_stable_here(clusters: Callable[..., Cluster]) -> None:
    cluster = clusters(2, archive=ARCHIVE)
    await cluster.start()
    await cluster.write(0, "INSERT DATA { <urn:a> <urn:b> 0 }")
    place = await stable(cluster)
    durability = cluster.service(1).loop.durability
    await report(cluster, 1, [place, {"index": place["index"] + 5, "hash": "11" * 16}], [])
    assert durability.archived.value <= place["index"]
    await until(lambda: durability.archived.value == place["index"])


async def test_the_branch_that_lost_is_not_archived(clusters: Callable[..., Cluster]) -> None:
    """The archive of a minority has its branch; after the rejoin its transactions are archived at their new place."""
    cluster = clusters(3, archive=ARCHIVE, max_peer_lag_ms=2000)
    await cluster.start()
    await cluster.write(0, "INSERT DATA { <urn:a> <urn:b> 0 }")
    heal = cut(cluster)

    async def apart() -> bool:
        done = [await back_up(cluster, at) for at in range(3)]
        return all(done) and states(cluster) == {"Isolated"}

    await until(apart)
    for n in range(2):
        await cluster.write(0, f"INSERT DATA {{ <urn:a> <urn:majority> {n} }}")
    waiting = start(cluster, 2, "minority")
    await wait_logged(cluster, 2, (await stable(cluster, 2))["index"] + 1)
    for n in range(5):  # so the archive is at a higher index than that of the transaction after the rejoin
        await cluster.write(2, f"INSERT DATA {{ <urn:a> <urn:minority> {n} }}")
    await report(cluster, 2, [await stable(cluster, 2)], [])
    answer = await waiting
    assert (answer.status, answer.headers["TxLog-Durability"]) == (204, "archived")
    heal()
    await until(lambda: states(cluster) == {"Joined"})
    path = f"/txlog/transactions/{answer.headers['TxLog-Transaction']}?durability=archived"

    async def comes_again() -> bool:
        return bool((await cluster.get(2, path))["position"])

    await until(comes_again)
    await report(cluster, 2, [], [])  # after which the master counts again what is archived
    assert (await cluster.get(2, path))["durability"] != "archived"
    await report(cluster, 2, [await stable(cluster, 2)], [])
    assert (await cluster.get(2, path))["durability"] == "archived"


@pytest.mark.parametrize(
    ("method", "path", "data", "headers"),
    [
        ("POST", "/repositories/demo/statements", "INSERT DATA { <urn:a> <urn:b> 1 }", {**UPDATE, **ARCHIVED}),
        (
            "POST",
            "/txlog/transactions",
            '{"update": "CLEAR ALL"}',
            {"Content-Type": "application/x-ndjson", **ARCHIVED},
        ),
        ("PUT", "/repositories/demo/namespaces/ex", "http://ex.org/", {"Content-Type": "text/plain", **ARCHIVED}),
        ("DELETE", "/repositories/demo/statements", "", ARCHIVED),
        ("GET", "/txlog/transactions/uk-1.00c0ffee00c0ffee.7?durability=archived&wait=1", "", {}),
    ],
)
async def test_without_an_archive_it_is_refused_and_nothing_is_logged(
    one: Cluster, method: str, path: str, data: str, headers: dict[str, str]
) -> None:
    before = await stable(one)
    async with one.session.request(method, one.url(0, path), data=data, headers=headers) as answer:
        assert answer.status == 400
        assert "this cluster has no archive" in await answer.text()
    assert await stable(one) == before
