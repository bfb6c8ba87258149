"""A view change as its coordinator drives it. The coordinator is also a member like any other.

:class:`~txlog.protocol.views.view_change.ViewChange` holds its additional state.
"""

from __future__ import annotations

from array import array
from typing import Final

from txlog.model.hashes import HASH_BYTES
from txlog.model.ids import Origin
from txlog.model.view import NO_VIEW, Member, Number, View
from txlog.protocol.log.log_index import LogIndex
from txlog.protocol.views.branch_selection import InsufficientReports, surviving_view
from txlog.protocol.views.next_view import compute_next_view, is_majority_change, summarize_report
from txlog.protocol.views.participant import ViewParticipant
from txlog.protocol.views.report import build_checkpoints
from txlog.protocol.views.view_change import ViewChange
from txlog.protocol.views.view_state import FOREVER_MS
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


class ViewCoordinator(ViewParticipant):
    """Begins a view change, closes the view when all have reported, distributes the result and installs it."""

    def _propose(self, view: View, wanted: list[Member], gone: list[Departure]) -> None:
        agreement = self.log_state
        assert agreement is not None
        epoch = max(view.epoch + 1, self.highest_seen[0])
        ballot = self.highest_seen[1] + 1 if self.highest_seen[0] == epoch else 1
        number = (epoch, ballot, self.settings.node)
        self.highest_seen = max(self.highest_seen, number)
        checkpoints = [*build_checkpoints(agreement), *self._checkpoints_of_joiners(wanted)]
        proposal = ProposeView(number, view.cluster_id, wanted, view.number, gone, checkpoints)
        self.change = change = ViewChange(proposal, wanted, self.failure_detector.now_ms)
        self._promise(number)
        self._own_report = self.build_report(proposal)
        change.record_report(self._own_report, self.failure_detector.now_ms)
        if not change.unreported:
            self._close_view(change)

    def _checkpoints_of_joiners(self, members: list[Member]) -> list[Checkpoint]:
        """The positions that joining masters report: one that has installed a snapshot has no other position."""
        assert self.log_state is not None
        history = self.log_state.log_index
        asked = [self._candidates.get(m.node) for m in members]
        places = {who.log_index: who.log_hash for who in asked if who is not None}
        return [
            Checkpoint(index, value)
            for index, value in sorted(places.items())
            if history.start <= index <= history.length and history.hash_at(index) == value
        ]

    def on_report(self, report: ViewReport) -> None:
        """A member has stopped its view and reports what it has persisted."""
        self.record_start(Origin(report.node, report.birth), report.start)
        self._last_views[report.node] = report.view.number if report.view is not None else NO_VIEW
        change = self.change
        if change is None or change.number != report.number or change.next_view is not None:
            return
        change.record_report(report, self.failure_detector.now_ms)
        if not change.unreported:
            self._close_view(change)

    def _close_view(self, change: ViewChange) -> None:
        agreement = self.log_state
        assert agreement is not None
        needs_word = not (self.majority_required or self._includes_all_configured(change.reports))
        unvouched = change.unconfirmed_departure() if needs_word else None
        if unvouched is not None:
            self._unconfirmed_proofs[unvouched] = self.failure_detector.now_ms
            self._abort(f"nobody here has heard {unvouched.node} as the process that is said to be down")
            return
        reports = [change.reports[m.node] for m in change.members]
        know = [r.node for r in reports if r.view is not None]
        latest = surviving_view((r.view, r.installed) for r in reports if r.view is not None)
        ordered = self._allowed_by_override(know, change.departures, latest, self.joint_configurations)
        installed = any(r.installed for r in reports if r.view == latest)
        grows = self._extends_forced_view(
            {Origin(r.node, r.birth) for r in reports}, change.departures, latest, installed
        )
        if self.majority_required and not self._is_majority(know) and not (ordered or grows):
            self._failed_members = change.members
            self._abort("those who know the log have no more than half of the weight")
            return
        try:
            weights = {m.node: m.weight for m in self.configured_members}
            closed = compute_next_view(
                change.number,
                change.members,
                change.departures,
                reports,
                agreement.log_index,
                weights,
                is_majority_change(reports, self.settings.majority),
                agreement.configurations,
            )
        except InsufficientReports as why:
            self._failed_members = change.members
            self._abort(str(why))
            return
        few = closed.majority and not all(one.has_majority(know) for one in closed.joint_configurations)
        grows = grows and latest is not None and closed.branches[0] == latest.number
        if few and not (
            grows or self._allowed_by_override(know, change.departures, latest, closed.joint_configurations)
        ):
            self._failed_members = change.members
            self._abort("those who know the log have no more than half of the weight, as it was or as it will be")
            return
        below = [
            r.node
            for r in reports
            if _shared_length(agreement.log_index, r, closed.truncate_to, closed.truncate_to) == BELOW_LOG_START
        ]
        if below:
            self._abort(f"{', '.join(below)} stands below what is kept of the log here and needs a snapshot first")
            return
        change.next_view = closed
        stamps = array("Q", closed.stamps).tobytes()
        outlines = [summarize_report(report) for report in reports]
        accept = AcceptView(
            closed.view, change.departures, closed.truncate_to, closed.spans, stamps, closed.waiting, outlines
        )
        if not self._may_resume_after_leaving(accept):
            self._abort(f"{self.settings.node} has left {self.left}; nobody here knows what followed")
            return
        self._pending_accept, self._accept_sender = accept, self.settings.node
        self._try_accept()

    def _on_accepted_here(self, number: Number) -> None:
        change = self.change
        if change is not None and change.number == number:
            self._send_accepts(change)
        else:
            super()._on_accepted_here(number)

    def _abort(self, why: str) -> None:
        self.blocked_reason = why
        self.change = None
        self._attempts += 1
        self._propose_after_ms = self.failure_detector.now_ms + self.settings.round_timeout_ms

    def _send_accepts(self, change: ViewChange) -> None:
        """Send each member the part of the base that it needs. This master has accepted: its log is the base now."""
        agreement, closed = self.log_state, change.next_view
        assert agreement is not None
        assert closed is not None
        history, base = agreement.log_index, closed.view.base_index
        outlines = [summarize_report(change.reports[m.node]) for m in change.members]
        for member in change.members:
            if member.node == self.settings.node:
                continue
            report = change.reports[member.node]
            cut = _shared_length(history, report, closed.truncate_to, base)
            spans = history.spans(cut, base)
            change.accepts[member.node] = AcceptView(
                closed.view, change.departures, cut, spans, b"", closed.waiting, outlines
            )
        change.record_accept(self.settings.node, self.failure_detector.now_ms)
        change.sent_ms = -FOREVER_MS
        self._install_if_accepted(change)

    def on_fetch_progress(self, missing: FetchProgress) -> None:
        """A member is still fetching; or the coordinator reports that it waits for one."""
        if self.change is not None and self.change.number == missing.number:
            self.change.record_progress(missing.node, missing.count, self.failure_detector.now_ms)
        elif missing.number == self.promised and not self.is_active:
            self._yield_to_coordinator()

    def on_accepted(self, accepted: ViewAcceptedReply) -> None:
        """A member has accepted, durably."""
        change = self.change
        if change is not None and change.number == accepted.number:
            change.record_accept(accepted.node, self.failure_detector.now_ms)
            self._install_if_accepted(change)

    def _install_if_accepted(self, change: ViewChange) -> None:
        if change.unaccepted or self.promised != change.number:
            return
        self.change = None
        self.blocked_reason = ""
        self.mark_installed()
        self.sends += [(m.node, InstallView(change.number)) for m in change.members if m.node != self.settings.node]

    def on_leaving(self, leaving: LeaveNotice) -> None:
        """The member is durably stopped and ends. A view change that waits for its answer begins again, without it."""
        super().on_leaving(leaving)
        change, known = self.change, self.departures.get(leaving.node)
        if change is not None and leaving.node in change.unaccepted and known is not None and known.why == "left":
            self._abort(f"{leaving.node} leaves")
            self._propose_after_ms = self.failure_detector.now_ms

    def on_refuse(self, peer: str, refuse: RejectView) -> None:
        """A member refuses; the next proposal takes its reason into account."""
        self.highest_seen = max(self.highest_seen, refuse.promise)
        change = self.change
        if change is None or change.number != refuse.number:
            return
        if refuse.why == "StaleProof" and self.departures.get(refuse.about) in change.departures:
            del self.departures[refuse.about]  # unless a proof about a later process has come meanwhile
        self._abort(f"{peer} refused {refuse.number}: {refuse.why}: {refuse.text}")
        if refuse.why == "HeardBothWays":
            self._failed_members = change.members
            # A member that this master cannot reach itself is missing. A master that reaches all should propose before
            # the next try, whose higher promise would block it.
            self._propose_after_ms = self.failure_detector.now_ms + self._proposal_timeout_ms

    def _timeout_text(self, change: ViewChange) -> str:
        waits = change.unreported or change.unaccepted
        return f"no answer from {', '.join(waits)} to {change.number}"

    def _resend(self, change: ViewChange, now_ms: int) -> None:
        change.sent_ms = now_ms
        if change.accepts:
            self.sends += [(node, change.accepts[node]) for node in change.unaccepted]
            waits = FetchProgress(change.number, self.settings.node, len(change.unaccepted))
            self.sends += [(node, waits) for node in sorted(change.accepted) if node != self.settings.node]
        elif change.next_view is None:
            self.sends += [(node, change.proposal) for node in change.unreported]
        else:  # who reported would begin again before this master has fetched what it lacks
            waits = FetchProgress(change.number, self.settings.node, change.missing_counts.get(self.settings.node, 1))
            self.sends += [(node, waits) for node in sorted(change.reports) if node != self.settings.node]


BELOW_LOG_START: Final = -1


def _shared_length(history: LogIndex, report: ViewReport, cut: int, base: int) -> int:
    """How much of a base the log of this report shares. The base is all of ``history`` now; the log was truncated after
    ``cut`` for it."""
    place = report.shared
    if place.index < history.start:
        above = history.start - place.index
        known = report.hashes[(above - 1) * HASH_BYTES : above * HASH_BYTES] == history.log_start_hash
        return history.start if known else BELOW_LOG_START
    if place.index > base or (place.index and history.hash_at(place.index) != place.hash):
        return min(place.index, cut)
    index = place.index
    for at in range(min(report.log.index, base) - place.index):
        if report.hashes[at * HASH_BYTES : (at + 1) * HASH_BYTES] != history.hash_at(index + 1):
            break
        index += 1
    return index
