"""A view change as its coordinator drives it. The coordinator is also a member like any other.

:class:`~txlog.protocol.views.view_change.ViewChange` holds its additional state.
"""

from __future__ import annotations

from array import array
from typing import Final

from txlog.model.hashes import HASH_BYTES
from txlog.model.ids import Origin, Txid
from txlog.model.view import NO_VIEW, Member, View
from txlog.protocol.log.log_index import LogIndex
from txlog.protocol.log.log_state import LogState
from txlog.protocol.views.branch_selection import InsufficientReports, surviving_view
from txlog.protocol.views.next_view import compute_next_view, is_majority_change, summarize_report
from txlog.protocol.views.participant import ViewParticipant
from txlog.protocol.views.quorate_view import OwnSynchronous
from txlog.protocol.views.report import build_checkpoints, synchronous_references
from txlog.protocol.views.view_change import ViewChange, ViewChangeEvent, ViewChangePhase
from txlog.protocol.views.view_state import FOREVER_MS, ViewState
from txlog.wire.messages import (
    AcceptView,
    Checkpoint,
    Departure,
    FetchProgress,
    InstallView,
    LeaveNotice,
    Message,
    ProposeView,
    RejectView,
    ViewAcceptedReply,
    ViewReport,
)
from txlog.wire.protocol_level import PROTOCOL_LEVEL


class ViewCoordinator:
    """Begins a view change, closes the view when all have reported, distributes the result and installs it."""

    def __init__(self, views: ViewState, participant: ViewParticipant) -> None:
        self.views = views
        self.participant = participant

    def propose(self, view: View, wanted: list[Member], gone: list[Departure]) -> None:
        agreement = self.views.log_state
        assert agreement is not None
        epoch = max(view.epoch + 1, self.views.highest_seen[0])
        ballot = self.views.highest_seen[1] + 1 if self.views.highest_seen[0] == epoch else 1
        number = (epoch, ballot, self.views.local.node)
        self.views.highest_seen = max(self.views.highest_seen, number)
        checkpoints = [*build_checkpoints(agreement), *self._checkpoints_of_joiners(wanted)]
        proposal = ProposeView(number, view.cluster_id, wanted, view.number, gone, checkpoints, PROTOCOL_LEVEL)
        self.views.change = change = ViewChange(proposal, wanted, self.views.failure_detector.now_ms)
        self.views.promise(number)
        report = self.participant.own_report = self.participant.build_report(proposal)
        change.record_report(report, self.views.failure_detector.now_ms)
        if not change.unreported:
            self._close_view(change)

    def _checkpoints_of_joiners(self, members: list[Member]) -> list[Checkpoint]:
        """The positions that joining masters report: one that has installed a snapshot has no other position."""
        assert self.views.log_state is not None
        history = self.views.log_state.log_index
        asked = [self.views.hellos.get(m.node) for m in members]
        places = {who.log_index: who.log_hash for who in asked if who is not None}
        return [
            Checkpoint(index, value)
            for index, value in sorted(places.items())
            if history.start <= index <= history.length and history.hash_at(index) == value
        ]

    def on_report(self, report: ViewReport) -> None:
        """A member has stopped its view and reports what it has persisted."""
        self.views.record_start(Origin(report.node, report.birth), report.start)
        self.views.last_views[report.node] = report.view.number if report.view is not None else NO_VIEW
        change = self.views.change
        if change is None or change.number != report.number or change.phase is not ViewChangePhase.COLLECTING:
            return
        change.record_report(report, self.views.failure_detector.now_ms)
        if not change.unreported:
            self._close_view(change)

    def _close_view(self, change: ViewChange) -> None:
        agreement = self.views.log_state
        assert agreement is not None
        needs_word = not (self.views.majority_required or self.views.includes_all_configured(change.reports))
        unvouched = change.unconfirmed_departure() if needs_word else None
        if unvouched is not None:
            self.views.unconfirmed_proofs[unvouched] = self.views.failure_detector.now_ms
            self.abort(f"no member here received from {unvouched.node} as the process that is reported down")
            return
        reports = [change.reports[m.node] for m in change.members]
        know = [r.node for r in reports if r.view is not None]
        latest = surviving_view((r.view, r.installed) for r in reports if r.view is not None)
        ordered = self.views.allowed_by_override(know, change.departures, latest, self.views.joint_configurations)
        installed = any(r.installed for r in reports if r.view == latest)
        grows = self.views.extends_forced_view(
            {Origin(r.node, r.birth) for r in reports}, change.departures, latest, installed
        )
        if self.views.majority_required and not self.views.is_majority(know) and not (ordered or grows):
            self.views.failed_members = change.members
            self.abort("those who know the log have no more than half of the weight")
            return
        try:
            weights = {m.node: m.weight for m in self.views.configured_members}
            closed = compute_next_view(
                change.number,
                change.members,
                change.departures,
                reports,
                agreement.log_index,
                weights,
                is_majority_change(reports, self.views.local.settings.majority),
                agreement.configurations,
                self._own_synchronous(agreement),
            )
        except InsufficientReports as why:
            self.views.failed_members = change.members
            self.abort(str(why))
            return
        few = closed.majority and not all(one.has_majority(know) for one in closed.joint_configurations)
        grows = grows and latest is not None and closed.branches[0] == latest.number
        if few and not (
            grows or self.views.allowed_by_override(know, change.departures, latest, closed.joint_configurations)
        ):
            self.views.failed_members = change.members
            self.abort("those who know the log have no more than half of the weight, as it was or as it will be")
            return
        below = [
            r.node
            for r in reports
            if _shared_length(agreement.log_index, r, closed.truncate_to, closed.truncate_to) == BELOW_LOG_START
        ]
        if below:
            self.abort(f"{', '.join(below)} stands below what is kept of the log here and needs a snapshot first")
            return
        change.next_view = closed
        change.on_event(ViewChangeEvent.ALL_REPORTED)
        stamps = array("Q", closed.stamps).tobytes()
        outlines = [summarize_report(report) for report in reports]
        accept = AcceptView(
            closed.view, change.departures, closed.truncate_to, closed.spans, stamps, closed.waiting, outlines
        )
        if not self.participant.may_resume_after_leaving(accept):
            self.abort(f"{self.views.local.node} has left {self.views.left}; no member here knows what followed")
            return
        self.views.pending_accept, self.views.accept_sender = accept, self.views.local.node
        self.try_accept()

    def _own_synchronous(self, agreement: LogState) -> OwnSynchronous:
        references = {Txid(Origin(one.node, one.birth), one.seq): one for one in synchronous_references(agreement, 0)}
        settings = self.views.local.settings
        may_begin = settings.synchronous and "None" not in (settings.strategy, agreement.view.strategy)
        return OwnSynchronous(agreement.synchronous, references, may_begin, self.views.given_up_votes)

    def try_accept(self) -> None:
        """Accept the received view, if all of it is persisted here: as its coordinator send it to the members, else
        send the acceptance to the coordinator."""
        number, change = self.participant.try_accept(), self.views.change
        if number is None:
            return
        if change is not None and change.number == number:
            self._send_accepts(change)
        else:
            self.participant.send_acceptance(number)

    def abort(self, why: str) -> None:
        self.views.blocked_reason = why
        self.views.end_change(ViewChangeEvent.FAILED)
        self.views.attempts += 1
        self.views.propose_after_ms = self.views.failure_detector.now_ms + self.views.local.settings.round_timeout_ms

    def _send_accepts(self, change: ViewChange) -> None:
        """Send each member the part of the base that it needs. This master has accepted: its log is the base now."""
        agreement, closed = self.views.log_state, change.next_view
        assert agreement is not None
        assert closed is not None
        history, base = agreement.log_index, closed.view.base_index
        outlines = [summarize_report(change.reports[m.node]) for m in change.members]
        for member in change.members:
            if member.node == self.views.local.node:
                continue
            report = change.reports[member.node]
            cut = _shared_length(history, report, closed.truncate_to, base)
            spans = history.spans(cut, base)
            change.accepts[member.node] = AcceptView(
                closed.view, change.departures, cut, spans, b"", closed.waiting, outlines
            )
        change.on_event(ViewChangeEvent.ACCEPTED_HERE)
        change.record_accept(self.views.local.node, self.views.failure_detector.now_ms)
        change.sent_ms = -FOREVER_MS
        self._install_if_accepted(change)

    def on_fetch_progress(self, missing: FetchProgress) -> None:
        """A member is still fetching; or the coordinator reports that it waits for one."""
        if self.views.change is not None and self.views.change.number == missing.number:
            self.views.change.record_progress(missing.node, missing.count, self.views.failure_detector.now_ms)
        elif missing.number == self.views.promised and not self.views.is_active:
            self.participant.yield_to_coordinator()

    def on_accepted(self, accepted: ViewAcceptedReply) -> None:
        """A member has accepted, durably."""
        change = self.views.change
        if change is None or change.phase is not ViewChangePhase.ACCEPTING:
            return
        if change.number == accepted.number:
            change.record_accept(accepted.node, self.views.failure_detector.now_ms)
            self._install_if_accepted(change)

    def _install_if_accepted(self, change: ViewChange) -> None:
        if change.unaccepted or self.views.promised != change.number:
            return
        self.views.end_change(ViewChangeEvent.ALL_ACCEPTED)
        self.views.blocked_reason = ""
        self.views.mark_installed()
        self._send_all([m.node for m in change.members], InstallView(change.number))

    def on_leaving(self, leaving: LeaveNotice) -> None:
        """The member is durably stopped and ends. A view change that waits for its answer begins again, without it."""
        self.views.on_leaving(leaving)
        change, known = self.views.change, self.views.departures.get(leaving.node)
        if change is not None and leaving.node in change.unaccepted and known is not None and known.why == "left":
            self.abort(f"{leaving.node} leaves")
            self.views.propose_after_ms = self.views.failure_detector.now_ms

    def on_refuse(self, peer: str, refuse: RejectView) -> None:
        """A member refuses; the next proposal takes its reason into account."""
        self.views.highest_seen = max(self.views.highest_seen, refuse.promise)
        change = self.views.change
        if change is None or change.number != refuse.number:
            return
        if refuse.why == "StaleProof" and self.views.departures.get(refuse.about) in change.departures:
            del self.views.departures[refuse.about]  # unless a proof about a later process has come meanwhile
        self.abort(f"{peer} refused {refuse.number}: {refuse.why}: {refuse.text}")
        if refuse.why == "HeardBothWays":
            self.views.failed_members = change.members
            # A member that this master cannot reach itself is missing. A master that reaches all should propose before
            # the next try, whose higher promise would block it.
            self.views.propose_after_ms = self.views.failure_detector.now_ms + self.views.proposal_timeout_ms

    def timeout_text(self, change: ViewChange) -> str:
        """Which members the change waits for, in words."""
        waits = change.unreported or change.unaccepted
        return f"no answer from {', '.join(waits)} to {change.number}"

    def resend(self, change: ViewChange, now_ms: int) -> None:
        """Repeat the step that the members have not answered. The others learn that this master still waits: else they
        would begin a change of their own."""
        change.sent_ms = now_ms
        match change.phase:
            case ViewChangePhase.COLLECTING:
                self._send_all(change.unreported, change.proposal)
            case ViewChangePhase.FETCHING:
                count = change.missing_counts.get(self.views.local.node, 1)
                self._send_waiting(change, sorted(change.reports), count)
            case ViewChangePhase.ACCEPTING:
                for node in change.unaccepted:
                    self.views.outbox.send_routed(node, change.accepts[node])
                self._send_waiting(change, sorted(change.accepted), len(change.unaccepted))
            case ViewChangePhase.INSTALLED | ViewChangePhase.ENDED:
                pass

    def _send_waiting(self, change: ViewChange, nodes: list[str], count: int) -> None:
        self._send_all(nodes, FetchProgress(change.number, self.views.local.node, count))

    def _send_all(self, nodes: list[str], message: Message) -> None:
        for node in nodes:
            if node != self.views.local.node:
                self.views.outbox.send_routed(node, message)


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
