"""Preferences that change while masters run: a view of the same members with another strategy, and times."""

from __future__ import annotations

from dataclasses import replace

from core_cluster import Cluster

NUMBER = (1, 1, "a")


def prefer(cluster: Cluster, node: str, strategy: str) -> None:
    executor = cluster.executors[node]
    executor.adopt(replace(executor.core.settings, strategy=strategy))
    cluster.run(0)


def strategies(cluster: Cluster) -> set[str]:
    return {cluster.core(n).views.accepted.strategy for n in cluster.executors}  # type: ignore[union-attr]


def numbers(cluster: Cluster) -> set[tuple[int, int, str]]:
    return {cluster.core(n).views.number for n in cluster.executors}


def test_the_same_members_are_installed_anew_with_the_safest_that_they_prefer() -> None:
    cluster = Cluster(idle_interval_ms=100).founded()
    assert (numbers(cluster), strategies(cluster)) == ({NUMBER}, {"Smart"})
    cluster.submit("a", "one")
    cluster.run(100)
    prefer(cluster, "c", "Simple")
    cluster.run(3000)
    assert strategies(cluster) == {"Simple"}
    (number,) = numbers(cluster)
    assert number > NUMBER
    view = cluster.core("a").views.accepted
    assert view is not None
    assert (view.preferred_strategies, [m.node for m in view.members]) == (
        ["Smart", "Smart", "Simple"],
        ["a", "b", "c"],
    )
    assert {cluster.core(n).state for n in "abc"} == {"Joined"}
    cluster.submit("b", "two")
    cluster.run(200)
    assert [cluster.log(n) for n in "abc"] == [["a1", "b1"]] * 3

    prefer(cluster, "c", "Smart")
    cluster.run(3000)
    assert strategies(cluster) == {"Smart"}
    (after,) = numbers(cluster)
    cluster.run(5000)
    assert numbers(cluster) == {after}, "and that is the end of it"


def test_three_changes_one_after_the_other_are_one_view() -> None:
    cluster = Cluster(idle_interval_ms=100).founded()
    for node in "abc":
        prefer(cluster, node, "Simple")
        cluster.run(50)
    cluster.run(4000)
    (number,) = numbers(cluster)
    assert (number, strategies(cluster)) == ((2, 1, "a"), {"Simple"})


def test_nothing_changes_while_a_member_is_silent_and_afterwards_it_does() -> None:
    cluster = Cluster(idle_interval_ms=100).founded()
    prefer(cluster, "a", "Simple")
    cluster.cut |= {("c", "a"), ("c", "b"), ("a", "c"), ("b", "c")}
    cluster.run(5000)
    assert cluster.core("a").state == "Suspected"
    assert (numbers(cluster), strategies(cluster)) == ({NUMBER}, {"Smart"})
    cluster.cut.clear()
    cluster.run(5000)
    assert strategies(cluster) == {"Simple"}
    assert {cluster.core(n).state for n in "abc"} == {"Joined"}


def test_a_side_of_a_split_keeps_the_strategy_that_the_split_began_with() -> None:
    cluster = Cluster(idle_interval_ms=100, max_peer_lag_ms=1000).founded()
    cluster.cut |= {("c", "a"), ("c", "b"), ("a", "c"), ("b", "c")}
    cluster.run(600)
    for node in "ac":
        core = cluster.core(node)
        assert core.log_state is not None
        cluster.executors[node].backup_done(
            core.log_state.stable, core.log_state.log_index.hash_at(core.log_state.stable)
        )
    cluster.run(3000)
    assert {cluster.core(n).state for n in "abc"} == {"Isolated"}
    split = {n: cluster.core(n).views.number for n in "abc"}
    for node in "abc":
        prefer(cluster, node, "Simple")
    cluster.run(3000)
    assert {n: cluster.core(n).views.number for n in "abc"} == split
    assert strategies(cluster) == {"Smart"}
    cluster.cut.clear()
    cluster.run(5000)
    (number,) = numbers(cluster)
    view = cluster.core("a").views.accepted
    assert view is not None
    assert (view.merged, view.strategy) == (False, "Simple"), "merged by the old one, on with the new one"
    cluster.run(3000)
    assert numbers(cluster) == {number}


def test_it_is_agreed_on_again_when_a_master_comes_back_with_another_preference() -> None:
    cluster = Cluster(idle_interval_ms=100).founded()
    cluster.crash("b")
    cluster.settings = {"strategy": "Simple", **cluster.settings}  # type: ignore[dict-item]
    cluster.start("b")
    cluster.run(4000)
    assert strategies(cluster) == {"Simple"}
    (number,) = numbers(cluster)
    cluster.run(3000)
    assert numbers(cluster) == {number}


def test_a_shorter_round_time_out_acts_at_once() -> None:
    cluster = Cluster(idle_interval_ms=100, round_timeout_ms=60_000).founded()
    cluster.crash("c")
    cluster.run(2000)
    assert cluster.core("a").state == "Joined", "a minute is not over"
    for node in "ab":
        executor = cluster.executors[node]
        executor.adopt(replace(executor.core.settings, round_timeout_ms=400))
    cluster.run(100)
    assert cluster.core("a").state == "Suspected"


def test_a_cluster_is_founded_with_the_safest_that_its_masters_prefer() -> None:
    """With the first one's alone, workers might execute by the log's end under ``None`` though others forbid it."""
    cluster = Cluster(idle_interval_ms=100)
    for node, strategy in zip("abc", ("None", "Smart", "Simple"), strict=True):
        prefer(cluster, node, strategy)
    cluster.founded()
    assert (numbers(cluster), strategies(cluster)) == ({NUMBER}, {"Simple"})
    view = cluster.core("b").views.accepted
    assert view is not None
    assert view.preferred_strategies == ["None", "Smart", "Simple"]
    cluster.run(3000)
    assert numbers(cluster) == {NUMBER}
