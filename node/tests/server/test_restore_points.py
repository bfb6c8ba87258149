"""Restore points are entries of the log that no worker executes."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from master_cluster import Cluster, until
from worker_driver import Served

from txlog.model.errors import BadInput
from txlog.model.restore_points import check_point_name, decode_restore_point, encode_restore_point


async def create(cluster: Cluster, at: int, name: str, status: int = 200) -> Any:
    return await cluster.post(at, "/txlog/restore-points", json.dumps({"name": name}), status)


async def points(cluster: Cluster, at: int = 0) -> Any:
    return (await cluster.get(at, "/txlog/restore-points"))["points"]


async def test_one_is_at_its_place_at_every_master(clusters: Callable[..., Cluster]) -> None:
    cluster = clusters(2)
    await cluster.start()
    assert await points(cluster) == []
    await cluster.write(0, "INSERT DATA { <urn:a> <urn:b> 1 }")
    made = await create(cluster, 0, "before-the-import")
    await cluster.write(1, "INSERT DATA { <urn:a> <urn:b> 2 }")
    assert (made["name"], made["index"]) == ("before-the-import", 2)
    outcome = await cluster.get(0, f"/txlog/transactions/{made['transaction']}")
    assert outcome["position"]["index"] == 2
    expected = [{key: made[key] for key in ("name", "index", "hash", "at")}]
    for at in range(2):

        async def known(at: int = at) -> bool:
            return bool(await points(cluster, at) == expected)

        await until(known)
    again = await create(cluster, 1, "before-the-import")  # the same name, another point
    assert [each["index"] for each in await points(cluster, 1)] == [2, again["index"]]
    metrics = await cluster.get(0, "/metrics")
    assert "txlog_log_skips 0.0" in metrics  # no transaction is skipped
    await cluster.stop(0)
    await cluster.start(0)
    assert [each["index"] for each in await points(cluster)] == [2, again["index"]]


async def test_workers_pass_it_over(served: Served) -> None:
    await served.cluster.write(0, "INSERT DATA { <urn:a> <urn:b> <urn:c> }")
    await create(served.cluster, 0, "here")
    await served.cluster.write(0, "INSERT DATA { <urn:a> <urn:b> <urn:d> }", TxLog_Durability="applied")
    assert len(await served.quads()) == 2


@pytest.mark.parametrize(
    ("body", "named"),
    [
        ("{", "truncated"),
        ("[]", "Expected `object`"),
        ("{}", "missing required field `name`"),
        ('{"name": 7}', "Expected `str`"),
        ('{"name": "x", "at": 5}', "unknown field `at`"),
        ('{"name": ""}', "no name of a restore point"),
        ('{"name": "two words"}', "no name of a restore point"),
        ('{"name": "-x"}', "no name of a restore point"),
        ('{"name": "caf\\u00e9"}', "no name of a restore point"),
    ],
)
async def test_bad_requests(one: Cluster, body: str, named: str) -> None:
    found = await one.post(0, "/txlog/restore-points", body, 400)
    assert named in json.dumps(found)
    assert await points(one) == []


async def test_a_request_that_is_too_large(one: Cluster) -> None:
    await one.post(0, "/txlog/restore-points", json.dumps({"name": "x" * 5000}), 413)


def test_names() -> None:
    assert decode_restore_point(encode_restore_point("a.b_c-1", "unique")) == "a.b_c-1"
    assert decode_restore_point("uk-1.00c0ffee00c0ffee.42") is None
    assert decode_restore_point("namespace x set point urn:point") is None
    assert check_point_name("x" * 64) == "x" * 64
    with pytest.raises(BadInput, match="at most 64"):
        check_point_name("x" * 65)
