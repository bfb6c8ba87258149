"""The core of a master: messages, submissions and the passing of time in; records and messages out.

It has no clock, no random source, no I/O and no dependence on hash order (rule 31). It changes its state as if all its
output were durable. The caller makes that true by releasing nothing before it is (``README.md``).
"""

from __future__ import annotations

from typing import Final

from txlog.model.errors import OffTheLog, PeerFault
from txlog.model.records import RecoveredState
from txlog.model.view import NO_VIEW
from txlog.protocol.events import ClockReading, OutgoingMessage, ProtocolSettings
from txlog.protocol.membership.configuration_effects import ConfigurationFollower
from txlog.protocol.membership.handshake import build_hello, build_hello_reply
from txlog.wire import messages as wire
from txlog.wire.messages import FetchRuns, Hello, HelloReply, Message, Post, Relay, RunsReply

VIEW_CHECK_INTERVAL_MS: Final = 20
"""How often the core checks for silent members, in milliseconds, while no message bears on the view."""


class Core(ConfigurationFollower):
    """One master, in layers, each a file: ``master_state.py`` ← ``commit.py`` ← ``post_receiver.py`` ←
    ``post_sender.py`` ← ``departure.py`` ← ``configuration_changes.py`` ← ``submission.py`` ← ``log_trim.py`` ←
    ``snapshot_install.py`` ← ``configuration_effects.py``. This class dispatches messages and acts when time passes."""

    def __init__(self, settings: ProtocolSettings, recovered: RecoveredState, now: ClockReading) -> None:
        super().__init__(settings, recovered, now)
        self._enter_view(now)

    def receive(self, peer: str, message: Message, now: ClockReading, room_for_work: bool) -> None:
        """Process one message from an authenticated peer. ``room_for_work``: the disk has room for transactions.
        :class:`PeerFault` when the message is refused: no part of it counts. :class:`Fatal` when this process must
        end."""
        self.disk_full = not room_for_work
        self._post_schedule.now_ms = max(self._post_schedule.now_ms, now.mono)
        self.failure_detector.tick(now.mono)
        self.failure_detector.on_message(peer)
        match message:
            case Post():
                self._on_post(peer, message, now)
            case RunsReply():
                self._on_runs(message, now)
            case Hello():
                self._on_hello(peer, message)
            case HelloReply():
                self._on_hello_reply(peer, message)
            case wire.ProposeBootstrap():
                self._send(self.bootstrap.on_propose(peer, message.view))
            case wire.BootstrapAccepted():
                self.bootstrap.on_accepted(message)
            case wire.CommitBootstrap():
                self.bootstrap.on_commit(message.view)
            case Relay():
                self._on_relay(peer, message, now)
            case wire.LogTruncatedBelow():
                self._on_log_truncated(peer, message)
            case wire.SnapshotChunk():
                self._on_snapshot(peer, message)
            case _:
                self._on_view_change_message(peer, message, now)
        self._enter_view(now)
        self._advance()

    def _on_view_change_message(self, peer: str, message: Message, now: ClockReading) -> None:
        """Process a message of a view change, sent by ``peer`` itself or relayed for it."""
        self.check_listed(peer)
        self._needs_view_check = True
        views = self.views
        if not self.bootstrap.admitted and views.accepted is not None:
            return  # it votes for nothing yet
        match message:
            case wire.ProposeView() | wire.AcceptView() if self._has_left:
                self._send_leave([peer])  # what it said it stays with, until its process ends
            case wire.ProposeView():
                views.on_propose(peer, message)
            case wire.ViewReport():
                views.on_report(message)
            case wire.RejectView():
                views.on_refuse(peer, message)
            case wire.AcceptView():
                if self.log_state is None and message.view.number == views.promised:
                    self._become_learner(message.view.cluster_id)
                views.on_accept(peer, message)
            case wire.FetchProgress():
                views.on_fetch_progress(message)
            case wire.ViewAcceptedReply():
                views.on_accepted(message)
            case wire.InstallView():
                views.on_install(message.number)
            case wire.LeaveNotice():
                self._on_leaving(peer, message)
            case _:
                raise PeerFault(peer, "Misplaced", f"{type(message).__name__} is not for the core")
        self._send_view_messages()

    def _on_relay(self, peer: str, forward: Relay, now: ClockReading) -> None:
        """Rule 22: pass the message to its target, or one hop on; each message passes a master once."""
        if not forward.path or len(forward.path) > len(self.views.configured_members):
            raise PeerFault(peer, "Malformed", "a forwarded message without a path that fits")
        if forward.target == self.settings.node:
            message = wire.decode(peer, forward.message)
            if isinstance(message, FetchRuns):
                self.relayed_requests.append((forward.path[0], message))
            elif isinstance(message, RunsReply):
                self._on_runs(message, now)
            elif isinstance(message, wire.LogTruncatedBelow):
                self._on_log_truncated(
                    peer, message
                )  # any other's snapshot will do, and this one is heard without help
            else:
                self._on_view_change_message(forward.path[0], message, now)
            return
        if self.settings.node in forward.path:
            return
        onward = Relay(forward.target, [*forward.path, self.settings.node], forward.message)
        self._send([(node, onward) for node in self._next_hops(forward.target) if node not in forward.path])

    def _next_hops(self, target: str) -> list[str]:
        if self.failure_detector.is_bidirectional(target):
            return [target]
        return [
            node for node in self.bootstrap.others if node != target and self.failure_detector.is_bidirectional(node)
        ]

    def _on_hello(self, peer: str, who: Hello) -> None:
        if peer == self.settings.node or who.node != peer:
            raise PeerFault(peer, "UnknownPeer", f"it calls itself {who.node}")
        if not who.cluster:
            self.bootstrap.check_members(peer, who.members)
        try:
            self.check_listed(peer)
        except PeerFault:
            if who.cluster:
                self._send([(peer, build_hello_reply(who, self.views, self.peers))])  # so that it knows
            raise
        self._needs_view_check = True
        self._send([(peer, build_hello_reply(who, self.views, self.peers))])
        history = self.log_state.log_index if self.log_state is not None else None
        if history is not None and who.view == NO_VIEW and who.log_index < history.start:
            # The master may lack no payload and request nothing, and yet be below what was trimmed meanwhile.
            self._send([(peer, wire.LogTruncatedBelow(history.start, history.log_start_hash))])
        self.views.on_hello(who)

    def _on_hello_reply(self, peer: str, known: HelloReply) -> None:
        if known.node != peer:
            raise PeerFault(peer, "UnknownPeer", f"it calls itself {known.node}")
        self._check_removed(known)
        self.bootstrap.on_hello_reply(known, self._own_seq(), self._last_stamp())
        self._needs_view_check = True
        self.views.on_hello_reply(known)
        if self.log_state is None and self.bootstrap.cluster and known.accepted is not None:
            self._become_learner(known.accepted.cluster_id)

    def poll(self, now: ClockReading) -> int:
        """Send the posts that are due, after time has passed or input was taken. Returns the ``mono`` millisecond
        at which to poll again, if no input comes before."""
        self._post_schedule.now_ms = max(self._post_schedule.now_ms, now.mono)
        self.failure_detector.tick(now.mono)
        self._send(self.bootstrap.poll(now.mono))
        self._enter_view(now)
        wake = min(self._send_hellos(now), self._poll_views(now))
        agreement = self.log_state
        if agreement is None or not self.bootstrap.admitted or not self.views.is_active:
            return min(wake, self.bootstrap.next_ms(now.mono), self._resend_or_leave(now))
        self._advance()
        self._apply_configuration(now)
        self._collect_records()
        wake = min(wake, self.bootstrap.next_ms(now.mono), self._leave_when_replicated(now))
        if not self.views.is_active:
            return wake
        for peer in self.peers:
            peer.expire_in_flight(now.mono - self._post_schedule.resend_ms)
            due_ms = self._post_schedule.due_ms(agreement, peer)
            if due_ms <= now.mono or peer.reply_due:
                self._send_post(peer, now, due_ms <= now.mono)
                due_ms = self._post_schedule.due_ms(agreement, peer)
            wake = min(wake, max(due_ms, now.mono + 1))
        return min(wake, self._fetch_missing(now))

    def _send_hellos(self, now: ClockReading) -> int:
        """Send this master's hello to the others, which asks for theirs, while the view is not settled."""
        views = self.views
        if not self.bootstrap.others or self._has_left:
            return 1 << 60
        silent = any(not self.is_present(p) for p in self.peers)
        if not silent:
            views.backup_index = -1
        outside = len(self.peers) + 1 < len(self.views.configured_members)
        if self.bootstrap.is_finished and views.is_settled and not silent and not outside:
            return now.mono + self.settings.round_timeout_ms
        every = (
            self.settings.repeat_ms
            if not (self.bootstrap.is_finished and views.is_settled)
            else self.settings.idle_interval_ms
        )
        if now.mono >= self._hello_sent_ms + every:
            self._hello_sent_ms = now.mono
            who = build_hello(self.views)
            self._send([(node, who) for node in self.bootstrap.others])
        return self._hello_sent_ms + every

    def _poll_views(self, now: ClockReading) -> int:
        views = self.views
        if not self.bootstrap.is_bootstrapped and views.accepted is None and self.log_state is None:
            return 1 << 60
        if (
            views.is_settled
            and not self._needs_view_check
            and now.mono < self._views_checked_ms + VIEW_CHECK_INTERVAL_MS
        ):
            return 1 << 60
        self._needs_view_check, self._views_checked_ms = False, now.mono
        may_lead = self.bootstrap.admitted and self.bootstrap.is_bootstrapped and not self.closing
        wake = views.poll(may_lead)
        self._send_view_messages()
        self._enter_view(now)
        return wake

    def _send_view_messages(self) -> None:
        """Send the messages of the view change, around a lost link where needed (rule 22)."""
        sends, self.views.sends = self.views.sends, []
        for node, message in sends:
            if node == self.settings.node:
                continue
            self._effects.sends += self.route(node, message)

    def route(self, node: str, message: Message) -> list[OutgoingMessage]:
        """The message to that master, or to those that reach it when the link between the two is lost (rule 22)."""
        if self.failure_detector.is_bidirectional(node) or node not in self.failure_detector.reachable():
            return [OutgoingMessage(node, message, None)]
        return [OutgoingMessage(step, message, None, node) for step in self._next_hops(node)]

    @property
    def executes_to_end(self) -> bool:
        """Workers execute up to the log's end, not only to the stable index: a member is silent, and the view's
        strategy is ``None``."""
        view = self.views.accepted
        if view is None or view.strategy != "None" or self.views.majority_required or not self.views.is_active:
            return False
        return any(not self.is_present(p) for p in self.peers)

    @property
    def needs_split_backup(self) -> bool:
        """A member is silent: before the view may exclude it, a backup of an up-to-date worker must exist (rule 23)."""
        agreement = self.log_state
        return (
            self._backup_missing
            and agreement is not None
            and (self.views.installed or not agreement.truncated_executed_entries)
        )

    @property
    def accepts_earlier_backup(self) -> bool:
        """As :attr:`needs_split_backup`, where no new backup can be made. An accepted view that is not installed has
        truncated entries that workers executed. Its install may never come, because the members that would report it
        may be partitioned. An earlier backup suffices, if its position is on the log."""
        return self._backup_missing and not self.views.installed

    @property
    def _backup_missing(self) -> bool:
        views, view = self.views, self.views.accepted
        if view is None or self.log_state is None or self.views.majority_required or view.strategy == "None":
            return False
        return views.backup_index < 0 and not self.closing and bool(self.silent_members)

    @property
    def silent_members(self) -> list[str]:
        """Members of the view that are silent, or that receive from no member. No posts are sent while the view is
        stopped, so the failure detector decides then."""
        if self.views.is_active:
            return sorted(p.node for p in self.peers if not self.is_present(p))
        most_ms = self.settings.round_timeout_ms
        return sorted(p.node for p in self.peers if self.failure_detector.silent_ms(p.node) > most_ms)

    def check_backup_position(self, index: int, value: bytes, epoch: int) -> None:
        """:class:`OffTheLog` unless every branch that a split can make of this view has this position.

        That is certain at or below the stable index. Another member's stable index may be higher for now, and its
        workers may be there. Entries executed in this view or before are persisted here too. So the position is certain
        when closing the view gives the same hash. ``epoch``: that of the marker; -1 when not known."""
        agreement = self.log_state
        near = agreement is not None and (index <= agreement.stable or 0 <= epoch <= agreement.view.epoch)
        if agreement is None or not near or agreement.hash_if_view_closed(index) != value:
            raise OffTheLog(f"position {index} is not on the part of this master's log that every branch has")

    def on_backup_verified(self, index: int, value: bytes, epoch: int = -1) -> None:
        """Record a verified backup at this position. Raises as :meth:`check_backup_position`."""
        self.check_backup_position(index, value, epoch)
        self.views.backup_index = max(self.views.backup_index, index)

    def apply_settings(self, settings: ProtocolSettings) -> None:
        """Replaces the time-outs and the preferred strategy. All settings that masters have to agree on must be equal.
        A preferred strategy that the view does not know of leads to a view of the same members."""
        mine = self.settings
        assert (settings.node, settings.members, settings.majority) == (mine.node, mine.members, mine.majority)
        assert settings.key_retention_ms == mine.key_retention_ms, "it decides what the log means"
        self.settings = self.views.settings = self.bootstrap.settings = settings
        self._post_schedule.apply_settings(settings)
        self.failure_detector.set_round_timeout(settings.round_timeout_ms)
        self._needs_view_check = True

    def order_bootstrap(self, members: list[str]) -> None:
        """The operator's override: these masters bootstrap the cluster. :class:`Conflict` when it is not valid. It is
        in force, for this start and later ones, once its record is durable."""
        self.bootstrap.order_bootstrap(members)

    def force_view(self, without: list[str]) -> None:
        """The operator's override: continue without these members. :class:`Conflict` when it is not valid. It is in
        force, for this start and later ones, once its record is durable."""
        self._needs_view_check = True
        self.views.force_view(without)

    def report_down(self, node: str, birth: int, start: int) -> None:
        """The supervisor has proved that this process of a member is gone. :class:`Conflict` when a later one was
        seen."""
        self._needs_view_check = True
        self.views.report_down(node, birth, start)

    @property
    def state(self) -> str:
        """``Founding``, ``Learning``, ``Starting``, ``DiskFull``, ``Left``, ``Rejoining`` (a view is being changed, or
        this master has to rejoin), ``Suspected`` (a member is silent), ``Isolated`` (a configured master is
        out because it was silent) or ``Joined``."""
        views = self.views
        if self.log_state is None:
            return "Founding"
        if views.accepted is None:
            return "Learning"
        if not self.bootstrap.admitted:
            return "Starting"
        if self.disk_full:
            return "DiskFull"
        if self._has_left:
            return "Left"
        if not views.is_active or views.newer_view is not None:
            return "Rejoining"
        if not all(self.is_present(p) for p in self.peers):
            return "Suspected"
        return "Isolated" if views.is_isolated else "Joined"
