"""A branch that decided what another one lacks survives, whatever the votes are (rule S12)."""

from __future__ import annotations

import pytest

from txlog.model.anchor import Anchor
from txlog.model.configuration import Master
from txlog.model.entry import Span
from txlog.model.hashes import HASH_BYTES, chain_hash, chain_start, origin_tag
from txlog.model.ids import Origin, Txid
from txlog.model.synchronous_entry import (
    KIND_DECISION,
    KIND_SYNCHRONOUS_UPDATE,
    DecisionKind,
    decide,
    encode_decision,
)
from txlog.model.view import Member, View, bootstrap_view
from txlog.protocol.log.idempotency_keys import IdempotencyKeys
from txlog.protocol.log.log_index import LogIndex
from txlog.protocol.log.synchronous_effects import SynchronousEffects
from txlog.protocol.views.next_view import NextView, compute_next_view
from txlog.protocol.views.quorate_view import OwnSynchronous
from txlog.wire.messages import Checkpoint, QueuedTransactions, ViewReport
from txlog.wire.protocol_level import LEVEL_SYNCHRONOUS
from txlog.wire.report_parts import SynchronousReference

NODES = "abcde"
ORIGINS = {node: Origin(node, 1 + at) for at, node in enumerate(NODES)}
MEMBERS = {node: Member(node, 1 + at, 1, "uk") for at, node in enumerate(NODES)}
VOTES = [Master(node, "uk", 1) for node in NODES]
FIRST = bootstrap_view(1, "a", list(MEMBERS.values()), "Smart")
CLUSTER = FIRST.cluster_id
BIRTHS = [(origin.node, origin.birth) for origin in ORIGINS.values()]
ANCHOR = Anchor((2, 1, "a"), BIRTHS, VOTES, voters=BIRTHS)
LATER = Anchor((4, 1, "c"), [(o.node, o.birth) for o in (ORIGINS[n] for n in "cde")], VOTES, voters=BIRTHS)
WAITS = (Txid(ORIGINS["c"], 1), KIND_SYNCHRONOUS_UPDATE, "N/2+1 0 ")
COMMIT = (Txid(ORIGINS["c"], 2), KIND_DECISION, encode_decision(decide(DecisionKind.COMMIT, [WAITS[0]])))
ORDINARY = (Txid(ORIGINS["a"], 1), 1, "")
Named = tuple[Txid, int, str]


def view(epoch: int, coordinator: str, nodes: str, anchor: Anchor) -> View:
    return View(
        epoch,
        1,
        coordinator,
        [MEMBERS[node] for node in nodes],
        CLUSTER,
        0,
        chain_start(CLUSTER),
        BIRTHS,
        [FIRST.number],
        diverged_index=0,
        strategies=["Smart"],
        silent_members=[node for node in NODES if node not in nodes],
        anchor=anchor,
    )


def hashes_of(log: list[Named]) -> bytes:
    value, found = chain_start(CLUSTER), b""
    for stamp, (txid, _, _) in enumerate(log, 1):
        value = chain_hash(value, stamp, origin_tag(txid.origin), txid.seq, bytes(HASH_BYTES))
        found += value
    return found


def report(node: str, at: View, log: list[Named]) -> ViewReport:
    hashes = hashes_of(log)
    place = Checkpoint(len(log), hashes[-HASH_BYTES:] or chain_start(CLUSTER))
    return ViewReport(
        (9, 1, "c"),
        node,
        ORIGINS[node].birth,
        1,
        at,
        True,
        0,
        place,
        Checkpoint(0, chain_start(CLUSTER)),
        [Span(*txid.origin, txid.seq, 1) for txid, _, _ in log],
        hashes,
        9,
        [QueuedTransactions(*t.origin, t.seq, [stamp], bytes(HASH_BYTES)) for stamp, (t, _, _) in enumerate(log, 1)],
        [],
        [],
        "Smart",
        [],
        LEVEL_SYNCHRONOUS,
        [],
        [SynchronousReference(*t.origin, t.seq, kind, key) for t, kind, key in log if kind != 1],
    )


def close(reports: list[ViewReport], weights: dict[str, int]) -> NextView:
    own = OwnSynchronous(SynchronousEffects(IdempotencyKeys(1000)), {}, True)
    members = [MEMBERS[one.node] for one in reports]
    history = LogIndex(CLUSTER, list(ORIGINS.values()))
    return compute_next_view((9, 1, "c"), members, [], reports, history, weights, False, None, own)


@pytest.mark.parametrize("votes", [1, 5])
def test_a_commit_outweighs_votes(votes: int) -> None:
    minority, quorate = view(3, "a", "ab", ANCHOR), view(4, "c", "cde", LATER)
    reports = [report("a", minority, [ORDINARY]), report("b", minority, [ORDINARY])]
    reports.append(report("c", quorate, [WAITS, COMMIT]))
    found = close(reports, {"a": votes, "b": 1, "c": 1, "d": 1, "e": 1})
    assert found.branches == [quorate.number, minority.number]


def test_without_a_decision_votes_count() -> None:
    minority, quorate = view(3, "a", "ab", ANCHOR), view(4, "c", "cde", LATER)
    reports = [report("a", minority, [ORDINARY]), report("b", minority, [ORDINARY]), report("c", quorate, [WAITS])]
    found = close(reports, {"a": 5, "b": 1, "c": 1, "d": 1, "e": 1})
    assert found.branches == [minority.number, quorate.number]


def test_a_commit_that_every_branch_has_decides_nothing() -> None:
    minority, quorate = view(3, "a", "ab", ANCHOR), view(4, "c", "cde", LATER)
    log = [WAITS, COMMIT]
    reports = [report("a", minority, [*log, ORDINARY]), report("b", minority, log), report("c", quorate, log)]
    found = close(reports, {"a": 5, "b": 1, "c": 1, "d": 1, "e": 1})
    assert found.branches[0] == minority.number


def test_a_decision_of_an_older_anchor_decides_nothing() -> None:
    older, newer = view(3, "a", "ab", ANCHOR), view(4, "c", "cde", LATER)
    reports = [report("a", older, [WAITS, COMMIT]), report("b", older, [WAITS]), report("c", newer, [ORDINARY])]
    found = close(reports, {"a": 1, "b": 1, "c": 5, "d": 1, "e": 1})
    assert found.branches[0] == newer.number
