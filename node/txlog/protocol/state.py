"""What the core of a master knows of itself: its view, its peers, and what it has said since it was asked last."""

from __future__ import annotations

from typing import Final

from txlog.model.ids import Origin
from txlog.model.records import Recovered
from txlog.model.view import View
from txlog.protocol.agreement import Agreement
from txlog.protocol.events import Effects, Marks, Now, Send, Settings
from txlog.protocol.founding import Founding
from txlog.protocol.marks import marks_now
from txlog.protocol.peers import Peer
from txlog.protocol.queue import ENDLESS
from txlog.protocol.rounds import Rounds
from txlog.protocol.surroundings import Surroundings
from txlog.protocol.views import Views
from txlog.wire.messages import Checkpoint, FetchRuns, Message

NOTHING: Final = Effects()
"""What most calls have to say; nobody writes into it."""


class MasterState:
    """``agreement`` is there once a view is installed, or followed as a learner; ``peers`` are the other members of the
    latest view. ``reached``: where each configured master was last known to be, over changes of views.
    ``asked``: questions that came around a lost link; the caller answers them by :meth:`route`."""

    def __init__(self, settings: Settings, recovered: Recovered, now: Now) -> None:
        self.settings = settings
        self.birth = recovered.birth
        self.start = recovered.start
        self.around = Surroundings(settings.node, settings.round_timeout_ms, now.mono)
        self.views = Views(settings, recovered, self.around)
        self.founding = Founding(settings, recovered, self.views, now.mono)
        self.agreement: Agreement | None = None
        self.peers: list[Peer] = []
        self.full = False
        self.ceiling = recovered.ceiling
        self.number = 0
        self.slot = 0
        self._recovered: Recovered | None = recovered
        self._effects = Effects()
        self._marks = Marks(0, 0, 0, 0, 0)
        self._rounds = Rounds(settings)
        self._advanced: tuple[int, list[int]] = (-1, [])
        self.asked: list[tuple[str, FetchRuns]] = []
        self.reached: dict[str, Checkpoint] = {}
        self._stirred = True
        self._looked_ms = -(1 << 60)
        self._who_ms = -(1 << 60)

    def drain(self) -> Effects:
        """What has been said since the last call. Its ``records`` go to the journal before anything else of it
        leaves."""
        self._gather()
        if self.agreement is not None:
            if self.agreement.cut_to != ENDLESS:  # equal numbers would not be the same log
                self.agreement.cut_to = ENDLESS
                self._marks = self._marks._replace(log=-1)
            marks = marks_now(self._marks, self.agreement, self.peers, self.settings.node, self.views.configured)
            if marks is not self._marks:
                self._marks = self._effects.marks = marks
        effects = self._effects
        if effects.empty:
            return NOTHING
        self._effects = Effects()
        return effects

    def _gather(self) -> None:
        if self.founding.records:
            self._effects.records += self.founding.records
            self.founding.records.clear()
        if self.views.records:
            self._effects.records += self.views.records
            self.views.records.clear()
        agreement = self.agreement
        if agreement is not None and agreement.records:
            self._effects.records += agreement.records
            agreement.records.clear()

    def _say(self, sends: list[tuple[str, Message]]) -> None:
        self._effects.sends += [Send(node, message, None) for node, message in sends]

    def _enter_view(self, now: Now) -> None:
        """After a start, an accept or an install: the peers are those of the latest view, and nothing that they said in
        an earlier one counts."""
        views = self.views
        view = views.accepted
        if self.agreement is None and view is not None and (views.installed or view.history):
            recovered = self._recovered
            assert recovered is not None
            self.agreement = Agreement(
                Origin(self.settings.node, self.birth), view, recovered, self.settings.key_retention_ms
            )
            self.agreement.installed = views.installed
            views.agreement = self.agreement
            self._recovered = None
            views.changed = True
        agreement = self.agreement
        if not views.changed or agreement is None or view is None:
            return
        views.changed = False
        agreement.installed = views.installed
        if view.has(agreement.own.origin):
            self.slot = agreement.slots[agreement.own.origin]
        shared = self._shared_own(agreement)
        self._note_peers()
        if view.is_by_order(views.installed):  # who is out may have gone back to what another order's side had
            self.reached = {node: at for node, at in self.reached.items() if view.member(node) is not None}
        self.peers = [Peer(agreement.slots[m.origin], m) for m in view.members if m.origin != agreement.own.origin]
        for peer in self.peers:
            peer.pushed = peer.held_of_mine = shared
        self._rounds = Rounds(self.settings)
        self._advanced = (-1, [])
        self._rounds.entered(now.mono)

    def _note_peers(self) -> None:
        """Where the members were when they last said so (rule 19: the silent ones count)."""
        for peer in self.peers:
            if peer.claim is not None:
                self.reached[peer.node] = Checkpoint(peer.claim.log_index, peer.claim.log_hash)

    def _shared_own(self, agreement: Agreement) -> int:
        """The last own seq that every member of the view holds for certain."""
        history, base = agreement.history, agreement.view.base_index
        return max(agreement.own_synced, history.seq_within(self.slot, base) if base >= history.start else 0)

    def _learn(self, cluster: bytes) -> None:
        """A master without a view follows: it holds what it is sent, and counts for nothing (rule 2)."""
        recovered = self._recovered
        assert recovered is not None
        own = Origin(self.settings.node, self.birth)
        others = [(node, birth) for node, birth, _ in recovered.foot.seqs if (node, birth) != own]
        view = View(0, 0, "", [], cluster, 0, bytes(16), [(own.node, own.birth), *others], [])
        self.agreement = Agreement(own, view, recovered, self.settings.key_retention_ms)
        self.agreement.installed = False
        self.views.agreement = self.agreement
        self._recovered = None

    def is_present(self, peer: Peer) -> bool:
        """Heard within the round time-out, and hearing this master. A guess; safety never depends on it (rule 14)."""
        claim = peer.claim
        return (
            claim is not None
            and peer.fault is None
            and self._rounds.now_ms - peer.heard_ms <= self.settings.round_timeout_ms
            and bool(claim.heard >> self.slot & 1)
        )

    def _own_seq(self) -> int:
        if self.agreement is not None:
            return self.agreement.last_own
        recovered = self._recovered
        assert recovered is not None
        queued = [q.first_seq + len(q.stamps) - 1 for q in recovered.queued if q.birth == self.birth]
        logged = [s.first_seq + s.count - 1 for s in recovered.log_spans if s.birth == self.birth]
        return max([recovered.foot.seq_of(self.settings.node, self.birth), *queued, *logged])

    def _last_stamp(self) -> int:
        return self.agreement.last_stamp if self.agreement is not None else self.ceiling

    @property
    def view(self) -> View | None:
        return self.agreement.view if self.agreement is not None else None
