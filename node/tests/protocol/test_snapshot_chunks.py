"""A snapshot goes to a joining master in pieces: it is never whole in memory, and no turn of the loop is long."""

from __future__ import annotations

import os
import time
import tracemalloc
from collections.abc import Callable
from hashlib import blake2b
from types import SimpleNamespace
from typing import cast

import msgspec
import pytest
from test_idempotency_keys import (
    KEYS,
    is_repeat,
    restart,
    trim_one,
    trimmed_in_parts,
    with_a_learner_below_the_log_start,
)
from test_trimming import length

from txlog.model.ids import Origin, Txid
from txlog.model.records import EMPTY_LOG_START, AbandonedBranch, KeyTablePart, LogStart
from txlog.protocol.log import log_start
from txlog.protocol.log.idempotency_keys import IdempotencyKeys
from txlog.protocol.log.key_table import ROW_BYTES, FirstUse, KeyTable
from txlog.protocol.log.log_start import SnapshotChunks, decode_log_start
from txlog.protocol.log.log_state import LogState
from txlog.protocol.log.synchronous_effects import SynchronousEffects
from txlog.wire.messages import FetchSnapshot, SnapshotChunk

A = Origin("a", 1)
CHUNK = 1 << 20


def name(at: int) -> bytes:
    return at.to_bytes(14, "big")


def log_with(keys: int) -> LogState:
    """As much of a log as a snapshot has."""
    found = IdempotencyKeys(retention_ms=1000)
    for at in range(keys):
        found.final.add(blake2b(name(at), digest_size=14).digest(), FirstUse(Txid(A, at + 1), at, b"cc"))
    branches = [AbandonedBranch(3, b"h" * 16, [], b"h" * 16, [("k", Txid(A, 2))])] if keys % 2 else []
    start = msgspec.structs.replace(
        EMPTY_LOG_START, index=9, hash=b"h" * 16, seqs=[("a", 1, 5)], abandoned_branches=branches
    )
    noops = {8: Txid(A, 1), 11: Txid(A, 2)}
    synchronous = SynchronousEffects(found)
    log = SimpleNamespace(
        keys=found, log_index=SimpleNamespace(log_start=start), noops=noops, final_index=20, synchronous=synchronous
    )
    return cast(LogState, log)


def with_buckets(count: int) -> LogState:
    """A table of 70 keys for each bucket, made at once."""
    log = log_with(0)
    bucket = os.urandom(70 * ROW_BYTES)
    log.keys.final._buckets = [bucket] * count
    log.keys.final.count = 70 * count
    return log


def whole(log: LogState) -> LogStart:
    """What the chunks have to be together."""
    start, table = log.log_index.log_start, log.keys.snapshot()
    per_part = log_start.BUCKETS_IN_A_PART
    parts = [table.part(at, at + per_part) for at in range(0, table.bucket_count, per_part)]
    noops = [(at, *txid.origin, txid.seq) for at, txid in log.noops.items() if start.index < at]
    fields = log.keys.log_start_fields(log.final_index)
    return msgspec.structs.replace(start, keys=[], key_parts=0, key_table=parts, noops=noops, **fields)


def prepared(log: LogState) -> SnapshotChunks:
    chunks = SnapshotChunks()
    while not chunks.prepare(log):
        pass
    return chunks


def fetched(chunks: SnapshotChunks, size: int, peer: str = "c") -> bytes:
    data = bytearray()
    while True:
        chunk = chunks.chunk(peer, 9 if data else 0, len(data), size)
        assert chunk is not None
        data += chunk.data
        if len(data) == chunk.total:
            assert blake2b(data, digest_size=16).digest() == chunk.digest
            return bytes(data)


@pytest.mark.parametrize("keys", [0, 1, 95, 500, 3001])
@pytest.mark.parametrize("size", [7, 1000, CHUNK])
def test_the_chunks_are_the_encoding_of_the_log_start(monkeypatch: pytest.MonkeyPatch, keys: int, size: int) -> None:
    """An older learner reads the same message."""
    for buckets in (1, 2, 256):
        monkeypatch.setattr(log_start, "BUCKETS_IN_A_PART", buckets)
        log = log_with(keys)
        expected = whole(log)
        data = fetched(prepared(log), size)
        assert data == msgspec.msgpack.encode(expected)
        assert decode_log_start(data) == expected
        table = KeyTable()
        table.load(decode_log_start(data).key_table)
        assert len(table) == keys


def test_a_learner_passes_on_how_far_the_table_decides() -> None:
    """Its log may still be shorter than that. Else the next learner takes the entries between for repeats of
    themselves, and executes none of them."""
    received = msgspec.structs.replace(
        log_with(5).log_index.log_start, keys_index=47, noops=[(30, *A, 1), (47, *A, 2)], retention=1000 << 20
    )
    log = log_with(5)
    log.keys.restore(received)
    log.noops.update({index: Txid(Origin(node, birth), seq) for index, node, birth, seq in received.noops})
    assert log.final_index == 20
    passed_on = decode_log_start(fetched(prepared(log), CHUNK))
    assert passed_on.keys_index == 47
    assert {row[0] for row in passed_on.noops} == {11, 30, 47}
    log.final_index = 60  # type: ignore[misc]
    assert decode_log_start(fetched(prepared(log), CHUNK)).keys_index == 60


@pytest.mark.parametrize("count", [0, 1, 14, 15, 16, 17, 300])
def test_any_number_of_parts_has_its_header(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    monkeypatch.setattr(log_start, "BUCKETS_IN_A_PART", 1)
    log = with_buckets(count)
    assert len(decode_log_start(fetched(prepared(log), CHUNK)).key_table) == count


def test_a_table_that_changes_meanwhile_is_sent_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_start, "BUCKETS_IN_A_PART", 1)
    monkeypatch.setattr(log_start, "PARTS_IN_A_TURN", 1)
    log, turns = log_with(2000), 0
    expected, chunks = msgspec.msgpack.encode(whole(log)), SnapshotChunks()
    while not chunks.prepare(log):
        turns += 1
        log.keys.final.add(os.urandom(14), FirstUse(Txid(A, 9000 + turns), 1, b"dd"))
    assert turns > 10
    data = b""
    while len(data) < len(expected):
        chunk = chunks.chunk("c", 0, len(data), 5000)
        assert chunk is not None
        data += chunk.data
        log.keys.final.add(os.urandom(14), FirstUse(Txid(A, 9000 + len(data)), 1, b"dd"))
    assert data == expected


def test_millions_of_keys_are_never_in_memory_and_hold_no_turn() -> None:
    """7 million keys: 217 MB as one message."""
    log, chunks, turns, total = with_buckets(100_000), SnapshotChunks(), [], 0

    def timed(work: Callable[..., object], *given: object) -> object:
        began = time.thread_time()
        result = work(*given)
        turns.append(time.thread_time() - began)
        return result

    while not timed(chunks.prepare, log):
        pass
    offset = 0
    while not total or offset < total:
        chunk = timed(chunks.chunk, "c", 0, offset, CHUNK)
        assert isinstance(chunk, SnapshotChunk)
        total, offset = chunk.total, offset + len(chunk.data)
    assert total > 70 * 100_000 * ROW_BYTES
    assert max(turns) < 0.05
    tracemalloc.start()
    again = prepared(log)
    for offset in range(0, 20 * CHUNK, CHUNK):
        assert again.chunk("c", 0, offset, CHUNK) is not None
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 16 << 20


def test_the_keys_of_a_moment_are_forgotten_after_the_last_peer() -> None:
    log = log_with(500)
    chunks = prepared(log)
    first = chunks.chunk("b", 0, 0, 1000)
    assert first is not None
    fetched(chunks, 4000, "c")
    assert chunks.chunk("b", 9, 1000, 1000) is not None, "another one still fetches it"
    log.keys.final.add(os.urandom(14), FirstUse(Txid(A, 9000), 1, b"dd"))
    assert len(decode_log_start(fetched(chunks, CHUNK, "b")).key_table) == 1
    while not chunks.prepare(log):
        pass
    newer = chunks.chunk("d", 0, 0, 1000)
    assert newer is not None
    assert newer.total > first.total, "the keys of the present moment"


def test_another_log_start_begins_anew() -> None:
    log = log_with(500)
    chunks = prepared(log)
    assert chunks.chunk("c", 0, 0, 1000) is not None
    log.log_index.log_start = msgspec.structs.replace(log.log_index.log_start, index=12)
    while not chunks.prepare(log):
        pass
    assert chunks.chunk("c", 9, 1000, 1000) is None, "what it had asked for is gone"
    assert chunks.chunk("c", 0, 0, 1000) is not None
    assert chunks.chunk("c", 12, 1 << 40, 1000) is None


@pytest.fixture
def small_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_start, "BUCKETS_IN_A_PART", 1)
    monkeypatch.setattr(log_start, "PARTS_IN_A_TURN", 1)


@pytest.mark.usefixtures("small_turns")
def test_a_request_is_answered_once_the_snapshot_is_prepared() -> None:
    cluster = trimmed_in_parts()
    trim_one(cluster, "a", length(cluster) - 5)
    cluster.run(2000)
    core, turns = cluster.core("a"), 0
    for peer in "cdc":
        core.receive(peer, FetchSnapshot(0, 0, 1), cluster.now("a"), True)
    answers: list[tuple[str, SnapshotChunk]] = []
    while len(answers) < 2:
        assert turns < 100
        now = cluster.now("a")
        wake = core.poll(now)
        sends = core.drain().sends
        answers += [(one.peer, one.message) for one in sends if isinstance(one.message, SnapshotChunk)]
        assert answers or wake <= now.mono + 1, "the next turn is due at once"
        turns += 1
    assert [peer for peer, _ in answers] == ["c", "d"], "one answer for each"
    assert turns > 3


@pytest.mark.usefixtures("small_turns")
def test_a_learner_joins_by_a_snapshot_that_took_many_turns() -> None:
    cluster = with_a_learner_below_the_log_start()
    assert is_repeat(cluster, "c", 3)
    restart(cluster, "c")
    log = cluster.core("c").log_state
    assert log is not None
    assert len(log.keys.final) == KEYS


def test_a_part_is_the_same_at_any_time() -> None:
    table = log_with(500).keys.snapshot()
    part = table.next_part(1)
    assert isinstance(part, KeyTablePart)
    assert table.part(0, 1) == part
