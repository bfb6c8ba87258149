"""Which ancestors the next view lists, so that a view has a bounded size however many views precede it (rule 32).

A view that was installed with every configured master in it ends the question what came before: none of them can report
an earlier view any more, nor one of another branch. The views below it are forgotten. They count as ancestors from then
on, except the views of other branches that a configuration change names: such a change has no effect in this log.
"""

from __future__ import annotations

from typing import NamedTuple

from txlog.model.configuration import decode_configuration_change
from txlog.model.view import FORGETTING_LEVEL, Number
from txlog.protocol.views.branch_selection import ViewBranch
from txlog.wire.messages import ViewReport


class NextLineage(NamedTuple):
    """The fields of the next view that tell what it descends from: see :class:`txlog.model.view.View`."""

    ancestors: list[Number]
    strategies: list[str]
    start: Number
    foreign_views: list[Number]
    level: int


def extend_lineage(winner: ViewBranch, reports: list[ViewReport], configured: set[str]) -> NextLineage:
    """What a view that continues ``winner`` descends from. ``configured``: the node ids of all masters, under every
    configuration that is in force or pending."""
    view = winner.view
    level = _level(reports, configured)
    changes = (decode_configuration_change(change.key) for report in reports for change in report.changes)
    foreign = {number for report in reports for number in report.foreign_views}
    foreign.update(change.view for change in changes if change is not None)
    if not configured <= {report.node for report in reports}:
        foreign.update(view.foreign_views)  # an absent master may still hold the change
    foreign = {number for number in foreign if not view.is_or_descends_from(number)}
    ancestors, strategies, start = [*view.ancestors, view.number], [*view.strategies, view.strategy], view.lineage_start
    if view.ancestors and _ends_earlier_views(winner, configured) and min(level, view.level) >= FORGETTING_LEVEL:
        ancestors, start = [*view.ancestors[:1], view.number], view.number
        strategies = [view.strategy for _ in ancestors]
    return NextLineage(ancestors, strategies, start, sorted(foreign), level)


def _level(reports: list[ViewReport], configured: set[str]) -> int:
    """The least level of the members. An absent master may be older than they are: the views that it was in bound its
    level, so a level that no member had before begins in a view of all masters."""
    level = min(report.level for report in reports)
    if configured <= {report.node for report in reports}:
        return level
    return min([level, *(report.view.level for report in reports if report.view is not None)])


def _ends_earlier_views(winner: ViewBranch, configured: set[str]) -> bool:
    """Whether every configured master has accepted this view, so that none can report one below it."""
    view = winner.view
    whole = winner.is_installed and view.diverged_at(True) == -1 and not view.silent_members
    return whole and configured <= {m.node for m in view.members}
