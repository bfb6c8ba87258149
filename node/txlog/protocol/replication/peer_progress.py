"""What one master knows of a peer: its latest replica state, which counters of it are usable, what was sent to it."""

from __future__ import annotations

from collections import deque
from enum import StrEnum
from operator import lt
from typing import Final

from txlog.model.errors import PeerFault
from txlog.model.view import Member
from txlog.wire.messages import ReplicaState

_PENDING_MAX: Final = 64
"""Replica states kept until the log or the queue reaches them. They only grow, so the middle ones may be dropped."""


class PushState(StrEnum):
    """Whether own transactions are pushed to a peer. Posts without transactions go to it in every state."""

    PUSHING = "Pushing"
    DISK_FULL = "DiskFull"
    """The peer has reported that it cannot store."""
    PROBING = "Probing"
    """The peer has neither answered in time nor sent a post since."""


class PushEvent(StrEnum):
    """What changes a :class:`PushState`."""

    POSTED = "posts and has room"
    POSTED_FULL = "posts that its disk is full"
    HAS_ROOM = "is relayed to have room"
    IS_FULL = "is relayed to be full"
    TIMED_OUT = "does not answer in time"


PUSH_TRANSITIONS: Final[dict[PushState, dict[PushEvent, PushState]]] = {
    PushState.PUSHING: {
        PushEvent.POSTED_FULL: PushState.DISK_FULL,
        PushEvent.IS_FULL: PushState.DISK_FULL,
        PushEvent.TIMED_OUT: PushState.PROBING,
    },
    PushState.DISK_FULL: {
        PushEvent.POSTED: PushState.PUSHING,
        PushEvent.HAS_ROOM: PushState.PUSHING,
        PushEvent.TIMED_OUT: PushState.PROBING,
    },
    PushState.PROBING: {
        PushEvent.POSTED: PushState.PUSHING,
        PushEvent.POSTED_FULL: PushState.DISK_FULL,
    },
}
"""Events that a state does not name leave it as it is. ``docs/design/protocol.md`` shows this table as a diagram."""


class InFlightPost:
    """A post that requested an answer. ``pushed``: the last own seq that was sent with it or before it.
    ``delays_next``: whether the next post waits a little for its answer."""

    __slots__ = ("delays_next", "number", "pushed", "sent_ms")

    def __init__(self, number: int, sent_ms: int, pushed: int, delays_next: bool = True) -> None:
        self.number = number
        self.sent_ms = sent_ms
        self.pushed = pushed
        self.delays_next = delays_next


class PeerProgress:
    """A member of the view other than this master.

    ``replica_state`` is the newest received from it, direct or relayed. ``usable_counter`` obeys rule 10 and never
    falls in one start of this process. ``pushed`` ≥ what it has persisted of ours, unless a message was lost.
    ``reply_due``: the number of its post that waits for an answer, which leaves with the next :meth:`Core.poll`; else
    0. ``push_state``: whether own transactions are pushed to it. ``last_heard``: the peers it receives from, by its
    last post, in bits (``heard``, ``heard_members``) and by name. ``place``: its place among the members of the view.

    Invariant: ``held_of_mine`` is what the peer has reported as persisted; ``pushed`` may be below it after a reply."""

    def __init__(self, slot: int, place: int, member: Member) -> None:
        self.slot = slot
        self.place = place
        self.node = member.node
        self.origin = member.origin
        self.weight = member.weight
        self.replica_state: ReplicaState | None = None
        self.heard_ms = -(1 << 60)
        self.usable_counter = 0
        self.pending_states: deque[ReplicaState] = deque()
        self.fault: PeerFault | None = None
        self.doubted: ReplicaState | None = None
        """The latest claim whose counter was further ahead than everything known here."""
        self.pushed = 0
        self.held_of_mine = 0
        """The last of this master's own seqs that the peer is known to have persisted."""
        self.in_flight: deque[InFlightPost] = deque()
        self.sent_ms = -(1 << 60)
        self.sent_version = -1
        self.sent_log_index = 0
        self.reply_due = 0
        self.push_state = PushState.PUSHING
        self.last_heard: tuple[tuple[int, int], list[str]] = ((-1, -1), [])

    def held_seq(self, slot: int) -> int:
        """The last seq of the slot that the peer is known to have persisted."""
        return self.replica_state.held[slot] if self.replica_state else 0

    @property
    def disk_full(self) -> bool:
        """The peer has reported that it cannot store."""
        return self.replica_state is not None and self.replica_state.full

    def on_push_event(self, event: PushEvent) -> None:
        """Change :attr:`push_state` as :data:`PUSH_TRANSITIONS` says."""
        self.push_state = PUSH_TRANSITIONS[self.push_state].get(event, self.push_state)

    def assume_held(self, seq: int) -> None:
        """Every member of the view has this master's transactions up to ``seq``: the view begins there."""
        self.pushed = self.held_of_mine = seq

    def on_log_trimmed(self, seq: int) -> None:
        """The log was trimmed up to own transactions that every member has, though this peer may not have said so."""
        self.held_of_mine = max(self.held_of_mine, seq)

    def update(self, claim: ReplicaState, mono_ms: int) -> bool:
        """Keep a claim if it is newer (rule 9); :class:`PeerFault` when it is below an earlier claim of this peer."""
        old = self.replica_state
        if old is not None:
            if (claim.start, claim.number) <= (old.start, old.number):
                return False
            lost = claim.log_index < old.log_index or claim.own_seq < old.own_seq or any(map(lt, claim.held, old.held))
            if lost or claim.counter < old.counter:
                fault = PeerFault(
                    self.node,
                    "Regressed",
                    f"start {claim.start} post {claim.number} claims less than start {old.start} post {old.number}: "
                    "its disk is older than its word; it must not vote",
                )
                if not lost and claim.start == old.start:
                    raise fault  # a process never forgets its counter: one of the two messages is wrong
                self.fault = fault
            elif claim.start > old.start:
                self.fault = None
            if self.fault is not None:
                raise self.fault
        self.replica_state = claim
        self.on_push_event(PushEvent.IS_FULL if claim.full else PushEvent.HAS_ROOM)
        self.heard_ms = mono_ms
        if len(self.pending_states) >= _PENDING_MAX:
            del self.pending_states[_PENDING_MAX // 2]
        self.pending_states.append(claim)
        return True

    def repeats_doubted(self, claim: ReplicaState) -> bool:
        """Whether an earlier post of the peer had a counter that was doubted, too, and this one confirms it."""
        before, self.doubted = self.doubted, claim
        is_later = before is not None and (claim.start, claim.number) > (before.start, before.number)
        return before is not None and is_later and claim.counter >= before.counter

    def on_reply(self, number: int, held_of_mine: int) -> None:
        """The peer's post answers ours of this ``number``: what was sent before it and is not persisted there is
        lost."""
        pushed = None
        while self.in_flight and self.in_flight[0].number <= number:
            pushed = self.in_flight.popleft().pushed
        if pushed is not None and held_of_mine < pushed:
            self.pushed = held_of_mine
            self.in_flight.clear()

    def expire_in_flight(self, sent_before_ms: int) -> None:
        """No answer came to posts sent before ``sent_before_ms``: consider them lost and send them again."""
        if self.in_flight and self.in_flight[0].sent_ms < sent_before_ms:
            self.in_flight.clear()
            self.pushed = min(self.pushed, self.held_of_mine)
            self.on_push_event(PushEvent.TIMED_OUT)
