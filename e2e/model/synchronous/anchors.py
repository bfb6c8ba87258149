"""Whether a view is quorate, and the anchor that it carries: electorate, and what it dooms (S3, S4, S5, S8, S9)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from e2e.model.synchronous.values import (
    MasterReport,
    Missing,
    ModelAnchor,
    ModelEntry,
    ModelView,
    Number,
    TransactionKind,
    Weights,
    is_majority,
    votes_of,
)


class ClosedLog(NamedTuple):
    """What the members of the next view begin with."""

    base: list[ModelEntry]
    queue: list[ModelEntry]
    counter: int


@dataclass(frozen=True, slots=True, eq=False)
class AnchorRules:
    """The rules, with or without one of their parts. ``initial``: the electorate at the founding."""

    missing: frozenset[Missing]
    initial: Weights

    def is_quorum(self, electorate: Weights, masters: set[int] | list[int] | tuple[int, ...]) -> bool:
        """S3: more than half of the votes."""
        if Missing.WEAK in self.missing:
            return 2 * votes_of(electorate, masters) >= sum(electorate)
        return is_majority(electorate, masters)

    def configured_weights(self, log: list[ModelEntry], history: tuple[Number, ...]) -> tuple[int, Weights]:
        """Version and weights at the end of a log. A change counts where it follows the version before it, and was
        written in a view of this history."""
        version, weights = 0, self.initial
        for entry in log:
            change = entry.transaction
            if change.kind is TransactionKind.WEIGHTS and change.version == version and change.decided_in in history:
                version, weights = version + 1, change.weights
        return version, weights

    def open_view(
        self,
        number: Number,
        members: tuple[int, ...],
        winner: ModelView,
        reports: dict[int, MasterReport],
        closed: ClosedLog,
        is_late: Callable[[str], bool],
    ) -> ModelView:
        """The next view, which continues ``winner``."""
        previous = self._highest_anchor(winner, reports)
        history = (*winner.history, number)
        entries = [*closed.base, *closed.queue]
        material = frozenset(entry.txid for entry in entries)
        seen = any(
            report.view.number == previous.number and report.installed and not report.is_learner
            for report in reports.values()
        )
        under = () if seen else previous.under
        configured = self.configured_weights(closed.base, history)[1]
        if not self._is_quorate(previous, under, configured, reports):
            anchor = ModelAnchor(
                previous.number, previous.births, previous.electorate, under, previous.known, previous.doomed
            )
            if Missing.NO_ANCHOR in self.missing:
                anchor = ModelAnchor(
                    previous.number, previous.births, previous.electorate, under, frozenset(), frozenset()
                )
            return ModelView(number, members, False, anchor, history, material, previous.number)
        electorate = configured
        if Missing.ELECT_NOW not in self.missing and not self.is_quorum(configured, members):
            electorate = previous.electorate
        anchor = ModelAnchor(
            number,
            {master: reports[master].birth for master in members},
            electorate,
            tuple(dict.fromkeys((previous.electorate, *under))),
            frozenset(entry.txid for entry in entries if entry.transaction.kind is TransactionKind.SYNCHRONOUS),
            self._doomed(entries, previous, reports, is_late),
        )
        return ModelView(number, members, True, anchor, history, material, previous.number)

    def _highest_anchor(self, winner: ModelView, reports: dict[int, MasterReport]) -> ModelAnchor:
        anchors = [report.view.anchor for report in reports.values() if report.view.anchor is not None]
        if Missing.WINNERS_ANCHOR in self.missing and winner.anchor is not None:
            return winner.anchor
        return max(anchors, key=lambda anchor: anchor.number)

    def _is_quorate(
        self,
        previous: ModelAnchor,
        under: tuple[Weights, ...],
        configured: Weights,
        reports: dict[int, MasterReport],
    ) -> bool:
        """S4: of those who report, the births that count are a majority, jointly in all electorates that matter."""
        counted = [master for master, report in reports.items() if report.has_voted or Missing.FRESH in self.missing]
        if Missing.ANY_VIEW in self.missing:
            return True
        if Missing.ELECT_NOW in self.missing:
            return is_majority(configured, counted)
        electorates = (previous.electorate,) if Missing.NOT_JOINTLY in self.missing else (previous.electorate, *under)
        return all(self.is_quorum(electorate, counted) for electorate in electorates)

    def _doomed(
        self,
        entries: list[ModelEntry],
        previous: ModelAnchor,
        reports: dict[int, MasterReport],
        is_late: Callable[[str], bool],
    ) -> frozenset[str]:
        """S8, S9: what no quorum can have committed is doomed when it is late; what the anchor knew stays as it was."""
        decided = {
            txid
            for entry in entries
            if entry.transaction.kind is TransactionKind.DECISION
            for txid in entry.transaction.names
        }
        doomed = set[str]()
        for entry in entries:
            txid = entry.txid
            if entry.transaction.kind is not TransactionKind.SYNCHRONOUS:
                continue
            if txid in previous.doomed and (txid in previous.known and Missing.REDOOM not in self.missing):
                doomed.add(txid)
                continue
            if txid in decided and txid not in previous.doomed:
                continue
            if txid in previous.known and Missing.REDOOM not in self.missing:
                continue
            if is_late(txid) and txid not in decided and not self._may_be_held(txid, previous, reports):
                doomed.add(txid)
        return frozenset(doomed)

    def _may_be_held(self, txid: str, previous: ModelAnchor, reports: dict[int, MasterReport]) -> bool:
        """Whether a quorum of the anchor's view may hold a transaction: all its members but those that report without
        it."""

        def lacks(master: int) -> bool:
            report = reports.get(master)
            if report is None:
                return Missing.ABSENT in self.missing
            known = report.birth == previous.births[master] or Missing.FRESH in self.missing
            return known and txid not in report.ids

        return self.is_quorum(previous.electorate, [each for each in previous.births if not lacks(each)])
