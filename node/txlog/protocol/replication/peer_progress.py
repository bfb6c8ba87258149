"""What one master knows of another: its latest claim, which counters of it are usable, what was sent to it."""

from __future__ import annotations

from collections import deque
from typing import Final

from txlog.model.errors import PeerFault
from txlog.model.view import Member
from txlog.wire.messages import ReplicaState

_PENDING_MAX: Final = 64
"""Claims kept until the log or the queue reaches them. They only grow, so the middle ones may be dropped."""


class InFlightPost:
    """A post that was asked for an answer. ``pushed``: the last own seq that travelled with it or before it."""

    __slots__ = ("number", "pushed", "sent_ms")

    def __init__(self, number: int, sent_ms: int, pushed: int) -> None:
        self.number = number
        self.sent_ms = sent_ms
        self.pushed = pushed


class PeerProgress:
    """A member of the view other than this master.

    ``replica_state`` is the newest taken from it, direct or relayed. ``usable_counter`` obeys rule 10 and never falls
    in one start of this process. ``pushed`` ≥ what it holds of ours, unless something was lost on the way.
    ``reply_due``: the number of its post that waits for an answer, which leaves with the next :meth:`Core.poll`; else
    0. ``unresponsive``: it has not answered in time and said nothing itself since; transactions are not pushed again
    before it does. ``last_heard``: whom its posts said last that it hears, in bits and by name."""

    def __init__(self, slot: int, member: Member) -> None:
        self.slot = slot
        self.node = member.node
        self.origin = member.origin
        self.weight = member.weight
        self.replica_state: ReplicaState | None = None
        self.heard_ms = -(1 << 60)
        self.usable_counter = 0
        self.pending_states: deque[ReplicaState] = deque()
        self.fault: PeerFault | None = None
        self.pushed = 0
        self.in_flight: deque[InFlightPost] = deque()
        self.sent_ms = -(1 << 60)
        self.sent_version = -1
        self.sent_log_index = 0
        self.reply_due = 0
        self.unresponsive = False
        self.last_heard: tuple[int, list[str]] = (-1, [])

    def held_seq(self, slot: int) -> int:
        return self.replica_state.held[slot] if self.replica_state else 0

    @property
    def disk_full(self) -> bool:
        """It has said that it cannot store."""
        return self.replica_state is not None and self.replica_state.full

    def update(self, claim: ReplicaState, mono_ms: int) -> bool:
        """Keep a claim if it is news (rule 9); :class:`PeerFault` when it says less than this peer said before."""
        old = self.replica_state
        if old is not None:
            if (claim.start, claim.number) <= (old.start, old.number):
                return False
            regressed = (
                claim.log_index < old.log_index
                or claim.counter < old.counter
                or claim.own_seq < old.own_seq
                or any(new < had for new, had in zip(claim.held, old.held, strict=True))
            )
            if regressed:
                self.fault = PeerFault(
                    self.node,
                    "Regressed",
                    f"start {claim.start} post {claim.number} claims less than start {old.start} post {old.number}: "
                    "its disk is older than its word; it must not vote",
                )
            elif claim.start > old.start:
                self.fault = None
            if self.fault is not None:
                raise self.fault
        self.replica_state = claim
        self.heard_ms = mono_ms
        if len(self.pending_states) >= _PENDING_MAX:
            del self.pending_states[_PENDING_MAX // 2]
        self.pending_states.append(claim)
        return True

    def on_reply(self, number: int, held_of_mine: int) -> None:
        """Its post answers ours of this ``number``: what went out before it and is not held is lost."""
        pushed = None
        while self.in_flight and self.in_flight[0].number <= number:
            pushed = self.in_flight.popleft().pushed
        if pushed is not None and held_of_mine < pushed:
            self.pushed = held_of_mine
            self.in_flight.clear()

    def expire_in_flight(self, sent_before_ms: int) -> None:
        """No answer came to what was sent before: take it for lost and send it again."""
        if self.in_flight and self.in_flight[0].sent_ms < sent_before_ms:
            self.in_flight.clear()
            self.pushed = min(self.pushed, self.held_of_mine)
            self.unresponsive = True

    held_of_mine = 0
    """The last of this master's own seqs that the peer is known to hold."""
