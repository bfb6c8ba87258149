"""A removal that would leave graphs with a quorum refused for ever is refused itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from master_cluster import Cluster, until

from txlog.model.anchor import Anchor
from txlog.model.configuration import LEAVING, Configuration, Master
from txlog.server.admin.quorum_loss import find_quorum_loss


def configuration(**weights: int) -> Configuration:
    return Configuration([Master(node, "uk", weight) for node, weight in weights.items()], False, 1000)


def without(now: Configuration, *gone: str, lost: bool = False) -> Configuration:
    rest = [m for m in now.masters if m.node not in gone]
    leaving = [msgspec.structs.replace(m, role=LEAVING) for m in now.masters if m.node in gone]
    return msgspec.structs.replace(now, masters=rest if lost else [*rest, *leaving])


CASES: list[tuple[dict[str, int], str, str, bool]] = [
    ({"a": 1, "b": 1, "c": 1}, "abc", "c", False),
    ({"a": 1, "b": 1, "c": 1}, "ab", "c", False),
    ({"a": 1, "b": 1, "c": 1}, "ab", "b", True),
    ({"a": 1, "b": 1}, "ab", "b", True),
    ({"a": 1, "b": 0}, "ab", "b", False),
    ({"a": 1, "b": 0}, "ab", "a", True),
    ({"a": 2, "b": 1, "c": 1, "d": 1}, "abd", "b", False),
    ({"a": 2, "b": 1, "c": 1, "d": 1}, "abd", "a", True),
    ({"a": 1, "b": 1, "c": 1, "d": 1}, "abcd", "cd", True),
    ({"a": 1, "b": 1, "c": 1, "d": 1}, "abcd", "d", False),
]


@pytest.mark.parametrize("lost", [False, True])
@pytest.mark.parametrize(("weights", "members", "gone", "refused"), CASES)
def test_who_may_be_removed(weights: dict[str, int], members: str, gone: str, refused: bool, lost: bool) -> None:
    now = configuration(**weights)
    anchor = Anchor((1, 1, "a"), [(node, 1) for node in members], now.masters)
    problem = find_quorum_loss(anchor, members, now, without(now, *gone, lost=lost))
    assert bool(problem) is refused, problem


def test_masters_that_leave_already_do_not_count_and_weights_alone_are_free() -> None:
    now = configuration(a=1, b=1, c=1)
    anchor = Anchor((1, 1, "a"), [(node, 1) for node in "abc"], now.masters)
    leaving = without(now, "c")
    assert find_quorum_loss(anchor, "abc", leaving, without(leaving, "b", "c"))
    assert not find_quorum_loss(anchor, "ab", now, configuration(a=0, b=0, c=1))


def test_the_text_says_what_to_do() -> None:
    now = configuration(a=1, b=1, c=1)
    anchor = Anchor((1, 1, "a"), [(node, 1) for node in "ab"], now.masters)
    found = find_quorum_loss(anchor, "ab", now, without(now, "b"))
    assert "without b the view has 1 of 3 votes, and 2 are needed" in found
    assert "First start c, and wait" in found
    two = configuration(a=1, b=1)
    found = find_quorum_loss(Anchor((1, 1, "a"), [], two.masters), "ab", two, without(two, "b"))
    assert "First give b no vote (txlog peer weight NODE 0), and wait" in found


@pytest.mark.parametrize("has_rules", [True, False])
async def test_the_second_of_two_masters(clusters: Callable[..., Cluster], has_rules: bool) -> None:
    cluster = clusters(2)
    await cluster.start()

    async def send(method: str, path: str, **more: Any) -> tuple[int, dict[str, Any]]:
        async with cluster.session.request(method, cluster.url(0, path), **more) as answer:
            return answer.status, await answer.json()

    def votes() -> int:
        found = cluster.service(0).loop.status.synchronous_status
        return sum(m.weight for m in found.anchor.electorate) if found is not None and found.quorate else 0

    if not has_rules:
        assert (await send("DELETE", "/txlog/peers/uk-2"))[0] in (200, 202)
        return
    rules = {"graphs": [{"match": "http://ex.org/accounts/*"}]}
    assert (await send("PATCH", "/txlog/configuration", json=rules))[0] == 200
    await until(lambda: votes() == 2)
    status, body = await send("DELETE", "/txlog/peers/uk-2")
    assert (status, body["error"]) == (409, "NoQuorumLeft")
    assert "txlog peer weight" in body["message"]

    assert (await send("PATCH", "/txlog/peers/uk-2", json={"weight": 0}))[0] == 200
    await until(lambda: votes() == 1)
    assert (await send("DELETE", "/txlog/peers/uk-2"))[0] in (200, 202)

    async def is_alone() -> bool:
        return [m["node"] for m in (await cluster.get(0, "/txlog/configuration"))["masters"]] == ["uk-1"]

    await until(is_alone)
    await until(lambda: votes() == 1)
    update = 'INSERT DATA { GRAPH <http://ex.org/accounts/1> { <urn:s> <urn:p> "o" } }'

    async def is_taken() -> bool:
        url, sent = cluster.url(0, "/repositories/demo/statements"), {"Content-Type": "application/sparql-update"}
        sent |= {"TxLog-Durability": "synced"}
        async with cluster.session.post(url, data=update, headers=sent) as answer:
            return (answer.status, answer.headers.get("TxLog-Synchronous")) == (204, "committed")

    await until(is_taken)
