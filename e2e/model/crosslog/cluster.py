"""The masters of one run, who reaches whom, and how entries come into the copies of a log."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from e2e.model.crosslog.assertions import CrosslogAssertions
from e2e.model.crosslog.masters import CrosslogMaster
from e2e.model.crosslog.values import (
    CrosslogEntry,
    CrosslogViolation,
    EntryName,
    EntryOrigin,
    LogStrategy,
    MissingPart,
    ModelContent,
    ModelCutAt,
    ModelCutFinish,
    ModelOutcome,
    ModelPrepare,
)


@dataclass(slots=True, eq=False)
class CrosslogCluster:
    """``strategies``: by log. ``participants``: the repositories of each transaction, its gid is the index;
    ``names``: the PREPARE in the first of them. ``groups``: masters of one group reach each other.
    ``sequences``: of each origin, the last one."""

    chance: random.Random
    missing: frozenset[MissingPart]
    weights: tuple[int, ...]
    strategies: tuple[LogStrategy, ...]
    loss: float
    masters: list[CrosslogMaster]
    assertions: CrosslogAssertions
    counts: Counter[str]
    participants: list[tuple[int, ...]] = field(default_factory=list)
    names: dict[int, EntryName] = field(default_factory=dict)
    gids: dict[EntryName, int] = field(default_factory=dict)
    groups: list[int] = field(default_factory=list)
    sequences: Counter[EntryOrigin] = field(default_factory=Counter)
    _entries_said: int = 0

    @property
    def logs(self) -> range:
        """The numbers of all logs."""
        return range(len(self.strategies))

    @property
    def repositories(self) -> range:
        """The numbers of all logs but the system log."""
        return range(1, len(self.strategies))

    def votes_of(self, masters: Iterable[int]) -> int:
        """Their weights together."""
        return sum(self.weights[each] for each in masters)

    def is_majority(self, masters: Iterable[int]) -> bool:
        """Whether they have more than half of the weights."""
        return 2 * self.votes_of(masters) > sum(self.weights)

    def is_full(self, master: CrosslogMaster, log: int) -> bool:
        """Whether no master is out of the view of a log."""
        view = master.logs[log].view
        return view is not None and len(view.members) == len(self.masters)

    def settled_at(self, master: CrosslogMaster, log: int) -> int:
        """How many entries of a log are settled: they were in it while no master was out of the view."""
        copy = master.logs[log]
        if self.is_full(master, log):
            copy.settled = max(copy.settled, len(copy.entries))
        return copy.settled

    def connects(self, one: int, other: int) -> bool:
        """Whether a message arrives, unless it is lost."""
        masters, groups = self.masters, self.groups
        return masters[one].is_up and masters[other].is_up and groups[one] == groups[other]

    def reachable(self, one: int) -> list[int]:
        """The masters that work and are in the group of one of them."""
        return [each.number for each in self.masters if each.is_up and self.groups[each.number] == self.groups[one]]

    def say(self, master: CrosslogMaster, log: int, content: ModelContent) -> int | None:
        """Stamp a new entry; its id. Nothing happens where the master has lost this log."""
        copy = master.logs[log]
        if copy.view is None:
            return None
        stamp = master.clock_of(log) + 1
        master.raise_clock(log, stamp)
        self._entries_said += 1
        origin = EntryOrigin(log, master.number, master.birth)
        self.sequences[origin] += 1
        name = EntryName(origin, self.sequences[origin])
        if isinstance(content, ModelPrepare) and log == self.participants[content.gid][0]:
            self.names[content.gid], self.gids[name] = name, content.gid
        copy.queue[self._entries_said] = CrosslogEntry(stamp, master.number, self._entries_said, content, name)
        return self._entries_said

    def append(self, master: CrosslogMaster, log: int, entry: CrosslogEntry) -> None:
        """The next entry of a copy of a log, and what it does there."""
        copy = master.logs[log]
        content = entry.content
        is_counted = copy.fold.take(len(copy.entries), content)
        copy.places[entry.name] = len(copy.entries)
        copy.entries.append(entry)
        copy.ids.add(entry.uid)
        if not is_counted:
            return
        if isinstance(content, ModelOutcome):
            self.assertions.note_outcome(content)
        elif isinstance(content, ModelCutAt):
            for each in self.logs:
                master.raise_clock(each, content.stamp)
        elif isinstance(content, ModelCutFinish):
            self.assertions.note_cut(content, self.participants)

    def add(self, master: CrosslogMaster, log: int) -> None:
        """Move to the log what every member holds and no member can stamp below."""
        copy = master.logs[log]
        if copy.view is None or not copy.queue:
            return
        limit = master.stable_stamp(log)
        for entry in sorted(each for each in copy.queue.values() if each.stamp <= limit):
            del copy.queue[entry.uid]
            self.append(master, log, entry)

    def post(self, sender: int, receiver: int, log: int) -> None:
        """One message of a round: the log, the queue, and all counters that the sender knows."""
        if not self.connects(sender, receiver) or self.chance.random() < self.loss:
            return
        source, target = self.masters[sender], self.masters[receiver]
        given, copy = source.logs[log], target.logs[log]
        if given.view is None or given.view is not copy.view:
            return
        shorter = min(len(given.entries), len(copy.entries))
        if _ids(given.entries[:shorter]) != _ids(copy.entries[:shorter]):
            raise CrosslogViolation("two logs in one view")
        for entry in given.entries[shorter:]:
            copy.queue.pop(entry.uid, None)
            self.append(target, log, entry)
        for entry in given.queue.values():
            if entry.uid not in copy.ids:
                copy.queue[entry.uid] = entry
        counters = source.counters(log)
        target.raise_clock(log, counters[sender])
        for member in given.view.members:
            if member != receiver:
                copy.received[member] = max(copy.received.get(member, copy.floor), counters[member])
        copy.known[sender] = counters
        self.add(target, log)


def _ids(entries: list[CrosslogEntry]) -> list[int]:
    return [entry.uid for entry in entries]
