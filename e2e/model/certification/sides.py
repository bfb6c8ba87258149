"""The masters of a run: which of them see one another, what each holds, and the log of each side.

Views are simple here: a side orders what its members hold, continues alone after a split, and joins another side.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass
from itertools import permutations

from e2e.model.certification.log_chain import LogNode, make_root, shared_index
from e2e.model.certification.log_fold import ChainFold
from e2e.model.certification.values import WINDOW, EntryId, LogEntryOfModel, RejoinMode, State


@dataclass(slots=True, eq=False)
class Side:
    """Masters that see one another. ``moved_from``: up to here a rejoin moved nothing; the log start stays there until
    the log has reached ``held_until`` (C7)."""

    masters: tuple[int, ...]
    log: list[LogNode]
    clock: int
    moved_from: int = 0
    held_until: int = -1

    @property
    def is_moved_part_held(self) -> bool:
        """Whether the log start has to stay before what a rejoin moved."""
        return self.held_until >= len(self.log) - 1


class MasterSides:
    """``holds``: by master, the last entry of each master that it holds. ``worker_index``: by master, how far the
    worker that it reads is."""

    def __init__(
        self, chance: random.Random, masters: int, mode: RejoinMode, state: State, fold: ChainFold, counts: Counter[str]
    ) -> None:
        self.masters = masters
        self.fold = fold
        self.sides = [Side(tuple(range(masters)), [make_root(state, masters)], 0)]
        self.worker_index = [0] * masters
        self._chance = chance
        self._mode = mode
        self._counts = counts
        self._stamps: dict[EntryId, int] = {}
        self._written = [0] * masters
        self._holds = [[0] * masters for _ in range(masters)]

    def side_of(self, master: int) -> Side:
        """The side on which a master is."""
        return next(side for side in self.sides if master in side.masters)

    def final_index(self, side: Side, upto: int) -> int:
        """Up to there nothing moves on any branch: what a side knows of it at an index."""
        return min([upto, *(shared_index(side.log, other.log) for other in self.sides if other is not side)])

    def submit(self, master: int, entry: LogEntryOfModel) -> EntryId:
        """A new entry, held by this master alone."""
        side = self.side_of(master)
        self._written[master] += 1
        txid = (master, self._written[master])
        self.fold.entries[txid] = entry
        side.clock += self._chance.randrange(1, 4)
        self._stamps[txid] = side.clock
        self._holds[master][master] = self._written[master]
        return txid

    def spread(self, side: Side, *, whole: bool = False) -> None:
        """What some members hold reaches others: all of it, or a part."""
        chance = self._chance
        for sender, receiver in permutations(side.masters, 2):
            for origin in range(self.masters):
                sent, held = self._holds[sender][origin], self._holds[receiver][origin]
                if sent > held and (whole or chance.random() < 0.5):
                    self._holds[receiver][origin] = sent if whole else chance.randint(held, sent)

    def extend_log(self, side: Side, *, all_that_is_held: bool = False) -> None:
        """The log takes from the queue what all members hold; at a view change, what any member holds."""
        for origin, sequence in self._queue(side):
            if not all_that_is_held and not all(self._holds[master][origin] >= sequence for master in side.masters):
                return
            stamp = max(self._stamps[origin, sequence], side.log[-1].stamp + 1)
            side.log.append(self.fold.next_node(side.log, stamp, (origin, sequence)))
            side.clock = max(side.clock, stamp)

    def _queue(self, side: Side) -> list[EntryId]:
        """What any member holds and the log lacks, by stamp."""
        logged = side.log[-1].vector
        txids = [
            (origin, sequence)
            for origin in range(self.masters)
            for sequence in range(logged[origin] + 1, max(self._holds[master][origin] for master in side.masters) + 1)
        ]
        return sorted(txids, key=lambda txid: (self._stamps[txid], txid))

    def divide(self, side: Side) -> None:
        """Some members no longer see the others. Each part orders what its members hold."""
        masters = list(side.masters)
        self._chance.shuffle(masters)
        at = self._chance.randrange(1, len(masters))
        self.sides.remove(side)
        self._counts["splits"] += 1
        parts = [
            Side(tuple(sorted(part)), list(side.log), side.clock, side.moved_from, side.held_until)
            for part in (masters[:at], masters[at:])
        ]
        self.sides += parts
        for part in parts:
            self.spread(part, whole=True)
            self.extend_log(part, all_that_is_held=True)

    def rejoin(self) -> None:
        """Two sides become one: under Smart the larger one's log goes on, under Simple both are merged by stamp."""
        if len(self.sides) < 2:
            return
        two = self._chance.sample(self.sides, 2)
        self._counts["rejoins"] += 1
        for side in two:
            if self._chance.random() < 0.5:
                self.spread(side, whole=True)
                self.extend_log(side)
        winner, loser = sorted(two, key=lambda side: (len(side.masters), len(side.log)), reverse=True)
        shared = shared_index(winner.log, loser.log)
        log = winner.log[: shared + 1]
        for stamp, txid in self._merged_order(winner, loser, shared):
            if txid[1] > log[-1].vector[txid[0]]:
                log.append(self.fold.next_node(log, max(stamp, log[-1].stamp + 1), txid))
        self.sides = [side for side in self.sides if side not in two]
        joined = Side(
            tuple(sorted(winner.masters + loser.masters)),
            log,
            max(winner.clock, loser.clock, log[-1].stamp),
            min([shared, *(side.moved_from for side in two if side.is_moved_part_held)]),
            len(log) - 1 + 2 * WINDOW,
        )
        self.sides.append(joined)
        for master in joined.masters:
            self._holds[master] = [max(pair) for pair in zip(self._holds[master], log[-1].vector, strict=True)]
            self.worker_index[master] = min(self.worker_index[master], shared)
        self.spread(joined, whole=True)

    def _merged_order(self, winner: Side, loser: Side, shared: int) -> list[tuple[int, EntryId]]:
        """What follows the shared part, each with the least stamp that it may have; an txid may be there twice."""
        queues = [self._queue(winner), self._queue(loser)]
        tails = [node for side in (winner, loser) for node in side.log[shared + 1 :]]
        if self._mode is RejoinMode.SIMPLE:
            least: dict[EntryId, int] = {}
            for node in tails:
                least[node.txid] = min(least.get(node.txid, node.stamp), node.stamp)
            order = [(stamp, txid) for txid, stamp in sorted(least.items(), key=lambda item: (item[1], item[0]))]
        else:
            order = [(node.stamp, node.txid) for node in winner.log[shared + 1 :]]
            logged = {node.txid for node in winner.log}
            for txid in queues[0]:
                if txid not in logged:
                    last = order[-1][0] if order else winner.log[shared].stamp
                    order.append((max(self._stamps[txid], last + 1), txid))
            order += [(0, node.txid) for node in loser.log[shared + 1 :]]
        waiting = sorted({*queues[0], *queues[1]}, key=lambda txid: (self._stamps[txid], txid))
        return order + [(0, txid) for txid in waiting]
