"""APPEND and STABLE: what all members are known to hold decides how far the log and its stable part go (rules 10, 12,
33)."""

from __future__ import annotations

from txlog.model.errors import Fatal
from txlog.protocol.log.log_index import LogIndex
from txlog.protocol.log.log_state import LogState
from txlog.protocol.master_state import CoreState
from txlog.protocol.replication.peer_progress import PeerProgress
from txlog.wire.messages import ReplicaState


class LogCommitter(CoreState):
    """Returns early if neither the peers' states nor the present peers changed."""

    def _advance(self) -> None:
        """Append and advance the stable index with what is known now; nothing when nothing changed since last time."""
        agreement = self.log_state
        if (
            agreement is None
            or not self.bootstrap.admitted
            or not self.views.is_active
            or self.views.newer_view is not None
        ):
            return
        present = self.peers if self.views.majority_required else [p for p in self.peers if self.is_present(p)]
        known = (self._post_schedule.version, [p.slot for p in present])
        if known == self._advanced_with:
            return
        self._advanced_with = known
        self._update_usable_counters(agreement)
        bound = min([agreement.last_stamp, *(p.usable_counter for p in self.peers)])
        held = self._held_by(agreement, present)
        if agreement.append_up_to(bound, held):
            self._update_usable_counters(agreement)
        agreement.advance_stable(held if len(present) == len(self.peers) else self._held_by(agreement, self.peers))

    def _held_by(self, agreement: LogState, peers: list[PeerProgress]) -> list[int]:
        """Per slot the last seq that this master and all of ``peers`` are known to have persisted."""
        held = [q.held for q in agreement.queues]
        for peer in peers:
            if peer.replica_state is None:
                return [0] * len(held)
            held = [min(mine, theirs) for mine, theirs in zip(held, peer.replica_state.held, strict=True)]
        return held

    def _update_usable_counters(self, agreement: LogState) -> None:
        """Rule 10: a counter counts only once the log and the transactions of the same claim are here."""
        history = agreement.log_index
        for peer in self.peers:
            while peer.pending_states:
                claim = peer.pending_states[0]
                if claim.log_index > history.length or claim.own_seq > agreement.queues[peer.slot].held:
                    break
                if history.has_hash_at(claim.log_index):  # below the foot, where everybody has come by this same log
                    self._check_log_hash(history, peer, claim)
                peer.usable_counter = max(peer.usable_counter, claim.counter)
                peer.pending_states.popleft()

    @staticmethod
    def _check_log_hash(history: LogIndex, peer: PeerProgress, claim: ReplicaState) -> None:
        if history.hash_at(claim.log_index) != claim.log_hash:
            raise Fatal("Forked", f"{peer.node} has another log than this master at or before index {claim.log_index}")
