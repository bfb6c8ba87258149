"""A view change as every member of it takes part in it (protocol section 3), the coordinator included::

Propose ── promise (durable), the old view is stopped ──> Report
Accept  ── every payload fetched, the closed base taken over (durable) ──> Accepted
Install, or a post in the new view ── its base is stable, work continues
"""

from __future__ import annotations

from array import array
from typing import Final

from txlog.model.errors import PeerFault
from txlog.model.ids import Origin
from txlog.model.view import NO_VIEW, Number
from txlog.protocol.views.candidate_checks import can_read_anchor, can_read_lineage
from txlog.protocol.views.next_view import highest_view
from txlog.protocol.views.report import (
    last_shared,
    non_final_transactions,
    parked_transactions,
    pending_configuration_changes,
    synchronous_references,
)
from txlog.protocol.views.view_change import ViewChangeEvent, departure_applies, has_override
from txlog.protocol.views.view_state import FOREVER_MS, ViewState
from txlog.wire.messages import (
    AcceptView,
    Checkpoint,
    FetchProgress,
    ProposeView,
    RejectView,
    ViewAcceptedReply,
    ViewReport,
)
from txlog.wire.protocol_level import PROTOCOL_LEVEL

UNREACHABLE_ROUNDS: Final = 2
"""Round time-outs from the first refusal for a member that does not receive from the coordinator. By then it receives
from it, if it can."""
REFUSAL_MEMORY_ROUNDS: Final = 20
"""Round time-outs without another such refusal, after which the next one is the first."""


class ViewParticipant:
    """Promises and accepts views; a refusal names the obstacle. ``own_report``: the report to the latest promise."""

    def __init__(self, views: ViewState) -> None:
        self.views = views
        self.own_report: ViewReport | None = None
        self._fetch_progress_sent_ms = -FOREVER_MS
        self._unreachable_refusals: dict[tuple[str, str], tuple[int, int]] = {}
        """When proposals were refused, first and last, by their coordinator and the unreachable member that they
        excluded."""

    def on_propose(self, peer: str, proposal: ProposeView) -> None:
        """Stop the view and report, or refuse with a reason."""
        self.views.highest_seen = max(self.views.highest_seen, proposal.number)
        mine = next((m for m in proposal.members if m.node == self.views.local.node), None)
        if mine is None or mine.birth != self.views.local.birth:
            raise PeerFault(peer, "UnknownBirth", f"it proposes a view with another birth of {self.views.local.node}")
        if self.views.accepted is not None and proposal.cluster != self.views.accepted.cluster_id:
            raise PeerFault(peer, "OtherCluster", f"its cluster is {proposal.cluster.hex()}")
        if proposal.number < self.views.promised or proposal.number <= self.views.number:
            self._refuse(
                peer, proposal.number, "Promised", "", f"{self.views.local.node} has promised {self.views.promised}"
            )
            return
        if proposal.number > self.views.promised:
            wrong = self._rejection_reason(proposal)
            if wrong is not None:
                self._refuse(peer, proposal.number, *wrong)
                return
            if self.views.change is not None and self.views.change.number < proposal.number:
                self.views.end_change(ViewChangeEvent.SUPERSEDED)
            self.views.promise(proposal.number)
            self.own_report = self.build_report(proposal)
            self.views.attempts += 1
        report = self.own_report
        if report is None or report.number != proposal.number:  # promised before this process started
            report = self.own_report = self.build_report(proposal)
        self.yield_to_coordinator()
        self.views.outbox.send_routed(peer, report)

    def yield_to_coordinator(self) -> None:
        """Give the coordinator time before this master proposes itself."""
        if self.views.change is None:
            self.views.propose_after_ms = self.views.failure_detector.now_ms + self.views.proposal_timeout_ms

    def _rejection_reason(self, proposal: ProposeView) -> tuple[str, str, str] | None:
        """Why this master refuses a proposal that excludes members (protocol section 3): a reason word, the member
        concerned, a text."""
        if self.views.accepted is None:
            return None
        if not can_read_lineage(self.views.accepted, proposal.level):
            return "OlderProgram", "", "the coordinator's program cannot read views with forgotten ancestors"
        if not can_read_anchor(self.views.accepted, proposal.level):
            return "OlderProgram", "", "the coordinator's program cannot read anchors"
        stay = {(m.node, m.birth) for m in proposal.members}
        nodes = {m.node for m in proposal.members}
        gone = {(one.node, one.birth): one for one in proposal.gone}
        for member in self.views.accepted.members:
            if (member.node, member.birth) in stay:
                continue
            one = gone.get((member.node, member.birth))
            heard = self.views.failure_detector.is_bidirectional(member.node) and not self.views.is_identity_lost(
                member.origin
            )
            heard = heard and not self._is_removed(member.node)
            if one is None:
                heard = heard and member.node not in nodes  # else its new incarnation answers
                if (
                    heard
                    and not self._rejoins_newer_view(proposal)
                    and not self._unreachable_from_coordinator(member.node, proposal)
                ):
                    return "HeardBothWays", member.node, f"{member.node} answers this master"
                if proposal.view != self.views.number:
                    continue  # it is not in the coordinator's view
                return "LeftOut", member.node, f"{member.node} is left out without a reason"
            if one.why == "removed":
                if proposal.view == self.views.number and self._is_still_configured(member.node):
                    return "NotRemoved", member.node, f"{member.node} is a master of the cluster, as far as known here"
                continue
            start = self.views.last_starts.get(member.origin, 0)
            if not departure_applies(one, member, start):
                return (
                    "StaleProof",
                    member.node,
                    f"{member.node} start {start} was seen, {one.start} is reported gone",
                )
            if heard and one.why in ("silent", "ordered"):
                return "HeardBothWays", member.node, f"{member.node} answers this master"
        there = [m.node for m in proposal.members]
        few = self.views.majority_required and not self.views.is_majority(there)
        if few and proposal.view != self.views.number:
            few = not has_override(proposal.gone)  # whom it names is no matter of the view here; the coordinator counts
        if few and not self.views.allowed_by_override(
            there, proposal.gone, self.views.accepted, self.views.joint_configurations
        ):
            return "NoMajority", "", "these members have no more than half of the weight"
        return None

    def _rejoins_newer_view(self, proposal: ProposeView) -> bool:
        """This master rejoins through a view that descends from its own. That view's coordinator adds the former
        members of this master's view afterwards, as they become reachable. At the end of a chain of masters that is
        this one alone."""
        return self.views.newer_view is not None and proposal.view >= self.views.newer_view.number

    def _unreachable_from_coordinator(self, node: str, proposal: ProposeView) -> bool:
        """The coordinator of another branch's view has not been reachable from that member for a while, as far as this
        master knows. A coordinator adds the members that it reaches, and they add the others afterwards. Otherwise the
        halves of a chain of masters would never rejoin. Directly after a heal it is only a matter of time."""
        assert self.views.accepted is not None
        coordinator, hears = proposal.number[2], self.views.failure_detector.peers_heard_by(node)
        went = (
            coordinator in self.views.other_branches
            or not self.views.installed
            or self.views.accepted.member(coordinator) is None
        )
        elsewhere = not self.views.accepted.is_or_descends_from(proposal.view) and went
        if not elsewhere or hears is None or coordinator in hears:
            return False
        now_ms, round_ms = self.views.failure_detector.now_ms, self.views.local.settings.round_timeout_ms
        first_ms, last_ms = self._unreachable_refusals.get((coordinator, node), (now_ms, now_ms))
        if now_ms - last_ms > REFUSAL_MEMORY_ROUNDS * round_ms:
            first_ms = now_ms
        self._unreachable_refusals[coordinator, node] = first_ms, now_ms
        return now_ms - first_ms >= UNREACHABLE_ROUNDS * round_ms

    def _is_removed(self, node: str) -> bool:
        """Whether the node is no master at the end of this master's log. It ends as soon as all receive from it."""
        return self.views.log_state is not None and node in self.views.log_state.configurations.latest.removed

    def _is_still_configured(self, node: str) -> bool:
        """Whether the node is a master at the end of this master's log."""
        agreement = self.views.log_state
        return agreement is None or agreement.configurations.latest.master(node) is not None

    def _refuse(self, peer: str, number: Number, why: str, about: str, text: str) -> None:
        self.views.outbox.send_routed(peer, RejectView(number, self.views.promised, why, about, text))

    def build_report(self, proposal: ProposeView) -> ViewReport:
        """The report as one snapshot; it is durable before it leaves."""
        number, agreement = proposal.number, self.views.log_state
        if agreement is None:  # a learner, or one whose founding view was never at work here
            empty = Checkpoint(0, b"")
            me, prefers, view = self.views.local.node, self.views.local.settings.strategy, self.views.accepted
            return ViewReport(
                number,
                me,
                self.views.local.birth,
                self.views.local.start,
                view,
                False,
                0,
                empty,
                empty,
                [],
                b"",
                0,
                [],
                [],
                [],
                prefers,
                level=PROTOCOL_LEVEL,
            )
        history = agreement.log_index
        shared = last_shared(agreement, proposal.checkpoints)
        members = self.views.accepted.members if self.views.accepted is not None else []
        heard = [
            (m.node, m.birth, self.views.confirmed_starts[m.origin])
            for m in members
            if m.origin in self.views.confirmed_starts
        ]
        return ViewReport(
            number,
            self.views.local.node,
            self.views.local.birth,
            self.views.local.start,
            self.views.accepted,
            self.views.installed,
            agreement.stable,
            Checkpoint(history.length, history.hash),
            shared,
            history.spans(shared.index, history.length),
            history.hashes(shared.index, history.length),
            agreement.last_stamp,
            non_final_transactions(agreement),
            parked_transactions(agreement),
            heard,
            self.views.local.settings.strategy,
            pending_configuration_changes(agreement, shared.index),
            PROTOCOL_LEVEL,
            sorted(agreement.configurations.views_outside(agreement.view.is_or_descends_from)),
            synchronous_references(agreement, shared.index),
        )

    def on_accept(self, peer: str, accept: AcceptView) -> bool:
        """Receive the next view; True when it waits for :meth:`try_accept`."""
        number = accept.view.number
        self.views.highest_seen = max(self.views.highest_seen, number)
        if number == self.views.number:
            self.views.outbox.send_routed(
                peer, ViewAcceptedReply(number, self.views.local.node, self.views.local.birth)
            )
            return False
        if number != self.views.promised:
            self._refuse(peer, number, "Promised", "", f"{self.views.local.node} has promised {self.views.promised}")
            return False
        if not accept.view.has_member(self.views.origin):
            raise PeerFault(peer, "UnknownBirth", f"it sends a view without birth {self.views.local.birth:016x}")
        if not self.may_resume_after_leaving(accept):
            self._refuse(
                peer,
                number,
                "Left",
                "",
                f"{self.views.local.node} has left {self.views.left}; no member there continued",
            )
            return False
        if len(accept.stamps) != 8 * sum(span.count for span in accept.spans):
            raise PeerFault(peer, "Malformed", "a stamp is missing in the base")
        self.yield_to_coordinator()
        self.views.pending_accept, self.views.accept_sender = accept, peer
        return True

    def may_resume_after_leaving(self, accept: AcceptView) -> bool:
        """Rule 27: a master that left continues only with a member that knows what followed, and with all members of
        the view that it left. Members that lost their disk since take part with a new incarnation. An operator's
        override may name the missing ones instead."""
        if self.views.left == NO_VIEW or self.views.left != self.views.number:
            return True
        if highest_view(accept.summaries) > self.views.number or self.views.includes_all_configured(
            one.node for one in accept.summaries
        ):
            return True
        assert self.views.accepted is not None
        there = {(one.node, one.birth) for one in accept.summaries}
        there |= {(one.node, one.birth) for one in accept.gone if one.why == "ordered"}
        return all((m.node, m.birth) in there for m in self.views.accepted.members)

    def try_accept(self) -> Number | None:
        """Make the received view this master's latest if all of it is persisted here; its number when it is."""
        accept, agreement = self.views.pending_accept, self.views.log_state
        if accept is None or agreement is None:
            return None
        number = accept.view.number
        if number != self.views.promised:
            self.views.pending_accept = None
            return None
        lacks = self.views.needed.missing(accept, agreement)
        if lacks:
            self._send_fetch_progress(number, sum(span.count for span in lacks))
            return None
        self.views.pending_accept = None
        stamps = array("Q")
        stamps.frombytes(accept.stamps)
        sound = agreement.final_index <= accept.cut <= agreement.log_index.length
        if not sound or not agreement.accept_view(
            accept.view, accept.cut, accept.spans, stamps.tolist(), accept.waiting
        ):
            what = f"the base that came, cut behind {accept.cut}, is not the one that the view names"
            self._refuse(self.views.accept_sender, number, "OtherBase", "", what)
            return None
        self.views.accepted = accept.view
        self.views.installed = False
        if accept.view.is_quorate or accept.view.coordinator == self.views.local.node:
            self.views.given_up_votes = frozenset()
        self.views.newer_view = None
        self.views.other_branches.clear()
        self.views.backup_index = min(self.views.backup_index, accept.cut)
        self.views.branch_holders.clear()
        for known in (self.views.departures, self.views.overrides):
            for node in [node for node, one in known.items() if not accept.view.has_member(Origin(node, one.birth))]:
                del known[node]
        self.views.hellos.clear()
        self.views.confirmed_starts.clear()
        self.views.last_views.update((m.node, accept.view.number) for m in accept.view.members)
        self.views.failure_detector.on_view_accepted([m.node for m in accept.view.members])
        return number

    def send_acceptance(self, number: Number) -> None:
        """The view is durable here: send the acceptance to the coordinator."""
        local = self.views.local
        self.views.outbox.send_routed(self.views.accept_sender, ViewAcceptedReply(number, local.node, local.birth))

    def _send_fetch_progress(self, number: Number, count: int) -> None:
        now_ms = self.views.failure_detector.now_ms
        if self.views.change is not None and self.views.change.number == number:
            self.views.change.record_progress(self.views.local.node, count, now_ms)
        elif now_ms >= self._fetch_progress_sent_ms + self.views.local.settings.repeat_ms:
            self._fetch_progress_sent_ms = now_ms
            self.views.outbox.send_routed(self.views.accept_sender, FetchProgress(number, self.views.local.node, count))

    def on_install(self, number: Number) -> None:
        """Every member has accepted."""
        if number == self.views.number:
            self.views.mark_installed()
