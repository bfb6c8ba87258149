"""Sends this master's counter as a promise, its post as one snapshot (rules 4 to 8), and its fetch requests."""

from __future__ import annotations

from typing import Final

from txlog.model.entry import Span
from txlog.model.records import CounterCeiling, RecoveredState
from txlog.model.stamp import LOGICAL_BITS, stamp_at
from txlog.protocol.events import ClockReading, OutgoingMessage, ProtocolSettings
from txlog.protocol.replication.peer_progress import PeerProgress
from txlog.protocol.replication.post_receiver import PostReceiver
from txlog.wire.messages import FetchRuns, Post, ReplicaState

CEILING_BLOCK: Final = 10_000 << LOGICAL_BITS
"""How far ahead the promise is made durable: one small record in ten seconds, and a restart resumes at most this
far in the future (rule 5)."""
ORDER_ENTRIES_PER_POST_MAX: Final = 65_536
"""Entries of the log's order in one post, a byte each: a bounded part of catching up (rule 18)."""


class PostSender(PostReceiver):
    """Sends the posts. ``post_schedule.py`` decides when a post is due and which transactions precede it."""

    def __init__(self, settings: ProtocolSettings, recovered: RecoveredState, now: ClockReading) -> None:
        super().__init__(settings, recovered, now)
        self.clock_skewed = False

    def _raise_counter(self, now: ClockReading) -> None:
        """Raise the counter to the clock, unless the clock is out of all proportion (rule 6), and make the promise
        durable before it leaves (rule 5)."""
        agreement = self.log_state
        assert agreement is not None
        wall = stamp_at(now.wall)
        heard = 0
        for peer in self.peers:
            if peer.replica_state is not None and peer.replica_state.counter > heard and self.is_present(peer):
                heard = peer.replica_state.counter
        self.clock_skewed = bool(heard) and wall - heard > self.settings.max_clock_skew_ms << LOGICAL_BITS
        if not self.clock_skewed:
            agreement.last_stamp = max(agreement.last_stamp, wall)

    def _own_replica_state(self, now: ClockReading) -> ReplicaState:
        """Rule 7: one consistent snapshot of this master's state."""
        agreement = self.log_state
        assert agreement is not None
        self._raise_counter(now)
        if agreement.last_stamp > self.ceiling:
            self.ceiling = agreement.last_stamp + CEILING_BLOCK
            self._collect_records()
            self._effects.records.append(CounterCeiling(self.ceiling))
        self.post_number += 1
        heard = 1 << self.slot
        for peer in self.peers:
            if now.mono - peer.heard_ms <= self.settings.round_timeout_ms:
                heard |= 1 << peer.slot
        history = agreement.log_index
        return ReplicaState(
            slot=self.slot,
            birth=self.birth,
            start=self.start,
            number=self.post_number,
            log_index=history.length,
            log_hash=history.hash,
            counter=agreement.last_stamp,
            own_seq=agreement.own.held,
            held=[q.held for q in agreement.queues],
            heard=heard,
            full=self.disk_full,
        )

    def _send_post(self, peer: PeerProgress, now: ClockReading, due: bool) -> None:
        """Send one post, which also answers all requests of this peer. It requests an answer itself when it was due, or
        brings transactions."""
        agreement = self.log_state
        assert agreement is not None
        claim = self._own_replica_state(now)
        push = self._post_schedule.next_batch(agreement, peer)
        ask = due or push is not None
        answers, peer.reply_due = peer.reply_due, 0
        known = max(peer.replica_state.log_index if peer.replica_state else 0, agreement.log_index.start)
        order = order_hash = b""
        if known < claim.log_index:
            order = agreement.log_index.order(known, min(claim.log_index, known + ORDER_ENTRIES_PER_POST_MAX))
            order_hash = agreement.log_index.hash_at(known + len(order))
        view = agreement.view
        post = Post(
            cluster=view.cluster_id,
            epoch=view.epoch,
            ballot=view.ballot,
            coordinator=view.coordinator,
            claim=claim,
            relays=[p.replica_state for p in self.peers if p.replica_state is not None and p is not peer],
            ask=ask,
            answers=answers,
            order_after=known,
            order=order,
            order_hash=order_hash,
            runs=[],
            last_start_seen_of_you=self.views.last_start_seen(peer.origin),
        )
        self._collect_records()
        self._effects.sends.append(OutgoingMessage(peer.node, post, push))
        self._post_schedule.on_posted(peer, claim, push, ask)

    def _fetch_missing(self, now: ClockReading) -> int:
        agreement = self.log_state
        assert agreement is not None
        if self.disk_full:
            return 1 << 60
        wake = 1 << 60
        for slot, queue in enumerate(agreement.queues):
            holders = [p for p in self.peers if p.held_seq(slot) > queue.held and p.fault is None]
            if not holders:
                self._post_schedule.on_nothing_missing(slot)
                continue
            origin_present = any(p.slot == slot and self.is_present(p) for p in self.peers)
            chosen, due = self._post_schedule.choose_fetch_source(slot, queue.held, holders, origin_present)
            if chosen is not None:
                count = min(chosen.held_seq(slot) - queue.held, self.settings.frame_items_max)
                span = Span(queue.origin.node, queue.origin.birth, queue.held + 1, count)
                self._send([(chosen.node, FetchRuns(span))])
            wake = min(wake, due)
        return wake
