"""A change of views as its coordinator drives it, a member like any other.

:class:`~txlog.protocol.changes.Change` is what it keeps besides.
"""

from __future__ import annotations

from array import array
from typing import Final

from txlog.model.hashes import HASH_BYTES
from txlog.model.ids import Origin
from txlog.model.view import NO_VIEW, Member, Number, View
from txlog.protocol.branches import Unclosed, goes_on
from txlog.protocol.changes import Change
from txlog.protocol.closing import close, is_majority_change, outline
from txlog.protocol.history import History
from txlog.protocol.membership import Membership
from txlog.protocol.reports import checkpoints_of
from txlog.protocol.standing import NEVER
from txlog.wire.messages import (
    AcceptView,
    Checkpoint,
    Departure,
    FetchProgress,
    InstallView,
    LeaveNotice,
    ProposeView,
    RejectView,
    ViewAcceptedReply,
    ViewReport,
)


class Coordinating(Membership):
    """Begins a change, closes the view when all have reported, spreads what was closed, installs it."""

    def _begin(self, view: View, wanted: list[Member], gone: list[Departure]) -> None:
        agreement = self.agreement
        assert agreement is not None
        epoch = max(view.epoch + 1, self.highest[0])
        ballot = self.highest[1] + 1 if self.highest[0] == epoch else 1
        number = (epoch, ballot, self.settings.node)
        self.highest = max(self.highest, number)
        checkpoints = [*checkpoints_of(agreement), *self._places_of(wanted)]
        proposal = ProposeView(number, view.cluster_id, wanted, view.number, gone, checkpoints)
        self.change = change = Change(proposal, wanted, self.around.now_ms)
        self._promise(number)
        self._reported = self._report(proposal)
        change.report(self._reported, self.around.now_ms)
        if not change.unreported:
            self._close(change)

    def _places_of(self, members: list[Member]) -> list[Checkpoint]:
        """Where those from outside say that they are: one that has taken over a snapshot has no other place."""
        assert self.agreement is not None
        history = self.agreement.history
        asked = [self._candidates.get(m.node) for m in members]
        places = {who.log_index: who.log_hash for who in asked if who is not None}
        return [
            Checkpoint(index, value)
            for index, value in sorted(places.items())
            if history.start <= index <= history.length and history.hash_at(index) == value
        ]

    def on_report(self, report: ViewReport) -> None:
        """A member has stopped and tells what it holds."""
        self.heard_start(Origin(report.node, report.birth), report.start)
        self._seen[report.node] = report.view.number if report.view is not None else NO_VIEW
        change = self.change
        if change is None or change.number != report.number or change.closed is not None:
            return
        change.report(report, self.around.now_ms)
        if not change.unreported:
            self._close(change)

    def _close(self, change: Change) -> None:
        agreement = self.agreement
        assert agreement is not None
        needs_word = not (self.majority or self._all_here(change.reports))
        unvouched = change.unvouched() if needs_word else None
        if unvouched is not None:
            self._unvouched[unvouched] = self.around.now_ms
            self._give_up(f"nobody here has heard {unvouched.node} as the process that is said to be down")
            return
        reports = [change.reports[m.node] for m in change.members]
        know = [r.node for r in reports if r.view is not None]
        latest = goes_on((r.view, r.installed) for r in reports if r.view is not None)
        ordered = self._by_order(know, change.gone, latest, self.jointly)
        installed = any(r.installed for r in reports if r.view == latest)
        grows = self._only_grows({Origin(r.node, r.birth) for r in reports}, change.gone, latest, installed)
        if self.majority and not self._is_majority(know) and not (ordered or grows):
            self._failed_with = change.members
            self._give_up("those who know the log have no more than half of the weight")
            return
        try:
            weights = {m.node: m.weight for m in self.configured}
            closed = close(
                change.number,
                change.members,
                change.gone,
                reports,
                agreement.history,
                weights,
                is_majority_change(reports, self.settings.majority),
                agreement.configurations,
            )
        except Unclosed as why:
            self._failed_with = change.members
            self._give_up(str(why))
            return
        few = closed.majority and not all(one.has_majority(know) for one in closed.jointly)
        grows = grows and latest is not None and closed.branches[0] == latest.number
        if few and not (grows or self._by_order(know, change.gone, latest, closed.jointly)):
            self._failed_with = change.members
            self._give_up("those who know the log have no more than half of the weight, as it was or as it will be")
            return
        below = [r.node for r in reports if _shared_with(agreement.history, r, closed.cut, closed.cut) == BELOW]
        if below:
            self._give_up(f"{', '.join(below)} stands below what is kept of the log here and needs a snapshot first")
            return
        change.closed = closed
        stamps = array("Q", closed.stamps).tobytes()
        outlines = [outline(report) for report in reports]
        accept = AcceptView(closed.view, change.gone, closed.cut, closed.spans, stamps, closed.waiting, outlines)
        if not self._may_return(accept):
            self._give_up(f"{self.settings.node} has left {self.left}; nobody here knows what followed")
            return
        self._incoming, self._from = accept, self.settings.node
        self._take()

    def _has_accepted(self, number: Number) -> None:
        change = self.change
        if change is not None and change.number == number:
            self._spread(change)
        else:
            super()._has_accepted(number)

    def _give_up(self, why: str) -> None:
        self.holding = why
        self.change = None
        self._tries += 1
        self._wish_ms = self.around.now_ms + self.settings.round_timeout_ms

    def _spread(self, change: Change) -> None:
        """This master has accepted: its log is the base now. What each member needs of it."""
        agreement, closed = self.agreement, change.closed
        assert agreement is not None
        assert closed is not None
        history, base = agreement.history, closed.view.base_index
        outlines = [outline(change.reports[m.node]) for m in change.members]
        for member in change.members:
            if member.node == self.settings.node:
                continue
            report = change.reports[member.node]
            cut = _shared_with(history, report, closed.cut, base)
            spans = history.spans(cut, base)
            change.accepts[member.node] = AcceptView(
                closed.view, change.gone, cut, spans, b"", closed.waiting, outlines
            )
        change.accept(self.settings.node, self.around.now_ms)
        change.sent_ms = -NEVER
        self._finish(change)

    def on_missing(self, missing: FetchProgress) -> None:
        """A member is still fetching; or the coordinator says that it waits for one."""
        if self.change is not None and self.change.number == missing.number:
            self.change.misses(missing.node, missing.count, self.around.now_ms)
        elif missing.number == self.promised and not self.at_work:
            self._another_leads()

    def on_accepted(self, accepted: ViewAcceptedReply) -> None:
        """A member has accepted, durably."""
        change = self.change
        if change is not None and change.number == accepted.number:
            change.accept(accepted.node, self.around.now_ms)
            self._finish(change)

    def _finish(self, change: Change) -> None:
        if change.unaccepted or self.promised != change.number:
            return
        self.change = None
        self.holding = ""
        self.learn_installed()
        self.sends += [(m.node, InstallView(change.number)) for m in change.members if m.node != self.settings.node]

    def on_leaving(self, leaving: LeaveNotice) -> None:
        """It is durably stopped and ends; what waits for its answer begins anew, without it."""
        super().on_leaving(leaving)
        change, known = self.change, self.departures.get(leaving.node)
        if change is not None and leaving.node in change.unaccepted and known is not None and known.why == "left":
            self._give_up(f"{leaving.node} leaves")
            self._wish_ms = self.around.now_ms

    def on_refuse(self, peer: str, refuse: RejectView) -> None:
        """A member does not go along; the next proposal will know why."""
        self.highest = max(self.highest, refuse.promise)
        change = self.change
        if change is None or change.number != refuse.number:
            return
        if refuse.why == "StaleProof" and self.departures.get(refuse.about) in change.gone:
            del self.departures[refuse.about]  # unless a proof about a later process has come meanwhile
        self._give_up(f"{peer} refused {refuse.number}: {refuse.why}: {refuse.text}")
        if refuse.why == "HeardBothWays":
            self._failed_with = change.members
            # Somebody whom this master cannot ask itself is missing: one who hears everybody should come before the
            # next try, whose higher promise would stand in its way.
            self._wish_ms = self.around.now_ms + self._patience_ms

    def _slow(self, change: Change) -> str:
        waits = change.unreported or change.unaccepted
        return f"no answer from {', '.join(waits)} to {change.number}"

    def _repeat(self, change: Change, now_ms: int) -> None:
        change.sent_ms = now_ms
        if change.accepts:
            self.sends += [(node, change.accepts[node]) for node in change.unaccepted]
            waits = FetchProgress(change.number, self.settings.node, len(change.unaccepted))
            self.sends += [(node, waits) for node in sorted(change.accepted) if node != self.settings.node]
        elif change.closed is None:
            self.sends += [(node, change.proposal) for node in change.unreported]
        else:  # who reported would begin again before this master has fetched what it lacks
            waits = FetchProgress(change.number, self.settings.node, change.missing.get(self.settings.node, 1))
            self.sends += [(node, waits) for node in sorted(change.reports) if node != self.settings.node]


BELOW: Final = -1


def _shared_with(history: History, report: ViewReport, cut: int, base: int) -> int:
    """How much of a base, which is all of ``history`` now and was cut behind ``cut``, the log of this report shares."""
    place = report.shared
    if place.index < history.start:
        above = history.start - place.index
        known = report.hashes[(above - 1) * HASH_BYTES : above * HASH_BYTES] == history.foot_hash
        return history.start if known else BELOW
    if place.index > base or (place.index and history.hash_at(place.index) != place.hash):
        return min(place.index, cut)
    index = place.index
    for at in range(min(report.log.index, base) - place.index):
        if report.hashes[at * HASH_BYTES : (at + 1) * HASH_BYTES] != history.hash_at(index + 1):
            break
        index += 1
    return index
