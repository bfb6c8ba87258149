"""What manifests want: a data centre's list creates a repository, and keeps it from its removal."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest
from master_cluster import Cluster
from test_log_links import FURTHER
from test_several_repositories import LIST, all_open, delete, put, start_all


@pytest.fixture
async def pair(clusters: Callable[..., Cluster]) -> AsyncIterator[Cluster]:
    cluster = clusters(2, **FURTHER)
    await start_all(cluster)
    yield cluster
    assert cluster.ended == []


async def wanted_by(cluster: Cluster, at: int, name: str) -> list[str]:
    found: list[str] = (await cluster.get(at, f"{LIST}/{name}"))["wantedBy"]
    return found


async def test_a_manifest_creates_a_repository_and_keeps_it(pair: Cluster) -> None:
    told = await put(pair, 0, "stock", {"wantedBy": "uk"})
    assert (told["name"], told["wantedBy"]) == ("stock", ["uk"])
    await all_open(pair)
    assert (await put(pair, 1, "stock", {"wantedBy": "uk"}, 200))["wantedBy"] == ["uk"], "once more changes nothing"
    assert "NamedByManifest" in await delete(pair, 1, f"{LIST}/stock", 409)
    assert await wanted_by(pair, 1, "stock") == ["uk"]
    assert (await put(pair, 1, "stock", {"unwantedBy": "uk"}, 200))["wantedBy"] == []
    assert await wanted_by(pair, 1, "stock") == [], "it stays until it is removed by name"
    await delete(pair, 0, f"{LIST}/stock")


async def test_a_repository_of_a_request_is_wanted_by_a_manifest_later(pair: Cluster) -> None:
    assert (await put(pair, 0, "stock"))["wantedBy"] == ["request"]
    assert (await put(pair, 0, "stock", {"wantedBy": "uk"}, 200))["wantedBy"] == ["request", "uk"]
    assert (await put(pair, 0, "stock", None, 409))["reason"] == "RepositoryExists"


async def test_two_supervisors_that_ask_at_once_get_one_repository(pair: Cluster) -> None:
    async def ask(at: int) -> int:
        body = '{"wantedBy": "uk"}'
        async with pair.session.put(pair.url(at, f"{LIST}/stock"), data=body) as answer:
            await answer.read()
            return answer.status

    statuses = sorted(await asyncio.gather(ask(0), ask(1)))
    assert statuses in ([200, 201], [201, 409])
    assert [one["name"] for one in (await pair.get(0, LIST))["repositories"]] == ["demo", "stock"]


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        ({"wantedBy": "fr"}, 400, "one of uk"),
        ({"wantedBy": ""}, 400, "one of uk"),
        ({"unwantedBy": "fr"}, 400, "one of uk"),
        ({"wantedBy": "uk", "unwantedBy": "uk"}, 400, "one of both"),
        ({"wantedBy": 7}, 400, "wantedBy"),
        ({"unwantedBy": "uk"}, 404, "stock"),
    ],
)
async def test_a_want_that_means_nothing_is_refused(
    pair: Cluster, body: dict[str, object], status: int, said: str
) -> None:
    assert said in (await put(pair, 0, "stock", body, status))["message"]
    assert [one["name"] for one in (await pair.get(0, LIST))["repositories"]] == ["demo"]


async def test_a_number_below_the_next_one_that_is_not_listed_is_removed(pair: Cluster) -> None:
    assert (await pair.get(0, LIST))["nextLog"] == 0, "no system log is read"
    await put(pair, 0, "stock", {"wantedBy": "uk"})
    await all_open(pair)
    assert [(await pair.get(at, LIST))["nextLog"] for at in (0, 1)] == [3, 3]
    await put(pair, 1, "stock", {"unwantedBy": "uk"}, 200)
    await delete(pair, 0, f"{LIST}/stock")
    found = await pair.get(0, LIST)
    assert ([one["name"] for one in found["repositories"]], found["nextLog"]) == (["demo"], 3)


async def test_a_worker_of_an_empty_log_works_before_it_has_a_position(clusters: Callable[..., Cluster]) -> None:
    workers = [{"name": "w-1", "url": "http://127.0.0.1:1"}]
    cluster = clusters(1, repositories={"workers": {"stock": workers}})
    await start_all(cluster)
    await put(cluster, 0, "stock", {"wantedBy": "uk"}, 202, wait="2")
    await all_open(cluster)

    async def report(error: str | None) -> dict[str, int]:
        path, body = f"{LIST}/stock/workers/w-1", {"state": "Working", "position": None, "error": error}
        async with cluster.session.post(cluster.url(0, path), json=body) as answer:
            assert answer.status == 200, await answer.text()
        found: dict[str, int] = (await cluster.get(0, f"{LIST}/stock"))["workers"]
        return found

    assert await report("no log from any master") == {"working": 0, "of": 1}
    assert await report(None) == {"working": 1, "of": 1}
    await put(cluster, 0, "stock", {"wantedBy": "uk"}, 200)
    quads = {"Content-Type": "application/n-quads", "TxLog-Durability": "synced"}
    url = cluster.url(0, "/repositories/stock/statements")
    async with cluster.session.post(url, data="<urn:a> <urn:b> <urn:c> .", headers=quads) as answer:
        assert answer.status == 204, await answer.text()
    assert await report(None) == {"working": 0, "of": 1}, "it may lack the transaction"
