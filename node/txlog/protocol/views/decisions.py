"""What a master may decide about synchronous transactions in its view, and what a client hears. All is pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import NamedTuple

from txlog.model.anchor import Anchor
from txlog.model.durability import Durability
from txlog.model.ids import Txid
from txlog.model.quorum import Quorum, compute_needs, find_half_of_votes, meets_needs


class UndecidedTransaction(NamedTuple):
    """A synchronous transaction of the log or queue that no decision there names."""

    txid: Txid
    quorum: Quorum


class DecidableTransactions(NamedTuple):
    """``certain``: a quorum holds it, so it takes effect in any case, and a COMMIT may name it. ``doomed``: a
    ROLLBACK may name it."""

    certain: list[Txid]
    doomed: list[Txid]


class QuorumJudge:
    """What the anchor of a view says of many transactions: most have the same quorum and the same holders. ``doomed``:
    the transactions that the view rolls back. ``half_of_votes``: a master that has
    so many, so that no quorum counts."""

    def __init__(self, anchor: Anchor) -> None:
        self.anchor = anchor
        self.doomed = anchor.doomed_names()
        self.half_of_votes = find_half_of_votes(anchor.electorate)
        self._known: dict[tuple[Quorum, frozenset[str]], bool] = {}

    def is_quorum(self, quorum: Quorum, holders: frozenset[str]) -> bool:
        """Whether these members are a quorum of the anchor's electorate."""
        asked = quorum, holders
        known = self._known.get(asked)
        if known is None:
            electorate = self.anchor.electorate
            known = self._known[asked] = meets_needs(compute_needs(quorum, electorate), electorate, holders)
        return known


def judge(
    undecided: Iterable[UndecidedTransaction],
    anchor: Anchor,
    holders_of: Callable[[Txid], frozenset[str]],
    *,
    quorate: bool,
    known: QuorumJudge | None = None,
) -> DecidableTransactions:
    """What may be decided in a view at work. ``quorate``: ``anchor`` is the view's own. ``holders_of``: the members of
    the view that are known, in this view, to hold a transaction. ``known``: of this anchor, if it was used before.
    Outside of a quorate view nothing may be."""
    found = DecidableTransactions([], [])
    if not quorate:
        return found
    known = known or QuorumJudge(anchor)
    for txid, quorum in undecided:
        if txid in known.doomed:
            found.doomed.append(txid)
        elif known.is_quorum(quorum, holders_of(txid)):
            found.certain.append(txid)
    return found


class SynchronousAnswer(StrEnum):
    """What a client hears of a synchronous transaction. ``pending``: it may still take effect, or be rolled back."""

    COMMITTED = "committed"
    PENDING = "pending"
    ROLLED_BACK = "rolled-back"


class Progress(NamedTuple):
    """What a master knows of one synchronous transaction. ``certain``: in this view or an earlier one, as in
    :class:`DecidableTransactions`. ``commit_index``, ``rollback_index``: of the decision that counts; 0: none
    in the log. ``applied``: up to which index it is executed, as far as the level asks. ``quorate``: of the view in
    force here."""

    certain: bool
    commit_index: int
    rollback_index: int
    stable: int
    applied: int
    quorate: bool


def find_answer(level: Durability, progress: Progress) -> SynchronousAnswer:
    """What a client may be answered now that asked for this level. Neither final answer ever becomes the other."""
    if 0 < progress.rollback_index <= progress.stable:
        return SynchronousAnswer.ROLLED_BACK
    is_synced = 0 < progress.commit_index <= progress.stable and progress.quorate
    if level in (Durability.ACCEPTED, Durability.QUORUM):
        is_reached = progress.certain or is_synced
    elif level is Durability.SYNCED:
        is_reached = is_synced
    else:
        is_reached = is_synced and progress.commit_index <= progress.applied
    return SynchronousAnswer.COMMITTED if is_reached else SynchronousAnswer.PENDING
