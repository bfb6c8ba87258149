"""A change of views as every member of it goes through it (protocol section 3), the coordinator included::

Propose ── promise (durable), the old view is stopped ──> Report
Accept  ── every payload fetched, the closed base taken over (durable) ──> Accepted
Install, or a post in the new view ── its base is stable, work goes on
"""

from __future__ import annotations

from array import array
from typing import Final

from txlog.model.errors import PeerFault
from txlog.model.ids import Origin
from txlog.model.view import NO_VIEW, Number
from txlog.protocol.changes import fits, is_ordered
from txlog.protocol.closing import latest_view
from txlog.protocol.fetching import Fetching
from txlog.protocol.reports import changes_of, parked_of, pending_of
from txlog.wire.messages import (
    AcceptView,
    Checkpoint,
    FetchProgress,
    ProposeView,
    RejectView,
    ViewAcceptedReply,
    ViewReport,
)

BEYOND_ROUNDS: Final = 2
"""Round time-outs from the first refusal for one who does not hear the coordinator; it hears it by then, if it can."""
FORGOTTEN_ROUNDS: Final = 20
"""Round time-outs without another such refusal, after which the next one is the first."""


class Membership(Fetching):
    """Promises and accepts; a refusal names what is in the way."""

    def on_propose(self, peer: str, proposal: ProposeView) -> None:
        """Stop the view and report, or refuse and say why."""
        self.highest = max(self.highest, proposal.number)
        mine = next((m for m in proposal.members if m.node == self.settings.node), None)
        if mine is None or mine.birth != self.birth:
            raise PeerFault(peer, "UnknownBirth", f"it proposes a view with another birth of {self.settings.node}")
        if self.accepted is not None and proposal.cluster != self.accepted.cluster_id:
            raise PeerFault(peer, "OtherCluster", f"its cluster is {proposal.cluster.hex()}")
        if proposal.number < self.promised or proposal.number <= self.number:
            self._refuse(peer, proposal.number, "Promised", "", f"{self.settings.node} has promised {self.promised}")
            return
        if proposal.number > self.promised:
            wrong = self._unfit(proposal)
            if wrong is not None:
                self._refuse(peer, proposal.number, *wrong)
                return
            if self.change is not None and self.change.number < proposal.number:
                self.change = None
            self._promise(proposal.number)
            self._reported = self._report(proposal)
            self._tries += 1
        report = self._reported
        if report is None or report.number != proposal.number:  # promised before this process started
            report = self._reported = self._report(proposal)
        self._another_leads()
        self.sends.append((peer, report))

    def _another_leads(self) -> None:
        """Give it time before this master's own turn comes."""
        if self.change is None:
            self._wish_ms = self.around.now_ms + self._patience_ms

    def _unfit(self, proposal: ProposeView) -> tuple[str, str, str] | None:
        """Why this master does not agree to what is left out (protocol section 3): a word, whom it is about, a text."""
        if self.accepted is None:
            return None
        stay = {(m.node, m.birth) for m in proposal.members}
        nodes = {m.node for m in proposal.members}
        gone = {(one.node, one.birth): one for one in proposal.gone}
        for member in self.accepted.members:
            if (member.node, member.birth) in stay:
                continue
            one = gone.get((member.node, member.birth))
            heard = self.around.both_ways(member.node) and not self._is_lost(member.origin)
            heard = heard and not self._is_taken_out(member.node)
            if one is None:
                heard = heard and member.node not in nodes  # else its new birth is heard
                if heard and not self._lags_behind(proposal) and not self._is_beyond(member.node, proposal):
                    return "HeardBothWays", member.node, f"{member.node} is heard here"
                if proposal.view != self.number:
                    continue  # it is not in the coordinator's view
                return "LeftOut", member.node, f"{member.node} is left out without a reason"
            if one.why == "removed":
                if proposal.view == self.number and self._is_still_configured(member.node):
                    return "NotRemoved", member.node, f"{member.node} is a master of the cluster, as far as known here"
                continue
            start = self._starts.get(member.origin, 0)
            if not fits(one, member, start):
                return (
                    "StaleProof",
                    member.node,
                    f"{member.node} start {start} was heard, {one.start} is said to be gone",
                )
            if heard and one.why in ("silent", "ordered"):
                return "HeardBothWays", member.node, f"{member.node} is heard here"
        there = [m.node for m in proposal.members]
        few = self.majority and not self._is_majority(there)
        if few and proposal.view != self.number:
            few = not is_ordered(proposal.gone)  # whom it names is no matter of the view here; the coordinator counts
        if few and not self._by_order(there, proposal.gone, self.accepted, self.jointly):
            return "NoMajority", "", "these members have no more than half of the weight"
        return None

    def _lags_behind(self, proposal: ProposeView) -> bool:
        """This master is taken in again by a view that has grown from its own. Who else was in that one is let in
        after it, by whoever hears it then: at the end of a chain of masters that is this one alone."""
        return self.ahead is not None and proposal.view >= self.ahead.number

    def _is_beyond(self, node: str, proposal: ProposeView) -> bool:
        """Whoever begins the view of another branch is not heard by that member, as far as known, and has not been for
        a while: it lets in whom it hears, and they the others after it. Else the halves of a chain of masters would
        never be one again. Right behind a heal it is only a matter of time."""
        assert self.accepted is not None
        coordinator, hears = proposal.number[2], self.around.says(node)
        went = coordinator in self.apart or not self.installed or self.accepted.member(coordinator) is None
        elsewhere = proposal.view not in self.accepted.chain and went
        if not elsewhere or hears is None or coordinator in hears:
            return False
        now_ms, round_ms = self.around.now_ms, self.settings.round_timeout_ms
        first_ms, last_ms = self._beyond.get((coordinator, node), (now_ms, now_ms))
        if now_ms - last_ms > FORGOTTEN_ROUNDS * round_ms:
            first_ms = now_ms
        self._beyond[coordinator, node] = first_ms, now_ms
        return now_ms - first_ms >= BEYOND_ROUNDS * round_ms

    def _is_taken_out(self, node: str) -> bool:
        """At the end of this master's log it is no master any more, and goes as soon as it is heard by all."""
        return self.agreement is not None and node in self.agreement.configurations.last.removed

    def _is_still_configured(self, node: str) -> bool:
        """At the end of this master's log."""
        agreement = self.agreement
        return agreement is None or agreement.configurations.last.master(node) is not None

    def _refuse(self, peer: str, number: Number, why: str, about: str, text: str) -> None:
        self.sends.append((peer, RejectView(number, self.promised, why, about, text)))

    def _report(self, proposal: ProposeView) -> ViewReport:
        """One snapshot; it is durable before it leaves."""
        number, agreement = proposal.number, self.agreement
        if agreement is None:  # a learner, or one whose founding view was never at work here
            empty = Checkpoint(0, b"")
            me, prefers, view = self.settings.node, self.settings.strategy, self.accepted
            return ViewReport(
                number, me, self.birth, self.start, view, False, 0, empty, empty, [], b"", 0, [], [], [], prefers
            )
        history = agreement.history
        shared = Checkpoint(history.start, history.foot_hash)
        for one in sorted(proposal.checkpoints, key=lambda c: -c.index):
            if history.start <= one.index <= history.length and history.hash_at(one.index) == one.hash:
                shared = one
                break
        members = self.accepted.members if self.accepted is not None else []
        heard = [(m.node, m.birth, self._working[m.origin]) for m in members if m.origin in self._working]
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
            pending_of(agreement),
            parked_of(agreement),
            heard,
            self.settings.strategy,
            changes_of(agreement, shared.index),
        )

    def on_accept(self, peer: str, accept: AcceptView) -> None:
        """The next view. Once every payload of it is here it becomes this master's latest."""
        number = accept.view.number
        self.highest = max(self.highest, number)
        if number == self.number:
            self.sends.append((peer, ViewAcceptedReply(number, self.settings.node, self.birth)))
            return
        if number != self.promised:
            self._refuse(peer, number, "Promised", "", f"{self.settings.node} has promised {self.promised}")
            return
        if not accept.view.has(self.origin):
            raise PeerFault(peer, "UnknownBirth", f"it sends a view without birth {self.birth:016x}")
        if not self._may_return(accept):
            self._refuse(peer, number, "Left", "", f"{self.settings.node} has left {self.left}; nobody there went on")
            return
        if len(accept.stamps) != 8 * sum(span.count for span in accept.spans):
            raise PeerFault(peer, "Malformed", "a stamp is missing in the base")
        self._another_leads()
        self._incoming, self._from = accept, peer
        self._take()

    def _may_return(self, accept: AcceptView) -> bool:
        """Rule 27: a master that left goes on only with one that knows what followed, with all that it left, those
        that lost their disk since with a new birth, or by the operator's order, which names the others."""
        if self.left == NO_VIEW or self.left != self.number:
            return True
        if latest_view(accept.summaries) > self.number or self._all_here(one.node for one in accept.summaries):
            return True
        assert self.accepted is not None
        there = {(one.node, one.birth) for one in accept.summaries}
        there |= {(one.node, one.birth) for one in accept.gone if one.why == "ordered"}
        return all((m.node, m.birth) in there for m in self.accepted.members)

    def _take(self) -> None:
        """Accept what came, if all of it is held."""
        accept, agreement = self._incoming, self.agreement
        if accept is None or agreement is None:
            return
        number = accept.view.number
        if number != self.promised:
            self._incoming = None
            return
        lacks = agreement.lacks(accept.spans, accept.waiting)
        if lacks:
            self._say_missing(number, sum(span.count for span in lacks))
            return
        self._incoming = None
        stamps = array("Q")
        stamps.frombytes(accept.stamps)
        sound = agreement.settled_at <= accept.cut <= agreement.history.length
        if not sound or not agreement.accept(accept.view, accept.cut, accept.spans, stamps.tolist(), accept.waiting):
            what = f"the base that came, cut behind {accept.cut}, is not the one that the view names"
            self._refuse(self._from, number, "OtherBase", "", what)
            return
        self.accepted = accept.view
        self.installed = False
        self.ahead = None
        self.apart.clear()
        self.backup_at = min(self.backup_at, accept.cut)
        self._holders.clear()
        for known in (self.departures, self.orders):
            for node in [node for node, one in known.items() if not accept.view.has(Origin(node, one.birth))]:
                del known[node]
        self._candidates.clear()
        self._working.clear()
        self._seen.update((m.node, accept.view.number) for m in accept.view.members)
        self.around.agreed([m.node for m in accept.view.members])
        self.changed = True
        self._has_accepted(number)

    def _has_accepted(self, number: Number) -> None:
        """The view is durable here: say so to whoever coordinates."""
        self.sends.append((self._from, ViewAcceptedReply(number, self.settings.node, self.birth)))

    def _say_missing(self, number: Number, count: int) -> None:
        now_ms = self.around.now_ms
        if self.change is not None and self.change.number == number:
            self.change.misses(self.settings.node, count, now_ms)
        elif now_ms >= self._missing[1] + self.settings.repeat_ms:
            self._missing = (count, now_ms)
            self.sends.append((self._from, FetchProgress(number, self.settings.node, count)))

    def on_install(self, number: Number) -> None:
        """Everybody has accepted."""
        if number == self.number:
            self.learn_installed()
