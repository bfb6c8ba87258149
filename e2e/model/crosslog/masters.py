"""A master of the model: one copy of every log, and one clock for all of them (R6)."""

from __future__ import annotations

from dataclasses import dataclass, field

from e2e.model.crosslog.log_fold import CrosslogFold
from e2e.model.crosslog.values import CrosslogEntry, EntryName, LogView, MissingPart, OfTransaction


@dataclass(slots=True, eq=False)
class LogCopy:
    """One log at one master. ``view``: none where the disk was lost. ``floor``: no member stamps at or below it.
    ``settled``: so many entries leave the log in no later view. ``received``: the counters of members; ``known``: which
    of them each member knows. A crash forgets these two."""

    missing: frozenset[MissingPart]
    view: LogView | None
    fold: CrosslogFold
    entries: list[CrosslogEntry] = field(default_factory=list)
    queue: dict[int, CrosslogEntry] = field(default_factory=dict)
    ids: set[int] = field(default_factory=set)
    places: dict[EntryName, int] = field(default_factory=dict)
    settled: int = 0
    floor: int = 0
    received: dict[int, int] = field(default_factory=dict)
    known: dict[int, dict[int, int]] = field(default_factory=dict)

    def forget_counters(self) -> None:
        """What is on no disk."""
        self.received, self.known = {}, {}

    def begin_view(self, view: LogView, queue: dict[int, CrosslogEntry], floor: int) -> None:
        """An empty log of the next view. The caller appends its base."""
        self.view, self.queue, self.floor = view, dict(queue), floor
        self.entries, self.ids, self.places = [], set(), {}
        self.fold = CrosslogFold(self.missing, self.fold.names)
        self.forget_counters()

    def holds_back(self, kind: type[OfTransaction], gid: int) -> bool:
        """Whether an entry of this kind about a transaction waits for its place."""
        return any(isinstance(each.content, kind) and each.content.gid == gid for each in self.queue.values())


@dataclass(slots=True, eq=False)
class CrosslogMaster:
    """``coordinated``: transactions whose clients wait here. ``log_clocks``: only for ``own_clocks``."""

    number: int
    missing: frozenset[MissingPart]
    logs: list[LogCopy]
    birth: int = 0
    is_up: bool = True
    clock: int = 0
    log_clocks: dict[int, int] = field(default_factory=dict)
    coordinated: list[int] = field(default_factory=list)

    def clock_of(self, log: int) -> int:
        """The clock by which it stamps in a log."""
        return self.log_clocks.get(log, 0) if MissingPart.OWN_CLOCKS in self.missing else self.clock

    def raise_clock(self, log: int, stamp: int) -> None:
        """R6: what it stamps from now on is above a stamp that it has seen in any log."""
        if MissingPart.OWN_CLOCKS in self.missing:
            self.log_clocks[log] = max(self.log_clocks.get(log, 0), stamp)
        self.clock = max(self.clock, stamp)

    def latest_clock(self) -> int:
        """The stamp of a cut that it would choose now."""
        return max([self.clock, *self.log_clocks.values()])

    def lose_disk(self) -> None:
        """It begins without logs, under a new birth."""
        self.birth += 1
        self.logs = [LogCopy(self.missing, None, CrosslogFold(self.missing, copy.fold.names)) for copy in self.logs]

    def crash(self) -> None:
        """Stop, and forget what is on no disk."""
        self.is_up, self.coordinated = False, []
        for copy in self.logs:
            copy.forget_counters()

    def counters(self, log: int) -> dict[int, int]:
        """The counter of each member as it is known here."""
        copy = self.logs[log]
        assert copy.view is not None
        found = {member: copy.received.get(member, copy.floor) for member in copy.view.members}
        found[self.number] = self.clock_of(log)
        return found

    def stable_stamp(self, log: int) -> int:
        """Every member is known to hold what has this stamp or a lower one, and to stamp above it."""
        copy = self.logs[log]
        assert copy.view is not None
        least = min(self.counters(log).values())
        for member in copy.view.members:
            if member != self.number:
                known = copy.known.get(member)
                least = min(least, min(known.values()) if known else copy.floor)
        return least

    def prepared(self) -> list[int]:
        """Transactions of which it has a part in some log."""
        return sorted({gid for copy in self.logs[1:] if copy.view is not None for gid in copy.fold.prepared})
