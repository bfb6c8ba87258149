"""Receives the posts and the transactions of other masters (rules 9, 10, 22)."""

from __future__ import annotations

from txlog.model.errors import Fatal, PeerFault
from txlog.model.view import NO_VIEW
from txlog.protocol.events import ClockReading
from txlog.protocol.replication.commit import LogCommitter
from txlog.protocol.replication.peer_progress import PeerProgress
from txlog.wire.messages import Post, ReplicaState, RunsReply


class PostReceiver(LogCommitter):
    """A post is accepted as a whole or rejected. A bad post is the named fault of its sender."""

    def _on_post(self, peer: str, post: Post, now: ClockReading) -> None:
        if not self._check_view(peer, post, now):
            return
        agreement = self.log_state
        assert agreement is not None
        sender = self._find_peer(peer, post.claim)
        sender.unresponsive = False
        self._record_start(sender, post.claim)
        if (
            post.last_start_seen_of_you == self.start
        ):  # else it may let this master go for an earlier process, and not know of this
            self.views.record_confirmed_start(sender.origin, post.claim.start)
        if not self.disk_full:
            for run in post.runs:
                if agreement.persist_replicated(run):
                    self._post_schedule.on_foreign_transactions(now.mono)
        if not self._update_peer(sender, post.claim, now, direct=True):
            if post.ask and sender.replica_state is not None and post.claim.start == sender.replica_state.start:
                sender.reply_due = max(
                    sender.reply_due, post.claim.number
                )  # a later one overtook it: it was heard all the same
            return
        for claim in post.relays:
            self._update_from_relay(claim, now)
        if post.order:
            agreement.append_from_peer(post.order_after, post.order, post.order_hash)
        sender.held_of_mine = sender.held_seq(self.slot)
        if post.answers:
            sender.on_reply(post.answers, sender.held_of_mine)
            self.failure_detector.on_reply(peer)
        self._advance()
        if post.ask:
            sender.reply_due = post.claim.number

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
            if number > views.highest_seen:
                views.highest_seen = number
            raise PeerFault(
                peer, "OtherView", f"it posts in view {post.epoch}.{post.ballot}, this master is in {view.number}"
            )
        if not views.installed:
            if view.ancestors:
                views.mark_installed()
            else:
                self.bootstrap.on_commit(view)
            self._enter_view(now)
        return views.is_active

    def _record_start(self, sender: PeerProgress, claim: ReplicaState) -> None:
        """Record which process of the sender posts."""
        before = sender.replica_state
        if before is None or before.start != claim.start:
            self.views.record_start(sender.origin, claim.start)

    def _record_connectivity(self, peer: PeerProgress, claim: ReplicaState) -> None:
        """Record the peers that the sender receives from, directly or through others. Masters that receive its posts
        only through others also learn from it that a master receives nothing (rule 22). A hello covers only the
        sender's own links."""
        bits, noted = peer.last_heard
        if bits == claim.heard and self.failure_detector.peers_heard_by(peer.node) is noted:
            return
        heard = [p.node for p in self.peers if claim.heard >> p.slot & 1]
        if claim.heard >> self.slot & 1:
            heard.append(self.settings.node)
        peer.last_heard = (claim.heard, heard)
        self.failure_detector.on_reachable_peers(peer.node, heard)

    def _find_peer(self, node: str, claim: ReplicaState) -> PeerProgress:
        for peer in self.peers:
            if peer.node == node:
                if claim.slot != peer.slot or claim.birth != peer.origin.birth:
                    raise PeerFault(node, "UnknownBirth", f"birth {claim.birth:016x} is no member of this view")
                return peer
        raise PeerFault(node, "UnknownPeer", "it is no member of this view")

    def _update_peer(self, peer: PeerProgress, claim: ReplicaState, now: ClockReading, direct: bool) -> bool:
        agreement = self.log_state
        assert agreement is not None
        if len(claim.held) != len(agreement.queues):
            raise PeerFault(peer.node, "Malformed", "a vector of another length than the view")
        if claim.held[self.slot] > agreement.own.held:
            raise Fatal(
                "OldJournal",
                f"{peer.node} holds seq {claim.held[self.slot]} of this master, "
                f"whose journal ends at {agreement.own.held}",
            )
        self._check_reaches_log_start(peer, claim)
        restarted = peer.replica_state is not None and claim.start > peer.replica_state.start
        news = peer.update(claim, now.mono)
        if restarted and direct:
            peer.in_flight.clear()
            peer.pushed = min(peer.pushed, claim.held[self.slot])
        if news:
            self._record_connectivity(peer, claim)
            agreement.last_stamp = max(agreement.last_stamp, claim.counter)
            self._post_schedule.on_new_state()
        return news

    def _check_reaches_log_start(self, peer: PeerProgress, claim: ReplicaState) -> None:
        """Check that the claim is not below the log start. Every member had durably passed the trimmed entries (rule
        19). A process without an earlier claim of this member cannot see by rule 9 that such a claim is a step back.
        The claim must not count, and the member must not be sent what is gone. It may be a late message, so it is no
        lasting fault of this peer."""
        agreement = self.log_state
        assert agreement is not None
        start = agreement.log_index.start
        if peer.replica_state is None and claim.log_index < start:
            raise PeerFault(
                peer.node,
                "BelowFoot",
                f"start {claim.start} post {claim.number} claims a log of {claim.log_index}; it had come by {start}, "
                "where the log here begins: its disk is older than its word; it must not vote",
            )

    def _update_from_relay(self, claim: ReplicaState, now: ClockReading) -> None:
        agreement = self.log_state
        assert agreement is not None
        if claim.slot == self.slot:
            self._check_superseded(claim)
            return
        for peer in self.peers:
            if peer.slot == claim.slot and peer.origin.birth == claim.birth:
                before = peer.replica_state.start if peer.replica_state is not None else 0
                try:
                    self._update_peer(peer, claim, now, direct=False)
                except PeerFault:
                    return  # kept as that peer's fault; whoever relayed it did nothing wrong
                if claim.start > before:
                    self.views.record_start(peer.origin, claim.start)  # else a proof about an earlier process stays

    def _check_superseded(self, claim: ReplicaState) -> None:
        """A peer relays a claim of this master's own node id (rule 1)."""
        if claim.birth != self.birth or claim.start > self.start:
            raise Fatal("Superseded", f"birth {claim.birth:016x} start {claim.start} of this node id is alive")
        if claim.start == self.start and claim.number > self.post_number:
            raise Fatal(
                "Superseded", f"post {claim.number} of this start was heard, this process sent {self.post_number}"
            )

    def _on_runs(self, message: RunsReply, now: ClockReading) -> None:
        agreement, views = self.log_state, self.views
        if agreement is None or self.disk_full or not (views.is_active or views.is_backfilling):
            return
        same = message.view in (views.number, NO_VIEW)
        for run in message.runs:
            if views.is_backfilling and run.origin not in agreement.by_origin:
                agreement.add_origin(run.origin)
            inside = views.is_in_current_view(agreement, run.origin)
            if inside and not same:
                continue  # it may have other stamps there than in the view at work here
            if not same and agreement.has_new_from_member(run):
                views.stop_for_newer_view()
            if agreement.persist_replicated(run, not inside):
                self._post_schedule.on_foreign_transactions(now.mono)
