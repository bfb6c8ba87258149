"""Pages of the log with idempotency keys, for what copies the log away from the masters."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from apart import insert
from master_cluster import Cluster

from txlog.client import MasterClient
from txlog.model.hashes import chain_hash, chain_start, content_hash, origin_tag
from txlog.wire.log_page import LogPage


async def page(cluster: Cluster, **more: Any) -> LogPage:
    def ask() -> LogPage:
        with MasterClient(cluster.url(0)) as master:
            return master.log_page(0, **more)

    return await asyncio.to_thread(ask)


async def test_with_the_keys_the_chain_can_be_computed_again(one: Cluster) -> None:
    await one.write(0, insert("a"))
    await one.write(0, insert("b"), Idempotency_Key="once")
    async with one.session.put(one.url(0, "/repositories/demo/namespaces/ex"), data="urn:x:") as answer:
        assert answer.status == 204
    found = await page(one, keys=True)
    assert [entry.key for entry in found.entries][:2] == ["", "once"]
    assert found.entries[-1].key.startswith("namespace ")
    value = chain_start(found.cluster)
    for entry in found.entries:
        content = content_hash(entry.kind, entry.key, entry.payload)
        value = chain_hash(value, entry.stamp, origin_tag(entry.txid.origin), entry.seq, content)
        assert value == entry.hash, entry.index
    assert found.has_keys
    assert found.stable_index == found.settled == found.stable.index == len(found.entries)
    assert found.view == one.service(0).context.status.view.number  # type: ignore[union-attr]
    assert found.entries[1].first_stamp > 0
    shown = await one.get(0, "/txlog/log?keys=1", headers={"Accept": "application/json"})
    assert [entry["key"] for entry in shown["entries"]] == [entry.key for entry in found.entries]
    assert (shown["stableIndex"], shown["settled"]) == (found.stable_index, found.settled)


async def test_a_page_without_them_is_as_before(one: Cluster) -> None:
    await one.write(0, insert("b"), Idempotency_Key="once")
    found = await page(one)
    assert not found.has_keys
    assert [(entry.key, entry.first_stamp) for entry in found.entries] == [("", 0)]
    shown = await one.get(0, "/txlog/log", headers={"Accept": "application/json"})
    assert "stableIndex" not in shown
    assert "key" not in shown["entries"][0]


async def test_nothing_above_the_stable_index_is_given_away(clusters: Callable[..., Cluster]) -> None:
    """Under ``None`` workers may execute what a silent member has not confirmed."""
    cluster = clusters(1, split_recovery="None")
    await cluster.start()
    for what in "abc":
        await cluster.write(0, insert(what))
    durability = cluster.service(0).context.durability
    durability.stable.move_to(2)
    assert durability.executable.value == 3
    found = await page(cluster, keys=True)
    assert ([entry.index for entry in found.entries], found.stable_index) == ([1, 2], 2)
    assert found.stable.index == 3
    assert [entry.index for entry in (await page(cluster)).entries] == [1, 2, 3]
