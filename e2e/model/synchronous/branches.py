"""The logs that reports bring to a view change: which branch goes on, and what the next view begins with (S12)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from e2e.model.synchronous.anchors import ClosedLog
from e2e.model.synchronous.values import (
    MasterReport,
    Missing,
    Mode,
    ModelEntry,
    ModelView,
    Number,
    TransactionKind,
    Weights,
)


@dataclass(frozen=True, eq=False)
class ReportedBranch:
    """Those who report the same view, and the longest of their logs."""

    view: ModelView
    masters: tuple[int, ...]
    log: tuple[ModelEntry, ...]
    waiting: frozenset[ModelEntry]
    installed: bool

    @cached_property
    def closed(self) -> list[ModelEntry]:
        """The log, and behind it what only waits."""
        logged = {entry.txid for entry in self.log}
        return [*self.log, *sorted(entry for entry in self.waiting if entry.txid not in logged)]

    @cached_property
    def anchor_number(self) -> Number:
        """Of its latest quorate view."""
        return self.view.anchor.number if self.view.anchor is not None else (-9, 0)


def find_branches(reports: dict[int, MasterReport]) -> list[ReportedBranch]:
    """One branch for each view that is reported."""
    by_view: dict[Number, list[MasterReport]] = {}
    for report in reports.values():
        by_view.setdefault(report.view.number, []).append(report)
    return [
        ReportedBranch(
            each[0].view,
            tuple(report.master for report in each),
            max((report.log for report in each), key=len),
            frozenset(entry for report in each for entry in report.queue),
            any(report.installed for report in each),
        )
        for each in by_view.values()
    ]


def shared_length(logs: Sequence[Sequence[ModelEntry]]) -> int:
    """The number of first entries that all logs share."""
    at, least = 0, min(len(log) for log in logs)
    while at < least and all(log[at] == logs[0][at] for log in logs):
        at += 1
    return at


def _is_left_behind(one: ReportedBranch, other: ReportedBranch) -> bool:
    """Whether ``other`` continues the view of ``one``, or replaced a view that no master installed."""
    if not one.view.history or one.view.number in other.view.history:
        return True
    return (
        other.view.number > one.view.number
        and len(one.view.history) > 1
        and one.view.history[-2] in other.view.history
        and not one.installed
        and any(master in one.view.members for master in other.masters)
    )


def _leads_with_decision(one: ReportedBranch, others: list[ReportedBranch]) -> bool:
    """S12: it is of the latest anchor and has, closed, a decision behind what all share."""
    number = one.anchor_number
    if any(number < other.anchor_number for other in others) or all(number == other.anchor_number for other in others):
        return False
    shared = shared_length([one.closed, *(other.closed for other in others)])
    return any(entry.transaction.kind is TransactionKind.DECISION for entry in one.closed[shared:])


@dataclass(frozen=True, slots=True, eq=False)
class BranchRules:
    """How branches become one log. ``weights``: the votes by which sides are compared."""

    mode: Mode
    missing: frozenset[Missing]
    weights: Weights

    def close(
        self, reports: dict[int, MasterReport], members: tuple[int, ...]
    ) -> tuple[ReportedBranch, ClosedLog, bool, bool]:
        """The branch that goes on, the log of the next view, whether branches were merged, and whether a decision won
        against the votes."""
        branches = find_branches(reports)
        by_decision = False
        if self.mode is Mode.MAJORITY:
            winner = max((each for each in branches if each.view.anchor is not None), key=lambda each: each.view.number)
            forks = [winner]
        else:
            forks = self._forks(branches)
            winner, by_decision = self._winner(branches, forks, members)
        base = list(winner.closed)
        if self.mode is Mode.SIMPLE and len(forks) > 1:
            base = _merge_by_stamp(forks)
        counter = max(
            *(report.counter for report in reports.values()),
            *(entry.stamp for report in reports.values() for entry in (*report.log[-1:], *report.queue)),
            *(entry.stamp for entry in base[-1:]),
            0,
        )
        queue, counter = _stamp_again(base, reports, counter)
        return winner, ClosedLog(base, queue, counter), len(forks) > 1, by_decision

    def _forks(self, branches: list[ReportedBranch]) -> list[ReportedBranch]:
        leaves = [
            each
            for each in branches
            if not any(_is_left_behind(each, other) for other in branches if other is not each)
        ]

        def is_needed(one: ReportedBranch) -> bool:
            """Whether members of its view are elsewhere, so that they may go on with it."""
            return any(
                master not in one.masters
                and not any(
                    master in other.view.members and master in other.masters and other.view.number > one.view.number
                    for other in branches
                )
                for master in one.view.members
            )

        return [
            one
            for one in leaves
            if is_needed(one) or not any(self._extends(other, one) for other in leaves if other is not one)
        ]

    def _extends(self, other: ReportedBranch, one: ReportedBranch) -> bool:
        """Whether ``other`` has all that ``one`` has, and ``one`` is to follow it."""
        if other.log[: len(one.log)] != one.log:
            return False
        if len(other.log) == len(one.log) and other.view.number < one.view.number:
            return False
        return Missing.VOTES in self.missing or not _leads_with_decision(one, [other])

    def _winner(
        self, branches: list[ReportedBranch], forks: list[ReportedBranch], members: tuple[int, ...]
    ) -> tuple[ReportedBranch, bool]:
        def votes(one: ReportedBranch) -> tuple[int, int, int]:
            followers = [
                each
                for each in branches
                if each is one
                or (
                    each not in forks
                    and _is_left_behind(each, one)
                    and sum(_is_left_behind(each, fork) for fork in forks) == 1
                )
            ]
            present = sum(self.weights[master] for each in followers for master in each.masters)
            absent = sum(self.weights[master] for master in one.view.members if master not in members)
            return present + absent, len(one.log), -min(one.masters)

        by_votes = max(forks, key=votes)
        if len(forks) == 1 or Missing.VOTES in self.missing:
            return by_votes, False
        leading = [one for one in forks if _leads_with_decision(one, [each for each in forks if each is not one])]
        return max(leading or forks, key=votes), bool(leading) and by_votes not in leading


def _merge_by_stamp(forks: list[ReportedBranch]) -> list[ModelEntry]:
    """What all forks share, then everything else in the order of stamps; of one transaction, its least stamp."""
    logs = [fork.closed for fork in forks]
    shared = shared_length(logs)
    least: dict[str, ModelEntry] = {}
    for log in logs:
        for entry in log[shared:]:
            if entry.txid not in least or entry < least[entry.txid]:
                least[entry.txid] = entry
    return [*logs[0][:shared], *sorted(least.values())]


def _stamp_again(
    base: list[ModelEntry], reports: dict[int, MasterReport], counter: int
) -> tuple[list[ModelEntry], int]:
    """What is in no base waits with new stamps, in the order of the old ones."""
    taken = {entry.txid for entry in base}
    least: dict[str, ModelEntry] = {}
    for report in reports.values():
        for entry in (*report.log, *report.queue):
            if entry.txid not in taken and (entry.txid not in least or entry < least[entry.txid]):
                least[entry.txid] = entry
    queue = []
    for entry in sorted(least.values()):
        counter += 1
        queue.append(entry._replace(stamp=counter))
    return queue, counter
