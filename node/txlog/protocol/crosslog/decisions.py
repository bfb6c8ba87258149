"""What a master may say about transactions over several repositories: commit, abort, outcome, forget. All is pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

from txlog.model.crosslog_entry import OutcomeKey
from txlog.model.ids import Origin, Txid
from txlog.protocol.crosslog.participant_fold import ParticipantFold
from txlog.protocol.crosslog.system_fold import StableDecision, SystemFold


class ParticipantLog(NamedTuple):
    """One participant's log at a master. ``fold``: of what is stable there. ``quorate``: its view has more than half of
    the votes, as the system log counts them. ``settled_at``: up to which index no entry leaves the log again."""

    fold: ParticipantFold
    quorate: bool
    settled_at: int


def may_commit(gid: Txid, participants: Iterable[ParticipantLog]) -> bool:
    """R11: whether each PREPARE is stable in a quorate view. Else both sides of a split could find that some part is
    missing, and that none is."""
    return all(each.quorate and each.fold.has(gid) for each in participants)


class UndecidedPart(NamedTuple):
    """What a master knows of a transaction without a decision. ``waited_ms``: by its own clock, since it has had a
    PREPARE. ``is_coordinator_down``: the process that was asked is proved down."""

    waited_ms: int
    expire_after_ms: int
    prepared: bool
    is_coordinator_down: bool


def recover(undecided: UndecidedPart, decide_after_ms: int) -> bool | None:
    """R15: what a master that is not the coordinator decides: commit (True), abort (False), nothing yet (None).
    ``prepared``: as :func:`may_commit` says. An abort is safe at any time, since the first decision counts."""
    if undecided.prepared:
        return True if undecided.waited_ms >= decide_after_ms else None
    is_given_up = undecided.is_coordinator_down and undecided.waited_ms >= decide_after_ms
    return False if is_given_up or undecided.waited_ms >= undecided.expire_after_ms else None


def next_outcome(gid: Txid, log: ParticipantFold, system: SystemFold) -> OutcomeKey | None:
    """R13, R14, R16: the OUTCOME that a master may write into a log: where the part is open, what was decided; abort
    when the transaction is forgotten, since no commit is forgotten before its outcome is final everywhere."""
    if gid not in log.open:
        return None
    decision = system.decisions.get(gid)
    if decision is not None:
        return OutcomeKey(gid, decision.commits, decision.place)
    return OutcomeKey(gid, commits=False, place=0) if system.is_finished(gid) else None


def may_forget(gid: Txid, decision: StableDecision, participants: Collection[ParticipantLog]) -> bool:
    """R16: an abort at once; a commit when its outcome is settled in every participant."""
    if not decision.commits:
        return True
    concluded = [each.fold.concluded.get(gid) for each in participants]
    return all(
        part is not None and part.log_index <= each.settled_at
        for part, each in zip(concluded, participants, strict=True)
    )


def find_watermark(
    origin: Origin, settled_seq: int, first: ParticipantFold, system: SystemFold, forgettable: Collection[Txid]
) -> int:
    """R16: up to which seq all that an origin began may be forgotten. ``first``: the log of that origin, in which every
    entry of it is settled up to ``settled_seq``. ``forgettable``: what is decided and :func:`may_forget` allows.

    A transaction without a decision here blocks, also when its part is concluded: others may have seen a decision that
    is still to come here, and its outcomes elsewhere."""
    may_pass = {gid.seq for gid in forgettable if gid.origin == origin}
    known = (*first.open, *first.concluded, *system.decisions)
    begun = {gid.seq for gid in known if gid.origin == origin and not system.is_finished(gid)}
    end = max(system.watermarks.get(origin, 0), min([settled_seq, *(seq - 1 for seq in begun - may_pass)]))
    while end + 1 in may_pass:
        end += 1
    return end
