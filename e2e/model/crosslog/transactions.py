"""Transactions over several logs: prepared in each, decided in one, finished by any master (R11 to R14, R16)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from e2e.model.crosslog.cluster import CrosslogCluster
from e2e.model.crosslog.masters import CrosslogMaster, LogCopy
from e2e.model.crosslog.values import (
    NO_PLACE,
    SYSTEM_LOG,
    MissingPart,
    ModelDecide,
    ModelOutcome,
    ModelPrepare,
    PlacedVerdict,
)

BEYOND_ALL: Final = 1 << 30
"""The place of a decision that has none yet, for ``pending_d``."""


@dataclass(slots=True, eq=False)
class TransactionRules:
    """What a master says about transactions, with or without one part of the rules."""

    cluster: CrosslogCluster

    def _misses(self, part: MissingPart) -> bool:
        return part in self.cluster.missing

    @property
    def decides_in_a_participant(self) -> bool:
        """Only for mutants: decisions are entries of the first participant's log."""
        return self._misses(MissingPart.LOG) or self._misses(MissingPart.LOGQ)

    # -- what a master knows

    def _deciding_log(self, gid: int) -> int:
        return self.cluster.participants[gid][0] if self.decides_in_a_participant else SYSTEM_LOG

    def _deciding_copy(self, master: CrosslogMaster, gid: int) -> LogCopy:
        return master.logs[self._deciding_log(gid)]

    def _trusts_decisions(self, master: CrosslogMaster, gid: int) -> bool:
        view = self._deciding_copy(master, gid).view
        return not self._misses(MissingPart.LOGQ) or (view is not None and self.cluster.is_majority(view.members))

    def decision(self, master: CrosslogMaster, gid: int) -> PlacedVerdict | None:
        """R12: the first decision that is stable in the system log, as this master has it."""
        copy = self._deciding_copy(master, gid)
        if gid in copy.fold.decisions and self._trusts_decisions(master, gid):
            return copy.fold.decisions[gid]
        if self._misses(MissingPart.PENDING_D):
            for entry in copy.queue.values():
                if isinstance(entry.content, ModelDecide) and entry.content.gid == gid:
                    return PlacedVerdict(BEYOND_ALL, entry.content.commits)
        return None

    def _is_finished(self, master: CrosslogMaster, gid: int) -> bool:
        return master.logs[SYSTEM_LOG].fold.is_finished(gid)

    def _has_proposed(self, master: CrosslogMaster, gid: int) -> bool:
        return self._deciding_copy(master, gid).holds_back(ModelDecide, gid)

    def _is_prepared(self, master: CrosslogMaster, gid: int, *, is_coordinator: bool = False) -> bool:
        """R11: each prepare is stable in a view with a majority."""
        for log in self.cluster.participants[gid]:
            copy = master.logs[log]
            if copy.view is None:
                return False
            if is_coordinator and self._misses(MissingPart.NO_QUORUM):
                if gid not in copy.fold.prepared and not copy.holds_back(ModelPrepare, gid):
                    return False
            elif gid not in copy.fold.prepared or not self.cluster.is_majority(copy.view.members):
                return False
        return True

    # -- decide

    def coordinate(self, master: CrosslogMaster) -> None:
        """The master that was asked: decide *commit* when all is prepared, and answer when it is decided."""
        for gid in list(master.coordinated):
            decision = self.decision(master, gid)
            if decision is not None:
                self.cluster.assertions.answer(gid, decision.commits)
                master.coordinated.remove(gid)
            elif self._is_finished(master, gid):
                master.coordinated.remove(gid)
            elif (
                self._trusts_decisions(master, gid)
                and not self._has_proposed(master, gid)
                and self._is_prepared(master, gid, is_coordinator=True)
            ):
                self.cluster.say(master, self._deciding_log(gid), ModelDecide(gid, commits=True))

    def undecided(self, master: CrosslogMaster) -> list[int]:
        """What waits at a master for a decision."""
        return [gid for gid in master.prepared() if self.decision(master, gid) is None and self.is_open(master, gid)]

    def is_open(self, master: CrosslogMaster, gid: int) -> bool:
        """Whether a part of a transaction waits for its outcome in some log of a master."""
        return any(master.logs[log].fold.is_open(gid) for log in self.cluster.participants[gid])

    def recover(self, master: CrosslogMaster, gid: int, *, is_end: bool = False) -> None:
        """Any master, after a while: *commit* when all is prepared, else *abort*. ``is_end``: ``own_abort`` must not
        hide what it did."""
        if (
            self.decision(master, gid) is not None
            or self._is_finished(master, gid)
            or not self._trusts_decisions(master, gid)
            or self._has_proposed(master, gid)
            or master.logs[SYSTEM_LOG].view is None
        ):
            return
        if self._misses(MissingPart.OWN_ABORT) and not is_end:
            for log in self.cluster.participants[gid]:
                if master.logs[log].fold.is_open(gid):
                    self.cluster.say(master, log, ModelOutcome(gid, commits=False, place=NO_PLACE))
            return
        self.cluster.counts["recoveries"] += 1
        self.cluster.assertions.ended_by_another.add(gid)
        verdict = ModelDecide(gid, self._is_prepared(master, gid))
        self.cluster.say(master, self._deciding_log(gid), verdict)

    # -- outcomes

    def write_outcomes(self, master: CrosslogMaster) -> None:
        """A master that has the decision and the prepare writes the outcome into that log."""
        for gid in master.prepared():
            self._write_outcomes_of(master, gid)

    def _write_outcomes_of(self, master: CrosslogMaster, gid: int) -> None:
        for log in self.cluster.participants[gid]:
            if not self._may_write_outcome(master.logs[log], gid):
                continue
            decision = self.decision(master, gid)
            if decision is None and self._is_finished(master, gid) and not self._misses(MissingPart.NO_PRESUME):
                decision = PlacedVerdict(NO_PLACE, commits=False)
            if decision is None:
                return
            if self._is_behind_gate(master, gid, decision):
                self.cluster.counts["outcomes held"] += 1
                return
            self.cluster.say(master, log, ModelOutcome(gid, decision.commits, decision.place))

    def _may_write_outcome(self, copy: LogCopy, gid: int) -> bool:
        """R13, R14: the prepare is stable here, and no outcome is there or on its way."""
        if copy.view is None or gid in copy.fold.outcomes or copy.holds_back(ModelOutcome, gid):
            return False
        if self._misses(MissingPart.NO_PREPARE):
            return not any(isinstance(each.content, ModelOutcome) and each.content.gid == gid for each in copy.entries)
        return gid in copy.fold.prepared

    def _is_behind_gate(self, master: CrosslogMaster, gid: int, decision: PlacedVerdict) -> bool:
        """R20: decided behind the start of a cut that has no stamp yet."""
        fold = master.logs[SYSTEM_LOG].fold
        cut = fold.running_cut
        if cut is None or cut in fold.cut_stamps or self._misses(MissingPart.NO_GATE):
            return False
        return self._deciding_log(gid) == SYSTEM_LOG and decision.place > fold.cut_starts[cut]
