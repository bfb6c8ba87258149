"""Passes each message to the part of the core that it is for."""

from __future__ import annotations

from txlog.model.errors import PeerFault
from txlog.model.ids import Origin, Txid
from txlog.protocol.events import ClockReading
from txlog.protocol.local_master import LocalMaster
from txlog.protocol.log_lifecycle import LogLifecycle
from txlog.protocol.membership.membership import Membership
from txlog.protocol.message_router import MessageRouter
from txlog.protocol.outbox import Outbox
from txlog.protocol.peer_numbers import PeerNumbers
from txlog.protocol.replication.failure_detector import FailureDetector
from txlog.protocol.replication.fetch_responder import FetchResponder
from txlog.protocol.replication.replication_state import AppendRule
from txlog.protocol.replication.snapshot_install import SnapshotInstaller
from txlog.protocol.views.view_manager import ViewManager
from txlog.protocol.views.view_state import FOREVER_MS
from txlog.wire import messages as wire
from txlog.wire.messages import FetchRuns, Hello, HelloReply, Message, Post, Relay, RunsReply


class MessageDispatcher:
    """A message that is refused is a :class:`PeerFault` of its sender, and no part of it counts."""

    def __init__(
        self,
        local: LocalMaster,
        failure_detector: FailureDetector,
        view_manager: ViewManager,
        membership: Membership,
        lifecycle: LogLifecycle,
        router: MessageRouter,
        outbox: Outbox,
    ) -> None:
        self._local = local
        self._failure_detector = failure_detector
        self._views = view_manager.views
        self._view_manager = view_manager
        self._membership = membership
        self._lifecycle = lifecycle
        self._router = router
        self._outbox = outbox
        self.snapshots = SnapshotInstaller(local, outbox)
        self._responder = FetchResponder(outbox)

    def dispatch(self, peer: str, message: Message, now: ClockReading, contents: dict[Txid, bytes]) -> None:
        """Process one message. ``contents``: content hashes of its transactions that the driver computed itself."""
        if not isinstance(message, Post):
            self._check_numbers(peer, message)
        match message:
            case Post():
                self._on_post(peer, message, now, contents)
            case RunsReply():
                self._on_runs(peer, message, now)
            case Hello():
                self._on_hello(peer, message)
            case HelloReply():
                self._on_hello_reply(peer, message)
            case wire.ProposeBootstrap():
                self._membership.bootstrap.on_propose(peer, message.view, message.forgets)
            case wire.BootstrapAccepted():
                self._membership.bootstrap.on_accepted(message)
            case wire.CommitBootstrap():
                self._membership.bootstrap.on_commit(message.view)
            case Relay():
                self._on_relay(peer, message, now)
            case wire.LogTruncatedBelow():
                self._on_log_truncated(peer, message)
            case wire.SnapshotChunk():
                self._on_snapshot_chunk(peer, message)
            case _:
                self._on_view_change_message(peer, message)

    def serve_fetch(self, peer: str, message: Message) -> bool:
        """Answer a request for what this master has; False for any other message."""
        match message:
            case FetchRuns():
                self._membership.changes.check_listed(peer)
                self._serve_runs(peer, message)
            case wire.FetchOrder():
                self._membership.changes.check_listed(peer)
                self._responder.on_fetch_order(peer, message, self._lifecycle.log)
            case wire.FetchSnapshot():
                self._responder.on_fetch_snapshot(peer, message, self._lifecycle.log)
            case _:
                return False
        return True

    def poll(self, now_ms: int) -> int:
        """Continue with answers that take several turns. Returns the ``mono`` millisecond at which to do it again."""
        return now_ms + 1 if self._responder.poll(self._lifecycle.log) else FOREVER_MS

    def _serve_runs(self, peer: str, asked: FetchRuns) -> None:
        sends = self._router.route(peer, RunsReply([]))
        self._responder.on_fetch_runs([asked.span, *asked.more], self._lifecycle.log, self._views.stamps_view, sends)

    def _on_post(self, peer: str, post: Post, now: ClockReading, contents: dict[Txid, bytes]) -> None:
        if not self._check_view(peer, post, now):
            return
        replication = self._lifecycle.replication
        assert replication is not None, "a view that is active has a log"
        receiver, views = replication.receiver, self._views
        sender = receiver.find_peer(peer, post.claim)
        before = sender.replica_state
        if before is None or before.start != post.claim.start:
            views.record_start(sender.origin, post.claim.start)
        if post.last_start_seen_of_you == self._local.start:
            # Otherwise the sender may accept a proof about an earlier process of this master.
            views.record_confirmed_start(sender.origin, post.claim.start)
        starts: list[tuple[Origin, int]] = []
        try:
            receiver.on_post(sender, post, now, self.append_rule, contents, starts)
        finally:
            for origin, start in starts:
                views.record_start(origin, start)

    def _check_view(self, peer: str, post: Post, now: ClockReading) -> bool:
        """Whether a post of this view counts now. No post is merged after a report was sent (rule 21)."""
        views = self._views
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
                self._membership.bootstrap.on_commit(view)
            self._lifecycle.enter_view(now)
        return views.is_active

    def _on_runs(self, peer: str, message: RunsReply, now: ClockReading) -> None:
        replication = self._lifecycle.replication
        if replication is not None:
            self._view_manager.backfill.on_runs(peer, message, replication.state.schedule, now.mono)

    def _on_view_change_message(self, peer: str, message: Message) -> None:
        """Process a message of a view change, sent by ``peer`` itself or relayed for it."""
        self._membership.changes.check_listed(peer)
        views, departure = self._views, self._membership.departure
        views.needs_check = True
        if not self._membership.bootstrap.admitted and views.accepted is not None:
            return  # it votes for nothing yet
        match message:
            case wire.ProposeView() | wire.AcceptView() if departure.has_left:
                departure.send_notice([peer])  # what it stays with until its process ends
            case wire.LeaveNotice():
                if departure.on_notice(peer, message):
                    self._view_manager.coordinator.on_leaving(message)
                    self._outbox.send(peer, message)
            case _:
                if isinstance(message, wire.AcceptView) and message.view.number == views.promised:
                    self._lifecycle.become_learner(message.view.cluster_id)
                self._view_manager.on_message(peer, message)
        self._router.flush()

    def _on_relay(self, peer: str, relay: Relay, now: ClockReading) -> None:
        """Rule 22: pass the message on, or process what was relayed to this master."""
        if not self._router.pass_on(peer, relay):
            return
        message = wire.decode(peer, relay.message)
        self._check_numbers(peer, message)
        if isinstance(message, FetchRuns):
            self._serve_runs(relay.path[0], message)
        elif isinstance(message, RunsReply):
            self._on_runs(relay.path[0], message, now)
        elif isinstance(message, wire.LogTruncatedBelow):
            self._on_log_truncated(peer, message)  # any other's snapshot will do, and this peer's link works
        else:
            self._on_view_change_message(relay.path[0], message)

    def _check_numbers(self, peer: str, message: Message) -> None:
        PeerNumbers(peer, self._local.clock, self._lifecycle.last_stamp).check(message)

    def _on_hello(self, peer: str, who: Hello) -> None:
        if peer == self._local.node or who.node != peer:
            raise PeerFault(peer, "UnknownPeer", f"it calls itself {who.node}")
        self._membership.handshake.on_hello(peer, who, self._lifecycle.peers)

    def _on_hello_reply(self, peer: str, known: HelloReply) -> None:
        if known.node != peer:
            raise PeerFault(peer, "UnknownPeer", f"it calls itself {known.node}")
        self._local.clock.on_peer_clock(peer, known.clock_ms)
        self._local.peer_levels.on_level(peer, known.level)
        self._membership.changes.check_removed(known)
        bootstrap = self._membership.bootstrap
        bootstrap.on_hello_reply(known, self._lifecycle.last_own_seq, self._lifecycle.last_stamp)
        self._views.needs_check = True
        self._views.on_hello_reply(known)
        if bootstrap.cluster and known.accepted is not None:
            self._lifecycle.become_learner(known.accepted.cluster_id)

    def _on_log_truncated(self, peer: str, below: wire.LogTruncatedBelow) -> None:
        log = self._lifecycle.learner_log
        if log is not None:
            self.snapshots.on_log_truncated(peer, below, log, self._failure_detector.now_ms)

    def _on_snapshot_chunk(self, peer: str, chunk: wire.SnapshotChunk) -> None:
        log = self._lifecycle.learner_log
        if log is not None and self.snapshots.on_chunk(peer, chunk, log, self._failure_detector.now_ms):
            self._views.needs_check = True

    @property
    def append_rule(self) -> AppendRule:
        """Which members must hold a transaction before it enters the log now."""
        views = self._views
        if not self._membership.bootstrap.admitted or not views.is_active or views.newer_view is not None:
            return AppendRule.NOT_NOW
        return AppendRule.ALL_MEMBERS if views.majority_required else AppendRule.PRESENT_MEMBERS
