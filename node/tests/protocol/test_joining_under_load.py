"""A master joins while the others write at a high rate: it is judged by time, and the pause stays short."""

from __future__ import annotations

import pytest
from changing_views import assert_same_logs, forget, in_view, leave
from core_cluster import Cluster, update

PIECE_MS = 2
WRITERS = "ab"


def write(cluster: Cluster, per_s: int, for_ms: int) -> int:
    """So many transactions a second at a and b together; how many there were."""
    count = 0
    for _ in range(for_ms // PIECE_MS):
        for node in WRITERS:
            piece = [update("x")] * (per_s * PIECE_MS // 1000 // len(WRITERS))
            cluster.executors[node].submit(piece, cluster.now(node))
            count += len(piece)
        cluster.run(PIECE_MS)
    return count


@pytest.mark.parametrize("lost_disk", [False, True])
@pytest.mark.parametrize("per_s", [2_000, 10_000, 40_000])
def test_a_master_joins_while_the_others_write(per_s: int, lost_disk: bool) -> None:
    cluster = Cluster("abc", idle_interval_ms=1000, round_timeout_ms=2000).founded(4000)
    count = write(cluster, per_s, 100)
    leave(cluster, "c")
    count += write(cluster, per_s, 400)
    if lost_disk:
        forget(cluster, "c")
    cluster.start("c")
    end_ms = cluster.now_ms + 3000
    while not in_view(cluster, "a", "b", "c"):
        assert cluster.now_ms < end_ms, cluster.core("c").state
        count += write(cluster, per_s, 20)
    assert_same_logs(cluster, count)
