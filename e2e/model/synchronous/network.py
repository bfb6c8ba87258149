"""The network of a run: what is on its way, which links are cut, and splits that are steered to rare schedules."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Final

from e2e.model.synchronous.anchors import ClosedLog
from e2e.model.synchronous.log_fold import ModelLogStart
from e2e.model.synchronous.masters import ModelPost
from e2e.model.synchronous.values import MasterReport, ModelView, Number, Weights, is_majority

IN_FLIGHT_MAX: Final = 400


@dataclass(frozen=True, slots=True, eq=False)
class PrepareMessage:
    """A coordinator asks for a report."""

    number: Number


@dataclass(frozen=True, slots=True, eq=False)
class ReportMessage:
    """The answer, a promise."""

    number: Number
    report: MasterReport


@dataclass(frozen=True, slots=True, eq=False)
class AcceptMessage:
    """The next view. ``start``: where the log of the coordinator begins."""

    view: ModelView
    closed: ClosedLog
    start: ModelLogStart


@dataclass(frozen=True, slots=True, eq=False)
class AcceptedMessage:
    """A member's disk has the next view."""

    number: Number


@dataclass(frozen=True, slots=True, eq=False)
class InstallMessage:
    """Every member has accepted."""

    number: Number


ModelMessage = PrepareMessage | ReportMessage | AcceptMessage | AcceptedMessage | InstallMessage | ModelPost


@dataclass(slots=True, eq=False)
class ModelNetwork:
    """``groups``: masters reach those of their group. ``cut``: links that are cut in one direction."""

    chance: random.Random
    masters: int
    lost: float
    repeated: float
    parted: float
    nests: bool
    groups: list[int] = field(default_factory=list)
    cut: set[tuple[int, int]] = field(default_factory=set)
    in_flight: list[tuple[int, int, ModelMessage]] = field(default_factory=list)
    is_whole: bool = False
    _stage: int = 0
    _order: list[int] = field(default_factory=list)
    _alone: int | None = None

    def __post_init__(self) -> None:
        self.groups = [0] * self.masters
        self._order = list(range(self.masters))

    def connects(self, sender: int, receiver: int) -> bool:
        """Whether a message would arrive."""
        return self.groups[sender] == self.groups[receiver] and (sender, receiver) not in self.cut

    def send(self, sender: int, receiver: int, message: ModelMessage) -> None:
        """Put a message on its way; it may get lost, or arrive twice."""
        if sender == receiver or self.is_whole:
            self.in_flight.append((sender, receiver, message))
            return
        for _ in range(1 + (self.chance.random() < self.repeated)):
            if self.chance.random() >= self.lost:
                self.in_flight.append((sender, receiver, message))

    def loses(self) -> bool:
        """Whether one more message would be lost."""
        return not self.is_whole and self.chance.random() < self.lost

    def take(self) -> tuple[int, int, ModelMessage] | None:
        """A message that arrives now; often not the oldest."""
        chance = self.chance
        if not self.in_flight or chance.random() >= 0.6:
            return None
        at = chance.randrange(len(self.in_flight)) if chance.random() < 0.4 else 0
        sender, receiver, message = self.in_flight.pop(at)
        return (sender, receiver, message) if sender == receiver or self.connects(sender, receiver) else None

    def change(self) -> None:
        """Perhaps split or heal, and forget the oldest messages where too many are on their way."""
        chance = self.chance
        if len(self.in_flight) > IN_FLIGHT_MAX:
            del self.in_flight[: IN_FLIGHT_MAX // 2]
        if chance.random() < self.parted and self._alone is not None:
            self.groups = [int(master == self._alone) for master in range(self.masters)]
            self._alone, self.cut = None, set()
        elif chance.random() < self.parted and self.nests:
            self._nest()
        elif chance.random() < self.parted:
            count = chance.choice([1, 1, 2, 2, 3])
            self.groups = [chance.randrange(count) for _ in range(self.masters)]
            pairs = chance.choice([0, 0, 1, 2])
            self.cut = {(each[0], each[1]) for each in (chance.sample(range(self.masters), 2) for _ in range(pairs))}

    def _nest(self) -> None:
        """A majority splits again, and one of it meets the others."""
        self._stage = (self._stage + 1) % 4
        self.cut = set()
        if not self._stage:
            self.chance.shuffle(self._order)
        half = self.masters // 2 + 1
        self.groups = [0] * self.masters
        for at, master in enumerate(self._order):
            self.groups[master] = (
                0,
                int(at >= half),
                0 if at == 0 else 1 if at < half else 2,
                int(0 < at < half),
            )[self._stage]

    def isolate(self, master: int) -> None:
        """No master receives what one has just decided; the others may split, and meet again without it."""
        splits = self.chance.random() < 0.5
        self.groups = [2 * (splits and self.chance.random() < 0.5) for _ in range(self.masters)]
        self.groups[master] = 1
        self.cut = set()
        self._alone = master if splits else None

    def favour(self, master: int) -> None:
        """A master whose disk is new meets a bare majority."""
        self.chance.shuffle(self._order)
        self._order.remove(master)
        self._order.insert(0, master)
        self._side_with(self._order[: self.masters // 2 + 1])

    def part_by_weight(self, coordinator: int, members: tuple[int, ...], electorate: Weights) -> None:
        """Only the fewest members that have most votes of a new electorate receive the view that brings it."""
        side = [coordinator]
        for master in sorted(members, key=lambda each: -electorate[each]):
            if not is_majority(electorate, side) and master != coordinator:
                side.append(master)
        self._side_with(side)

    def _side_with(self, side: list[int]) -> None:
        self.groups = [int(master in side) for master in range(self.masters)]
        self.cut = set()

    def heal(self) -> None:
        """From now on every message arrives, once and in order."""
        self.groups, self.cut, self.is_whole = [0] * self.masters, set(), True
        self.in_flight.clear()
