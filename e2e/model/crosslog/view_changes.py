"""View changes of one log: in one step, so that the runs have time for what lies between several logs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from e2e.model.crosslog.cluster import CrosslogCluster
from e2e.model.crosslog.masters import LogCopy
from e2e.model.crosslog.values import (
    SYSTEM_LOG,
    CrosslogEntry,
    CrosslogViolation,
    LogStrategy,
    LogView,
    ModelOutcome,
    ModelPrepare,
)


@dataclass(frozen=True, slots=True, eq=False)
class ViewHolders:
    """The masters of a view that take part in a view change, and what they hold: the longest log, and behind it what
    only waits."""

    view: LogView
    masters: tuple[int, ...]
    closed: list[CrosslogEntry]


@dataclass(slots=True, eq=False)
class LogViewChanges:
    """Changes the views of the logs of a cluster."""

    cluster: CrosslogCluster
    last_number: int = 0

    def first_view(self, members: Sequence[int]) -> LogView:
        """The view with which a log begins."""
        return self._next_view(members, frozenset())

    def _next_view(self, members: Sequence[int], history: frozenset[int]) -> LogView:
        self.last_number += 1
        return LogView(self.last_number, frozenset(members), history)

    def change(self, log: int, members: Sequence[int]) -> None:
        """Give masters that reach each other a view of their own, unless they have it. Under *Majority* only more than
        half of the votes may."""
        cluster, masters = self.cluster, self.cluster.masters
        held: dict[LogView, list[int]] = {}
        for each in members:
            view = masters[each].logs[log].view
            if view is not None:
                held.setdefault(view, []).append(each)
        voters = [each for those in held.values() for each in those]
        if not held or (len(held) == 1 and len(voters) == len(members) and next(iter(held)).members == {*members}):
            return
        if log == SYSTEM_LOG and not cluster.is_majority(voters):
            return
        if log == SYSTEM_LOG:
            forks = [max(held, key=lambda view: view.number)]
        else:
            forks = [view for view in held if not any(view.number in other.history for other in held)]
        branches = [ViewHolders(view, tuple(held[view]), self._closed(log, held[view])) for view in forks]
        winner = max(branches, key=lambda each: self._strength(each, branches, held, members))
        base = winner.closed
        if cluster.strategies[log] is LogStrategy.SIMPLE and len(branches) > 1:
            base = _merge_by_stamp([each.closed for each in branches])
        queue = self._begin(log, members, voters, winner, base)
        if len(branches) > 1:
            self._count_rejoin(winner.closed, base, queue)

    def _closed(self, log: int, masters: Sequence[int]) -> list[CrosslogEntry]:
        copies = [self.cluster.masters[each].logs[log] for each in masters]
        longest = max((copy.entries for copy in copies), key=len)
        logged = {entry.uid for entry in longest}
        waiting = {entry for copy in copies for entry in copy.queue.values() if entry.uid not in logged}
        return [*longest, *sorted(waiting)]

    def _strength(
        self,
        branch: ViewHolders,
        branches: Sequence[ViewHolders],
        held: dict[LogView, list[int]],
        members: Sequence[int],
    ) -> tuple[int, int, int]:
        """The votes of its masters, of those who follow it alone, and of its members who are absent and in no later
        view; then its length."""
        view, forks = branch.view, [each.view for each in branches]
        followers = [
            each
            for other in held
            if other not in forks
            and other.number in view.history
            and sum(other.number in fork.history for fork in forks) == 1
            for each in held[other]
        ]
        absent = [
            each
            for each in view.members
            if each not in members and not any(other.number > view.number and each in other.members for other in held)
        ]
        votes = self.cluster.votes_of([*branch.masters, *followers, *absent])
        return votes, len(branch.closed), -min(branch.masters)

    def _begin(
        self,
        log: int,
        members: Sequence[int],
        voters: Sequence[int],
        winner: ViewHolders,
        base: Sequence[CrosslogEntry],
    ) -> Sequence[CrosslogEntry]:
        """All members begin the next view with the base. What is not in it waits with new stamps, in the order of the
        old ones; it is returned."""
        cluster, masters = self.cluster, self.cluster.masters
        taken = {entry.uid for entry in base}
        rest: dict[int, CrosslogEntry] = {}
        for each in voters:
            copy = masters[each].logs[log]
            for entry in (*copy.entries, *copy.queue.values()):
                if entry.uid not in taken and (entry.uid not in rest or entry < rest[entry.uid]):
                    rest[entry.uid] = entry
        floor = max([0, *(entry.stamp for entry in base), *(masters[each].clock_of(log) for each in members)])
        queue: dict[int, CrosslogEntry] = {}
        for entry in sorted(rest.values()):
            floor += 1
            queue[entry.uid] = entry._replace(stamp=floor)
        cluster.counts["views"] += 1
        view = self._next_view(members, winner.view.history | {winner.view.number})
        for each in members:
            self._check_settled(masters[each].logs[log], base)
            masters[each].logs[log].begin_view(view, queue, floor)
            masters[each].raise_clock(log, floor)
            for entry in base:
                cluster.append(masters[each], log, entry)
            cluster.add(masters[each], log)
        return list(queue.values())

    @staticmethod
    def _check_settled(copy: LogCopy, base: Sequence[CrosslogEntry]) -> None:
        """What was settled keeps its place."""
        settled = [entry.uid for entry in copy.entries[: copy.settled]]
        if [entry.uid for entry in base[: copy.settled]] != settled:
            raise CrosslogViolation("a settled entry has moved")

    def _count_rejoin(
        self, before: Sequence[CrosslogEntry], base: Sequence[CrosslogEntry], queue: Sequence[CrosslogEntry]
    ) -> None:
        displaced = [new for old, new in zip(before, base, strict=False) if old.uid != new.uid]
        self.cluster.counts["rejoins"] += 1
        self.cluster.counts["prepares and outcomes moved"] += sum(
            isinstance(entry.content, ModelPrepare | ModelOutcome) for entry in (*queue, *displaced)
        )


def _merge_by_stamp(logs: Sequence[Sequence[CrosslogEntry]]) -> list[CrosslogEntry]:
    """What all logs share, then everything else in the order of stamps; of one entry, its least stamp."""
    shared, shortest = 0, min(len(log) for log in logs)
    while shared < shortest and all(log[shared] == logs[0][shared] for log in logs):
        shared += 1
    least: dict[int, CrosslogEntry] = {}
    for log in logs:
        for entry in log[shared:]:
            if entry.uid not in least or entry < least[entry.uid]:
                least[entry.uid] = entry
    return [*logs[0][:shared], *sorted(least.values())]
