"""What whole masters do in the tests of views (leave, lose a disk, back up, prefer a strategy), and how one waits."""

from __future__ import annotations

from dataclasses import replace

from core_cluster import Cluster

from txlog.model.records import OperatorOverrides
from txlog_simulation.reference_journal import recovered_state


def in_view(cluster: Cluster, *nodes: str) -> bool:
    """These masters, and only these, are the members of one view, and work in it."""
    views = [cluster.core(node).views for node in nodes]
    numbers = {views_of.number for views_of in views}
    members = {m.node for v in views if v.accepted is not None for m in v.accepted.members}
    return len(numbers) == 1 and members == set(nodes) and all(v.is_active for v in views)


def run_until_in_view(cluster: Cluster, *nodes: str, within_ms: int = 10_000) -> None:
    end_ms = cluster.now_ms + within_ms
    while not in_view(cluster, *nodes):
        assert cluster.now_ms < end_ms, {
            n: (c.core.state, c.core.views.blocked_reason) for n, c in cluster.executors.items()
        }
        cluster.run(20)


def leave(cluster: Cluster, node: str) -> None:
    """As its shell does at SIGTERM: it ends when it says that it may."""
    cluster.executors[node].leave(cluster.now(node), 2000)
    end_ms = cluster.now_ms + 5000
    while not cluster.core(node).is_leave_done:
        assert cluster.now_ms < end_ms
        cluster.run(10)
    cluster.crash(node)


def forget(cluster: Cluster, node: str, birth: int = 77) -> None:
    """Its disk is lost; the next start finds an empty folder."""
    journal = cluster.journals[node]
    journal.records, journal.durable, journal.birth, journal.start = [], 0, birth, 0


def assert_same_logs(cluster: Cluster, count: int) -> None:
    cluster.run(1000)
    logs = {node: cluster.log(node) for node in cluster.executors}
    assert len({tuple(log) for log in logs.values()}) == 1, logs
    assert len(next(iter(logs.values()))) == count
    for node in cluster.executors:
        agreement = cluster.core(node).log_state
        assert agreement is not None
        assert agreement.stable == count


def back_up(cluster: Cluster, *nodes: str) -> None:
    """A split backup of a worker of each of these stands."""
    for node in nodes:
        agreement = cluster.core(node).log_state
        assert agreement is not None
        cluster.executors[node].backup_done(agreement.stable, agreement.log_index.hash_at(agreement.stable))


def prefer(cluster: Cluster, strategy: str) -> None:
    """Everybody prefers it from now on; until a view that does is at work."""
    for node in cluster.executors:
        cluster.core(node).apply_settings(replace(cluster.core(node).settings, strategy=strategy))
    end_ms = cluster.now_ms + 5000
    while any(cluster.core(node).views.accepted.strategy != strategy for node in cluster.executors):  # type: ignore[union-attr]
        assert cluster.now_ms < end_ms
        cluster.run(5)


def answered(cluster: Cluster, node: str) -> None:
    """What its operator waits for: everything that was said is durable, and nothing has come of it yet."""
    executor = cluster.executors[node]
    while (sync := executor.begin_sync()) is not None:
        sync.run()
        executor.end_sync()


def ordered(cluster: Cluster, node: str) -> OperatorOverrides:
    """As a start of it now would find them."""
    journal = cluster.journals[node]
    return recovered_state(node, journal.birth, 1, journal.records[: journal.durable]).overrides
