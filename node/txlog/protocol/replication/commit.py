"""APPEND and STABLE: what all members are known to hold decides how far the log and its stable part go (rules 10, 12,
33)."""

from __future__ import annotations

from txlog.model.errors import Fatal
from txlog.protocol.log.log_index import LogIndex
from txlog.protocol.replication.peer_progress import PeerProgress
from txlog.protocol.replication.replication_state import AppendRule, ReplicationState
from txlog.wire.messages import ReplicaState


class LogCommitter:
    """Returns early if neither the peers' states nor the present peers changed."""

    def __init__(self, state: ReplicationState) -> None:
        self.state = state

    def advance(self, rule: AppendRule) -> None:
        """Append and advance the stable index with what is known now; nothing when nothing changed since last time."""
        if rule is AppendRule.NOT_NOW:
            return
        state = self.state
        log, peers = state.log, state.peers
        present = peers if rule is AppendRule.ALL_MEMBERS else [p for p in peers if state.is_present(p)]
        known = (state.schedule.version, [p.slot for p in present])
        if known == state.advanced_with:
            return
        state.advanced_with = known
        self._update_usable_counters()
        bound = min([log.last_stamp, *(p.usable_counter for p in peers)])
        held = self._held_by(present)
        if log.append_up_to(bound, held):
            self._update_usable_counters()
        log.advance_stable(held if len(present) == len(peers) else self._held_by(peers))

    def _held_by(self, peers: list[PeerProgress]) -> list[int]:
        """Per open slot the last seq that this master and all of ``peers`` are known to have persisted. All members
        have what a settled queue holds."""
        open_queues = self.state.log.open
        held = open_queues.held_seqs()
        for peer in peers:
            if peer.replica_state is None:
                return [0] * len(held)
            theirs = peer.replica_state.held
            for slot in open_queues.slots:
                held[slot] = min(held[slot], theirs[slot])
        return held

    def _update_usable_counters(self) -> None:
        """Rule 10: a counter counts only once the log and the transactions of the same claim are here."""
        log = self.state.log
        history = log.log_index
        for peer in self.state.peers:
            while peer.pending_states:
                claim = peer.pending_states[0]
                if claim.log_index > history.length or claim.own_seq > log.queues[peer.slot].held:
                    break
                if history.has_hash_at(claim.log_index):  # below the log start, which every member passed by this log
                    self._check_log_hash(history, peer, claim)
                peer.usable_counter = max(peer.usable_counter, claim.counter)
                peer.pending_states.popleft()

    @staticmethod
    def _check_log_hash(history: LogIndex, peer: PeerProgress, claim: ReplicaState) -> None:
        if history.hash_at(claim.log_index) != claim.log_hash:
            raise Fatal("Forked", f"{peer.node} has another log than this master at or before index {claim.log_index}")
