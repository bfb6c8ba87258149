"""A worker that a running master is told of, and one that is taken from it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from master_cluster import Cluster, until

NEW = {"name": "uk-worker-2", "url": "http://127.0.0.1:9", "engine": "oxigraph"}
REPORT = {"position": None, "state": "Working"}


def listed(told: object) -> list[str]:
    assert isinstance(told, dict)
    return [worker["name"] for worker in told["workers"]]


async def test_a_new_worker_is_listed_and_one_that_is_taken_out_is_nobody(one: Cluster) -> None:
    before = listed(await one.get(0, "/txlog/workers"))
    bell = await one.get(0, "/txlog/doorbell?after=0&tick=0&timeout=0")
    waiting = asyncio.ensure_future(one.get(0, f"/txlog/doorbell?after=0&tick={bell['tick']}&timeout=60"))
    for _ in range(2):
        await one.post(0, "/txlog/workers", None, 200, json=NEW)
    assert listed(await one.get(0, "/txlog/workers")) == [*before, "uk-worker-2"]
    assert "uk-worker-2" in listed(await asyncio.wait_for(waiting, 50))
    await one.post(0, "/txlog/workers/uk-worker-2", None, 200, json=REPORT)
    await one.post(0, "/txlog/workers", None, 409, json={**NEW, "url": "http://127.0.0.1:10"})
    await one.post(0, "/txlog/workers", None, 400, json={**NEW, "engine": "none"})

    registry = one.service(0).context.registry
    registry.reads.active_reads["uk-worker-2"] += 1
    path = one.url(0, "/txlog/workers/uk-worker-2?timeout=")
    async with one.session.delete(path + "0.1") as answer:
        assert (answer.status, await answer.json()) == (200, {"reading": 1})
    assert listed(await one.get(0, "/txlog/workers")) == before
    await one.post(0, "/txlog/workers/uk-worker-2", None, 404, json=REPORT)
    drained = asyncio.ensure_future(one.session.delete(path + "20"))
    await until(lambda: not drained.done())
    registry.reads.active_reads["uk-worker-2"] -= 1
    async with await drained as answer:
        assert await answer.json() == {"reading": 0}


async def test_other_data_centres_forget_a_worker_that_was_taken_out(clusters: Callable[..., Cluster]) -> None:
    cluster = clusters(2)
    cluster.configs[1]["data_center"] = "us"
    for config in cluster.configs:
        config["peers"][1]["data_center"] = "us"
    await cluster.start()
    for name in ("us-worker-1", "us-worker-2"):
        await cluster.post(1, "/txlog/workers", None, 200, json={**NEW, "name": name})

    async def heard() -> list[str]:
        told = await cluster.get(0, "/txlog/workers")
        return [worker["name"] for worker in told["elsewhere"].get("us", [])]

    async def there() -> bool:
        return "us-worker-2" in await heard()

    async def gone() -> bool:
        return await heard() == ["us-worker-1"]

    await until(there)
    async with cluster.session.delete(cluster.url(1, "/txlog/workers/us-worker-2")) as answer:
        assert answer.status == 200
    await until(gone)
