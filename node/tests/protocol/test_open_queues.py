"""What happens for every transaction looks at the queues alone that can still change."""

from __future__ import annotations

from changing_views import assert_same_logs, run_until_in_view
from core_cluster import Cluster
from test_many_incarnations import NODES, assert_works, replace_disk

from txlog.model.entry import KIND_UPDATE, RunItem, TransactionRun
from txlog.model.hashes import HASH_BYTES
from txlog.model.ids import Origin
from txlog.protocol.log.incoming_queue import OriginQueue
from txlog.protocol.log.log_state import LogState
from txlog.protocol.log.open_queues import OpenQueues


def queue(limit: int, in_log: int = 0, parked: int = 0) -> OriginQueue:
    made = OriginQueue(Origin("b", limit))
    made.limit = limit
    made.skip_final(in_log)
    if parked:
        made.extend(range(1, parked + 1), bytes(HASH_BYTES * parked), [""] * parked, [1 | 7 << 8] * parked)
    return made


def test_a_queue_is_settled_once_all_that_the_view_takes_is_final_and_nothing_is_parked() -> None:
    assert queue(3, in_log=3).is_settled
    assert queue(0).is_settled
    assert not queue(3, in_log=2).is_settled, "the third one may still come"
    assert not queue(3, in_log=3, parked=1).is_settled
    entered = queue(3, in_log=2, parked=1)
    entered.move_to_log(1)
    assert not entered.is_settled, "it may leave the log"
    entered.mark_final(3)
    assert entered.is_settled


def test_waiting_transactions_and_bytes_are_those_of_all_queues() -> None:
    queues = [queue(3, in_log=3), queue(2, in_log=1, parked=2), queue(5, in_log=5, parked=3)]
    opened = OpenQueues(queues)
    assert opened.slots == [1, 2]
    assert (opened.waiting, opened.is_empty) == (1, False)
    assert opened.payload_bytes == 35
    assert opened.held_seqs() == [3, 3, 8]


def test_what_is_parked_opens_a_queue_again() -> None:
    queues = [queue(3, in_log=3), queue(0)]
    opened = OpenQueues(queues)
    assert opened.slots == []
    queues[1].extend([9], bytes(HASH_BYTES), [""], [1])
    opened.reopen(1)
    assert (opened.slots, opened.held_seqs()) == ([1], [3, 1])


def _logs(cluster: Cluster) -> list[LogState]:
    found = [cluster.core(node).lifecycle.log for node in NODES]
    return [log for log in found if log is not None]


def test_the_queues_of_lost_disks_are_not_looked_at() -> None:
    cluster = Cluster(NODES)
    cluster.founded()
    for birth in range(70, 76):
        replace_disk(cluster, "c", birth)
        run_until_in_view(cluster, *NODES)
        assert_works(cluster)
    for log in _logs(cluster):
        assert len(log.queues) == 9
        assert len(log.open.slots) == len(NODES)
        assert log.open.held_seqs() == [one.held for one in log.queues]
    assert_same_logs(cluster, 18)


def test_what_another_master_parked_in_a_settled_queue_is_fetched() -> None:
    """A branch that comes back brings transactions of an incarnation that has ended here (rule 18)."""
    cluster = Cluster(NODES)
    cluster.founded()
    replace_disk(cluster, "c", 70)
    run_until_in_view(cluster, *NODES)
    assert_works(cluster)
    a, b, c = _logs(cluster)
    (ended,) = {queue.origin for queue in a.queues} - {member.origin for member in a.view.members}
    held = b.by_origin[ended].held
    assert a.by_origin[ended].is_settled
    run = TransactionRun(
        ended.node, ended.birth, held + 1, [RunItem(b.last_stamp + 1, KIND_UPDATE, "", b"of another branch", 0)]
    )
    assert b.persist_replicated(run)
    end_ms = cluster.now_ms + 20_000
    while {log.by_origin[ended].held for log in (a, c)} != {held + 1}:
        assert cluster.now_ms < end_ms, [log.by_origin[ended].held for log in (a, c)]
        cluster.run(50)
    assert not a.by_origin[ended].is_settled
    assert a.open.held_seqs()[a.slots[ended]] == held + 1, "its posts say so"
