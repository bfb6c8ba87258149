"""Overrides of the operator: a cluster begins without all members (``txlog bootstrap``)."""

from __future__ import annotations

import pytest
from changing_views import answered, assert_same_logs, ordered, run_until_in_view
from core_cluster import Cluster

from txlog.model.errors import Conflict
from txlog.model.records import NO_OVERRIDES, OperatorOverrides


def told_to_begin_and_crashed() -> Cluster:
    """a is to begin with b, since c is away, and ends right behind its answer."""
    cluster = Cluster(idle_interval_ms=100)
    cluster.crash("c")
    cluster.run(300)
    cluster.executors["a"].bootstrap(["a", "b"])
    answered(cluster, "a")
    cluster.crash("a")
    return cluster


def test_an_order_to_begin_is_kept_over_a_crash_right_behind_the_answer() -> None:
    cluster = told_to_begin_and_crashed()
    assert ordered(cluster, "a") == OperatorOverrides(["a", "b"], [])
    cluster.start("a")
    run_until_in_view(cluster, "a", "b", within_ms=3000)
    assert ordered(cluster, "a") == NO_OVERRIDES
    cluster.start("c")
    run_until_in_view(cluster, "a", "b", "c")


def test_an_order_to_begin_means_nothing_where_the_manifests_name_others_since() -> None:
    cluster = told_to_begin_and_crashed()
    cluster.crash("b")
    cluster.members = tuple(m for m in cluster.members if m.node != "b")
    cluster.start("a")
    cluster.run(1500)
    assert cluster.core("a").views.accepted is None, "c was not named, and is waited for"
    cluster.start("c")
    run_until_in_view(cluster, "a", "c")


def unfounded(*away: str) -> Cluster:
    """Three masters, some of which nobody has ever heard."""
    cluster = Cluster(idle_interval_ms=100)
    for node in away:
        cluster.crash(node)
    cluster.run(2000)
    assert all(not cluster.core(node).membership.bootstrap.is_bootstrapped for node in cluster.executors)
    return cluster


@pytest.mark.parametrize("away", ["a", "b", "c"])
def test_a_cluster_is_founded_by_order_and_the_last_one_is_let_in_when_it_comes(away: str) -> None:
    cluster = unfounded(away)
    here = [node for node in "abc" if node != away]
    cluster.executors[here[0]].bootstrap(here)
    run_until_in_view(cluster, *here, within_ms=2000)
    cluster.submit(here[1], "x")
    cluster.run(100)
    assert cluster.marks[here[1]].synced == 1
    cluster.start(away)
    run_until_in_view(cluster, "a", "b", "c")
    cluster.submit(away, "y")
    assert_same_logs(cluster, 2)


def test_an_order_to_found_that_cannot_be_meant_is_refused() -> None:
    cluster = unfounded("c")
    for at, members, why in (("b", ["a", "b"], "a comes first"), ("a", ["a", "b", "c"], "c did not answer")):
        with pytest.raises(Conflict, match=why):
            cluster.executors[at].bootstrap(members)
    cluster.start("c")
    run_until_in_view(cluster, "a", "b", "c")
    with pytest.raises(Conflict, match="founded cluster already"):
        cluster.executors["a"].bootstrap(["a", "b"])


def test_who_held_a_founding_that_never_came_about_is_let_in() -> None:
    """c has accepted the founding record of all three, durably; then a and b found without it."""
    cluster = Cluster(idle_interval_ms=100)
    while cluster.core("a").views.accepted is None:
        assert cluster.now_ms < 3000
        cluster.run(1)
    cluster.cut = {("c", "a")}
    cluster.run(300)
    assert cluster.core("c").views.accepted is not None
    cluster.crash("c", kept=99)
    cluster.cut.clear()
    assert not cluster.core("a").membership.bootstrap.is_bootstrapped
    cluster.executors["a"].bootstrap(["a", "b"])
    run_until_in_view(cluster, "a", "b", within_ms=3000)
    cluster.submit("a", "x")
    cluster.run(100)
    assert cluster.start("c").core.views.accepted is not None
    run_until_in_view(cluster, "a", "b", "c")
    cluster.submit("c", "y")
    assert_same_logs(cluster, 2)


@pytest.mark.parametrize("later", [False, True])
def test_a_founding_that_an_order_replaced_is_heard_late(later: bool) -> None:
    """a proposes the cluster of all three, then begins without c by order; b hears the first proposal once more."""
    cluster = Cluster(idle_interval_ms=100)
    while cluster.core("a").views.accepted is None:
        assert cluster.now_ms < 3000
        cluster.run(1)
    first = cluster.core("a").views.accepted
    assert first is not None
    cluster.cut = {("c", "a")}
    cluster.executors["a"].bootstrap(["a", "b"])
    run_until_in_view(cluster, "a", "b", within_ms=3000)
    if later:
        cluster.cut.clear()
        run_until_in_view(cluster, "a", "b", "c")
    core = cluster.core("b")
    core.membership.bootstrap.on_propose("a", first)
    assert not core.outbox.sends
    view = cluster.core("b").views.accepted
    assert view is not None
    assert view.cluster_id != first.cluster_id


def test_few_begin_no_cluster_that_needs_a_majority() -> None:
    """Nobody could be let in by those who are no majority, ever."""
    cluster = Cluster(idle_interval_ms=100, majority=True)
    cluster.crash("b")
    cluster.crash("c")
    cluster.run(1000)
    with pytest.raises(Conflict, match="more than half of the votes"):
        cluster.executors["a"].bootstrap(["a"])
    cluster.start("b")
    cluster.run(1000)
    cluster.executors["a"].bootstrap(["a", "b"])
    run_until_in_view(cluster, "a", "b")
    cluster.start("c")
    run_until_in_view(cluster, "a", "b", "c")


def test_who_has_accepted_a_founding_begins_no_other() -> None:
    """a begins the cluster of all three, and is cut off as soon as it has their word; b is told to begin without it
    while the last that it heard of c is older."""
    cluster = Cluster(idle_interval_ms=100)
    while cluster.core("a").views.accepted is None:
        assert cluster.now_ms < 3000
        cluster.run(1)
    cluster.cut = {("b", "c"), ("c", "b")}
    while not cluster.core("a").membership.bootstrap.is_bootstrapped:
        assert cluster.now_ms < 3000
        cluster.run(1)
    cluster.cut = {("a", "b"), ("a", "c")}
    with pytest.raises(Conflict, match="may be complete"):
        cluster.executors["b"].bootstrap(["b", "c"])
    cluster.run(2000)
    assert not cluster.core("b").membership.bootstrap.is_bootstrapped
    cluster.cut.clear()
    run_until_in_view(cluster, "a", "b", "c")


def test_an_order_and_a_founding_of_all_make_one_cluster() -> None:
    """The order comes first, but c does not hear of it; then a comes, which needs nobody's order."""
    cluster = Cluster(idle_interval_ms=100)
    cluster.cut = {("a", "b"), ("a", "c"), ("b", "a"), ("c", "a")}
    cluster.run(1000)
    cluster.cut |= {("b", "c")}
    cluster.executors["b"].bootstrap(["b", "c"])
    cluster.run(300)
    assert cluster.core("b").views.bootstrap_unconfirmed
    cluster.cut = {("b", "c"), ("a", "c")}
    cluster.run(1000)
    cluster.cut.clear()
    run_until_in_view(cluster, "a", "b", "c")
    views = [each.core.views.accepted for each in cluster.executors.values()]
    assert len({view.cluster_id for view in views if view is not None}) == 1


def test_a_founding_is_proposed_above_what_an_order_began() -> None:
    """a began without b by order, unheard; b without a by another, and c agreed; then b is gone for good."""
    cluster = Cluster(idle_interval_ms=100)
    cluster.cut = {("a", "b"), ("b", "a")}
    cluster.run(500)
    cluster.cut = {(one, other) for one in "abc" for other in "abc"}
    for node in "ab":
        cluster.executors[node].bootstrap([node, "c"])
        cluster.run(300)
        assert cluster.core(node).views.bootstrap_unconfirmed
    cluster.cut.remove(("b", "c"))
    cluster.run(500)
    assert cluster.core("c").views.accepted == cluster.core("b").views.accepted
    cluster.crash("b")
    cluster.cut.clear()
    run_until_in_view(cluster, "a", "c")
