"""When ancestors are forgotten: only below a view that every configured master has accepted, whose level knows it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from lone_member import VIEW as FIRST
from lone_member import Lone, propose

from txlog.model.records import ViewAccepted, ViewInstalled
from txlog.model.view import LEARNER_STAMPS, NO_VIEW, Number, View
from txlog.protocol.views.branch_selection import ViewBranch
from txlog.protocol.views.view_lineage import NextLineage, extend_lineage
from txlog.wire.messages import Checkpoint, RejectView, ViewReport
from txlog.wire.protocol_level import PROTOCOL_LEVEL
from txlog.wire.report_parts import PendingConfigChange

LONG: list[Number] = [(number, 1, "a") for number in range(1, 9)]
ELSEWHERE: Number = (6, 1, "c")
VIEW = msgspec.structs.replace(
    FIRST, epoch=9, ancestors=LONG, strategies=["Simple"] * 8, preferred_strategies=["Smart"] * 3, level=PROTOCOL_LEVEL
)


def report(node: str, view: View = VIEW, **fields: Any) -> ViewReport:
    empty = Checkpoint(0, b"")
    found = ViewReport(
        (10, 1, "a"), node, 1, 1, view, True, 0, empty, empty, [], b"", 0, [], [], [], "Smart", [], PROTOCOL_LEVEL
    )
    return msgspec.structs.replace(found, **fields)


def extended(view: View, reports: list[ViewReport], configured: str = "abc") -> NextLineage:
    return extend_lineage(ViewBranch(view, reports, 0, [], []), reports, set(configured))


def test_below_a_view_of_all_masters_only_the_founding_is_listed() -> None:
    found = extended(VIEW, [report("a"), report("b")])
    assert found.ancestors == [(1, 1, "a"), VIEW.number]
    assert found.strategies == ["Smart", "Smart"]
    assert (found.start, found.level) == (VIEW.number, PROTOCOL_LEVEL)


def test_the_founding_ends_no_views() -> None:
    """An earlier proposal of it, which an operator gave up, has a lower number and is no ancestor."""
    founding = msgspec.structs.replace(FIRST, ancestors=[], strategies=[], level=PROTOCOL_LEVEL)
    found = extended(founding, [report(node, founding) for node in "ab"], "ab")
    assert (found.ancestors, found.start) == ([founding.number], NO_VIEW)


@pytest.mark.parametrize(
    ("view", "fields", "configured"),
    [
        ({}, {"installed": False}, "abc"),
        ({}, {}, "abcd"),
        ({}, {"level": 0}, "abc"),
        ({"level": 0}, {}, "abc"),
        ({"diverged_index": 5}, {}, "abc"),
        ({"silent_members": ["d"]}, {}, "abc"),
    ],
)
def test_else_all_ancestors_are_listed(view: dict[str, Any], fields: dict[str, Any], configured: str) -> None:
    before = msgspec.structs.replace(VIEW, **view)
    found = extended(before, [report(node, before, **fields) for node in "ab"], configured)
    assert found.ancestors == [*LONG, VIEW.number]
    assert found.strategies == ["Simple"] * 8 + ["Smart"]
    assert found.start == NO_VIEW


def test_views_below_the_start_are_ancestors_except_foreign_ones() -> None:
    view = msgspec.structs.replace(
        VIEW, ancestors=[(1, 1, "a"), (8, 1, "a")], lineage_start=(8, 1, "a"), foreign_views=[ELSEWHERE]
    )
    assert view.descends_from((8, 1, "a"))
    assert view.descends_from((4, 1, "b"))
    assert view.is_or_descends_from(VIEW.number)
    for number in (ELSEWHERE, (8, 2, "a"), VIEW.number, NO_VIEW, LEARNER_STAMPS):
        assert not view.descends_from(number)


def test_a_foreign_view_is_kept_as_long_as_a_master_holds_a_change_made_in_it() -> None:
    key = '[[6,1,"c"],0,[[["a","uk",1,"member",[]]],false,0,0,[]]]'
    change = PendingConfigChange("c", 3, 1, key)
    assert extended(VIEW, [report("a"), report("c", changes=[change])]).foreign_views == [ELSEWHERE]
    assert extended(VIEW, [report("a", foreign_views=[ELSEWHERE]), report("b")]).foreign_views == [ELSEWHERE]
    later = msgspec.structs.replace(VIEW, foreign_views=[ELSEWHERE])
    assert extended(later, [report("a"), report("b")]).foreign_views == [ELSEWHERE], "c may hold it"
    assert extended(later, [report("a"), report("b"), report("c")]).foreign_views == []


def test_a_proposal_of_an_older_program_is_refused_once_views_are_forgotten() -> None:
    assert not isinstance(_asked_to_take_part(NO_VIEW, 0), RejectView)
    answer = _asked_to_take_part((1, 1, "a"), 0)
    assert isinstance(answer, RejectView)
    assert answer.why == "OlderProgram"
    assert not isinstance(_asked_to_take_part((1, 1, "a"), PROTOCOL_LEVEL), RejectView)


def _asked_to_take_part(lineage_start: Number, level: int) -> object:
    second = msgspec.structs.replace(FIRST, epoch=2, lineage_start=lineage_start, ancestors=[(1, 1, "a")])
    lone = Lone([ViewAccepted(FIRST), ViewInstalled(1, 1, "a"), ViewAccepted(second), ViewInstalled(*second.number)])
    proposal = propose([*second.members], number=(3, 1, "a"), view=second.number)
    return lone.ask("a", msgspec.structs.replace(proposal, level=level))
