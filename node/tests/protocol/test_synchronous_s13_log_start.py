"""What a log start carries of synchronous transactions (rule S13)."""

from __future__ import annotations

import msgspec

from txlog.model.hashes import HASH_BYTES
from txlog.model.ids import Origin, Txid
from txlog.model.records import EMPTY_LOG_START, LogStart
from txlog.model.synchronous_entry import (
    KIND_DECISION,
    KIND_SYNCHRONOUS_UPDATE,
    DecisionKind,
    decide,
    encode_decision,
)
from txlog.protocol.log.idempotency_keys import IdempotencyKeys
from txlog.protocol.log.limbo import LimboEntry
from txlog.protocol.log.log_index import LogIndex
from txlog.protocol.log.synchronous_effects import SynchronousEffects
from txlog.wire.message_checks import log_start_error, synchronous_error

A = Origin("a", 1)
ONE, TWO, COMMIT = Txid(A, 1), Txid(A, 2), Txid(A, 3)
HASHES = bytes(3 * HASH_BYTES)


def entries() -> list[LimboEntry]:
    key = encode_decision(decide(DecisionKind.COMMIT, [ONE]))
    return [
        LimboEntry(1, ONE, KIND_SYNCHRONOUS_UPDATE, "N/2+1 30000 k", 1, bytes(HASH_BYTES)),
        LimboEntry(2, TWO, KIND_SYNCHRONOUS_UPDATE, "all 0 l", 2, bytes(HASH_BYTES)),
        LimboEntry(3, COMMIT, KIND_DECISION, key, 3, bytes(HASH_BYTES)),
    ]


def whole() -> tuple[SynchronousEffects, LogIndex]:
    history = LogIndex(bytes(16), [A])
    history.append(bytes(3), HASHES)
    effects = SynchronousEffects(IdempotencyKeys(1000))
    for entry in entries():
        effects.apply(entry, history)
    effects.mark_final(3)
    return effects, history


def started_after_one() -> tuple[SynchronousEffects, LogIndex]:
    """The log begins after the first transaction, whose COMMIT is final."""
    before, _ = whole()
    start = msgspec.structs.replace(
        EMPTY_LOG_START, index=1, hash=bytes(HASH_BYTES), last=A, seqs=[("a", 1, 1)], synchronous=before.state_at(3, 1)
    )
    start = msgspec.msgpack.decode(msgspec.msgpack.encode(start), type=LogStart)
    assert not log_start_error(start, 1)
    history = LogIndex(bytes(16), [A], start.without_keys())
    history.append(bytes(2), HASHES[: 2 * HASH_BYTES])
    effects = SynchronousEffects(IdempotencyKeys(1000))
    effects.restore(start)
    for entry in entries()[1:]:
        effects.apply(entry, history)
    return effects, history


def test_a_commit_behind_the_log_start_takes_the_same_effect() -> None:
    for effects, history in (whole(), started_after_one()):
        assert effects.committed_at(3, entries()[2].key, history) == [ONE]
        assert effects.effect_index(ONE) == 3
        assert not effects.is_undecided(ONE)
        assert effects.is_undecided(TWO)


def test_where_a_log_may_begin_follows_what_is_open_there() -> None:
    for effects, _ in (whole(), started_after_one()):
        assert effects.log_start_for(2) == 0
        assert effects.log_start_for(3) == 1


def test_a_trim_forgets_effects_and_keeps_what_is_open() -> None:
    effects, _ = whole()
    effects.trim(3)
    assert effects.effect_index(ONE) == 0
    assert effects.is_undecided(TWO)


def test_a_cluster_without_them_carries_nothing() -> None:
    assert SynchronousEffects(IdempotencyKeys(1000)).state_at(7, 0) is None


def test_a_log_start_that_no_master_writes_is_refused() -> None:
    state = whole()[0].state_at(3, 0)
    assert state is not None
    assert synchronous_error(state) == ""
    bad_key = msgspec.structs.replace(state.open[0], key="anything")
    bad_seq = msgspec.structs.replace(state.open[0], seq=0)
    assert "anything" in synchronous_error(msgspec.structs.replace(state, open=[bad_key]))
    assert "out of bounds" in synchronous_error(msgspec.structs.replace(state, open=[bad_seq]))
    assert "out of bounds" in synchronous_error(msgspec.structs.replace(state, index=-1))
