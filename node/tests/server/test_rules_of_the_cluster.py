"""``PATCH /txlog/configuration`` with rules about graphs, at real masters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from master_cluster import Cluster, until

RULES = [{"match": "http://ex.org/accounts/*", "quorum": "all", "timeout": "10s"}, {"match": "default"}]


async def patch(cluster: Cluster, graphs: Any) -> tuple[int, Any]:
    async with cluster.session.patch(cluster.url(0, "/txlog/configuration"), json={"graphs": graphs}) as answer:
        return answer.status, await answer.json()


async def test_rules_are_set_and_taken_away(one: Cluster) -> None:
    status, body = await patch(one, RULES)
    assert status == 200, body
    expected = [RULES[0], {"match": "default", "quorum": "N/2+1", "timeout": "30s"}]
    assert (await one.get(0, "/txlog/configuration"))["graphs"] == expected
    status, body = await patch(one, [])
    assert (status, body["graphs"], body["version"]) == (200, [], 2)


@pytest.mark.parametrize(
    ("graphs", "expected"),
    [
        ([{"match": "x:a", "quorum": "N/2"}], "N/2+1, N-1, all"),
        ([{"match": "x:a", "quorum": "2*N"}], "is no quorum"),
        ([{"match": "x:a", "quorum": "0"}], "is no quorum"),
        ([{"match": "x:a", "quorum": "D+1"}], "is no quorum"),
        ([{"match": "x:a"}, {"match": "x:a"}], "two rules match x:a"),
        ([{"match": "no-scheme"}], "IRI with its scheme"),
        ([{"match": "x:*:b"}], "at the end only"),
        ([{"match": "urn:txlog:system"}], "belong to TxLog"),
        ([{"match": "x:a", "timeout": "1ms"}], "100ms to 24h"),
        ([{"match": "x:a", "timeout": "30"}], "x:a: timeout: a duration"),
        ([{"match": "x:" + "a" * 500}], "more than 500 characters"),
        ([{"match": f"x:{n}"} for n in range(65)], "at most 64"),
        ([{"quorum": "all"}], "expected {"),
        ("x:a", "expected {"),
    ],
)
async def test_bad_rules(one: Cluster, graphs: Any, expected: str) -> None:
    status, body = await patch(one, graphs)
    assert status == 400
    assert expected in body["message"]


async def test_rules_need_workers_that_go_back(clusters: Callable[..., Cluster]) -> None:
    cluster = clusters(1, split_recovery="None")
    await cluster.start()
    status, body = await patch(cluster, RULES)
    assert (status, "splitRecovery None has none" in body["message"]) == (400, True)


async def test_rules_change_only_while_everybody_is_there(one: Cluster) -> None:
    status, body = await patch(one, [])
    assert status == 200
    async with one.session.post(
        one.url(0, "/txlog/peers"),
        json={"node": "uk-9", "dataCenter": "uk", "weight": 0, "urls": ["http://127.0.0.1:9"]},
    ) as answer:
        assert answer.status == 200
    status, body = await patch(one, [])
    assert (status, body["error"]) == (409, "NotAllHere")
    assert "uk-9 is not" in body["message"]


async def test_as_many_rules_as_a_manifest_may_have(one: Cluster) -> None:
    long = [{"match": f"http://ex.org/{n:02}/{'a' * 450}", "quorum": "all", "timeout": "10s"} for n in range(64)]
    status, body = await patch(one, long)
    assert (status, body.get("graphs")) == (200, long), body
    url = f"http://host/{'x' * 15_000}"
    for number in range(4):
        new = {"node": f"uk-{number + 2}", "dataCenter": "uk", "weight": 0, "urls": [url]}
        async with one.session.post(one.url(0, "/txlog/peers"), json=new) as answer:
            status, body = answer.status, await answer.json()
        if status != 200:
            break
    assert (status, "at most 60000: shorten it" in body["message"]) == (400, True), body


async def test_a_split_recovery_that_would_be_passed_over_is_refused(one: Cluster) -> None:
    async def recovery(value: str) -> tuple[int, Any]:
        async with one.session.patch(one.url(0, "/txlog/settings"), json={"splitRecovery": value}) as answer:
            return answer.status, await answer.json()

    status, body = await patch(one, RULES)
    assert status == 200, body
    status, body = await recovery("None")
    assert (status, "splitRecovery cannot be None" in body["message"]) == (409, True), body
    assert (await recovery("Simple"))[0] == 200
    await until(lambda: one.service(0).loop.status.view.strategy == "Simple")
    status, body = await patch(one, [])
    assert status == 200, body
    assert (await recovery("None"))[0] == 200, "as before, without rules"
