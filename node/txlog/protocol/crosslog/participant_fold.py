"""What one repository's log says of transactions over several: which parts are open, and where each is concluded.

A PREPARE has no effect. The first OUTCOME behind it that names its transaction concludes the part: a commit takes
effect there, an abort is nothing. So what a worker has is a function of index and hash of its position.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from typing import NamedTuple

from txlog.model.crosslog_entry import OutcomeKey, PrepareKey
from txlog.model.ids import Txid


class OpenPart(NamedTuple):
    """A PREPARE without an OUTCOME. ``txid``: of the entry; in the first participant it is the gid."""

    log_index: int
    txid: Txid
    gid: Txid
    key: PrepareKey


class ConcludedPart(NamedTuple):
    """A PREPARE and the index of the OUTCOME that counts."""

    part: OpenPart
    log_index: int
    commits: bool


class ParticipantFold:
    """The state after the entries of one repository's log. ``open``: by gid, in the order of the log. ``concluded``:
    until the transaction is forgotten. ``idle_count``: entries that mean nothing here."""

    def __init__(self, log: int) -> None:
        self.log = log
        self.open: dict[Txid, OpenPart] = {}
        self.concluded: dict[Txid, ConcludedPart] = {}
        self.idle_count = 0
        self.final_index = 0
        self._opened: list[OpenPart] = []
        self._concluded: list[ConcludedPart] = []

    def has(self, gid: Txid) -> bool:
        """Whether the part of a transaction is in this log and not forgotten."""
        return gid in self.open or gid in self.concluded

    def apply_prepare(self, log_index: int, txid: Txid, key: PrepareKey) -> bool:
        """The next PREPARE of the log; whether it opens a part. One that does not name this log, or that does not say
        *own* exactly in the first participant, means nothing."""
        gid = txid if key.gid is None else key.gid
        is_first = key.participants[0] == self.log
        if self.log not in key.participants or is_first != (key.gid is None) or self.has(gid):
            self.idle_count += 1
            return False
        self.open[gid] = OpenPart(log_index, txid, gid, key)
        self._opened.append(self.open[gid])
        return True

    def apply_outcome(self, log_index: int, key: OutcomeKey) -> ConcludedPart | None:
        """The next OUTCOME of the log; the part that it concludes. A later one, and one before its PREPARE, means
        nothing."""
        part = self.open.pop(key.gid, None)
        if part is None:
            self.idle_count += 1
            return None
        self.concluded[key.gid] = ConcludedPart(part, log_index, key.commits)
        self._concluded.append(self.concluded[key.gid])
        return self.concluded[key.gid]

    def mark_final(self, log_index: int) -> None:
        """No entry up to here leaves the log again."""
        self.final_index = max(self.final_index, log_index)
        del self._opened[: bisect_left(self._opened, self.final_index + 1, key=lambda each: each.log_index)]
        del self._concluded[: bisect_left(self._concluded, self.final_index + 1, key=lambda each: each.log_index)]

    def truncate(self, log_index: int) -> None:
        """The entries after ``log_index``, none of them final, have left the log."""
        assert log_index >= self.final_index, (log_index, self.final_index)
        is_reopened = False
        while self._concluded and self._concluded[-1].log_index > log_index:
            part = self._concluded.pop().part
            self.concluded.pop(part.gid, None)
            self.open[part.gid] = part
            is_reopened = True
        while self._opened and self._opened[-1].log_index > log_index:
            del self.open[self._opened.pop().gid]
        if is_reopened:
            self.open = {each.gid: each for each in sorted(self.open.values(), key=lambda each: each.log_index)}

    def forget(self, gids: Iterable[Txid]) -> None:
        """The system log has forgotten these. What is still open stays so, until it is presumed aborted."""
        for gid in gids:
            self.concluded.pop(gid, None)

    def find_log_start(self, served_from: int) -> int:
        """Where a log may begin that serves positions from ``served_from`` on and is in this state there: before the
        first part that is open, since its payload is still to be served."""
        return min([served_from, *(each.log_index - 1 for each in self.open.values())])
