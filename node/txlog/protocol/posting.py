"""What this master says: its counter as a promise, its post as one snapshot (rules 4 to 8), and what it asks for."""

from __future__ import annotations

from typing import Final

from txlog.model.entry import Span
from txlog.model.records import Ceiling, Recovered
from txlog.model.stamp import LOGICAL_BITS, stamp_at
from txlog.protocol.events import Now, Send, Settings
from txlog.protocol.hearing import Hearing
from txlog.protocol.peers import Peer
from txlog.wire.messages import FetchRuns, Post, ReplicaState

CEILING_BLOCK: Final = 10_000 << LOGICAL_BITS
"""How far ahead the promise is made durable: one small record in ten seconds, and a restart resumes at most this
far in the future (rule 5)."""
ORDER_MAX: Final = 65_536
"""Entries of the log's order in one post, a byte each: a bounded piece of catching up (rule 18)."""


class Posting(Hearing):
    """When a post is due and what stands in front of it is decided in ``rounds.py``."""

    def __init__(self, settings: Settings, recovered: Recovered, now: Now) -> None:
        super().__init__(settings, recovered, now)
        self.skewed = False

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

    def _claim(self, now: Now) -> ReplicaState:
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
        return ReplicaState(
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
        known = max(peer.claim.log_index if peer.claim else 0, agreement.history.start)
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
            last_start_seen_of_you=self.views.heard_start_of(peer.origin),
        )
        self._gather()
        self._effects.sends.append(Send(peer.node, post, push))
        self._rounds.posted(peer, claim, push, ask)

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
