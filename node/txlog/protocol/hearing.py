"""What the posts and the transactions of others bring (rules 9, 10, 22)."""

from __future__ import annotations

from txlog.model.errors import Fatal, PeerFault
from txlog.model.view import NO_VIEW
from txlog.protocol.adding import Adding
from txlog.protocol.events import Now
from txlog.protocol.peers import Peer
from txlog.wire.messages import Post, ReplicaState, RunsReply


class Hearing(Adding):
    """A post is taken whole or not at all; what is wrong with it is its sender's fault, by name."""

    def _on_post(self, peer: str, post: Post, now: Now) -> None:
        if not self._check_view(peer, post, now):
            return
        agreement = self.agreement
        assert agreement is not None
        sender = self._peer(peer, post.claim)
        sender.unheard = False
        self._note_start(sender, post.claim)
        if (
            post.last_start_seen_of_you == self.start
        ):  # else it may let this master go for an earlier process, and not know of this
            self.views.heard_working(sender.origin, post.claim.start)
        if not self.full:
            for run in post.runs:
                if agreement.hold_foreign(run):
                    self._rounds.foreign_work(now.mono)
        if not self._take(sender, post.claim, now, direct=True):
            if post.ask and sender.claim is not None and post.claim.start == sender.claim.start:
                sender.owed = max(sender.owed, post.claim.number)  # a later one overtook it: it was heard all the same
            return
        for claim in post.relays:
            self._take_relayed(claim, now)
        if post.order:
            agreement.follow(post.order_after, post.order, post.order_hash)
        sender.held_of_mine = sender.held(self.slot)
        if post.answers:
            sender.answered(post.answers, sender.held_of_mine)
            self.around.answered(peer)
        self._advance()
        if post.ask:
            sender.owed = post.claim.number

    def _check_view(self, peer: str, post: Post, now: Now) -> bool:
        """Whether a post of this view counts now. Nothing is merged once a report was given (rule 21)."""
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
            if number > views.highest:
                views.highest = number
            raise PeerFault(
                peer, "OtherView", f"it posts in view {post.epoch}.{post.ballot}, this master is in {view.number}"
            )
        if not views.installed:
            if view.history:
                views.learn_installed()
            else:
                self.founding.begin(view)
            self._enter_view(now)
        return views.at_work

    def _note_start(self, sender: Peer, claim: ReplicaState) -> None:
        """Which process of it posts."""
        before = sender.claim
        if before is None or before.start != claim.start:
            self.views.heard_start(sender.origin, claim.start)

    def _note_heard(self, peer: Peer, claim: ReplicaState) -> None:
        """Whom it hears, itself or through others: by that a deaf master is known, also to those whom its posts reach
        through others (rule 22). What it says when it looks around is of its own links alone."""
        bits, noted = peer.noted
        if bits == claim.heard and self.around.says(peer.node) is noted:
            return
        heard = [p.node for p in self.peers if claim.heard >> p.slot & 1]
        if claim.heard >> self.slot & 1:
            heard.append(self.settings.node)
        peer.noted = (claim.heard, heard)
        self.around.posts(peer.node, heard)

    def _peer(self, node: str, claim: ReplicaState) -> Peer:
        for peer in self.peers:
            if peer.node == node:
                if claim.slot != peer.slot or claim.birth != peer.origin.birth:
                    raise PeerFault(node, "UnknownBirth", f"birth {claim.birth:016x} is no member of this view")
                return peer
        raise PeerFault(node, "UnknownPeer", "it is no member of this view")

    def _take(self, peer: Peer, claim: ReplicaState, now: Now, direct: bool) -> bool:
        agreement = self.agreement
        assert agreement is not None
        if len(claim.held) != len(agreement.queues):
            raise PeerFault(peer.node, "Malformed", "a vector of another length than the view")
        if claim.held[self.slot] > agreement.own.held:
            raise Fatal(
                "OldJournal",
                f"{peer.node} holds seq {claim.held[self.slot]} of this master, "
                f"whose journal ends at {agreement.own.held}",
            )
        self._check_reaches_foot(peer, claim)
        restarted = peer.claim is not None and claim.start > peer.claim.start
        news = peer.take(claim, now.mono)
        if restarted and direct:
            peer.in_flight.clear()
            peer.pushed = min(peer.pushed, claim.held[self.slot])
        if news:
            self._note_heard(peer, claim)
            agreement.last_stamp = max(agreement.last_stamp, claim.counter)
            self._rounds.news()
        return news

    def _check_reaches_foot(self, peer: Peer, claim: ReplicaState) -> None:
        """What was trimmed every member had come by on its disk (rule 19). A process that has heard nothing of this
        member yet cannot see by rule 9 that such a claim says less; it must neither count nor be sent what is gone. It
        may be a late one, so it is no lasting fault of this peer."""
        agreement = self.agreement
        assert agreement is not None
        start = agreement.history.start
        if peer.claim is None and claim.log_index < start:
            raise PeerFault(
                peer.node,
                "BelowFoot",
                f"start {claim.start} post {claim.number} claims a log of {claim.log_index}; it had come by {start}, "
                "where the log here begins: its disk is older than its word; it must not vote",
            )

    def _take_relayed(self, claim: ReplicaState, now: Now) -> None:
        agreement = self.agreement
        assert agreement is not None
        if claim.slot == self.slot:
            self._check_own(claim)
            return
        for peer in self.peers:
            if peer.slot == claim.slot and peer.origin.birth == claim.birth:
                before = peer.claim.start if peer.claim is not None else 0
                try:
                    self._take(peer, claim, now, direct=False)
                except PeerFault:
                    return  # kept as that peer's fault; whoever relayed it did nothing wrong
                if claim.start > before:
                    self.views.heard_start(peer.origin, claim.start)  # else a proof about an earlier process stays

    def _check_own(self, claim: ReplicaState) -> None:
        """Somebody tells of this node id (rule 1)."""
        if claim.birth != self.birth or claim.start > self.start:
            raise Fatal("Superseded", f"birth {claim.birth:016x} start {claim.start} of this node id is alive")
        if claim.start == self.start and claim.number > self.number:
            raise Fatal("Superseded", f"post {claim.number} of this start was heard, this process sent {self.number}")

    def _on_runs(self, message: RunsReply, now: Now) -> None:
        agreement, views = self.agreement, self.views
        if agreement is None or self.full or not (views.at_work or views.fetching):
            return
        same = message.view in (views.number, NO_VIEW)
        for run in message.runs:
            if views.fetching and run.origin not in agreement.by_origin:
                agreement.add_origin(run.origin)
            inside = views.is_inside(agreement, run.origin)
            if inside and not same:
                continue  # it may have other stamps there than in the view at work here
            if not same and agreement.lacks_of_member(run):
                views.give_way()
            if agreement.hold_foreign(run, not inside):
                self._rounds.foreign_work(now.mono)
