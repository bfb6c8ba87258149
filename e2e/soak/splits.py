"""Faults that must split the cluster, and what must come of each: both sides go on, and are one again when it is over.

With ``Majority`` the smaller side waits. What masters saw of it is read from ``/txlog/splits`` of each.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Final, NamedTuple

from bench.masters import CannotMeasure
from e2e.soak.diary import Diary, patiently
from e2e.soak.masters import LAG_S, a_node, kill
from e2e.soak.running import Arena
from e2e.soak.stores import stopped
from e2e.soak.targets import Targets
from txlog.client import MasterClient
from txlog.model.errors import TxLogError

APART_S: Final = 180.0
"""Within which both sides must go on: ``maxPeerLag``, a backup and its pauses, a busy machine."""
UNREACHABLE_S: Final = LAG_S + 2.0
"""How long a backup's target is missed after the cut."""


class Parting(NamedTuple):
    """A view that a master accepted without others because they were silent. ``at``: seconds since 1970."""

    node: str
    number: str
    at: float
    silent: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.node} went on without {', '.join(self.silent)} in view {self.number}"


INSIDE: Final = "cut inside a data centre"


class Missed(Exception):
    """What had to happen did not; says what, and what was seen last."""


def partings(arena: Arena) -> set[Parting]:
    """As far as the masters answer."""
    found: set[Parting] = set()
    for node, url in arena.nodes.items():
        try:
            with MasterClient(url, 5.0) as master:
                records = master.splits()["records"]
        except TxLogError:
            continue
        views = [(record["at"], record["view"]) for record in records if "view" in record]
        found |= {Parting(node, view["number"], at, tuple(view["silent"])) for at, view in views if view["silent"]}
    return found


class Split:
    """One split of the data centres. A ``way`` is what else happens; all end with healed links."""

    def __init__(self, arena: Arena, diary: Diary, draw: random.Random, targets: Targets, *, majority: bool) -> None:
        self.arena = arena
        self.diary = diary
        self.draw = draw
        self.targets = targets
        self.sides = arena.topology.data_centers[:2]
        self.majority = majority

    # -- ways

    def plain(self) -> None:
        self._apart("cut")

    def one_way(self) -> None:
        """Who hears but is not heard is as far away."""
        self._apart("one-way cut", one_way=True)

    def inside(self) -> None:
        """One master of a data centre loses everybody else: two branches share that data centre's workers."""
        side = max(self.sides, key=lambda each: len(self.arena.nodes_of(each)))
        alone = self.draw.choice(self.arena.nodes_of(side))
        with self.diary.fault(INSIDE, alone):
            for other in self.arena.other_nodes(alone):
                self.arena.control.cut(alone, other)
            try:
                self._wait_apart({alone})
                time.sleep(1 + 3 * self.draw.random())
            finally:
                self.arena.control.heal()

    def killed(self) -> None:
        """A master dies while they are apart; its side goes on without it, and it comes back to its side."""

        def die() -> None:
            node = a_node(self.arena, self.draw)
            with self.diary.fault("kill -9 in a split", node):
                kill(self.arena, node)

        self._apart("cut", die)

    def worker_killed(self) -> None:
        """The worker that is being backed up, or the one that has just executed another order."""

        def die() -> None:
            worker = self.draw.choice(self.arena.topology.workers).name
            with self.diary.fault("kill -9 of a worker in a split", worker):
                kill(self.arena, worker)

        self._apart("cut", die, early=self.draw.random() < 0.5)

    def cut_again(self) -> None:
        """The link fails again while they come together."""
        self._apart("cut")
        time.sleep(1.5 * self.draw.random())
        self._apart("cut while rejoining")

    def killed_rejoining(self) -> None:
        """A master dies while they come together."""
        self._apart("cut")
        time.sleep(1.5 * self.draw.random())
        node = a_node(self.arena, self.draw)
        with self.diary.fault("kill -9 while rejoining", node):
            if self.arena.kill(node) is None:
                raise CannotMeasure(f"{node} does not run, so it cannot be killed")

    def target_lost(self) -> None:
        """The place of one side's backups is gone: without a backup that side must not go on (rule 23)."""
        side = self.draw.choice(self.sides)
        lose, bring_back = self.targets.way(side, self.draw)
        with self.diary.fault(self.targets.word(side), side):
            lose()
            try:
                with self.diary.fault("cut", "-".join(self.sides)):
                    self.arena.control.cut(self.sides[0], self.sides[1])
                    try:
                        time.sleep(UNREACHABLE_S)
                        self._not_without_backup(side)
                        bring_back()
                        self._wait_apart()
                        time.sleep(1.0)
                    finally:
                        self.arena.control.heal()
            finally:
                bring_back()

    # -- pieces

    def _apart(
        self, kind: str, meanwhile: Callable[[], None] | None = None, *, early: bool = False, one_way: bool = False
    ) -> None:
        one, other = self.draw.sample(self.sides, 2)
        with self.diary.fault(kind, f"{one}{'>' if one_way else '-'}{other}"):
            self.arena.control.cut(one, other, one_way)
            try:
                if meanwhile is not None and early:
                    time.sleep(LAG_S * self.draw.random())
                    meanwhile()
                self._wait_apart()
                if meanwhile is not None and not early:
                    meanwhile()
                time.sleep(1 + 3 * self.draw.random())
                if meanwhile is not None:
                    self._wait_apart()
            finally:
                self.arena.control.heal()

    def _wait_apart(self, smaller: set[str] | None = None) -> None:
        """Until each side that may go on alone does so. ``smaller``: if not the data centre with fewer masters."""
        if smaller is None:
            smaller = set(self.arena.nodes_of(min(self.sides, key=lambda side: len(self.arena.nodes_of(side)))))
        last = "nothing"
        for _ in patiently(APART_S):
            try:
                states = {node: self.arena.status(node).state for node in self.arena.nodes}
                if self._are_apart(states, smaller):
                    return
                last = ", ".join(f"{node} {state}" for node, state in states.items())
            except TxLogError as not_now:
                last = str(not_now)
        raise Missed(f"not apart {APART_S:g} s after the link was cut: {last}")

    def _are_apart(self, states: dict[str, str], smaller: set[str]) -> bool:
        if not self.majority:
            return set(states.values()) == {"Isolated"}
        return all((state == "Isolated") == (node not in smaller) for node, state in states.items())

    def _not_without_backup(self, side: str) -> None:
        for node in self.arena.nodes_of(side):
            try:
                with MasterClient(self.arena.nodes[node], 5.0) as master:
                    wanted = any(duty["kind"] == "backup" for duty in master.duties())
                    state = master.status().state
            except TxLogError:
                continue
            if wanted and state == "Isolated":
                raise Missed(f"{node} is Isolated although no backup could be taken")


def pause_long(arena: Arena, draw: random.Random, diary: Diary) -> None:
    """SIGSTOP beyond ``maxPeerLag``: the others go on without it. It comes back as one that lags, not as a branch."""
    node = a_node(arena, draw)
    with diary.fault("long SIGSTOP of a master", node), stopped(arena, node):
        others = arena.other_nodes(node)
        for _ in patiently(APART_S):
            if all(_state(arena, other) == "Isolated" for other in others):
                return
        raise Missed(f"{', '.join(others)} do not go on without {node}, which stands still")


def _state(arena: Arena, node: str) -> str:
    try:
        return arena.status(node).state
    except TxLogError as not_now:
        return str(not_now)


Way = Callable[[Split], None] | None
"""None: :func:`pause_long`, which splits nothing."""
WAYS: Final[tuple[tuple[int, Way], ...]] = (
    (2, Split.plain),
    (1, Split.one_way),
    (1, Split.inside),
    (1, Split.killed),
    (1, Split.worker_killed),
    (1, Split.cut_again),
    (1, Split.killed_rejoining),
    (1, None),
)
"""With how often each is drawn."""
ONLY_CONTINUE: Final[tuple[tuple[int, Way], ...]] = ((1, Split.target_lost),)
