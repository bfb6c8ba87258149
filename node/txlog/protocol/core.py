"""The core of a master: messages, submissions and the passing of time in; records and messages out.

It has no clock, no chance, no I/O and no dependence on hash order (rule 31). It changes its state as if everything
it says were durable; the caller makes that true by releasing nothing before (``README.md``).
"""

from __future__ import annotations

from txlog.model.entry import Item, Span
from txlog.model.errors import Conflict, Fatal, PeerFault, Refused, Unavailable
from txlog.model.ids import Origin, Txid
from txlog.model.records import Ceiling, Recovered
from txlog.model.stamp import LOGICAL_BITS, stamp_at
from txlog.model.view import View
from txlog.protocol.agreement import Agreement
from txlog.protocol.events import Accepted, Effects, Marks, Now, Send, Settings, Submission
from txlog.protocol.founding import Founding
from txlog.protocol.peers import Peer
from txlog.protocol.rounds import Rounds
from txlog.wire import messages as wire
from txlog.wire.messages import Claim, FetchRuns, Known, KnownBirth, Message, Post, Runs, Who

CEILING_BLOCK = 10_000 << LOGICAL_BITS
"""How far ahead the promise is made durable: one small record in ten seconds, and a restart resumes at most this
far in the future (rule 5)."""
NOTHING = Effects()
"""What most calls have to say; nobody writes into it."""
ORDER_MAX = 65_536
"""Entries of the log's order in one post, a byte each: a bounded piece of catching up (rule 18)."""


class Core:
    """One master. ``agreement`` is there once a view is installed; ``peers`` are its other members, by slot."""

    def __init__(self, settings: Settings, recovered: Recovered, now: Now) -> None:
        self.settings = settings
        self.birth = recovered.birth
        self.start = recovered.start
        self.founding = Founding(settings, recovered, now.mono)
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
        self._enter_view(now)

    def drain(self) -> Effects:
        """What has been said since the last call. Its ``records`` go to the journal before anything else of it
        leaves."""
        self._gather()
        marks = self._current_marks()
        if marks is not self._marks:
            self._marks = marks
            self._effects.marks = marks
        effects = self._effects
        if effects.empty:
            return NOTHING
        self._effects = Effects()
        return effects

    def _gather(self) -> None:
        for room in (self.founding, self.agreement):
            if room is not None and room.records:
                self._effects.records += room.records
                room.records.clear()

    # Clients

    def submit(self, batch: list[Submission], now: Now, room_for_work: bool) -> list[Accepted | Refused]:
        """Give txids and stamps to transactions, in order; each answer stands at its transaction's place.

        All of one batch are refused together when this master takes no work (:class:`Unavailable`)."""
        refusal = self._refuses_work(batch, room_for_work)
        if refusal is not None:
            return [refusal] * len(batch)
        agreement = self.agreement
        assert agreement is not None
        self._promise(now)
        answers: list[Accepted | Refused] = []
        items: list[Item] = []
        contents: list[bytes] = []
        stamp = agreement.last_stamp
        seq = agreement.own.held
        fresh: dict[str, Accepted] = {}
        for one in batch:
            before = self._repeats(one, stamp, fresh)
            if before is not None:
                answers.append(before)
                continue
            stamp += 1
            seq += 1
            items.append(Item(stamp, one.kind, one.key, one.payload))
            contents.append(one.content)
            answer = Accepted(Txid(agreement.own.origin, seq), repeat=False)
            if one.key:
                fresh[one.key] = answer
            answers.append(answer)
        if items:
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
        if not self.founding.admitted:
            return Unavailable("Starting", "this master asks its peers what they last heard of it")
        if not room_for_work:
            return Unavailable("DiskFull", "no room for new transactions on this master's disk; make room there", 10)
        waiting = sum(len(q) for q in agreement.queues)
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
        match message:
            case Who():
                self._on_who(peer, message)
            case Known():
                self.founding.on_known(message, self._own_seq(), self._last_stamp())
            case wire.Propose():
                self._say(self.founding.on_propose(peer, message.view))
            case wire.Accepted():
                self.founding.on_accepted(message)
            case wire.Install():
                self.founding.install(message.view)
            case Post():
                self._on_post(peer, message, now)
            case Runs():
                self._on_runs(message, now)
            case _:
                raise PeerFault(peer, "Misplaced", f"{type(message).__name__} is not for the core")
        self._enter_view(now)
        self._advance()

    def _on_who(self, peer: str, who: Who) -> None:
        if peer == self.settings.node or who.node != peer:
            raise PeerFault(peer, "UnknownPeer", f"it calls itself {who.node}")
        self.founding.check_members(peer, who.members)
        heard: list[KnownBirth] = []
        agreement = self.agreement
        if agreement is not None:
            for known in self.peers:
                if known.node == peer:
                    claim = known.claim
                    queue = agreement.queues[known.slot]
                    heard.append(
                        KnownBirth(
                            known.origin.birth,
                            claim.start if claim else 0,
                            max(queue.held, claim.own_seq if claim else 0),
                            claim.counter if claim else queue.last_stamp,
                        )
                    )
        elif self.founding.installed and self.founding.accepted is not None:
            heard += [KnownBirth(m.birth, 0, 0, 0) for m in self.founding.accepted.members if m.node == peer]
        me = self.founding
        answer = Known(
            self.settings.node, self.birth, self.start, list(self.settings.members), heard, me.accepted, me.installed
        )
        self._say([(peer, answer)])

    def _on_post(self, peer: str, post: Post, now: Now) -> None:
        self._check_view(peer, post, now)
        agreement = self.agreement
        assert agreement is not None
        sender = self._peer(peer, post.claim)
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
        self._advance()
        if post.ask:
            sender.owed = post.claim.number

    def _check_view(self, peer: str, post: Post, now: Now) -> None:
        view = self.founding.accepted
        if view is None:
            raise PeerFault(peer, "OtherView", "this master belongs to no cluster yet")
        if post.cluster != view.cluster_id:
            raise PeerFault(
                peer, "OtherCluster", f"its cluster is {post.cluster.hex()}, this one {view.cluster_id.hex()}"
            )
        if (post.epoch, post.ballot, post.coordinator) != view.number:
            raise PeerFault(
                peer, "OtherView", f"it posts in view {post.epoch}.{post.ballot}, this master is in {view.number}"
            )
        self.founding.install(view)
        self._enter_view(now)

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
        agreement = self.agreement
        if agreement is None or self.full:
            return
        for run in message.runs:
            if agreement.hold_foreign(run):
                self._rounds.foreign_work(now.mono)

    # Agreement

    def _enter_view(self, now: Now) -> None:
        view = self.founding.accepted
        if self.agreement is not None or not self.founding.installed or view is None:
            return
        recovered = self._recovered
        assert recovered is not None
        self.agreement = Agreement(self.settings.node, view, recovered, self.settings.key_retention_ms)
        self._recovered = None
        self.slot = self.agreement.slots[Origin(self.settings.node, self.birth)]
        self.peers = [Peer(slot, m) for slot, m in enumerate(view.members) if slot != self.slot]
        for peer in self.peers:  # every member holds what is stable
            peer.pushed = peer.held_of_mine = self.agreement.own_synced
        self._rounds.entered(now.mono)

    def _advance(self) -> None:
        """ADD and STABLE with what is known now; nothing when nothing was learnt since the last time."""
        agreement = self.agreement
        if agreement is None or not self.founding.admitted:
            return
        present = [p for p in self.peers if self.is_present(p)]
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
        self._say(self.founding.poll(now.mono))
        self._enter_view(now)
        if self.agreement is None or not self.founding.admitted:
            return self.founding.next_ms(now.mono)
        self._advance()
        self._gather()
        wake = self.founding.next_ms(now.mono)
        for peer in self.peers:
            peer.expire(now.mono - self._rounds.resend_ms)
            due_ms = self._rounds.due_ms(self.agreement, peer)
            if due_ms <= now.mono or peer.owed:
                self._post(peer, now, due_ms <= now.mono)
                due_ms = self._rounds.due_ms(self.agreement, peer)
            wake = min(wake, max(due_ms, now.mono + 1))
        return min(wake, self._fetch_missing(now))

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
            return self.agreement.own.held
        recovered = self._recovered
        assert recovered is not None
        queued = [q.first_seq + len(q.stamps) - 1 for q in recovered.queued if q.birth == self.birth]
        logged = [s.first_seq + s.count - 1 for s in recovered.log_spans if s.birth == self.birth]
        return max([0, *queued, *logged])

    def _last_stamp(self) -> int:
        return self.agreement.last_stamp if self.agreement is not None else self.ceiling

    def _current_marks(self) -> Marks:
        agreement = self.agreement
        if agreement is None:
            return self._marks
        own, synced = agreement.own.held, agreement.own_synced
        quorum = own if own == synced else max(self._quorum(agreement), synced)
        last, log, stable = self._marks, agreement.history.length, agreement.stable
        if (own, quorum, synced, log, stable) == last:
            return last
        return Marks(own, quorum, synced, log, stable)

    def _quorum(self, agreement: Agreement) -> int:
        """The last own seq held by more than half of all configured weight."""
        weights = [(agreement.own.held, agreement.view.members[self.slot].weight)]
        weights += [(p.held(self.slot), p.weight) for p in self.peers]
        total = sum(weight for _, weight in weights)
        most = 0
        for seq, _ in weights:
            if seq > most and 2 * sum(weight for held, weight in weights if held >= seq) > total:
                most = seq
        return most

    @property
    def view(self) -> View | None:
        return self.agreement.view if self.agreement is not None else None

    @property
    def state(self) -> str:
        """``Founding``, ``Starting``, ``DiskFull``, ``Suspected`` (a member is silent) or ``Joined``."""
        if self.agreement is None:
            return "Founding"
        if not self.founding.admitted:
            return "Starting"
        if self.full:
            return "DiskFull"
        return "Joined" if all(self.is_present(p) for p in self.peers) else "Suspected"
