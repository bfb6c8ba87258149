"""Clusters with a long life: views that no master can report are forgotten, and nothing that counts is (rule 32)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
import test_trimming
from changing_views import assert_same_logs, back_up, in_view, leave, run_until_in_view
from core_cluster import Cluster
from test_configuration import change, configuration, with_role

from txlog.model.configuration import MUTED, Configuration
from txlog.model.master_state import MasterState
from txlog.model.records import Record, ViewAccepted
from txlog.model.view import LISTED_ANCESTORS_MAX, NO_VIEW, View
from txlog.protocol.events import SubmissionAccepted
from txlog.wire import messages as wire
from txlog.wire.messages import Hello, ProposeView, ViewReport

NODES = "abc"
FEW = 6
"""More ancestors than these no view lists after restarts, one at a time."""


def view_of(cluster: Cluster, node: str) -> View:
    found = cluster.core(node).views.accepted
    assert found is not None
    return found


def restart(cluster: Cluster, *nodes: str) -> None:
    """One after the other, as a rolling update does."""
    for node in nodes:
        leave(cluster, node)
        cluster.start(node)
        run_until_in_view(cluster, *NODES)


class BesideOlderMasters(Cluster):
    """``older``: these send what a program sent that knew nothing of levels, and drop what a view says of them."""

    older = "c"

    def receive(self, source: str, target: str, data: bytes) -> None:
        message = wire.decode(source, data)
        if source in self.older and isinstance(message, Hello | ProposeView | ViewReport):
            data = wire.encode(msgspec.structs.replace(message, level=0))
        super().receive(source, target, data)


@pytest.mark.parametrize("disks", [False, True])
def test_a_view_lists_few_ancestors_after_many_restarts(disks: bool) -> None:
    options: dict[str, Any] = {"journal": test_trimming.DiskJournal} if disks else {}
    cluster = Cluster(NODES, idle_interval_ms=100, **options).founded()
    for number in range(20):
        restart(cluster, *NODES)
        cluster.submit("abc"[number % 3], f"t{number} " + "x" * 100)
        cluster.run(100)
        assert len(view_of(cluster, "a").ancestors) <= FEW
    view = view_of(cluster, "a")
    assert view.epoch > 100
    assert len(view.strategies) == len(view.ancestors)
    assert view.descends_from((2, 1, "a"))
    assert not view.descends_from(NO_VIEW)
    assert len(msgspec.msgpack.encode(view)) < 600
    assert_same_logs(cluster, 20)


def test_all_ancestors_are_listed_while_a_master_is_out() -> None:
    """Its view may be any of those since it was a member; when it is back, they are forgotten."""
    cluster = Cluster(NODES, idle_interval_ms=100).founded()
    restart(cluster, *NODES)
    leave(cluster, "c")
    run_until_in_view(cluster, "a", "b")
    last = view_of(cluster, "a").ancestors[-1]
    for _ in range(10):
        leave(cluster, "b")
        run_until_in_view(cluster, "a")
        cluster.start("b")
        run_until_in_view(cluster, "a", "b")
    view = view_of(cluster, "a")
    assert last in view.ancestors
    assert len(view.ancestors) >= 20
    cluster.submit("a", "alone")
    cluster.start("c")
    run_until_in_view(cluster, *NODES)
    restart(cluster, "b")
    assert len(view_of(cluster, "a").ancestors) <= FEW
    assert_same_logs(cluster, 1)


def test_a_split_ends_as_ever_when_views_before_it_are_forgotten() -> None:
    """Both sides list what they descend from since all were together: that one of them wins is decided as ever."""
    cluster = Cluster(NODES, idle_interval_ms=100, max_peer_lag_ms=800).founded()
    restart(cluster, *NODES, *NODES)
    cluster.submit("a", "before")
    cluster.run(300)
    cluster.cut = {(x, y) for x in "ab" for y in "c"} | {(y, x) for x in "ab" for y in "c"}
    cluster.run(1000)
    back_up(cluster, *NODES)
    run_until_in_view(cluster, "a", "b")
    run_until_in_view(cluster, "c")
    assert view_of(cluster, "a").lineage_start == view_of(cluster, "c").lineage_start != NO_VIEW
    for node in "bbb":
        leave(cluster, node)
        run_until_in_view(cluster, "a")
        cluster.start(node)
        run_until_in_view(cluster, "a", "b")
    cluster.submit("a", "here")
    cluster.submit("c", "there")
    cluster.run(300)
    cluster.cut.clear()
    run_until_in_view(cluster, *NODES)
    assert_same_logs(cluster, 3)
    assert cluster.log("a") == ["a1", "a2", "c1"]


def configured_alike(cluster: Cluster) -> Configuration:
    found = {node: configuration(cluster, node) for node in cluster.executors}
    assert len({msgspec.json.encode(one) for one in found.values()}) == 1, found
    return next(iter(found.values()))


def test_changes_made_in_forgotten_views_count_after_a_restart() -> None:
    cluster = Cluster(NODES, idle_interval_ms=100).founded()
    restart(cluster, "b")
    assert isinstance(change(cluster, "a", with_role(configuration(cluster, "a"), "c", MUTED)), SubmissionAccepted)
    cluster.run(300)
    made_in = view_of(cluster, "a").number
    restart(cluster, *NODES, *NODES)
    view = view_of(cluster, "a")
    assert made_in not in (*view.ancestors, view.number)
    assert configured_alike(cluster).master("c").role == MUTED  # type: ignore[union-attr]


def test_changes_of_a_branch_that_did_not_survive_stay_noops() -> None:
    """Their views are lower than the forgotten ones, and named as foreign while a master holds the changes."""
    cluster = Cluster(NODES, idle_interval_ms=100, max_peer_lag_ms=800).founded()
    restart(cluster, *NODES)
    cluster.cut = {(x, y) for x in "ab" for y in "c"} | {(y, x) for x in "ab" for y in "c"}
    cluster.run(1000)
    back_up(cluster, *NODES)
    run_until_in_view(cluster, "a", "b")
    run_until_in_view(cluster, "c")
    assert isinstance(change(cluster, "c", with_role(configuration(cluster, "c"), "a", MUTED)), SubmissionAccepted)
    cluster.run(300)
    made_in = view_of(cluster, "c").number
    cluster.submit("a", "here")
    cluster.run(300)
    cluster.cut.clear()
    run_until_in_view(cluster, *NODES)
    for _ in range(2):
        restart(cluster, *NODES)
        view = view_of(cluster, "a")
        assert made_in < view.lineage_start
        assert view.foreign_views == [made_in]
        assert not view.descends_from(made_in)
        assert configured_alike(cluster).master("a").role != MUTED  # type: ignore[union-attr]
        assert {node: list(cluster.core(node).log_state.configurations.noops) for node in NODES} == {  # type: ignore[union-attr]
            node: [2] for node in NODES
        }


def test_nothing_is_forgotten_beside_an_older_master() -> None:
    """It would judge by what is listed, and as coordinator drop the rest: until all can read it, all is listed."""
    cluster = BesideOlderMasters(NODES, idle_interval_ms=100).founded()
    restart(cluster, *NODES, *NODES)
    view = view_of(cluster, "a")
    assert view.lineage_start == NO_VIEW
    assert len(view.ancestors) == view.epoch - 1
    cluster.older = ""
    restart(cluster, "b", "c", "a", "b")
    assert len(view_of(cluster, "a").ancestors) <= FEW
    assert_same_logs(cluster, 0)


def test_an_older_program_is_refused_by_name_once_views_are_forgotten() -> None:
    cluster = BesideOlderMasters(NODES, idle_interval_ms=100)
    cluster.older = ""
    cluster.founded()
    restart(cluster, *NODES)
    leave(cluster, "c")
    cluster.older = "c"
    cluster.start("c")
    cluster.run(5000)
    assert in_view(cluster, "a", "b")
    assert "OlderProgram" in cluster.faults["a"]
    cluster.submit("a", "goes on")
    cluster.run(500)
    assert cluster.marks["a"].synced == 1
    cluster.older = ""
    run_until_in_view(cluster, *NODES)


def with_ancestors(cluster: Cluster, count: int) -> None:
    """As if so many views had followed one another while a master was out."""
    nodes = list(cluster.executors)
    for node in nodes:
        cluster.crash(node)
    for node in NODES:
        cluster.journals[node].records = [_with_ancestors(record, count) for record in cluster.journals[node].records]
    for node in nodes:
        cluster.start(node)


def _with_ancestors(record: Record, count: int) -> Record:
    if isinstance(record, ViewAccepted) and len(record.view.members) < len(NODES):
        view = record.view
        ancestors = [*view.ancestors[:-1], *((2, 1 + at, "a") for at in range(count)), view.ancestors[-1]]
        return msgspec.structs.replace(
            record, view=msgspec.structs.replace(view, ancestors=ancestors, strategies=["Smart"] * len(ancestors))
        )
    return record


def test_with_too_many_views_only_all_masters_together_are_admitted() -> None:
    """While c is out, b may leave, but it comes back with c only: no view has more ancestors for it."""
    cluster = Cluster(NODES, idle_interval_ms=100).founded()
    leave(cluster, "c")
    run_until_in_view(cluster, "a", "b")
    with_ancestors(cluster, LISTED_ANCESTORS_MAX)
    run_until_in_view(cluster, "a", "b")
    count = len(view_of(cluster, "a").ancestors)
    assert count > LISTED_ANCESTORS_MAX
    leave(cluster, "b")
    run_until_in_view(cluster, "a")
    cluster.start("b")
    cluster.run(5000)
    assert in_view(cluster, "a")
    assert "views without all masters" in cluster.core("a").views.blocked_reason
    cluster.submit("a", "goes on")
    cluster.run(300)
    assert cluster.marks["a"].synced == 1
    cluster.start("c")
    run_until_in_view(cluster, *NODES, within_ms=20_000)
    assert cluster.core("a").views.blocked_reason == ""
    restart(cluster, "b")
    assert len(view_of(cluster, "a").ancestors) <= FEW
    assert_same_logs(cluster, 1)
    assert {cluster.core(node).state for node in NODES} == {MasterState.JOINED}
