"""The duties of a data centre over HTTP: who is silent, who has to go back, and what a report does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from master_cluster import Cluster, until

JSON = {"Content-Type": "application/json"}


def insert(what: object) -> str:
    return f'INSERT DATA {{ <urn:s:{what}> <urn:p> "o" }}'


async def duties(cluster: Cluster, at: int) -> list[dict[str, Any]]:
    told = await cluster.get(at, "/txlog/duties")
    found: list[dict[str, Any]] = told["duties"]
    return found


async def test_a_split_waits_for_its_backup_and_each_side_goes_on_with_one(clusters: Callable[..., Cluster]) -> None:
    cluster = clusters(2, max_peer_lag_ms=2000, round_timeout_ms=500, idle_interval_ms=100)
    await cluster.start()
    await cluster.write(0, insert(1))
    assert await duties(cluster, 0) == []
    await cluster.crash(1)
    (duty,) = await until(lambda: duties(cluster, 0))
    assert (duty["kind"], duty["worker"], duty["error"]) == ("backup", None, None)
    assert "uk-2 silent" in duty["why"]
    stable = (await cluster.get(0, "/txlog/status"))["stable"]
    path = f"/txlog/duties/{duty['id']}"

    failed = {"state": "failed", "message": "the target is not there"}
    assert await cluster.post(0, path, None, 200, json=failed) == {"open": True}
    (again,) = (await cluster.get(0, "/txlog/status"))["duties"]
    assert again == {**duty, "error": "the target is not there"}

    done = {"state": "done", "index": stable["index"], "hash": stable["hash"]}
    for wrong, status in (
        ({**done, "state": "finished"}, 400),
        ({**done, "hash": "xy"}, 400),
        ({**done, "index": -1}, 400),
        ({**done, "more": 1}, 400),
        ({**done, "hash": "00" * 16}, 409),
        ({**done, "index": stable["index"] + 1}, 409),
    ):
        told = await cluster.post(0, path, None, status, json=wrong)
        assert told["error"] == {400: "BadInput", 409: "OffTheLog"}[status]
    await cluster.post(0, "/txlog/duties/backup-of-nothing", None, 404, json=done)
    for query, usable in (
        (f"index={stable['index']}&hash={stable['hash']}", True),
        (f"index={stable['index']}&hash={stable['hash']}&epoch={stable['epoch']}", True),
        (f"index={stable['index']}&hash={'00' * 16}", False),
        (f"index={stable['index'] + 1}&hash={stable['hash']}", False),
    ):
        told = await cluster.get(0, f"{path}?{query}")
        assert (told["usable"], told["why"] is None) == (usable, usable)
    for query in ("", f"?index={stable['index']}&hash=xy", f"?index=-1&hash={stable['hash']}", "?index=x"):
        await cluster.get(0, f"{path}{query}", 400)
    await cluster.get(0, f"/txlog/duties/restore-w-1?index=1&hash={stable['hash']}", 404)
    core = cluster.service(0).loop.executor.core
    await until(lambda: core.failure_detector.silent_ms("uk-2") > 3000)
    assert core.state == "Suspected", "no backup, no going on"

    assert await cluster.post(0, path, None, 200, json=done) == {"open": False}
    await until(lambda: core.state == "Isolated")
    status = await cluster.get(0, "/txlog/status")
    assert [(out["node"], out["why"]) for out in status["view"]["out"]] == [("uk-2", "silent")]
    await cluster.write(0, insert(2))
    await cluster.stop(0)
    await cluster.start(0)
    await until(lambda: cluster.service(0).loop.executor.core.state == "Isolated")  # who was silent is durable
    await cluster.start(1)
    await until(lambda: {cluster.service(at).loop.executor.core.state for at in (0, 1)} == {"Joined"})
    told = await cluster.get(0, "/txlog/splits")
    views = [record for record in told["records"] if "view" in record]
    assert (views[0]["view"]["silent"], views[-1]["view"]["silent"]) == (["uk-2"], [])
    assert views[-1]["before"]["members"] == ["uk-1"]


async def test_a_worker_off_the_log_has_to_be_made_anew(clusters: Callable[..., Cluster]) -> None:
    cluster = clusters(1, workers=[{"name": "w-1", "url": "http://127.0.0.1:9"}])
    await cluster.start()
    await cluster.write(0, insert(1))
    status = await cluster.get(0, "/txlog/status")
    stable = status["stable"]
    place = {"epoch": stable["epoch"], "index": stable["index"], "hash": stable["hash"], "cluster": status["clusterId"]}
    await cluster.post(0, "/txlog/workers/w-1", None, 200, json={"position": place, "state": "Working"})
    assert await duties(cluster, 0) == []
    off = {**place, "hash": "ab" * 16}
    for state in ("Diverged", "Working"):
        await cluster.post(0, "/txlog/workers/w-1", None, 200, json={"position": off, "state": state})
        (duty,) = await duties(cluster, 0)
        assert (duty["kind"], duty["worker"], duty["id"]) == ("restore", "w-1", "restore-w-1-1-abababab")
    done = {"state": "done", "index": 1, "hash": stable["hash"]}
    assert await cluster.post(0, f"/txlog/duties/{duty['id']}", None, 200, json=done) == {"open": True}
    await cluster.post(0, "/txlog/workers/w-1", None, 200, json={"position": place, "state": "Working"})
    await cluster.post(0, f"/txlog/duties/{duty['id']}", None, 404, json=done)


NONE = {"split_recovery": "None", "none_split_delay_ms": 1000, "round_timeout_ms": 500, "idle_interval_ms": 100}


async def test_under_none_a_worker_stays_and_its_pages_pass_over_what_it_executed(
    clusters: Callable[..., Cluster],
) -> None:
    """Each of two masters is alone for a while, as in a split."""
    cluster = clusters(2, workers=[{"name": "w-1", "url": "http://127.0.0.1:9"}], **NONE)
    await cluster.start()
    await cluster.write(1, insert("first"))
    await cluster.crash(0, 1)
    stood: dict[str, Any] = {}
    for at in (0, 1):
        await cluster.start(at, ready=False)
        await until(lambda at=at: cluster.service(at).loop.executor.core.state == "Isolated")
        assert await duties(cluster, at) == [], "no backup"
        await cluster.write(at, insert(f"alone-{at}"), Idempotency_Key="one")
        await cluster.write(at, insert(f"more-{at}"))
        stood = (await cluster.get(at, "/txlog/status"))["stable"]
        await cluster.crash(at)
    await cluster.start(0, 1, ready=False)
    await until(lambda: {cluster.service(at).loop.executor.core.state for at in (0, 1)} == {"Joined"})
    page = await cluster.get(1, "/txlog/log", headers={"Accept": "application/json"})
    texts = [entry["payload"].split(">")[0].split(":")[-1] for entry in page["entries"]]
    assert texts[0] == "first"

    ours = (await cluster.get(1, "/txlog/status"))["clusterId"]
    place = {"epoch": stood["epoch"], "index": stood["index"], "hash": stood["hash"], "fence": 3, "cluster": ours}
    path = "/txlog/workers/w-1"
    await cluster.post(1, path, None, 200, json={"position": place, "state": "Diverged"})
    await cluster.post(0, path, None, 200, json={"position": place, "state": "Diverged"})
    (mine,) = await duties(cluster, 1)
    (theirs,) = await duties(cluster, 0)
    kept, knows, lacks = (1, mine, theirs) if mine["kind"] == "unorder" else (0, theirs, mine)
    assert (knows["kind"], knows["worker"], knows["lacks"]) == ("unorder", "w-1", False)
    assert (lacks["kind"], lacks["worker"], lacks["lacks"]) == ("restore", "w-1", True)
    to = knows["to"]
    assert to["index"] == 1

    query = f"?unordered={place['index']}:{place['hash']}"
    told = await cluster.get(kept, f"/txlog/log{query}", headers={"Accept": "application/json"})
    noops = {text: entry["noop"] for text, entry in zip(texts, told["entries"], strict=True)}
    assert (noops["first"], noops[f"more-{kept}"], noops[f"more-{1 - kept}"]) == ("executed", "executed", "")
    assert noops[f"alone-{1 - kept}"] == "executed key", "it counts by the log, and the other one was executed"
    assert noops[f"alone-{kept}"].startswith("key ")
    other = await cluster.get(1 - kept, f"/txlog/log{query}", 503, headers={"Accept": "application/json"})
    assert other["reason"] == "UnknownBranch"
    for wrong in ("7", "x:00", "7:00", "-1:" + "00" * 16, f"{place['index']}:{place['hash']},"):
        told = await cluster.get(kept, f"/txlog/log?unordered={wrong}", 400)
        assert "expected INDEX:HASH" in told["message"]

    unordered = {**to, "fence": 4, "unordered": [f"{place['index']}:{place['hash']}"]}
    for at in (0, 1):
        await cluster.post(at, path, None, 200, json={"position": unordered, "state": "Working"})
    (worker,) = (await cluster.get(kept, "/txlog/workers"))["workers"]
    assert worker["state"] == "Unordered"
    assert await duties(cluster, kept) == []
    async with cluster.session.patch(cluster.url(kept, "/txlog/settings"), json={"splitRecovery": "Smart"}) as answer:
        assert answer.status == 409
        assert "uk/w-1 executed in another order" in (await answer.json())["message"]
    for at in (0, 1):
        await cluster.post(at, path, None, 200, json={"position": to, "state": "Working"})
    async with cluster.session.patch(cluster.url(kept, "/txlog/settings"), json={"splitRecovery": "Smart"}) as answer:
        assert answer.status == 200


async def test_an_unordered_worker_is_made_anew_where_the_order_counts(clusters: Callable[..., Cluster]) -> None:
    cluster = clusters(1, workers=[{"name": "w-1", "url": "http://127.0.0.1:9"}])
    await cluster.start()
    await cluster.write(0, insert(1))
    place = {**(await cluster.get(0, "/txlog/status"))["stable"], "unordered": ["1:" + "ab" * 16]}
    await cluster.post(0, "/txlog/workers/w-1", None, 200, json={"position": place, "state": "Working"})
    (duty,) = await duties(cluster, 0)
    assert (duty["kind"], duty["worker"], duty["lacks"]) == ("restore", "w-1", False)
    assert "which Smart cannot use" in duty["why"]


@pytest.mark.parametrize("strategy", ["None", "Smart"])
async def test_under_none_pages_and_doorbells_go_to_the_logs_end_while_a_member_is_silent(
    clusters: Callable[..., Cluster], strategy: str
) -> None:
    """The second hears nobody, and is heard: its counter lets an entry into the log that it does not hold."""
    cluster = clusters(2, **{**NONE, "split_recovery": strategy, "none_split_delay_ms": 60_000})
    await cluster.start()
    await until(lambda c=cluster: {c.service(at).loop.executor.core.state for at in (0, 1)} == {"Joined"})
    loop = cluster.service(0).loop
    loop._send = lambda peer, data: None  # type: ignore[method-assign]
    await cluster.write(0, insert(1), 204, TxLog_Durability="accepted")
    await until(lambda loop=loop: loop.durability.log_index == 1)
    await cluster.crash(1)
    await until(lambda loop=loop: loop.executor.core.state == "Suspected")
    assert loop.durability.stable.value == 0
    end = 1 if strategy == "None" else 0
    await until(lambda loop=loop, end=end: loop.durability.executable.value == end)
    bell = await cluster.get(0, "/txlog/doorbell?after=0&timeout=0")
    assert (bell["stable"]["index"], (await cluster.get(0, "/txlog/status"))["stable"]["index"]) == (end, 0)
    page = await cluster.get(0, "/txlog/log", headers={"Accept": "application/json"})
    assert len(page["entries"]) == end
    if end:
        path = f"/txlog/log?after=1&hash={page['entries'][0]['hash']}"
        assert (await cluster.get(0, path, headers={"Accept": "application/json"}))["entries"] == []
