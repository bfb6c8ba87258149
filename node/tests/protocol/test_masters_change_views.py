"""Whole masters change their view: leaves, lost links, crashes between two steps, splits (rules 21, 22, 23)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from changing_views import assert_same_logs, back_up, forget, in_view, leave, prefer, run_until_in_view
from core_cluster import Cluster

from txlog.model.errors import Conflict
from txlog.model.ids import Origin
from txlog.wire.messages import ProposeBootstrap, encode

# Leaves


def test_a_leave_costs_the_others_nothing_and_it_comes_back() -> None:
    cluster = Cluster(idle_interval_ms=100).founded()
    cluster.submit("c", "x")
    leave(cluster, "c")
    run_until_in_view(cluster, "a", "b", within_ms=1000)
    cluster.submit("a", "y")
    cluster.run(100)
    assert cluster.core("a").state == "Joined"
    assert cluster.marks["a"].synced == 1
    cluster.start("c")
    run_until_in_view(cluster, "a", "b", "c", within_ms=3000)
    cluster.submit("c", "z")
    assert_same_logs(cluster, 3)


def test_a_founding_record_that_comes_late_is_passed_over() -> None:
    cluster = Cluster(idle_interval_ms=100).founded()
    first = cluster.core("b").views.accepted
    assert first is not None
    leave(cluster, "c")
    run_until_in_view(cluster, "a", "b", within_ms=1000)
    cluster.receive("a", "b", encode(ProposeBootstrap(first)))
    run_until_in_view(cluster, "a", "b", within_ms=1000)
    assert "OtherCluster" not in cluster.faults["b"]


def test_the_whole_cluster_leaves_and_comes_back_in_any_order() -> None:
    """Rule 27: the first to return was the first to leave and knows the least; it waits for the others."""
    cluster = Cluster(idle_interval_ms=100).founded()
    leave(cluster, "a")
    run_until_in_view(cluster, "b", "c")
    cluster.submit("b", "x")
    cluster.run(100)
    leave(cluster, "b")
    run_until_in_view(cluster, "c")
    cluster.submit("c", "y")
    cluster.run(100)
    leave(cluster, "c")
    cluster.start("a")
    cluster.run(3000)
    assert not cluster.core("a").views.is_active, "it does not know what followed"
    cluster.start("b")
    cluster.run(3000)
    assert not cluster.core("a").views.is_active
    assert not cluster.core("b").views.is_active, "c was let go by nobody and went on"
    cluster.start("c")
    run_until_in_view(cluster, "a", "b", "c")
    assert_same_logs(cluster, 2)


# Lost links (rule 22)


@pytest.mark.parametrize("lost", [{("a", "b"), ("b", "a")}, {("a", "b")}, {("b", "a")}], ids=["both", "to b", "to a"])
def test_rule_22_a_view_changes_around_a_lost_link(lost: set[tuple[str, str]]) -> None:
    """Proposal, report, payloads and install all go through c, in either direction."""
    cluster = Cluster("abc", idle_interval_ms=100).founded()
    cluster.submit("b", "x")
    cluster.run(100)
    cluster.cut = set(lost)
    cluster.crash("a")
    forget(cluster, "a")
    cluster.start("a")
    run_until_in_view(cluster, "a", "b", "c", within_ms=20_000)
    cluster.run(500)  # b cannot tell a what it has heard of it, so a waits for that for one round time-out
    cluster.submit("a", "y")
    cluster.run(2000)
    assert_same_logs(cluster, 2)


def test_rule_22_laggers_at_the_end_of_a_chain_are_let_in_one_after_the_other() -> None:
    """a and c hear b only. a went on alone, so b and c lag behind it: b alone first, since a does not hear of c."""
    cluster = Cluster("abc", idle_interval_ms=100).founded()
    cluster.submit("c", "x")
    cluster.run(300)
    cluster.cut = {("a", "c"), ("c", "a")}
    for node in ("b", "c"):
        start = cluster.core(node).start
        cluster.crash(node)
        cluster.executors["a"].prove_down(node, cluster.journals[node].birth, start)
    run_until_in_view(cluster, "a")
    cluster.submit("a", "y")
    cluster.run(100)
    cluster.start("b")
    cluster.start("c")
    run_until_in_view(cluster, "a", "b", "c")
    assert_same_logs(cluster, 2)


def test_rule_24_a_proof_about_a_process_that_others_have_heard_again_is_stale() -> None:
    """a hears c, c hears b, b hears d: that d is back is relayed to a."""
    cluster = Cluster("abcd", idle_interval_ms=100).founded()
    cluster.submit("d", "x")
    cluster.run(300)
    near = {frozenset("ac"), frozenset("cb"), frozenset("bd")}
    cluster.cut = {(one, other) for one in "abcd" for other in "abcd" if frozenset((one, other)) not in near}
    start = cluster.core("d").start
    cluster.crash("d")
    cluster.start("d")
    cluster.run(2000)
    with pytest.raises(Conflict, match="was seen"):
        cluster.executors["a"].prove_down("d", cluster.journals["d"].birth, start)
    assert in_view(cluster, "a", "b", "c", "d")


# Crashes between any two steps


@pytest.mark.parametrize("node", ["a", "b", "c"])
@pytest.mark.parametrize("step", range(0, 30, 3))
def test_a_change_goes_on_after_a_crash_at_any_step(node: str, step: int) -> None:
    """c comes back after a leave; ``node`` crashes behind the first ``step`` messages of letting it in."""
    for kept in (0, 1, 9):
        cluster = Cluster(idle_interval_ms=100).founded()
        cluster.submit("c", "x")
        leave(cluster, "c")
        run_until_in_view(cluster, "a", "b")
        cluster.submit("a", "y")
        cluster.run(100)
        cluster.start("c")
        seen = 0
        receive = cluster.receive

        def counting(source: str, target: str, data: bytes) -> None:
            nonlocal seen
            if seen < step:
                seen += 1
                receive(source, target, data)  # noqa: B023

        cluster.receive = counting  # type: ignore[method-assign]
        cluster.run(60)
        cluster.receive = receive  # type: ignore[method-assign]
        cluster.crash(node, kept)
        cluster.run(30)
        cluster.start(node)
        run_until_in_view(cluster, "a", "b", "c", within_ms=20_000)
        cluster.submit("b", "z")
        assert_same_logs(cluster, 3)


# Splits


def test_rule_23_a_backup_of_an_earlier_silence_is_none_for_the_next() -> None:
    cluster = Cluster(idle_interval_ms=100, max_peer_lag_ms=500).founded()
    views = cluster.core("a").views
    agreement = views.log_state
    assert agreement is not None
    cluster.executors["a"].backup_done(agreement.stable, agreement.log_index.hash_at(agreement.stable))
    cluster.run(300)
    assert views.backup_index == -1
    cluster.crash("b")
    cluster.crash("c")
    before = views.number
    cluster.run(8000)
    assert views.number == before, "it went on without a backup"
    cluster.executors["a"].backup_done(agreement.stable, agreement.log_index.hash_at(agreement.stable))
    run_until_in_view(cluster, "a")


def test_rule_23_a_backup_of_the_one_that_is_left_behind_is_none() -> None:
    cluster = Cluster(idle_interval_ms=100, max_peer_lag_ms=500).founded()
    views, before = cluster.core("b").views, cluster.core("b").views.number
    patient = cluster.core("a").settings
    cluster.core("a").apply_settings(replace(patient, max_peer_lag_ms=60_000))  # it stays in the view
    cluster.cut = {("a", "b"), ("b", "a"), ("a", "c"), ("c", "a")}
    agreement = cluster.core("a").views.log_state
    assert agreement is not None
    cluster.run(450)
    cluster.executors["a"].backup_done(agreement.stable, agreement.log_index.hash_at(agreement.stable))
    cluster.cut -= {("a", "b")}  # it is heard again, by b alone, and hears nobody
    cluster.run(8000)
    assert views.number == before, "it went on without a backup"
    cluster.executors["c"].backup_done(agreement.stable, agreement.log_index.hash_at(agreement.stable))
    run_until_in_view(cluster, "b", "c")


def test_rule_23_a_backup_of_one_that_leaves_is_none_for_those_who_stay() -> None:
    """It was to go on with them; its data centre's backup does not help their workers back."""
    cluster = Cluster(idle_interval_ms=100, max_peer_lag_ms=1000).founded()
    views, before = cluster.core("a").views, cluster.core("a").views.number
    agreement = cluster.core("b").views.log_state
    assert agreement is not None
    cluster.crash("c")
    cluster.run(450)
    cluster.executors["b"].backup_done(agreement.stable, agreement.log_index.hash_at(agreement.stable))
    cluster.run(700)  # it has told of it, and is not silent yet when the term is over
    leave(cluster, "b")
    cluster.run(8000)
    assert views.number == before, "it went on without a backup"
    back_up(cluster, "a")
    run_until_in_view(cluster, "a")


@pytest.mark.parametrize("majority", [False, True], ids=["Continue", "Majority"])
def test_silent_members_are_let_go_by_masters_that_know_other_processes_of_them(majority: bool) -> None:
    """c was heard anew by a alone before it fell silent, and d by b alone: nobody knows the latest process of both."""
    stay = "abe" if majority else "ab"
    cluster = Cluster(stay[:2] + "cd" + stay[2:], idle_interval_ms=100, max_peer_lag_ms=800, majority=majority)
    cluster.founded()
    for node, hearer in (("c", "a"), ("d", "b")):
        cluster.cut = {(one, other) for one in "abcde" for other in "abcde" if {one, other} != {node, hearer}}
        cluster.crash(node)
        cluster.start(node)
        cluster.run(15)  # it has asked, and not posted: nobody relays that
        cluster.crash(node)
    heard = {
        node: [cluster.core(node).views.last_start_seen(Origin(*gone)) for gone in (("c", 3), ("d", 4))]
        for node in stay
    }
    assert (heard["a"], heard["b"]) == ([2, 1], [1, 2])
    cluster.cut.clear()
    cluster.run(600)
    if not majority:
        back_up(cluster, *stay)
    run_until_in_view(cluster, *stay, within_ms=15_000)
    cluster.submit("a", "x")
    cluster.run(300)
    assert cluster.marks["a"].synced == 1


def test_one_that_a_lagging_coordinator_knows_nothing_of_may_have_gone_on() -> None:
    """c and b agree on a view, of which b does not hear that it is installed. Then b finds a, which left before it and
    goes on with it, without c, of which it knows that it left long ago. c goes on alone, and wins the rejoin."""
    cluster = Cluster(idle_interval_ms=100, heavy="c", max_peer_lag_ms=800).founded()
    leave(cluster, "c")
    run_until_in_view(cluster, "a", "b")
    leave(cluster, "a")
    cluster.start("c")
    run_until_in_view(cluster, "b", "c")
    cluster.run(500)
    before = cluster.core("b").views.number
    cluster.core("c").apply_settings(replace(cluster.core("c").settings, strategy="Simple"))
    while cluster.core("b").views.number == before:
        assert cluster.now_ms < 60_000
        cluster.run(1)
    cluster.cut = {("c", "b")}
    cluster.run(5)
    assert (cluster.core("c").views.installed, cluster.core("b").views.installed) == (True, False)
    cluster.cut = {("a", "c"), ("c", "a"), ("b", "c"), ("c", "b")}
    cluster.start("a")
    run_until_in_view(cluster, "a", "b")
    view = cluster.core("a").views.accepted
    assert view is not None
    assert (view.silent_members, view.diverged_index) == (["c"], 0)
    cluster.submit("a", "x")
    cluster.run(600)
    back_up(cluster, "c")
    run_until_in_view(cluster, "c")
    cluster.submit("c", "y")
    cluster.run(600)
    cluster.cut.clear()
    run_until_in_view(cluster, "a", "b", "c")
    assert_same_logs(cluster, 2)


def test_a_backup_of_before_does_when_a_rejoin_is_cut_off_before_it_is_installed() -> None:
    """Whoever brings both sides together has all accepts, and is cut off before it can say so. What the others have
    accepted cuts off what their workers stand on, so that no backup can be made. The one of the split still stands, and
    does when it is told again."""
    cluster = Cluster("abc", idle_interval_ms=100, max_peer_lag_ms=800).founded()
    prefer(cluster, "Simple")
    cluster.submit("a", "before")
    cluster.run(500)
    apart = {(x, y) for x in "abc" for y in "abc" if "c" in (x, y) and x != y}
    cluster.cut = set(apart)
    cluster.run(500)
    stood = cluster.core("a").log_state.stable, cluster.core("a").log_state.log_index.hash  # type: ignore[union-attr]
    back_up(cluster, "a", "b", "c")
    run_until_in_view(cluster, "a", "b")
    run_until_in_view(cluster, "c")
    cluster.submit("c", "first")
    cluster.submit("a", "later")
    cluster.run(500)
    cluster.cut.clear()
    end_ms = cluster.now_ms + 10_000
    while not any(
        e.core.log_state.truncated_executed_entries and not e.core.views.installed for e in cluster.executors.values()
    ):  # type: ignore[union-attr]
        assert cluster.now_ms < end_ms
        cluster.run(1)
    cluster.cut = set(apart)
    cluster.run(3000)
    assert cluster.core("a").accepts_earlier_backup
    assert not in_view(cluster, "a", "b")
    cluster.executors["a"].backup_done(*stood)
    run_until_in_view(cluster, "a", "b")
