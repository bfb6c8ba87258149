"""A transaction of a kind that this program gives no meaning is refused by name: no worker could execute it."""

from __future__ import annotations

import pytest

from txlog.model.entry import CONTROL_KINDS, KIND_QUADS, KIND_UPDATE, RunItem, TransactionRun
from txlog.model.errors import PeerFault
from txlog.model.ids import Origin, Txid
from txlog.model.synchronous_entry import KIND_DECISION, SYNCHRONOUS_KINDS, DecisionKind, decide, encode_decision
from txlog.protocol.log.incoming_queue import check_items


@pytest.mark.parametrize("kind", [5, 6, 10, 11, 127])
def test_a_kind_of_a_later_program_is_refused_by_name(kind: int) -> None:
    run = TransactionRun("us-1", 7, 1, [RunItem(5, kind, "", b"")])
    with pytest.raises(PeerFault, match=f"kind {kind}") as refused:
        check_items(run, 0, None)
    assert refused.value.reason == "UnknownKind"


@pytest.mark.parametrize("kind", [*SYNCHRONOUS_KINDS, KIND_DECISION])
def test_a_key_that_no_master_makes_is_refused(kind: int) -> None:
    run = TransactionRun("us-1", 7, 1, [RunItem(5, kind, "anything", b"")])
    with pytest.raises(PeerFault, match="anything") as refused:
        check_items(run, 0, None)
    assert refused.value.reason == "Malformed"


def test_synchronous_transactions_and_decisions_are_taken() -> None:
    decision = encode_decision(decide(DecisionKind.COMMIT, [Txid(Origin("us-1", 7), 1)]))
    items = [RunItem(1, 7, "N/2+1 30000 k", b""), RunItem(2, 8, "all 0 ", b""), RunItem(3, 9, decision, b"")]
    check_items(TransactionRun("us-1", 7, 1, items), 0, 0)


def test_every_kind_of_this_program_is_taken() -> None:
    items = [RunItem(stamp, kind, "", b"") for stamp, kind in enumerate((KIND_UPDATE, KIND_QUADS, *CONTROL_KINDS), 1)]
    check_items(TransactionRun("us-1", 7, 1, items), 0, 0)
