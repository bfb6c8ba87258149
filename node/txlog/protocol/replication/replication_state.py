"""The log of a master, the other members of its view, and when it posts to them: what replication works on."""

from __future__ import annotations

from enum import Enum
from typing import Final

from txlog.model.ids import Origin
from txlog.model.records import RecoveredState
from txlog.model.view import View
from txlog.protocol.events import ClockReading
from txlog.protocol.local_master import LocalMaster
from txlog.protocol.log.log_state import LogState
from txlog.protocol.outbox import Outbox
from txlog.protocol.replication.failure_detector import FailureDetector
from txlog.protocol.replication.peer_progress import PeerProgress
from txlog.protocol.replication.post_schedule import PostSchedule
from txlog.wire.messages import Checkpoint, Hello

_NEVER_ADVANCED: Final = (-1, [-1])


class AppendRule(Enum):
    """Which members must hold a transaction before it enters the log (rule 12)."""

    NOT_NOW = 0
    """No view is active here, or this master may not vote yet: the log does not grow."""
    PRESENT_MEMBERS = 1
    """``Continue``: those that are present."""
    ALL_MEMBERS = 2
    """``Majority``: every member of the view."""


class ReplicationState:
    """``log`` is this master's log and queue. ``peers`` are the other members of the latest view, ``slot`` is its own
    place in the vectors of that view, ``place`` the one among its members. ``ceiling``: the durable promise about the
    counter (rule 5). ``post_number`` counts the posts of this process. ``known_log_positions``: the last known position
    of each configured master, across view changes."""

    def __init__(
        self,
        local: LocalMaster,
        failure_detector: FailureDetector,
        outbox: Outbox,
        log: LogState,
        ceiling: int,
    ) -> None:
        self.local = local
        self.failure_detector = failure_detector
        self.outbox = outbox
        self.log = log
        self.ceiling = ceiling
        self.slot = 0
        self.place = 0
        self.peers: list[PeerProgress] = []
        self.post_number = 0
        self.schedule = PostSchedule(local)
        self.advanced_with: tuple[int, list[int]] = _NEVER_ADVANCED
        self.known_log_positions: dict[str, Checkpoint] = {}

    @property
    def now_ms(self) -> int:
        """The latest ``mono`` millisecond that the driver reported."""
        return self.schedule.now_ms

    def tick(self, mono_ms: int) -> None:
        """Advance the time, in ``mono`` milliseconds."""
        self.schedule.now_ms = max(self.schedule.now_ms, mono_ms)

    def enter_view(self, view: View, installed: bool, now: ClockReading) -> None:
        """The peers are the other members of ``view``; nothing that they sent in an earlier one counts."""
        log = self.log
        if view.has_member(log.own.origin):
            self.slot = log.slots[log.own.origin]
            self.place = [m.origin for m in view.members].index(log.own.origin)
        shared = self._own_seq_held_by_all()
        self.record_peer_positions()
        if view.is_forced(installed):  # a master outside may have gone back to what another override's branch had
            self.known_log_positions = {
                node: at for node, at in self.known_log_positions.items() if view.member(node) is not None
            }
        self.peers = [
            PeerProgress(log.slots[m.origin], place, m)
            for place, m in enumerate(view.members)
            if m.origin != log.own.origin
        ]
        for peer in self.peers:
            peer.assume_held(shared)
        self.schedule = PostSchedule(self.local)
        self.advanced_with = _NEVER_ADVANCED
        self.schedule.on_view_entered(now.mono)

    def record_peer_positions(self) -> None:
        """Record the position that each member last reported (rule 19: the silent ones count)."""
        for peer in self.peers:
            if peer.replica_state is not None:
                self.known_log_positions[peer.node] = Checkpoint(
                    peer.replica_state.log_index, peer.replica_state.log_hash
                )

    def log_positions(self, candidates: list[Hello]) -> dict[str, Checkpoint]:
        """The known positions: members report them in their posts, masters outside the view in their hellos."""
        self.record_peer_positions()
        births = {peer.node: peer.origin.birth for peer in self.peers}
        for who in candidates:
            if births.get(who.node) != who.birth:
                self.known_log_positions[who.node] = Checkpoint(who.log_index, who.log_hash)
        return self.known_log_positions

    def _own_seq_held_by_all(self) -> int:
        """The last own seq that every member of the view has certainly persisted."""
        history, base = self.log.log_index, self.log.view.base_index
        return max(self.log.own_synced, history.seq_within(self.slot, base) if base >= history.start else 0)

    def is_present(self, peer: PeerProgress) -> bool:
        """A message of the peer arrived within the round time-out, and the peer receives from this master. A guess;
        safety never depends on it (rule 14)."""
        claim = peer.replica_state
        return (
            claim is not None
            and peer.fault is None
            and self.schedule.now_ms - peer.heard_ms <= self.local.settings.round_timeout_ms
            and claim.has_heard(self.slot, self.place)
        )

    @property
    def all_present(self) -> bool:
        """Whether every other member of the view is present."""
        return all(self.is_present(peer) for peer in self.peers)

    def raise_counter(self, now: ClockReading) -> None:
        """Raise the counter to the clock, as far as the clock is believed (rule 6). The promise is durable before it
        leaves (rule 5)."""
        local, log = self.local, self.log
        skew_ms, round_ms = local.settings.max_clock_skew_ms, local.settings.round_timeout_ms
        log.raise_last_stamp(
            local.clock.raised_counter(now, log.last_stamp, skew_ms, round_ms, self._counters_of_present)
        )

    def _counters_of_present(self) -> dict[str, int]:
        """The latest counters of the peers that are present."""
        return {
            peer.node: peer.replica_state.counter
            for peer in self.peers
            if peer.replica_state is not None and self.is_present(peer)
        }


def learner_log(local: LocalMaster, recovered: RecoveredState, cluster: bytes, outbox: Outbox) -> LogState:
    """The log of a master without a view: it follows, persists what it receives, and has no vote (rule 2)."""
    own = local.origin
    others = [(node, birth) for node, birth, _ in recovered.log_start.seqs if Origin(node, birth) != own]
    view = View(0, 0, "", [], cluster, 0, bytes(16), [(own.node, own.birth), *others], [])
    log = LogState(own, view, recovered, local.settings.key_retention_ms, records=outbox.records)
    log.installed = False
    return log
