"""Chains of masters: each hears its neighbours alone (rule 22)."""

from __future__ import annotations

from itertools import pairwise

import pytest
from changing_views import assert_same_logs, back_up, in_view, leave, run_until_in_view
from core_cluster import Cluster


def chain(order: str) -> set[tuple[str, str]]:
    near = set(pairwise(order))
    return {(x, y) for x in order for y in order if x != y and (x, y) not in near and (y, x) not in near}


@pytest.mark.parametrize("strategy", ["Smart", "Simple", "None"])
def test_two_halves_of_a_chain_of_four_become_one(strategy: str) -> None:
    """a-b-c-d, cut between b and c until each half has gone on; then that link is back, the chain stays."""
    times = {"idle_interval_ms": 100, "max_peer_lag_ms": 800, "none_split_delay_ms": 800}
    cluster = Cluster("abcd", **times, strategy=strategy).founded()  # type: ignore[arg-type]
    cluster.cut = chain("abcd")
    cluster.run(3000)
    assert in_view(cluster, *"abcd")
    cluster.cut |= {("b", "c"), ("c", "b")}
    cluster.run(1200)
    back_up(cluster, *"abcd")
    run_until_in_view(cluster, "a", "b")
    run_until_in_view(cluster, "c", "d")
    cluster.submit("a", "x")
    cluster.submit("d", "y")
    cluster.run(500)
    cluster.cut -= {("b", "c"), ("c", "b")}
    end_ms = cluster.now_ms + 60_000
    while not in_view(cluster, *"abcd"):
        assert cluster.now_ms < end_ms, {
            n: (c.core.state, c.core.views.blocked_reason) for n, c in cluster.executors.items()
        }
        for node in "abcd":
            if cluster.core(node).needs_split_backup:
                back_up(cluster, node)
        cluster.run(20)
    assert_same_logs(cluster, 2)


@pytest.mark.parametrize("length", [4, 6])
@pytest.mark.parametrize("majority", [False, True], ids=["Continue", "Majority"])
@pytest.mark.parametrize("who", [1, -1])
def test_a_chain_changes_its_view(length: int, majority: bool, who: int) -> None:
    """One leaves and comes back. In a view that is stopped nobody posts: what both ends know of each other has
    come a step at a time."""
    nodes = "abcdefg"[:length]
    cluster = Cluster(nodes, idle_interval_ms=100, majority=majority).founded()
    cluster.cut = chain(nodes)
    cluster.run(3000)
    assert in_view(cluster, *nodes)
    leave(cluster, nodes[who])
    cluster.start(nodes[who])
    run_until_in_view(cluster, *nodes, within_ms=60_000)
    cluster.submit("a", "x")
    cluster.run(3000)
    assert_same_logs(cluster, 1)
