"""S8, S9: which late transactions a quorate view dooms, and that what the anchor knew stays as the anchor says."""

from __future__ import annotations

from txlog.model.anchor import Anchor
from txlog.model.configuration import Master
from txlog.model.ids import Origin, Txid
from txlog.model.stamp import LOGICAL_BITS
from txlog.model.synchronous_entry import join_spans
from txlog.protocol.views.anchors import AnchorReport, Candidate, NextLog, next_anchor

ORIGIN = Origin("c", 3)
ELECTORATE = [Master(node, "dc", 1) for node in ("a", "b", "c")]
MEMBERS = [("a", 1), ("b", 2), ("c", 3)]
LATE = 200 << LOGICAL_BITS


def doomed(known: int, *, before: list[Txid]) -> frozenset[Txid]:
    """What a view of a and b dooms of the only transaction, which is late, and which neither holds."""
    txid = Txid(ORIGIN, 1)
    anchor = Anchor(
        (2, 0, "a"), MEMBERS, ELECTORATE, known=[(*ORIGIN, known)] if known else [], doomed=join_spans(before)
    )
    reports = [AnchorReport(node, birth, (2, 0, "a"), True, anchor, True, LATE, {}) for node, birth in MEMBERS[:2]]
    log = NextLog(ELECTORATE, {ORIGIN: 1}, [Candidate(0, txid, 100)])
    found = next_anchor((3, 0, "a"), MEMBERS[:2], reports, log)
    assert found.quorate
    return found.anchor.doomed_names()


def test_what_the_anchor_did_not_know_and_no_quorum_holds_is_doomed() -> None:
    assert doomed(0, before=[]) == {Txid(ORIGIN, 1)}


def test_what_the_anchor_knew_and_did_not_doom_is_never_doomed() -> None:
    assert doomed(1, before=[]) == set()


def test_what_the_anchor_doomed_stays_doomed() -> None:
    assert doomed(1, before=[Txid(ORIGIN, 1)]) == {Txid(ORIGIN, 1)}
