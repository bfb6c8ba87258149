"""ADD and STABLE: what is known of all members decides how far the log and its stable part go (rules 10, 12, 33)."""

from __future__ import annotations

from txlog.model.errors import Fatal
from txlog.protocol.agreement import Agreement
from txlog.protocol.history import History
from txlog.protocol.peers import Peer
from txlog.protocol.state import MasterState
from txlog.wire.messages import ReplicaState


class Adding(MasterState):
    """Nothing is done twice for the same knowledge."""

    def _advance(self) -> None:
        """ADD and STABLE with what is known now; nothing when nothing was learnt since the last time."""
        agreement = self.agreement
        if agreement is None or not self.founding.admitted or not self.views.at_work or self.views.ahead is not None:
            return
        present = self.peers if self.views.majority else [p for p in self.peers if self.is_present(p)]
        known = (self._rounds.version, [p.slot for p in present])
        if known == self._advanced:
            return
        self._advanced = known
        self._make_usable(agreement)
        bound = min([agreement.last_stamp, *(p.usable_counter for p in self.peers)])
        held = self._held_by(agreement, present)
        if agreement.add(bound, held):
            self._make_usable(agreement)
        agreement.settle(held if len(present) == len(self.peers) else self._held_by(agreement, self.peers))

    def _held_by(self, agreement: Agreement, peers: list[Peer]) -> list[int]:
        """Per slot the last seq that this master and all of ``peers`` are known to hold."""
        held = [q.held for q in agreement.queues]
        for peer in peers:
            if peer.claim is None:
                return [0] * len(held)
            held = [min(mine, theirs) for mine, theirs in zip(held, peer.claim.held, strict=True)]
        return held

    def _make_usable(self, agreement: Agreement) -> None:
        """Rule 10: a counter counts only with what came with it."""
        history = agreement.history
        for peer in self.peers:
            while peer.pending:
                claim = peer.pending[0]
                if claim.log_index > history.length or claim.own_seq > agreement.queues[peer.slot].held:
                    break
                if history.keeps(claim.log_index):  # below the foot, where everybody has come by this same log
                    self._check_claim(history, peer, claim)
                peer.usable_counter = max(peer.usable_counter, claim.counter)
                peer.pending.popleft()

    @staticmethod
    def _check_claim(history: History, peer: Peer, claim: ReplicaState) -> None:
        if history.hash_at(claim.log_index) != claim.log_hash:
            raise Fatal("Forked", f"{peer.node} has another log than this master at or before index {claim.log_index}")
