"""Cuts: a start in the system log, a stamp for all logs, and a vector of positions (R19 to R22)."""

from __future__ import annotations

from dataclasses import dataclass

from e2e.model.crosslog.cluster import CrosslogCluster
from e2e.model.crosslog.masters import CrosslogMaster, LogCopy
from e2e.model.crosslog.values import (
    SYSTEM_LOG,
    CutVector,
    MissingPart,
    ModelCutAt,
    ModelCutFinish,
    ModelCutStart,
)


@dataclass(slots=True, eq=False)
class CutRules:
    """What a master says about cuts, with or without one part of the rules."""

    cluster: CrosslogCluster
    last_cut: int = 0

    def _misses(self, part: MissingPart) -> bool:
        return part in self.cluster.missing

    def may_start(self, master: CrosslogMaster) -> bool:
        """Whether the master has the system log, and no cut runs there."""
        copy = master.logs[SYSTEM_LOG]
        return copy.view is not None and copy.fold.running_cut is None

    def start(self, master: CrosslogMaster) -> None:
        """Begin a cut."""
        self.last_cut += 1
        self.cluster.say(master, SYSTEM_LOG, ModelCutStart(self.last_cut))

    def advance(self, master: CrosslogMaster, *, gives_up: bool) -> None:
        """The next step of the cut that runs, by any master that knows enough. ``gives_up``: else it is void."""
        copy = master.logs[SYSTEM_LOG]
        cut = copy.fold.running_cut
        if copy.view is None or cut is None or self._is_step_on_its_way(copy, cut):
            return
        if any(master.logs[log].view is None for log in self.cluster.repositories):
            return
        if cut not in copy.fold.cut_stamps:
            if self._misses(MissingPart.EARLY) or self._has_earlier_outcomes(master, copy.fold.cut_starts[cut]):
                self.cluster.say(master, SYSTEM_LOG, ModelCutAt(cut, master.latest_clock()))
            elif gives_up:
                self.cluster.say(master, SYSTEM_LOG, ModelCutFinish(cut, None))
            return
        stamp = copy.fold.cut_stamps[cut]
        if not self._misses(MissingPart.LOG_END) and any(
            master.stable_stamp(log) < stamp for log in self.cluster.repositories
        ):
            if gives_up:
                self.cluster.say(master, SYSTEM_LOG, ModelCutFinish(cut, None))
            return
        self._finish(master, cut, stamp)

    def _is_step_on_its_way(self, copy: LogCopy, cut: int) -> bool:
        waiting = [entry.content for entry in copy.queue.values()]
        return any(isinstance(each, ModelCutFinish) for each in waiting) or (
            cut not in copy.fold.cut_stamps and any(isinstance(each, ModelCutAt) for each in waiting)
        )

    def _commits(self, master: CrosslogMaster) -> list[tuple[int, int]]:
        """Transactions whose decision is *commit*, each with the place of its decision."""
        decisions = master.logs[SYSTEM_LOG].fold.decisions
        return [(gid, decision.place) for gid, decision in decisions.items() if decision.commits]

    def _has_earlier_outcomes(self, master: CrosslogMaster, start: int) -> bool:
        """R19: the outcomes of all commits before the start are in its logs."""
        return all(
            gid in master.logs[log].fold.outcomes
            for gid, place in self._commits(master)
            if place < start
            for log in self.cluster.participants[gid]
        )

    def _finish(self, master: CrosslogMaster, cut: int, stamp: int) -> None:
        lengths = {log: self._length(master.logs[log], stamp) for log in self.cluster.repositories}
        start = master.logs[SYSTEM_LOG].fold.cut_starts[cut]
        if not self._misses(MissingPart.NO_RECHECK) and not self._is_whole(master, start, lengths):
            self.cluster.counts["void cuts"] += 1
            self.cluster.say(master, SYSTEM_LOG, ModelCutFinish(cut, None))
            return
        prefixes = {log: tuple(master.logs[log].entries[:length]) for log, length in lengths.items()}
        is_consistent = self._misses(MissingPart.UNSETTLED) or all(
            self._is_full_and_older(master, log, stamp) for log in self.cluster.repositories
        )
        self.cluster.say(master, SYSTEM_LOG, ModelCutFinish(cut, CutVector(prefixes, is_consistent)))

    def _length(self, copy: LogCopy, stamp: int) -> int:
        """R19: the number of entries with the stamp or a lower one."""
        if self._misses(MissingPart.LOG_END):
            return len(copy.entries)
        return sum(entry.stamp <= stamp for entry in copy.entries)

    def _is_whole(self, master: CrosslogMaster, start: int, lengths: dict[int, int]) -> bool:
        """R21: every commit before the start is inside with all its parts, and none behind it with any."""
        for gid, place in self._commits(master):
            for log in self.cluster.participants[gid]:
                outcome = master.logs[log].fold.outcomes.get(gid)
                is_inside = outcome is not None and outcome.place < lengths[log]
                if is_inside != (place < start):
                    return False
        return True

    def _is_full_and_older(self, master: CrosslogMaster, log: int, stamp: int) -> bool:
        """R22: no master is out of the view, and the view began before the stamp."""
        is_older = master.logs[log].floor <= stamp or self._misses(MissingPart.YOUNG_VIEW)
        return self.cluster.is_full(master, log) and is_older
