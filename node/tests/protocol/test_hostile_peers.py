"""A broken or lying peer ends no process outside of a named refusal: messages of real masters, each with some values
changed."""

from __future__ import annotations

import contextlib
import pickle
import random
from collections import Counter, defaultdict
from typing import Any

import msgspec
import pytest
from changing_views import back_up, forget, leave, run_until_in_view
from core_cluster import Cluster

from txlog.journal import record_bodies
from txlog.model.bounds import COUNT_MAX, KEY_BYTES_MAX
from txlog.model.entry import RunItem, Span, TransactionRun
from txlog.model.errors import Fatal, PeerFault
from txlog.model.hashes import short_hash
from txlog.model.records import (
    Damage,
    LogAppended,
    LogStart,
    OperatorOverrides,
    Record,
    RecoveredState,
    TransactionsPersisted,
    ViewAccepted,
    ViewInstalled,
)
from txlog.model.view import View
from txlog.protocol.events import ClockReading, ConfiguredMember, ProtocolSettings
from txlog.protocol.log.log_start import decode_log_start
from txlog.protocol.replication.snapshot_install import SnapshotInstaller
from txlog.runtime.executor import Executor
from txlog.runtime.journal_repair import JournalRepair
from txlog.wire import messages as wire
from txlog.wire.message_checks import log_start_error
from txlog.wire.messages import AcceptView, Message, Post, RejectView, RunsReply, SnapshotChunk, ViewReport
from txlog_simulation.hostile_messages import changed_message

MUTATIONS = 3000
OF_EACH_KIND = 30
"""Messages of one kind that are kept: posts would be all otherwise."""


class Received:
    """A message to ``b``, and ``b`` as it was when the message arrived."""

    def __init__(self, kind: str, source: str, data: bytes, executor: Executor, now: ClockReading) -> None:
        self.kind = kind
        self.source = source
        self.data = data
        self.packed = pickle.dumps(executor)  # thousands of copies are made of it: a deep copy takes six times as long
        self.now = now

    def executor(self) -> Executor:
        """A new copy of ``b``."""
        copied: Executor = pickle.loads(self.packed)
        return copied


class Recorded(Cluster):
    """Keeps messages to ``b``."""

    kept: defaultdict[str, list[Received]]
    random: random.Random

    def receive(self, source: str, target: str, data: bytes) -> None:
        if target == "b":
            kind = type(wire.decode(source, data)).__name__
            kept = self.kept[kind]
            if len(kept) < OF_EACH_KIND or self.random.random() < 0.1:
                one = Received(kind, source, data, self.executors["b"], self.now("b"))
                if len(kept) < OF_EACH_KIND:
                    kept.append(one)
                else:
                    kept[self.random.randrange(OF_EACH_KIND)] = one
        super().receive(source, target, data)


@pytest.fixture(scope="module")
def received() -> list[Received]:
    """Messages of a bootstrap, a leave, a split in which both sides write, a rejoin, and a lost disk."""
    cluster = Recorded.__new__(Recorded)
    cluster.kept, cluster.random = defaultdict(list), random.Random(7)
    cluster.__init__("abc", max_peer_lag_ms=900, idle_interval_ms=100)  # type: ignore[misc]
    cluster.founded()
    for number in range(3):
        for node in "abc":
            cluster.submit(node, f"x{node}{number}", key=f"k{number}")
        cluster.run(30)
    leave(cluster, "c")
    cluster.run(100)
    cluster.start("c")
    run_until_in_view(cluster, "a", "b", "c")
    cluster.submit("c", "later")
    cluster.run(50)
    cluster.cut |= {("a", "b"), ("b", "a"), ("a", "c"), ("c", "a")}
    cluster.submit("a", "apart")
    cluster.submit("b", "together")
    cluster.run(500)
    back_up(cluster, "a", "b", "c")
    run_until_in_view(cluster, "b", "c")
    run_until_in_view(cluster, "a")
    cluster.submit("a", "apart 2")
    cluster.submit("b", "together 2")
    cluster.run(50)
    cluster.cut.clear()
    run_until_in_view(cluster, "a", "b", "c")
    cluster.submit("a", "again")
    cluster.run(300)
    cluster.crash("c")
    cluster.run(50)
    forget(cluster, "c")
    cluster.start("c")
    run_until_in_view(cluster, "a", "b", "c")
    cluster.run(300)
    return [one for kind in sorted(cluster.kept) for one in cluster.kept[kind]]


def encode_record(record: Record) -> None:
    """As the journal does it."""
    match record:
        case TransactionsPersisted():
            record_bodies.encode_held(record_bodies.encode_origin(record.run.origin), record.run, record.contents)
        case LogAppended():
            record_bodies.encode_added(record)
        case ViewAccepted():
            record_bodies.encode_accepted(record, 0)
        case ViewInstalled():
            record_bodies.encode_installed((record.epoch, record.ballot, record.coordinator), 0)
        case OperatorOverrides():
            record_bodies.encode_orders(record)
        case _:
            record_bodies.encode_scalar_record(record)


def outcome(one: Received, data: bytes) -> str:
    """What becomes of ``b``: empty, or how its process ends outside of a named refusal."""
    executor, now = one.executor(), one.now
    durable = len(executor.journal.records)  # type: ignore[attr-defined]
    try:
        with contextlib.suppress(PeerFault):
            executor.receive(one.source, data, now)
        for later_ms in (0, 30, 330, 900):
            executor.poll(ClockReading(now.wall, now.mono + later_ms))
            while (sync := executor.begin_sync()) is not None:
                sync.run()
                executor.end_sync()
            executor.release()
        for record in executor.journal.records[durable:]:  # type: ignore[attr-defined]
            encode_record(record)
    except Fatal:
        return ""
    except Exception as wrong:  # noqa: BLE001 - what ends a process is what is looked for
        frame = wrong.__traceback__
        while frame is not None and frame.tb_next is not None:
            frame = frame.tb_next
        assert frame is not None
        where = f"{frame.tb_frame.f_code.co_filename.rpartition('/')[2]}:{frame.tb_lineno}"
        return f"{type(wrong).__name__} in {where}: {str(wrong)[:90]}"
    return ""


def test_no_changed_message_ends_a_process_outside_of_a_named_refusal(received: list[Received]) -> None:
    kinds = {one.kind for one in received}
    assert kinds >= {"Post", "Hello", "HelloReply", "ProposeView", "ViewReport", "AcceptView", "RunsReply", "FetchRuns"}
    rng = random.Random(1)
    by_kind = [[one for one in received if one.kind == kind] for kind in sorted(kinds)]
    found: Counter[tuple[str, str]] = Counter()
    tries = 0
    while tries < MUTATIONS:
        one = rng.choice(rng.choice(by_kind))
        data = changed_message(one.data, rng)
        if data is None:
            continue
        tries += 1
        ended = outcome(one, data)
        if ended:
            found[one.kind, ended] += 1
    assert not found, "\n".join(f"{count} {kind}: {ended}" for (kind, ended), count in found.most_common())


# Each check by itself: a mutated message rarely gets as far as a lie that is made for it.

MANY = 1 << 40
HASH = bytes(16)


def last_of(received: list[Received], kind: type[Message]) -> tuple[Received, Any]:
    one = [one for one in received if one.kind == kind.__name__][-1]
    return one, wire.decode(one.source, one.data)


def refusal(message: Message) -> str:
    with pytest.raises(PeerFault) as caught:
        wire.decode("a", wire.encode(message))
    assert caught.value.reason == "Malformed"
    return str(caught.value)


def test_a_count_of_a_report_is_compared_with_the_bytes_that_came(received: list[Received]) -> None:
    _, report = last_of(received, ViewReport)
    assert "entries between them" in refusal(
        msgspec.structs.replace(report, tail=[Span("a", 1, 1, MANY)], log=wire.Checkpoint(MANY, HASH))
    )
    queued = wire.QueuedTransactions("a", 1, 1, [5, 6], HASH)
    assert "do not match" in refusal(msgspec.structs.replace(report, pending=[queued]))
    assert "unknown strategy" in refusal(msgspec.structs.replace(report, prefers="Newest"))


@pytest.mark.parametrize(
    "change",
    [
        {"known_seqs": [1]},
        {"strategy": "Newest"},
        {"floor": 1 << 62},
        {"base_index": COUNT_MAX + 1},
        {"origins": [("a", birth) for birth in range(256)]},
        {"origins": [("a", -1)]},
        {"members": []},
        {"base_hash": b""},
    ],
    ids=lambda change: next(iter(change)),
)
def test_the_parts_of_a_view_fit_each_other(received: list[Received], change: dict[str, Any]) -> None:
    _, accept = last_of(received, AcceptView)
    view: View = msgspec.structs.replace(accept.view, **change)
    refusal(msgspec.structs.replace(accept, view=view))
    refusal(wire.CommitBootstrap(view))


def test_an_incarnation_below_zero_is_refused_in_every_message(received: list[Received]) -> None:
    carrying = {each.kind: each for each in received if hasattr(wire.decode(each.source, each.data), "birth")}
    assert len(carrying) > 4
    for each in carrying.values():
        changed = msgspec.structs.replace(wire.decode(each.source, each.data), birth=-1)
        with pytest.raises(PeerFault, match="Malformed: Expected `int` >= 0"):
            wire.decode(each.source, wire.encode(changed))


@pytest.mark.parametrize("change", [{"base_index": 3}, {"base_hash": bytes(15) + b"x"}, {"epoch": 2}, {"floor": 9}])
def test_a_founding_begins_an_empty_log(received: list[Received], change: dict[str, Any]) -> None:
    each = next(one for one in received if one.kind == "ProposeBootstrap")
    founding = wire.decode(each.source, each.data)
    assert isinstance(founding, wire.ProposeBootstrap)
    view = msgspec.structs.replace(founding.view, **change)
    with pytest.raises(PeerFault, match="begins no cluster"):
        wire.decode(each.source, wire.encode(msgspec.structs.replace(founding, view=view)))


def test_a_base_with_a_stamp_above_its_floor_is_refused(received: list[Received]) -> None:
    _, accept = last_of(received, AcceptView)
    base = accept.view.base_index - accept.cut
    view = msgspec.structs.replace(accept.view, base_index=accept.view.base_index + 1)
    spans = [*accept.spans, Span(view.members[0].node, view.members[0].birth, 99, 1)]
    stamps = accept.stamps + (view.floor + 1).to_bytes(8, "little")
    assert base >= 0
    assert "floor" in refusal(msgspec.structs.replace(accept, view=view, spans=spans, stamps=stamps))


def test_a_view_that_parks_less_or_more_than_its_base_has_is_refused(received: list[Received]) -> None:
    """Queues of masters outside the view would have a negative length, or enter it with old stamps."""
    one, accept = last_of(received, AcceptView)
    members = {(m.node, m.birth) for m in accept.view.members}
    outside = [origin not in members for origin in accept.view.origins]
    assert any(outside)
    for by in (-1, 1):
        known = [seq + (by if away else 0) for seq, away in zip(accept.view.known_seqs, outside, strict=True)]
        wrong = msgspec.structs.replace(accept, view=msgspec.structs.replace(accept.view, known_seqs=known))
        executor = one.executor()
        executor.receive(one.source, wire.encode(wrong), one.now)
        executor.poll(one.now)
        while (sync := executor.begin_sync()) is not None:
            sync.run()
            executor.end_sync()
        replies = [wire.decode("b", data) for _, data in executor.release().messages]
        assert "OtherBase" in [reply.why for reply in replies if isinstance(reply, RejectView)]


def test_an_order_with_an_unknown_slot_is_the_fault_of_its_sender(received: list[Received]) -> None:
    one, post = last_of(received, Post)
    wrong = msgspec.structs.replace(post, order_after=0, order=b"\x00\xfe", order_hash=HASH)
    executor = one.executor()
    with pytest.raises(PeerFault, match="slot"):
        executor.receive(one.source, wire.encode(wrong), one.now)


@pytest.mark.parametrize(
    "item",
    [RunItem(0, 1, "ü" * KEY_BYTES_MAX, b""), RunItem(0, -1, "", HASH)],
    ids=["a key that the journal has no room for", "a named payload in a post that names none"],
)
def test_a_transaction_that_the_journal_cannot_store_is_refused(received: list[Received], item: RunItem) -> None:
    one, post = last_of(received, Post)
    executor = one.executor()
    log = executor.core.log_state
    assert log is not None
    peer = next(p for p in executor.core.peers if p.node == one.source)
    queue = log.by_origin[peer.origin]
    later = (
        item._replace(stamp=queue.last_stamp + 1)
        if hasattr(item, "_replace")
        else msgspec.structs.replace(item, stamp=queue.last_stamp + 1)
    )
    runs = [TransactionRun(peer.node, peer.origin.birth, queue.held + 1, [later])]
    with pytest.raises(PeerFault, match=r"kind|a key"):
        executor.receive(one.source, wire.encode(msgspec.structs.replace(post, runs=runs)), one.now)


def log_start(**changes: Any) -> LogStart:
    start = LogStart(3, HASH, ("a", 1), 7, [("a", 1, 2), ("b", 2, 1)], [], [], [])
    return msgspec.structs.replace(start, **changes)


@pytest.mark.parametrize(
    "change",
    [
        {"index": 4},
        {"last": ("z", 1)},
        {"seqs": [("a", 1, MANY)]},
        {"seqs": [("a", birth, 1) for birth in range(256)], "last": ("a", 1)},
        {"stamp": 1 << 63},
        {"retention": -1},
        {"hash": b""},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_snapshot_is_checked_before_it_is_used(change: dict[str, Any]) -> None:
    assert log_start_error(decode_log_start(msgspec.msgpack.encode(log_start())), 3) == ""
    core = Cluster("ab").founded().core("a")
    assert core.log_state is not None
    data = msgspec.msgpack.encode(log_start(**change))
    installer = SnapshotInstaller(core.local, core.outbox)
    installer.on_log_truncated("b", wire.LogTruncatedBelow(3, HASH), core.log_state, 0)
    with pytest.raises(PeerFault, match="its snapshot at 3"):
        installer.on_chunk("b", SnapshotChunk(3, len(data), short_hash(data), 0, data), core.log_state, 0)


def test_a_snapshot_has_a_bounded_size_that_stays() -> None:
    refusal(SnapshotChunk(1, wire.SNAPSHOT_BYTES_MAX + 1, HASH, 0, b"x"))
    cluster = Cluster("ab").founded()
    core = cluster.core("a")
    assert core.log_state is not None
    for later in (SnapshotChunk(9, 90, HASH, 10, b"y" * 10), SnapshotChunk(9, 100, HASH, 10, b"y" * 91)):
        installer = SnapshotInstaller(core.local, core.outbox)
        installer.on_log_truncated("b", wire.LogTruncatedBelow(9, HASH), core.log_state, 0)
        assert not installer.on_chunk("b", SnapshotChunk(9, 100, HASH, 0, b"x" * 10), core.log_state, 0)
        assert installer.incoming is not None
        assert not installer.on_chunk("b", later, core.log_state, 0)
        assert installer.incoming is None, "it is requested from the beginning again"


class EmptyJournal:
    """A journal that holds nothing of what is asked for."""

    def read(self, node: str, birth: int, first_seq: int, count_max: int, bytes_max: int) -> TransactionRun:
        return TransactionRun(node, birth, first_seq, [])

    def provable_prefix(self, run: TransactionRun) -> int:
        return len(run.items)


def repair() -> JournalRepair:
    damage = Damage(1, 2, "segment 1", 1, 2, HASH, [])
    recovered = RecoveredState("b", 2, 1, False, None, None, 0, 2, [], bytearray(), 0, [], [], [damage])
    recovered.accepted = View(1, 1, "a", [], HASH, 0, HASH, [("a", 1)], [])
    members = (ConfiguredMember("a", "uk", 1), ConfiguredMember("b", "uk", 1))
    return JournalRepair(ProtocolSettings(node="b", members=members), recovered, EmptyJournal())


def test_an_order_longer_than_asked_for_is_refused_by_a_repair() -> None:
    reply = wire.OrderReply(0, [Span("a", 1, 1, MANY)], HASH)
    with pytest.raises(PeerFault, match="more than were requested"):
        repair().receive("a", wire.encode(reply), ClockReading(0, 0))


def test_an_order_of_transactions_that_nobody_has_ends_no_repair() -> None:
    one = repair()
    one.receive("a", wire.encode(wire.OrderReply(0, [Span("z", 9, 1, 2)], HASH)), ClockReading(0, 0))
    assert not one.is_finished
    one.receive("a", wire.encode(RunsReply([])), ClockReading(0, 0))
    assert not one.is_finished


@pytest.mark.parametrize("name", ["", "UK-1", "uk_1", "uk-", "uk-1\n", "ü", "a" * 64])
def test_a_transaction_of_a_master_with_no_possible_name_is_refused(name: str) -> None:
    """The journal takes an empty name for none, and a start could not read what it had stored."""
    reply = RunsReply([TransactionRun(name, 1, 1, [RunItem(1, 1, "", b"")])])
    with pytest.raises(PeerFault, match="Malformed"):
        wire.decode("b", wire.encode(reply))
