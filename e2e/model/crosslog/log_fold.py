"""What the entries of one log do, in their order (R10, R12, R14, R16)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from e2e.model.crosslog.values import (
    EntryName,
    EntryOrigin,
    MissingPart,
    ModelContent,
    ModelCutAt,
    ModelCutFinish,
    ModelCutStart,
    ModelDecide,
    ModelFinished,
    ModelOutcome,
    ModelPrepare,
    ModelWatermark,
    PlacedVerdict,
)


@dataclass(slots=True, eq=False)
class CrosslogFold:
    """What a log says so far. ``outcomes``: where a transaction took effect or was aborted in this repository;
    ``decisions``, ``finished``, ``watermarks``, ``running_cut``, ``cut_starts``, ``cut_stamps``: of the system log.
    ``names``: of all transactions; in the code a gid is that name."""

    missing: frozenset[MissingPart]
    names: Mapping[int, EntryName]
    prepared: dict[int, int] = field(default_factory=dict)
    outcomes: dict[int, PlacedVerdict] = field(default_factory=dict)
    decisions: dict[int, PlacedVerdict] = field(default_factory=dict)
    finished: set[int] = field(default_factory=set)
    watermarks: dict[EntryOrigin, int] = field(default_factory=dict)
    running_cut: int | None = None
    cut_starts: dict[int, int] = field(default_factory=dict)
    cut_stamps: dict[int, int] = field(default_factory=dict)

    def take(self, index: int, content: ModelContent) -> bool:
        """The entry at an index of the log; whether it counts. All others do nothing."""
        match content:
            case ModelPrepare(gid):
                return self.prepared.setdefault(gid, index) == index
            case ModelOutcome(gid, commits):
                if gid not in self.prepared or gid in self.outcomes:
                    return False
                self.outcomes[gid] = PlacedVerdict(index, commits)
            case ModelDecide(gid, commits):
                is_later = gid in self.decisions and MissingPart.LAST_D not in self.missing
                if self.is_finished(gid) or is_later:
                    return False
                self.decisions[gid] = PlacedVerdict(index, commits)
            case ModelFinished(gid):
                self.decisions.pop(gid, None)
                self.finished.add(gid)
            case ModelWatermark(origin, sequence):
                self.watermarks[origin] = max(self.watermarks.get(origin, 0), sequence)
                for gid in [each for each in self.decisions if self._is_passed(each)]:
                    del self.decisions[gid]
            case ModelCutStart() | ModelCutAt() | ModelCutFinish():
                return self._take_cut(index, content)
        return True

    def _take_cut(self, index: int, content: ModelCutStart | ModelCutAt | ModelCutFinish) -> bool:
        """One cut runs at a time; its first stamp counts."""
        match content:
            case ModelCutStart(cut):
                if self.running_cut is not None:
                    return False
                self.running_cut = cut
                self.cut_starts[cut] = index
            case ModelCutAt(cut, stamp):
                if self.running_cut != cut or cut in self.cut_stamps:
                    return False
                self.cut_stamps[cut] = stamp
            case ModelCutFinish(cut):
                if self.running_cut != cut:
                    return False
                self.running_cut = None
        return True

    def _is_passed(self, gid: int) -> bool:
        name = self.names.get(gid)
        return name is not None and name.sequence <= self.watermarks.get(name.origin, 0)

    def is_finished(self, gid: int) -> bool:
        """R16: whether the decision about a transaction is forgotten. It is never decided again."""
        if MissingPart.FORGET_BLANK in self.missing:
            return False
        return gid in self.finished or self._is_passed(gid)

    def is_open(self, gid: int) -> bool:
        """Whether the part of a transaction waits here for its outcome."""
        return gid in self.prepared and gid not in self.outcomes
