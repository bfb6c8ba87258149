"""Which branch survives, of those reported (protocol section 4): groups the reports by view, finds the views that are
parallel branches, and selects the winner. Pure functions of the reports (rule 25).

Under ``Majority`` the latest view survives. In ``Continue`` there may be several views that no other view has closed;
one of them wins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from txlog.model.hashes import HASH_BYTES
from txlog.model.ids import Origin
from txlog.model.view import Member, Number, View
from txlog.protocol.log.log_index import LogIndex
from txlog.wire.messages import ViewReport

TransactionName = tuple[Origin, int]
"""The name of a transaction: origin and seq."""


class InsufficientReports(Exception):
    """These reports do not suffice; the text says what is missing. Another proposal may fare better."""


class ViewBranch(NamedTuple):
    """The masters that report the same view. ``log``: the longest of their logs, after ``shared`` entries of the
    computing master's log; ``hashes`` are its chain hashes after these."""

    view: View
    reports: list[ViewReport]
    shared: int
    log: list[TransactionName]
    hashes: list[bytes]

    @property
    def number(self) -> Number:
        """The number of the view."""
        return self.view.number

    @property
    def length(self) -> int:
        """The length of the branch's log: its last index."""
        return self.shared + len(self.log)

    @property
    def nodes(self) -> set[str]:
        """The node ids of the masters that report the view."""
        return {report.node for report in self.reports}

    @property
    def is_installed(self) -> bool:
        """A master that reports the view also reports that every member has accepted it."""
        return any(report.installed for report in self.reports)

    @property
    def is_forced(self) -> bool:
        """An ancestor view was forced and no later view contained every member."""
        return self.view.is_forced(self.is_installed)


def group_by_view(reports: list[ViewReport], own: LogIndex) -> list[ViewBranch]:
    """The reports grouped by view, in the order of the view numbers. :class:`InsufficientReports` when a report does
    not fit the log here."""
    found: dict[Number, list[ViewReport]] = {}
    for report in reports:
        if report.view is not None:
            found.setdefault(report.view.number, []).append(report)
    branches: list[ViewBranch] = []
    for number in sorted(found):
        longest = max(found[number], key=lambda r: (r.log.index, r.node))
        view = longest.view
        assert view is not None
        log = [
            (Origin(s.node, s.birth), seq) for s in longest.tail for seq in range(s.first_seq, s.first_seq + s.count)
        ]
        hashes = [longest.hashes[at * HASH_BYTES : (at + 1) * HASH_BYTES] for at in range(len(log))]
        shared = longest.shared.index
        if (
            shared > own.length
            or shared + len(log) != longest.log.index
            or len(longest.hashes) != HASH_BYTES * len(log)
        ):
            raise InsufficientReports(f"the report of {longest.node} does not fit the log here")
        shared, log, hashes = _above_log_start(own, longest, log, hashes)
        same = 0
        while same < len(log) and shared + same < own.length and own.hash_at(shared + same + 1) == hashes[same]:
            same += 1
        shared, log, hashes = shared + same, log[same:], hashes[same:]
        branches.append(ViewBranch(view, found[number], shared, log, hashes))
    return branches


def _above_log_start(
    own: LogIndex, report: ViewReport, log: list[TransactionName], hashes: list[bytes]
) -> tuple[int, list[TransactionName], list[bytes]]:
    """Drops the part of the reported log below our log start; every member is past it."""
    shared, below = report.shared, own.start - report.shared.index
    if below <= 0:
        if shared.index and own.hash_at(shared.index) != shared.hash:
            raise InsufficientReports(
                f"the log of {report.node} is reported after {shared.index}, which is another entry here"
            )
        return shared.index, log, hashes
    if below > len(log) or hashes[below - 1] != own.log_start_hash:
        raise InsufficientReports(
            f"the log of {report.node} does not go through index {own.start}, from where it is kept here"
        )
    return own.start, log[below:], hashes[below:]


def _hash_at(branch: ViewBranch, index: int, own: LogIndex) -> bytes:
    return own.hash_at(index) if index <= branch.shared else branch.hashes[index - branch.shared - 1]


def _is_prefix(one: ViewBranch, other: ViewBranch, own: LogIndex) -> bool:
    return one.length <= other.length and _hash_at(one, one.length, own) == _hash_at(other, one.length, own)


def surviving_view(views: Iterable[tuple[View, bool]]) -> View | None:
    """The view that survives under ``Majority``, of those reported, each with whether it is installed there."""
    known = list(views)
    ends = [one for one in known if not any(other.descends_from(one[0].number) for other, _ in known)]
    return max(ends, key=lambda one: one[0].precedence(one[1]))[0] if ends else None


def surviving_branch(branches: list[ViewBranch]) -> ViewBranch:
    """The branch that survives under ``Majority``."""
    view = surviving_view((branch.view, branch.is_installed) for branch in branches)
    return next(branch for branch in branches if branch.view is view)


Leads = Callable[[ViewBranch, ViewBranch], bool]
"""Whether the first branch decided about synchronous transactions what the second one lacks (rule S12)."""


def never_leads(one: ViewBranch, other: ViewBranch) -> bool:
    """Where no branch has decisions."""
    return False


def find_branches(branches: list[ViewBranch], own: LogIndex, leads: Leads = never_leads) -> list[ViewBranch]:
    """The branches without the lagging ones. A lagging branch's view is an ancestor of another or was never installed.
    Of the others, a branch lags when its log is a prefix of another's. Every member of its view must then be present,
    or have been seen in a later accepted view. ``leads``: whether the first one decided what the second one lacks, and
    does not lag behind it for that."""
    leaves = [b for b in branches if not any(_is_superseded_by(b, other) for other in branches)]
    return [
        one
        for one in leaves
        if _absent_members(one, branches)
        or not any(_extends(one, other, own) and not leads(one, other) for other in leaves)
    ]


def _is_superseded_by(one: ViewBranch, other: ViewBranch) -> bool:
    return other.view.descends_from(one.number) or _never_installed(one, other)


def _never_installed(one: ViewBranch, other: ViewBranch) -> bool:
    """Whether an accepted view was never installed, because a member of it continued from the view before it by a later
    one. A master that reported to a later proposal does not accept the earlier one any more (rule 34). The members that
    did accept it have used nothing of it, and are at the position before it."""
    return (
        other.number > one.number
        and one.view.ancestors[-1:] != []
        and other.view.descends_from(one.view.ancestors[-1])
        and not one.is_installed
        and any(one.view.has_member(Origin(report.node, report.birth)) for report in other.reports)
    )


def branches_with_all_final_entries(forks: list[ViewBranch], own: LogIndex) -> list[ViewBranch]:
    """The branches whose logs have every entry that is final in any of them. All branches have them, except one that an
    override created beside an undivided line. The transactions that this branch ordered meanwhile come after the
    others, as new entries."""
    found = [one for one in forks if all(_has_final_entries_of(one, other, own) for other in forks)]
    if not found:
        raise InsufficientReports("no branch has all that is settled in the others: a journal is an old copy of itself")
    return found


def _has_final_entries_of(one: ViewBranch, other: ViewBranch, own: LogIndex) -> bool:
    index = max(r.view.final_index(r.stable, r.installed) for r in other.reports if r.view is not None)
    return index <= own.start or (index <= one.length and _hash_at(one, index, own) == _hash_at(other, index, own))


def _extends(one: ViewBranch, other: ViewBranch, own: LogIndex) -> bool:
    ahead = other.length > one.length or other.number > one.number
    return ahead and _is_prefix(one, other, own)


def _absent_members(branch: ViewBranch, branches: list[ViewBranch]) -> list[Member]:
    """Members of its view that do not report it, and that no master here has seen in a later accepted view."""
    later = [b for b in branches if b.number > branch.number]
    return [
        m
        for m in branch.view.members
        if m.node not in branch.nodes and not any(m.node in b.nodes and b.view.member(m.node) for b in later)
    ]


def branch_weight(
    branch: ViewBranch,
    branches: list[ViewBranch],
    forks: list[ViewBranch],
    members: list[Member],
    weights: dict[str, int],
) -> tuple[int, int, int]:
    """The weight that selects the winner: the most vote weight, then the longest log, then the branch with the first
    master in precedence. The weight of a lagging branch counts for the one branch that descends from its view, or
    from the view before it. With several such branches it counts for none."""
    here = {m.node for m in members}
    nodes = set(branch.nodes)
    for other in branches:
        if other not in forks and _is_superseded_by(other, branch):
            holders = [f for f in forks if _is_superseded_by(other, f)]
            if len(holders) == 1:
                nodes |= other.nodes
    later = [b for b in branches if b.number > branch.number]
    for member in branch.view.members:
        if member.node not in here and not any(b.view.member(member.node) for b in later):
            nodes.add(member.node)
    order = {node: place for place, node in enumerate(weights)}
    first = min(order.get(node, len(order)) for node in branch.nodes)
    return sum(weights.get(node, 0) for node in nodes), branch.length, -first
