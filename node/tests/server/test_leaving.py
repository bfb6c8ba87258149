"""A master that is stopped: what its clients are told, what the others do, and what a proof of its end does."""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from aiohttp import ClientError
from master_cluster import SYNCED, Cluster, until

STATEMENTS = "/repositories/demo/statements"


def insert(what: object) -> str:
    return f'INSERT DATA {{ <urn:s:{what}> <urn:p> "o" }}'


async def view_of(cluster: Cluster, at: int) -> dict[str, Any]:
    status: dict[str, Any] = await cluster.get(at, "/txlog/status")
    return {**status["view"], "members": [m["node"] for m in status["members"]], "state": status["state"]}


async def in_one_view(cluster: Cluster, *which: int) -> bool:
    """These, and no others, have installed one view and are joined."""
    views = [await view_of(cluster, at) for at in which]
    nodes = [cluster.nodes[at] for at in which]
    same = len({v["number"] for v in views}) == 1
    return same and all(v["members"] == nodes and v["installed"] and v["state"] == "Joined" for v in views)


async def asked(cluster: Cluster, at: int, what: object, **headers: str) -> tuple[int, dict[str, str]]:
    async with cluster.session.post(
        cluster.url(at, STATEMENTS), data=insert(what), headers={**SYNCED, **headers}
    ) as answer:
        await answer.read()
        return answer.status, dict(answer.headers)


async def test_a_stop_says_503_then_leaves_and_the_others_go_on_at_once(clusters: Callable[..., Cluster]) -> None:
    cluster = clusters(3)
    cluster.spawn()
    await cluster.ready()
    await until(lambda: in_one_view(cluster, 0, 1, 2))
    before = (await view_of(cluster, 0))["number"]
    told: list[tuple[int, dict[str, str]]] = []
    gone = False

    async def plain_client() -> None:
        nonlocal gone
        number = 0
        while not gone:
            number += 1
            try:
                told.append(await asked(cluster, 2, number))
            except (OSError, ClientError):
                gone = True

    client = asyncio.ensure_future(plain_client())
    await until(lambda: len(told) > 5)
    process = cluster.process(2)
    process.send_signal(signal.SIGTERM)
    await until(lambda: process.poll() is not None)
    cluster.processes[2] = None
    await asyncio.wait_for(client, 30)
    assert process.returncode == 0
    assert {status for status, _ in told} <= {204, 202, 503}
    refused = [headers for status, headers in told if status == 503]
    assert refused, "the door closed before anybody was told"
    assert all(headers["TxLog-Error"] == "Closing" and headers["Retry-After"] == "1" for headers in refused)
    assert told[-1][0] == 503
    await until(lambda: in_one_view(cluster, 0, 1))
    view = await view_of(cluster, 1)
    assert view["number"] != before
    assert [(out["node"], out["why"]) for out in view["out"]] == [("uk-3", "left")]
    for n in range(3):
        status, _ = await asked(cluster, n % 2, f"after-{n}")
        assert status == 204
    cluster.spawn(2)
    await cluster.ready(2)
    await until(lambda: in_one_view(cluster, 0, 1, 2))
    assert (await view_of(cluster, 0))["out"] == []
    accepted = sum(1 for status, _ in told if status == 204) + 3
    for at in range(3):
        await until(lambda at=at: _stable(cluster, at, accepted))


async def _stable(cluster: Cluster, at: int, least: int) -> bool:
    status = await cluster.get(at, "/txlog/status")
    return bool(status["stable"]["index"] >= least)


async def test_who_waits_when_it_stops_is_answered(clusters: Callable[..., Cluster]) -> None:
    """Nobody can order anything, since a member is silent: what was accepted is 202 with its URL, none is lost."""
    cluster = clusters(2, leave_timeout_ms=300)
    cluster.spawn()
    await cluster.ready()
    await until(lambda: in_one_view(cluster, 0, 1))
    cluster.process(1).send_signal(signal.SIGSTOP)
    try:
        waiting = [asyncio.ensure_future(asked(cluster, 0, n, Prefer="wait=60")) for n in range(20)]
        await until(lambda: _queued(cluster, 0, 20))
        bell = asyncio.ensure_future(cluster.get(0, "/txlog/doorbell?after=999&timeout=30"))
        assert await asyncio.to_thread(cluster.kill, 0, signal.SIGTERM) == 0
        for status, headers in await asyncio.gather(*waiting):
            assert (status, headers["TxLog-Durability"]) == (202, "accepted")
            assert headers["Location"].startswith("/txlog/transactions/uk-1.")
        await bell
    finally:
        cluster.process(1).send_signal(signal.SIGCONT)
    cluster.spawn(0)
    await cluster.ready(0)
    await until(lambda: in_one_view(cluster, 0, 1))
    await until(lambda: _stable(cluster, 1, 20))


async def _queued(cluster: Cluster, at: int, count: int) -> bool:
    status = await cluster.get(at, "/txlog/status")
    return bool(status["queue"]["transactions"] == count)


async def test_the_whole_cluster_stops_and_comes_back(clusters: Callable[..., Cluster]) -> None:
    cluster = clusters(3)
    cluster.spawn()
    await cluster.ready()
    told = [(await cluster.write(n % 3, insert(n)))["TxLog-Transaction"] for n in range(9)]
    codes = await asyncio.gather(*(asyncio.to_thread(cluster.kill, at, signal.SIGTERM) for at in range(3)))
    assert codes == [0, 0, 0]
    cluster.spawn()
    await cluster.ready()
    await until(lambda: in_one_view(cluster, 0, 1, 2))
    for txid in told:
        assert (await cluster.get(1, f"/txlog/transactions/{txid}"))["durability"] == "synced"
    status, _ = await asked(cluster, 2, "after")
    assert status == 204


async def test_a_proof_lets_a_dead_master_go_and_stale_ones_are_refused(clusters: Callable[..., Cluster]) -> None:
    cluster = clusters(3)
    cluster.spawn()
    await cluster.ready()
    await until(lambda: in_one_view(cluster, 0, 1, 2))
    victim = await cluster.get(2, "/txlog/status")
    proof = {"birth": victim["birth"], "start": victim["start"]}
    cluster.kill(2)

    async def prove(at: int, told: Any, status: int) -> dict[str, Any]:
        answer: dict[str, Any] = await cluster.post(at, "/txlog/members/uk-3/down", json.dumps(told), status)
        return answer

    for bad in ({}, {"birth": 7, "start": 1}, {"birth": "7", "start": 1}, {**proof, "start": 0}, {**proof, "x": 1}):
        assert (await prove(0, bad, 400))["error"] == "BadInput"
    other = await cluster.post(0, "/txlog/members/fr-1/down", json.dumps(proof), 404)
    assert "there are uk-1, uk-2, uk-3" in other["message"]
    itself = await cluster.post(0, "/txlog/members/uk-1/down", json.dumps(proof), 409)
    assert "answers you itself" in itself["message"]
    assert "stale" in (await prove(0, {**proof, "birth": "0" * 16}, 409))["message"]

    assert (await prove(0, proof, 200))["node"] == "uk-3"
    await prove(1, proof, 200)
    await until(lambda: in_one_view(cluster, 0, 1))
    assert (await prove(0, proof, 200))["inView"] is False
    assert [(out["node"], out["why"]) for out in (await view_of(cluster, 0))["out"]] == [("uk-3", "down")]
    status, _ = await asked(cluster, 1, "without-it")
    assert status == 204

    cluster.spawn(2)
    await cluster.ready(2)
    await until(lambda: in_one_view(cluster, 0, 1, 2))
    refused = await prove(0, proof, 409)
    assert f"start {victim['start'] + 1} was seen" in refused["message"]
    await until(lambda: in_one_view(cluster, 0, 1, 2))


async def test_a_proof_that_comes_after_the_view_still_names_the_reason(clusters: Callable[..., Cluster]) -> None:
    """Each master gets the proof. One that gets it late is already in the view without the dead one."""
    cluster = clusters(3, max_peer_lag_ms=60_000)
    await cluster.start()
    await until(lambda: in_one_view(cluster, 0, 1, 2))
    victim = await cluster.get(2, "/txlog/status")
    await cluster.crash(2)
    url, proof = "/txlog/members/uk-3/down", json.dumps({"birth": victim["birth"], "start": victim["start"]})
    await cluster.post(1, url, proof, 200)
    await until(lambda: in_one_view(cluster, 0, 1))
    assert [one["why"] for one in (await view_of(cluster, 0))["out"]] == ["unknown"], "it has no proof yet"
    answer = await cluster.post(0, url, proof, 200)
    assert answer["inView"] is False
    assert [one["why"] for one in (await view_of(cluster, 0))["out"]] == ["down"]


async def test_metrics_tell_of_the_view_and_of_who_hears_whom(three: Cluster) -> None:
    await until(lambda: in_one_view(three, 0, 1, 2))

    async def hears_all() -> bool:
        peers = await three.get(0, "/txlog/peers")
        return peers["findings"] == [] and all(row and len(row) == 2 for row in peers["hears"].values())

    await until(hears_all)
    text = await three.get(0, "/metrics")
    assert "txlog_view_members 3.0" in text
    assert "txlog_view_installed 1.0" in text
    assert 'txlog_hears{from="uk-2",to="uk-1"} 1.0' in text
    assert 'txlog_state{state="Rejoining"} 0.0' in text
    await three.stop(1)
    await until(lambda: in_one_view(three, 0, 2))
    assert 'txlog_member_out{node="uk-2",why="left"} 1.0' in await three.get(0, "/metrics")


@pytest.mark.parametrize("mode", ["Continue", "Majority"])
async def test_a_master_without_its_journal_comes_back_as_another_birth(
    clusters: Callable[..., Cluster], mode: str
) -> None:
    cluster = clusters(3, split_mode=mode)
    cluster.spawn()
    await cluster.ready()
    for n in range(30):
        await cluster.write(n % 3, insert(n))
    before = await cluster.get(2, "/txlog/status")
    cluster.kill(2)
    shutil.move(cluster.folder / "uk-3", cluster.folder / "lost")
    cluster.spawn(2)
    await cluster.ready(2)
    await until(lambda: in_one_view(cluster, 0, 1, 2))
    after = await cluster.get(2, "/txlog/status")
    assert after["birth"] != before["birth"]
    for n in range(30, 40):
        await cluster.write(n % 3, insert(n))
    await until(lambda: _stable(cluster, 2, 40))
    pages = [(await cluster.get(at, "/txlog/log?after=0", headers={"Accept": "application/json"})) for at in (0, 2)]
    assert pages[0]["entries"] == pages[1]["entries"]


async def test_a_folder_of_an_earlier_birth_ends_by_name(clusters: Callable[..., Cluster]) -> None:
    cluster = clusters(3)
    cluster.spawn()
    await cluster.ready()
    await cluster.write(2, insert(1))
    cluster.kill(2)
    shutil.move(cluster.folder / "uk-3", cluster.folder / "lost")
    cluster.spawn(2)
    await cluster.ready(2)
    await until(lambda: in_one_view(cluster, 0, 1, 2))
    cluster.kill(2)
    shutil.rmtree(cluster.folder / "uk-3")
    shutil.move(cluster.folder / "lost", cluster.folder / "uk-3")  # the lost disk is found again
    cluster.spawn(2)
    assert await asyncio.to_thread(cluster.process(2).wait, 40) == 70
    cluster.processes[2] = None
    last = json.loads((cluster.folder / "uk-3.log").read_text().splitlines()[-1])
    assert last["event"] in ("OldJournal", "IdentityLost", "Superseded")


async def test_an_order_goes_on_without_members_lost_for_good(clusters: Callable[..., Cluster]) -> None:
    """`txlog force-view`: two of three are gone, and nobody has proved it."""
    cluster = clusters(3)
    cluster.spawn()
    await cluster.ready()
    await until(lambda: in_one_view(cluster, 0, 1, 2))
    assert (await asked(cluster, 0, "before"))[0] == 204
    ordered = [sys.executable, "-m", "txlog.cli.main", "force-view", "--master", cluster.url(0, ""), "--yes", "--json"]

    async def order(*without: str) -> subprocess.CompletedProcess[str]:
        names = [word for node in without for word in ("--without", node)]
        return await asyncio.to_thread(subprocess.run, [*ordered, *names], capture_output=True, text=True, timeout=90)

    refused = await order("uk-2")
    assert refused.returncode == 1
    assert "uk-2 answers this master" in refused.stderr
    for at in (1, 2):
        await asyncio.to_thread(cluster.kill, at, signal.SIGKILL)

    async def silent() -> bool:
        return bool((await cluster.get(0, "/txlog/status"))["state"] == "Suspected")

    await until(silent)
    done = await order("uk-2", "uk-3")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["next"]["members"] == ["uk-1"]
    assert [(m["node"], m["heardUpTo"] == m["heldUpTo"]) for m in told["mayMiss"]] == [("uk-2", True), ("uk-3", True)]
    assert (await asked(cluster, 0, "alone"))[0] == 204
    for at in (1, 2):
        cluster.spawn(at)
        await cluster.ready(at)
    await until(lambda: in_one_view(cluster, 0, 1, 2))
    for at in range(3):
        await until(lambda at=at: _stable(cluster, at, 2))


NO_ORDERS = (
    ("", 400),
    ("{}", 400),
    ('{"without": []}', 400),
    ('{"without": "uk-2"}', 400),
    ('{"without": ["uk-2", "uk-2"]}', 400),
    ('{"without": ["uk-2"], "sure": true}', 400),
    ('{"without": ["nobody"]}', 404),
    ('{"without": ["uk-1"]}', 409),
    ('{"without": ["uk-2"]}', 409),
)


async def test_orders_that_cannot_be_meant(clusters: Callable[..., Cluster]) -> None:
    cluster = clusters(2)
    cluster.spawn()
    await cluster.ready()
    await until(lambda: in_one_view(cluster, 0, 1))
    for body, status in NO_ORDERS:
        async with cluster.session.post(cluster.url(0, "/txlog/views"), data=body) as answer:
            assert answer.status == status, (body, await answer.text())
    assert await in_one_view(cluster, 0, 1)


async def test_a_cluster_is_founded_by_order(clusters: Callable[..., Cluster]) -> None:
    """`txlog bootstrap`: the third master cannot be there yet."""
    cluster = clusters(3)
    cluster.spawn(0)
    cluster.spawn(1)
    urls = [word for at in (1, 0) for word in ("--master", cluster.url(at, ""))]

    async def bootstrap(*members: str, command_name: str = "bootstrap") -> subprocess.CompletedProcess[str]:
        names = [word for node in members for word in ("--member", node)]
        command = [sys.executable, "-m", "txlog.cli.main", command_name, *urls, "--yes", "--json", *names]
        return await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=90)

    async def meant() -> bool:
        done = await bootstrap("uk-1", "uk-2")
        return done.returncode == 0

    await until(meant)
    await cluster.ready(0)
    await cluster.ready(1)
    assert (await asked(cluster, 1, "two"))[0] == 204
    again = await bootstrap("uk-1", "uk-2", command_name="found")
    assert again.returncode == 1
    assert "founded cluster already" in again.stderr
    for body, status in (("{}", 400), ('{"members": []}', 400), ('{"members": ["nobody"]}', 404)):
        async with cluster.session.post(cluster.url(0, "/txlog/found"), data=body) as answer:
            assert answer.status == status, await answer.text()
    cluster.spawn(2)
    await cluster.ready(2)
    await until(lambda: in_one_view(cluster, 0, 1, 2))
    for at in range(3):
        await until(lambda at=at: _stable(cluster, at, 1))
