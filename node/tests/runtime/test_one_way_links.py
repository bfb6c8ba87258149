"""A link that carries one way only, and a change of views around it: real cores on plain journals."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "protocol"))
from core_cluster import Cluster

ROUND_TIMEOUT_MS = 400


def view_without(cluster: Cluster, gone: str, rest: str) -> int:
    """Milliseconds from the farewell of ``gone`` until all the others work in a view of their own."""
    cluster.executors[gone].leave(cluster.now(gone), 5000)
    began = cluster.now_ms
    cluster.run(5)
    while not all(_works_in(cluster, node, len(rest)) for node in rest):
        assert cluster.now_ms < began + 20_000, [cluster.core(node).views.blocked_reason for node in rest]
        cluster.run(5)
    return cluster.now_ms - began


def _works_in(cluster: Cluster, node: str, members: int) -> bool:
    views = cluster.core(node).views
    return views.accepted is not None and len(views.accepted.members) == members and views.is_active


def test_a_leave_takes_milliseconds() -> None:
    cluster = Cluster("abcd", round_timeout_ms=ROUND_TIMEOUT_MS, idle_interval_ms=100).founded()
    assert view_without(cluster, "d", "abc") <= 100


def test_a_leave_takes_milliseconds_around_a_link_that_carries_one_way() -> None:
    """Nothing arrives from a at c, but b hears both: a must not take c's word through b for an answer."""
    cluster = Cluster("abcd", round_timeout_ms=ROUND_TIMEOUT_MS, idle_interval_ms=100).founded()
    cluster.cut.add(("a", "c"))
    cluster.run(5 * ROUND_TIMEOUT_MS)
    assert not cluster.core("a").failure_detector.is_bidirectional("c")
    assert view_without(cluster, "d", "abc") <= 100
