"""The duties of a data centre over HTTP: who is silent, who has to go back, and what a report does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

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
        assert told["error"] == {400: "BadInput", 409: "Conflict"}[status]
    await cluster.post(0, "/txlog/duties/backup-of-nothing", None, 404, json=done)
    core = cluster.app(0).loop.core
    await until(lambda: core.around.silent_ms("uk-2") > 3000)
    assert core.state == "Suspected", "no backup, no going on"

    assert await cluster.post(0, path, None, 200, json=done) == {"open": False}
    await until(lambda: core.state == "Isolated")
    status = await cluster.get(0, "/txlog/status")
    assert [(out["node"], out["why"]) for out in status["view"]["out"]] == [("uk-2", "silent")]
    await cluster.write(0, insert(2))
    await cluster.stop(0)
    await cluster.start(0)
    await until(lambda: cluster.app(0).loop.core.state == "Isolated")  # who was silent is durable
    await cluster.start(1)
    await until(lambda: {cluster.app(at).loop.core.state for at in (0, 1)} == {"Joined"})
    told = await cluster.get(0, "/txlog/splits")
    views = [record for record in told["records"] if "view" in record]
    assert (views[0]["view"]["silent"], views[-1]["view"]["silent"]) == (["uk-2"], [])
    assert views[-1]["before"]["members"] == ["uk-1"]


async def test_a_worker_off_the_log_has_to_be_made_anew(clusters: Callable[..., Cluster]) -> None:
    cluster = clusters(1, workers=[{"name": "w-1", "url": "http://127.0.0.1:9"}])
    await cluster.start()
    await cluster.write(0, insert(1))
    stable = (await cluster.get(0, "/txlog/status"))["stable"]
    place = {"epoch": stable["epoch"], "index": stable["index"], "hash": stable["hash"]}
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
