"""Which synchronous transactions a rejoin decides. The report over real masters: ``test_synchronous_writes.py``."""

from __future__ import annotations

import pytest

from txlog.model.ids import Origin, Txid
from txlog.model.quorum import MAJORITY
from txlog.model.synchronous_entry import (
    KIND_DECISION,
    KIND_SYNCHRONOUS_QUADS,
    DecisionKind,
    SynchronousKey,
    decide,
    encode_decision,
    encode_synchronous_key,
)
from txlog.protocol.log.idempotency_keys import IdempotencyKeys
from txlog.protocol.log.synchronous_effects import SynchronousEffects
from txlog.server.admin import rejoin_decisions
from txlog.server.admin.rejoin_decisions import find_undecided

ORIGIN = Origin("uk-1", 7)
KEY = encode_synchronous_key(SynchronousKey(MAJORITY, 30_000))


def queued(count: int) -> SynchronousEffects:
    found = SynchronousEffects(IdempotencyKeys(1000))
    for seq in range(1, count + 1):
        found.wait(Txid(ORIGIN, seq), KIND_SYNCHRONOUS_QUADS, KEY)
    return found


def test_what_a_decision_in_the_queue_names_is_decided() -> None:
    """The other side has committed it during the split."""
    found = queued(3)
    for seq, verdict in ((1, DecisionKind.COMMIT), (3, DecisionKind.ROLLBACK)):
        key = encode_decision(decide(verdict, [Txid(ORIGIN, seq)]))
        found.wait(Txid(ORIGIN, 10 + seq), KIND_DECISION, key)
    assert find_undecided(found) == [str(Txid(ORIGIN, 2))]


def test_a_record_names_so_many_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rejoin_decisions, "NAMED_MAX", 2)
    assert len(find_undecided(queued(5))) == 2
