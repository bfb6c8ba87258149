"""The core of a master: messages, submissions and the passing of time in; records and messages out.

It has no clock, no chance, no I/O and no dependence on hash order (rule 31). It changes its state as if everything
it says were durable; the caller makes that true by releasing nothing before (``README.md``).
"""

from __future__ import annotations

from typing import Final

from txlog.model.entry import Item, Span
from txlog.model.errors import Conflict, Fatal, PeerFault, Refused, Unavailable
from txlog.model.ids import Origin, Txid
from txlog.model.records import Ceiling, Recovered
from txlog.model.stamp import LOGICAL_BITS, stamp_at
from txlog.model.view import NO_VIEW, View
from txlog.protocol.agreement import Agreement
from txlog.protocol.events import Accepted, Effects, Marks, Now, Send, Settings, Submission
from txlog.protocol.founding import Founding
from txlog.protocol.greetings import known_to, who_now
from txlog.protocol.marks import marks_now
from txlog.protocol.peers import Peer
from txlog.protocol.queue import ENDLESS
from txlog.protocol.rounds import Rounds
from txlog.protocol.surroundings import Surroundings
from txlog.protocol.views import Views
from txlog.wire import messages as wire
from txlog.wire.messages import Claim, FetchRuns, Forward, Known, Message, Post, Runs, Who

CEILING_BLOCK: Final = 10_000 << LOGICAL_BITS
"""How far ahead the promise is made durable: one small record in ten seconds, and a restart resumes at most this
far in the future (rule 5)."""
LOOK_MS: Final = 20
"""While nothing has been heard that bears on the view, it is looked so often whether somebody is silent."""
NOTHING: Final = Effects()
"""What most calls have to say; nobody writes into it."""
ORDER_MAX: Final = 65_536
"""Entries of the log's order in one post, a byte each: a bounded piece of catching up (rule 18)."""


class Core:
    """One master. ``agreement`` is there once a view is installed, or followed as a learner; ``peers`` are the other
    members of the latest view. ``leave_done``: this master has left, and somebody knows."""

    def __init__(self, settings: Settings, recovered: Recovered, now: Now) -> None:
        self.settings = settings
        self.birth = recovered.birth
        self.start = recovered.start
        self.around = Surroundings(settings.node, settings.round_timeout_ms, now.mono)
        self.views = Views(settings, recovered, self.around)
        self.founding = Founding(settings, recovered, self.views, now.mono)
        self.agreement: Agreement | None = None
        self.peers: list[Peer] = []
        self.closing = False
        self.skewed = False
        self.full = False
        self.ceiling = recovered.ceiling
        self.number = 0
        self.slot = 0
        self._recovered: Recovered | None = recovered
        self._effects = Effects()
        self._marks = Marks(0, 0, 0, 0, 0)
        self._rounds = Rounds(settings)
        self._advanced: tuple[int, list[int]] = (-1, [])
        self.asked: list[tuple[str, FetchRuns]] = []
        """Questions that came around a lost link; the caller answers them by :meth:`route`."""
        self._stirred = True
        self._looked_ms = -(1 << 60)
        self._who_ms = -(1 << 60)
        self._leave_by_ms = 1 << 60
        self._left_told: set[str] = set()
        self._told_leave_ms = -(1 << 60)
        self._enter_view(now)

    def drain(self) -> Effects:
        """What has been said since the last call. Its ``records`` go to the journal before anything else of it
        leaves."""
        self._gather()
        if self.agreement is not None:
            if self.agreement.cut_to != ENDLESS:  # equal numbers would not be the same log
                self.agreement.cut_to = ENDLESS
                self._marks = self._marks._replace(log=-1)
            marks = marks_now(self._marks, self.agreement, self.peers, self.settings)
            if marks is not self._marks:
                self._marks = self._effects.marks = marks
        effects = self._effects
        if effects.empty:
            return NOTHING
        self._effects = Effects()
        return effects

    def _gather(self) -> None:
        if self.founding.records:
            self._effects.records += self.founding.records
            self.founding.records.clear()
        if self.views.records:
            self._effects.records += self.views.records
            self.views.records.clear()
        agreement = self.agreement
        if agreement is not None and agreement.records:
            self._effects.records += agreement.records
            agreement.records.clear()

    # Clients

    def submit(self, batch: list[Submission], now: Now, room_for_work: bool) -> list[Accepted | Refused]:
        """Give txids and stamps to transactions, in order; each answer stands at its transaction's place.

        All of one batch are refused together when this master takes no work (:class:`Unavailable`)."""
        refusal = self._refuses_work(batch, room_for_work)
        if refusal is not None:
            return [refusal] * len(batch)
        agreement = self.agreement
        assert agreement is not None
        stopped = self.views.stopped
        if not stopped:
            self._promise(now)
        answers: list[Accepted | Refused] = []
        items: list[Item] = []
        contents: list[bytes] = []
        stamp = agreement.last_stamp
        seq = agreement.last_own
        fresh: dict[str, Accepted] = {}
        for one in batch:
            before = self._repeats(one, stamp, fresh)
            if before is not None:
                answers.append(before)
                continue
            stamp += 1
            seq += 1
            items.append(Item(0 if stopped else stamp, one.kind, one.key, one.payload))
            contents.append(one.content)
            answer = Accepted(Txid(agreement.own.origin, seq), repeat=False)
            if one.key:
                fresh[one.key] = answer
            answers.append(answer)
        if items and stopped:
            agreement.hold_late(items, contents)
        elif items:
            agreement.hold_own(items, contents)
            self._rounds.own_work(now.mono)
        return answers

    def _refuses_work(self, batch: list[Submission], room_for_work: bool) -> Refused | None:
        agreement, limits = self.agreement, self.settings
        self.full = not room_for_work
        if self.closing:
            return Unavailable("Closing", "this master is stopping; ask another one")
        if agreement is None:
            return Unavailable("NotFounded", "the cluster is not founded yet: every configured master must answer once")
        if self.views.accepted is None:
            return Unavailable("Learning", "this master has no journal of its own yet and catches up; ask another one")
        if not self.founding.admitted:
            return Unavailable("Starting", "this master asks its peers what they last heard of it")
        if not room_for_work:
            return Unavailable("DiskFull", "no room for new transactions on this master's disk; make room there", 10)
        waiting = sum(len(q) for q in agreement.queues) + len(agreement.late)
        if waiting + len(batch) > limits.queue_transactions_max:
            return Unavailable("QueueFull", f"{waiting} transactions wait for their order; a member may be silent")
        if sum(q.bytes for q in agreement.queues) > limits.queue_bytes_max:
            return Unavailable("QueueFull", "too many bytes wait for their order; a member may be silent")
        return None

    def _repeats(self, one: Submission, stamp: int, fresh: dict[str, Accepted]) -> Accepted | Refused | None:
        if not one.key:
            return None
        agreement = self.agreement
        assert agreement is not None
        if one.key in fresh:
            return Accepted(fresh[one.key].txid, repeat=True)
        first = agreement.keys.known(one.key, stamp)
        if first is None:
            return None
        if first.content != one.content:
            return Conflict(f"Idempotency-Key {one.key[:80]!r} came with another body before, as {first.txid}")
        return Accepted(first.txid, repeat=True)

    # Peers

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
            case Runs():
                self._on_runs(message, now)
            case Who():
                self._on_who(peer, message)
            case Known():
                self._on_known(peer, message)
            case wire.Found():
                self._say(self.founding.on_found(peer, message.view))
            case wire.Founded():
                self.founding.on_founded(message)
            case wire.Begin():
                self.founding.begin(message.view)
            case Forward():
                self._on_forward(peer, message, now)
            case _:
                self._on_change(peer, message, now)
        self._enter_view(now)
        self._advance()

    def _on_change(self, peer: str, message: Message, now: Now) -> None:
        """A message of a change of views, from ``peer`` itself or forwarded for it."""
        self._stirred = True
        views = self.views
        if not self.founding.admitted and views.accepted is not None:
            return  # it votes for nothing yet
        match message:
            case wire.Propose():
                if self.closing and views.left != NO_VIEW and views.left == views.number:
                    self._tell_leave([peer])
                else:
                    views.on_propose(peer, message)
            case wire.Report():
                views.on_report(message)
            case wire.Refuse():
                views.on_refuse(peer, message)
            case wire.Accept():
                if self.agreement is None:
                    self._learn(message.view.cluster_id)
                views.on_accept(peer, message)
            case wire.Missing():
                views.on_missing(message)
            case wire.Accepted():
                views.on_accepted(message)
            case wire.Install():
                views.on_install(message.number)
            case wire.Leaving():
                self._on_leaving(peer, message)
            case _:
                raise PeerFault(peer, "Misplaced", f"{type(message).__name__} is not for the core")
        self._say_views()

    def _on_leaving(self, peer: str, leaving: wire.Leaving) -> None:
        if leaving.node == self.settings.node:  # said back: it was heard
            self._left_told.add(peer)
            return
        if leaving.node != peer:
            raise PeerFault(peer, "UnknownPeer", f"it calls itself {leaving.node}")
        self.views.on_leaving(leaving)
        self._say([(peer, leaving)])

    def _on_forward(self, peer: str, forward: Forward, now: Now) -> None:
        """Rule 22: on to whom it is for, or one step farther; each message passes a master once."""
        if not forward.path or len(forward.path) > len(self.settings.members):
            raise PeerFault(peer, "Malformed", "a forwarded message without a path that fits")
        if forward.target == self.settings.node:
            message = wire.decode(peer, forward.message)
            if isinstance(message, FetchRuns):
                self.asked.append((forward.path[0], message))
            elif isinstance(message, Runs):
                self._on_runs(message, now)
            else:
                self._on_change(forward.path[0], message, now)
            return
        if self.settings.node in forward.path:
            return
        onward = Forward(forward.target, [*forward.path, self.settings.node], forward.message)
        self._say([(node, onward) for node in self._steps_to(forward.target) if node not in forward.path])

    def _steps_to(self, target: str) -> list[str]:
        if self.around.both_ways(target):
            return [target]
        return [node for node in self.founding.others if node != target and self.around.both_ways(node)]

    def _on_who(self, peer: str, who: Who) -> None:
        if peer == self.settings.node or who.node != peer:
            raise PeerFault(peer, "UnknownPeer", f"it calls itself {who.node}")
        self.founding.check_members(peer, who.members)
        self._stirred = True
        self._say([(peer, known_to(peer, who.view, self.views, self.peers))])
        self.views.on_who(who)

    def _on_known(self, peer: str, known: Known) -> None:
        if known.node != peer:
            raise PeerFault(peer, "UnknownPeer", f"it calls itself {known.node}")
        self.founding.on_known(known, self._own_seq(), self._last_stamp())
        self._stirred = True
        self.views.on_known(known)
        if self.agreement is None and self.founding.cluster and known.accepted is not None:
            self._learn(known.accepted.cluster_id)

    def _on_post(self, peer: str, post: Post, now: Now) -> None:
        if not self._check_view(peer, post, now):
            return
        agreement = self.agreement
        assert agreement is not None
        sender = self._peer(peer, post.claim)
        self._note_heard(sender, post.claim)
        if not self.full:
            for run in post.runs:
                if agreement.hold_foreign(run):
                    self._rounds.foreign_work(now.mono)
        if not self._take(sender, post.claim, now, direct=True):
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

    def _note_heard(self, sender: Peer, claim: Claim) -> None:
        """Which process of it posts, and whom it hears, itself or through others."""
        before = sender.claim
        if before is None or before.start != claim.start:
            self.views.heard_start(sender.origin, claim.start)
            self.views.heard_working(sender.origin, claim.start)
        if before is None or before.heard != claim.heard:
            self.around.hears(sender.node, [p.node for p in self.peers if claim.heard >> p.slot & 1])

    def _peer(self, node: str, claim: Claim) -> Peer:
        for peer in self.peers:
            if peer.node == node:
                if claim.slot != peer.slot or claim.birth != peer.origin.birth:
                    raise PeerFault(node, "UnknownBirth", f"birth {claim.birth:016x} is no member of this view")
                return peer
        raise PeerFault(node, "UnknownPeer", "it is no member of this view")

    def _take(self, peer: Peer, claim: Claim, now: Now, direct: bool) -> bool:
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
        restarted = peer.claim is not None and claim.start > peer.claim.start
        news = peer.take(claim, now.mono)
        if restarted and direct:
            peer.in_flight.clear()
            peer.pushed = min(peer.pushed, claim.held[self.slot])
        if news:
            agreement.last_stamp = max(agreement.last_stamp, claim.counter)
            self._rounds.news()
        return news

    def _take_relayed(self, claim: Claim, now: Now) -> None:
        agreement = self.agreement
        assert agreement is not None
        if claim.slot == self.slot:
            self._check_own(claim)
            return
        for peer in self.peers:
            if peer.slot == claim.slot and peer.origin.birth == claim.birth:
                try:
                    self._take(peer, claim, now, direct=False)
                except PeerFault:
                    return  # kept as that peer's fault; whoever relayed it did nothing wrong

    def _check_own(self, claim: Claim) -> None:
        """Somebody tells of this node id (rule 1)."""
        if claim.birth != self.birth or claim.start > self.start:
            raise Fatal("Superseded", f"birth {claim.birth:016x} start {claim.start} of this node id is alive")
        if claim.start == self.start and claim.number > self.number:
            raise Fatal("Superseded", f"post {claim.number} of this start was heard, this process sent {self.number}")

    def _on_runs(self, message: Runs, now: Now) -> None:
        agreement, views = self.agreement, self.views
        if agreement is None or self.full or not (views.at_work or views.fetching):
            return
        for run in message.runs:
            if views.fetching and run.origin not in agreement.by_origin:
                agreement.add_origin(run.origin)
            inside = views.at_work and views.ahead is None and agreement.takes_part(run.origin)
            if agreement.hold_foreign(run, not inside):
                self._rounds.foreign_work(now.mono)

    # Agreement

    def _enter_view(self, now: Now) -> None:
        """After a start, an accept or an install: the peers are those of the latest view, and nothing that they said in
        an earlier one counts."""
        views = self.views
        view = views.accepted
        if self.agreement is None and view is not None and (views.installed or view.history):
            recovered = self._recovered
            assert recovered is not None
            self.agreement = Agreement(
                Origin(self.settings.node, self.birth), view, recovered, self.settings.key_retention_ms
            )
            self.agreement.installed = views.installed
            views.agreement = self.agreement
            self._recovered = None
            views.changed = True
        agreement = self.agreement
        if not views.changed or agreement is None or view is None:
            return
        views.changed = False
        agreement.installed = views.installed
        if view.has(agreement.own.origin):
            self.slot = agreement.slots[agreement.own.origin]
        shared = self._shared_own(agreement)
        self.peers = [Peer(agreement.slots[m.origin], m) for m in view.members if m.origin != agreement.own.origin]
        for peer in self.peers:
            peer.pushed = peer.held_of_mine = shared
        self._rounds = Rounds(self.settings)
        self._advanced = (-1, [])
        self._rounds.entered(now.mono)

    def _shared_own(self, agreement: Agreement) -> int:
        """The last own seq that every member of the view holds for certain."""
        return max(agreement.own_synced, agreement.history.seq_within(self.slot, agreement.view.base_index))

    def _learn(self, cluster: bytes) -> None:
        """A master without a view follows: it holds what it is sent, and counts for nothing (rule 2)."""
        recovered = self._recovered
        assert recovered is not None
        own = Origin(self.settings.node, self.birth)
        view = View(0, 0, "", [], cluster, 0, bytes(16), [(own.node, own.birth)], [])
        self.agreement = Agreement(own, view, recovered, self.settings.key_retention_ms)
        self.agreement.installed = False
        self.views.agreement = self.agreement
        self._recovered = None

    def _advance(self) -> None:
        """ADD and STABLE with what is known now; nothing when nothing was learnt since the last time."""
        agreement = self.agreement
        if agreement is None or not self.founding.admitted or not self.views.at_work or self.views.ahead is not None:
            return
        present = self.peers if self.settings.majority else [p for p in self.peers if self.is_present(p)]
        known = (self._rounds.version, [p.slot for p in present])
        if known == self._advanced:
            return
        self._advanced = known
        self._make_usable(agreement)
        bound = min([agreement.last_stamp, *(p.usable_counter for p in self.peers)])
        held = self._held_by(agreement, present)
        if agreement.add(bound, held):
            self._make_usable(agreement)
        agreement.settle(held if len(present) == len(self.peers) else self._held_by(agreement, self.peers))

    def _held_by(self, agreement: Agreement, peers: list[Peer]) -> list[int]:
        """Per slot the last seq that this master and all of ``peers`` are known to hold."""
        held = [q.held for q in agreement.queues]
        for peer in peers:
            if peer.claim is None:
                return [0] * len(held)
            held = [min(mine, theirs) for mine, theirs in zip(held, peer.claim.held, strict=True)]
        return held

    def _make_usable(self, agreement: Agreement) -> None:
        """Rule 10: a counter counts only with what came with it."""
        history = agreement.history
        for peer in self.peers:
            while peer.pending:
                claim = peer.pending[0]
                if claim.log_index > history.length or claim.own_seq > agreement.queues[peer.slot].held:
                    break
                if history.hash_at(claim.log_index) != claim.log_hash:
                    raise Fatal(
                        "Forked", f"{peer.node} has another log than this master at or before index {claim.log_index}"
                    )
                peer.usable_counter = max(peer.usable_counter, claim.counter)
                peer.pending.popleft()

    def is_present(self, peer: Peer) -> bool:
        """Heard within the round time-out, and hearing this master. A guess; safety never depends on it (rule 14)."""
        claim = peer.claim
        return (
            claim is not None
            and peer.fault is None
            and self._rounds.now_ms - peer.heard_ms <= self.settings.round_timeout_ms
            and bool(claim.heard >> self.slot & 1)
        )

    # Time and posts

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
        if len(self.settings.members) == 1 or (views.left != NO_VIEW and views.left == views.number and self.closing):
            return 1 << 60
        silent = any(not self.is_present(p) for p in self.peers)
        if not silent:
            views.backup_at = -1
        outside = len(self.peers) + 1 < len(self.settings.members)
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

    # Leaving

    def leave(self, now: Now, timeout_ms: int) -> None:
        """Take no more work, and leave the view once all that stay hold everything that was accepted here, or when
        ``timeout_ms`` are over. Then end the process when :attr:`leave_done`."""
        if not self.closing:
            self.closing = True
            self._leave_by_ms = now.mono + timeout_ms

    def _leave_when_held(self, now: Now) -> int:
        agreement, views = self.agreement, self.views
        assert agreement is not None
        if self._leave_by_ms == 1 << 60:
            return 1 << 60
        stay = [p for p in self.peers if self.is_present(p)]
        held = all(p.held_of_mine >= agreement.last_own for p in stay) and agreement.own_synced >= agreement.last_own
        if held or now.mono >= self._leave_by_ms:
            views.leave()
            self._gather()
            self._told_leave_ms = now.mono
            self._tell_leave([p.node for p in self.peers])
        return now.mono + 20

    def _leave_stopped(self, now: Now) -> int:
        """Say again that this master has left; or leave at last, when no view comes about any more."""
        views = self.views
        if self._leave_by_ms == 1 << 60:
            return 1 << 60
        if views.left == NO_VIEW or views.left != views.number:
            if now.mono < self._leave_by_ms:
                return self._leave_by_ms
            views.leave()
            self._gather()
        if now.mono >= self._told_leave_ms + self.settings.repeat_ms:
            self._told_leave_ms = now.mono
            self._tell_leave([p.node for p in self.peers])
        return self._told_leave_ms + self.settings.repeat_ms

    def _tell_leave(self, nodes: list[str]) -> None:
        leaving = self.views.leaving()
        self._say([(node, leaving) for node in nodes])

    @property
    def leave_done(self) -> bool:
        """Whether nothing is left to be done before the process ends: somebody who stays knows, or nobody stays."""
        if not self.closing or self.views.left == NO_VIEW or self.views.left != self.views.number:
            return False
        return bool(self._left_told) or not any(self.is_present(p) for p in self.peers)

    @property
    def wants_backup(self) -> bool:
        """A member is silent: before its term is over, a backup of an up-to-date worker must stand (rule 23)."""
        views, view = self.views, self.views.accepted
        if view is None or self.agreement is None or self.settings.majority or view.strategy == "None":
            return False
        return views.at_work and views.backup_at < 0 and any(not self.is_present(p) for p in self.peers)

    def backup_done(self, index: int, value: bytes) -> None:
        """A verified backup stands at this position. :class:`Conflict` when that is not on the stable part of the
        log."""
        agreement = self.agreement
        if agreement is None or index > agreement.stable or agreement.history.hash_at(index) != value:
            raise Conflict(f"position {index} is not on the stable part of this master's log")
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

    def force_view(self, without: list[str]) -> None:
        """The operator's order: go on without these members. :class:`Conflict` when it cannot be meant."""
        self._stirred = True
        self.views.force(without)

    def prove_down(self, node: str, birth: int, start: int) -> None:
        """The supervisor has proved that this process of a member is gone. :class:`Conflict` when a later one was
        heard."""
        self._stirred = True
        self.views.prove_down(node, birth, start)

    def _fetch_missing(self, now: Now) -> int:
        agreement = self.agreement
        assert agreement is not None
        if self.full:
            return 1 << 60
        wake = 1 << 60
        for slot, queue in enumerate(agreement.queues):
            holders = [p for p in self.peers if p.held(slot) > queue.held and p.fault is None]
            if not holders:
                self._rounds.nothing_missing(slot)
                continue
            origin_present = any(p.slot == slot and self.is_present(p) for p in self.peers)
            chosen, due = self._rounds.fetch_from(slot, queue.held, holders, origin_present)
            if chosen is not None:
                count = min(chosen.held(slot) - queue.held, self.settings.frame_items_max)
                span = Span(queue.origin.node, queue.origin.birth, queue.held + 1, count)
                self._say([(chosen.node, FetchRuns(span))])
            wake = min(wake, due)
        return wake

    def _promise(self, now: Now) -> None:
        """Raise the counter to the clock, unless the clock is out of all proportion (rule 6), and make the promise
        durable before it leaves (rule 5)."""
        agreement = self.agreement
        assert agreement is not None
        wall = stamp_at(now.wall)
        heard = 0
        for peer in self.peers:
            if peer.claim is not None and peer.claim.counter > heard and self.is_present(peer):
                heard = peer.claim.counter
        self.skewed = bool(heard) and wall - heard > self.settings.max_clock_skew_ms << LOGICAL_BITS
        if not self.skewed:
            agreement.last_stamp = max(agreement.last_stamp, wall)

    def _claim(self, now: Now) -> Claim:
        """Rule 7: one snapshot, read in one go."""
        agreement = self.agreement
        assert agreement is not None
        self._promise(now)
        if agreement.last_stamp > self.ceiling:
            self.ceiling = agreement.last_stamp + CEILING_BLOCK
            self._gather()
            self._effects.records.append(Ceiling(self.ceiling))
        self.number += 1
        heard = 1 << self.slot
        for peer in self.peers:
            if now.mono - peer.heard_ms <= self.settings.round_timeout_ms:
                heard |= 1 << peer.slot
        history = agreement.history
        return Claim(
            slot=self.slot,
            birth=self.birth,
            start=self.start,
            number=self.number,
            log_index=history.length,
            log_hash=history.hash,
            counter=agreement.last_stamp,
            own_seq=agreement.own.held,
            held=[q.held for q in agreement.queues],
            heard=heard,
            full=self.full,
        )

    def _post(self, peer: Peer, now: Now, due: bool) -> None:
        """One post, which also answers all that this peer has asked. It asks for an answer itself when it was due, or
        brings transactions."""
        agreement = self.agreement
        assert agreement is not None
        claim = self._claim(now)
        push = self._rounds.push(agreement, peer)
        ask = due or push is not None
        answers, peer.owed = peer.owed, 0
        known = peer.claim.log_index if peer.claim else 0
        order = order_hash = b""
        if known < claim.log_index:
            order = agreement.history.order(known, min(claim.log_index, known + ORDER_MAX))
            order_hash = agreement.history.hash_at(known + len(order))
        view = agreement.view
        post = Post(
            cluster=view.cluster_id,
            epoch=view.epoch,
            ballot=view.ballot,
            coordinator=view.coordinator,
            claim=claim,
            relays=[p.claim for p in self.peers if p.claim is not None and p is not peer],
            ask=ask,
            answers=answers,
            order_after=known,
            order=order,
            order_hash=order_hash,
            runs=[],
        )
        self._gather()
        self._effects.sends.append(Send(peer.node, post, push))
        self._rounds.posted(peer, claim, push, ask)

    def _say(self, sends: list[tuple[str, Message]]) -> None:
        self._effects.sends += [Send(node, message, None) for node, message in sends]

    # What it knows

    def _own_seq(self) -> int:
        if self.agreement is not None:
            return self.agreement.last_own
        recovered = self._recovered
        assert recovered is not None
        queued = [q.first_seq + len(q.stamps) - 1 for q in recovered.queued if q.birth == self.birth]
        logged = [s.first_seq + s.count - 1 for s in recovered.log_spans if s.birth == self.birth]
        return max([0, *queued, *logged])

    def _last_stamp(self) -> int:
        return self.agreement.last_stamp if self.agreement is not None else self.ceiling

    @property
    def view(self) -> View | None:
        return self.agreement.view if self.agreement is not None else None

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
        if views.left != NO_VIEW and views.left == views.number and self.closing:
            return "Left"
        if not views.at_work or views.ahead is not None:
            return "Rejoining"
        if not all(self.is_present(p) for p in self.peers):
            return "Suspected"
        return "Isolated" if views.is_isolated else "Joined"
