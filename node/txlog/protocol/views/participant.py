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
from txlog.protocol.replication.backfill import Backfill
from txlog.protocol.views.next_view import highest_view
from txlog.protocol.views.report import (
    non_final_transactions,
    parked_transactions,
    pending_configuration_changes,
)
from txlog.protocol.views.view_change import departure_applies, has_override
from txlog.wire.messages import (
    AcceptView,
    Checkpoint,
    FetchProgress,
    ProposeView,
    RejectView,
    ViewAcceptedReply,
    ViewReport,
)

UNREACHABLE_ROUNDS: Final = 2
"""Round time-outs from the first refusal for a member that does not receive from the coordinator. By then it receives
from it, if it can."""
REFUSAL_MEMORY_ROUNDS: Final = 20
"""Round time-outs without another such refusal, after which the next one is the first."""


class ViewParticipant(Backfill):
    """Promises and accepts views; a refusal names the obstacle."""

    def on_propose(self, peer: str, proposal: ProposeView) -> None:
        """Stop the view and report, or refuse with a reason."""
        self.highest_seen = max(self.highest_seen, proposal.number)
        mine = next((m for m in proposal.members if m.node == self.settings.node), None)
        if mine is None or mine.birth != self.birth:
            raise PeerFault(peer, "UnknownBirth", f"it proposes a view with another birth of {self.settings.node}")
        if self.accepted is not None and proposal.cluster != self.accepted.cluster_id:
            raise PeerFault(peer, "OtherCluster", f"its cluster is {proposal.cluster.hex()}")
        if proposal.number < self.promised or proposal.number <= self.number:
            self._refuse(peer, proposal.number, "Promised", "", f"{self.settings.node} has promised {self.promised}")
            return
        if proposal.number > self.promised:
            wrong = self._rejection_reason(proposal)
            if wrong is not None:
                self._refuse(peer, proposal.number, *wrong)
                return
            if self.change is not None and self.change.number < proposal.number:
                self.change = None
            self._promise(proposal.number)
            self._own_report = self.build_report(proposal)
            self._attempts += 1
        report = self._own_report
        if report is None or report.number != proposal.number:  # promised before this process started
            report = self._own_report = self.build_report(proposal)
        self._yield_to_coordinator()
        self.sends.append((peer, report))

    def _yield_to_coordinator(self) -> None:
        """Give the coordinator time before this master proposes itself."""
        if self.change is None:
            self._propose_after_ms = self.failure_detector.now_ms + self._proposal_timeout_ms

    def _rejection_reason(self, proposal: ProposeView) -> tuple[str, str, str] | None:
        """Why this master refuses a proposal that excludes members (protocol section 3): a reason word, the member
        concerned, a text."""
        if self.accepted is None:
            return None
        stay = {(m.node, m.birth) for m in proposal.members}
        nodes = {m.node for m in proposal.members}
        gone = {(one.node, one.birth): one for one in proposal.gone}
        for member in self.accepted.members:
            if (member.node, member.birth) in stay:
                continue
            one = gone.get((member.node, member.birth))
            heard = self.failure_detector.is_bidirectional(member.node) and not self._is_identity_lost(member.origin)
            heard = heard and not self._is_removed(member.node)
            if one is None:
                heard = heard and member.node not in nodes  # else its new birth is heard
                if (
                    heard
                    and not self._rejoins_newer_view(proposal)
                    and not self._unreachable_from_coordinator(member.node, proposal)
                ):
                    return "HeardBothWays", member.node, f"{member.node} is heard here"
                if proposal.view != self.number:
                    continue  # it is not in the coordinator's view
                return "LeftOut", member.node, f"{member.node} is left out without a reason"
            if one.why == "removed":
                if proposal.view == self.number and self._is_still_configured(member.node):
                    return "NotRemoved", member.node, f"{member.node} is a master of the cluster, as far as known here"
                continue
            start = self._last_starts.get(member.origin, 0)
            if not departure_applies(one, member, start):
                return (
                    "StaleProof",
                    member.node,
                    f"{member.node} start {start} was heard, {one.start} is said to be gone",
                )
            if heard and one.why in ("silent", "ordered"):
                return "HeardBothWays", member.node, f"{member.node} is heard here"
        there = [m.node for m in proposal.members]
        few = self.majority_required and not self._is_majority(there)
        if few and proposal.view != self.number:
            few = not has_override(proposal.gone)  # whom it names is no matter of the view here; the coordinator counts
        if few and not self._allowed_by_override(there, proposal.gone, self.accepted, self.joint_configurations):
            return "NoMajority", "", "these members have no more than half of the weight"
        return None

    def _rejoins_newer_view(self, proposal: ProposeView) -> bool:
        """This master rejoins through a view that descends from its own. That view's coordinator adds the former
        members of this master's view afterwards, as they become reachable. At the end of a chain of masters that is
        this one alone."""
        return self.newer_view is not None and proposal.view >= self.newer_view.number

    def _unreachable_from_coordinator(self, node: str, proposal: ProposeView) -> bool:
        """The coordinator of another branch's view has not been reachable from that member for a while, as far as this
        master knows. A coordinator adds the members that it reaches, and they add the others afterwards. Otherwise the
        halves of a chain of masters would never rejoin. Directly after a heal it is only a matter of time."""
        assert self.accepted is not None
        coordinator, hears = proposal.number[2], self.failure_detector.peers_heard_by(node)
        went = coordinator in self.other_branches or not self.installed or self.accepted.member(coordinator) is None
        elsewhere = proposal.view not in self.accepted.lineage and went
        if not elsewhere or hears is None or coordinator in hears:
            return False
        now_ms, round_ms = self.failure_detector.now_ms, self.settings.round_timeout_ms
        first_ms, last_ms = self._unreachable_refusals.get((coordinator, node), (now_ms, now_ms))
        if now_ms - last_ms > REFUSAL_MEMORY_ROUNDS * round_ms:
            first_ms = now_ms
        self._unreachable_refusals[coordinator, node] = first_ms, now_ms
        return now_ms - first_ms >= UNREACHABLE_ROUNDS * round_ms

    def _is_removed(self, node: str) -> bool:
        """Whether the node is no master at the end of this master's log. It ends as soon as all receive from it."""
        return self.log_state is not None and node in self.log_state.configurations.latest.removed

    def _is_still_configured(self, node: str) -> bool:
        """Whether the node is a master at the end of this master's log."""
        agreement = self.log_state
        return agreement is None or agreement.configurations.latest.master(node) is not None

    def _refuse(self, peer: str, number: Number, why: str, about: str, text: str) -> None:
        self.sends.append((peer, RejectView(number, self.promised, why, about, text)))

    def build_report(self, proposal: ProposeView) -> ViewReport:
        """The report as one snapshot; it is durable before it leaves."""
        number, agreement = proposal.number, self.log_state
        if agreement is None:  # a learner, or one whose founding view was never at work here
            empty = Checkpoint(0, b"")
            me, prefers, view = self.settings.node, self.settings.strategy, self.accepted
            return ViewReport(
                number, me, self.birth, self.start, view, False, 0, empty, empty, [], b"", 0, [], [], [], prefers
            )
        history = agreement.log_index
        shared = Checkpoint(history.start, history.log_start_hash)
        for one in sorted(proposal.checkpoints, key=lambda c: -c.index):
            if history.start <= one.index <= history.length and history.hash_at(one.index) == one.hash:
                shared = one
                break
        members = self.accepted.members if self.accepted is not None else []
        heard = [
            (m.node, m.birth, self._confirmed_starts[m.origin]) for m in members if m.origin in self._confirmed_starts
        ]
        return ViewReport(
            number,
            self.settings.node,
            self.birth,
            self.start,
            self.accepted,
            self.installed,
            agreement.stable,
            Checkpoint(history.length, history.hash),
            shared,
            history.spans(shared.index, history.length),
            history.hashes(shared.index, history.length),
            agreement.last_stamp,
            non_final_transactions(agreement),
            parked_transactions(agreement),
            heard,
            self.settings.strategy,
            pending_configuration_changes(agreement, shared.index),
        )

    def on_accept(self, peer: str, accept: AcceptView) -> None:
        """Receive the next view. Once every payload of it is here it becomes this master's latest."""
        number = accept.view.number
        self.highest_seen = max(self.highest_seen, number)
        if number == self.number:
            self.sends.append((peer, ViewAcceptedReply(number, self.settings.node, self.birth)))
            return
        if number != self.promised:
            self._refuse(peer, number, "Promised", "", f"{self.settings.node} has promised {self.promised}")
            return
        if not accept.view.has_member(self.origin):
            raise PeerFault(peer, "UnknownBirth", f"it sends a view without birth {self.birth:016x}")
        if not self._may_resume_after_leaving(accept):
            self._refuse(peer, number, "Left", "", f"{self.settings.node} has left {self.left}; nobody there went on")
            return
        if len(accept.stamps) != 8 * sum(span.count for span in accept.spans):
            raise PeerFault(peer, "Malformed", "a stamp is missing in the base")
        self._yield_to_coordinator()
        self._pending_accept, self._accept_sender = accept, peer
        self._try_accept()

    def _may_resume_after_leaving(self, accept: AcceptView) -> bool:
        """Rule 27: a master that left continues only with a member that knows what followed, and with all members of
        the view that it left. Members that lost their disk since take part with a new incarnation. An operator's
        override may name the missing ones instead."""
        if self.left == NO_VIEW or self.left != self.number:
            return True
        if highest_view(accept.summaries) > self.number or self._includes_all_configured(
            one.node for one in accept.summaries
        ):
            return True
        assert self.accepted is not None
        there = {(one.node, one.birth) for one in accept.summaries}
        there |= {(one.node, one.birth) for one in accept.gone if one.why == "ordered"}
        return all((m.node, m.birth) in there for m in self.accepted.members)

    def _try_accept(self) -> None:
        """Accept the received view, if all of it is persisted here."""
        accept, agreement = self._pending_accept, self.log_state
        if accept is None or agreement is None:
            return
        number = accept.view.number
        if number != self.promised:
            self._pending_accept = None
            return
        lacks = agreement.missing_spans(accept.spans, accept.waiting)
        if lacks:
            self._send_fetch_progress(number, sum(span.count for span in lacks))
            return
        self._pending_accept = None
        stamps = array("Q")
        stamps.frombytes(accept.stamps)
        sound = agreement.final_index <= accept.cut <= agreement.log_index.length
        if not sound or not agreement.accept_view(
            accept.view, accept.cut, accept.spans, stamps.tolist(), accept.waiting
        ):
            what = f"the base that came, cut behind {accept.cut}, is not the one that the view names"
            self._refuse(self._accept_sender, number, "OtherBase", "", what)
            return
        self.accepted = accept.view
        self.installed = False
        self.newer_view = None
        self.other_branches.clear()
        self.backup_index = min(self.backup_index, accept.cut)
        self._branch_holders.clear()
        for known in (self.departures, self.overrides):
            for node in [node for node, one in known.items() if not accept.view.has_member(Origin(node, one.birth))]:
                del known[node]
        self._candidates.clear()
        self._confirmed_starts.clear()
        self._last_views.update((m.node, accept.view.number) for m in accept.view.members)
        self.failure_detector.on_view_accepted([m.node for m in accept.view.members])
        self.view_changed = True
        self._on_accepted_here(number)

    def _on_accepted_here(self, number: Number) -> None:
        """The view is durable here: send the acceptance to the coordinator."""
        self.sends.append((self._accept_sender, ViewAcceptedReply(number, self.settings.node, self.birth)))

    def _send_fetch_progress(self, number: Number, count: int) -> None:
        now_ms = self.failure_detector.now_ms
        if self.change is not None and self.change.number == number:
            self.change.record_progress(self.settings.node, count, now_ms)
        elif now_ms >= self._last_missing[1] + self.settings.repeat_ms:
            self._last_missing = (count, now_ms)
            self.sends.append((self._accept_sender, FetchProgress(number, self.settings.node, count)))

    def on_install(self, number: Number) -> None:
        """Every member has accepted."""
        if number == self.number:
            self.mark_installed()
