"""Receives the posts and the transactions of other masters (rules 9, 10, 22)."""

from __future__ import annotations

from txlog.model.errors import Fatal, PeerFault
from txlog.model.ids import Origin, Txid
from txlog.protocol.events import ClockReading
from txlog.protocol.peer_numbers import check_run
from txlog.protocol.replication.commit import LogCommitter
from txlog.protocol.replication.peer_progress import PeerProgress, PushEvent
from txlog.protocol.replication.replication_state import AppendRule, ReplicationState
from txlog.wire.messages import Post, ReplicaState


class PostReceiver:
    """A post is accepted as a whole or rejected. A bad post is the named fault of its sender."""

    def __init__(self, state: ReplicationState, committer: LogCommitter) -> None:
        self.state = state
        self._committer = committer

    def on_post(
        self,
        sender: PeerProgress,
        post: Post,
        now: ClockReading,
        rule: AppendRule,
        contents: dict[Txid, bytes],
        starts: list[tuple[Origin, int]],
    ) -> None:
        """Merge a post of the active view. ``contents``: content hashes that the driver computed itself. ``starts``
        receives the processes of other members that the post relays; it is filled also when the post is rejected."""
        state = self.state
        log = state.log
        if post.order and max(post.order) >= len(log.queues):
            raise PeerFault(sender.node, "Malformed", "an order with a slot that the view does not have")
        known = sender.replica_state
        state.local.clock.on_peer_clock(sender.node, post.clock_ms)
        self._check_counter(sender, post.claim)
        for run in post.runs:
            check_run(sender.node, run, post.claim.counter)
        sender.on_push_event(PushEvent.POSTED_FULL if known is not None and known.full else PushEvent.POSTED)
        if not state.local.disk_full:
            for run in post.runs:
                if log.persist_replicated(run, contents=contents):
                    state.schedule.on_foreign_transactions(now.mono)
        if not self._update_peer(sender, post.claim, now, direct=True):
            if post.ask and sender.replica_state is not None and post.claim.start == sender.replica_state.start:
                # A later post overtook this one, which arrived all the same.
                sender.reply_due = max(sender.reply_due, post.claim.number)
            return
        for claim in post.relays:
            self._update_from_relay(claim, now, starts)
        if post.order:
            log.append_from_peer(post.order_after, post.order, post.order_hash)
        sender.held_of_mine = sender.held_seq(state.slot)
        if post.answers:
            sender.on_reply(post.answers, sender.held_of_mine)
            state.failure_detector.on_reply(sender.node)
        self._committer.advance(rule)
        if post.ask:
            sender.reply_due = post.claim.number

    def _check_counter(self, peer: PeerProgress, claim: ReplicaState) -> None:
        """Check the counter before anything of the claim counts: a counter that is merged is a promise of this master,
        too. One that is far ahead of all known clocks counts only when a later post confirms it (rule 9)."""
        local, counter = self.state.local, self.state.log.last_stamp
        local.clock.check_stamp(peer.node, claim.counter, counter)
        if local.clock.is_doubtful(
            claim.counter, counter, local.settings.max_clock_skew_ms
        ) and not peer.repeats_doubted(claim):
            raise PeerFault(
                peer.node, "CounterJumped", f"counter {claim.counter} is far ahead of every clock known here: ask again"
            )

    def _record_connectivity(self, peer: PeerProgress, claim: ReplicaState) -> None:
        """Record the peers that the sender receives from, directly or through others. Masters that receive its posts
        only through others also learn from it that a master receives nothing (rule 22). A hello covers only the
        sender's own links."""
        heard_by, noted = peer.last_heard
        bits = (claim.heard, claim.heard_members)
        if heard_by == bits and self.state.failure_detector.peers_heard_by(peer.node) is noted:
            return
        heard = [p.node for p in self.state.peers if claim.has_heard(p.slot, p.place)]
        if claim.has_heard(self.state.slot, self.state.place):
            heard.append(self.state.local.node)
        peer.last_heard = (bits, heard)
        self.state.failure_detector.on_reachable_peers(peer.node, heard)

    def find_peer(self, node: str, claim: ReplicaState) -> PeerProgress:
        """The member of the view that this claim of ``node`` is about; :class:`PeerFault` for none."""
        for peer in self.state.peers:
            if peer.node == node:
                if claim.slot != peer.slot or claim.birth != peer.origin.birth:
                    raise PeerFault(node, "UnknownBirth", f"birth {claim.birth:016x} is no member of this view")
                return peer
        raise PeerFault(node, "UnknownPeer", "it is no member of this view")

    def _update_peer(self, peer: PeerProgress, claim: ReplicaState, now: ClockReading, direct: bool) -> bool:
        log = self.state.log
        if len(claim.held) != len(log.queues):
            raise PeerFault(peer.node, "Malformed", "a vector of another length than the view")
        if claim.held[self.state.slot] > log.own.held:
            raise Fatal(
                "OldJournal",
                f"{peer.node} holds seq {claim.held[self.state.slot]} of this master, "
                f"whose journal ends at {log.own.held}",
            )
        self._check_reaches_log_start(peer, claim)
        restarted = peer.replica_state is not None and claim.start > peer.replica_state.start
        news = peer.update(claim, now.mono)
        if restarted and direct:
            peer.in_flight.clear()
            peer.pushed = min(peer.pushed, claim.held[self.state.slot])
        if news:
            self._record_connectivity(peer, claim)
            log.raise_last_stamp(claim.counter)
            self.state.local.clock.on_peer_counter()
            self.state.schedule.on_new_state()
        return news

    def _check_reaches_log_start(self, peer: PeerProgress, claim: ReplicaState) -> None:
        """Check that the claim is not below the log start. Every member had durably passed the trimmed entries (rule
        19). A process without an earlier claim of this member cannot see by rule 9 that such a claim is a step back.
        The claim must not count, and the member must not be sent what is gone. It may be a late message, so it is no
        lasting fault of this peer."""
        start = self.state.log.log_index.start
        if peer.replica_state is None and claim.log_index < start:
            raise PeerFault(
                peer.node,
                "BelowFoot",
                f"start {claim.start} post {claim.number} claims a log of {claim.log_index}; it had come by {start}, "
                "where the log here begins: its disk is older than its word; it must not vote",
            )

    def _update_from_relay(self, claim: ReplicaState, now: ClockReading, starts: list[tuple[Origin, int]]) -> None:
        if claim.slot == self.state.slot:
            self._check_superseded(claim)
            return
        for peer in self.state.peers:
            if peer.slot == claim.slot and peer.origin.birth == claim.birth:
                before = peer.replica_state.start if peer.replica_state is not None else 0
                try:
                    self._check_counter(peer, claim)
                    self._update_peer(peer, claim, now, direct=False)
                except PeerFault:
                    return  # kept as that peer's fault, not as the fault of the peer that relayed it
                if claim.start > before:
                    starts.append((peer.origin, claim.start))  # else a proof about an earlier process stays

    def _check_superseded(self, claim: ReplicaState) -> None:
        """A peer relays a claim of this master's own node id (rule 1)."""
        if claim.birth != self.state.local.birth or claim.start > self.state.local.start:
            raise Fatal("Superseded", f"birth {claim.birth:016x} start {claim.start} of this node id is alive")
        if claim.start == self.state.local.start and claim.number > self.state.post_number:
            raise Fatal(
                "Superseded",
                f"post {claim.number} of this start was received, this process sent {self.state.post_number}",
            )
