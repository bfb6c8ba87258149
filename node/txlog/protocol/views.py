"""Which view this master is in and how the next one comes about (protocol section 3), one layer upon the other:

``standing.py`` what it is in and whom it has heard; ``fetching.py`` payloads that it misses; ``membership.py`` promises
and accepts; ``coordinating.py`` drives a change; here: when a change is wanted, and of whom.

Nothing of it looks at a clock or sends: time comes in, messages go to ``sends``, records to ``records``.
"""

from __future__ import annotations

from typing import Final

from txlog.model.ids import Origin
from txlog.model.view import Member, View
from txlog.protocol.changes import fits, is_ordered
from txlog.protocol.coordinating import Coordinating
from txlog.protocol.standing import CAUGHT_UP, NEVER, SILENT_ROUNDS, UNVOUCHED_MS
from txlog.wire.messages import Departure, Hello

PREFERENCES_MS: Final = 500
"""Between a changed preference and the view that follows: it is mostly changed at several masters, one by one."""


class Views(Coordinating):
    """The whole of it; the fields are those of :class:`~txlog.protocol.standing.Standing`."""

    def poll(self, may_lead: bool) -> int:
        """Say what is due. ``may_lead``: this master takes part (admitted, not leaving). Returns when to poll again."""
        now_ms = self.around.now_ms
        self._take()
        self._fetch()
        change = self.change
        if change is not None and change.is_over(now_ms, self._patience_ms):
            self._give_up(self._slow(change))
            self._wish_ms = now_ms
            change = None
        if change is None and may_lead and not self._waits_for_others():
            self._consider(now_ms)
            change = self.change
        if change is not None and now_ms >= change.sent_ms + self.settings.repeat_ms + change.heavy_ms:
            self._repeat(change, now_ms)
        return now_ms + self.settings.repeat_ms if not self.is_settled else NEVER

    def _waits_for_others(self) -> bool:
        """Those who are ahead let this master in. Under ``Continue`` only while one of them is there: beyond its term
        this is a split like any other."""
        if self.ahead is None or self.majority:
            return self.ahead is not None
        reachable = self.around.reachable()
        return any(node in reachable or self.around.silent_ms(node) <= self._term_ms for node in self._know_ahead)

    def _consider(self, now_ms: int) -> None:
        """Begin a change when one is wanted, everybody in it is there, and it is this master's turn."""
        view = self.accepted
        if view is None or self.agreement is None:
            return
        wanted, gone = self._wanted(view)
        if self._is_wanted(view, wanted):
            if self._wish_ms == NEVER:
                self._wish_ms = now_ms
        elif self._is_preferred(view):
            if self._wish_ms == NEVER:
                self._wish_ms = now_ms + PREFERENCES_MS
        else:
            self._wish_ms, self.holding = NEVER, ""
            return
        nodes = [m.node for m in wanted]
        reachable = self.around.reachable()
        absent = [node for node in nodes if node not in reachable]
        if absent:
            self.holding = f"waiting for {', '.join(absent)}"
            return
        if self.majority and not self._is_majority(nodes) and not self._by_order(nodes, gone, view, self.jointly):
            but = ", nor without those that the order names" if is_ordered(gone) else ""
            self.holding = f"those who are here have no more than half of the weight{but}"
            return
        if now_ms - self._wish_ms >= self._rank(wanted) * self._patience_ms:
            self._begin(view, wanted, gone)

    def _rank(self, wanted: list[Member]) -> int:
        """How many come before this master: those of a later view, who know more, then the order of precedence. All
        do, twice, where it has failed with the same, or where one of them does not listen to it: else it would keep one
        from beginning who can, and whose patience may have grown longer than its own."""
        nodes = [m.node for m in wanted]
        mine = nodes.index(self.settings.node)
        before = [self._seen.get(node, self.number) >= self.number for node in nodes[:mine]]
        after = [self._seen.get(node, self.number) > self.number for node in nodes[mine + 1 :]]
        last = wanted == self._failed_with or not self._unlisted_by.isdisjoint(nodes)
        return sum(before) + sum(after) + (2 * len(nodes) if last else 0)

    def _wanted(self, view: View) -> tuple[list[Member], list[Departure]]:
        """Who should be in the next view, in order of precedence, and who of this one should not."""
        gone: list[Departure] = []
        stay: dict[str, Member] = {}
        for member in view.members:
            departure = self._departure(member)
            if departure is None:
                stay[member.node] = member
            else:
                gone.append(departure)
        gone += self._removed_elsewhere(view)
        for configured in self.configured:
            who = self._candidates.get(configured.node)
            if who is not None and configured.node not in stay and self._is_ready(who):
                stay[who.node] = Member(who.node, who.birth, configured.weight, configured.data_center)
        order = {m.node: place for place, m in enumerate(self.configured)}
        return sorted(stay.values(), key=lambda m: order.get(m.node, len(order))), gone

    def _removed_elsewhere(self, view: View) -> list[Departure]:
        """Members of other branches that this one does without for good: their views need not wait for them."""
        apart = [member for other in self.apart.values() for member in other.members]
        found = {m.origin: m for m in apart if not view.has(m.origin) and not self.is_configured(m.node)}
        return [Departure(o.node, o.birth, self._starts.get(o, 0), "removed") for o in sorted(found)]

    def _departure(self, member: Member) -> Departure | None:
        if member.node == self.settings.node:
            return None
        order, found = self.orders.get(member.node), self.departures.get(member.node)
        if order is not None and self._is_there(member):
            del self.orders[member.node]  # it is back: the order was about one that is gone
            self.say_orders()
        elif order is not None and order.birth == member.birth:
            return order
        if found is not None and fits(found, member, self._starts.get(member.origin, 0)):
            tried_ms = self._unvouched.get(found, -NEVER)
            tried = self.around.now_ms - tried_ms <= UNVOUCHED_MS
            if not tried or self._all_here(self.around.reachable()):
                return found
        # A proof that nobody can vouch for says no less than none: silence lets it go, with its term and its backup.
        if self._is_silent(member) and self._may_part:
            return Departure(member.node, member.birth, self._starts.get(member.origin, 0), "silent")
        return None

    def _is_silent(self, member: Member) -> bool:
        return self.around.silent_ms(member.node) > self._term_ms

    @property
    def _term_ms(self) -> int:
        """How long a member may be silent."""
        if self.majority:
            return SILENT_ROUNDS * self.settings.round_timeout_ms
        none = self.accepted is not None and self.accepted.strategy == "None"
        return self.settings.none_split_delay_ms if none else self.settings.max_peer_lag_ms

    @property
    def _may_part(self) -> bool:
        """No backup, no going on (rule 23)."""
        agreement, view = self.agreement, self.accepted
        if self.majority or agreement is None or view is None or view.strategy == "None":
            return True
        go = {*self.departures, *self.orders}
        stay = [m for m in view.members if m.node not in go and self.around.is_heard(m.node) and not self._is_silent(m)]
        others = [self._candidates.get(m.node) for m in stay]  # what one that is left behind has saved is on its side
        return self.backup_at >= 0 or any(who is not None and who.backup >= 0 for who in others)

    def _is_ready(self, who: Hello) -> bool:
        """A master from outside that lacks so little that the stop will be short."""
        agreement, view = self.agreement, self.accepted
        assert agreement is not None
        assert view is not None
        if view.has(Origin(who.node, who.birth)) and who.node not in self.departures:
            return False
        departure = self.departures.get(who.node)
        if departure is not None and departure.birth == who.birth and departure.start >= who.start:
            return False
        if not self.around.both_ways(who.node):
            return False
        if who.log_index < agreement.history.start:
            return False  # a snapshot first
        held = {Origin(node, birth): seq for node, birth, seq in who.held}
        lacking = sum(max(0, min(q.held, q.limit) - held.get(q.origin, 0)) for q in agreement.queues)
        if lacking > CAUGHT_UP:
            return False
        outside = {origin: seq for origin, seq in held.items() if not self.is_inside(agreement, origin)}
        mine = sum(max(0, seq - self._held(origin)) for origin, seq in outside.items())
        return mine <= CAUGHT_UP

    def _is_preferred(self, view: View) -> bool:
        """This master prefers another strategy than the view knows of, and nobody is apart: the same members anew."""
        if view.silent or view.preferred_by(self.settings.node) == self.settings.strategy:
            return False
        reachable = self.around.reachable()
        return all(m.node in reachable for m in view.members)

    def _is_wanted(self, view: View, wanted: list[Member]) -> bool:
        if self.stopped or not self.installed:
            return True
        if [(m.node, m.birth) for m in wanted] != [(m.node, m.birth) for m in view.members]:
            return True
        if self._mode_changes(view, wanted) or self._waits_for_no_master(view):
            return True
        waiting = [self._candidates.get(m.node) for m in wanted]
        return any(who is not None and who.stopped and who.view == view.number for who in waiting)

    def _waits_for_no_master(self, view: View) -> bool:
        """One who is out because nobody heard it was taken out since, for good: the same members anew, who are all."""
        assert self.agreement is not None
        now = self.agreement.configurations.place(self.agreement.stable).configuration
        return any(node in now.removed for node in view.silent)

    def _mode_changes(self, view: View, wanted: list[Member]) -> bool:
        """``splitMode`` was changed, and everybody is here: the same members anew, under the other one."""
        agreement = self.agreement
        if agreement is None or view.founding is None or not self._all_here(m.node for m in wanted):
            return False
        return agreement.configurations.place(agreement.stable).configuration.majority != view.majority
