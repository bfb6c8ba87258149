"""Masters whose journal was mended from others that had gone on to later views meanwhile (rules 28 and 34)."""

from __future__ import annotations

from typing import Any

import pytest
from changing_views import assert_same_logs, run_until_in_view
from core_cluster import Cluster
from test_trimming import DiskJournal

from txlog.journal import format as fmt
from txlog.model.errors import Fatal
from txlog.protocol.events import ProtocolSettings
from txlog.runtime.journal_repair import JournalRepair
from txlog.wire import messages as wire
from txlog.wire.messages import RunsReply

TERM_MS = 1500


def apart() -> Cluster:
    """Two transactions of a, each in a record of its own, are at a, c and d. Then a and c end, b, which lacks both,
    lets all others go and works on alone, and c comes back to it: there both have later stamps. d hears nobody, has no
    backup, and has them in its log, unstable, in the first view."""
    cluster = Cluster("abcd", journal=DiskJournal, idle_interval_ms=100, max_peer_lag_ms=TERM_MS).founded()
    cluster.submit("b", "x")
    cluster.run(300)
    cluster.cut |= {(node, "b") for node in "acd"}
    cluster.submit("a", "y1")
    cluster.run(10)
    cluster.submit("a", "y2")
    cluster.run(200)
    processes = {node: (cluster.core(node).birth, cluster.core(node).start) for node in "ac"}
    rest(cluster, "a")
    rest(cluster, "c")
    cluster.cut |= {("b", "d"), ("c", "d"), ("d", "c")}
    for node, process in processes.items():
        cluster.executors["b"].prove_down(node, *process)
    back_up(cluster, "b")
    run_until_in_view(cluster, "b")
    cluster.cut -= {("c", "b"), ("b", "c")}
    cluster.start("c")
    run_until_in_view(cluster, "b", "c")
    cluster.run(300)
    assert cluster.log("b") == cluster.log("c") == ["b1", "a1", "a2"]
    assert cluster.log("d") == ["b1", "a1", "a2"]
    assert chain(cluster, "b") != chain(cluster, "d"), "with other stamps"
    cluster.cut |= {(one, other) for one in "bc" for other in "ad"} | {(other, one) for one in "bc" for other in "ad"}
    cluster.cut -= {("a", "d"), ("d", "a")}
    return cluster


def back_up(cluster: Cluster, node: str) -> None:
    """When somebody is silent, as its supervisor does."""
    end_ms = cluster.now_ms + 5000
    while not cluster.core(node).needs_split_backup:
        assert cluster.now_ms < end_ms
        cluster.run(20)
    agreement = cluster.core(node).log_state
    assert agreement is not None
    cluster.executors[node].backup_done(agreement.stable, agreement.log_index.hash_at(agreement.stable))


def chain(cluster: Cluster, node: str) -> bytes:
    agreement = cluster.core(node).log_state
    assert agreement is not None
    return agreement.log_index.hash


def rest(cluster: Cluster, node: str) -> None:
    """Its process is stopped in order, behind a seal."""
    journal = cluster.journals[node]
    journal.sync()
    assert journal.seal()
    del cluster.executors[node]
    journal.files.kill()


def harm(journal: DiskJournal, node: str) -> None:
    """A bit turns in the record of the first transaction of ``node``."""
    for name, data in journal.files.dump().items():
        kind, number = fmt.parse_name(name) or ("", 0)
        header = fmt.read_segment_header(data, number) if kind == "segment" else None
        if header is None:
            continue
        seed, offset = fmt.segment_seed(header.birth, number), header.records_from
        while (record := fmt.read_record(data, offset, seed)) is not None:
            if record.kind == fmt.HELD and record.front[1:2] == node.encode():
                journal.files.flip_bit(name, offset + 30, 3)
                return
            offset += record.length
    raise AssertionError(f"nothing of {node} is held")


class Mending:
    """What a process does that finds its journal damaged: it asks the others, and has no core."""

    def __init__(self, cluster: Cluster, node: str) -> None:
        self.cluster, self.node = cluster, node
        self.journal: Any = cluster.journals[node]
        recovered = self.journal.open()
        assert recovered.damage
        self.repair = JournalRepair(ProtocolSettings(node=node, members=cluster.members), recovered, self.journal.inner)

    def ask(self) -> list[str]:
        """One question to the next master, if it runs; who was asked."""
        cluster = self.cluster
        cluster.run(400)
        _, sends = self.repair.poll(cluster.now(self.node))
        for peer, question in sends:
            if peer in cluster.executors:
                cluster.executors[peer].receive(self.node, wire.encode(question), cluster.now(peer))
                released = cluster.executors[peer].release()
                for to, data in released.messages:
                    if to == self.node:
                        self.repair.receive(peer, data, cluster.now(self.node))
        return [peer for peer, _ in sends]

    def finish(self) -> None:
        """The journal is written and opened anew; the master starts."""
        assert self.repair.is_finished
        for damage, mended in self.repair.repaired:
            self.journal.repair(damage, mended.runs, mended.contents, mended.added)
        self.journal.sync()
        self.journal.close()
        self.cluster.start(self.node)


def test_a_transaction_that_waited_comes_back_with_a_later_stamp_and_the_view_is_stopped() -> None:
    """a has the first of its two with a stamp of b's view now, the second with its own, in a view in which d has both
    in its log as they were: in that view the two must not order anything more."""
    cluster = apart()
    harm(cluster.journals["a"], "a")
    mending = Mending(cluster, "a")
    assert mending.ask() == ["b"]
    mending.finish()
    assert cluster.core("a").views.number == cluster.core("d").views.number
    back_up(cluster, "a")
    run_until_in_view(cluster, "a", "d")
    assert cluster.log("a") == cluster.log("d") == ["b1", "a1", "a2"]
    cluster.cut.clear()
    run_until_in_view(cluster, "a", "b", "c", "d")
    assert_same_logs(cluster, 3)


def test_one_that_goes_on_alone_with_later_stamps_brings_everything_in() -> None:
    """Nobody else reports what waited at a: its stamps fall, so that the second enters behind what it has closed."""
    cluster = apart()
    rest(cluster, "d")
    harm(cluster.journals["a"], "a")
    mending = Mending(cluster, "a")
    assert mending.ask() == ["b"]
    mending.finish()
    back_up(cluster, "a")
    run_until_in_view(cluster, "a")
    cluster.run(300)
    assert cluster.log("a") == ["b1", "a1", "a2"]
    cluster.cut.clear()
    cluster.start("d")
    run_until_in_view(cluster, "a", "b", "c", "d")
    assert_same_logs(cluster, 3)


def test_what_stands_in_the_log_comes_back_with_the_stamp_that_its_hash_proves() -> None:
    """d has both in its log; b and c have them with other stamps, and are asked in vain. a has them as they were."""
    cluster = apart()
    rest(cluster, "d")
    harm(cluster.journals["d"], "a")
    mending = Mending(cluster, "d")
    assert [mending.ask() for _ in range(4)] == [["a"], ["b"], ["c"], ["a"]]
    assert not mending.repair.is_finished
    cluster.start("a")
    assert [mending.ask() for _ in range(3)] == [["b"], ["c"], ["a"]]
    mending.finish()
    assert not cluster.core("d").views.is_stopped
    back_up(cluster, "d")
    run_until_in_view(cluster, "a", "d")
    assert cluster.log("a") == cluster.log("d") == ["b1", "a1", "a2"]
    cluster.cut.clear()
    run_until_in_view(cluster, "a", "b", "c", "d")
    assert_same_logs(cluster, 3)


def test_what_nobody_has_as_it_stood_in_the_log_is_beyond_repair() -> None:
    cluster = apart()
    rest(cluster, "d")
    harm(cluster.journals["d"], "a")
    mending = Mending(cluster, "d")
    for _ in range(3):
        mending.ask()
    another = cluster.journals["b"].read("b", cluster.core("b").birth, 1, 1, 1000)
    mending.repair.receive("a", wire.encode(RunsReply([another])), cluster.now("d"))  # late, to an earlier question
    with pytest.raises(Fatal, match=r"BeyondRepair.* no other master holds a seq 1 as it stood here"):
        mending.repair.receive("a", wire.encode(RunsReply([])), cluster.now("d"))
