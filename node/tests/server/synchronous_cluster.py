"""Masters that serve synchronous transactions of the graphs of a rule, and what is asked of them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

from apart import back_up, cut, states
from master_cluster import Cluster, until

GRAPH = "http://ex.org/accounts/1"
RULES = [{"match": "http://ex.org/accounts/*"}]


def insert(what: object, graph: str = GRAPH) -> str:
    return f'INSERT DATA {{ GRAPH <{graph}> {{ <urn:s:{what}> <urn:p> "o" }} }}'


async def rules(cluster: Cluster, graphs: Any) -> None:
    async with cluster.session.patch(cluster.url(0, "/txlog/configuration"), json={"graphs": graphs}) as answer:
        assert answer.status == 200, await answer.text()


def decides(cluster: Cluster, at: int) -> bool:
    found = cluster.service(at).loop.status.synchronous_status
    return found is not None and found.quorate


async def post(
    cluster: Cluster, at: int, update: str, *, again: bool = True, **headers: str
) -> tuple[int, dict[str, str]]:
    """The status and the headers; a plain client sends none. ``again``: repeat what is refused because others do not
    answer at the moment, as a client does. Nothing of it was logged."""
    sent = {"Content-Type": "application/sparql-update"}
    sent |= {name.replace("_", "-"): value for name, value in headers.items()}
    url, deadline = cluster.url(at, "/repositories/demo/statements"), time.monotonic() + 30
    while True:
        async with cluster.session.post(url, data=update, headers=sent) as answer:
            found = {**answer.headers, "body": await answer.text()}
            if not again or found.get("TxLog-Error") != "NoQuorum" or time.monotonic() > deadline:
                return answer.status, found
        await asyncio.sleep(0.05)


async def isolate(cluster: Cluster) -> Callable[[], None]:
    """uk-3 loses uk-1 and uk-2, and both sides go on. Returns the function that ends the split."""
    heal = cut(cluster)

    async def apart() -> bool:
        done = [await back_up(cluster, at) for at in range(3)]
        return all(done) and states(cluster) == {"Isolated"}

    await until(apart)
    return heal
