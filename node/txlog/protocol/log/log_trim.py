"""How far the log may be trimmed, and which master, worker or backup prevents more (rule 19).

Entries may go only when none of these needs them: the configured masters, silent ones included; the workers of all data
centres; a restore of the newest verified backup, or of the oldest split backup that is kept; the archive, by its
verified place, where the data centre has one. Each counts as far as it is known to be *on this log*, by index and hash.
One that is not known to be on it blocks all trimming.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from txlog.protocol.log.log_state import LogState
from txlog.wire.messages import Checkpoint

MASTER: Final = "master"
WORKER: Final = "worker"
BACKUP: Final = "backup"
SPLIT_BACKUP: Final = "split backup"
ARCHIVE: Final = "archive"
KEEP: Final = "keep"
SYNCHRONOUS: Final = "synchronous"
UNKNOWN_INDEX: Final = -1


class RetentionPosition(NamedTuple):
    """The position of a master, worker, backup or archive. ``log_index`` is :data:`UNKNOWN_INDEX` when none is
    reported. ``kind`` is one of the words above. ``is_unordered``: a worker that names positions on abandoned
    branches."""

    kind: str
    name: str
    log_index: int
    hash: bytes
    is_unordered: bool = False


class TrimBlocker(NamedTuple):
    """This master, worker, backup or setting needs the log after ``log_index``. ``why`` gives the reason where it is
    not simply the position."""

    kind: str
    name: str
    log_index: int
    why: str


class TrimDecision(NamedTuple):
    """``start``: the index at which the log starts now; ``trim_to``: the highest index it may be trimmed to;
    ``blockers``: sorted by the index that they need, the lowest first. ``keeps_branches``: a worker still names
    positions on abandoned branches, so all of these stay known. ``served_from``: the lowest position that the log
    serves once it is trimmed to there; above ``trim_to`` where a synchronous transaction was undecided (rule S13)."""

    start: int
    trim_to: int
    blockers: list[TrimBlocker]
    keeps_branches: bool = False
    served_from: int = 0


def decide_trim(
    log: LogState,
    positions: list[RetentionPosition],
    masters: list[str],
    known: Mapping[str, Checkpoint],
    keep_from: int,
) -> TrimDecision:
    """How far the log may be trimmed. ``positions`` has all workers of all data centres, all backups, and the archive
    where there is one; ``masters`` are the configured ones, and ``known`` has the last known position of those. The
    entries after ``keep_from`` are kept in any case."""
    history = log.log_index
    blockers = [_master_blocker(log, node, known) for node in masters]
    blockers += [_position_blocker(log, one) for one in positions if one.kind == WORKER]
    blockers += [_position_blocker(log, one) for one in positions if one.kind == ARCHIVE]
    blockers += _backup_blockers(log, positions)
    if keep_from < log.final_index:
        blockers.append(TrimBlocker(KEEP, "log.keep", max(keep_from, history.start), "younger than it may be"))
    blockers.sort(key=lambda one: (one.log_index, one.kind, one.name))
    cut = min([log.final_index, *(one.log_index for one in blockers)])
    keeps_branches = any(one.is_unordered for one in positions)
    start = log.synchronous.log_start_for(cut)
    if start < cut:
        blockers.append(TrimBlocker(SYNCHRONOUS, "oldest undecided", max(start, history.start), f"needed at {cut}"))
        blockers.sort(key=lambda one: (one.log_index, one.kind, one.name))
    return TrimDecision(
        history.start, max(start, history.start), blockers, keeps_branches, max(cut, history.served_from)
    )


def _master_blocker(log: LogState, node: str, known: Mapping[str, Checkpoint]) -> TrimBlocker:
    if node == log.own.origin.node:
        return TrimBlocker(MASTER, node, log.final_index, "what is not settled may move")
    at = known.get(node)
    if at is None:
        return TrimBlocker(MASTER, node, log.log_index.start, "not heard since this start, or since an order")
    return _position_blocker(log, RetentionPosition(MASTER, node, at.index, at.hash))


def _position_blocker(log: LogState, place: RetentionPosition) -> TrimBlocker:
    history = log.log_index
    if place.log_index == UNKNOWN_INDEX:
        return TrimBlocker(place.kind, place.name, history.start, "not known where it is")
    if place.log_index < history.start or not place.log_index:
        return TrimBlocker(place.kind, place.name, history.start, f"is at {place.log_index}")
    if place.log_index > history.length or history.hash_at(place.log_index) != place.hash:
        return TrimBlocker(place.kind, place.name, history.start, f"is not on this log at {place.log_index}")
    return TrimBlocker(place.kind, place.name, place.log_index, "")


def _backup_blockers(log: LogState, places: list[RetentionPosition]) -> list[TrimBlocker]:
    """The newest backup that is on this log and stays on it, and the oldest split backup. A backup of another
    branch is of no use here."""
    history = log.log_index
    sound = [one for one in places if one.kind in (BACKUP, SPLIT_BACKUP)]
    sound = [
        one
        for one in sound
        if history.start <= one.log_index <= log.final_index and history.hash_at(one.log_index) == one.hash
    ]
    if not sound:
        return [TrimBlocker(BACKUP, "newest backup", history.start, "there is none on this log that was verified")]
    newest = max(sound, key=lambda one: one.log_index)
    found = [TrimBlocker(BACKUP, newest.name, newest.log_index, "the newest that is verified")]
    split = [one for one in sound if one.kind == SPLIT_BACKUP]
    if split:
        oldest = min(split, key=lambda one: one.log_index)
        found.append(TrimBlocker(SPLIT_BACKUP, oldest.name, oldest.log_index, "the oldest of a split that is kept"))
    return found
