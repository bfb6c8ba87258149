"""A piece of another master's log is taken over only as it must be (rules 13, 17, 18)."""

from __future__ import annotations

import pytest

from txlog.model.entry import KIND_UPDATE, RunItem, TransactionRun
from txlog.model.errors import Fatal
from txlog.model.hashes import chain_hash, origin_tag
from txlog.model.ids import Origin
from txlog.model.view import Member, bootstrap_view
from txlog.protocol.log.log_state import LogState
from txlog_simulation.reference_journal import recovered_state

MEMBERS = [Member("a", 1, 1, "uk"), Member("b", 2, 1, "us")]
VIEW = bootstrap_view(1, "a", MEMBERS, "Smart")


def agreement() -> LogState:
    """Holds a1 (stamp 10), b1 (20), a2 (30); nothing in the log."""
    made = LogState(Origin("a", 1), VIEW, recovered_state("a", 1, 1, []), 1000)
    made.persist_replicated(
        TransactionRun("a", 1, 1, [RunItem(10, KIND_UPDATE, "", b"a1"), RunItem(30, KIND_UPDATE, "", b"a2")])
    )
    made.persist_replicated(TransactionRun("b", 2, 1, [RunItem(20, KIND_UPDATE, "", b"b1")]))
    made.records.clear()
    return made


def end_hash(made: LogState, order: bytes) -> bytes:
    """What a peer with this order would announce."""
    value, seqs = made.log_index.hash, [0, 0]
    for slot in order:
        seqs[slot] += 1
        queue = made.queues[slot]
        value = chain_hash(
            value, queue.stamp(seqs[slot]), origin_tag(queue.origin), seqs[slot], queue.content(seqs[slot])
        )
    return value


def test_rule_18_a_right_piece_is_taken_over() -> None:
    made = agreement()
    order = bytes([0, 1, 0])
    assert made.append_from_peer(0, order, end_hash(made, order))
    assert made.log_index.length == 3


@pytest.mark.parametrize("order", [bytes([1, 0, 0]), bytes([0, 0, 1]), bytes([1, 0])])
def test_rule_13_a_piece_that_is_not_in_the_order_of_stamps_is_a_fork_by_name(order: bytes) -> None:
    """Though its hash is right: a master whose log was exchanged says it in good faith."""
    made = agreement()
    with pytest.raises(Fatal, match="Forked"):
        made.append_from_peer(0, order, end_hash(made, order))
    assert made.log_index.length == 0
    assert made.records == []


def test_rule_18_a_piece_whose_hash_is_wrong_is_a_fork_by_name() -> None:
    made = agreement()
    with pytest.raises(Fatal, match="Forked"):
        made.append_from_peer(0, bytes([0, 1, 0]), bytes(16))
    assert made.records == []


def test_rule_18_what_is_not_held_waits() -> None:
    made = agreement()
    assert not made.append_from_peer(0, bytes([0, 1, 0, 1]), bytes(16))
    assert not made.append_from_peer(5, bytes([0]), bytes(16))
    assert made.log_index.length == 0


def test_rule_11_a_piece_from_behind_counts_from_where_the_log_is() -> None:
    made = agreement()
    assert made.append_from_peer(0, bytes([0, 1]), end_hash(made, bytes([0, 1])))
    whole = end_hash(agreement(), bytes([0, 1, 0]))
    assert made.append_from_peer(0, bytes([0, 1, 0]), whole)
    assert (made.log_index.length, made.log_index.hash) == (3, whole)
    assert not made.append_from_peer(1, bytes([1, 0]), whole)


def test_rule_11_a_piece_from_ahead_waits_until_the_log_has_caught_up() -> None:
    made = agreement()
    whole = end_hash(made, bytes([0, 1, 0]))
    assert not made.append_from_peer(2, bytes([0]), whole)
    assert made.log_index.length == 0
    assert made.append_from_peer(0, bytes([0, 1]), end_hash(made, bytes([0, 1])))
    assert made.append_from_peer(2, bytes([0]), whole)


def test_rule_17_an_origin_that_nobody_knows_is_a_fork_by_name() -> None:
    with pytest.raises(Fatal, match="Forked"):
        agreement().append_from_peer(0, bytes([0, 7]), bytes(16))
