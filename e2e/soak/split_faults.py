"""Faults that must split the cluster, and what must come of each: both sides go on, and are one again when it is over.

With ``Majority`` the smaller side waits. What masters saw of it is read from ``/txlog/splits`` of each.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Final, NamedTuple

from e2e.lib.cluster.supervised import SupervisedCluster
from e2e.lib.report import CannotMeasure
from e2e.soak.backup_target_faults import SoakBackupTargets
from e2e.soak.fault_log import FaultLog, active_ticks
from e2e.soak.master_faults import LAG_S, kill, pick_node
from e2e.soak.worker_faults import suspended
from txlog.client import MasterClient
from txlog.model.errors import TxLogError

APART_S: Final = 180.0
"""Within which both sides must go on: ``maxPeerLag``, a backup and its pauses, a busy machine."""
UNREACHABLE_S: Final = LAG_S + 2.0
"""How long a backup's target is missed after the cut."""


class ObservedSplit(NamedTuple):
    """A view that a master accepted without others because they were silent. ``started_at``: seconds since 1970."""

    node: str
    number: str
    started_at: float
    silent: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.node} went on without {', '.join(self.silent)} in view {self.number}"


CUT_INSIDE_DATA_CENTER: Final = "cut inside a data centre"


class ExpectationMissed(Exception):
    """What had to happen did not; says what, and what was seen last."""


def observed_splits(arena: SupervisedCluster) -> set[ObservedSplit]:
    """As far as the masters answer."""
    found: set[ObservedSplit] = set()
    for node, url in arena.nodes.items():
        try:
            with MasterClient(url, 5.0) as master:
                records = master.splits()["records"]
        except TxLogError:
            continue
        views = [(record["at"], record["view"]) for record in records if "view" in record]
        found |= {
            ObservedSplit(node, view["number"], at, tuple(view["silent"])) for at, view in views if view["silent"]
        }
    return found


class SplitFault:
    """One split of the data centres. A ``break_and_restore`` is what else happens; all end with healed links."""

    def __init__(
        self,
        arena: SupervisedCluster,
        diary: FaultLog,
        draw: random.Random,
        targets: SoakBackupTargets,
        *,
        majority: bool,
    ) -> None:
        self.arena = arena
        self.fault_log = diary
        self.draw = draw
        self.targets = targets
        self.sides = arena.topology.data_centers[:2]
        self.majority = majority

    # -- ways

    def plain(self) -> None:
        self._run_split("cut")

    def one_way(self) -> None:
        """Who hears but is not heard is as far away."""
        self._run_split("one-way cut", one_way=True)

    def inside(self) -> None:
        """One master of a data centre loses everybody else: two branches share that data centre's workers."""
        side = max(self.sides, key=lambda each: len(self.arena.nodes_of(each)))
        alone = self.draw.choice(self.arena.nodes_of(side))
        with self.fault_log.fault(CUT_INSIDE_DATA_CENTER, alone):
            for other in self.arena.other_nodes(alone):
                self.arena.control.cut(alone, other)
            try:
                self._wait_split({alone})
                time.sleep(1 + 3 * self.draw.random())
            finally:
                self.arena.control.heal()

    def killed(self) -> None:
        """A master dies while they are apart; its side goes on without it, and it comes back to its side."""

        def die() -> None:
            node = pick_node(self.arena, self.draw)
            with self.fault_log.fault("kill -9 in a split", node):
                kill(self.arena, node)

        self._run_split("cut", die)

    def worker_killed(self) -> None:
        """The worker that is being backed up, or the one that has just executed another order."""

        def die() -> None:
            worker = self.draw.choice(self.arena.topology.workers).name
            with self.fault_log.fault("kill -9 of a worker in a split", worker):
                kill(self.arena, worker)

        self._run_split("cut", die, early=self.draw.random() < 0.5)

    def cut_again(self) -> None:
        """The link fails again while they come together."""
        self._run_split("cut")
        time.sleep(1.5 * self.draw.random())
        self._run_split("cut while rejoining")

    def killed_rejoining(self) -> None:
        """A master dies while they come together."""
        self._run_split("cut")
        time.sleep(1.5 * self.draw.random())
        node = pick_node(self.arena, self.draw)
        with self.fault_log.fault("kill -9 while rejoining", node):
            if self.arena.kill(node) is None:
                raise CannotMeasure(f"{node} does not run, so it cannot be killed")

    def target_lost(self) -> None:
        """The place of one side's backups is gone: without a backup that side must not go on (rule 23)."""
        side = self.draw.choice(self.sides)
        lose, bring_back = self.targets.break_and_restore(side, self.draw)
        with self.fault_log.fault(self.targets.fault_name(side), side):
            lose()
            try:
                with self.fault_log.fault("cut", "-".join(self.sides)):
                    self.arena.control.cut(self.sides[0], self.sides[1])
                    try:
                        time.sleep(UNREACHABLE_S)
                        self._check_waits_for_backup(side)
                        bring_back()
                        self._wait_split()
                        time.sleep(1.0)
                    finally:
                        self.arena.control.heal()
            finally:
                bring_back()

    # -- pieces

    def _run_split(
        self, kind: str, meanwhile: Callable[[], None] | None = None, *, early: bool = False, one_way: bool = False
    ) -> None:
        one, other = self.draw.sample(self.sides, 2)
        with self.fault_log.fault(kind, f"{one}{'>' if one_way else '-'}{other}"):
            self.arena.control.cut(one, other, one_way)
            try:
                if meanwhile is not None and early:
                    time.sleep(LAG_S * self.draw.random())
                    meanwhile()
                self._wait_split()
                if meanwhile is not None and not early:
                    meanwhile()
                time.sleep(1 + 3 * self.draw.random())
                if meanwhile is not None:
                    self._wait_split()
            finally:
                self.arena.control.heal()

    def _wait_split(self, smaller: set[str] | None = None) -> None:
        """Until each side that may go on alone does so. ``smaller``: if not the data centre with fewer masters."""
        if smaller is None:
            smaller = set(self.arena.nodes_of(min(self.sides, key=lambda side: len(self.arena.nodes_of(side)))))
        last = "nothing"
        for _ in active_ticks(APART_S):
            try:
                states = {node: self.arena.status(node).state for node in self.arena.nodes}
                if self._has_split(states, smaller):
                    return
                last = ", ".join(f"{node} {state}" for node, state in states.items())
            except TxLogError as not_now:
                last = str(not_now)
        raise ExpectationMissed(f"not apart {APART_S:g} s after the link was cut: {last}")

    def _has_split(self, states: dict[str, str], smaller: set[str]) -> bool:
        if not self.majority:
            return set(states.values()) == {"Isolated"}
        return all((state == "Isolated") == (node not in smaller) for node, state in states.items())

    def _check_waits_for_backup(self, side: str) -> None:
        for node in self.arena.nodes_of(side):
            try:
                with MasterClient(self.arena.nodes[node], 5.0) as master:
                    wanted = any(duty["kind"] == "backup" for duty in master.duties())
                    state = master.status().state
            except TxLogError:
                continue
            if wanted and state == "Isolated":
                raise ExpectationMissed(f"{node} is Isolated although no backup could be taken")


def pause_long(arena: SupervisedCluster, draw: random.Random, diary: FaultLog) -> None:
    """SIGSTOP beyond ``maxPeerLag``: the others go on without it. It comes back as one that lags, not as a branch."""
    node = pick_node(arena, draw)
    with diary.fault("long SIGSTOP of a master", node), suspended(arena, node):
        others = arena.other_nodes(node)
        for _ in active_ticks(APART_S):
            if all(_state(arena, other) == "Isolated" for other in others):
                return
        raise ExpectationMissed(f"{', '.join(others)} do not go on without {node}, which stands still")


def _state(arena: SupervisedCluster, node: str) -> str:
    try:
        return arena.status(node).state
    except TxLogError as not_now:
        return str(not_now)


SplitVariant = Callable[[SplitFault], None] | None
"""None: :func:`pause_long`, which splits nothing."""
SPLIT_VARIANTS: Final[tuple[tuple[int, SplitVariant], ...]] = (
    (2, SplitFault.plain),
    (1, SplitFault.one_way),
    (1, SplitFault.inside),
    (1, SplitFault.killed),
    (1, SplitFault.worker_killed),
    (1, SplitFault.cut_again),
    (1, SplitFault.killed_rejoining),
    (1, None),
)
"""With how often each is drawn."""
BACKUP_SPLIT_VARIANTS: Final[tuple[tuple[int, SplitVariant], ...]] = ((1, SplitFault.target_lost),)
