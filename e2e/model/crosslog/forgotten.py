"""What the system log may forget of transactions: one by one, or by a watermark for each origin (R16)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from e2e.model.crosslog.cluster import CrosslogCluster
from e2e.model.crosslog.masters import CrosslogMaster
from e2e.model.crosslog.values import (
    SYSTEM_LOG,
    EntryName,
    EntryOrigin,
    MissingPart,
    ModelFinished,
    ModelWatermark,
    PlacedVerdict,
)

FORGETS: Final = 0.2
"""The probability that a master forgets at a step at which it may."""


@dataclass(slots=True, eq=False)
class ForgetRules:
    """Takes decisions out of the system log, with or without one part of the rule. Never while a cut runs."""

    cluster: CrosslogCluster
    by_watermark: bool

    def _misses(self, part: MissingPart) -> bool:
        return part in self.cluster.missing

    def forget(self, master: CrosslogMaster) -> None:
        """What a master says about it at one step."""
        if self.by_watermark:
            self._raise_watermarks(master)
        else:
            self._forget_each(master)

    def _forget_each(self, master: CrosslogMaster) -> None:
        copy = master.logs[SYSTEM_LOG]
        for gid, decision in list(copy.fold.decisions.items()):
            if (
                self._may_forget(master, gid, decision)
                and copy.fold.running_cut is None
                and not copy.holds_back(ModelFinished, gid)
                and self.cluster.chance.random() < FORGETS
            ):
                self.cluster.counts["forgotten"] += 1
                self.cluster.say(master, SYSTEM_LOG, ModelFinished(gid))

    def _may_forget(self, master: CrosslogMaster, gid: int, decision: PlacedVerdict) -> bool:
        """A commit only when its outcomes are in every participant and final there; an abort at once."""
        logs = self.cluster.participants[gid]
        if any(master.logs[log].view is None for log in logs):
            return False
        if not decision.commits:
            return True
        return all(self._is_final(master, log, gid) for log in logs)

    def _is_final(self, master: CrosslogMaster, log: int, gid: int) -> bool:
        outcome = master.logs[log].fold.outcomes.get(gid)
        if outcome is None:
            return False
        return self._misses(MissingPart.FORGET_EARLY) or outcome.place < self.cluster.settled_at(master, log)

    # -- watermarks

    def _raise_watermarks(self, master: CrosslogMaster) -> None:
        """For each origin of which a decision is known, as far as all before may be forgotten."""
        copy = master.logs[SYSTEM_LOG]
        if copy.view is None or copy.fold.running_cut is not None:
            return
        on_its_way = {each.content.origin for each in copy.queue.values() if isinstance(each.content, ModelWatermark)}
        decided: dict[EntryOrigin, list[int]] = {}
        for gid in copy.fold.decisions:
            name = self.cluster.names[gid]
            decided.setdefault(name.origin, []).append(name.sequence)
        for origin, sequences in decided.items():
            end = self._watermark(master, origin)
            forgets = sum(sequence <= end for sequence in sequences)
            if forgets and origin not in on_its_way and self.cluster.chance.random() < FORGETS:
                self.cluster.counts["forgotten"] += forgets
                self.cluster.counts["watermarks"] += 1
                self.cluster.say(master, SYSTEM_LOG, ModelWatermark(origin, end))

    def _watermark(self, master: CrosslogMaster, origin: EntryOrigin) -> int:
        end, last = master.logs[SYSTEM_LOG].fold.watermarks.get(origin, 0), self.cluster.sequences[origin]
        while end < last and self._passes(master, EntryName(origin, end + 1)):
            end += 1
        return end

    def _passes(self, master: CrosslogMaster, name: EntryName) -> bool:
        """What is decided and may be forgotten, and what is settled in its log here and is no transaction over several
        logs. So a DECIDE that is on its way to its place never falls under the watermark."""
        gid, copy = self.cluster.gids.get(name), master.logs[name.origin.log]
        decision = master.logs[SYSTEM_LOG].fold.decisions.get(gid) if gid is not None else None
        if gid is not None and decision is not None:
            return self._may_forget(master, gid, decision)
        place = copy.places.get(name)
        if place is None:
            return self._misses(MissingPart.PASS_UNKNOWN)
        if place >= self.cluster.settled_at(master, name.origin.log):
            return False
        return gid is None or self._misses(MissingPart.PASS_UNDECIDED)
