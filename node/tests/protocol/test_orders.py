"""Overrides of the operator: members are let go (``txlog force-view``)."""

from __future__ import annotations

import pytest
from changing_views import answered, assert_same_logs, forget, in_view, leave, ordered, run_until_in_view
from core_cluster import Cluster

from txlog.model.errors import Conflict
from txlog.model.ids import Origin
from txlog.model.records import NO_OVERRIDES, OperatorOverrides


def test_an_order_goes_on_without_members_that_nobody_can_vouch_for() -> None:
    """Both others are lost for good: a alone has no majority, and no term is ever over for it."""
    cluster = Cluster(majority=True, idle_interval_ms=100).founded()
    cluster.submit("a", "x")
    cluster.run(100)
    cluster.crash("b")
    cluster.crash("c")
    cluster.run(4000)
    assert not in_view(cluster, "a")
    cluster.executors["a"].force_view(["b", "c"])
    run_until_in_view(cluster, "a", within_ms=2000)
    view = cluster.core("a").views.accepted
    assert view is not None
    assert view.excluded_by_override == ["b", "c"]
    cluster.submit("a", "y")
    cluster.run(100)
    assert cluster.marks["a"].synced == 2
    cluster.start("b")
    cluster.start("c")
    run_until_in_view(cluster, "a", "b", "c")
    assert_same_logs(cluster, 2)


def test_an_order_leads_to_its_view_also_when_its_master_ends_right_behind_the_answer() -> None:
    """And once: who has come back since is not let go by it again."""
    cluster = Cluster(majority=True, idle_interval_ms=100).founded()
    cluster.submit("a", "x")
    cluster.run(100)
    births = {node: cluster.journals[node].birth for node in "bc"}
    cluster.crash("b")
    cluster.crash("c")
    cluster.run(4000)
    cluster.executors["a"].force_view(["b", "c"])
    answered(cluster, "a")
    assert ordered(cluster, "a") == OperatorOverrides([], [("b", births["b"], 1), ("c", births["c"], 1)])
    cluster.crash("a")
    cluster.start("a")
    run_until_in_view(cluster, "a", within_ms=5000)
    assert cluster.core("a").views.accepted.excluded_by_override == ["b", "c"]  # type: ignore[union-attr]
    assert ordered(cluster, "a") == NO_OVERRIDES
    cluster.start("b")
    cluster.start("c")
    run_until_in_view(cluster, "a", "b", "c")
    for node in "abc":
        cluster.crash(node)
    cluster.start("a")
    cluster.run(6000)
    assert not in_view(cluster, "a")
    assert set(cluster.core("a").views.departing) == set()


def test_an_order_about_one_that_is_back_is_dropped_for_good() -> None:
    cluster = Cluster(idle_interval_ms=100).founded()
    cluster.crash("b")
    cluster.crash("c")
    cluster.run(1000)
    cluster.executors["a"].force_view(["c"])  # b is still waited for
    cluster.run(100)
    assert [node for node, _, _ in ordered(cluster, "a").excluded_members] == ["c"]
    cluster.start("c")
    cluster.run(500)
    assert ordered(cluster, "a") == NO_OVERRIDES
    written = len(cluster.journals["a"].records)
    cluster.core("a").views.record_overrides()
    cluster.run(100)
    assert not any(isinstance(record, OperatorOverrides) for record in cluster.journals["a"].records[written:])


def test_an_order_about_one_that_is_heard_is_refused_and_changes_nothing() -> None:
    cluster = Cluster(idle_interval_ms=100).founded()
    cluster.crash("c")
    cluster.run(2000)
    for without, why in (
        (["b"], "answers this master"),
        (["a"], "not gone"),
        (["c", "x"], "no member"),
        (["c", "b"], "answers this master"),
    ):
        with pytest.raises(Conflict, match=why):
            cluster.executors["a"].force_view(without)
    cluster.run(1000)
    assert not in_view(cluster, "a", "b")
    cluster.executors["a"].force_view(["c"])
    run_until_in_view(cluster, "a", "b", within_ms=3000)


@pytest.mark.parametrize("first", ["proof", "order"])
def test_neither_a_proof_nor_an_order_replaces_the_other(first: str) -> None:
    """b, for which nobody can vouch, is proved down and let go by the operator, who waits for nobody who vouches."""
    cluster = Cluster("ab", idle_interval_ms=100).founded()
    birth, start = cluster.core("b").birth, cluster.core("b").start
    cluster.crash("b")
    cluster.crash("a")
    a = cluster.start("a")
    cluster.run(100)  # it does not take part yet: what it is told waits
    for what in (first, "order" if first == "proof" else "proof"):
        if what == "proof":
            a.prove_down("b", birth, start)
        else:
            a.force_view(["b"])
    assert {one.why for one in a.core.views.departures.values()} == {"down"}
    assert {node: one.why for node, one in a.core.views.departing.items()} == {"b": "ordered"}
    run_until_in_view(cluster, "a", within_ms=5000)
    view = a.core.views.accepted
    assert view is not None
    assert view.excluded_by_override == ["b"]


def test_a_proof_about_an_earlier_process_that_is_refused_takes_no_order_with_it() -> None:
    """a is told that c's first process is down, and b has heard the second: nobody hears c now."""
    cluster = Cluster(idle_interval_ms=100).founded()
    cluster.cut = {("c", "a"), ("a", "c"), ("a", "b"), ("b", "a")}
    birth, start = cluster.core("c").birth, cluster.core("c").start
    cluster.crash("c")
    cluster.start("c")
    cluster.run(15)
    cluster.crash("c")
    cluster.cut.clear()
    cluster.run(2000)
    a = cluster.executors["a"]
    assert a.core.views.last_start_seen(Origin("c", birth)) == start
    a.force_view(["c"])
    a.prove_down("c", birth, start)
    run_until_in_view(cluster, "a", "b", within_ms=3000)
    view = a.core.views.accepted
    assert view is not None
    assert view.excluded_by_override == ["c"]


def test_an_order_about_one_that_others_hear_is_refused_and_disturbs_nobody() -> None:
    """Else a would propose a view without it, which b refuses, again and again; each time the view is stopped."""
    cluster = Cluster(idle_interval_ms=100).founded()
    cluster.cut = {("a", "c"), ("c", "a")}
    cluster.run(2000)
    number = cluster.core("a").views.number
    with pytest.raises(Conflict, match="c answers others"):
        cluster.executors["a"].force_view(["c"])
    cluster.run(3000)
    assert cluster.core("a").views.number == number
    assert in_view(cluster, "a", "b", "c")


def test_an_order_is_forgotten_when_others_hear_the_member_again() -> None:
    cluster = Cluster("abcd", idle_interval_ms=100).founded()
    cluster.cut = {("a", "c"), ("c", "a"), ("b", "c"), ("c", "b"), ("d", "c"), ("c", "d")}
    cluster.crash("d")
    cluster.run(2000)
    cluster.executors["a"].force_view(["c"])  # d is still waited for
    cluster.run(500)
    cluster.cut -= {("b", "c"), ("c", "b")}
    cluster.run(2000)
    assert cluster.core("a").views.overrides == {}
    cluster.start("d")
    run_until_in_view(cluster, "a", "b", "c", "d")
    cluster.run(2000)
    assert in_view(cluster, "a", "b", "c", "d")


@pytest.mark.parametrize("majority", [False, True], ids=["Continue", "Majority"])
def test_an_order_lets_go_of_whom_it_names_and_of_nobody_else(majority: bool) -> None:
    """a is cut off, and the operator takes c alone for lost. b may go on with c: with Majority a must not."""
    cluster = Cluster(idle_interval_ms=100, majority=majority).founded()
    cluster.cut = {("a", "b"), ("b", "a"), ("a", "c"), ("c", "a")}
    cluster.run(2000)
    cluster.executors["a"].force_view(["c"])
    cluster.run(6000)
    assert cluster.core("a").views.number[0] == 1, "it went on alone"
    if majority:
        run_until_in_view(cluster, "b", "c")
    cluster.submit("b", "x")
    cluster.submit("a", "y")
    cluster.cut.clear()
    run_until_in_view(cluster, "a", "b", "c")
    assert_same_logs(cluster, 2)


def without_two_disks() -> Cluster:
    """``Majority``, one transaction, then b and c lost their disks; births 77 and 78 if they are started."""
    cluster = Cluster(idle_interval_ms=100, majority=True).founded()
    cluster.submit("a", "x")
    cluster.run(200)
    for birth, node in ((77, "b"), (78, "c")):
        cluster.crash(node)
        forget(cluster, node, birth)
    return cluster


def test_an_order_lets_go_of_births_whose_disks_are_lost() -> None:
    """Two of three come back empty: they count for no majority, and need not be stopped for the order."""
    cluster = without_two_disks()
    for node in "bc":
        cluster.start(node)
    cluster.run(5000)
    assert not any(core.core.views.is_active for core in cluster.executors.values())
    cluster.executors["a"].force_view(["b", "c"])
    run_until_in_view(cluster, "a", "b", "c")
    assert_same_logs(cluster, 1)


def test_an_order_is_forgotten_when_the_master_comes_back() -> None:
    cluster = Cluster(idle_interval_ms=100).founded()
    cluster.crash("b")
    cluster.cut |= {("a", "c"), ("c", "a")}
    cluster.run(2000)
    cluster.executors["a"].force_view(["c"])  # b is still waited for
    cluster.cut.clear()
    cluster.run(1000)
    cluster.start("b")
    cluster.run(2000)
    assert in_view(cluster, "a", "b", "c")
    view = cluster.core("a").views.accepted
    assert view is not None
    assert view.excluded_by_override == []


def test_rule_27_a_master_that_left_goes_on_by_order_only() -> None:
    cluster = Cluster("ab", idle_interval_ms=100).founded()
    cluster.submit("a", "x")
    cluster.run(100)
    leave(cluster, "a")
    run_until_in_view(cluster, "b")
    cluster.crash("b")  # for good: what it had ordered alone is lost with it
    cluster.start("a")
    cluster.run(3000)
    assert not cluster.core("a").views.is_active
    cluster.executors["a"].force_view(["b"])
    run_until_in_view(cluster, "a", within_ms=3000)
    cluster.submit("a", "y")
    cluster.run(100)
    assert len(cluster.log("a")) == 2


@pytest.mark.parametrize(
    ("alone", "higher", "order_first"), [("a", False, True), ("c", True, True), ("a", False, False)]
)
def test_what_an_order_put_beside_a_majority_gives_way(alone: str, higher: bool, order_first: bool) -> None:
    """``Majority``. One is cut off, and let the others go by order, wrongly: they are most, and go on. Whichever view
    has the higher number, that of the majority stands, and what the one has ordered alone comes behind it."""
    most = [name for name in "abc" if name != alone]
    cluster = Cluster(idle_interval_ms=100, majority=True).founded()
    cluster.submit(alone, "x")
    cluster.run(200)
    cluster.cut = {link for other in most for link in ((alone, other), (other, alone))}
    if order_first:  # before the term of the others is over
        cluster.run(500)
        cluster.executors[alone].force_view(most)
        run_until_in_view(cluster, alone)
        run_until_in_view(cluster, *most)
    else:
        run_until_in_view(cluster, *most)
        leave(cluster, most[1])
        cluster.start(most[1])
        run_until_in_view(cluster, *most)
        cluster.executors[alone].force_view(most)
        run_until_in_view(cluster, alone)
    numbers = [cluster.core(node).views.number for node in (alone, most[0])]
    assert (numbers[0] > numbers[1]) == higher
    cluster.submit(alone, "alone", "alone too")
    cluster.submit(most[0], "most")
    cluster.run(500)
    assert cluster.marks[alone].synced == 3
    assert cluster.marks[most[0]].synced == 1
    kept = cluster.log(most[0])
    cluster.cut.clear()
    run_until_in_view(cluster, "a", "b", "c")
    assert_same_logs(cluster, 4)
    assert cluster.log(alone)[: len(kept)] == kept


def test_of_two_orders_the_one_whose_line_had_a_majority_for_longer_goes_on() -> None:
    """``Majority``. Two of five go on by order beside the three others, of whom one goes on by order later, after its
    majority had ordered more. What that had ordered stands, though the other two have the higher number."""
    cluster = Cluster("abcde", idle_interval_ms=100, majority=True).founded()
    cluster.submit("a", "x")
    cluster.run(200)
    cluster.cut = {link for one in "abe" for other in "cd" for link in ((one, other), (other, one))}
    run_until_in_view(cluster, "a", "b", "e")
    cluster.executors["c"].force_view(["a", "b", "e"])
    run_until_in_view(cluster, "c", "d")
    cluster.submit("a", "most")
    cluster.submit("c", "few", "few too")
    cluster.run(500)
    kept = cluster.log("a")
    cluster.crash("d")
    cluster.run(2000)
    cluster.executors["c"].force_view(["d"])
    run_until_in_view(cluster, "c")
    cluster.cut |= {link for other in "be" for link in (("a", other), (other, "a"))}
    cluster.run(1000)
    cluster.executors["a"].force_view(["b", "e"])
    run_until_in_view(cluster, "a")
    assert cluster.core("c").views.number > cluster.core("a").views.number
    cluster.cut.clear()
    cluster.start("d")
    run_until_in_view(cluster, "a", "b", "c", "d", "e")
    assert_same_logs(cluster, 4)
    assert cluster.log("c")[: len(kept)] == kept


def test_two_that_orders_put_beside_each_other_are_one_again() -> None:
    cluster = Cluster("ab", idle_interval_ms=100).founded()
    cluster.cut = {("a", "b"), ("b", "a")}
    cluster.run(1000)
    cluster.executors["a"].force_view(["b"])
    cluster.executors["b"].force_view(["a"])
    run_until_in_view(cluster, "a")
    run_until_in_view(cluster, "b")
    cluster.submit("a", "x")
    cluster.submit("b", "y")
    cluster.run(200)
    assert cluster.marks["a"].synced == cluster.marks["b"].synced == 1
    cluster.cut.clear()
    run_until_in_view(cluster, "a", "b")
    assert_same_logs(cluster, 2)


@pytest.mark.parametrize("strategy", ["Smart", "Simple"])
def test_an_order_beside_one_that_nobody_is_apart_from_comes_behind_it(strategy: str) -> None:
    """One leaves, so the other goes on alone, and all that it orders is settled. The first comes back cut off, and the
    operator lets the other go there, wrongly: what stands on the other side keeps its place, also with fewer votes."""
    cluster = Cluster("ab", idle_interval_ms=100, heavy="b", strategy=strategy).founded()
    leave(cluster, "b")
    run_until_in_view(cluster, "a")
    cluster.submit("a", "x", "y")
    cluster.run(500)
    assert cluster.marks["a"].synced == 2
    cluster.cut = {("a", "b"), ("b", "a")}
    cluster.start("b")
    cluster.run(1000)
    cluster.executors["b"].force_view(["a"])
    run_until_in_view(cluster, "b")
    cluster.submit("b", "wrong", "too")
    cluster.run(500)
    cluster.cut.clear()
    run_until_in_view(cluster, "a", "b")
    assert_same_logs(cluster, 4)
    assert cluster.log("b")[:2] == ["a1", "a2"]


def only_a_by_order() -> Cluster:
    """Two of three lost their disks, and an order lets the third go on."""
    cluster = without_two_disks()
    cluster.run(2000)
    cluster.executors["a"].force_view(["b", "c"])
    run_until_in_view(cluster, "a")
    return cluster


def test_one_that_ends_before_it_is_let_in_by_those_of_an_order_is_let_in_later() -> None:
    """It has said nothing to the view that was to let it in, so nobody has gone on in that."""
    cluster = only_a_by_order()
    cluster.start("b")
    deadline_ms = cluster.now_ms + 5000
    while not cluster.core("a").views.accepted.has_member(Origin("b", 77)):  # type: ignore[union-attr]
        assert cluster.now_ms < deadline_ms
        cluster.run(1)
    cluster.crash("b")  # its accept is on the way
    assert not cluster.core("a").views.installed
    cluster.run(1000)
    cluster.start("b")
    cluster.start("c")
    run_until_in_view(cluster, "a", "b", "c")


def test_an_order_that_came_about_nowhere_is_begun_again() -> None:
    """It lets two lost births go and their nodes in again, all in one view. Both of these end before they have heard of
    that view, and so does whoever began it, with the order done in its journal."""
    cluster = without_two_disks()
    for node in "bc":
        cluster.start(node)
    cluster.run(2000)
    cluster.executors["a"].force_view(["b", "c"])
    deadline_ms = cluster.now_ms + 5000
    while not (view := cluster.core("a").views.accepted).excluded_by_override:  # type: ignore[union-attr]
        assert cluster.now_ms < deadline_ms
        cluster.run(1)
    assert [m.birth for m in view.members] == [cluster.journals["a"].birth, 77, 78]  # type: ignore[union-attr]
    for node in "abc":
        cluster.crash(node)
    cluster.run(10)  # what was on the way finds nobody
    assert ordered(cluster, "a") == NO_OVERRIDES
    for node in "abc":
        cluster.start(node)
    run_until_in_view(cluster, "a", "b", "c")
    assert_same_logs(cluster, 1)


def test_nobody_waits_for_a_view_that_was_lost_with_the_only_disk_that_had_it() -> None:
    """b went on without the others by order, and tells them, and then loses its disk."""
    cluster = Cluster(idle_interval_ms=100, majority=True).founded()
    cluster.submit("a", "x")
    cluster.run(200)
    for node in "ac":
        cluster.crash(node)
    cluster.run(500)
    cluster.executors["b"].force_view(["a", "c"])
    run_until_in_view(cluster, "b")
    for node in "ac":
        cluster.start(node)
    deadline_ms = cluster.now_ms + 5000
    while any(cluster.core(node).views.newer_view is None for node in "ac"):
        assert cluster.now_ms < deadline_ms
        cluster.run(1)
    cluster.crash("b")
    forget(cluster, "b")
    cluster.run(10)  # what was on the way finds nobody
    cluster.start("b")
    run_until_in_view(cluster, "a", "b", "c", within_ms=20_000)
    assert_same_logs(cluster, 1)


def test_disks_that_are_lost_come_back_after_the_order() -> None:
    """Those who know the log have no majority for good, so whoever an order left over lets them in."""
    cluster = only_a_by_order()
    cluster.submit("a", "y")
    cluster.start("b")
    run_until_in_view(cluster, "a", "b")
    cluster.start("c")
    run_until_in_view(cluster, "a", "b", "c")
    cluster.submit("c", "z")
    assert_same_logs(cluster, 3)
