"""Whole masters and one that lost its journal: a learner until it is let in again (rule 2)."""

from __future__ import annotations

from changing_views import assert_same_logs, forget, in_view, run_until_in_view
from core_cluster import Cluster, update

from txlog.protocol.events import SubmissionAccepted
from txlog.protocol.membership.handshake import build_hello, build_hello_reply
from txlog.wire.messages import encode


def test_rule_2_a_lost_journal_is_a_learner_until_it_is_let_in_again() -> None:
    """What it had made stays; it goes on with a new birth, and takes no work before."""
    cluster = Cluster(idle_interval_ms=100).founded()
    cluster.submit("a", "x", "y")
    cluster.run(100)
    cluster.crash("a")
    forget(cluster, "a")
    executor = cluster.start("a")
    seen: set[str] = set()
    while not in_view(cluster, "a", "b", "c"):
        assert cluster.now_ms < 20_000
        seen.add(executor.core.state)
        (answer,) = executor.submit([update("z")], cluster.now("a"))
        assert not isinstance(answer, SubmissionAccepted) or executor.core.views.accepted is not None
        cluster.run(1)
    assert "Learning" in seen
    assert cluster.core("a").birth == 77
    accepted = cluster.submit("a", "z")[0]
    agreement = executor.core.log_state
    assert agreement is not None
    assert (accepted.txid.origin.birth, accepted.txid.seq) == (77, agreement.own.held)
    assert_same_logs(cluster, 2 + agreement.own.held)
    assert cluster.log("a")[:2] == ["a1", "a2"]
    assert [one.birth for one in agreement.log_index.origins if one.node == "a"] == [1, 77]


def test_rule_2_a_lost_journal_that_nobody_vouches_for_is_let_in_when_everybody_is_there() -> None:
    """a has started anew since it heard b at work. Whoever went on with b would be here."""
    cluster = Cluster("ab", idle_interval_ms=100).founded()
    cluster.crash("b")
    forget(cluster, "b")
    cluster.crash("a")
    cluster.start("a")
    cluster.start("b")
    run_until_in_view(cluster, "a", "b")
    cluster.submit("b", "x")
    assert_same_logs(cluster, 1)


def test_rule_2_a_view_that_only_a_lost_disk_knew_is_waited_for_no_more() -> None:
    """b let a go, a hears of it, and then nobody remembers that view."""
    cluster = Cluster("ab", idle_interval_ms=100).founded()
    cluster.crash("a")
    cluster.run(10)
    cluster.executors["b"].prove_down("a", cluster.journals["a"].birth, cluster.journals["a"].start)
    run_until_in_view(cluster, "b", within_ms=2500)
    cluster.start("a")
    while cluster.core("a").views.newer_view is None:
        assert cluster.now_ms < 10_000
        cluster.run(1)
    cluster.crash("b")
    forget(cluster, "b")
    cluster.start("b")
    run_until_in_view(cluster, "a", "b")
    cluster.submit("b", "x")
    assert_same_logs(cluster, 1)


def test_rule_2_what_was_told_an_earlier_process_founds_no_second_cluster() -> None:
    """The first in order loses its disk; an answer to its earlier process is still on its way."""
    cluster = Cluster("ab", idle_interval_ms=100)
    cluster.run(0)
    who = build_hello(cluster.core("a").views)
    told = build_hello_reply(who, cluster.core("b").views, cluster.core("b").peers)
    cluster.founded()
    first = cluster.core("b").views.accepted
    cluster.crash("a")
    forget(cluster, "a")
    cluster.start("a")
    cluster.receive("b", "a", encode(told))
    run_until_in_view(cluster, "a", "b")
    view = cluster.core("a").views.accepted
    assert first is not None
    assert view is not None
    assert view.cluster_id == first.cluster_id


def test_an_earlier_birth_that_the_view_knows_is_no_lost_identity() -> None:
    """A peer that has not heard of the view that took this master in again."""
    cluster = Cluster(idle_interval_ms=100).founded()
    cluster.crash("c")
    forget(cluster, "c")
    cluster.start("c")
    behind = build_hello_reply(build_hello(cluster.core("c").views), cluster.core("b").views, cluster.core("b").peers)
    run_until_in_view(cluster, "a", "b", "c")
    cluster.receive("b", "c", encode(behind))
    assert in_view(cluster, "a", "b", "c")


def test_rule_2_a_learner_counts_for_no_majority() -> None:
    """One that remembers and one that has forgotten are two of three, and know half of what the third may know."""
    cluster = Cluster(idle_interval_ms=100, majority=True).founded()
    cluster.submit("a", "x")
    cluster.run(100)
    cluster.crash("c")
    cluster.crash("b")
    forget(cluster, "b")
    cluster.start("b")
    cluster.run(8000)
    assert not cluster.core("a").views.is_active
    assert not cluster.core("b").views.is_active
    assert cluster.log("b") == []
    cluster.start("c")
    run_until_in_view(cluster, "a", "b", "c")
    assert_same_logs(cluster, 1)


def test_majority_goes_on_without_a_silent_one_and_never_alone() -> None:
    cluster = Cluster(idle_interval_ms=100, majority=True).founded()
    cluster.cut = {("a", "c"), ("c", "a"), ("b", "c"), ("c", "b")}
    run_until_in_view(cluster, "a", "b")
    cluster.submit("a", "x")
    cluster.submit("c", "y")
    cluster.run(4000)
    assert cluster.marks["a"].synced == 1
    assert cluster.marks["c"].synced == 0
    assert cluster.core("c").views.number[0] == 1, "it has accepted no view of its own"
    cluster.cut.clear()
    run_until_in_view(cluster, "a", "b", "c")
    assert_same_logs(cluster, 2)


def test_a_learner_takes_no_part_in_the_bootstrap_of_another_cluster() -> None:
    """b follows the cluster when a loses its disk, too. The log of b belongs to that cluster: with the first view of
    another one, both wait for ever, or b ends by an error of the program."""
    cluster = Cluster("ab", idle_interval_ms=100).founded()
    cluster.submit("a", "x", "y")
    cluster.run(200)
    cluster.crash("b")
    forget(cluster, "b")
    cluster.start("b")
    while cluster.core("b").state != "Learning":
        cluster.run(1)
    cluster.cut.add(("a", "b"))
    cluster.crash("a")
    forget(cluster, "a", 78)
    cluster.run(10)
    cluster.cut.clear()
    cluster.start("a")
    cluster.run(5000)
    assert cluster.core("b").state == "Learning"
