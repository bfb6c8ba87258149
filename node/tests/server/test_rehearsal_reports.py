"""What masters know of rehearsed recoveries: they tell one another, and no restart makes the last good one younger."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import pytest
from master_cluster import Cluster, until

DAY_MS = 24 * 3600 * 1000
ARCHIVE = {"max_delay_ms": 200, "rehearsal_max_age_ms": 8 * DAY_MS}


async def rehearsals(cluster: Cluster, at: int = 0) -> Any:
    return (await cluster.get(at, "/txlog/status"))["archive"]["rehearsals"]


async def report(cluster: Cluster, which: int, **fields: Any) -> None:
    await cluster.post(which, "/txlog/rehearsals", json.dumps({"at": time.time(), "ok": True, **fields}), 200)


async def metric(cluster: Cluster, name: str) -> float:
    lines = (await cluster.get(0, "/metrics")).splitlines()
    found = next(line for line in lines if line.startswith(f'txlog_rehearsal_{name}{{data_center="uk"}}'))
    return float(found.split()[-1])


async def test_all_masters_know_the_last_one_and_the_last_good_one(clusters: Callable[..., Cluster]) -> None:
    cluster = clusters(2, archive=ARCHIVE)
    await cluster.start()
    before = time.time()
    (found,) = await rehearsals(cluster)
    assert (found["dataCenter"], found["last"], found["lastGoodAt"]) == ("uk", None, None)
    assert abs(found["dueAt"] - before - 8 * 24 * 3600) < 120  # counted from the first start
    good_at = time.time() - 100
    await report(cluster, 0, at=good_at, rpoSeconds=1.5, rtoWritesSeconds=2.5, rtoReadsSeconds=9.0, graphs=3)
    await report(cluster, 0, at=good_at + 50, ok=False, error="NoBase", phase="find", message="no backup")
    await report(cluster, 0, at=good_at - 50, graphs=1)  # it came late, and is older

    async def known_there() -> bool:
        (there,) = await rehearsals(cluster, 1)
        return bool(there["last"] and there["last"]["error"] == "NoBase" and there["lastGoodAt"] == good_at)

    await until(known_there)
    assert [await metric(cluster, name) for name in ("success_timestamp_seconds", "failed")] == [good_at, 1.0]
    assert "RehearsalFailed" in cluster.logged(0)
    due_at = (await rehearsals(cluster))[0]["dueAt"]
    await cluster.stop(0)
    await cluster.start(0)
    (found,) = await rehearsals(cluster)
    assert (found["lastGoodAt"], found["last"]["phase"], found["dueAt"]) == (good_at, "find", due_at)
    assert await metric(cluster, "due_timestamp_seconds") == due_at
    good_at = time.time()
    await report(cluster, 0, at=good_at, rpoSeconds=0.0, rtoWritesSeconds=1.0, rtoReadsSeconds=2.0)
    assert abs(await metric(cluster, "due_timestamp_seconds") - good_at - 8 * 24 * 3600) < 1
    assert [await metric(cluster, name) for name in ("failed", "rpo_seconds", "rto_reads_seconds")] == [0.0, 0.0, 2.0]


async def test_without_an_archive_nothing_is_shown(clusters: Callable[..., Cluster]) -> None:
    cluster = clusters(1)
    await cluster.start()
    assert (await cluster.get(0, "/txlog/status"))["archive"] is None
    assert "txlog_rehearsal" not in await cluster.get(0, "/metrics")
    await report(cluster, 0)  # one by hand, with a target that no manifest names
    (found,) = await rehearsals(cluster)
    assert found["dueAt"] is None
    assert found["lastGoodAt"] is not None


@pytest.mark.parametrize(
    ("body", "named"),
    [
        ("[]", "Expected `object`"),
        ("{", "truncated"),
        ('{"ok": true}', "missing required field `at`"),
        ('{"at": 1}', "missing required field `ok`"),
        ('{"at": "now", "ok": true}', "Expected `float`"),
        ('{"at": 0, "ok": true}', "at is 0.0"),
        ('{"at": 99999999999, "ok": true}', "no later than now"),
        ('{"at": 1, "ok": true, "phases": {"base": "x"}}', "Expected `float`"),
    ],
)
async def test_bad_reports(one: Cluster, body: str, named: str) -> None:
    found = await one.post(0, "/txlog/rehearsals", body, 400)
    assert named in json.dumps(found)
    assert (await one.get(0, "/txlog/status"))["archive"] is None


async def test_a_report_that_is_too_large(one: Cluster) -> None:
    await one.post(0, "/txlog/rehearsals", json.dumps({"at": 1, "ok": True, "message": "x" * (65 << 10)}), 413)
