"""When a view change is wanted, and of which members (protocol section 3).

Nothing here reads a clock or sends: the failure detector has the time, messages and records go to the outbox.
"""

from __future__ import annotations

from typing import Final

from txlog.model.ids import Origin
from txlog.model.view import Member, View
from txlog.protocol.views.backfill import Backfill
from txlog.protocol.views.candidate_checks import has_room_for_origins, has_room_for_views
from txlog.protocol.views.catch_up import CatchUp
from txlog.protocol.views.coordinator import ViewCoordinator
from txlog.protocol.views.view_change import departure_applies, has_override
from txlog.protocol.views.view_state import (
    FOREVER_MS,
    SILENCE_WINDOW_TERMS,
    SILENT_ROUNDS,
    UNCONFIRMED_PROOF_RETRY_MS,
    ViewState,
)
from txlog.wire.messages import Departure, Hello
from txlog.wire.protocol_level import LEVEL_SYNCHRONOUS

PREFERENCE_DELAY_MS: Final = 500
"""From a changed preference to the view that follows: it is mostly changed at several masters, one by one."""


class ViewPolicy:
    """Decides when this master begins a view change, and of which members."""

    def __init__(self, views: ViewState, backfill: Backfill, coordinator: ViewCoordinator) -> None:
        self.views = views
        self.backfill = backfill
        self.coordinator = coordinator
        self._catch_ups: dict[str, CatchUp] = {}
        self._postponed = ""
        """Why no master is admitted although one is ready; empty when none waits for that reason."""

    def poll(self, may_lead: bool) -> int:
        """Send what is due. ``may_lead``: this master takes part (admitted, not leaving). Returns when to poll again,
        in ``mono`` milliseconds."""
        now_ms = self.views.failure_detector.now_ms
        self.coordinator.try_accept()
        self.backfill.request_missing()
        change = self.views.change
        if change is not None and change.has_timed_out(now_ms, self.views.proposal_timeout_ms):
            self.coordinator.abort(self.coordinator.timeout_text(change))
            self.views.propose_after_ms = now_ms
            change = None
        if change is None and may_lead and not self._waits_for_newer_view():
            self._consider_view_change(now_ms)
            change = self.views.change
        if (
            change is not None
            and now_ms >= change.sent_ms + self.views.local.settings.repeat_ms + change.size_allowance_ms
        ):
            self.coordinator.resend(change, now_ms)
        return now_ms + self.views.local.settings.repeat_ms if not self.views.is_settled else FOREVER_MS

    def _waits_for_newer_view(self) -> bool:
        """Whether this master waits for the members of a newer view to add it. Under ``Continue`` it waits only while
        one of them is present: beyond their silence limit this is a split like any other."""
        if self.views.newer_view is None or self.views.majority_required:
            return self.views.newer_view is not None
        reachable = self.views.failure_detector.reachable()
        return any(
            node in reachable or self.views.failure_detector.silent_ms(node) <= self._silence_limit_ms
            for node in self.views.newer_view_members
        )

    def _consider_view_change(self, now_ms: int) -> None:
        """Begin a view change when one is wanted, all its members are present, and it is this master's turn."""
        view = self.views.accepted
        if view is None or self.views.log_state is None:
            return
        wanted, gone = self._target_members(view)
        if self._view_change_wanted(view, wanted):
            if self.views.propose_after_ms == FOREVER_MS:
                self.views.propose_after_ms = now_ms
        elif self._strategy_change_wanted(view):
            if self.views.propose_after_ms == FOREVER_MS:
                self.views.propose_after_ms = now_ms + PREFERENCE_DELAY_MS
        else:
            self.views.propose_after_ms, self.views.blocked_reason = FOREVER_MS, self._postponed
            return
        nodes = [m.node for m in wanted]
        reachable = self.views.failure_detector.reachable()
        absent = [node for node in nodes if node not in reachable]
        if absent:
            self.views.blocked_reason = f"waiting for {', '.join(absent)}"
            return
        if (
            self.views.majority_required
            and not self.views.is_majority(nodes)
            and not self.views.allowed_by_override(nodes, gone, view, self.views.joint_configurations)
        ):
            but = ", nor without those that the order names" if has_override(gone) else ""
            self.views.blocked_reason = f"those who are here have no more than half of the weight{but}"
            return
        if now_ms - self.views.propose_after_ms >= self._proposer_rank(wanted) * self.views.proposal_timeout_ms:
            self.coordinator.propose(view, wanted, gone)

    def _proposer_rank(self, wanted: list[Member]) -> int:
        """How many masters precede this one as proposer: those of a later view, which know more, then by the order of
        precedence. All precede it, twice, where it has failed with the same members, or where one of them does not
        accept its messages. Otherwise it would block a master that can propose, and whose time-out may be longer."""
        nodes = [m.node for m in wanted]
        mine = nodes.index(self.views.local.node)
        before = [self.views.last_views.get(node, self.views.number) >= self.views.number for node in nodes[:mine]]
        after = [self.views.last_views.get(node, self.views.number) > self.views.number for node in nodes[mine + 1 :]]
        last = wanted == self.views.failed_members or not self.views.unlisted_by.isdisjoint(nodes)
        return sum(before) + sum(after) + (2 * len(nodes) if last else 0)

    def _target_members(self, view: View) -> tuple[list[Member], list[Departure]]:
        """The members of the next view, in order of precedence, and the members of this one that it excludes."""
        gone: list[Departure] = []
        stay: dict[str, Member] = {}
        for member in view.members:
            departure = self._departure_of(member)
            if departure is None:
                stay[member.node] = member
            else:
                gone.append(departure)
        gone += self._removed_elsewhere(view)
        origins: set[tuple[str, int]] = set()
        joining: dict[str, Member] = {}
        for configured in self.views.configured_members:
            who = self.views.hellos.get(configured.node)
            if who is None or configured.node in stay or not self._is_caught_up(who):
                continue
            if has_room_for_origins(view, origins | who.origins):  # of several, as many as fit
                origins |= who.origins
                joining[who.node] = Member(who.node, who.birth, configured.weight, configured.data_center)
        self._postponed = ""
        if joining and not has_room_for_views(view) and not self.views.includes_all_configured({**stay, **joining}):
            self._postponed = f"{len(view.ancestors)} views without all masters: the next has all, or one less"
        else:
            stay.update(joining)
        order = {m.node: place for place, m in enumerate(self.views.configured_members)}
        return sorted(stay.values(), key=lambda m: order.get(m.node, len(order))), gone

    def _removed_elsewhere(self, view: View) -> list[Departure]:
        """Members of other branches that this one has removed for good: their views need not wait for them."""
        apart = [member for other in self.views.other_branches.values() for member in other.members]
        found = {m.origin: m for m in apart if not view.has_member(m.origin) and not self.views.is_configured(m.node)}
        return [Departure(o.node, o.birth, self.views.last_starts.get(o, 0), "removed") for o in sorted(found)]

    def _departure_of(self, member: Member) -> Departure | None:
        if member.node == self.views.local.node:
            return None
        order, found = self.views.overrides.get(member.node), self.views.departures.get(member.node)
        if order is not None and self.views.is_reachable(member):
            del self.views.overrides[member.node]  # it is back: the order was about one that is gone
            self.views.record_overrides()
        elif order is not None and order.birth == member.birth:
            return order
        if found is not None and departure_applies(found, member, self.views.last_starts.get(member.origin, 0)):
            tried_ms = self.views.unconfirmed_proofs.get(found, -FOREVER_MS)
            tried = self.views.failure_detector.now_ms - tried_ms <= UNCONFIRMED_PROOF_RETRY_MS
            if not tried or self.views.includes_all_configured(self.views.failure_detector.reachable()):
                return found
        # A proof that no member can confirm counts as none: silence excludes the member, with its limit and its backup.
        if self._is_silent(member) and self._may_proceed_without:
            return Departure(member.node, member.birth, self.views.last_starts.get(member.origin, 0), "silent")
        return None

    def _is_silent(self, member: Member) -> bool:
        """Whether the member is silent beyond its term, in one silence or in several that add up."""
        detector, limit_ms = self.views.failure_detector, self._silence_limit_ms
        if detector.silent_ms(member.node) > limit_ms:
            return True
        window_ms = SILENCE_WINDOW_TERMS * limit_ms
        return detector.is_silent(member.node) and 2 * detector.silent_ms_within(member.node, window_ms) > window_ms

    @property
    def silence_adds_up(self) -> bool:
        """Whether a member was silent for a whole term lately, so that a short silence may be its last. The backup for
        it is kept then: the next silence may be too short for another one."""
        view, limit_ms = self.views.accepted, self._silence_limit_ms
        within_ms = self.views.failure_detector.silent_ms_within
        return view is not None and any(
            within_ms(m.node, SILENCE_WINDOW_TERMS * limit_ms) > limit_ms for m in view.members
        )

    @property
    def _silence_limit_ms(self) -> int:
        """How long a member may be silent."""
        if self.views.majority_required:
            return SILENT_ROUNDS * self.views.local.settings.round_timeout_ms
        none = self.views.accepted is not None and self.views.accepted.strategy == "None"
        return self.views.local.settings.none_split_delay_ms if none else self.views.local.settings.max_peer_lag_ms

    @property
    def _may_proceed_without(self) -> bool:
        """Whether the view may continue without silent members: only with a backup (rule 23)."""
        agreement, view = self.views.log_state, self.views.accepted
        if self.views.majority_required or agreement is None or view is None or view.strategy == "None":
            return True
        go = {*self.views.departures, *self.views.overrides}
        stay = [
            m
            for m in view.members
            if m.node not in go and self.views.failure_detector.is_alive(m.node) and not self._is_silent(m)
        ]
        others = [self.views.hellos.get(m.node) for m in stay]  # what one that is left behind has saved is on its side
        return self.views.backup_index >= 0 or any(who is not None and who.backup >= 0 for who in others)

    def _is_caught_up(self, who: Hello) -> bool:
        """Whether a joining master lacks so little, and fetches it so fast, that the stop of the view will be short."""
        agreement, view = self.views.log_state, self.views.accepted
        assert agreement is not None
        assert view is not None
        if view.has_member(Origin(who.node, who.birth)) and who.node not in self.views.departures:
            return False
        departure = self.views.departures.get(who.node)
        if departure is not None and departure.birth == who.birth and departure.start >= who.start:
            return False
        if not self.views.failure_detector.is_bidirectional(who.node):
            return False
        if who.log_index < agreement.log_index.start:
            return False  # a snapshot first
        held = {Origin(node, birth): seq for node, birth, seq in who.held}
        there = {q.origin: min(q.held, q.limit) for q in agreement.queues}
        outside = {
            origin: seq for origin, seq in held.items() if not self.backfill.is_in_current_view(agreement, origin)
        }
        here = {origin: self.views.held_seq(origin) for origin in outside}
        catch_up = self._catch_ups.setdefault(who.node, CatchUp())
        catch_up.observe(who, self.views.failure_detector.now_ms, (there, held), (outside, here))
        return catch_up.is_near_end

    def _strategy_change_wanted(self, view: View) -> bool:
        """Whether this master prefers another strategy than the view knows of, and no master is partitioned: a view of
        the same members follows."""
        if view.silent_members or view.preferred_by(self.views.local.node) == self.views.local.settings.strategy:
            return False
        reachable = self.views.failure_detector.reachable()
        nodes = [m.node for m in view.members]
        room = has_room_for_views(view) or self.views.includes_all_configured(nodes)
        return room and all(node in reachable for node in nodes)

    def _view_change_wanted(self, view: View, wanted: list[Member]) -> bool:
        if self.views.is_stopped or not self.views.installed:
            return True
        if [(m.node, m.birth) for m in wanted] != [(m.node, m.birth) for m in view.members]:
            return True
        if self._split_mode_changed(view, wanted) or self._silent_member_removed(view):
            return True
        if self._anchor_wanted(view, wanted) or self._electorate_changed(view, wanted):
            return True
        if self.views.given_up_votes and not view.is_quorate:
            return True
        waiting = [self.views.hellos.get(m.node) for m in wanted]
        return any(who is not None and who.stopped and who.view == view.number for who in waiting)

    def _silent_member_removed(self, view: View) -> bool:
        """Whether a master that is out because it was silent has been removed for good: a view of the same members
        follows, which are all."""
        assert self.views.log_state is not None
        now = self.views.log_state.configurations.at_index(self.views.log_state.stable).configuration
        return any(node in now.removed for node in view.silent_members)

    def _anchor_wanted(self, view: View, wanted: list[Member]) -> bool:
        """Whether synchronous transactions are allowed and no view has an anchor yet: one of every configured master
        follows, once each of them is known to read anchors (rule S16)."""
        settings = self.views.local.settings
        if not settings.synchronous or view.anchor is not None or view.bootstrap_configuration is None:
            return False
        if "None" in (settings.strategy, view.strategy):
            return False  # workers that do not go back cannot hold one order
        nodes = [m.node for m in wanted]
        others = [node for node in nodes if node != settings.node]
        return self.views.includes_all_configured(nodes) and self.views.local.peer_levels.are_all(
            LEVEL_SYNCHRONOUS, others, others if view.level >= LEVEL_SYNCHRONOUS else []
        )

    def _electorate_changed(self, view: View, wanted: list[Member]) -> bool:
        """Whether every configured master is here, and synchronous transactions are decided by other votes than those
        of the configuration: a view of the same members follows, with these (rule S4)."""
        agreement = self.views.log_state
        if (
            view.anchor is None
            or not view.is_quorate
            or agreement is None
            or not self.views.includes_all_configured(m.node for m in wanted)
        ):
            return False
        configured = agreement.configurations.at_index(agreement.stable).configuration.masters
        votes = [[(m.node, m.data_center, m.weight) for m in each] for each in (configured, view.anchor.electorate)]
        return votes[0] != votes[1]

    def _split_mode_changed(self, view: View, wanted: list[Member]) -> bool:
        """Whether ``splitMode`` was changed, and every master is here: a view of the same members follows, in the other
        mode."""
        agreement = self.views.log_state
        if (
            agreement is None
            or view.bootstrap_configuration is None
            or not self.views.includes_all_configured(m.node for m in wanted)
        ):
            return False
        return agreement.configurations.at_index(agreement.stable).configuration.majority != view.majority
