"""Whole masters go on without one that is proved down, and wait where nobody vouches for the proof (rule 27)."""

from __future__ import annotations

import pytest
from changing_views import assert_same_logs, back_up, in_view, run_until_in_view
from core_cluster import Cluster

from txlog.model.errors import Conflict


def test_a_proof_of_down_lets_the_others_go_on_at_once() -> None:
    cluster = Cluster(idle_interval_ms=100).founded()
    cluster.submit("a", "x")
    cluster.run(100)
    start, birth = cluster.core("c").start, cluster.core("c").birth
    cluster.crash("c")
    cluster.executors["b"].prove_down("c", birth, start)
    cluster.run(5)
    run_until_in_view(cluster, "a", "b", within_ms=2500)
    cluster.submit("a", "y")
    cluster.run(100)
    assert cluster.marks["a"].synced == 2
    cluster.start("c")
    run_until_in_view(cluster, "a", "b", "c")
    with pytest.raises(Conflict):
        cluster.executors["b"].prove_down("c", birth, start)
    assert_same_logs(cluster, 2)


def test_rule_27_a_proof_that_nobody_can_vouch_for_is_not_used() -> None:
    """a has started anew since it heard b at work: b may have let it go and gone on meanwhile."""
    cluster = Cluster("ab", idle_interval_ms=100).founded()
    birth, start = cluster.core("b").birth, cluster.core("b").start
    cluster.crash("a")
    cluster.run(10)
    cluster.executors["b"].prove_down("a", cluster.journals["a"].birth, cluster.journals["a"].start)
    run_until_in_view(cluster, "b", within_ms=2500)
    cluster.submit("b", "x")
    cluster.run(100)
    cluster.crash("b")
    cluster.start("a")
    cluster.run(2500)
    cluster.executors["a"].prove_down("b", birth, start)
    cluster.run(4000)
    assert not in_view(cluster, "a")
    assert cluster.core("a").views.promised > cluster.core("a").views.number, "it has tried"
    cluster.start("b")
    run_until_in_view(cluster, "a", "b", within_ms=60_000)
    assert_same_logs(cluster, 1)


def test_rule_27_one_that_has_not_heard_this_process_is_not_vouched_for() -> None:
    """a hears b at work, and b does not hear that a has started anew: what proves the earlier a down counts there."""
    cluster = Cluster("ab", idle_interval_ms=100).founded()
    birth, start = cluster.core("b").birth, cluster.core("b").start
    cluster.cut.add(("a", "b"))
    cluster.crash("a")
    down = (cluster.journals["a"].birth, cluster.journals["a"].start)
    cluster.start("a")
    cluster.run(300)
    assert cluster.core("a").peers[0].replica_state is not None, "a has heard it since"
    cluster.executors["b"].prove_down("a", *down)
    run_until_in_view(cluster, "b", within_ms=2500)
    cluster.submit("b", "x")
    cluster.run(100)
    cluster.crash("b")
    cluster.run(2500)
    cluster.executors["a"].prove_down("b", birth, start)
    cluster.run(4000)
    assert not in_view(cluster, "a")
    assert cluster.core("a").views.promised > cluster.core("a").views.number, "it has tried"
    cluster.cut.clear()
    cluster.start("b")
    run_until_in_view(cluster, "a", "b", within_ms=60_000)
    assert_same_logs(cluster, 1)


def test_rule_27_one_that_has_heard_this_process_is_vouched_for() -> None:
    """a has started anew and has heard b at work since, and b has heard it."""
    cluster = Cluster("ab", idle_interval_ms=100).founded()
    cluster.crash("a")
    cluster.start("a")
    cluster.run(1000)
    cluster.crash("b")
    cluster.executors["a"].prove_down("b", cluster.journals["b"].birth, cluster.journals["b"].start)
    run_until_in_view(cluster, "a", within_ms=2500)


def test_rule_27_one_word_is_enough_where_another_has_heard_an_earlier_process_only() -> None:
    """The link between b and c is lost when c starts anew: a alone hears that process at work."""
    cluster = Cluster(idle_interval_ms=100).founded()
    cluster.cut = {("b", "c"), ("c", "b")}
    cluster.crash("c")
    cluster.start("c")
    cluster.run(1500)
    assert in_view(cluster, "a", "b", "c")
    cluster.crash("c")
    cluster.run(500)
    cluster.executors["a"].prove_down("c", cluster.journals["c"].birth, cluster.journals["c"].start)
    run_until_in_view(cluster, "a", "b", within_ms=2500)


def test_rule_27_one_that_was_left_behind_before_vouches_for_nobody() -> None:
    """a is left behind by b and c, c lets b go and works on, and ends. a, which never ended, has heard c at work: in a
    view that c has left long ago."""
    cluster = Cluster(idle_interval_ms=100, max_peer_lag_ms=800).founded()
    cluster.run(300)
    cluster.cut = {("a", "b"), ("b", "a"), ("a", "c"), ("c", "a")}
    cluster.run(600)
    back_up(cluster, "b", "c")
    run_until_in_view(cluster, "b", "c", within_ms=5000)
    cluster.run(300)
    cluster.crash("b")
    cluster.executors["c"].prove_down("b", cluster.journals["b"].birth, cluster.journals["b"].start)
    run_until_in_view(cluster, "c", within_ms=2500)
    cluster.submit("c", "x")
    cluster.run(100)
    cluster.crash("c")
    cluster.cut.clear()
    cluster.start("b")
    cluster.run(1000)
    for node in "ab":
        cluster.executors[node].prove_down("c", cluster.journals["c"].birth, cluster.journals["c"].start)
    cluster.run(4000)
    assert cluster.core("b").views.promised > cluster.core("b").views.number, "it has tried"
    assert not cluster.core("b").views.is_active, "nobody knows what c went on to"
    cluster.start("c")
    run_until_in_view(cluster, "a", "b", "c", within_ms=60_000)
    assert_same_logs(cluster, 1)


def test_a_proof_that_nobody_can_vouch_for_holds_nobody_longer_than_silence() -> None:
    """Less known of b is less: without the proof a would go on when the term is over and its backup stands."""
    cluster = Cluster("ab", idle_interval_ms=100, max_peer_lag_ms=2000).founded()
    cluster.crash("b")
    cluster.crash("a")
    cluster.start("a")
    cluster.run(1500)
    cluster.executors["a"].prove_down("b", cluster.journals["b"].birth, cluster.journals["b"].start)
    cluster.run(5000)
    assert not in_view(cluster, "a")
    back_up(cluster, "a")
    run_until_in_view(cluster, "a", within_ms=5000)
    view = cluster.core("a").views.accepted
    assert view is not None
    assert view.silent_members == ["b"]
