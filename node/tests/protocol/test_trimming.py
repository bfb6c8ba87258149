"""Whole masters trim their logs on real journals (rules 17 and 19), and one below the foot takes over a snapshot."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import msgspec
import pytest
from changing_views import leave, run_until_in_view
from core_cluster import Cluster

from txlog.journal import Journal, MemoryVfs
from txlog.model.records import RecoveredState
from txlog.protocol.log.log_trim import (
    ARCHIVE,
    BACKUP,
    MASTER,
    SPLIT_BACKUP,
    UNKNOWN_INDEX,
    WORKER,
    RetentionPosition,
    TrimDecision,
    decide_trim,
)
from txlog.protocol.membership.handshake import build_hello
from txlog.wire import messages as wire

SEGMENT_BYTES = 4096


class DiskJournal:
    """A real journal in memory, as :class:`Cluster` uses one: opened, crashed, opened again."""

    segment_bytes = SEGMENT_BYTES

    def __init__(self, node: str, birth: int) -> None:
        self.node, self.birth, self.start = node, birth, 0
        self.files = MemoryVfs()
        self.inner: Journal | None = None

    def open(self) -> RecoveredState:
        birth = self.birth
        self.inner, recovered = Journal.open(
            self.files, node=self.node, draw_birth=lambda: birth, segment_bytes=self.segment_bytes
        )
        self.start = recovered.start
        return recovered

    def crash(self, kept: int) -> None:
        self.inner = None
        self.files.crash(lambda _, count: count - 1)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    @property
    def segments(self) -> int:
        return sum(name.startswith("segment") for name in self.files.list())


def cluster_with(count: int, retention_ms: int = 600_000) -> Cluster:
    """Three masters with so many transactions of each, some of them keyed, all of them stable. Stamps of
    :class:`Cluster` grow by a microsecond in each of its milliseconds, so ``retention_ms`` are its seconds."""
    cluster = Cluster(journal=DiskJournal, idle_interval_ms=100, key_retention_ms=retention_ms).founded()
    write(cluster, count)
    return cluster


def write(cluster: Cluster, count: int, nodes: str = "abc") -> None:
    for at in range(count):
        for node in nodes:
            cluster.submit(node, f"{node}{at} " + "x" * 100, key=f"key-{cluster.now_ms}-{node}" if at % 5 == 0 else "")
        cluster.run(20)
    cluster.run(300)


def place(cluster: Cluster, kind: str, index: int, name: str = "one") -> RetentionPosition:
    agreement = cluster.core("a").log_state
    assert agreement is not None
    return RetentionPosition(kind, name, index, agreement.log_index.hash_at(index))


def length(cluster: Cluster, node: str = "a") -> int:
    agreement = cluster.core(node).log_state
    assert agreement is not None
    return agreement.log_index.length


def start_of(cluster: Cluster, node: str) -> int:
    agreement = cluster.core(node).log_state
    assert agreement is not None
    return agreement.log_index.start


def trim(cluster: Cluster, node: str, *places: RetentionPosition, keep_from: int = 1 << 60) -> TrimDecision:
    """As its shell does."""
    verdict = cluster.executors[node].trim(list(places), keep_from)
    cluster.run(200)
    while (removal := cluster.journals[node].begin_removal()) is not None:
        removal.run()
        cluster.journals[node].end_removal(removal)
    return verdict


def held_by(verdict: TrimDecision) -> list[tuple[str, str]]:
    """Who holds most."""
    return [(one.kind, one.name) for one in verdict.blockers if one.log_index == verdict.blockers[0].log_index]


def everywhere(cluster: Cluster, index: int) -> None:
    for node in cluster.executors:
        trim(cluster, node, place(cluster, BACKUP, index))


def hash_of(cluster: Cluster, node: str) -> bytes:
    agreement = cluster.core(node).log_state
    assert agreement is not None
    return agreement.log_index.hash


def test_the_log_is_trimmed_on_the_disk_and_in_memory_and_goes_on() -> None:
    cluster = cluster_with(40)
    before = cluster.journals["a"].segments
    everywhere(cluster, length(cluster) - 10)
    for node in "abc":
        assert start_of(cluster, node) == length(cluster) - 10
        assert cluster.journals[node].segments < before / 2
    write(cluster, 10)
    assert len({hash_of(cluster, node) for node in "abc"}) == 1
    assert length(cluster) == 150


def test_a_start_from_a_trimmed_journal_knows_what_counts() -> None:
    cluster = cluster_with(30)
    first = cluster.submit("b", "kept", key="once")[0]
    cluster.run(300)
    write(cluster, 20)
    everywhere(cluster, length(cluster) - 5)
    own = cluster.core("b").log_state
    assert own is not None
    assert own.log_index.is_trimmed(first.txid.origin, first.txid.seq)
    for node in "abc":
        end, value = length(cluster, node), hash_of(cluster, node)
        leave(cluster, node)
        cluster.start(node)
        run_until_in_view(cluster, "a", "b", "c")
        assert length(cluster, node) == end
        assert hash_of(cluster, node) == value
    answer = cluster.submit("c", "kept", key="once")[0]
    assert answer.is_repeat
    assert answer.txid == first.txid
    write(cluster, 5)
    assert len({hash_of(cluster, node) for node in "abc"}) == 1


def test_keys_older_than_their_retention_are_not_kept() -> None:
    cluster = cluster_with(20, retention_ms=60)
    cluster.run(61_000)
    write(cluster, 20)
    everywhere(cluster, length(cluster) - 5)
    agreement = cluster.core("a").log_state
    assert agreement is not None
    assert agreement.keys.final
    assert len(agreement.keys.final) <= 12, "only those of the second half may still be repeated"


@pytest.mark.parametrize("kind", [WORKER, BACKUP, SPLIT_BACKUP])
def test_rule_19_whoever_needs_the_log_holds_it(kind: str) -> None:
    cluster = cluster_with(30)
    backup = place(cluster, BACKUP, length(cluster), "newest")
    verdict = trim(cluster, "a", backup, place(cluster, kind, 40, "slow"))
    assert verdict.trim_to == (40 if kind != BACKUP else length(cluster))
    assert start_of(cluster, "a") == verdict.trim_to
    if kind != BACKUP:
        assert held_by(verdict) == [(kind, "slow")]


def test_rule_19_nothing_goes_without_a_backup_on_this_log() -> None:
    cluster = cluster_with(20)
    off = RetentionPosition(BACKUP, "elsewhere", 30, b"another branch..")
    for places in ((), (off,)):
        verdict = trim(cluster, "a", *places)
        assert verdict.trim_to == 0
        assert held_by(verdict) == [(BACKUP, "newest backup")]


def test_rule_19_a_worker_on_another_branch_or_unknown_holds_everything() -> None:
    cluster = cluster_with(20)
    backup = place(cluster, BACKUP, length(cluster))
    for index in (30, UNKNOWN_INDEX):
        verdict = trim(cluster, "a", backup, RetentionPosition(WORKER, "lost", index, b"another branch.."))
        assert verdict.trim_to == 0
        assert held_by(verdict) == [(WORKER, "lost")]


def test_rule_19_the_archive_holds_what_is_not_read_back() -> None:
    cluster = cluster_with(20)
    end = length(cluster)
    backup = place(cluster, BACKUP, end)
    assert trim(cluster, "a", backup, place(cluster, ARCHIVE, end - 5)).trim_to == end - 5
    for index in (end + 30, UNKNOWN_INDEX):
        verdict = trim(cluster, "a", backup, RetentionPosition(ARCHIVE, "uk", index, b"another branch.."))
        assert held_by(verdict)[0] == (ARCHIVE, "uk")
        assert verdict.trim_to == verdict.start


def test_rule_19_a_silent_master_holds_what_it_lacks_and_an_unheard_one_everything() -> None:
    cluster = cluster_with(20)
    at = length(cluster)
    leave(cluster, "c")
    run_until_in_view(cluster, "a", "b")
    write(cluster, 20, "ab")
    verdict = trim(cluster, "a", place(cluster, BACKUP, length(cluster)))
    assert verdict.trim_to == at
    assert held_by(verdict) == [(MASTER, "c")]
    assert start_of(cluster, "a") == at
    leave(cluster, "a")
    cluster.start("a")
    run_until_in_view(cluster, "a", "b")
    verdict = trim(cluster, "a", place(cluster, BACKUP, length(cluster)))
    assert verdict.trim_to == at
    unheard = ("master", "c", "not heard since this start, or since an order")
    assert unheard in [(h.kind, h.name, h.why) for h in verdict.blockers]
    cluster.start("c")
    run_until_in_view(cluster, "a", "b", "c")
    write(cluster, 2)
    assert len({hash_of(cluster, node) for node in "abc"}) == 1
    assert trim(cluster, "a", place(cluster, BACKUP, length(cluster))).trim_to > at


def test_rule_19_a_member_that_is_silent_holds_what_it_lacks() -> None:
    cluster = cluster_with(20)
    at = length(cluster)
    cluster.cut = {(one, other) for one in "abc" for other in "abc" if (one == "c") != (other == "c")}
    cluster.run(600)
    backup = place(cluster, BACKUP, at)
    verdict = trim(cluster, "a", backup)
    assert ("master", "c") in [(one.kind, one.name) for one in verdict.blockers]
    assert verdict.trim_to <= at


def test_rule_19_a_member_whose_old_disk_lies_below_the_foot_counts_for_nothing() -> None:
    """Neither does it end who has trimmed the log and has heard nothing of this member since its own start."""
    cluster = Cluster("ab", journal=DiskJournal, idle_interval_ms=100).founded()
    cluster.crash("b")
    image = deepcopy(cluster.journals["b"].files)
    cluster.start("b")
    run_until_in_view(cluster, "a", "b")
    write(cluster, 40, "a")
    trim(cluster, "a", place(cluster, BACKUP, length(cluster)))
    foot = start_of(cluster, "a")
    assert foot > 0
    for node in "ab":
        cluster.crash(node)
    cluster.journals["b"].files = image
    for node in "ab":
        cluster.start(node)
    while not cluster.core("a").membership.bootstrap.admitted:
        assert cluster.now_ms < 60_000
        cluster.run(1)
    cluster.submit("a", "one more")
    cluster.run(3000)
    assert length(cluster, "b") < foot
    assert "BelowFoot" in cluster.faults["a"]
    (of_b,) = [peer for peer in cluster.core("a").peers if peer.node == "b"]
    assert of_b.replica_state is None
    assert of_b.fault is None, "a claim from before it came by, on its way since, is none"
    assert length(cluster) == foot, "nothing is ordered without it"


def test_what_shall_be_kept_in_any_case_is_kept() -> None:
    cluster = cluster_with(20)
    verdict = trim(cluster, "a", place(cluster, BACKUP, length(cluster)), keep_from=25)
    assert verdict.trim_to == 25
    assert held_by(verdict) == [("keep", "log.keep")]


def test_rule_17_a_lost_disk_below_the_foot_is_sent_a_snapshot() -> None:
    cluster = cluster_with(40)
    first = cluster.submit("b", "kept", key="once")[0]
    cluster.run(300)
    everywhere(cluster, length(cluster))
    foot = start_of(cluster, "a")
    write(cluster, 5)
    leave(cluster, "c")
    run_until_in_view(cluster, "a", "b")
    cluster.journals["c"] = DiskJournal("c", 77)
    cluster.start("c")
    run_until_in_view(cluster, "a", "b", "c")
    assert start_of(cluster, "c") == foot > 0
    write(cluster, 5)
    assert len({hash_of(cluster, node) for node in "abc"}) == 1
    assert len({length(cluster, node) for node in "abc"}) == 1
    answer = cluster.submit("c", "kept", key="once")[0]
    assert answer.is_repeat
    assert answer.txid == first.txid
    for node in "ca":  # the snapshot stands in its own journal
        leave(cluster, node)
        cluster.start(node)
        run_until_in_view(cluster, "a", "b", "c")
    write(cluster, 5)
    everywhere(cluster, length(cluster))
    assert {start_of(cluster, node) for node in "abc"} == {length(cluster)}


@pytest.mark.parametrize("trimmed", ["ab", "a", "b"])
def test_rule_17_a_lost_disk_below_the_foot_beyond_a_lost_link(trimmed: str) -> None:
    """c hears b only, so what a says of its log comes through b (rule 22), whose snapshot does as well."""
    cluster = cluster_with(40)
    for node in trimmed:
        trim(cluster, node, place(cluster, BACKUP, length(cluster)))
    assert all(start_of(cluster, node) > 0 for node in trimmed)
    leave(cluster, "c")
    run_until_in_view(cluster, "a", "b")
    cluster.cut |= {("a", "c"), ("c", "a")}
    cluster.journals["c"] = DiskJournal("c", 77)
    cluster.start("c")
    while cluster.core("c").log_state is None:
        assert cluster.now_ms < 60_000
        cluster.run(1)
    assert cluster.core("c").views.accepted is None
    below = wire.encode(wire.LogTruncatedBelow(length(cluster), hash_of(cluster, "a")))
    cluster.receive("b", "c", wire.encode(wire.Relay("c", ["a", "b"], below)))
    arriving = cluster.core("c").dispatcher.snapshots.incoming
    assert arriving is not None
    assert arriving.peer == "b"
    run_until_in_view(cluster, "a", "b", "c")
    write(cluster, 5, "ab")
    assert len({hash_of(cluster, node) for node in "abc"}) == 1
    assert [cluster.faults[node] for node in "abc"] == [[], [], []]


def test_rule_17_one_that_lacks_no_payload_is_told_that_the_log_was_trimmed_above_it() -> None:
    """It asks for nothing any more, and nobody lets in who stands below what is kept."""
    cluster = cluster_with(40)
    everywhere(cluster, length(cluster))
    leave(cluster, "c")
    run_until_in_view(cluster, "a", "b")
    cluster.journals["c"] = DiskJournal("c", 77)
    cluster.start("c")
    while cluster.core("c").log_state is None:
        assert cluster.now_ms < 60_000
        cluster.run(1)
    foot = start_of(cluster, "a")
    for index, below in ((foot - 1, 1), (foot, 0)):
        who = msgspec.structs.replace(build_hello(cluster.core("c").views), log_index=index)
        cluster.core("a").receive("c", who, cluster.now("a"), True)
        said = [send.message for send in cluster.core("a").drain().sends if send.peer == "c"]
        assert [type(message) for message in said] == [wire.HelloReply, *[wire.LogTruncatedBelow] * below]


def test_rule_17_a_lost_disk_below_the_foot_while_the_others_have_installed_no_view() -> None:
    """It was to be let in again and lost its disk before it accepted: nobody else is at work until it is back."""
    cluster = cluster_with(40)
    everywhere(cluster, length(cluster))
    cluster.crash("c")
    for node in "ab":
        cluster.executors[node].prove_down("c", cluster.journals["c"].birth, cluster.journals["c"].start)
    run_until_in_view(cluster, "a", "b")
    cluster.start("c")
    while not cluster.core("c").views.is_stopped:
        assert cluster.now_ms < 60_000
        cluster.run(1)
    cluster.cut |= {("a", "c"), ("b", "c")}  # it has reported; what it should accept does not arrive
    while any(cluster.core(node).views.installed for node in "ab"):
        assert cluster.now_ms < 60_000
        cluster.run(1)
    cluster.crash("c")
    cluster.cut.clear()
    cluster.journals["c"] = DiskJournal("c", 77)
    cluster.start("c")
    cluster.run(20)
    assert cluster.core("c").state == "Learning", "their view says that the cluster is founded"
    run_until_in_view(cluster, "a", "b", "c")
    write(cluster, 5)
    assert len({hash_of(cluster, node) for node in "abc"}) == 1
    assert start_of(cluster, "c") == start_of(cluster, "a") > 0


def test_rule_17_a_snapshot_is_known_after_a_restart_before_the_view_was_accepted() -> None:
    """It stands on what it has taken over, and the view that it was to be let in by, which the others have accepted,
    names it: it reports where it stands, else it would be taken for one below the foot, for ever."""
    cluster = cluster_with(40)
    everywhere(cluster, length(cluster))
    foot = start_of(cluster, "a")
    write(cluster, 5)
    leave(cluster, "c")
    run_until_in_view(cluster, "a", "b")
    cluster.journals["c"] = DiskJournal("c", 77)
    cluster.start("c")
    while not cluster.core("c").views.is_stopped:
        assert cluster.now_ms < 60_000
        cluster.run(1)
    cluster.cut |= {("a", "c"), ("b", "c")}  # it has reported; what it should accept does not arrive
    while any(cluster.core(node).views.installed for node in "ab"):
        assert cluster.now_ms < 60_000
        cluster.run(1)
    assert start_of(cluster, "c") == foot > 0
    cluster.crash("c")
    while any(cluster.core(node).views.change is not None for node in "ab"):
        assert cluster.now_ms < 60_000
        cluster.run(1)
    cluster.cut.clear()
    cluster.start("c")
    run_until_in_view(cluster, "a", "b", "c")
    write(cluster, 5)
    assert len({hash_of(cluster, node) for node in "abc"}) == 1
    assert start_of(cluster, "c") == foot


def test_who_is_out_by_order_holds_the_log_until_it_is_heard() -> None:
    """Where it was before says nothing: on another side it may have taken another order's log, after a lost disk."""
    cluster = Cluster(journal=DiskJournal, idle_interval_ms=100, majority=True).founded()
    write(cluster, 4)
    backup = place(cluster, BACKUP, length(cluster, "b"))
    cluster.cut |= {(x, y) for x in "abc" for y in "abc" if x != y and "b" in (x, y)}
    end_ms = cluster.now_ms + 5000
    while cluster.core("b").state != "Suspected":
        assert cluster.now_ms < end_ms
        cluster.run(20)
    assert ("master", "a") not in held_by(trim(cluster, "b"))
    cluster.executors["b"].force_view(["a", "c"])
    run_until_in_view(cluster, "b")
    write(cluster, 4, "b")
    verdict = trim(cluster, "b", backup)
    assert verdict.trim_to == verdict.start == 0
    assert held_by(verdict) == [(MASTER, "a"), (MASTER, "c")]


def test_nothing_is_trimmed_beyond_what_is_settled_whatever_positions_are_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All are at the end of the log here, also the worker and a backup, and its last two entries are not settled."""
    cluster = cluster_with(3)
    log, end = cluster.core("a").log_state, length(cluster)
    assert log is not None
    known = {node: wire.Checkpoint(end, log.log_index.hash) for node in "bc"}
    places = [place(cluster, BACKUP, end - 2, "older"), place(cluster, BACKUP, end), place(cluster, WORKER, end)]
    assert decide_trim(log, places, list("abc"), known, 1 << 60).trim_to == end
    monkeypatch.setattr(type(log), "final_index", property(lambda _: end - 2))
    verdict = decide_trim(log, places, list("abc"), known, 1 << 60)
    assert verdict.trim_to == end - 2
    assert held_by(verdict) == [(BACKUP, "older"), (MASTER, "a")]
