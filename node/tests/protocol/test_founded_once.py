"""Masters that lost their journals found no other cluster by themselves (rule 2)."""

from __future__ import annotations

import msgspec
import pytest
from changing_views import forget, in_view, run_until_in_view
from core_cluster import Cluster

from txlog.model.errors import Conflict, Unavailable
from txlog.model.master_state import MasterState
from txlog.model.records import ViewAccepted
from txlog.protocol.core import Core
from txlog.protocol.events import ProtocolSettings

LONG_MS = 5000


def lost(nodes: str, lose: str | None = None) -> tuple[Cluster, bytes]:
    """A founded cluster with three transactions, whose masters were all stopped and started again, these (all) with
    an empty journal; their supervisors know what was there. And the cluster's id."""
    cluster = Cluster(nodes, idle_interval_ms=100).founded()
    cluster.submit("a", "old 1", "old 2", "old 3")
    cluster.run(500)
    view = cluster.core("a").views.accepted
    assert view is not None
    for node in nodes:
        cluster.crash(node)
    cluster.run(100)
    for at, node in enumerate(nodes):
        seen = (cluster.journals[node].birth, cluster.journals[node].start)
        if lose is None or node in lose:
            forget(cluster, node, birth=700 + at)
        cluster.settings.update(last_seen_birth=seen[0], last_seen_start=seen[1])
        if lose is not None and node not in lose:
            cluster.settings.update(last_seen_start=seen[1] - 1)
        cluster.start(node)
    cluster.settings.pop("last_seen_birth")
    cluster.settings.pop("last_seen_start")
    return cluster, view.cluster_id


@pytest.mark.parametrize("nodes", ["a", "abc"])
def test_rule_2_masters_that_lost_their_journals_wait_for_an_order(nodes: str) -> None:
    cluster, _ = lost(nodes)
    cluster.run(LONG_MS)
    for node in nodes:
        core = cluster.core(node)
        assert core.state is MasterState.AWAITING_BOOTSTRAP
        assert core.log_state is None
        assert "which is lost" in core.membership.bootstrap.lost_journal_text
    refusal = cluster.core("a").membership.admission.error()
    assert isinstance(refusal, Unavailable)
    assert refusal.reason == "AwaitingBootstrap"


@pytest.mark.parametrize("nodes", ["a", "abc"])
def test_rule_2_an_order_that_forgets_founds_again(nodes: str) -> None:
    cluster, before = lost(nodes)
    cluster.run(LONG_MS)
    with pytest.raises(Conflict, match="forgotten"):
        cluster.executors["a"].bootstrap(list(nodes))
    assert cluster.core("a").state is MasterState.AWAITING_BOOTSTRAP
    cluster.executors["a"].bootstrap(list(nodes), True)
    run_until_in_view(cluster, *nodes)
    view = cluster.core("a").views.accepted
    assert view is not None
    assert view.cluster_id != before
    cluster.submit("a", "new")
    cluster.run(500)
    assert [cluster.log(node) for node in nodes] == [["a1"]] * len(nodes)


def test_rule_2_an_order_that_forgets_is_carried_out_by_the_next_start() -> None:
    """The order is durable, and the master ends before any other has accepted."""
    cluster, _ = lost("abc")
    cluster.run(LONG_MS)
    cluster.cut |= {("a", "b"), ("a", "c")}
    cluster.executors["a"].bootstrap(["a", "b", "c"], True)
    cluster.run(50)
    cluster.crash("a")
    cluster.cut.clear()
    cluster.settings.update(last_seen_birth=1, last_seen_start=1)
    cluster.start("a")
    run_until_in_view(cluster, "a", "b", "c")


def test_rule_2_a_new_master_cannot_found_for_one_that_lost_its_journal() -> None:
    """a comes first and is new; b was in a cluster."""
    cluster = Cluster("ab", idle_interval_ms=100)
    cluster.crash("b")
    cluster.settings.update(last_seen_birth=99, last_seen_start=4)
    cluster.start("b")
    cluster.run(LONG_MS)
    assert cluster.core("b").state is MasterState.AWAITING_BOOTSTRAP
    assert cluster.core("a").log_state is None
    assert "AwaitingBootstrap" in cluster.faults["b"]
    cluster.executors["a"].bootstrap(["a", "b"], True)
    run_until_in_view(cluster, "a", "b")


def test_rule_2_one_lost_journal_of_three_learns() -> None:
    cluster, before = lost("abc", lose="a")
    seen = set()
    while not in_view(cluster, "a", "b", "c"):
        assert cluster.now_ms < 60_000
        seen.add(cluster.core("a").state)
        cluster.run(1)
    assert MasterState.FOUNDING not in seen
    view = cluster.core("a").views.accepted
    assert view is not None
    assert view.cluster_id == before
    assert cluster.log("a") == ["a1", "a2", "a3"]


def test_a_part_of_a_log_without_its_cluster_founds_nothing() -> None:
    """A learner ended before it was let in, and no other master is in that cluster any more."""
    cluster = Cluster("a").founded()
    cluster.submit("a", "x", "y")
    cluster.run(300)
    cluster.crash("a")
    recovered = cluster.journals["a"].open()
    learned = msgspec.structs.replace(recovered, accepted=None, installed=None)
    settings = ProtocolSettings(node="a", members=cluster.members)
    core = Core(settings, learned, cluster.now("a"))
    core.poll(cluster.now("a"))
    assert core.state is MasterState.AWAITING_BOOTSTRAP
    assert core.view is None
    with pytest.raises(Conflict, match="empty folder"):
        core.order_bootstrap(["a"], forget=True)


def test_a_new_master_founds_as_ever() -> None:
    cluster = Cluster("a")
    cluster.run(LONG_MS)
    assert cluster.core("a").state is MasterState.JOINED


def accepted_and_not_told(cluster: Cluster, node: str) -> None:
    """Its founding view is durable there and installed elsewhere; no master tells it so before it ends."""
    others = [one for one in cluster.journals if one != node]
    end_ms = cluster.now_ms + LONG_MS
    while not all(cluster.core(one).views.installed for one in others):
        assert cluster.now_ms < end_ms
        if any(isinstance(record, ViewAccepted) for record in cluster.journals[node].records):
            cluster.cut |= {(one, node) for one in others}
        cluster.run(1)
    assert not cluster.core(node).views.installed
    cluster.crash(node)
    cluster.cut.clear()


def test_a_master_that_accepted_the_founding_view_knows_the_log_though_others_went_on() -> None:
    """With a lost disk, the two of three that know the log are one that was never told, and one that went on."""
    cluster = Cluster("abc", idle_interval_ms=100, majority=True, max_peer_lag_ms=500)
    accepted_and_not_told(cluster, "c")
    cluster.executors["a"].prove_down("c", cluster.journals["c"].birth, cluster.journals["c"].start)
    run_until_in_view(cluster, "a", "b")
    cluster.submit("b", "by two")
    cluster.run(500)
    cluster.start("c")
    cluster.cut = {(x, y) for x in "abc" for y in "abc" if x != y} - {("b", "c"), ("c", "b")}
    cluster.crash("a")
    cluster.run(50)
    forget(cluster, "a", birth=77)
    cluster.start("a")
    cluster.cut.clear()
    run_until_in_view(cluster, *"abc", within_ms=20_000)
    cluster.run(500)
    assert [cluster.log(node) for node in "abc"] == [["b1"]] * 3


def test_rule_2_a_founding_that_its_first_master_alone_installed_is_begun_again_by_order() -> None:
    """The others accepted view 1. What its first master did with it is lost with its disk."""
    cluster = Cluster("abc", idle_interval_ms=100)
    end_ms = cluster.now_ms + LONG_MS
    while not cluster.core("a").views.installed:
        assert cluster.now_ms < end_ms
        if all(cluster.core(node).views.accepted is not None for node in "bc"):
            cluster.cut = {("a", "b"), ("a", "c")}
        cluster.run(1)
    first = cluster.core("a").views.accepted
    assert first is not None
    cluster.submit("a", "known to a alone")
    cluster.run(300)
    seen = (cluster.journals["a"].birth, cluster.journals["a"].start)
    cluster.crash("a")
    forget(cluster, "a", birth=700)
    cluster.settings.update(last_seen_birth=seen[0], last_seen_start=seen[1])
    cluster.cut.clear()
    cluster.start("a")
    cluster.run(LONG_MS)
    assert cluster.core("a").state is MasterState.AWAITING_BOOTSTRAP
    assert not any(cluster.core(node).views.installed for node in "bc")
    cluster.executors["a"].bootstrap(["a", "b", "c"], True)
    run_until_in_view(cluster, "a", "b", "c")
    view = cluster.core("b").views.accepted
    assert view is not None
    assert view.cluster_id != first.cluster_id
    assert (view.ancestors or [view.number])[0] > first.number, "no number names two views"
    cluster.submit("b", "new")
    cluster.run(500)
    assert [cluster.log(node) for node in "abc"] == [["b1"]] * 3
