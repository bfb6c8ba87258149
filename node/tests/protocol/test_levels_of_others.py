"""Durability levels of transactions that another master accepted: true of this transaction, at this master, now."""

from __future__ import annotations

from changing_views import back_up, run_until_in_view
from core_cluster import Cluster, update

from txlog.model.durability import Durability
from txlog.model.ids import Txid
from txlog.protocol.events import SubmissionAccepted
from txlog.runtime.durability_tracker import DurabilityTracker
from txlog.runtime.master_listener import MasterListener
from txlog.runtime.master_status import MasterStatus


class Watched:
    """The durability tracker of one master of the cluster."""

    def __init__(self, cluster: Cluster, node: str) -> None:
        self.cluster, self.node = cluster, node
        self.tracker = DurabilityTracker(
            cluster.executors[node], MasterStatus(cluster.executors[node]), MasterListener()
        )

    def look(self) -> DurabilityTracker:
        self.tracker.detect_view_change()
        self.tracker.apply_released(self.cluster.marks[self.node])
        return self.tracker

    def has(self, txid: Txid, level: Durability) -> bool:
        future = self.look().wait_txid(txid, level)
        return future.done() and future.result()

    def repeat(self, key: str) -> Txid:
        answer = self.cluster.executors[self.node].submit([update("INSERT X", key)], self.cluster.now(self.node))[0]
        assert isinstance(answer, SubmissionAccepted)
        assert answer.is_repeat
        return answer.txid


def cut_off(cluster: Cluster, *nodes: str) -> None:
    """Nothing passes between these and the others."""
    for node in cluster.journals:
        if node not in nodes:
            cluster.cut |= {(node, one) for one in nodes} | {(one, node) for one in nodes}


def five() -> Cluster:
    return Cluster("abcde", max_peer_lag_ms=1000, idle_interval_ms=100).founded()


async def test_stable_in_a_view_of_a_minority_is_no_quorum() -> None:
    cluster = five()
    watched = Watched(cluster, "c")
    cut_off(cluster, "a", "c")
    (first,) = cluster.submit("a", "INSERT X", key="K")
    cluster.run(20)
    assert not watched.has(first.txid, Durability.QUORUM), "a and c have it, and are two of five"
    assert watched.look().level_of(first.txid) is Durability.ACCEPTED
    cluster.crash("a")
    cluster.run(800)
    back_up(cluster, "c")
    run_until_in_view(cluster, "c", within_ms=20_000)
    cluster.run(500)
    assert watched.repeat("K") == first.txid
    assert watched.has(first.txid, Durability.SYNCED)
    assert watched.look().level_of(first.txid) is Durability.SYNCED
    waiting = watched.tracker.wait_txid(first.txid, Durability.QUORUM)
    assert not waiting.done()
    (own,) = cluster.submit("c", "INSERT Y")
    cluster.run(200)
    assert not watched.has(own.txid, Durability.QUORUM), "as for a transaction of its own"
    cluster.cut.clear()
    cluster.start("a")
    run_until_in_view(cluster, *"abcde", within_ms=20_000)
    cluster.run(500)
    watched.look()
    assert waiting.done()
    assert waiting.result()


async def test_what_more_than_half_report_has_reached_quorum_though_two_are_silent() -> None:
    cluster = five()
    watched = Watched(cluster, "b")
    cut_off(cluster, "d", "e")
    cluster.cut.add(("c", "b"))
    (first,) = cluster.submit("a", "INSERT X", key="K")
    cluster.run(2)
    waiting = watched.look().wait_txid(first.txid, Durability.QUORUM)
    assert watched.has(first.txid, Durability.ACCEPTED)
    assert not waiting.done(), "b knows of a and itself"
    cluster.cut.discard(("c", "b"))
    cluster.run(300)
    watched.look()
    assert waiting.done(), "b knows that a, b and c hold it"
    assert watched.look().level_of(first.txid) is Durability.QUORUM
    assert not watched.has(first.txid, Durability.SYNCED)


async def test_what_was_stable_in_a_view_of_a_majority_stays_at_quorum_on_the_smaller_side() -> None:
    cluster = five()
    watched = Watched(cluster, "c")
    (first,) = cluster.submit("a", "INSERT X", key="K")
    cluster.run(500)
    assert watched.has(first.txid, Durability.QUORUM)
    cut_off(cluster, "c")
    cluster.run(800)
    back_up(cluster, "c")
    run_until_in_view(cluster, "c", within_ms=20_000)
    cluster.run(500)
    assert watched.repeat("K") == first.txid
    assert watched.has(first.txid, Durability.QUORUM)
    assert watched.look().quorum_index == 1


async def test_three_of_five_alone_are_a_quorum() -> None:
    cluster = five()
    watched = Watched(cluster, "b")
    cut_off(cluster, "d", "e")
    cluster.run(800)
    back_up(cluster, *"abc")
    run_until_in_view(cluster, *"abc", within_ms=20_000)
    (first,) = cluster.submit("a", "INSERT X", key="K")
    cluster.run(500)
    assert watched.has(first.txid, Durability.QUORUM)
    assert watched.look().quorum_index == watched.look().stable.value == 1


async def test_a_repeat_waits_for_the_disk_of_the_master_that_answers() -> None:
    cluster = Cluster("abc").founded()
    watched = Watched(cluster, "b")
    executor = cluster.executors["b"]
    (first,) = cluster.submit("a", "INSERT X", key="K")
    data = next(data for _, _, source, target, data in cluster._mail if (source, target) == ("a", "b"))
    executor.receive("a", data, cluster.now("b"))
    assert watched.repeat("K") == first.txid
    waiting = watched.look().wait_txid(first.txid, Durability.ACCEPTED)
    assert not waiting.done(), "b has it in memory only"
    assert not watched.has(first.txid, Durability.QUORUM), "a and b are two of three, but b may forget it"
    assert watched.look().level_of(first.txid) is None
    sync = executor.begin_sync()
    assert sync is not None
    assert not watched.has(first.txid, Durability.ACCEPTED), "the fsync is under way"
    sync.run()
    executor.end_sync()
    watched.look()
    assert waiting.done()
    assert watched.look().level_of(first.txid) is Durability.QUORUM
