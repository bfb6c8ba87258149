"""How far the log may be trimmed, and which master, worker or backup prevents more (rule 19).

Entries may go only when none of these needs them: the configured masters, silent ones included; the workers of all data
centres; a restore of the newest verified backup, or of the oldest split backup that is kept. Each counts as far as it
is known to be *on this log*, by index and hash. One that is not known to be on it blocks all trimming.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from txlog.model.records import LogStart
from txlog.protocol.log.log_state import LogState
from txlog.protocol.replication.submission import SubmissionHandler
from txlog.wire.messages import Checkpoint

MASTER: Final = "master"
WORKER: Final = "worker"
BACKUP: Final = "backup"
SPLIT_BACKUP: Final = "split backup"
KEEP: Final = "keep"
UNKNOWN_INDEX: Final = -1


class RetentionPosition(NamedTuple):
    """The position of a master, worker or backup. ``log_index`` is :data:`UNKNOWN_INDEX` when none is reported.
    ``kind`` is one of the words above."""

    kind: str
    name: str
    log_index: int
    hash: bytes


class TrimBlocker(NamedTuple):
    """This master, worker, backup or setting needs the log after ``log_index``. ``why`` gives the reason where it is
    not simply the position."""

    kind: str
    name: str
    log_index: int
    why: str


class TrimDecision(NamedTuple):
    """``start``: the index at which the log starts now; ``trim_to``: the highest index it may be trimmed to;
    ``blockers``: sorted by the index that they need, the lowest first."""

    start: int
    trim_to: int
    blockers: list[TrimBlocker]


class LogTrimmer(SubmissionHandler):
    """The core's part of trimming. The driver reads the keys from the journal; the shell supplies the workers'
    positions."""

    def decide_trim(self, places: list[RetentionPosition], keep_from: int) -> TrimDecision:
        """How far the log may be trimmed. ``places`` has all workers of all data centres and all backups; the entries
        after ``keep_from`` are kept in any case."""
        agreement = self.log_state
        if agreement is None:
            return TrimDecision(0, 0, [])
        history = agreement.log_index
        self._record_log_positions(agreement)
        holders = [self._master_blocker(agreement, m.node) for m in self.views.configured_members]
        holders += [self._position_blocker(agreement, one) for one in places if one.kind == WORKER]
        holders += self._backup_blockers(agreement, places)
        if keep_from < agreement.final_index:
            holders.append(TrimBlocker(KEEP, "log.keep", max(keep_from, history.start), "younger than it may be"))
        holders.sort(key=lambda one: (one.log_index, one.kind, one.name))
        cut = min([agreement.final_index, *(one.log_index for one in holders)])
        if not self.views.is_active or self.views.newer_view is not None or self.views.change is not None:
            cut = history.start
        return TrimDecision(history.start, max(cut, history.start), holders)

    def trim(self, foot: LogStart) -> None:
        """Discard the log up to this log start, as :meth:`decide_trim` allows."""
        agreement = self.log_state
        assert agreement is not None
        agreement.trim(foot)
        own = foot.last_seq_of(*agreement.own.origin)
        for peer in self.peers:  # what stood below, everybody has; some may have said so through others only
            peer.held_of_mine = max(peer.held_of_mine, own)

    def _record_log_positions(self, agreement: LogState) -> None:
        """Record the positions: members report them in their posts, masters outside the view in their hellos."""
        self._record_peer_positions()
        births = {peer.node: peer.origin.birth for peer in self.peers}
        for who in self.views.candidates:
            if births.get(who.node) != who.birth:
                self.known_log_positions[who.node] = Checkpoint(who.log_index, who.log_hash)

    def _master_blocker(self, agreement: LogState, node: str) -> TrimBlocker:
        if node == self.settings.node:
            return TrimBlocker(MASTER, node, agreement.final_index, "what is not settled may move")
        known = self.known_log_positions.get(node)
        if known is None:
            return TrimBlocker(MASTER, node, agreement.log_index.start, "not heard since this start, or since an order")
        return self._position_blocker(agreement, RetentionPosition(MASTER, node, known.index, known.hash))

    def _position_blocker(self, agreement: LogState, place: RetentionPosition) -> TrimBlocker:
        history = agreement.log_index
        if place.log_index == UNKNOWN_INDEX:
            return TrimBlocker(place.kind, place.name, history.start, "not known where it is")
        if place.log_index < history.start or not place.log_index:
            return TrimBlocker(place.kind, place.name, history.start, f"is at {place.log_index}")
        if place.log_index > history.length or history.hash_at(place.log_index) != place.hash:
            return TrimBlocker(place.kind, place.name, history.start, f"is not on this log at {place.log_index}")
        return TrimBlocker(place.kind, place.name, place.log_index, "")

    def _backup_blockers(self, agreement: LogState, places: list[RetentionPosition]) -> list[TrimBlocker]:
        """The newest backup that is on this log and stays on it, and the oldest split backup. A backup of another
        branch is of no use here."""
        history = agreement.log_index
        sound = [one for one in places if one.kind in (BACKUP, SPLIT_BACKUP)]
        sound = [
            one
            for one in sound
            if history.start <= one.log_index <= agreement.final_index and history.hash_at(one.log_index) == one.hash
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
