"""What a change of views does to the log, the keys and the queues; and who counts as heard (rules 13, 14, 16, 21)."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from txlog.model.entry import KIND_SKIP, KIND_UPDATE, RunItem, Span, TransactionRun
from txlog.model.hashes import HASH_BYTES, chain_hash, chain_start, content_hash, origin_tag
from txlog.model.ids import Origin, Txid
from txlog.model.records import ReassignedStamps, TransactionsPersisted, ViewAccepted, ViewInstalled
from txlog.model.stamp import LOGICAL_BITS
from txlog.model.view import Member, View, bootstrap_view
from txlog.protocol.log.idempotency_keys import IdempotencyKeys
from txlog.protocol.log.incoming_queue import OriginQueue
from txlog.protocol.log.key_table import TAG_BYTES, FirstUse, key_name
from txlog.protocol.log.log_index import LogIndex
from txlog.protocol.log.log_state import LogState
from txlog.protocol.replication.failure_detector import FailureDetector
from txlog_simulation.reference_journal import recovered_state

ORIGINS = [Origin("b", 2), Origin("a", 9), Origin("c", 5)]


def cell(index: int) -> bytes:
    return index.to_bytes(HASH_BYTES, "big")


def same(one: LogIndex, other: LogIndex) -> None:
    assert one.length == other.length
    assert one.hash == other.hash
    assert one.order(0, one.length) == other.order(0, other.length)
    assert one.spans(0, one.length) == other.spans(0, other.length)
    for slot, origin in enumerate(one.origins):
        assert one.slot(origin) == other.slot(origin) == slot
        for index in range(0, one.length + 1, 7):
            assert one.seq_within(slot, index) == other.seq_within(slot, index)
        for seq in range(one.seq_within(slot, one.length) + 2):
            assert one.index_of(origin, seq) == other.index_of(origin, seq)


def history_of(order: list[int], origins: list[Origin] | None = None) -> LogIndex:
    history = LogIndex(bytes(16), ORIGINS if origins is None else origins)
    history.append(bytes(order), b"".join(cell(i) for i in range(1, len(order) + 1)))
    return history


@given(st.lists(st.integers(0, 2), max_size=40), st.data())
def test_a_log_that_is_cut_is_one_that_never_was_longer(order: list[int], data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(order)))
    more = data.draw(st.lists(st.integers(0, 2), max_size=20))
    history = history_of(order)
    assert history.truncate(cut) == [order[cut:].count(slot) for slot in range(3)]
    same(history, history_of(order[:cut]))
    history.append(bytes(more), b"".join(cell(i) for i in range(cut + 1, cut + 1 + len(more))))
    same(history, history_of(order[:cut] + more))


@pytest.mark.parametrize("cut", [0, 1, 1023, 1024, 1025, 2048, 2100, 3000])
def test_a_cut_at_and_around_the_marks(cut: int) -> None:
    """Every 1,024 entries the seqs reached are noted."""
    order = [i % 3 for i in range(3000)]
    history = history_of(order)
    history.truncate(cut)
    more = [2, 2, 0] * 700
    history.append(bytes(more), b"".join(cell(i) for i in range(cut + 1, cut + 1 + len(more))))
    other = history_of(order[:cut] + more)
    assert history.hash == other.hash
    for after in (0, 1023, 1024, 1025, 2047, 2048, cut, history.length):
        if after <= history.length:
            assert history.spans(after, history.length) == other.spans(after, other.length)


@given(st.lists(st.integers(0, 2), max_size=40), st.permutations(range(4)))
def test_renumbered_it_is_the_same_log(order: list[int], places: list[int]) -> None:
    """With another order of origins, and one that is new."""
    before = [*ORIGINS, Origin("d", 7)]
    after = [before[place] for place in places]
    history = history_of(order)
    spans = history.spans(0, history.length)
    history.reassign_slots(after)
    assert history.spans(0, history.length) == spans
    same(history, history_of([after.index(ORIGINS[slot]) for slot in order], after))


def test_an_origin_without_an_entry_may_be_gone_one_with_an_entry_never() -> None:
    history = history_of([0, 2, 0])
    history.reassign_slots([ORIGINS[2], ORIGINS[0]])
    assert history.spans(0, 3) == [Span("b", 2, 1, 1), Span("c", 5, 1, 1), Span("b", 2, 2, 1)]
    with pytest.raises(AssertionError):
        history.reassign_slots([ORIGINS[0]])


# Keys


def first(seq: int, stamp_ms: int) -> FirstUse:
    return FirstUse(Txid(Origin("a", 1), seq), stamp_ms << LOGICAL_BITS, bytes(TAG_BYTES))


def decides(keys: IdempotencyKeys, stamp_ms: int) -> dict[str, list[FirstUse]]:
    """What a later entry can still repeat."""
    now = stamp_ms << LOGICAL_BITS
    uses = {key: keys.final.find(key_name(key)) + keys.tentative.find(key_name(key)) for key in "kl"}
    return {key: [one for one in found if now - one.stamp <= 100 << LOGICAL_BITS] for key, found in uses.items()}


@given(st.lists(st.tuples(st.sampled_from("kl"), st.integers(0, 80)), max_size=20), st.data())
def test_rule_16_keys_that_left_the_log_count_as_if_they_had_never_entered(
    rows: list[tuple[str, int]], data: st.DataObject
) -> None:
    settled = data.draw(st.integers(0, len(rows)))
    cut = data.draw(st.integers(settled, len(rows)))
    keys, twin, stamp = IdempotencyKeys(retention_ms=100), IdempotencyKeys(retention_ms=100), 0
    entries: list[tuple[int, str, FirstUse]] = []
    for index, (key, later) in enumerate(rows, start=1):
        stamp += later
        entries.append((index, key, first(index, stamp)))
    for entry in entries:
        keys.record_use(*entry)
        if entry[0] <= cut:
            twin.record_use(*entry)
    keys.mark_final(settled)
    twin.mark_final(settled)
    keys.truncate(cut)
    assert decides(keys, stamp) == decides(twin, stamp)
    for index, key, _ in entries[cut:]:  # another order may come, with other stamps
        again = first(index, stamp + 5)
        assert keys.record_use(index, key, again) == twin.record_use(index, key, again)
    assert decides(keys, stamp) == decides(twin, stamp)


def test_nothing_is_forgotten_because_of_an_entry_that_may_leave_the_log() -> None:
    keys = IdempotencyKeys(retention_ms=100)
    keys.record_use(1, "k", first(1, 0))
    keys.mark_final(1)
    keys.record_use(2, "l", first(2, 1000))
    assert keys.oldest_tentative() == 1000 << LOGICAL_BITS
    keys.truncate(1)
    assert keys.find_first_use("k", 50 << LOGICAL_BITS) == first(1, 0)
    keys.record_use(2, "l", first(2, 1000))
    keys.mark_final(2)
    assert keys.find_first_use("k", 50 << LOGICAL_BITS) == first(1, 0), "a late one may still repeat it"
    keys.raise_horizon(1000 << LOGICAL_BITS)
    assert keys.find_first_use("k", 50 << LOGICAL_BITS) is None, "now it is over for good"


# Queues


@given(st.lists(st.integers(1, 9), min_size=1, max_size=12), st.data())
def test_what_left_the_log_waits_again(steps: list[int], data: st.DataObject) -> None:
    stamps = [sum(steps[: i + 1]) for i in range(len(steps))]
    queue = OriginQueue(ORIGINS[0])
    queue.extend(stamps, b"".join(cell(s) for s in stamps), [""] * len(stamps), [1 | 10 << 8] * len(stamps))
    taken = data.draw(st.integers(0, len(stamps)))
    settled = data.draw(st.integers(0, taken))
    back = data.draw(st.integers(0, taken - settled))
    queue.move_to_log(taken)
    queue.mark_final(settled)
    queue.return_to_queue(back)
    assert (queue.in_log, queue.held, len(queue)) == (taken - back, len(stamps), len(stamps) - taken + back)
    assert queue.payload_bytes == 10 * len(queue)
    new = [1000 + i for i in range(len(queue))]
    if new:
        queue.restamp(queue.in_log + 1, new)
        assert queue.stamps(queue.in_log + 1, queue.held) == new
    kept = queue.first_kept
    assert queue.stamps(kept, queue.held) == stamps[kept - 1 : queue.in_log] + new
    assert queue.contents(kept, queue.held) == b"".join(cell(s) for s in stamps[kept - 1 :])


# The whole of it


MEMBERS = [Member("a", 1, 1, "uk"), Member("b", 2, 1, "us")]
A, B = (m.origin for m in MEMBERS)
VIEW = bootstrap_view(1, "a", MEMBERS, "Smart")


def content(text: str, key: str = "", kind: int = KIND_UPDATE) -> bytes:
    return content_hash(kind, key, text.encode())


def agreement() -> LogState:
    """The log is a1 (stamp 10, key k), b1 (20, key k: counts for nothing), a2 (30: passes over b1), b2 (40) behind
    index 1, which is stable; b3 (50) waits. ``records`` says it all."""
    made = LogState(A, VIEW, recovered_state("a", 1, 1, []), 1000)
    skipped = str(Txid(B, 1))
    own = [RunItem(10, KIND_UPDATE, "k", b"a1"), RunItem(30, KIND_SKIP, skipped, b"a2")]
    made.persist_own(own, [content("a1", "k"), content("a2", skipped, KIND_SKIP)])
    rows = [
        RunItem(20, KIND_UPDATE, "k", b"b1"),
        RunItem(40, KIND_UPDATE, "", b"b2"),
        RunItem(50, KIND_UPDATE, "", b"b3"),
    ]
    made.persist_replicated(TransactionRun("b", 2, 1, rows))
    made.append_up_to(40, [2, 3])
    made.advance_stable([1, 0])
    assert (made.log_index.length, made.stable) == (4, 1)
    assert made.noops == {2: Txid(A, 1)}
    assert made.skips == {skipped: 3}
    return made


def chained(made: LogState, *entries: tuple[Origin, int, int]) -> bytes:
    value = chain_start(VIEW.cluster_id)
    for origin, seq, stamp in entries:
        value = chain_hash(value, stamp, origin_tag(origin), seq, made.by_origin[origin].content(seq))
    return value


def next_view(base: int, base_hash: bytes, floor: int, known: list[int]) -> View:
    return View(
        2, 1, "b", MEMBERS, VIEW.cluster_id, base, base_hash, VIEW.origins, [VIEW.number], floor, "Smart", -1, known
    )


def test_accept_cuts_goes_on_and_restamps_and_install_makes_it_stable() -> None:
    made = agreement()
    entries = [(A, 1, 10), (B, 1, 20), (B, 2, 25), (A, 2, 45)]
    view = next_view(4, chained(made, *entries), 100, [2, 3])
    spans = [Span("b", 2, 2, 1), Span("a", 1, 2, 1)]
    assert made.accept_view(view, 2, spans, [25, 45], [ReassignedStamps("b", 2, 3, [101])])
    record = made.records[-1]
    assert isinstance(record, ViewAccepted)
    assert (record.cut, record.spans) == (2, spans)
    assert record.reassigned == [
        ReassignedStamps("b", 2, 2, [25]),
        ReassignedStamps("a", 1, 2, [45]),
        ReassignedStamps("b", 2, 3, [101]),
    ]
    assert record.hashes[-HASH_BYTES:] == view.base_hash == made.log_index.hash
    assert [(s.node, s.first_seq, s.count) for s in made.log_index.spans(0, 4)] == [
        ("a", 1, 1),
        ("b", 1, 2),
        ("a", 2, 1),
    ]
    assert (made.stable, made.installed, len(made.by_origin[B])) == (1, False, 1)
    assert made.noops == {2: Txid(A, 1)}
    assert made.skips == {str(Txid(B, 1)): 4}, "at its new place"
    assert made.last_stamp == 101
    made.install_view()
    assert (made.stable, made.installed) == (4, True)
    assert made.records[-1] == ViewInstalled(2, 1, "b")
    assert made.append_up_to(1000, [2, 3])
    assert made.log_index.length == 5


@pytest.mark.parametrize("cut", [1, 2])
def test_what_the_base_says_again_has_kept_its_place(cut: int) -> None:
    """A base is told from where the branches part; what moved is counted from the first entry that differs."""
    made = agreement()
    entries = [(A, 1, 10), (B, 1, 20), (B, 2, 25), (A, 2, 45)]
    view = next_view(4, chained(made, *entries), 100, [2, 3])
    spans = [Span("b", 2, cut, 3 - cut), Span("a", 1, 2, 1)]
    assert made.accept_view(view, cut, spans, [20, 25, 45][cut - 1 :], [ReassignedStamps("b", 2, 3, [101])])
    assert made.unchanged_until == 2


def test_what_was_shown_is_set_aside_also_behind_a_view_that_was_never_installed() -> None:
    """The first view takes over all that is here and is accepted only; the second one cuts it."""
    made = agreement()
    made.view = msgspec.structs.replace(
        VIEW, diverged_index=1
    )  # somebody is out, who may have another order behind that
    made.advance_stable([1, 1])
    shown = made.log_index.spans(1, made.stable), made.log_index.hashes(1, made.stable)
    assert made.stable == 2
    entries = [(A, 1, 10), (B, 1, 20), (A, 2, 30), (B, 2, 40)]
    first = msgspec.structs.replace(next_view(4, chained(made, *entries), 100, [2, 3]), diverged_index=1)
    assert made.accept_view(first, 4, [], [], [ReassignedStamps("b", 2, 3, [101])])
    assert made.displaced is None
    entries = [(A, 1, 10), (A, 2, 35), (B, 1, 45), (B, 2, 46)]
    spans = [Span("a", 1, 2, 1), Span("b", 2, 1, 2)]
    second = msgspec.structs.replace(next_view(4, chained(made, *entries), 200, [2, 3]), epoch=3)
    assert made.accept_view(second, 1, spans, [35, 45, 46], [ReassignedStamps("b", 2, 3, [201])])
    assert made.displaced is not None
    assert (made.displaced.after, made.displaced.spans, made.displaced.hashes) == (1, *shown)


def test_a_first_stamp_without_a_view_is_below_the_stamp_that_follows_a_crash() -> None:
    """No ceiling was durable for the counter that gave it."""
    waits = TransactionRun("a", 1, 1, [RunItem(0, KIND_UPDATE, "k", b"x", 5000)])
    log = LogState(A, VIEW, recovered_state("a", 1, 1, [TransactionsPersisted(waits, content("x", "k"))]), 1000)
    assert log.last_stamp == 5000
    assert [one.first_stamp for one, _ in log.unstamped] == [5000]


def test_after_a_restart_it_is_the_same() -> None:
    made = agreement()
    entries = [(A, 1, 10), (B, 1, 20), (B, 2, 25), (A, 2, 45)]
    view = next_view(4, chained(made, *entries), 100, [2, 3])
    made.accept_view(view, 2, [Span("b", 2, 2, 1), Span("a", 1, 2, 1)], [25, 45], [ReassignedStamps("b", 2, 3, [101])])
    again = LogState(
        A, view, recovered_state("a", 1, 2, [ViewAccepted(VIEW), ViewInstalled(1, 1, "a"), *made.records]), 1000
    )
    assert again.log_index.hash == made.log_index.hash
    assert again.log_index.spans(0, 4) == made.log_index.spans(0, 4)
    assert again.stable == made.stable
    assert again.noops == made.noops
    assert again.skips == made.skips
    assert again.keys.final.find(key_name("k")) == made.keys.final.find(key_name("k"))
    assert [q.stamps(max(1, q.first_kept), q.held)[-1] for q in again.queues] == [45, 101]
    assert again.last_stamp >= made.last_stamp


@pytest.mark.parametrize("wrong", ["hash", "keys"])
def test_a_base_that_is_not_the_one_named_changes_nothing(wrong: str) -> None:
    """Another hash, or keys that do not grow though the hash is right (rule 13)."""
    made = agreement()
    stamps = [45, 25] if wrong == "keys" else [25, 45]
    entries = [(A, 1, 10), (B, 1, 20), (B, 2, stamps[0]), (A, 2, stamps[1])]
    base_hash = bytes(HASH_BYTES) if wrong == "hash" else chained(made, *entries)
    said = len(made.records)
    before = (made.log_index.hash, made.log_index.spans(0, 4), made.by_origin[B].stamps(2, 3), dict(made.skips))
    spans, waiting = [Span("b", 2, 2, 1), Span("a", 1, 2, 1)], [ReassignedStamps("b", 2, 3, [101])]
    assert not made.accept_view(next_view(4, base_hash, 100, [2, 3]), 2, spans, stamps, waiting)
    assert before == (made.log_index.hash, made.log_index.spans(0, 4), made.by_origin[B].stamps(2, 3), dict(made.skips))
    assert len(made.records) == said
    assert made.view == VIEW


@pytest.mark.parametrize(
    ("named", "stamps", "fits"),
    [
        ([], [], False),  # b3 has stamp 50, below the floor
        ([101], [], True),
        ([101], [101], False),
        ([101], [102], True),
        ([101], [102, 102], False),
        ([101], [102, 103], True),
    ],
)
def test_rule_13_what_a_view_does_not_name_lies_above_its_stamps(
    named: list[int], stamps: list[int], fits: bool
) -> None:
    """Transactions of a member arrived after this master's report: the view gives them no stamps."""
    made = agreement()
    count = len(stamps)
    made.by_origin[B].extend(stamps, bytes(count * HASH_BYTES), [""] * count, [KIND_UPDATE] * count)
    entries = [(A, 1, 10), (B, 1, 20), (B, 2, 25), (A, 2, 45)]
    view, spans = next_view(4, chained(made, *entries), 100, [2, 2 + len(named)]), [Span("b", 2, 2, 1)]
    spans.append(Span("a", 1, 2, 1))
    written, waiting = len(made.records), [ReassignedStamps("b", 2, 3, named)] if named else []
    assert made.accept_view(view, 2, spans, [25, 45], waiting) == fits
    assert (made.view == view, len(made.records) > written) == (fits, fits)


def test_what_is_settled_is_never_cut() -> None:
    made = agreement()
    with pytest.raises(AssertionError):
        made.accept_view(next_view(0, chain_start(VIEW.cluster_id), 100, [2, 3]), 0, [], [], [])


# Who is heard


def heard_both_ways(around: FailureDetector, node: str) -> None:
    around.on_message(node)
    around.on_direct_peers(node, [around.node])


def test_rule_14_a_process_that_stood_still_judges_nobody() -> None:
    """It has heard nobody meanwhile, which says nothing of the others: their silence counts from its waking."""
    around = FailureDetector("a", 400, 0)
    for at_ms in range(0, 2000, 40):
        around.tick(at_ms)
        heard_both_ways(around, "b")
    assert around.silent_ms("b") < 100
    around.tick(2000 + 60_000)
    assert around.silent_ms("b") == 0
    assert not around.is_bidirectional("b"), "nor is it there"
    for at_ms in range(62_000, 63_000, 40):
        around.tick(at_ms)
    assert 900 <= around.silent_ms("b") <= 1000


def test_rule_22_the_far_end_of_a_chain_is_there() -> None:
    """c hears b, which a does not hear, and tells what b says; what b says itself is newer than that."""
    around = FailureDetector("a", 400, 0)
    around.on_message("c")
    around.on_direct_peers("c", ["a", "b"])
    assert around.reachable() == {"a", "b", "c"}
    around.on_relayed_connectivity([("b", ["c", "d"]), ("a", ["e"])])
    assert around.reachable() == {"a", "b", "c", "d"}
    assert around.known_connectivity() == [("c", ["a", "b"], 0), ("b", ["c", "d"], 25)], (
        "of whom it was told, a step older"
    )
    around.tick(380)
    assert [node for node, _, _ in around.known_connectivity()] == ["c"], "no news any more"
    around.on_message("b")
    around.on_direct_peers("b", ["c"])
    around.on_relayed_connectivity([("b", ["c", "d"])])
    assert around.reachable() == {"a", "b", "c"}


def test_silence_counts_from_the_start_of_this_process() -> None:
    around = FailureDetector("a", 400, 5000)
    for at_ms in range(5000, 6001, 100):
        around.tick(at_ms)
    assert around.silent_ms("b") == 1000


def test_time_that_goes_back_is_passed_over() -> None:
    around = FailureDetector("a", 400, 1000)
    heard_both_ways(around, "b")
    around.tick(500)
    assert around.now_ms == 1000
    assert around.is_bidirectional("b")


def test_rule_22_a_master_that_a_third_reaches_is_reachable_and_not_silent() -> None:
    around = FailureDetector("a", 400, 0)
    for at_ms in range(0, 2000, 40):
        around.tick(at_ms)
        around.on_message("b")
        around.on_direct_peers("b", ["a", "c"])
    assert around.reachable() == {"a", "b", "c"}
    assert not around.is_bidirectional("c")
    assert around.silent_ms("c") < 100
    around.on_direct_peers("b", ["a"])
    for at_ms in range(2000, 3000, 40):
        around.tick(at_ms)
        around.on_message("b")
        around.on_reply("b")
    assert around.reachable() == {"a", "b"}
    assert around.silent_ms("c") >= 900


@pytest.mark.parametrize("deaf", [True, False])
def test_rule_22_one_way_is_no_way(deaf: bool) -> None:
    """A master that is heard and does not hear, or that hears and is not heard."""
    around = FailureDetector("a", 400, 0)
    for at_ms in range(0, 1000, 40):
        around.tick(at_ms)
        if deaf:
            around.on_message("b")
            around.on_direct_peers("b", ["c"])
        else:
            around.on_reply("b")
    assert not around.is_bidirectional("b")
    assert around.reachable() == {"a"}
    assert around.silent_ms("b") >= 900
