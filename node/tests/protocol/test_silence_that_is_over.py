"""Silence that is over when all have agreed to a view."""

from __future__ import annotations

from itertools import pairwise

import pytest
from changing_views import back_up, in_view, run_until_in_view
from core_cluster import Cluster

from txlog.model.records import ViewAccepted


@pytest.mark.parametrize("strategy", ["None", "Smart"])
@pytest.mark.parametrize("nodes", ["ab", "abc"])
def test_who_has_just_agreed_to_a_view_is_not_silent(nodes: str, strategy: str) -> None:
    """All were apart for long. When they are one again nobody is let go for the silence before that."""
    times = {"idle_interval_ms": 100, "max_peer_lag_ms": 800, "none_split_delay_ms": 800}
    cluster = Cluster(nodes, **times, strategy=strategy).founded()  # type: ignore[arg-type]
    links = {(x, y) for x in nodes for y in nodes if x != y}
    for offset in range(0, 60, 3):
        cluster.cut = set(links)
        cluster.run(1000 + offset)
        back_up(cluster, *nodes)
        for node in nodes:
            run_until_in_view(cluster, node)
        cluster.run(1000)
        before = {node: len(cluster.journals[node].records) for node in nodes}
        cluster.cut.clear()
        cluster.run(5000)
        assert in_view(cluster, *nodes)
        for node in nodes:
            records = cluster.journals[node].records[before[node] :]
            views = [one.view for one in records if isinstance(one, ViewAccepted)]
            for one, following in pairwise(views):
                assert {m.node for m in one.members} <= {m.node for m in following.members}, (offset, node, following)
