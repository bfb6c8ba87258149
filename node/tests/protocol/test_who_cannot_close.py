"""Who has failed to close a view lets another one try, also behind a view of its own."""

from __future__ import annotations

import pytest
from changing_views import leave, run_until_in_view
from core_cluster import Cluster
from test_configuration import add, begin


@pytest.mark.parametrize("strategy", ["Smart", "Simple"])
def test_what_is_settled_beside_an_order_is_named_by_who_holds_it(strategy: str) -> None:
    """a leaves, b goes on alone. a comes back cut off, lets b go by order, wrongly, and adds d. b knows nothing of d,
    so a does not follow it; and a, who is to close the view, has of b's log only what it has fetched."""
    cluster = Cluster("ab", idle_interval_ms=100, strategy=strategy).founded()  # type: ignore[arg-type]
    leave(cluster, "a")
    run_until_in_view(cluster, "b")
    cluster.submit("b", "x", "y")
    cluster.run(500)
    cluster.cut = {("a", "b"), ("b", "a"), ("d", "b"), ("b", "d")}
    cluster.start("a")
    cluster.run(1000)
    cluster.executors["a"].force_view(["b"])
    run_until_in_view(cluster, "a")
    add(cluster, "a", "d")
    begin(cluster, "d", 44)
    run_until_in_view(cluster, "a", "d")
    cluster.submit("a", "wrong")
    cluster.run(500)
    cluster.cut.clear()
    end_ms = cluster.now_ms + 60_000
    while cluster.core("a").views.number != cluster.core("b").views.number or not cluster.core("a").views.is_active:
        assert cluster.now_ms < end_ms, {
            n: (c.core.state, c.core.views.blocked_reason) for n, c in cluster.executors.items()
        }
        cluster.run(20)
    cluster.run(3000)
    assert cluster.log("a") == cluster.log("b")
    assert cluster.log("b")[:2] == ["b1", "b2"]
    assert set(cluster.log("b")) >= {"b1", "b2", "a1", "a2"}
