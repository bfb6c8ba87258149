"""When to post, and which transactions to put in front of a post. Safety never depends on this.

A post is due to a peer

* at once, when there are own transactions that were not pushed to it;
* within ``LOG_REPORT_DELAY_MS``, when the log has grown by own transactions since it was last reported to the peer:
  under load the next push reports it;
* ``RELAY_DELAY_MS`` after the log stopped growing, while a replicated transaction waits for its order or is not
  reported: their origin's posts usually reach all peers first, so most of these are never sent;
* every ``BUSY_INTERVAL_MS`` while any transaction waits for its order and there is new state to relay (busy);
* every ``idle_interval_ms`` otherwise.

A post also answers all requests of its receiver since the last one, and one that brings transactions requests an
answer. While an answer is awaited, the next post to that peer waits ``AWAITING_REPLY_INTERVAL_MS``. On a fast link
batches then form by themselves, and on a slow one the link is filled rather than used once in a round trip. A peer
whose disk is full is pushed nothing until it reports room again. A peer that let its time go by without an answer is
pushed nothing until it sends any message. Otherwise the queue would be read and encoded again and again for a dead
master. The longer the queue, the more that would cost the living ones.

A post of decisions alone delays no other one, and waits for no answer to an earlier one: a client that was answered
when a quorum held its transaction writes the next one while the COMMIT is on its way."""

from __future__ import annotations

from typing import Final

from txlog.protocol.local_master import LocalMaster
from txlog.protocol.log.log_state import LogState
from txlog.protocol.replication.peer_progress import InFlightPost, PeerProgress, PushState
from txlog.wire.messages import ReplicaState

AWAITING_REPLY_INTERVAL_MS: Final = 4
BUSY_INTERVAL_MS: Final = 5
LOG_REPORT_DELAY_MS: Final = 5
RELAY_DELAY_MS: Final = 20
IN_FLIGHT_MAX: Final = 64
"""Posts that await an answer, per peer: at ``AWAITING_REPLY_INTERVAL_MS`` a round trip of a quarter of a second is
filled."""
_FOREVER_MS: Final = 1 << 60


class PostSchedule:
    """``version`` grows with every change worth relaying. Times are ``mono`` milliseconds."""

    def __init__(self, local: LocalMaster) -> None:
        self._local = local
        self.now_ms = 0
        self.version = 0
        self._lazy_since_ms = _FOREVER_MS
        self._lazy_log = 0
        self._own_log_index = 0
        self._own_synced = 0
        self._own_synced_ms = 0
        self._fetches: dict[int, tuple[int, int, int]] = {}  # slot -> (held when asked, asked ms, turn)

    @property
    def resend_ms(self) -> int:
        """Milliseconds after which a post without an answer counts as lost."""
        return max(200, self._local.settings.round_timeout_ms // 2)

    def on_view_entered(self, mono_ms: int) -> None:
        """A view was entered at this time."""
        self.now_ms = max(self.now_ms, mono_ms)

    def on_own_transactions(self, mono_ms: int) -> None:
        """Own transactions were persisted: there is new state to relay."""
        self.now_ms = max(self.now_ms, mono_ms)
        self.version += 1

    def on_foreign_transactions(self, mono_ms: int) -> None:
        """Transactions of another master were persisted: they may have to be relayed after ``RELAY_DELAY_MS``."""
        self.now_ms = max(self.now_ms, mono_ms)
        self.version += 1
        self._lazy_since_ms = min(self._lazy_since_ms, mono_ms)

    def on_new_state(self) -> None:
        """A peer's newer state was received: there is new state to relay."""
        self.version += 1

    # Times

    def due_ms(self, agreement: LogState, peer: PeerProgress) -> int:
        """The earliest time for the next post to this peer."""
        if len(peer.in_flight) >= IN_FLIGHT_MAX:
            return peer.in_flight[0].sent_ms + self.resend_ms + 1
        wanted = min(self._is_due_now(agreement, peer), self._is_due_lazily(agreement, peer))
        wanted = min(wanted, peer.sent_ms + self._local.settings.idle_interval_ms)
        if any(one.delays_next for one in peer.in_flight) and not self._pushes_decisions(agreement, peer):
            return max(wanted, peer.sent_ms + AWAITING_REPLY_INTERVAL_MS)
        return wanted

    @staticmethod
    def _pushes_decisions(agreement: LogState, peer: PeerProgress) -> bool:
        """Whether what is to be pushed are decisions alone: they wait for no answer, since clients wait for them."""
        synchronous, first = agreement.synchronous, max(peer.pushed, peer.held_of_mine) + 1
        if not synchronous.decisions_waiting or first > agreement.own.held:
            return False
        return synchronous.are_decisions(agreement.own.origin, (first, agreement.own.held))

    def _is_due_now(self, agreement: LogState, peer: PeerProgress) -> int:
        if agreement.own_synced > self._own_synced:
            self._own_synced = agreement.own_synced
            self._own_log_index = agreement.stable
            self._own_synced_ms = self.now_ms
        if peer.push_state is PushState.PUSHING and max(peer.pushed, peer.held_of_mine) < agreement.own.held:
            return self.now_ms
        return self._own_synced_ms + LOG_REPORT_DELAY_MS if peer.sent_log_index < self._own_log_index else _FOREVER_MS

    def _is_due_lazily(self, agreement: LogState, peer: PeerProgress) -> int:
        waiting = not agreement.open.is_empty
        behind = peer.sent_log_index < agreement.log_index.length
        if not waiting and not behind and agreement.stable == agreement.log_index.length:
            self._lazy_since_ms = _FOREVER_MS
            return _FOREVER_MS
        if self.version == peer.sent_version:
            return _FOREVER_MS
        if len(agreement.own):
            return peer.sent_ms + BUSY_INTERVAL_MS
        if self._lazy_since_ms == _FOREVER_MS or self._lazy_log != agreement.log_index.length:
            self._lazy_since_ms = self.now_ms  # the log moves without our help
            self._lazy_log = agreement.log_index.length
        return max(self._lazy_since_ms, peer.sent_ms) + RELAY_DELAY_MS

    # Contents of a post

    def next_batch(self, agreement: LogState, peer: PeerProgress) -> tuple[int, int] | None:
        """The own transactions to put in front of a post, as first and last seq: from the first not yet pushed, as many
        as fit a frame."""
        own = agreement.own
        first = max(peer.pushed, peer.held_of_mine) + 1
        if peer.push_state is not PushState.PUSHING or first > own.held:
            return None
        last = min(own.held, first + self._local.settings.frame_items_max - 1)
        if first > own.in_log:
            last = self._fit_frame(agreement, first, last)
        return first, last

    def _fit_frame(self, agreement: LogState, first: int, last: int) -> int:
        own, room = agreement.own, self._local.settings.frame_bytes_max
        if own.payload_bytes <= room:
            return last
        for seq in range(first, last + 1):
            room -= own.size(seq)
            if room < 0:
                return max(first, seq - 1)
        return last

    def on_posted(
        self, peer: PeerProgress, claim: ReplicaState, push: tuple[int, int] | None, ask: bool, delays_next: bool
    ) -> None:
        """A post was sent to the peer with this claim. ``push``: the own transactions in front of it, as first and last
        seq; ``ask``: it requests an answer; ``delays_next``: see :class:`InFlightPost`."""
        if push is not None:
            peer.pushed = max(peer.pushed, push[1])
        peer.sent_log_index = claim.log_index
        peer.sent_version = self.version
        if ask:
            peer.sent_ms = self.now_ms
            peer.in_flight.append(InFlightPost(claim.number, self.now_ms, peer.pushed, delays_next))

    # Transactions that others have and this master misses

    def on_nothing_missing(self, slot: int) -> None:
        """No transaction of the slot's origin is missing: forget the request for them."""
        self._fetches.pop(slot, None)

    def choose_fetch_source(
        self, slot: int, held: int, holders: list[PeerProgress], origin_present: bool
    ) -> tuple[PeerProgress | None, int]:
        """The peer to request one origin's transactions after ``held`` from, and when to check again, in milliseconds.

        An origin that is present pushes by itself, so it is given ``resend_ms`` first. A holder that does not
        answer in that time is followed by the next."""
        before = self._fetches.get(slot)
        if before is None or before[0] != held:
            turn = before[2] if before else -1
            at = self.now_ms + (self.resend_ms if origin_present else 0)
            self._fetches[slot] = (held, at - self.resend_ms, turn)
        _, asked_ms, turn = self._fetches[slot]
        if self.now_ms < asked_ms + self.resend_ms:
            return None, asked_ms + self.resend_ms
        turn += 1
        self._fetches[slot] = (held, self.now_ms, turn)
        return holders[turn % len(holders)], self.now_ms + self.resend_ms
