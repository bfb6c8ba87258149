"""The core of a master: messages, submissions and the passing of time in; records and messages out.

It has no clock, no random source, no I/O and no dependence on hash order (rule 31). It changes its state as if all its
output were durable. The caller makes that true by releasing nothing before it is (``README.md``).
"""

from __future__ import annotations

from typing import Final

from txlog.model.configuration import Configuration
from txlog.model.entry import KIND_CONFIG
from txlog.model.errors import OffTheLog, PeerFault, Refused, Unavailable
from txlog.model.ids import Origin, Txid
from txlog.model.master_state import MasterState
from txlog.model.records import LogStart, RecoveredState
from txlog.model.view import NO_VIEW, Number, View
from txlog.protocol.events import (
    NO_EFFECTS,
    NOT_TRUNCATED,
    ClockReading,
    DurabilityMarks,
    Effects,
    OutgoingMessage,
    ProtocolSettings,
    Submission,
    SubmissionAccepted,
)
from txlog.protocol.local_master import LocalMaster
from txlog.protocol.log.log_state import NO_CONTENTS, LogState
from txlog.protocol.log.log_trim import RetentionPosition, TrimDecision, decide_trim
from txlog.protocol.master_state import InView, Learner, LogPhase, MasterFacts, NoLog, log_of, state_of
from txlog.protocol.membership.handshake import build_hello, build_hello_reply
from txlog.protocol.membership.membership import Membership
from txlog.protocol.outbox import Outbox
from txlog.protocol.replication.durability_marks import compute_marks
from txlog.protocol.replication.failure_detector import FailureDetector
from txlog.protocol.replication.fetch_responder import FetchResponder
from txlog.protocol.replication.peer_progress import PeerProgress
from txlog.protocol.replication.replication import Replication
from txlog.protocol.replication.replication_state import AppendRule, ReplicationState, learner_log
from txlog.protocol.replication.snapshot_install import SnapshotInstaller
from txlog.protocol.views.view_manager import ViewManager
from txlog.protocol.views.view_state import FOREVER_MS, ViewState
from txlog.wire import messages as wire
from txlog.wire.messages import Checkpoint, FetchRuns, Hello, HelloReply, Message, Post, Relay, RunsReply

VIEW_CHECK_INTERVAL_MS: Final = 20
"""How often the core checks for silent members, in milliseconds, while no message bears on the view."""
_NOT_ENTERED: Final[tuple[Number, bool]] = (NO_VIEW, False)


class Core:
    """One master. It dispatches messages to its parts and acts when time passes.

    ``phase`` has the log and its replication, once there is one. ``views`` is the view and what is known of the other
    masters, ``view_manager`` changes it, ``membership`` begins, changes and leaves the cluster. All parts share
    ``local``, ``failure_detector`` and ``outbox``."""

    def __init__(self, settings: ProtocolSettings, recovered: RecoveredState, now: ClockReading) -> None:
        self.local = LocalMaster(settings, recovered.birth, recovered.start)
        self.outbox = Outbox()
        self.failure_detector = FailureDetector(settings.node, settings.round_timeout_ms, now.mono)
        self.views = ViewState(self.local, recovered, self.failure_detector, self.outbox)
        self.view_manager = ViewManager(self.views)
        self.membership = Membership(self.local, self.views, self.outbox, now.mono)
        self.snapshots = SnapshotInstaller(self.local, self.outbox)
        self.phase: LogPhase = NoLog(recovered)
        self._responder = FetchResponder(self.outbox)
        self._ceiling = recovered.ceiling
        self._entered = _NOT_ENTERED
        self._marks = DurabilityMarks(0, 0, 0, 0, 0)
        self._views_checked_ms = -FOREVER_MS
        self._hello_sent_ms = -FOREVER_MS
        self._enter_view(now)

    # What it is

    @property
    def settings(self) -> ProtocolSettings:
        """The settings in effect."""
        return self.local.settings

    @property
    def birth(self) -> int:
        """This master's incarnation."""
        return self.local.birth

    @property
    def start(self) -> int:
        """The number of this process."""
        return self.local.start

    @property
    def replication(self) -> Replication | None:
        """The exchange with the other members; None without a log."""
        return None if isinstance(self.phase, NoLog) else self.phase.replication

    @property
    def log_state(self) -> LogState | None:
        """This master's log and queue; None before it is in a view or follows one."""
        return log_of(self.phase)

    @property
    def peers(self) -> list[PeerProgress]:
        """The other members of the latest view."""
        return [] if isinstance(self.phase, NoLog) else self.phase.replication.state.peers

    @property
    def view(self) -> View | None:
        """The latest view of this master; None without a log."""
        log = self.log_state
        return log.view if log is not None else None

    @property
    def state(self) -> MasterState:
        """What this master does now."""
        views = self.views
        return state_of(
            MasterFacts(
                has_log=not isinstance(self.phase, NoLog),
                has_view=views.accepted is not None,
                is_admitted=self.membership.bootstrap.admitted,
                has_room=not self.local.disk_full,
                stays=not self.membership.departure.has_left,
                view_active=views.is_active and views.newer_view is None,
                all_present=all(self.is_present(peer) for peer in self.peers),
                is_complete=not views.is_isolated,
            )
        )

    @property
    def disk_full(self) -> bool:
        """The disk has no room for transactions, as the driver last reported."""
        return self.local.disk_full

    @property
    def closing(self) -> bool:
        """This master takes no more work: its process ends."""
        return self.membership.departure.closing

    @property
    def removed(self) -> bool:
        """The configuration has removed this master, for good."""
        return self.membership.follower.removed

    @property
    def clock_skewed(self) -> bool:
        """This master's clock is out of all proportion to its peers' (rule 6)."""
        return not isinstance(self.phase, NoLog) and self.phase.replication.state.clock_skewed

    @property
    def configuration(self) -> Configuration | None:
        """The configuration in force where this master's log is stable; None before the cluster is bootstrapped."""
        return self.membership.changes.configuration

    @property
    def pending_change(self) -> Txid | None:
        """A change that waits for its index, or whose index is not stable yet."""
        return self.membership.changes.pending_change

    @property
    def is_leave_done(self) -> bool:
        """Whether the process may end: a staying member has acknowledged the leave notice, or no member stays."""
        replication = self.replication
        return self.membership.departure.is_done(replication.state if replication is not None else None)

    def is_present(self, peer: PeerProgress) -> bool:
        """A message of the peer arrived within the round time-out, and the peer receives from this master. A guess;
        safety never depends on it (rule 14)."""
        return not isinstance(self.phase, NoLog) and self.phase.replication.state.is_present(peer)

    def check_listed(self, peer: str) -> None:
        """:class:`PeerFault` for unknown and removed masters, once there is a log to know them by."""
        self.membership.changes.check_listed(peer)

    # Messages

    def receive(
        self,
        peer: str,
        message: Message,
        now: ClockReading,
        room_for_work: bool,
        contents: dict[Txid, bytes] = NO_CONTENTS,
    ) -> None:
        """Process one message from an authenticated peer. ``room_for_work``: the disk has room for transactions.
        ``contents``: content hashes of its transactions that the driver computed itself. :class:`PeerFault` when the
        message is refused: no part of it counts. :class:`Fatal` when this process must end."""
        if self._serve_fetch(peer, message):
            return
        self.local.disk_full = not room_for_work
        if not isinstance(self.phase, NoLog):
            self.phase.replication.state.tick(now.mono)
        self.failure_detector.tick(now.mono)
        self.failure_detector.on_message(peer)
        bootstrap = self.membership.bootstrap
        match message:
            case Post():
                self._on_post(peer, message, now, contents)
            case RunsReply():
                self._on_runs(message, now)
            case Hello():
                self._on_hello(peer, message)
            case HelloReply():
                self._on_hello_reply(peer, message)
            case wire.ProposeBootstrap():
                bootstrap.on_propose(peer, message.view)
            case wire.BootstrapAccepted():
                bootstrap.on_accepted(message)
            case wire.CommitBootstrap():
                bootstrap.on_commit(message.view)
            case Relay():
                self._on_relay(peer, message, now)
            case wire.LogTruncatedBelow():
                self._on_log_truncated(peer, message)
            case wire.SnapshotChunk():
                self._on_snapshot_chunk(peer, message)
            case _:
                self._on_view_change_message(peer, message)
        self._enter_view(now)
        self._advance()

    def _serve_fetch(self, peer: str, message: Message) -> bool:
        """Answer a request for what this master has; False for any other message."""
        match message:
            case FetchRuns():
                self.check_listed(peer)
                self._serve_runs(peer, message)
            case wire.FetchOrder():
                self.check_listed(peer)
                self._responder.on_fetch_order(peer, message, self.log_state)
            case wire.FetchSnapshot():
                self._responder.on_fetch_snapshot(peer, message, self.log_state)
            case _:
                return False
        return True

    def _serve_runs(self, peer: str, asked: FetchRuns) -> None:
        sends = self.route(peer, RunsReply([]))
        self._responder.on_fetch_runs(asked.span, self.log_state, self.views.stamps_view, sends)

    def _on_post(self, peer: str, post: Post, now: ClockReading, contents: dict[Txid, bytes]) -> None:
        if not self._check_view(peer, post, now):
            return
        replication = self.replication
        assert replication is not None, "a view that is active has a log"
        receiver, views = replication.receiver, self.views
        sender = receiver.find_peer(peer, post.claim)
        before = sender.replica_state
        if before is None or before.start != post.claim.start:
            views.record_start(sender.origin, post.claim.start)
        if post.last_start_seen_of_you == self.start:
            # Otherwise the sender may accept a proof about an earlier process of this master.
            views.record_confirmed_start(sender.origin, post.claim.start)
        starts: list[tuple[Origin, int]] = []
        try:
            receiver.on_post(sender, post, now, self._append_rule, contents, starts)
        finally:
            for origin, start in starts:
                views.record_start(origin, start)

    def _check_view(self, peer: str, post: Post, now: ClockReading) -> bool:
        """Whether a post of this view counts now. No post is merged after a report was sent (rule 21)."""
        views = self.views
        view = views.accepted
        if view is None:
            raise PeerFault(peer, "OtherView", "this master belongs to no cluster yet")
        if post.cluster != view.cluster_id:
            raise PeerFault(
                peer, "OtherCluster", f"its cluster is {post.cluster.hex()}, this one {view.cluster_id.hex()}"
            )
        number = (post.epoch, post.ballot, post.coordinator)
        if number != view.number:
            views.observe_number(number)
            raise PeerFault(
                peer, "OtherView", f"it posts in view {post.epoch}.{post.ballot}, this master is in {view.number}"
            )
        if not views.installed:
            if view.ancestors:
                views.mark_installed()
            else:
                self.membership.bootstrap.on_commit(view)
            self._enter_view(now)
        return views.is_active

    def _on_runs(self, message: RunsReply, now: ClockReading) -> None:
        replication = self.replication
        if replication is not None:
            self.view_manager.backfill.on_runs(message, replication.state.schedule, now.mono)

    def _on_view_change_message(self, peer: str, message: Message) -> None:
        """Process a message of a view change, sent by ``peer`` itself or relayed for it."""
        self.check_listed(peer)
        views, departure = self.views, self.membership.departure
        views.needs_check = True
        if not self.membership.bootstrap.admitted and views.accepted is not None:
            return  # it votes for nothing yet
        match message:
            case wire.ProposeView() | wire.AcceptView() if departure.has_left:
                departure.send_notice([peer])  # what it stays with until its process ends
            case wire.LeaveNotice():
                if departure.on_notice(peer, message):
                    self.view_manager.coordinator.on_leaving(message)
                    self.outbox.send(peer, message)
            case _:
                if isinstance(message, wire.AcceptView) and message.view.number == views.promised:
                    self._become_learner(message.view.cluster_id)
                self.view_manager.on_message(peer, message)
        self._flush_routed()

    def _on_relay(self, peer: str, relay: Relay, now: ClockReading) -> None:
        """Rule 22: pass the message to its target, or one hop on; each message passes a master once."""
        if not relay.path or len(relay.path) > len(self.views.configured_members):
            raise PeerFault(peer, "Malformed", "a forwarded message without a path that fits")
        if relay.target == self.local.node:
            message = wire.decode(peer, relay.message)
            if isinstance(message, FetchRuns):
                self._serve_runs(relay.path[0], message)
            elif isinstance(message, RunsReply):
                self._on_runs(message, now)
            elif isinstance(message, wire.LogTruncatedBelow):
                self._on_log_truncated(peer, message)  # any other's snapshot will do, and this peer is next to here
            else:
                self._on_view_change_message(relay.path[0], message)
            return
        if self.local.node in relay.path:
            return
        onward = Relay(relay.target, [*relay.path, self.local.node], relay.message)
        for node in self._next_hops(relay.target):
            if node not in relay.path:
                self.outbox.send(node, onward)

    def _next_hops(self, target: str) -> list[str]:
        detector = self.failure_detector
        if detector.is_bidirectional(target):
            return [target]
        return [node for node in self.membership.bootstrap.others if node != target and detector.is_bidirectional(node)]

    def route(self, node: str, message: Message) -> list[OutgoingMessage]:
        """The message to that master, or to those that reach it when the link between the two is lost (rule 22)."""
        if self.failure_detector.is_bidirectional(node) or node not in self.failure_detector.reachable():
            return [OutgoingMessage(node, message, None)]
        return [OutgoingMessage(step, message, None, node) for step in self._next_hops(node)]

    def _flush_routed(self) -> None:
        routed, self.outbox.routed = self.outbox.routed, []
        for node, message in routed:
            if node != self.local.node:
                self.outbox.sends += self.route(node, message)

    def _on_hello(self, peer: str, who: Hello) -> None:
        if peer == self.local.node or who.node != peer:
            raise PeerFault(peer, "UnknownPeer", f"it calls itself {who.node}")
        if not who.cluster:
            self.membership.bootstrap.check_members(peer, who.members)
        try:
            self.check_listed(peer)
        except PeerFault:
            if who.cluster:
                self.outbox.send(peer, build_hello_reply(who, self.views, self.peers))  # so that it knows
            raise
        self.views.needs_check = True
        self.outbox.send(peer, build_hello_reply(who, self.views, self.peers))
        log = self.log_state
        if log is not None and who.view == NO_VIEW and who.log_index < log.log_index.start:
            # The master may lack no payload and request nothing, and yet be below what was trimmed meanwhile.
            self.outbox.send(peer, wire.LogTruncatedBelow(log.log_index.start, log.log_index.log_start_hash))
        self.views.on_hello(who)

    def _on_hello_reply(self, peer: str, known: HelloReply) -> None:
        if known.node != peer:
            raise PeerFault(peer, "UnknownPeer", f"it calls itself {known.node}")
        self.membership.changes.check_removed(known)
        bootstrap = self.membership.bootstrap
        bootstrap.on_hello_reply(known, self._own_seq(), self._last_stamp())
        self.views.needs_check = True
        self.views.on_hello_reply(known)
        if bootstrap.cluster and known.accepted is not None:
            self._become_learner(known.accepted.cluster_id)

    def _own_seq(self) -> int:
        """The last own seq, with a log or without."""
        if not isinstance(self.phase, NoLog):
            return self.phase.replication.log.last_own_seq
        recovered = self.phase.recovered
        queued = [q.first_seq + len(q.stamps) - 1 for q in recovered.queued if q.birth == self.birth]
        logged = [s.first_seq + s.count - 1 for s in recovered.log_spans if s.birth == self.birth]
        return max([recovered.log_start.last_seq_of(self.local.node, self.birth), *queued, *logged])

    def _last_stamp(self) -> int:
        log = self.log_state
        return log.last_stamp if log is not None else self._ceiling

    def _on_log_truncated(self, peer: str, below: wire.LogTruncatedBelow) -> None:
        if isinstance(self.phase, Learner):
            self.snapshots.on_log_truncated(peer, below, self.phase.replication.log, self.failure_detector.now_ms)

    def _on_snapshot_chunk(self, peer: str, chunk: wire.SnapshotChunk) -> None:
        if isinstance(self.phase, Learner):
            log, now_ms = self.phase.replication.log, self.failure_detector.now_ms
            if self.snapshots.on_chunk(peer, chunk, log, now_ms):
                self.views.needs_check = True

    # The view

    def _enter_view(self, now: ClockReading) -> None:
        """After a start, an accept or an install: replication begins with the members of the latest view."""
        views, view = self.views, self.views.accepted
        if view is None or not (views.installed or view.ancestors):
            return
        entered = (view.number, views.installed)
        if entered == self._entered:
            return
        self._entered = entered
        if isinstance(self.phase, NoLog):
            recovered = self.phase.recovered
            log = LogState(
                self.local.origin, view, recovered, self.settings.key_retention_ms, records=self.outbox.records
            )
            replication = self._begin_replication(log)
        else:
            replication = self.phase.replication
        replication.log.installed = views.installed
        self.phase = InView(replication)
        replication.state.enter_view(view, views.installed, now)

    def _become_learner(self, cluster: bytes) -> None:
        """A master without a log follows the cluster."""
        if isinstance(self.phase, NoLog):
            log = learner_log(self.local, self.phase.recovered, cluster, self.outbox)
            self.phase = Learner(self._begin_replication(log))

    def _begin_replication(self, log: LogState) -> Replication:
        self.views.log_state = log
        return Replication(ReplicationState(self.local, self.failure_detector, self.outbox, log, self._ceiling))

    @property
    def _append_rule(self) -> AppendRule:
        views = self.views
        if not self.membership.bootstrap.admitted or not views.is_active or views.newer_view is not None:
            return AppendRule.NOT_NOW
        return AppendRule.ALL_MEMBERS if views.majority_required else AppendRule.PRESENT_MEMBERS

    def _advance(self) -> None:
        if not isinstance(self.phase, NoLog):
            self.phase.replication.committer.advance(self._append_rule)

    # Time

    def poll(self, now: ClockReading) -> int:
        """Send the posts that are due, after time has passed or input was taken. Returns the ``mono`` millisecond
        at which to poll again, if no input comes before."""
        if not isinstance(self.phase, NoLog):
            self.phase.replication.state.tick(now.mono)
        self.failure_detector.tick(now.mono)
        bootstrap, departure = self.membership.bootstrap, self.membership.departure
        bootstrap.poll(now.mono)
        self._enter_view(now)
        wake = min(self._send_hellos(now), self._poll_views(now))
        replication = self.replication
        if replication is None or not bootstrap.admitted or not self.views.is_active:
            nodes = [peer.node for peer in self.peers]
            return min(wake, bootstrap.next_ms(now.mono), departure.resend_or_leave(nodes, now))
        self._advance()
        last = self.membership.follower.apply(replication.state, now)
        if last is not None:
            self.submit([last], now, not self.disk_full)
        wake = min(wake, bootstrap.next_ms(now.mono), departure.leave_when_replicated(replication.state, now))
        if not self.views.is_active:
            return wake
        return min(wake, self._send_posts(replication, now), replication.sender.fetch_missing())

    def _send_posts(self, replication: Replication, now: ClockReading) -> int:
        """Send the posts that are due. Returns when the next one is."""
        wake = FOREVER_MS
        for peer in replication.peers:
            due_ms = replication.post_due_ms(peer, now)
            if due_ms <= now.mono or peer.reply_due:
                last_start = self.views.last_start_seen(peer.origin)
                replication.sender.send_post(peer, now, due_ms <= now.mono, last_start)
                due_ms = replication.state.schedule.due_ms(replication.log, peer)
            wake = min(wake, max(due_ms, now.mono + 1))
        return wake

    def _send_hellos(self, now: ClockReading) -> int:
        """Send this master's hello to the others, which asks for theirs, while the view is not settled."""
        views, bootstrap, settings = self.views, self.membership.bootstrap, self.settings
        if not bootstrap.others or self.membership.departure.has_left:
            return FOREVER_MS
        silent = any(not self.is_present(p) for p in self.peers)
        if not silent:
            views.forget_backup()
        outside = len(self.peers) + 1 < len(views.configured_members)
        is_settled = bootstrap.is_finished and views.is_settled
        if is_settled and not silent and not outside:
            return now.mono + settings.round_timeout_ms
        every = settings.idle_interval_ms if is_settled else settings.repeat_ms
        if now.mono >= self._hello_sent_ms + every:
            self._hello_sent_ms = now.mono
            who = build_hello(views)
            for node in bootstrap.others:
                self.outbox.send(node, who)
        return self._hello_sent_ms + every

    def _poll_views(self, now: ClockReading) -> int:
        views, bootstrap = self.views, self.membership.bootstrap
        if not bootstrap.is_bootstrapped and views.accepted is None and isinstance(self.phase, NoLog):
            return FOREVER_MS
        is_checked = now.mono < self._views_checked_ms + VIEW_CHECK_INTERVAL_MS
        if views.is_settled and not views.needs_check and is_checked:
            return FOREVER_MS
        views.needs_check, self._views_checked_ms = False, now.mono
        wake = self.view_manager.poll(bootstrap.admitted and bootstrap.is_bootstrapped and not self.closing)
        self._flush_routed()
        self._enter_view(now)
        return wake

    # Output

    def drain(self) -> Effects:
        """The output since the last call. Its ``records`` go to the journal before the rest of it leaves."""
        outbox, marks, truncated_to = self.outbox, self._marks, NOT_TRUNCATED
        if not isinstance(self.phase, NoLog):
            log = self.phase.replication.log
            truncated_to = log.take_truncation()
            if truncated_to != NOT_TRUNCATED:  # equal numbers would not be the same log
                self._marks = self._marks._replace(log=-1)
            marks = compute_marks(self._marks, log, self.peers, self.local.node, self.views.configured_members)
        changed = marks is not self._marks
        if not (changed or outbox.records or outbox.sends or outbox.reads):
            return NO_EFFECTS
        self._marks = marks
        effects = Effects(outbox.records.copy(), outbox.sends, marks if changed else None, outbox.reads, truncated_to)
        outbox.records.clear()  # the log appends to this very list
        outbox.sends, outbox.reads = [], []
        return effects

    # Clients

    def submit(
        self, batch: list[Submission], now: ClockReading, room_for_work: bool
    ) -> list[SubmissionAccepted | Refused]:
        """Give txids and stamps to transactions, in order; answer ``i`` is that of transaction ``i``. A batch is taken
        as a whole, or refused as a whole when this master takes no work (:class:`Unavailable`)."""
        self.local.disk_full = not room_for_work
        refusal = self._admission_error()
        if refusal is None and not isinstance(self.phase, NoLog):
            submissions = self.phase.replication.submissions
            refusal = submissions.queue_full_error(len(batch))
            if refusal is None:
                return submissions.submit(batch, self._refusals(batch), self.views.is_stopped, now)
        assert refusal is not None
        return [refusal] * len(batch)

    def _admission_error(self) -> Refused | None:
        """Why this master takes no work."""
        if self.closing:
            return Unavailable("Closing", "this master is stopping; ask another one")
        if isinstance(self.phase, NoLog):
            return Unavailable("NotFounded", "the cluster is not founded yet: every configured master must answer once")
        if self.views.accepted is None:
            return Unavailable("Learning", "this master has no journal of its own yet and catches up; ask another one")
        if not self.membership.bootstrap.admitted:
            return Unavailable("Starting", "this master asks its peers what they last heard of it")
        if self.local.disk_full:
            return Unavailable("DiskFull", "no room for new transactions on this master's disk; make room there", 10)
        return None

    def _refusals(self, batch: list[Submission]) -> list[Refused | None]:
        """Per transaction, why the configuration does not let it in."""
        changes = self.membership.changes
        write_error = changes.write_error()
        refusals: list[Refused | None] = []
        has_change = False
        for one in batch:
            if one.kind == KIND_CONFIG:
                refusals.append(changes.change_error(one, has_change))
                has_change = True
            else:
                refusals.append(write_error)
        return refusals

    def prepare_change(self, wanted: Configuration, why: str) -> Submission:
        """The submission that makes ``wanted`` follow the configuration in force. :class:`BadInput` when ``wanted`` is
        not valid, :class:`ChangePending`, or :class:`Conflict` where there is no configuration to change yet."""
        return self.membership.changes.prepare_change(wanted, why)

    # Workers and backups

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
        log = self.log_state
        return self._backup_missing and log is not None and (self.views.installed or not log.truncated_executed_entries)

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
        log = self.log_state
        near = log is not None and (index <= log.stable or 0 <= epoch <= log.view.epoch)
        if log is None or not near or log.hash_if_view_closed(index) != value:
            raise OffTheLog(f"position {index} is not on the part of this master's log that every branch has")

    def on_backup_verified(self, index: int, value: bytes, epoch: int = -1) -> None:
        """Record a verified backup at this position. Raises as :meth:`check_backup_position`."""
        self.check_backup_position(index, value, epoch)
        self.views.record_backup(index)

    # Trimming

    def decide_trim(self, positions: list[RetentionPosition], keep_from: int) -> TrimDecision:
        """How far the log may be trimmed (rule 19). ``positions`` has all workers of all data centres and all backups;
        the entries after ``keep_from`` are kept in any case."""
        replication = self.replication
        if replication is None:
            return TrimDecision(0, 0, [])
        views = self.views
        masters = [m.node for m in views.configured_members]
        decision = decide_trim(replication.log, positions, masters, self._log_positions(replication), keep_from)
        if not views.is_active or views.newer_view is not None or views.change is not None:
            return decision._replace(trim_to=decision.start)
        return decision

    def _log_positions(self, replication: Replication) -> dict[str, Checkpoint]:
        """The known positions: members report them in their posts, masters outside the view in their hellos."""
        state = replication.state
        state.record_peer_positions()
        births = {peer.node: peer.origin.birth for peer in state.peers}
        for who in self.views.candidates:
            if births.get(who.node) != who.birth:
                state.known_log_positions[who.node] = Checkpoint(who.log_index, who.log_hash)
        return state.known_log_positions

    def trim(self, start: LogStart) -> None:
        """Discard the log up to this log start, as :meth:`decide_trim` allows."""
        replication = self.replication
        assert replication is not None, "only a log is trimmed"
        replication.log.trim(start)
        own = start.last_seq_of(*self.local.origin)
        for peer in replication.peers:
            peer.on_log_trimmed(own)

    # Orders of the driver and the operator

    def apply_settings(self, settings: ProtocolSettings) -> None:
        """Replace the time-outs and the preferred strategy. All settings that masters have to agree on must be equal.
        A preferred strategy that the view does not know of leads to a view of the same members."""
        mine = self.settings
        assert (settings.node, settings.members, settings.majority) == (mine.node, mine.members, mine.majority)
        assert settings.key_retention_ms == mine.key_retention_ms, "it decides what the log means"
        self.local.settings = settings
        self.failure_detector.set_round_timeout(settings.round_timeout_ms)
        self.views.needs_check = True

    def order_bootstrap(self, members: list[str]) -> None:
        """The operator's override: these masters bootstrap the cluster. :class:`Conflict` when it is not valid. It is
        in force, for this start and later ones, once its record is durable."""
        self.membership.bootstrap.order_bootstrap(members)

    def force_view(self, without: list[str]) -> None:
        """The operator's override: continue without these members. :class:`Conflict` when it is not valid. It is in
        force, for this start and later ones, once its record is durable."""
        self.views.needs_check = True
        self.views.force_view(without)

    def report_down(self, node: str, birth: int, start: int) -> None:
        """The supervisor has proved that this process of a member is gone. :class:`Conflict` when a later one was
        seen."""
        self.views.needs_check = True
        self.views.report_down(node, birth, start)

    def leave(self, now: ClockReading, timeout_ms: int) -> None:
        """Take no more work, and leave the view; see :meth:`DepartureHandler.leave`."""
        self.membership.departure.leave(now, timeout_ms)
