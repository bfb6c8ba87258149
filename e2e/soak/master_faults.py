"""Faults of masters and their links that must not split anything, each shorter or smaller than what would."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

from e2e.lib.cluster.supervised import SEGMENT_BYTES, SupervisedCluster
from e2e.lib.report import CannotMeasure
from e2e.soak.fault_log import FaultLog, active_ticks, silence_before
from e2e.soak.worker_faults import suspended
from txlog.model.errors import TxLogError

LAG_S: Final = 4.0
"""``maxPeerLag`` of the soak's manifests."""
SHORT_S: Final = 2.2
"""At most: far enough below it, and below three round time-outs of ``Majority``, on a machine that is busy."""
TOO_LONG_S: Final = LAG_S - 1.0
"""Who was silent for so long may have been taken for lost: a fault that was to be short, on a machine that is too busy
to end it in time."""
SILENCING_FAULTS: Final = ("SIGSTOP of a master", "short cut", "short one-way cut", "kill -9 of all links")
FULL_S: Final = 300.0
LINKED_S: Final = 60.0
GO_ON_S: Final = 30.0


def kill_master(arena: SupervisedCluster, draw: random.Random, diary: FaultLog) -> None:
    """The supervisor has waited for its end, so it can prove that it is down: nobody is silent."""
    node = pick_node(arena, draw)
    with diary.fault("kill -9 of a master", node):
        kill(arena, node)


def restart_master(arena: SupervisedCluster, draw: random.Random, diary: FaultLog) -> None:
    node = pick_node(arena, draw)
    with diary.fault("restart of a master", node):
        arena.control.stop(node)
        arena.control.start(node)


def pause_master(arena: SupervisedCluster, draw: random.Random, diary: FaultLog) -> None:
    node = pick_node(arena, draw)
    with diary.fault("SIGSTOP of a master", node), suspended(arena, node):
        time.sleep(0.3 + (SHORT_S - 0.3) * draw.random())


def cut_shortly(arena: SupervisedCluster, draw: random.Random, diary: FaultLog) -> None:
    """The data centres lose each other, for less than ``maxPeerLag``."""
    one, other = arena.topology.data_centers[:2]
    with diary.fault("short cut", f"{one}-{other}"):
        _cut(arena, one, other, 0.3 + (SHORT_S - 0.3) * draw.random())


def cut_one_way_shortly(arena: SupervisedCluster, draw: random.Random, diary: FaultLog) -> None:
    one, other = draw.sample(arena.topology.data_centers[:2], 2)
    with diary.fault("short one-way cut", f"{one}>{other}"):
        _cut(arena, one, other, 0.3 + (SHORT_S - 0.3) * draw.random(), one_way=True)


def cut_one_link(arena: SupervisedCluster, draw: random.Random, diary: FaultLog) -> None:
    """Longer than ``maxPeerLag``, but a third master reaches both."""
    one, other = draw.sample(list(arena.nodes), 2)
    with diary.fault("one link cut", f"{one}-{other}"):
        _cut(arena, one, other, LAG_S + 3)


def cut_one_link_one_way(arena: SupervisedCluster, draw: random.Random, diary: FaultLog) -> None:
    one, other = draw.sample(list(arena.nodes), 2)
    with diary.fault("one link cut one way", f"{one}>{other}"):
        _cut(arena, one, other, LAG_S + 3, one_way=True)


def delay(arena: SupervisedCluster, draw: random.Random, diary: FaultLog) -> None:
    one, other = arena.topology.data_centers[:2]
    ms = draw.choice((5, 20, 50, 100, 200))
    with diary.fault("slow link", f"{one}-{other} {ms} ms"):
        arena.control.delay(one, other, ms)
        try:
            time.sleep(1 + 3 * draw.random())
        finally:
            arena.control.delay(one, other, 0)


def kill_links(arena: SupervisedCluster, draw: random.Random, diary: FaultLog) -> None:
    """Every connection between masters breaks at once, until their process is there again."""
    with diary.fault("kill -9 of all links", "links"):
        kill(arena, "links")
        last = "nothing"
        for _ in active_ticks(LINKED_S):
            try:
                bare = [f"{row['from']}>{row['to']}" for row in arena.control.links() if not row["connections"]]
            except TxLogError as not_now:
                last = str(not_now)
                continue
            if not bare:
                return
            last = f"nothing goes through {', '.join(bare)}"
        raise CannotMeasure(f"the links are not there {LINKED_S:g} s after they were killed: {last}")


def set_wrong_clock(arena: SupervisedCluster, draw: random.Random, diary: FaultLog) -> None:
    """A master comes back with a clock that is wrong, and keeps it until the next time."""
    node = pick_node(arena, draw)
    offset_s = draw.choice((-3600, -50, -5, 5, 50, 3600, 0))
    with diary.fault("clock skew", f"{node} {offset_s:+d} s"):
        arena.override(node, clock_offset_ms=1000 * offset_s)
        kill(arena, node)


def fill_disk(arena: SupervisedCluster, draw: random.Random, diary: FaultLog) -> None:
    """A master comes back on a disk that is nearly full, fills it, says so, and the others go on without it. It comes
    back again when there is room."""
    node = pick_node(arena, draw)
    arena.wait_seen(node)
    used = sum(path.stat().st_size for path in arena.journal(node).iterdir())
    with diary.fault("disk full", node):
        arena.override(node, journal_bytes_max=used + SEGMENT_BYTES)
        kill(arena, node)
        try:
            _wait_full(arena, node)
            _wait_going_on(arena, arena.other_nodes(node))
        finally:
            arena.override(node)
            kill(arena, node)


def silence_was_too_long(diary: FaultLog, at: float) -> bool:
    """Whether the faults before ``at`` were long enough to part masters after all. A silence that is over counts for
    four times ``maxPeerLag``, and half of that is too much of it."""
    faults = [fault for fault in list(diary.faults) if fault.kind in SILENCING_FAULTS]
    longest, total = silence_before(faults, at, 4 * LAG_S)
    return longest >= TOO_LONG_S or total >= 2 * LAG_S - 1.0


def _wait_full(arena: SupervisedCluster, node: str) -> None:
    """:class:`CannotMeasure` when it does not say so in time."""
    state = ""
    for _ in active_ticks(FULL_S):
        try:
            state = arena.status(node).state
        except TxLogError as not_now:
            state = str(not_now)
        if state == "DiskFull":
            return
    raise CannotMeasure(f"{node} is {state}, not DiskFull, {FULL_S:g} s after its disk was as good as full")


def _wait_going_on(arena: SupervisedCluster, nodes: Sequence[str]) -> None:
    """Until the order of work has gone on at these masters; clients write meanwhile."""
    before: dict[str, int] = {}
    now: dict[str, int] = {}
    for _ in active_ticks(GO_ON_S):
        with suppress(TxLogError):
            now = {node: arena.status(node).stable.index for node in nodes}
            before = before or now
            if all(now[node] > before[node] for node in nodes):
                return
    raise CannotMeasure(f"{', '.join(nodes)} do not go on: stable at {before}, {GO_ON_S:g} s later at {now}")


def pick_node(arena: SupervisedCluster, draw: random.Random) -> str:
    return draw.choice(list(arena.nodes))


def kill(arena: SupervisedCluster, name: str) -> None:
    """kill -9, of a master as soon as the supervisor knows which start of it runs."""
    if name in arena.nodes:
        arena.wait_seen(name)
    if arena.kill(name) is None:
        raise CannotMeasure(f"{name} does not run, so it cannot be killed")


def _cut(arena: SupervisedCluster, one: str, other: str, seconds: float, *, one_way: bool = False) -> None:
    arena.control.cut(one, other, one_way)
    try:
        time.sleep(seconds)
    finally:
        arena.control.heal(one, other)


MASTER_FAULTS: Final[tuple[tuple[int, Callable[[SupervisedCluster, random.Random, FaultLog], None]], ...]] = (
    (8, kill_master),
    (3, restart_master),
    (8, pause_master),
    (6, cut_shortly),
    (5, cut_one_way_shortly),
    (2, cut_one_link),
    (2, cut_one_link_one_way),
    (5, delay),
    (3, kill_links),
    (3, set_wrong_clock),
    (1, fill_disk),
)
"""With how often each is drawn."""
LONE_FAULTS: Final = tuple(
    (weight, fault)
    for weight, fault in MASTER_FAULTS
    if fault in (kill_master, restart_master, pause_master, set_wrong_clock, fill_disk)
)
"""Those that need no other master."""
