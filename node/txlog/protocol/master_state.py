"""The state of a master's core: its view, its peers, and its output since the last drain."""

from __future__ import annotations

from typing import Final

from txlog.model.ids import Origin
from txlog.model.records import RecoveredState
from txlog.model.view import View
from txlog.protocol.events import ClockReading, DurabilityMarks, Effects, OutgoingMessage, ProtocolSettings
from txlog.protocol.log.durability_marks import compute_marks
from txlog.protocol.log.incoming_queue import UNBOUNDED
from txlog.protocol.log.log_state import LogState
from txlog.protocol.membership.bootstrap import ClusterBootstrap
from txlog.protocol.replication.failure_detector import FailureDetector
from txlog.protocol.replication.peer_progress import PeerProgress
from txlog.protocol.replication.post_schedule import PostSchedule
from txlog.protocol.views.view_policy import ViewManager
from txlog.wire.messages import Checkpoint, FetchRuns, Message

NO_EFFECTS: Final = Effects()
"""The result of most calls: no effects. It is shared and never modified."""


class CoreState:
    """``log_state`` is set once a view is installed, or followed as a learner; ``peers`` are the other members of the
    latest view. ``known_log_positions``: the last known position of each configured master, across view changes.
    ``relayed_requests``: requests that were relayed around a lost link; the caller answers them by :meth:`route`."""

    def __init__(self, settings: ProtocolSettings, recovered: RecoveredState, now: ClockReading) -> None:
        self.settings = settings
        self.birth = recovered.birth
        self.start = recovered.start
        self.failure_detector = FailureDetector(settings.node, settings.round_timeout_ms, now.mono)
        self.views = ViewManager(settings, recovered, self.failure_detector)
        self.bootstrap = ClusterBootstrap(settings, recovered, self.views, now.mono)
        self.log_state: LogState | None = None
        self.peers: list[PeerProgress] = []
        self.disk_full = False
        self.ceiling = recovered.ceiling
        self.post_number = 0
        self.slot = 0
        self._recovered: RecoveredState | None = recovered
        self._effects = Effects()
        self._marks = DurabilityMarks(0, 0, 0, 0, 0)
        self._post_schedule = PostSchedule(settings)
        self._advanced_with: tuple[int, list[int]] = (-1, [])
        self.relayed_requests: list[tuple[str, FetchRuns]] = []
        self.known_log_positions: dict[str, Checkpoint] = {}
        self._needs_view_check = True
        self._views_checked_ms = -(1 << 60)
        self._hello_sent_ms = -(1 << 60)

    def drain(self) -> Effects:
        """The output since the last call. Its ``records`` go to the journal before the rest of it leaves."""
        self._collect_records()
        if self.log_state is not None:
            if self.log_state.truncated_to != UNBOUNDED:  # equal numbers would not be the same log
                self.log_state.truncated_to = UNBOUNDED
                self._marks = self._marks._replace(log=-1)
            marks = compute_marks(
                self._marks, self.log_state, self.peers, self.settings.node, self.views.configured_members
            )
            if marks is not self._marks:
                self._marks = self._effects.marks = marks
        effects = self._effects
        if effects.is_empty:
            return NO_EFFECTS
        self._effects = Effects()
        return effects

    def _collect_records(self) -> None:
        if self.bootstrap.records:
            self._effects.records += self.bootstrap.records
            self.bootstrap.records.clear()
        if self.views.records:
            self._effects.records += self.views.records
            self.views.records.clear()
        agreement = self.log_state
        if agreement is not None and agreement.records:
            self._effects.records += agreement.records
            agreement.records.clear()

    def _send(self, sends: list[tuple[str, Message]]) -> None:
        self._effects.sends += [OutgoingMessage(node, message, None) for node, message in sends]

    def _enter_view(self, now: ClockReading) -> None:
        """After a start, an accept or an install: the peers are those of the latest view, and nothing that they sent in
        an earlier one counts."""
        views = self.views
        view = views.accepted
        if self.log_state is None and view is not None and (views.installed or view.ancestors):
            recovered = self._recovered
            assert recovered is not None
            self.log_state = LogState(
                Origin(self.settings.node, self.birth), view, recovered, self.settings.key_retention_ms
            )
            self.log_state.installed = views.installed
            views.log_state = self.log_state
            self._recovered = None
            views.view_changed = True
        agreement = self.log_state
        if not views.view_changed or agreement is None or view is None:
            return
        views.view_changed = False
        agreement.installed = views.installed
        if view.has_member(agreement.own.origin):
            self.slot = agreement.slots[agreement.own.origin]
        shared = self._own_seq_held_by_all(agreement)
        self._record_peer_positions()
        if view.is_forced(views.installed):  # who is out may have gone back to what another order's side had
            self.known_log_positions = {
                node: at for node, at in self.known_log_positions.items() if view.member(node) is not None
            }
        self.peers = [
            PeerProgress(agreement.slots[m.origin], m) for m in view.members if m.origin != agreement.own.origin
        ]
        for peer in self.peers:
            peer.pushed = peer.held_of_mine = shared
        self._post_schedule = PostSchedule(self.settings)
        self._advanced_with = (-1, [])
        self._post_schedule.on_view_entered(now.mono)

    def _record_peer_positions(self) -> None:
        """Record the position that each member last reported (rule 19: the silent ones count)."""
        for peer in self.peers:
            if peer.replica_state is not None:
                self.known_log_positions[peer.node] = Checkpoint(
                    peer.replica_state.log_index, peer.replica_state.log_hash
                )

    def _own_seq_held_by_all(self, agreement: LogState) -> int:
        """The last own seq that every member of the view has certainly persisted."""
        history, base = agreement.log_index, agreement.view.base_index
        return max(agreement.own_synced, history.seq_within(self.slot, base) if base >= history.start else 0)

    def _become_learner(self, cluster: bytes) -> None:
        """A master without a view follows: it persists what it receives, and has no vote (rule 2)."""
        recovered = self._recovered
        assert recovered is not None
        own = Origin(self.settings.node, self.birth)
        others = [(node, birth) for node, birth, _ in recovered.log_start.seqs if (node, birth) != own]
        view = View(0, 0, "", [], cluster, 0, bytes(16), [(own.node, own.birth), *others], [])
        self.log_state = LogState(own, view, recovered, self.settings.key_retention_ms)
        self.log_state.installed = False
        self.views.log_state = self.log_state
        self._recovered = None

    def is_present(self, peer: PeerProgress) -> bool:
        """A message of the peer arrived within the round time-out, and the peer receives from this master. A guess;
        safety never depends on it (rule 14)."""
        claim = peer.replica_state
        return (
            claim is not None
            and peer.fault is None
            and self._post_schedule.now_ms - peer.heard_ms <= self.settings.round_timeout_ms
            and bool(claim.heard >> self.slot & 1)
        )

    def _own_seq(self) -> int:
        if self.log_state is not None:
            return self.log_state.last_own_seq
        recovered = self._recovered
        assert recovered is not None
        queued = [q.first_seq + len(q.stamps) - 1 for q in recovered.queued if q.birth == self.birth]
        logged = [s.first_seq + s.count - 1 for s in recovered.log_spans if s.birth == self.birth]
        return max([recovered.log_start.last_seq_of(self.settings.node, self.birth), *queued, *logged])

    def _last_stamp(self) -> int:
        return self.log_state.last_stamp if self.log_state is not None else self.ceiling

    @property
    def view(self) -> View | None:
        """The latest view of this master; None without a log."""
        return self.log_state.view if self.log_state is not None else None
