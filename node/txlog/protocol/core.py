"""The core of a master: messages, submissions and the passing of time in; records and messages out.

It has no clock, no chance, no I/O and no dependence on hash order (rule 31). It changes its state as if everything
it says were durable; the caller makes that true by releasing nothing before (``README.md``).
"""

from __future__ import annotations

from typing import Final

from txlog.model.errors import OffTheLog, PeerFault
from txlog.model.records import Recovered
from txlog.model.view import NO_VIEW
from txlog.protocol.events import Now, Send, Settings
from txlog.protocol.following import Following
from txlog.protocol.greetings import known_to, who_now
from txlog.wire import messages as wire
from txlog.wire.messages import FetchRuns, Hello, HelloReply, Message, Post, Relay, RunsReply

LOOK_MS: Final = 20
"""While nothing has been heard that bears on the view, it is looked so often whether somebody is silent."""


class Core(Following):
    """One master, layer upon layer, each a file: ``state.py`` ← ``adding.py`` ← ``hearing.py`` ← ``posting.py`` ←
    ``leaving.py`` ← ``configuring.py`` ← ``submitting.py`` ← ``trimming.py`` ← ``snapshots.py`` ← ``following.py``;
    here: who is listened to, and what is done when time passes."""

    def __init__(self, settings: Settings, recovered: Recovered, now: Now) -> None:
        super().__init__(settings, recovered, now)
        self._enter_view(now)

    def receive(self, peer: str, message: Message, now: Now, room_for_work: bool) -> None:
        """One message from an authenticated peer. :class:`PeerFault` when it is refused: nothing of it counts.
        :class:`Fatal` when this process must end."""
        self.full = not room_for_work
        self._rounds.now_ms = max(self._rounds.now_ms, now.mono)
        self.around.tick(now.mono)
        self.around.heard(peer)
        match message:
            case Post():
                self._on_post(peer, message, now)
            case RunsReply():
                self._on_runs(message, now)
            case Hello():
                self._on_who(peer, message)
            case HelloReply():
                self._on_known(peer, message)
            case wire.ProposeBootstrap():
                self._say(self.founding.on_found(peer, message.view))
            case wire.BootstrapAccepted():
                self.founding.on_founded(message)
            case wire.CommitBootstrap():
                self.founding.begin(message.view)
            case Relay():
                self._on_forward(peer, message, now)
            case wire.LogTruncatedBelow():
                self._on_below(peer, message)
            case wire.SnapshotChunk():
                self._on_snapshot(peer, message)
            case _:
                self._on_change(peer, message, now)
        self._enter_view(now)
        self._advance()

    def _on_change(self, peer: str, message: Message, now: Now) -> None:
        """A message of a change of views, from ``peer`` itself or forwarded for it."""
        self.check_listed(peer)
        self._stirred = True
        views = self.views
        if not self.founding.admitted and views.accepted is not None:
            return  # it votes for nothing yet
        match message:
            case wire.ProposeView() | wire.AcceptView() if self._has_left:
                self._tell_leave([peer])  # what it said it stays with, until its process ends
            case wire.ProposeView():
                views.on_propose(peer, message)
            case wire.ViewReport():
                views.on_report(message)
            case wire.RejectView():
                views.on_refuse(peer, message)
            case wire.AcceptView():
                if self.agreement is None and message.view.number == views.promised:
                    self._learn(message.view.cluster_id)
                views.on_accept(peer, message)
            case wire.FetchProgress():
                views.on_missing(message)
            case wire.ViewAcceptedReply():
                views.on_accepted(message)
            case wire.InstallView():
                views.on_install(message.number)
            case wire.LeaveNotice():
                self._on_leaving(peer, message)
            case _:
                raise PeerFault(peer, "Misplaced", f"{type(message).__name__} is not for the core")
        self._say_views()

    def _on_forward(self, peer: str, forward: Relay, now: Now) -> None:
        """Rule 22: on to whom it is for, or one step farther; each message passes a master once."""
        if not forward.path or len(forward.path) > len(self.views.configured):
            raise PeerFault(peer, "Malformed", "a forwarded message without a path that fits")
        if forward.target == self.settings.node:
            message = wire.decode(peer, forward.message)
            if isinstance(message, FetchRuns):
                self.asked.append((forward.path[0], message))
            elif isinstance(message, RunsReply):
                self._on_runs(message, now)
            elif isinstance(message, wire.LogTruncatedBelow):
                self._on_below(peer, message)  # any other's snapshot will do, and this one is heard without help
            else:
                self._on_change(forward.path[0], message, now)
            return
        if self.settings.node in forward.path:
            return
        onward = Relay(forward.target, [*forward.path, self.settings.node], forward.message)
        self._say([(node, onward) for node in self._steps_to(forward.target) if node not in forward.path])

    def _steps_to(self, target: str) -> list[str]:
        if self.around.both_ways(target):
            return [target]
        return [node for node in self.founding.others if node != target and self.around.both_ways(node)]

    def _on_who(self, peer: str, who: Hello) -> None:
        if peer == self.settings.node or who.node != peer:
            raise PeerFault(peer, "UnknownPeer", f"it calls itself {who.node}")
        if not who.cluster:
            self.founding.check_members(peer, who.members)
        try:
            self.check_listed(peer)
        except PeerFault:
            if who.cluster:
                self._say([(peer, known_to(who, self.views, self.peers))])  # so that it knows
            raise
        self._stirred = True
        self._say([(peer, known_to(who, self.views, self.peers))])
        history = self.agreement.history if self.agreement is not None else None
        if history is not None and who.view == NO_VIEW and who.log_index < history.start:
            # It may lack no payload, so that it asks for nothing, and yet stand below what was trimmed meanwhile.
            self._say([(peer, wire.LogTruncatedBelow(history.start, history.foot_hash))])
        self.views.on_who(who)

    def _on_known(self, peer: str, known: HelloReply) -> None:
        if known.node != peer:
            raise PeerFault(peer, "UnknownPeer", f"it calls itself {known.node}")
        self._check_removed(known)
        self.founding.on_known(known, self._own_seq(), self._last_stamp())
        self._stirred = True
        self.views.on_known(known)
        if self.agreement is None and self.founding.cluster and known.accepted is not None:
            self._learn(known.accepted.cluster_id)

    def poll(self, now: Now) -> int:
        """Time has passed, or input has been taken: say the posts that are due. Returns the ``mono`` millisecond
        at which to poll again, if nothing else happens before."""
        self._rounds.now_ms = max(self._rounds.now_ms, now.mono)
        self.around.tick(now.mono)
        self._say(self.founding.poll(now.mono))
        self._enter_view(now)
        wake = min(self._ask_around(now), self._change_views(now))
        agreement = self.agreement
        if agreement is None or not self.founding.admitted or not self.views.at_work:
            return min(wake, self.founding.next_ms(now.mono), self._leave_stopped(now))
        self._advance()
        self._follow_configuration(now)
        self._gather()
        wake = min(wake, self.founding.next_ms(now.mono), self._leave_when_held(now))
        if not self.views.at_work:
            return wake
        for peer in self.peers:
            peer.expire(now.mono - self._rounds.resend_ms)
            due_ms = self._rounds.due_ms(agreement, peer)
            if due_ms <= now.mono or peer.owed:
                self._post(peer, now, due_ms <= now.mono)
                due_ms = self._rounds.due_ms(agreement, peer)
            wake = min(wake, max(due_ms, now.mono + 1))
        return min(wake, self._fetch_missing(now))

    def _ask_around(self, now: Now) -> int:
        """Tell the others where this master is, and ask where they are, while that is not settled."""
        views = self.views
        if not self.founding.others or self._has_left:
            return 1 << 60
        silent = any(not self.is_present(p) for p in self.peers)
        if not silent:
            views.backup_at = -1
        outside = len(self.peers) + 1 < len(self.views.configured)
        if self.founding.finished and views.is_settled and not silent and not outside:
            return now.mono + self.settings.round_timeout_ms
        every = (
            self.settings.repeat_ms
            if not (self.founding.finished and views.is_settled)
            else self.settings.idle_interval_ms
        )
        if now.mono >= self._who_ms + every:
            self._who_ms = now.mono
            who = who_now(self.views)
            self._say([(node, who) for node in self.founding.others])
        return self._who_ms + every

    def _change_views(self, now: Now) -> int:
        views = self.views
        if not self.founding.founded and views.accepted is None and self.agreement is None:
            return 1 << 60
        if views.is_settled and not self._stirred and now.mono < self._looked_ms + LOOK_MS:
            return 1 << 60
        self._stirred, self._looked_ms = False, now.mono
        may_lead = self.founding.admitted and self.founding.founded and not self.closing
        wake = views.poll(may_lead)
        self._say_views()
        self._enter_view(now)
        return wake

    def _say_views(self) -> None:
        """What the change of views says finds its way around a lost link (rule 22)."""
        sends, self.views.sends = self.views.sends, []
        for node, message in sends:
            if node == self.settings.node:
                continue
            self._effects.sends += self.route(node, message)

    def route(self, node: str, message: Message) -> list[Send]:
        """The message to that master, or to those that hear it when the link between the two is lost (rule 22)."""
        if self.around.both_ways(node) or node not in self.around.reachable():
            return [Send(node, message, None)]
        return [Send(step, message, None, node) for step in self._steps_to(node)]

    @property
    def executes_to_end(self) -> bool:
        """Workers execute up to the log's end, not only to the stable index: a member is silent, and the view's
        strategy is ``None``."""
        view = self.views.accepted
        if view is None or view.strategy != "None" or self.views.majority or not self.views.at_work:
            return False
        return any(not self.is_present(p) for p in self.peers)

    @property
    def wants_backup(self) -> bool:
        """A member is silent: before its term is over, a backup of an up-to-date worker must stand (rule 23)."""
        agreement = self.agreement
        return self._lacks_backup and agreement is not None and (self.views.installed or not agreement.below_stable)

    @property
    def recalls_backup(self) -> bool:
        """As :attr:`wants_backup`, where none may be made: workers stand on what has left the log with a view that is
        accepted and not installed, and the install may never come, since whoever would say so is cut off. One from
        before does, where it stands on the log."""
        return self._lacks_backup and not self.views.installed

    @property
    def _lacks_backup(self) -> bool:
        views, view = self.views, self.views.accepted
        if view is None or self.agreement is None or self.views.majority or view.strategy == "None":
            return False
        return views.backup_at < 0 and not self.closing and bool(self.silent)

    @property
    def silent(self) -> list[str]:
        """Members of the view that are not heard, or hear nobody. Nobody posts while the view is stopped."""
        if self.views.at_work:
            return sorted(p.node for p in self.peers if not self.is_present(p))
        most_ms = self.settings.round_timeout_ms
        return sorted(p.node for p in self.peers if self.around.silent_ms(p.node) > most_ms)

    def check_backup(self, index: int, value: bytes, epoch: int) -> None:
        """:class:`OffTheLog` unless every branch that a split can make of this view has this position.

        That is certain at or below the stable index. Another member's may be higher for now, and its workers stand
        there: whatever was executed in this view or before (``epoch`` of the marker; -1: not known) is held here too,
        so it is certain when closing the view gives the same hash."""
        agreement = self.agreement
        near = agreement is not None and (index <= agreement.stable or 0 <= epoch <= agreement.view.epoch)
        if agreement is None or not near or agreement.hash_when_closed(index) != value:
            raise OffTheLog(f"position {index} is not on the part of this master's log that every branch has")

    def backup_done(self, index: int, value: bytes, epoch: int = -1) -> None:
        """A verified backup stands at this position. Raises as :meth:`check_backup`."""
        self.check_backup(index, value, epoch)
        self.views.backup_at = max(self.views.backup_at, index)

    def adopt(self, settings: Settings) -> None:
        """Other times, and another preferred strategy, from now on. Nothing that masters have to agree on may differ. A
        strategy that the view does not know of is followed by a view of the same members."""
        mine = self.settings
        assert (settings.node, settings.members, settings.majority) == (mine.node, mine.members, mine.majority)
        assert settings.key_retention_ms == mine.key_retention_ms, "it decides what the log means"
        self.settings = self.views.settings = self.founding.settings = settings
        self._rounds.adopt(settings)
        self.around.adopt(settings.round_timeout_ms)
        self._stirred = True

    def found(self, members: list[str]) -> None:
        """The operator's order: these begin the cluster. :class:`Conflict` when it cannot be meant. It is taken, for
        this start and those after it, when its record is durable."""
        self.founding.order(members)

    def force_view(self, without: list[str]) -> None:
        """The operator's order: go on without these members. :class:`Conflict` when it cannot be meant. It is taken,
        for this start and those after it, when its record is durable."""
        self._stirred = True
        self.views.force(without)

    def prove_down(self, node: str, birth: int, start: int) -> None:
        """The supervisor has proved that this process of a member is gone. :class:`Conflict` when a later one was
        heard."""
        self._stirred = True
        self.views.prove_down(node, birth, start)

    @property
    def state(self) -> str:
        """``Founding``, ``Learning``, ``Starting``, ``DiskFull``, ``Left``, ``Rejoining`` (a view is being changed, or
        this master has to be let in again), ``Suspected`` (a member is silent), ``Isolated`` (a configured master is
        out because it was silent) or ``Joined``."""
        views = self.views
        if self.agreement is None:
            return "Founding"
        if views.accepted is None:
            return "Learning"
        if not self.founding.admitted:
            return "Starting"
        if self.full:
            return "DiskFull"
        if self._has_left:
            return "Left"
        if not views.at_work or views.ahead is not None:
            return "Rejoining"
        if not all(self.is_present(p) for p in self.peers):
            return "Suspected"
        return "Isolated" if views.is_isolated else "Joined"
