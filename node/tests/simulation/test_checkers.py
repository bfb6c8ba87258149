"""Each checker can fail: it is fed a wrong history and must say so."""

from __future__ import annotations

import msgspec

from txlog.model.entry import KIND_SKIP, KIND_UPDATE, RunItem, Span, TransactionRun
from txlog.model.hashes import chain_hash, chain_start, content_hash, origin_tag
from txlog.model.ids import Origin, Txid
from txlog.model.records import (
    CounterCeiling,
    LogAppended,
    ReassignedStamps,
    StableAdvanced,
    TransactionsPersisted,
    ViewAccepted,
)
from txlog.model.view import Member, View, bootstrap_view
from txlog.protocol.events import DurabilityMarks, Submission
from txlog.protocol.log.log_index import LogIndex
from txlog.wire.messages import ReplicaState
from txlog_simulation.checkers.acknowledgements import AcknowledgementChecker, PromiseChecker
from txlog_simulation.checkers.log import LogChecker, ObservedBranch
from txlog_simulation.checkers.transactions import TransactionChecker
from txlog_simulation.checkers.workers import SimulatedWorker
from txlog_simulation.durable_state import DurableState
from txlog_simulation.violation import ViolationLog

A, B = Origin("a", 1), Origin("b", 2)
MEMBERS = [Member("a", 1, 1, "uk"), Member("b", 2, 1, "us")]
VIEW = bootstrap_view(1, "a", MEMBERS, "Smart")
OTHER_CLUSTER = bytes(reversed(VIEW.cluster_id))


class History:
    """Two masters' disks and the checkers; ``said`` are the rules found broken."""

    def __init__(self) -> None:
        self.findings = ViolationLog()
        self.transactions = TransactionChecker(self.findings)
        self.log = LogChecker(self.findings, self.transactions, 1000)
        self.told = AcknowledgementChecker(self.findings, self.transactions, self.log, {"a": 1, "b": 1})
        self.promises = PromiseChecker(self.findings, self.transactions)
        self.mirrors = {A: DurableState(), B: DurableState()}
        self.stamps: dict[Txid, tuple[int, bytes]] = {}
        for mirror in self.mirrors.values():
            mirror.apply(ViewAccepted(VIEW))

    @property
    def said(self) -> set[str]:
        return {f"{v.kind} {v.rule}" for v in self.findings.violations}

    def hold(
        self, at: Origin, origin: Origin, seq: int, stamp: int, text: str = "", key: str = "", kind: int = 1
    ) -> None:
        item = RunItem(stamp, kind, key, (text or f"{origin}{seq}").encode())
        content = content_hash(kind, key, item.payload)
        if at == origin:
            self.transactions.on_submitted(at.node, [Submission(kind, key, item.payload, content)])
            self.stamps[Txid(origin, seq)] = (stamp, content)
        record = TransactionsPersisted(TransactionRun(origin.node, origin.birth, seq, [item]), content)
        self.transactions.on_persisted(at.node, record)
        self.log.on_persisted(at.node, record)
        self.mirrors[at].apply(record)

    def add(self, at: Origin, *entries: tuple[Origin, int], stable: int = 0) -> None:
        mirror = self.mirrors[at]
        value, cells, spans = mirror.log_hash or chain_start(VIEW.cluster_id), [], []
        for origin, seq in entries:
            stamp, content = self.stamps[Txid(origin, seq)]
            value = chain_hash(value, stamp, origin_tag(origin), seq, content)
            cells.append(value)
            spans.append(Span(origin.node, origin.birth, seq, 1))
        record = LogAppended(mirror.log_length + 1, spans, b"".join(cells), stable)
        self.log.on_appended(at.node, record, mirror)
        mirror.apply(record)

    def settle(self, at: Origin, stable: int) -> None:
        self.mirrors[at].apply(StableAdvanced(stable))
        self.log.on_stable(at.node, stable, self.mirrors[at], self.mirrors)

    @property
    def branch(self) -> ObservedBranch:
        return self.log.branch_of(self.mirrors[A])

    def accept(
        self, at: Origin, view: View, cut: int, *entries: tuple[Origin, int], stamped: list[ReassignedStamps]
    ) -> None:
        """A base whose hashes follow from the stamps that these entries have then."""
        for several in stamped:
            for offset, stamp in enumerate(several.stamps):
                txid = Txid(Origin(several.node, several.birth), several.first_seq + offset)
                self.stamps[txid] = (stamp, self.stamps[txid][1])
        mirror = self.mirrors[at]
        value = bytes(mirror.hashes[: 16 * cut][-16:]) or chain_start(VIEW.cluster_id)
        cells, spans = [], []
        for origin, seq in entries:
            stamp, content = self.stamps[Txid(origin, seq)]
            value = chain_hash(value, stamp, origin_tag(origin), seq, content)
            cells.append(value)
            spans.append(Span(origin.node, origin.birth, seq, 1))
        view = msgspec.structs.replace(view, base_index=cut + len(entries), base_hash=value)
        record = ViewAccepted(view, cut, spans, b"".join(cells), stamped)
        self.log.on_view_accepted(at.node, record, mirror, list(view.ancestors))
        mirror.apply(record)


def two_held() -> History:
    history = History()
    for at in (A, B):
        history.hold(at, A, 1, 10)
    for at in (B, A):
        history.hold(at, B, 1, 20)
    return history


def test_a_right_history_is_found_right() -> None:
    history = two_held()
    for at in (A, B):
        history.add(at, (A, 1), (B, 1))
        history.settle(at, 2)
        history.told.on_marks(at, DurabilityMarks(1, 1, 1, 2, 0), history.mirrors, VIEW)
    history.told.check_final(history.mirrors, set(), complete=True)
    assert history.said == set()


def test_fork() -> None:
    history = two_held()
    history.add(A, (A, 1), (B, 1))
    history.add(B, (B, 1), (A, 1))
    assert history.said == {"log 14"}


def test_keys_fall() -> None:
    history = two_held()
    history.add(A, (B, 1), (A, 1))
    assert history.said == {"log 13"}


def test_twice_in_the_log() -> None:
    history = two_held()
    history.add(A, (A, 1), (A, 1))
    assert history.said == {"log 13"}


def test_entry_without_payload() -> None:
    history = History()
    history.hold(A, A, 1, 10)
    history.add(B, (A, 1))
    assert history.said == {"log 12", "log 3"}, "nor has it a stamp there"


def test_present_member_without_it() -> None:
    history = History()
    history.hold(A, A, 1, 10)
    history.log.on_first_appended("a", LogAppended(1, [Span("a", 1, 1, 1)], bytes(16), 0), {B}, history.mirrors)
    assert history.said == {"log 12"}


def test_phantom_and_two_contents() -> None:
    history = two_held()
    item = RunItem(30, KIND_UPDATE, "", b"nobody's")
    history.transactions.on_persisted(
        "a", TransactionsPersisted(TransactionRun("a", 1, 2, [item]), content_hash(1, "", item.payload))
    )
    other = RunItem(10, KIND_UPDATE, "", b"other")
    history.transactions.on_persisted(
        "b", TransactionsPersisted(TransactionRun("a", 1, 1, [other]), content_hash(1, "", other.payload))
    )
    assert history.said == {"log 3"}


def test_stable_but_not_everywhere() -> None:
    history = History()
    history.hold(A, A, 1, 10)
    history.add(A, (A, 1))
    history.settle(A, 1)
    assert history.said == {"log 33"}


def test_told_before_durable() -> None:
    history = two_held()
    history.told.on_marks(A, DurabilityMarks(2, 0, 0, 1, 1), history.mirrors, VIEW)
    assert history.said == {"acknowledgement 15"}


def test_quorum_and_synced_too_early() -> None:
    history = History()
    history.hold(A, A, 1, 10)
    history.told.on_marks(A, DurabilityMarks(1, 1, 1, 0, 0), history.mirrors, VIEW)
    assert history.said == {"acknowledgement 16"}
    assert len(history.findings.violations) == 2


def test_accepted_and_lost() -> None:
    history = two_held()
    history.told.on_marks(A, DurabilityMarks(1, 0, 0, 0, 0), history.mirrors, VIEW)
    history.told.check_final(history.mirrors, set(), complete=True)
    assert history.said == {"acknowledgement 15"}


def test_promises() -> None:
    history = two_held()
    mirror = history.mirrors[A]
    mirror.apply(CounterCeiling(15))
    history.promises.on_post(A, ReplicaState(0, 1, 1, 1, 0, b"", 12, 1, [1, 1], 3, False), mirror)
    assert history.said == set()
    history.promises.on_transaction(A, 12, 2)
    history.promises.on_post(A, ReplicaState(0, 1, 1, 2, 1, b"", 40, 0, [2, 1], 3, False), mirror)
    assert history.said == {"promise 4", "promise 5", "promise 7", "promise 8"}


def test_worker_out_of_order_other_payload_and_twice() -> None:
    history = two_held()
    for at in (A, B):
        history.add(at, (A, 1), (B, 1))
        history.settle(at, 2)
    worker = SimulatedWorker("a", history.findings)
    branch = history.branch
    worker.execute(branch, B, 1, RunItem(20, KIND_UPDATE, "", b"b.00000000000000021"), None, branch.hash_at(1))
    assert {"worker 14", "worker 8"} == history.said
    history.findings.violations.clear()
    worker.index = 0  # it goes back and does not undo
    worker.execute(branch, A, 1, RunItem(10, KIND_UPDATE, "", f"{A}1".encode()), None, branch.hash_at(1))
    assert history.said == {"worker 16"}


def test_worker_beyond_what_is_stable() -> None:
    history = two_held()
    history.add(A, (A, 1), (B, 1))
    history.settle(A, 1)
    worker = SimulatedWorker("a", history.findings)
    worker.execute(
        history.branch, A, 1, RunItem(10, KIND_UPDATE, "", f"{A}1".encode()), None, history.branch.hash_at(1)
    )
    assert history.said == set()
    worker.execute(
        history.branch, B, 1, RunItem(20, KIND_UPDATE, "", f"{B}1".encode()), None, history.branch.hash_at(2)
    )
    assert history.said == {"worker 15"}


def test_a_store_of_one_cluster_is_neither_written_nor_emptied_for_another() -> None:
    history = History()
    log = LogIndex(OTHER_CLUSTER, [])
    worker = SimulatedWorker("a", history.findings)
    worker.follow(VIEW.cluster_id)
    worker.index, worker.hash = 1, bytes(16)
    worker.follow(VIEW.cluster_id)
    assert history.said == set()
    worker.follow(OTHER_CLUSTER)
    assert history.said == {"worker 30"}
    history.findings.violations.clear()
    worker.cluster = VIEW.cluster_id
    worker.restore_backup(log, OTHER_CLUSTER)
    assert history.said == {"worker 30"}
    history.findings.violations.clear()
    worker.cluster, worker.index = VIEW.cluster_id, 1
    worker.discard()
    worker.restore_backup(log, OTHER_CLUSTER)
    worker.follow(OTHER_CLUSTER)
    assert history.said == set(), "a person let the content go"


def test_key_that_takes_effect_twice() -> None:
    history = History()
    for at in (A, B):
        history.hold(at, A, 1, 10, "same", "k")
    for at in (B, A):
        history.hold(at, B, 1, 20, "same", "k")
    for at in (A, B):
        history.add(at, (A, 1), (B, 1))
        history.settle(at, 2)
    worker = SimulatedWorker("a", history.findings)
    item = RunItem(10, KIND_UPDATE, "k", b"same")
    worker.execute(history.branch, A, 1, item, None, history.branch.hash_at(1))
    assert history.said == set()
    worker.execute(history.branch, B, 1, item, None, history.branch.hash_at(2))
    assert history.said == {"worker 16"}


def test_skips_are_no_keys() -> None:
    history = History()
    for at in (A, B):
        history.hold(at, A, 1, 10, "why", f"{B}.1", KIND_SKIP)
        history.hold(at, A, 2, 20, "why", f"{B}.1", KIND_SKIP)
    for at in (A, B):
        history.add(at, (A, 1), (A, 2))
        history.settle(at, 2)
    assert [entry.counts_instead for entry in history.branch.entries] == [None, None]
    assert history.said == set()


# A change of views

NEXT = View(2, 1, "a", MEMBERS, VIEW.cluster_id, 0, bytes(16), VIEW.origins, [VIEW.number])


def grown() -> History:
    """a1 and b1 in the log of both, a1 stable; a2 waits."""
    history = two_held()
    for at in (A, B):
        history.hold(at, A, 2, 30)
        history.add(at, (A, 1), (B, 1))
        history.settle(at, 1)
    return history


def test_a_right_change_is_found_right() -> None:
    history = grown()
    for at in (A, B):
        history.accept(at, NEXT, 1, (B, 1), (A, 2), stamped=[ReassignedStamps("b", 2, 1, [25])])
    assert history.said == set()
    assert [entry.stamp for entry in history.branch.entries] == [10, 25, 30]


def test_a_cut_into_what_is_stable() -> None:
    history = grown()
    history.accept(A, NEXT, 0, (B, 1), (A, 1), stamped=[ReassignedStamps("a", 1, 1, [22])])
    assert history.said == {"log 21", "log 6"}


def test_a_cut_behind_the_end() -> None:
    history = grown()
    history.accept(A, NEXT, 3, stamped=[])
    assert history.said == {"log 21"}


def test_two_bases_of_one_view() -> None:
    history = grown()
    history.accept(A, NEXT, 2, (A, 2), stamped=[])
    history.accept(B, NEXT, 2, stamped=[])
    assert history.said == {"log 25"}, "though one is the beginning of the other"
    history = grown()
    history.accept(A, NEXT, 2, (A, 2), stamped=[])
    history.accept(B, NEXT, 1, (B, 1), stamped=[ReassignedStamps("b", 2, 1, [26])])
    assert history.said == {"log 25"}


def test_a_base_that_is_not_the_one_named() -> None:
    history = grown()
    record = ViewAccepted(msgspec.structs.replace(NEXT, base_index=2, base_hash=bytes(16)), 2)
    history.log.on_view_accepted("a", record, history.mirrors[A], list(record.view.ancestors))
    assert history.said == {"log 25"}


def test_a_base_whose_payload_is_missing() -> None:
    history = grown()
    history.hold(B, B, 2, 40)
    history.accept(A, NEXT, 2, (B, 2), stamped=[])
    assert "log 12" in history.said


def test_a_base_whose_keys_fall() -> None:
    history = grown()
    history.accept(A, NEXT, 2, (A, 2), stamped=[ReassignedStamps("a", 1, 2, [15])])
    assert history.said == {"log 13"}


def test_a_merge_may_move_what_the_branches_do_not_share() -> None:
    history = grown()
    merged = msgspec.structs.replace(NEXT, merged=True, diverged_index=0)
    history.accept(A, merged, 0, (B, 1), (A, 1), stamped=[ReassignedStamps("b", 2, 1, [5])])
    assert history.said == set()


def test_but_never_what_all_of_them_share() -> None:
    history = grown()
    apart = msgspec.structs.replace(NEXT, diverged_index=1)
    history.accept(A, apart, 2, stamped=[])
    later = View(
        3, 1, "a", MEMBERS, VIEW.cluster_id, 0, bytes(16), VIEW.origins, [VIEW.number, NEXT.number], merged=True
    )
    history.settle(A, 1)
    history.accept(A, later, 0, (B, 1), (A, 1), stamped=[ReassignedStamps("b", 2, 1, [5])])
    assert history.said == {"log 21"}
