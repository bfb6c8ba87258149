"""Sends this master's counter as a promise, its post as one snapshot (rules 4 to 8), and its fetch requests."""

from __future__ import annotations

from typing import Final

from txlog.model.entry import Span
from txlog.model.records import CounterCeiling
from txlog.model.stamp import LOGICAL_BITS
from txlog.protocol.events import ClockReading, OutgoingMessage
from txlog.protocol.replication.peer_progress import PeerProgress
from txlog.protocol.replication.replication_state import ReplicationState
from txlog.wire.messages import HEARD_SLOTS, FetchRuns, Post, ReplicaState

CEILING_BLOCK: Final = 10_000 << LOGICAL_BITS
"""How far ahead the promise is made durable: one small record in ten seconds, and a restart resumes at most this
far in the future (rule 5)."""
COMPARE_ALL_MS: Final = 100
"""Between two looks for transactions of settled queues that this master lacks. Only a returning branch has some."""
ORDER_ENTRIES_PER_POST_MAX: Final = 65_536
"""Entries of the log's order in one post, a byte each: a bounded part of catching up (rule 18)."""


class PostSender:
    """Sends the posts. ``post_schedule.py`` decides when a post is due and which transactions precede it."""

    def __init__(self, state: ReplicationState) -> None:
        self.state = state
        self._compared_version = -1
        self._compare_all_ms = 0
        self._behind: list[int] = []

    def _own_replica_state(self, now: ClockReading) -> ReplicaState:
        """Rule 7: one consistent snapshot of this master's state."""
        state, log = self.state, self.state.log
        self._raise_counter(now)
        state.post_number += 1
        slots, places = [state.slot], [state.place]
        for peer in state.peers:
            if now.mono - peer.heard_ms <= state.local.settings.round_timeout_ms:
                slots.append(peer.slot)
                places.append(peer.place)
        history = log.log_index
        return ReplicaState(
            slot=state.slot,
            birth=state.local.birth,
            start=state.local.start,
            number=state.post_number,
            log_index=history.length,
            log_hash=history.hash,
            counter=log.last_stamp,
            own_seq=log.own.held,
            held=log.open.held_seqs(),
            heard=sum(1 << slot for slot in slots if slot < HEARD_SLOTS),
            full=state.local.disk_full,
            heard_members=sum(1 << place for place in places),
        )

    def _raise_counter(self, now: ClockReading) -> None:
        state, log = self.state, self.state.log
        state.raise_counter(now)
        if log.last_stamp > state.ceiling:
            state.ceiling = log.last_stamp + CEILING_BLOCK
            state.outbox.append(CounterCeiling(state.ceiling))

    def remember_counter(self, now: ClockReading) -> int:
        """Without other members no post is sent. The ceiling is then the only memory of the time across a restart,
        and is made durable as often as with them. Returns when to do it again."""
        if self.state.peers:
            return 1 << 60
        self._raise_counter(now)
        return now.mono + (CEILING_BLOCK >> LOGICAL_BITS)

    def send_post(self, peer: PeerProgress, now: ClockReading, due: bool, last_start_seen: int) -> None:
        """Send one post, which also answers all requests of this peer. It requests an answer itself when it was due, or
        brings transactions. ``last_start_seen``: the latest process of the peer that this master received from."""
        state, log = self.state, self.state.log
        claim = self._own_replica_state(now)
        push = state.schedule.next_batch(log, peer)
        ask = due or push is not None
        answers, peer.reply_due = peer.reply_due, 0
        known = max(peer.replica_state.log_index if peer.replica_state else 0, log.log_index.start)
        order = order_hash = b""
        if known < claim.log_index:
            order = log.log_index.order(known, min(claim.log_index, known + ORDER_ENTRIES_PER_POST_MAX))
            order_hash = log.log_index.hash_at(known + len(order))
        view = log.view
        post = Post(
            cluster=view.cluster_id,
            epoch=view.epoch,
            ballot=view.ballot,
            coordinator=view.coordinator,
            claim=claim,
            relays=[p.replica_state for p in state.peers if p.replica_state is not None and p is not peer],
            ask=ask,
            answers=answers,
            order_after=known,
            order=order,
            order_hash=order_hash,
            runs=[],
            last_start_seen_of_you=last_start_seen,
            clock_ms=state.local.clock.wall_ms,
        )
        state.outbox.sends.append(OutgoingMessage(peer.node, post, push))
        only_decisions = push is not None and log.synchronous.are_decisions(log.own.origin, push)
        state.schedule.on_posted(peer, claim, push, ask, delays_next=not only_decisions)

    def fetch_missing(self, now: ClockReading) -> int:
        """Request transactions that other members have and this master lacks. Returns when to check again, in ``mono``
        milliseconds."""
        state, log = self.state, self.state.log
        if state.local.disk_full:
            return 1 << 60
        slots, wake = self._slots_to_compare(now.mono)
        for slot in slots:
            queue = log.queues[slot]
            holders = [p for p in state.peers if p.held_seq(slot) > queue.held and p.fault is None]
            if not holders:
                state.schedule.on_nothing_missing(slot)
                continue
            origin_present = any(p.slot == slot and state.is_present(p) for p in state.peers)
            chosen, due = state.schedule.choose_fetch_source(slot, queue.held, holders, origin_present)
            if chosen is not None:
                count = min(chosen.held_seq(slot) - queue.held, state.local.settings.frame_items_max)
                span = Span(queue.origin.node, queue.origin.birth, queue.held + 1, count)
                state.outbox.send(chosen.node, FetchRuns(span))
            wake = min(wake, due)
        return wake

    def _slots_to_compare(self, now_ms: int) -> tuple[list[int], int]:
        """The slots in which a peer may hold more than this master, and when to look at all slots again. A settled
        queue seldom misses anything, and a log has many: they are compared every :data:`COMPARE_ALL_MS`."""
        state, log = self.state, self.state.log
        if len(log.open.slots) == len(log.queues):
            return log.open.slots, 1 << 60
        if self._compared_version != state.schedule.version and now_ms >= self._compare_all_ms:
            self._compared_version, self._compare_all_ms = state.schedule.version, now_ms + COMPARE_ALL_MS
            held = log.open.held_seqs()
            claims = [peer.replica_state.held for peer in state.peers if peer.replica_state is not None]
            self._behind = [slot for slot, mine in enumerate(held) if any(theirs[slot] > mine for theirs in claims)]
        wake = self._compare_all_ms if self._compared_version != state.schedule.version else 1 << 60
        return [*log.open.slots, *[slot for slot in self._behind if slot not in log.open.slots]], wake
