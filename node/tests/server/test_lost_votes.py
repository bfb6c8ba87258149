"""Votes that are lost for good: ``POST /txlog/synchro/adopt`` and ``txlog synchro adopt``."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable

import pytest
from apart import back_up, cut, states
from master_cluster import Cluster, until
from typer.testing import CliRunner

from txlog.cli.main import app

UPDATE = 'INSERT DATA { GRAPH <http://ex.org/accounts/1> { <urn:s> <urn:p> "o" } }'
ADOPT = "/txlog/synchro/adopt"


def decides(cluster: Cluster, at: int) -> bool:
    found = cluster.service(at).loop.status.synchronous_status
    return found is not None and found.quorate


@pytest.fixture
async def minority(clusters: Callable[..., Cluster]) -> tuple[Cluster, str]:
    """Three masters with a rule, of which uk-3 is alone. The name is that of the last one."""
    cluster = clusters(3, max_peer_lag_ms=2000)
    await cluster.start()
    rules = {"graphs": [{"match": "http://ex.org/accounts/*"}]}
    async with cluster.session.patch(cluster.url(0, "/txlog/configuration"), json=rules) as answer:
        assert answer.status == 200, await answer.text()
    await until(lambda: all(decides(cluster, at) for at in range(3)))
    cut(cluster)

    async def apart() -> bool:
        done = [await back_up(cluster, at) for at in range(3)]
        return all(done) and states(cluster) == {"Isolated"}

    await until(apart)
    return cluster, cluster.nodes[2]


REFUSED = [
    (2, "", 400, "expected"),
    (2, {"without": []}, 400, "each once"),
    (2, {"without": ["uk-1", "uk-1"]}, 400, "each once"),
    (2, {"without": ["uk-1"], "sure": True}, 400, "expected"),
    (2, {"without": ["uk-9"]}, 409, "1 of them are here: 2 are needed. Start uk-1, uk-2, or name every master"),
    (2, {"without": ["uk-1"]}, 409, "there are 2 votes, and 1 of them are here: 2 are needed. Start uk-2"),
    (2, {"without": ["uk-1", "uk-2", "uk-9"]}, 409, "uk-9 has no vote"),
    (2, {"without": ["uk-1", "uk-2", "uk-3"]}, 409, "0 of them are here"),
    (0, {"without": ["uk-3"]}, 409, "no vote is missing"),
]


async def test_orders_that_are_refused(minority: tuple[Cluster, str]) -> None:
    cluster, _ = minority
    for at, body, status, text in REFUSED:
        data = body if isinstance(body, str) else json.dumps(body)
        async with cluster.session.post(cluster.url(at, ADOPT), data=data) as answer:
            found = await answer.json()
        assert (answer.status, text in found["message"]) == (status, True), (body, found)
    assert not decides(cluster, 2)


async def test_a_cluster_without_synchronous_transactions(clusters: Callable[..., Cluster]) -> None:
    cluster = clusters(1)
    await cluster.start()
    async with cluster.session.post(cluster.url(0, ADOPT), json={"without": ["uk-2"]}) as answer:
        assert (answer.status, (await answer.json())["error"]) == (409, "Conflict")


async def test_the_rest_decides_after_the_order(minority: tuple[Cluster, str]) -> None:
    """In the test the others still run: nothing reaches them, which is what the order claims."""
    cluster, node = minority
    sent = {"Content-Type": "application/sparql-update", "TxLog-Durability": "synced"}
    url = cluster.url(2, "/repositories/demo/statements")
    async with cluster.session.post(url, data=UPDATE, headers=sent) as answer:
        assert (answer.status, answer.headers["TxLog-Error"]) == (503, "NoQuorum")

    asked = ["synchro", "adopt", "uk-1", "uk-2", "--master", cluster.url(2), "--json"]
    done = await asyncio.to_thread(CliRunner().invoke, app, asked, "n\n")
    assert done.exit_code == 1
    assert "What only uk-1, uk-2 had committed is lost" in done.output
    assert not decides(cluster, 2)
    done = await asyncio.to_thread(CliRunner().invoke, app, [*asked, "--yes"])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert (found["node"], found["without"], found["synchro"]["quorate"]) == (node, ["uk-1", "uk-2"], True)
    assert [(m["node"], m["counts"]) for m in found["synchro"]["electorate"]["masters"]] == [(node, True)]
    assert "VotesGivenUp" in cluster.logged(2)
    async with cluster.session.post(url, data=UPDATE, headers=sent) as answer:
        assert (answer.status, answer.headers["TxLog-Synchronous"]) == (204, "committed")


async def test_the_command_needs_a_master_that_stays(clusters: Callable[..., Cluster]) -> None:
    cluster = clusters(1)
    await cluster.start()
    asked = ["synchro", "adopt", "uk-1", "--master", cluster.url(0), "--yes"]
    done = await asyncio.to_thread(CliRunner().invoke, app, asked)
    assert done.exit_code == 1
    assert "no master answers that stays" in str(done.exception or done.output)
