"""The clever parts of the agreement against slow, obvious twins (rules 12, 13, 16, 17, 9)."""

from __future__ import annotations

from bisect import bisect_right

import pytest
from hypothesis import given
from hypothesis import strategies as st

from txlog.model.errors import PeerFault
from txlog.model.hashes import HASH_BYTES
from txlog.model.ids import Origin, Txid
from txlog.model.stamp import LOGICAL_BITS
from txlog.model.view import Member
from txlog.protocol.log.idempotency_keys import IdempotencyKeys
from txlog.protocol.log.incoming_queue import OriginQueue, prefix_within, rank_origins
from txlog.protocol.log.key_table import TAG_BYTES, FirstUse
from txlog.protocol.log.log_index import LogIndex
from txlog.protocol.replication.peer_progress import PeerProgress
from txlog.wire.messages import ReplicaState

ORIGINS = [Origin("b", 2), Origin("a", 9), Origin("a", 1), Origin("c", 5)]
stamps = st.lists(st.integers(1, 30), max_size=8, unique=True).map(sorted)


def queue_of(origin: Origin, values: list[int], in_log: int = 0) -> OriginQueue:
    queue = OriginQueue(origin)
    queue.skip_final(in_log)
    contents = b"".join(bytes([i]) * HASH_BYTES for i in range(len(values)))
    queue.extend(values, contents, ["" for _ in values], [1 | 10 << 8 for _ in values])
    return queue


@given(st.lists(stamps, min_size=1, max_size=4), st.integers(0, 32), st.data())
def test_rule_12_the_head_is_the_longest_prefix_of_the_sorted_queue(
    values: list[list[int]], stamp_max: int, data: st.DataObject
) -> None:
    queues = [queue_of(ORIGINS[i], each, in_log=3 * i) for i, each in enumerate(values)]
    seq_max = [data.draw(st.integers(0, 3 * i + len(each) + 1)) for i, each in enumerate(values)]
    whole = sorted(
        (stamp, ORIGINS[slot], 3 * slot + at + 1, slot)
        for slot, each in enumerate(values)
        for at, stamp in enumerate(each)
    )
    expected: list[int] = []
    for stamp, _, seq, slot in whole:
        if stamp > stamp_max or seq > seq_max[slot]:
            break
        expected.append(slot)
    found = prefix_within(queues, list(range(len(queues))), rank_origins(queues), stamp_max, seq_max)
    assert (list(found.order) if found else []) == expected
    assert [len(q) for q in queues] == [len(each) for each in values], "the queue is not changed"
    if found:
        assert found.counts == {slot: expected.count(slot) for slot in set(expected)}
        assert found.last_stamp == whole[len(expected) - 1][0]


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 6)), max_size=40))
def test_a_queue_is_a_sorted_list(steps: list[tuple[bool, int]]) -> None:
    queue, twin, stamp, in_log = OriginQueue(ORIGINS[0]), [], 0, 0
    for extend, count in steps:
        if extend:
            fresh = [stamp + 1 + i * 2 for i in range(count)]
            stamp = fresh[-1]
            queue.extend(fresh, bytes(HASH_BYTES) * count, [""] * count, [1 | 7 << 8] * count)
            twin += fresh
        else:
            count = min(count, len(twin))
            queue.move_to_log(count)
            del twin[:count]
            in_log += count
        assert len(queue) == len(twin)
        assert queue.in_log == in_log
        assert queue.held == in_log + len(twin)
        assert queue.payload_bytes == 7 * len(twin)
        assert queue.last_stamp == (twin[-1] if twin else 0)
        assert [queue.stamp(queue.in_log + 1 + i) for i in range(len(twin))] == twin
        for probe in (0, stamp // 2, stamp):
            assert queue.count_before(probe, first=True) == bisect_right(twin, probe)


@pytest.mark.parametrize("seqs", [[1], [1, 2, 3]])
def test_what_is_not_in_the_queue_is_an_assertion(seqs: list[int]) -> None:
    queue = queue_of(ORIGINS[0], seqs)
    with pytest.raises(AssertionError):
        queue.stamp(len(seqs) + 1)


def first(node: str, seq: int, stamp_ms: int) -> FirstUse:
    return FirstUse(Txid(Origin(node, 1), seq), stamp_ms << LOGICAL_BITS, bytes(TAG_BYTES))


def test_rule_16_the_first_in_log_order_counts_within_the_retention() -> None:
    keys = IdempotencyKeys(retention_ms=100)
    one, other = first("a", 1, 1000), first("b", 1, 1100)
    assert keys.record_use(1, "k", one) is None
    assert keys.record_use(2, "k", other) == one.txid
    late = first("b", 2, 1201)
    assert keys.record_use(3, "k", late) is None, "the retention of the first is over"
    assert keys.record_use(4, "k", first("a", 2, 1300)) == late.txid


def test_rule_16_a_waiting_key_is_a_hint_only() -> None:
    keys = IdempotencyKeys(retention_ms=100)
    waiting, overtakes = first("a", 1, 1000), first("b", 1, 999)
    keys.waiting["k"] = waiting
    assert keys.find_first_use("k", 1050 << LOGICAL_BITS) == waiting
    assert keys.find_first_use("k", 1101 << LOGICAL_BITS) is None, "it would not be a repeat of it in the log"
    assert keys.record_use(1, "k", overtakes) is None
    assert keys.find_first_use("k", 1000 << LOGICAL_BITS) == overtakes
    assert keys.record_use(2, "k", waiting) == overtakes.txid
    assert "k" not in keys.waiting


@given(st.lists(st.tuples(st.sampled_from("klm"), st.integers(0, 80)), max_size=30))
def test_rule_16_keys_against_a_plain_list(rows: list[tuple[str, int]]) -> None:
    keys, twin, stamp = IdempotencyKeys(retention_ms=100), {}, 0
    for at, (key, later) in enumerate(rows):
        stamp += later + 1
        entry = first("a", at + 1, stamp)
        before = twin.get(key)
        expected = before.txid if before and stamp - (before.stamp >> LOGICAL_BITS) <= 100 else None
        assert keys.record_use(at + 1, key, entry) == expected
        if expected is None:
            twin[key] = entry


def claim(start: int, number: int, **changes: object) -> ReplicaState:
    values: dict[str, object] = {"log_index": 5, "counter": 50, "own_seq": 4, "held": [5, 4]}
    values.update(changes)
    return ReplicaState(
        1, 2, start, number, values["log_index"], b"", values["counter"], values["own_seq"], values["held"], 3, False
    )  # type: ignore[arg-type]


def peer() -> PeerProgress:
    return PeerProgress(1, 1, Member("b", 2, 1, "uk"))


def test_rule_9_an_old_or_repeated_claim_is_dropped() -> None:
    b = peer()
    assert b.update(claim(2, 3), 100)
    assert not b.update(claim(2, 3), 200)
    assert not b.update(claim(2, 2), 200)
    assert not b.update(claim(1, 9), 200)
    assert b.heard_ms == 100
    assert b.update(claim(3, 1), 300)


@pytest.mark.parametrize("less", [{"log_index": 4}, {"own_seq": 3}, {"held": [5, 3]}])
def test_rule_9_who_claims_less_is_refused_by_name_until_it_starts_anew(less: dict[str, object]) -> None:
    b = peer()
    b.update(claim(1, 1), 0)
    with pytest.raises(PeerFault, match="Regressed"):
        b.update(claim(1, 2, **less), 1)
    with pytest.raises(PeerFault, match="Regressed"):
        b.update(claim(1, 3), 2)
    assert b.replica_state == claim(1, 1), "nothing of it counts"
    assert b.update(claim(2, 1), 3)


def test_rule_9_a_lower_counter_of_the_same_process_is_refused_alone() -> None:
    b = peer()
    b.update(claim(1, 1), 0)
    with pytest.raises(PeerFault, match="Regressed"):
        b.update(claim(1, 2, counter=49), 1)
    assert b.replica_state == claim(1, 1), "nothing of it counts"
    assert b.update(claim(1, 3), 2)
    with pytest.raises(PeerFault, match="Regressed"):
        b.update(claim(2, 1, counter=49), 3)
    assert b.fault is not None, "a later process has lost what an earlier one promised"


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 4)), max_size=25), st.data())
@pytest.mark.parametrize("how", ["appended", "taken over", "cut"])
def test_rule_17_history_is_a_plain_list(how: str, pieces: list[tuple[int, int]], data: st.DataObject) -> None:
    origins = ORIGINS[:3]
    history, twin, hashes, last = LogIndex(bytes(16), origins), [], [], [0, 0, 0]
    for slot, count in pieces:
        if how == "cut" and twin and data.draw(st.booleans()):
            index = data.draw(st.integers(0, len(twin)))
            assert history.truncate(index) == [sum(1 for s, _ in twin[index:] if s == at) for at in range(3)]
            del twin[index:], hashes[index:]
            last = [max((seq for s, seq in twin if s == at), default=0) for at in range(3)]
        cells = [len(hashes).to_bytes(HASH_BYTES, "big") for _ in range(count)]
        if how != "taken over":
            history.append(bytes([slot]) * count, b"".join(cells))
        for cell in cells:
            last[slot] += 1
            twin.append((slot, last[slot]))
            hashes.append(cell)
    if how == "taken over":
        history.load(bytearray(slot for slot, _ in twin), bytearray(b"".join(hashes)))
    assert history.length == len(twin)
    assert history.hash == (hashes[-1] if hashes else history.empty_log_hash)
    for index, (slot, seq) in enumerate(twin, start=1):
        assert history.hash_at(index) == hashes[index - 1]
        assert history.index_of(origins[slot], seq) == index
    for slot in range(3):
        assert history.index_of(origins[slot], last[slot] + 1) == 0
        within = 0
        for upto in range(len(twin) + 1):
            within = twin[upto - 1][1] if upto and twin[upto - 1][0] == slot else within
            assert history.seq_within(slot, upto) == within
    for after in range(0, len(twin) + 1, max(3, len(twin) // 10)):
        spans = history.spans(after, len(twin))
        rows = [(s.node, s.birth, s.first_seq + i) for s in spans for i in range(s.count)]
        assert rows == [(origins[s].node, origins[s].birth, seq) for s, seq in twin[after:]]


@pytest.mark.parametrize("taken", [False, True])
def test_a_long_history_counts_from_its_marks(taken: bool) -> None:
    history, order = LogIndex(bytes(16), ORIGINS[:3]), bytearray()
    for slot, count in ((0, 1000), (1, 30), (0, 5), (2, 3000), (1, 1024), (0, 1)):
        order += bytes([slot]) * count
    hashes = b"".join(at.to_bytes(HASH_BYTES, "big") for at in range(len(order)))
    if taken:
        history.load(bytearray(order[:4000]), bytearray(hashes[: 4000 * HASH_BYTES]))
        history.append(bytes(order[4000:]), hashes[4000 * HASH_BYTES :])
    else:
        history.append(bytes(order), hashes)
    assert history.hash_at(4321) == (4320).to_bytes(HASH_BYTES, "big")
    assert history.index_of(ORIGINS[0], 1003) == 1033
    assert history.index_of(ORIGINS[1], 31) == 1000 + 30 + 5 + 3000 + 1
    assert [span.count for span in history.spans(1029, 4036)] == [1, 5, 3000, 1]
    assert history.truncate(1031) == [5, 1024, 3000]
    assert history.seqs_at(1031) == [("b", 2, 1001), ("a", 9, 30)]
    assert history.index_of(ORIGINS[0], 1002) == 0
