"""Clusters whose disks were replaced again and again: an incarnation for each, and a slot in every view since."""

from __future__ import annotations

import msgspec
import pytest
from changing_views import assert_same_logs, forget, run_until_in_view
from core_cluster import Cluster

from txlog.model.bounds import SLOTS_MAX
from txlog.model.master_state import MasterState
from txlog.model.records import Record, ViewAccepted
from txlog.wire import messages as wire
from txlog.wire.messages import HEARD_SLOTS, Post, ReplicaState

NODES = "abc"


def aged(cluster: Cluster, replaced: int) -> Cluster:
    """The cluster after so many replaced disks of ``b``: its members have the last slots of its view."""
    cluster.founded()
    nodes = list(cluster.executors)
    for node in nodes:
        cluster.crash(node)
        journal = cluster.journals[node]
        journal.records = [_with_earlier_incarnations(record, replaced) for record in journal.records]
    for node in nodes:
        cluster.start(node)
    cluster.run(1500)
    return cluster


def _with_earlier_incarnations(record: Record, count: int) -> Record:
    if not isinstance(record, ViewAccepted):
        return record
    view = record.view
    origins = [*(("b", 1000 + birth) for birth in range(count)), *view.origins]
    ancestors = view.ancestors or [(1, 0, view.coordinator)]  # a first view has no earlier incarnations
    return msgspec.structs.replace(record, view=msgspec.structs.replace(view, origins=origins, ancestors=ancestors))


class BesideOlderMasters(Cluster):
    """Every post arrives as an older master sends it: without the fields that were appended since."""

    def receive(self, source: str, target: str, data: bytes) -> None:
        message = wire.decode(source, data)
        if isinstance(message, Post):
            older = [_as_older(one) for one in (message.claim, *message.relays)]
            data = wire.encode(msgspec.structs.replace(message, claim=older[0], relays=older[1:]))
        super().receive(source, target, data)


def _as_older(claim: ReplicaState) -> ReplicaState:
    return msgspec.structs.replace(claim, heard_members=-1)


def assert_works(cluster: Cluster, nodes: str = NODES) -> None:
    """Each of these orders a transaction, and all are in one view."""
    synced = {node: cluster.marks[node].synced for node in nodes}
    accepted = {node: cluster.submit(node, f"by {node}")[0].txid.seq for node in nodes}
    end_ms = cluster.now_ms + 5000
    while any(cluster.marks[node].synced < accepted[node] for node in nodes):
        assert cluster.now_ms < end_ms, (synced, accepted, cluster.marks)
        cluster.run(20)


def replace_disk(cluster: Cluster, node: str, birth: int) -> None:
    cluster.crash(node)
    cluster.run(50)
    forget(cluster, node, birth=birth)
    cluster.start(node)


@pytest.mark.parametrize("replaced", [HEARD_SLOTS - 3, HEARD_SLOTS - 1, HEARD_SLOTS + 6, 247])
def test_members_post_with_any_number_of_earlier_incarnations(replaced: int) -> None:
    cluster = aged(Cluster(NODES), replaced)
    assert_works(cluster)
    for birth in (77, 78):
        replace_disk(cluster, "c", birth)
        run_until_in_view(cluster, *NODES)
        assert_works(cluster)
    view = cluster.core("a").views.accepted
    assert view is not None
    assert len(view.origins) == replaced + 5
    cluster.run(100)
    assert {cluster.core(node).state for node in NODES} == {MasterState.JOINED}
    assert_same_logs(cluster, 9)


def test_a_silent_member_is_known_beyond_the_bits_of_older_masters() -> None:
    """The state that a member posts says from whom it receives (rule 22)."""
    cluster = aged(Cluster(NODES), 200)
    cluster.crash("c")
    cluster.run(3000)
    assert cluster.core("a").failure_detector.peers_heard_by("b") == ["b", "a"]
    assert cluster.core("a").state is MasterState.SUSPECTED


@pytest.mark.parametrize("replaced", [0, HEARD_SLOTS - 3])
def test_states_of_older_masters_are_understood(replaced: int) -> None:
    cluster = aged(BesideOlderMasters(NODES), replaced)
    assert_works(cluster)
    assert {cluster.core(node).state for node in NODES} == {MasterState.JOINED}


def test_a_silent_member_is_known_from_older_masters() -> None:
    cluster = aged(BesideOlderMasters(NODES), 5)
    cluster.crash("c")
    cluster.run(3000)
    assert cluster.core("a").failure_detector.peers_heard_by("b") == ["b", "a"]


def test_an_older_master_reads_who_was_heard_by_slot() -> None:
    cluster = aged(Cluster(NODES), HEARD_SLOTS - 2)
    claim = next(p.replica_state for p in cluster.core("a").peers if p.node == "b")
    assert claim is not None
    assert claim.heard == 0b11 << HEARD_SLOTS - 2
    assert claim.heard_members == 0b111


def test_a_further_incarnation_is_refused_by_name_and_stops_nobody() -> None:
    """The order of the log has one byte for an incarnation: the next one joins no view, and the others go on."""
    cluster = aged(Cluster(NODES), SLOTS_MAX - 3)
    assert_works(cluster)
    replace_disk(cluster, "c", 77)
    run_until_in_view(cluster, "a", "b")
    for _ in range(3):
        assert_works(cluster, "ab")
        cluster.run(1000)
    assert "TooManyIncarnations" in cluster.faults["a"]
    assert cluster.core("c").state is not MasterState.JOINED
    assert not cluster.core("a").views.is_stopped


def test_of_two_further_incarnations_the_one_that_fits_is_admitted() -> None:
    cluster = aged(Cluster("abcd"), SLOTS_MAX - 5)
    for node, birth in (("c", 77), ("d", 78)):
        cluster.crash(node)
        forget(cluster, node, birth=birth)
    cluster.run(50)
    for node in "cd":
        cluster.start(node)
    cluster.run(10_000)
    assert_works(cluster, "ab")
    members = [m.node for m in cluster.core("a").views.accepted.members]  # type: ignore[union-attr]
    assert members in (["a", "b", "c"], ["a", "b", "d"])


def test_a_life_of_100_replaced_disks() -> None:
    """Each disk is lost, each empty folder becomes a member, and each member writes."""
    cluster = Cluster(NODES, max_peer_lag_ms=60_000).founded()
    for number in range(100):
        node = "bc"[number % 2]
        replace_disk(cluster, node, 1000 + number)
        run_until_in_view(cluster, *NODES)
        cluster.submit(node, f"by incarnation {number}")
        cluster.run(50)
    assert_works(cluster)
    assert_same_logs(cluster, 103)
    view = cluster.core("a").views.accepted
    assert view is not None
    assert len(view.origins) == 103
