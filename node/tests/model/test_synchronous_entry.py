"""The keys of synchronous transactions and of decisions: one text for each, and every other text is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from txlog.model.bounds import COUNT_MAX, KEY_BYTES_MAX
from txlog.model.errors import BadInput
from txlog.model.ids import Origin, Txid
from txlog.model.quorum import parse_quorum
from txlog.model.synchronous_entry import (
    DECIDED_MAX,
    DecisionKind,
    SynchronousKey,
    decide,
    decode_decision,
    decode_synchronous_key,
    encode_decision,
    encode_synchronous_key,
)

A = Origin("uk-1", 0xC0FFEE)
B = Origin("us-1", 7)

txids = st.builds(Txid, st.sampled_from([A, B]), st.integers(1, 40))


@given(
    st.sampled_from(["N/2+1", "all", "N-1", "4", "D/2+1&4"]),
    st.sampled_from([0, 100, 30_000, 24 * 3600 * 1000]),
    st.text(max_size=50),
)
def test_the_key_of_a_transaction_is_read_as_it_was_written(quorum: str, timeout_ms: int, client_key: str) -> None:
    key = SynchronousKey(parse_quorum(quorum), timeout_ms, client_key)
    assert decode_synchronous_key(encode_synchronous_key(key)) == key


@pytest.mark.parametrize(
    "text",
    ["", "all", "all 0", "all  k", "all 030000 k", "N 0 ", "all 99 ", "all 1000000000 ", "N/2 0 ", "all ３00 "],
)
def test_no_other_text_is_the_key_of_a_transaction(text: str) -> None:
    with pytest.raises(BadInput):
        decode_synchronous_key(text)


@given(st.sampled_from(list(DecisionKind)), st.sets(txids, min_size=1))
def test_a_decision_is_read_as_it_was_written(verdict: DecisionKind, names: set[Txid]) -> None:
    decision = decide(verdict, names)
    assert decision.names() == tuple(sorted(names))
    assert decode_decision(encode_decision(decision)) == decision


def test_adjacent_transactions_are_one_span() -> None:
    decision = decide(DecisionKind.COMMIT, [Txid(A, 3), Txid(B, 5), Txid(A, 4), Txid(A, 6)])
    assert encode_decision(decision) == (
        "commit uk-1.0000000000c0ffee.3+2 uk-1.0000000000c0ffee.6 us-1.0000000000000007.5"
    )


@pytest.mark.parametrize(
    "text",
    [
        "",
        "commit",
        "commit ",
        "outcome uk-1.0000000000c0ffee.3",
        "commit uk-1.0000000000c0ffee.3+1",
        "commit uk-1.0000000000c0ffee.3+0",
        "commit uk-1.0000000000c0ffee.0",
        f"commit uk-1.0000000000c0ffee.1+{DECIDED_MAX + 1}",
        f"commit uk-1.0000000000c0ffee.{COUNT_MAX}+2",
        "commit uk-1.0000000000c0ffee.4 uk-1.0000000000c0ffee.3",
        "commit uk-1.0000000000c0ffee.3 uk-1.0000000000c0ffee.4",
        "commit uk-1.0000000000c0ffee.3 uk-1.0000000000c0ffee.3",
    ],
)
def test_no_other_text_is_a_decision(text: str) -> None:
    with pytest.raises(BadInput):
        decode_decision(text)


def test_the_longest_decision_is_a_key() -> None:
    names = [Txid(Origin("n" * 63, (1 << 64) - 1), COUNT_MAX - 2 * at) for at in range(1, DECIDED_MAX + 1)]
    assert len(encode_decision(decide(DecisionKind.ROLLBACK, names))) <= KEY_BYTES_MAX
