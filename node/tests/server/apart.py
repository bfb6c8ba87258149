"""Three masters of one process that go apart, uk-1 and uk-2 from uk-3, and come together again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from master_cluster import Cluster, until

SIDES = ((0, 1), (2,))
"""uk-1 and uk-2; uk-3 alone."""


def insert(what: object) -> str:
    return f'INSERT DATA {{ <urn:s:{what}> <urn:p> "o" }}'


def states(cluster: Cluster) -> set[str]:
    return {cluster.service(at).loop.executor.core.state for at in range(3)}


def cut(cluster: Cluster) -> Callable[[], None]:
    """Between the two sides; returns what heals it."""
    mine = {node: side for side, members in enumerate(SIDES) for node in (cluster.nodes[at] for at in members)}
    whole = [cluster.service(at).loop._send for at in range(3)]

    def sender(at: int) -> Callable[..., None]:
        def send(peer: str, *data: Any) -> None:
            if mine[peer] == mine[cluster.nodes[at]]:
                whole[at](peer, *data)

        return send

    for at in range(3):
        cluster.service(at).loop._send = sender(at)  # type: ignore[method-assign]

    def heal() -> None:
        for at, send in enumerate(whole):
            cluster.service(at).loop._send = send  # type: ignore[method-assign]

    return heal


async def back_up(cluster: Cluster, at: int) -> bool:
    """As if the data centre's store stood at the stable index, where it is backed up."""
    for duty in (await cluster.get(at, "/txlog/duties"))["duties"]:
        stable = (await cluster.get(at, "/txlog/status"))["stable"]
        done = {"state": "done", "index": stable["index"], "hash": stable["hash"]}
        url = cluster.url(at, f"/txlog/duties/{duty['id']}")
        async with cluster.session.post(url, json=done) as answer:
            assert answer.status in (200, 404), "404: it has gone on meanwhile with what another one has"
    return states(cluster) == {"Isolated"}


async def go_apart(cluster: Cluster) -> Callable[[], None]:
    """Until both sides go on alone, each master with a transaction that it accepted when it was cut off. Returns what
    heals it."""
    heal = cut(cluster)
    for at in range(3):
        await cluster.write(at, insert(f"waits-{at}"), 204, TxLog_Durability="accepted")

    async def apart() -> bool:
        done = [await back_up(cluster, at) for at in range(3)]
        return all(done)

    await until(apart)
    return heal
