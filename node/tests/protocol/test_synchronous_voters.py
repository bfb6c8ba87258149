"""Which births count when a view is judged (rule S4, docs/decisions/0092-which-births-vote-for-quorate-views.md)."""

from __future__ import annotations

import pytest

from txlog.model.anchor import Anchor
from txlog.model.configuration import Configuration, Master
from txlog.model.ids import Origin
from txlog.model.view import Member, View, bootstrap_view
from txlog.protocol.log.idempotency_keys import IdempotencyKeys
from txlog.protocol.log.log_index import LogIndex
from txlog.protocol.log.synchronous_effects import SynchronousEffects
from txlog.protocol.views.branch_selection import InsufficientReports
from txlog.protocol.views.log_merge import MergedLog
from txlog.protocol.views.quorate_view import NextViewLog, OwnSynchronous, compute_anchor
from txlog.wire.messages import Checkpoint, ViewReport
from txlog.wire.protocol_level import LEVEL_SYNCHRONOUS

LOST = 100
"""Added to the birth of a master that lost its disk."""


def births(nodes: str) -> list[tuple[str, int]]:
    """``a`` is the first birth of that master, ``A`` the one after a lost disk."""
    return [(node.lower(), 1 + LOST * node.isupper()) for node in nodes]


def members(nodes: str) -> list[Member]:
    return [Member(node, birth, 1, "uk") for node, birth in births(nodes)]


def view(epoch: int, nodes: str, anchor: Anchor | None) -> View:
    configuration = Configuration([Master(node.lower(), "uk", 1) for node in nodes], False, 1000)
    first = bootstrap_view(1, "a", members(nodes), "Smart", configuration)
    return View(
        epoch, 1, "a", first.members, first.cluster_id, 0, first.base_hash, first.origins, [first.number], anchor=anchor
    )


def report(node: str, latest: View | None, level: int = LEVEL_SYNCHRONOUS) -> ViewReport:
    ((name, birth),) = births(node)
    at = Checkpoint(0, b"")
    return ViewReport((9, 1, "a"), name, birth, 1, latest, True, 0, at, at, [], b"", 0, [], [], [], "Smart", [], level)


def judge(number: int, reports: list[ViewReport], configured: str) -> Anchor | None:
    names = "".join(each.node.upper() if each.birth > LOST else each.node for each in reports)
    history = LogIndex(bytes(16), [Origin("a", 1)])
    masters = [Master(node, "uk", 1) for node in configured]
    log = NextViewLog(MergedLog(history, 0), [], {}, {}, 0, masters)
    own = OwnSynchronous(SynchronousEffects(IdempotencyKeys(1000)), {}, True)
    return compute_anchor((number, 1, "a"), members(names), reports, log, history, own)


def first(nodes: str) -> Anchor:
    found = judge(2, [report(node, view(1, nodes, None)) for node in nodes], nodes)
    assert found is not None
    assert found.number == (2, 1, "a")
    return found


def is_quorate(number: int, anchor: Anchor | None) -> bool:
    return anchor is not None and anchor.number == (number, 1, "a")


def test_who_never_accepted_the_first_anchor_counts_as_well() -> None:
    anchored, before = view(2, "abcde", first("abcde")), view(1, "abcde", None)
    found = judge(3, [report("a", anchored), report("b", before), report("c", before)], "abcde")
    assert is_quorate(3, found)


def test_a_birth_after_a_lost_disk_does_not_count() -> None:
    anchored = view(2, "abcde", first("abcde"))
    reports = [report("a", anchored), report("b", anchored), report("C", None)]
    assert not is_quorate(3, judge(3, reports, "abcde"))
    assert is_quorate(3, judge(3, [*reports, report("d", anchored)], "abcde"))


def test_it_counts_once_it_has_accepted_a_quorate_view() -> None:
    anchored = view(2, "abcde", first("abcde"))
    third = view(3, "abCd", judge(3, [report(n, anchored if n != "C" else None) for n in "abCd"], "abcde"))
    assert third.is_quorate
    assert third.anchor is not None
    assert ("c", 1) not in third.anchor.voters
    fourth = view(4, "aC", judge(4, [report("a", third), report("C", third)], "abcde"))
    assert not fourth.is_quorate
    assert fourth.anchor is not None
    assert ("c", 1 + LOST) in fourth.anchor.voters
    assert is_quorate(5, judge(5, [report("a", fourth), report("C", fourth), report("e", anchored)], "abcde"))


def test_a_lost_disk_among_those_without_an_anchor_does_not_count() -> None:
    anchored, before = view(2, "abcdefg", first("abcdefg")), view(1, "abcdefg", None)
    reports = [report("a", anchored), report("B", before), report("f", before), report("g", before)]
    assert not is_quorate(4, judge(4, reports, "abcdefg"))


def test_a_program_without_anchors_is_no_member() -> None:
    anchored = view(2, "abc", first("abc"))
    with pytest.raises(InsufficientReports, match="the program of c"):
        judge(3, [report("a", anchored), report("b", anchored), report("c", anchored, LEVEL_SYNCHRONOUS - 1)], "abc")
