"""An order that was given up can be read afterwards, as it was: real masters that do not hear each other and rejoin."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from apart import go_apart, insert, states
from master_cluster import Cluster, until
from typer.testing import CliRunner

from txlog.cli.main import app

ALONE = 2


async def order(cluster: Cluster, at: int) -> list[tuple[int, str]]:
    """What its clients and workers are shown: index and transaction, in the order of the log."""
    end = (await cluster.get(at, "/txlog/status"))["stable"]["index"]
    agreement = cluster.app(at).loop.agreement
    assert agreement is not None
    found: list[tuple[int, str]] = []
    for span in agreement.history.spans(0, end):
        for seq in range(span.first_seq, span.first_seq + span.count):
            found.append((len(found) + 1, f"{span.node}.{span.birth:016x}.{seq}"))
    return found


async def rejoined(cluster: Cluster) -> dict[int, list[tuple[int, str]]]:
    """By master, what it had shown before it rejoined."""
    await cluster.start()
    await until(lambda: states(cluster) == {"Joined"})
    await cluster.write(0, insert("first"))
    heal = await go_apart(cluster)
    for number, at in enumerate((2, 0, 2, 1, 2)):
        await cluster.write(at, insert(f"alone-{number}"))
    shown = {at: await order(cluster, at) for at in range(3)}
    heal()
    await until(lambda: states(cluster) == {"Joined"})

    async def in_order() -> bool:
        orders = [await order(cluster, at) for at in range(3)]
        return orders[0] == orders[1] == orders[2] and len(orders[0]) == 1 + 3 + 5

    await until(in_order)
    return shown


async def test_the_order_of_the_losing_side_is_kept_as_its_clients_saw_it(clusters: Callable[..., Cluster]) -> None:
    cluster = clusters(3, max_peer_lag_ms=5000, round_timeout_ms=1500, idle_interval_ms=100)
    shown = await rejoined(cluster)
    log = dict(await order(cluster, 0))
    for winner in (0, 1):
        assert (await cluster.get(winner, "/txlog/branches"))["branches"] == []
    (branch,) = (await cluster.get(ALONE, "/txlog/branches"))["branches"]
    assert (branch["members"], branch["splitRecovery"]) == (["uk-3"], "Smart")
    assert branch["stable"] == branch["end"] == len(shown[ALONE])
    lines = await cluster.get(ALONE, f"/txlog/branches/{branch['view']}")
    assert [(line["index"], line["id"]) for line in lines] == shown[ALONE][branch["after"] :]
    assert [log[line["now"]] for line in lines] == [line["id"] for line in lines]
    assert lines[-1]["hash"] == branch["hash"]
    assert [log[at] for at in range(1, branch["after"] + 1)] == [txid for _, txid in shown[ALONE][: branch["after"]]]

    second = lines[1]
    path = f"/txlog/branches/{branch['view']}?after={lines[0]['index']}&count=1"
    assert await cluster.get(ALONE, path) == [second]
    await cluster.stop(ALONE)
    await cluster.start(ALONE)
    assert await cluster.get(ALONE, path) == [second], "it outlives the process"

    told = await asyncio.to_thread(command, cluster, "--json")
    assert json.loads(told) == {"uk-1": [], "uk-2": [], "uk-3": [branch]}
    assert branch["view"] in await asyncio.to_thread(command, cluster)
    assert json.loads(await asyncio.to_thread(command, cluster, branch["view"], "--json")) == lines
    assert second["id"] in await asyncio.to_thread(command, cluster, branch["view"], "--after", "1")


async def test_where_branches_are_merged_each_side_keeps_its_own(clusters: Callable[..., Cluster]) -> None:
    times = {"max_peer_lag_ms": 5000, "round_timeout_ms": 1500, "idle_interval_ms": 100}
    cluster = clusters(3, split_recovery="Simple", **times)
    shown = await rejoined(cluster)
    log = await order(cluster, 0)
    for at in range(3):
        kept: list[dict[str, Any]] = (await cluster.get(at, "/txlog/branches"))["branches"]
        if shown[at] == log[: len(shown[at])]:
            assert kept == [], "nothing of what it had shown has moved"
            continue
        (branch,) = kept
        lines = await cluster.get(at, f"/txlog/branches/{branch['view']}")
        assert [(line["index"], line["id"]) for line in lines] == shown[at][branch["after"] :]
    assert shown[ALONE] != log[: len(shown[ALONE])] or shown[0] != log[: len(shown[0])]


async def test_bad_questions_and_a_file_that_is_damaged(clusters: Callable[..., Cluster]) -> None:
    cluster = clusters(3, max_peer_lag_ms=5000, round_timeout_ms=1500, idle_interval_ms=100)
    await rejoined(cluster)
    (branch,) = (await cluster.get(ALONE, "/txlog/branches"))["branches"]
    view = branch["view"]
    for unknown in ("9.1.uk-9", "..%2Fsettings", "x%00y", "é" * 90):
        assert "given up no branch" in (await cluster.get(ALONE, f"/txlog/branches/{unknown}", 404))["message"]
    for wrong in ("after=x", "after=-1", "count=0", "count=100001"):
        assert (await cluster.get(ALONE, f"/txlog/branches/{view}?{wrong}", 400))["error"] == "BadInput"
    assert await cluster.get(ALONE, f"/txlog/branches/{view}?after={branch['end']}") == []
    assert CliRunner().invoke(app, ["branches", "x", "--after", "-1"]).exit_code == 2

    (path,) = (cluster.folder / "uk-3" / "branches").iterdir()
    path.write_bytes(path.read_bytes()[:-1])
    answer = await cluster.get(ALONE, f"/txlog/branches/{view}", 503)
    assert str(path) in answer["message"]
    (told,) = (await cluster.get(ALONE, "/txlog/branches"))["branches"]
    assert str(path) in told["error"]
    assert str(path) in (await asyncio.to_thread(command, cluster)).replace("\n", "")


async def test_a_branch_that_cannot_be_written_keeps_nobody_from_rejoining(clusters: Callable[..., Cluster]) -> None:
    cluster = clusters(3, max_peer_lag_ms=5000, round_timeout_ms=1500, idle_interval_ms=100)
    (cluster.folder / "uk-3").mkdir()
    (cluster.folder / "uk-3" / "branches").write_text("a file is in the way")
    await rejoined(cluster)
    assert "BranchNotKept" in cluster.logged(ALONE)
    assert (await cluster.get(ALONE, "/txlog/branches"))["branches"] == []


def command(cluster: Cluster, *words: str) -> str:
    masters = [word for at in range(3) for word in ("--master", cluster.url(at))]
    done = CliRunner().invoke(app, ["branches", *words, *masters])
    assert done.exit_code == 0, (done.output, done.exception)
    return done.output


@pytest.mark.parametrize("view", ["9.1.uk-9", "x"])
async def test_the_command_names_a_branch_that_nobody_has(clusters: Callable[..., Cluster], view: str) -> None:
    cluster = clusters(1)
    await cluster.start()
    done = await asyncio.to_thread(CliRunner().invoke, app, ["branches", view, "--master", cluster.url(0)])
    assert done.exit_code != 0
    assert f"given up no branch '{view}'" in str(done.exception)
