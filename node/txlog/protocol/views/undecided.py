"""The synchronous transactions of log and queue that no decision names, and which members are known to hold them.

Pure of time. What a master may do about them is in ``decisions.py``; ``decision_writer.py`` does it.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple

from txlog.model.anchor import Anchor
from txlog.model.errors import Conflict, Refused, Unavailable
from txlog.model.ids import Origin, Txid, ViewNumber
from txlog.model.quorum import (
    MAJORITY,
    Quorum,
    QuorumNeeds,
    compute_needs,
    count_votes,
    format_quorum,
)
from txlog.model.synchronous_entry import SynchronousKey
from txlog.model.view import Number, View
from txlog.protocol.log.log_state import LogState
from txlog.protocol.replication.replication_state import ReplicationState
from txlog.protocol.views.anchors import Candidate
from txlog.protocol.views.decisions import DecidableTransactions, Progress, QuorumJudge, UndecidedTransaction, judge
from txlog.protocol.views.view_state import ViewState

RETRY_S = 2
"""After which a refused transaction may be tried again, in seconds."""
_EVERY_SEQ: Final = 1 << 62


class UndecidedState(StrEnum):
    """What becomes of an undecided transaction, as far as this master knows."""

    WAITING = "waiting"
    CERTAIN = "certain"
    """A quorum holds it: it takes effect in any case."""
    DOOMED = "doomed"
    """This view rolls it back."""


class UndecidedEntry(NamedTuple):
    """``log_index``: 0 while it is not in the log. ``stamp``: from which its time-out counts."""

    txid: Txid
    log_index: int
    kind: int
    key: SynchronousKey
    stamp: int


class UndecidedStatus(NamedTuple):
    """One undecided transaction, for people. ``needs``: the votes of its quorum. ``holders``: the members that are
    known in this view to hold it. ``is_late``: its time-out has passed."""

    transaction: UndecidedEntry
    state: UndecidedState
    needs: QuorumNeeds
    holders: list[str]
    is_late: bool


class SynchronousStatus(NamedTuple):
    """``quorate``: this master is at work in a view that decides. ``anchor``: of the latest quorate view that is known
    here; its ``electorate`` has the votes. ``present``: the members that answer, this master among them.
    ``own_bytes``: payload of this master's undecided ones that may still change their place."""

    quorate: bool
    view: Number
    anchor: Anchor
    present: list[str]
    undecided: list[UndecidedStatus]
    own_bytes: int = 0


def list_undecided(log: LogState, origin: Origin | None = None, last_seq: int = _EVERY_SEQ) -> list[UndecidedEntry]:
    """Those of the log in its order, then those that wait for their place in this view. ``origin``: only its own.
    ``last_seq``: none behind it."""
    effects = log.synchronous
    named = {t for at, (_, names) in effects.decisions_waiting.items() if _is_queued(log, at) for t in names}
    found = [
        UndecidedEntry(one.txid, one.log_index, one.kind, one.key, one.stamp)
        for one in effects.limbo.open.values()
        if one.txid.seq <= last_seq and (origin is None or one.txid.origin == origin) and one.txid not in named
    ]
    for txid, (kind, key) in effects.waiting.items():
        if txid.seq > last_seq or (origin is not None and txid.origin != origin):
            continue
        if txid in named or txid in effects.limbo.early:
            continue
        if _is_queued(log, txid):
            found.append(UndecidedEntry(txid, 0, kind, key, log.by_origin[txid.origin].age_stamp(txid.seq)))
    return found


def find_undecided(log: LogState, txid: Txid) -> UndecidedEntry | None:
    """The one of :func:`list_undecided` with this id; its cost does not grow with their number."""
    effects = log.synchronous
    for at, (_, names) in effects.decisions_waiting.items():
        if txid in names and _is_queued(log, at):
            return None
    one, waiting = effects.limbo.open.get(txid), effects.waiting.get(txid)
    if one is not None:
        return UndecidedEntry(one.txid, one.log_index, one.kind, one.key, one.stamp)
    if waiting is None or txid in effects.limbo.early or not _is_queued(log, txid):
        return None
    return UndecidedEntry(txid, 0, *waiting, log.by_origin[txid.origin].age_stamp(txid.seq))


def _is_queued(log: LogState, txid: Txid) -> bool:
    """Whether it waits for its place in this view: it is not of another branch."""
    queue = log.by_origin.get(txid.origin)
    return queue is not None and queue.in_log < txid.seq <= min(queue.limit, queue.held)


class UndecidedTransactions:
    """What this master knows of them in its view."""

    def __init__(self, views: ViewState) -> None:
        self.views = views
        self._view: View | None = None
        self._anchor: Anchor | None = None
        """Of ``_view``, where it is quorate."""
        self._judge: QuorumJudge | None = None
        self._held_seqs: dict[Quorum, int] = {}
        """What :meth:`own_seq_held_by` has found, as long as ``_held_at`` is the same."""
        self._held_at: tuple[int, int, ViewNumber] | None = None

    @property
    def quorate_anchor(self) -> Anchor | None:
        """The anchor of the view at work, where that view decides; None elsewhere."""
        views = self.views
        view = views.accepted
        if view is not self._view:  # asked for some twenty times per transaction
            self._view, self._anchor = view, view.anchor if view is not None and view.is_quorate else None
        works = self._anchor is not None and views.is_active and views.newer_view is None
        return self._anchor if works else None

    def holders(self, state: ReplicationState, txid: Txid) -> frozenset[str]:
        """The members that are known, in this view, to hold a transaction: all of them where it is in the view's base
        or queue, else those that report it (rule S6)."""
        log = state.log
        slot = log.slots.get(txid.origin)
        if slot is None:
            return frozenset()
        known = log.view.known_seqs
        if slot < len(known) and txid.seq <= known[slot]:
            return frozenset(member.node for member in log.view.members)
        found = [p.node for p in state.peers if p.fault is None and p.held_seq(slot) >= txid.seq]
        if txid.seq <= log.by_origin[txid.origin].held:
            found.append(state.local.node)
        return frozenset(found)

    def own_seq_held_by(self, state: ReplicationState, quorum: Quorum) -> int:
        """The last transaction of this master that such a quorum of the members is known to hold, as :meth:`holders`
        says; 0 for none, and where this view does not decide. A member that holds one holds all before it."""
        anchor, log = self.quorate_anchor, state.log
        if anchor is None:
            return 0
        known = (state.schedule.version, log.own.held, anchor.number)
        if known != self._held_at:
            self._held_at, self._held_seqs = known, {}
        found = self._held_seqs.get(quorum)
        if found is None:
            found = self._held_seqs[quorum] = self._find_held_seq(state, quorum, anchor)
        return found

    def _find_held_seq(self, state: ReplicationState, quorum: Quorum, anchor: Anchor) -> int:
        log = state.log
        slot, known_seqs = log.slots[log.own.origin], log.view.known_seqs
        known = known_seqs[slot] if slot < len(known_seqs) else 0
        held = {member.node: known for member in log.view.members}
        for peer in state.peers:
            if peer.fault is None:
                held[peer.node] = max(known, peer.held_seq(slot))
        held[state.local.node] = max(known, log.own.held)
        judged = self._judge_of(anchor)
        for seq in sorted(set(held.values()), reverse=True):
            if judged.is_quorum(quorum, frozenset([node for node, last in held.items() if last >= seq])):
                return seq
        return 0

    def judge_own(self, state: ReplicationState) -> DecidableTransactions:
        """As :meth:`judge`, of this master's own transactions. Those that no majority holds are passed over: they are
        most of them, and every quorum is a majority."""
        anchor, log = self.quorate_anchor, state.log
        if anchor is None or not log.synchronous.has_undecided_of(log.own.origin):
            return DecidableTransactions([], [])
        has_doomed = len(self._judge_of(anchor).doomed) > 0
        last_seq = _EVERY_SEQ if has_doomed else self.own_seq_held_by(state, MAJORITY)
        return self.judge(state, list_undecided(log, log.own.origin, last_seq))

    def judge(self, state: ReplicationState, undecided: list[UndecidedEntry]) -> DecidableTransactions:
        """Which of these this master may commit or roll back now."""
        anchor = self.quorate_anchor
        if anchor is None or not undecided:
            return DecidableTransactions([], [])
        names = [UndecidedTransaction(one.txid, one.key.quorum) for one in undecided]
        known = self._judge_of(anchor)
        return judge(names, anchor, lambda txid: self.holders(state, txid), quorate=True, known=known)

    def _judge_of(self, anchor: Anchor) -> QuorumJudge:
        if self._judge is None or self._judge.anchor is not anchor:
            self._judge = QuorumJudge(anchor)
        return self._judge

    def _is_certain(self, state: ReplicationState, one: UndecidedEntry, anchor: Anchor) -> bool:
        """As :meth:`judge`, for one of them."""
        known = self._judge_of(anchor)
        return one.txid not in known.doomed and known.is_quorum(one.key.quorum, self.holders(state, one.txid))

    # Clients

    def refusal(self, state: ReplicationState, key: SynchronousKey, counted: tuple[int, int]) -> Refused | None:
        """Why a synchronous transaction is not taken: nothing of it is logged then (rules S2, S15). ``counted``: own
        undecided transactions and their bytes, those taken just now among them."""
        view, anchor = self.views.accepted, self.quorate_anchor
        if view is not None and view.anchor is None and view.strategy == "None":
            text = "workers that do not go back after a split cannot hold one order: splitRecovery is None"
            return Unavailable("SynchroNone", f"{text}; nothing was logged", RETRY_S)
        if view is None or view.anchor is None:
            text = "synchronous transactions are not in use: no view of every configured master has begun them"
            return Unavailable("NoQuorum", f"{text}; nothing was logged", RETRY_S)
        if anchor is None:
            text = "this master is not at work in a view that most votes decided: nothing was logged"
            return Unavailable("NoQuorum", f"{text}; ask a master of the other side", RETRY_S)
        known = self._judge_of(anchor)
        half = known.half_of_votes
        if half is not None:
            text = f"{half.node} has half of the votes or more: of three or more masters each needs less than half"
            return Unavailable("NoQuorum", f"{text}; nothing was logged", RETRY_S)
        here = frozenset(self.present(state))
        if not known.is_quorum(key.quorum, here):
            needs, votes = compute_needs(key.quorum, anchor.electorate), count_votes(anchor.electorate, here)
            text = f"{votes} of {needs.total} votes are here, {format_quorum(key.quorum)} needs {needs.votes}"
            return Unavailable("NoQuorum", f"{text}: nothing was logged; ask a master of the other side", RETRY_S)
        settings = state.local.settings
        if counted[0] >= settings.synchronous_transactions_max or counted[1] > settings.synchronous_bytes_max:
            text = f"{counted[0]} synchronous transactions of this master wait for their decision"
            return Unavailable("SynchroFull", text, RETRY_S)
        return None

    def count_own(self, state: ReplicationState) -> tuple[int, int]:
        """This master's undecided transactions, and the bytes of those that may still change their place."""
        log = state.log
        own = [one.txid.seq for one in list_undecided(log, log.own.origin)]
        return len(own), sum(log.own.size(seq) for seq in own if seq >= log.own.first_kept)

    def present(self, state: ReplicationState) -> list[str]:
        """The members that answer, this master first."""
        return [state.local.node, *(peer.node for peer in state.peers if state.is_present(peer))]

    def give_up_votes(self, nodes: list[str]) -> None:
        """The operator's override: these masters are lost for good, and their votes with them. The next view is judged
        as if they had had none. It is wrong where one of them lives. :class:`Conflict` when it is not needed or not
        valid. It is kept in memory: after a restart before that view it is given again."""
        views, view = self.views, self.views.accepted
        if view is None or view.anchor is None:
            raise Conflict("this cluster has no synchronous transactions")
        if self.quorate_anchor is not None:
            raise Conflict("this master is at work in a view that most votes decided: no vote is missing")
        voting = {master.node for each in (view.anchor.electorate, *view.anchor.under) for master in each}
        for node in nodes:
            if node not in voting:
                raise Conflict(f"{node} has no vote for synchronous transactions")
            if node == views.local.node or node in views.failure_detector.reachable():
                raise Conflict(f"{node} answers: its vote is not lost")
        views.given_up_votes = frozenset(nodes)
        views.needs_check = True

    def status(self, state: ReplicationState) -> SynchronousStatus | None:
        """What operators see; None in a cluster without synchronous transactions."""
        view, log = self.views.accepted, state.log
        if view is None or view.anchor is None:
            return None
        anchor, undecided = view.anchor, list_undecided(log)
        decidable, found = self.judge(state, undecided), list[UndecidedStatus]()
        certain, doomed = set(decidable.certain), set(decidable.doomed)
        for one in undecided:
            named = UndecidedState.DOOMED if one.txid in doomed else UndecidedState.WAITING
            named = UndecidedState.CERTAIN if one.txid in certain else named
            is_late = Candidate(one.stamp, one.txid, one.key.timeout_ms).is_late(log.last_stamp)
            holders = sorted(self.holders(state, one.txid))
            found.append(
                UndecidedStatus(one, named, compute_needs(one.key.quorum, anchor.electorate), holders, is_late)
            )
        present, own_bytes = self.present(state), self.count_own(state)[1]
        return SynchronousStatus(self.quorate_anchor is not None, view.number, anchor, present, found, own_bytes)

    def progress(
        self, state: ReplicationState, txid: Txid, stable: int, applied: int, *, asks_quorum: bool
    ) -> Progress | None:
        """What this master knows of a synchronous transaction; None for one that it does not know to be synchronous.
        ``stable``, ``applied``: the indices that answers to clients may count on. ``asks_quorum``: whether ``certain``
        matters to the answer, and is found out."""
        log, effects = state.log, state.log.synchronous
        commit, rollback = effects.effect_index(txid), effects.rollback_index(txid)
        is_open = effects.is_undecided(txid)
        if not (commit or rollback or is_open):
            return None
        certain, anchor = not rollback and effects.is_commit_known(txid), self.quorate_anchor
        if asks_quorum and is_open and not rollback and not certain and anchor is not None:
            found = find_undecided(log, txid)
            certain = found is not None and self._is_certain(state, found, anchor)
        return Progress(certain, commit, rollback, stable, applied, anchor is not None)
