"""Lives that no mix of faults alone leads to: clients that try again, sleeps longer than a key is kept, one master.

A life is an ordinary plan of some profile, with parts of its own. By draws of their own: the plans of all other seeds
stay what they were.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Final, TypedDict

from txlog_simulation.old_journals import DAY_MS, OldCluster
from txlog_simulation.run_plan import (
    BEGIN_MS,
    PlannedClient,
    PlannedFault,
    PlannedLoop,
    PlannedWork,
    RunPlan,
    draw_plan,
)
from txlog_simulation.scripted_schedules import MAJORITY_MOVES
from txlog_simulation.shrink import with_masters

KEY_RETENTION_MS: Final = 200_000
"""More than clocks may make of it, less than a sleep."""
SLEEP_MS: Final = 500_000
SKEW_MS: Final = 500
_YEAR_MS: Final = 365 * 86_400_000


def draw_run(seed: int, only: str = "") -> RunPlan:
    """The plan of a seed: of a life for some seeds, or of :func:`draw_plan`. ``only``: of these profiles or lives."""
    if only:
        names = [name for name in only.split(",") if name in LIVES]
        return LIVES[Random(f"life {seed}").choice(names)][1](seed) if names else draw_plan(seed, only)
    chance = Random(f"life {seed}").random()
    for share, life in LIVES.values():
        if chance < share:
            return life(seed)
        chance -= share
    return draw_plan(seed)


def _retries(seed: int) -> RunPlan:
    """Clients under keys, which try again at other masters, within the retention and after it."""
    rng = Random(f"retries {seed}")
    base = rng.choice(("calm", "links", "crashes", "isolated", "stops", "majority", "majority", "splits", "splits"))
    plan = draw_plan(seed, base)
    disk_ms = rng.choice((plan.disk_ms, 15))
    end_ms = plan.safety_ms
    faults = plan.faults
    if rng.random() < 0.6:  # all are down for longer than keys are kept; one comes back later than the others
        sleep_ms = rng.randrange(plan.safety_ms // 2, plan.safety_ms - 100)
        late = rng.choice((0, 0, 300, 900))
        end_ms = plan.safety_ms + SLEEP_MS + late
        faults = (*(f for f in faults if f.at_ms < sleep_ms), _sleep(sleep_ms, rng.randrange(plan.masters), late))
    return replace(
        plan,
        profile="retries",
        safety_ms=end_ms,
        faults=faults,
        clients=_clients(rng, plan.masters, plan.safety_ms, rng.randint(8, 16)),
        disk_ms=disk_ms,
        round_timeout_ms=plan.round_timeout_ms + 2 * disk_ms,
        clock_jumps=(),
        **_true_time(rng, plan),
    )


def _lone(seed: int) -> RunPlan:
    """One master, or a few that lose all their disks. Nobody else can tell them what they have forgotten."""
    rng = Random(f"lone {seed}")
    plan = draw_plan(seed, rng.choice(("crashes", "crashes", "disks", "stops")))
    masters = min(plan.masters, rng.choice((1, 1, 1, 2, 3)))
    work = tuple(one._replace(a=one.a % masters) for one in plan.work)
    plan = replace(with_masters(masters, plan), work=work)
    faults = [f._replace(a=f.a % masters, b=f.b % masters) for f in plan.faults if masters > 1 or f.kind in _OF_ONE]
    if masters == 1:  # whatever was for another one
        faults = [f._replace(a=0, b=0) for f in draw_plan(seed, "crashes").faults if f.kind in _OF_ONE]
    loss = rng.choice(("lose-all", "old-copy", "", "")) if masters == 1 else "lose-all"
    at_ms = rng.randrange(BEGIN_MS + 100, plan.safety_ms - 250)
    if loss:
        lasts_ms = rng.choice((10, 100, 300))
        faults = [f for f in faults if f.at_ms < at_ms - 50]  # what follows is of the loss alone
        faults.append(PlannedFault(at_ms, loss, rng.randrange(masters), 0, lasts_ms, 0))
    return replace(
        plan,
        profile="lone",
        majority=plan.majority and masters > 2,
        faults=tuple(sorted(faults)),
        supervised=rng.random() < 0.8,
        clients=_clients(rng, plan.masters, plan.safety_ms, rng.randint(2, 6)),
    )


def _clocks_and_keys(seed: int) -> RunPlan:
    """Clocks jump by about ``maxClockSkew``, and one by the retention of keys and by far more, while clients try
    again."""
    rng = Random(f"clocks and keys {seed}")
    plan = draw_plan(seed, rng.choice(("links", "crashes", "isolated", "stops", "calm")))
    wrong, jumps = rng.randrange(plan.masters), []
    for _ in range(rng.choice((1, 2, 3, 4))):
        slot = rng.randrange(plan.masters)
        size_ms = rng.choice((SKEW_MS - 10, 10 - SKEW_MS))
        if rng.random() < 0.6 and plan.masters > 2:
            slot = wrong
            size_ms = rng.choice(
                (SKEW_MS + 10, -SKEW_MS - 10, KEY_RETENTION_MS, -KEY_RETENTION_MS, _YEAR_MS, -_YEAR_MS)
            )
        jumps.append((rng.randrange(BEGIN_MS, plan.safety_ms), slot, size_ms))
        jumps.append((rng.randrange(jumps[-1][0], plan.safety_ms + 1), slot, -size_ms))  # somebody puts it right
    return replace(
        plan,
        profile="clocks-and-keys",
        clients=_clients(rng, plan.masters, plan.safety_ms, rng.randint(8, 16)),
        clock_jumps=tuple(sorted(jumps)),
        **_true_time(rng, plan),
    )


class _Clocks(TypedDict):
    true_time: bool
    key_retention_ms: int
    max_clock_skew_ms: int
    clock_offsets_ms: tuple[int, ...]
    clock_rates: tuple[float, ...]


def _true_time(rng: Random, plan: RunPlan, key_retention_ms: int = KEY_RETENTION_MS) -> _Clocks:
    """Wall clocks that go on with the time and are wrong by a tenth of a second at most."""
    return {
        "true_time": True,
        "key_retention_ms": key_retention_ms,
        "max_clock_skew_ms": SKEW_MS,
        "clock_offsets_ms": tuple(rng.choice((0, 5_000, -5_000, 100_000)) for _ in range(plan.masters)),
        "clock_rates": (1.0,) * plan.masters,
    }


def _flow(seed: int) -> RunPlan:
    """Clients go on writing while the masters come good: whoever is out comes in, and nobody waits for a pause."""
    rng = Random(f"flow {seed}")
    plan = draw_plan(seed, rng.choice(("crashes", "views", "stops", "links", "isolated", "wipes")))
    many = rng.choice((1, 4, 12)) if plan.masters < 5 else 1
    return replace(plan, profile="flow", flow=(rng.choice((2, 5, 10)), many))


def _liar(seed: int) -> RunPlan:
    """One master changes messages that it sends. No process may end but by a named refusal."""
    rng = Random(f"liar {seed}")
    plan = draw_plan(seed, rng.choice(("links", "views", "stops", "splits", "majority", "wipes", "everything")))
    return replace(plan, profile="liar", liar=rng.randrange(plan.masters))


def _old(seed: int) -> RunPlan:
    """The masters find journals of a long life: views, incarnations and keys that no run lives long enough for."""
    rng = Random(f"old {seed}")
    plan = draw_plan(seed, rng.choice(("calm", "links", "crashes", "isolated", "views", "wipes", "majority", "splits")))
    plan = with_masters(3, plan)
    old, segment_bytes = rng.choices(OLD_CLUSTERS, (5, 5, 4, 4, 2, 1))[0]
    again = [
        PlannedWork(rng.randrange(BEGIN_MS, plan.safety_ms), rng.randrange(plan.masters), 3, True, True, False)
        for _ in range(rng.randint(6, 20))
    ]
    return replace(
        plan,
        profile="old",
        old=old,
        centres=(0, 0, 1)[-plan.masters :],
        weights=(1,) * plan.masters,
        majority=plan.majority and plan.masters > 2,
        strategy="Smart" if plan.strategy == "None" else plan.strategy,
        preferred_strategies=(),
        strategy_changes=(),
        segment_bytes=segment_bytes,
        work=tuple(sorted((*plan.work, *again))),
        clients=_clients(rng, plan.masters, plan.safety_ms, rng.choice((0, 6))),
        clock_jumps=(),
        **_true_time(rng, plan, DAY_MS),
    )


def _loop(seed: int) -> RunPlan:
    """The masters run the shipped loop, on fast, middling and slow disks, with limits that are reached; processes end
    between the steps of a turn."""
    rng = Random(f"loop {seed}")
    base = rng.choice(_LOOPED)
    plan = LIVES[base][1](seed) if base in LIVES else draw_plan(seed, base)
    sync_us = rng.choice(((50, 900), (50, 900), (800, 4_000), (4_000, 15_000)))
    loop = PlannedLoop(
        sync_us, rng.choice((0.0, 0.03, 0.2)), rng.choice((2, 5, 10_000)), rng.choice((2, 4, 4_096, 4_096))
    )
    end_ms = min(plan.safety_ms, _SAFETY_MS_MAX)
    clients = [*plan.clients, *_clients(rng, plan.masters, end_ms, rng.randint(4, 12))]
    for _ in range(rng.randint(1, 4)):  # several at once, which share a turn and its sync
        at_ms, slot = rng.randrange(BEGIN_MS, end_ms - 100), rng.randrange(plan.masters)
        clients += [
            PlannedClient(
                at_ms, slot, rng.choice(("accepted", "quorum", "synced", "applied")), rng.choice((20, 200)), 2, 0
            )
            for _ in range(rng.randint(2, 8))
        ]
    faults = list(plan.faults)
    for _ in range(rng.choice((0, 1, 3, 6)) if base != "lone" else 0):  # what follows the loss of a disk is of it alone
        kind, slot = rng.choice(_LOOP_FAULTS), rng.randrange(plan.masters)
        faults.append(
            PlannedFault(
                rng.randrange(BEGIN_MS, end_ms - 50), kind, slot, slot, rng.choice((30, 150)), rng.randrange(99)
            )
        )
    disk_ms = 1 + sync_us[1] // 1000
    return replace(
        plan,
        profile="loop",
        loop=loop,
        clients=tuple(sorted(clients)),
        faults=tuple(sorted(faults)),
        disk_ms=disk_ms,
        round_timeout_ms=plan.round_timeout_ms + 4 * disk_ms,
    )


def _synchronous(seed: int) -> RunPlan:
    """Clients bring synchronous transactions while the masters split, and who has written a decision is cut off."""
    rng = Random(f"synchronous plan {seed}")
    base = rng.choice(("splits", "splits", "isolated", "views", "majority", "crashes", "links", "members", "wipes"))
    plan = draw_plan(seed, base)
    masters = rng.choice((3, 3, 4, 5, 5))
    plan = _with_more_masters(with_masters(masters, plan), masters, rng)
    end_ms = rng.choice((1600, 2400))
    moves = plan.masters == 5 and rng.random() < MOVED_MAJORITY_SHARE
    if moves:
        end_ms = _MOVED_MAJORITY_MS
        plan = _with_moved_majority(plan, rng)
    else:
        plan = replace(plan, faults=tuple(sorted((*plan.faults, *_changed_weights(rng, plan.masters, end_ms)))))
    work = [
        PlannedWork(
            rng.randrange(BEGIN_MS, end_ms),
            rng.randrange(plan.masters),
            rng.randint(1, 5),
            rng.random() < 0.4,
            True,
            False,
        )
        for _ in range(rng.randint(10, 24))
    ]
    return replace(
        plan,
        profile="synchronous",
        synchronous=True,
        weights=plan.weights if 2 * max(plan.weights) < sum(plan.weights) else (1,) * plan.masters,  # else all refused
        safety_ms=end_ms,
        max_peer_lag_ms=200 if moves else rng.choice((200, 400)),
        strategy=rng.choice(("Smart", "Smart", "Simple")),
        preferred_strategies=(),
        strategy_changes=(),
        work=tuple(sorted((*plan.work, *work))),
        clients=(),
        clock_jumps=(),
        **_true_time(rng, plan),
    )


def _with_moved_majority(plan: RunPlan, rng: Random) -> RunPlan:
    """The plan without its faults: the majority decides, and one of its masters moves to those that lack the
    decisions."""
    moves = PlannedFault(
        rng.randrange(BEGIN_MS, BEGIN_MS + 150), MAJORITY_MOVES, rng.randrange(5), 0, 0, rng.randint(1, 60)
    )
    return replace(
        plan,
        weights=(1,) * 5,
        majority=False,
        partition=(),
        faults=(moves,),
        round_timeout_ms=100,
        near_ms=1,
        far_ms=rng.choice((1, 5)),
        jitter_ms=0,
        disk_ms=rng.choice((0, 1)),
        loss=0.0,
    )


def _changed_weights(rng: Random, masters: int, end_ms: int) -> list[PlannedFault]:
    """An operator changes votes while transactions wait for them: the next quorate view has another electorate."""
    faults = []
    for _ in range(rng.choice((0, 0, 2, 3))):
        asked, changed = rng.sample(range(masters), 2)
        at_ms, size = rng.randrange(BEGIN_MS, end_ms), rng.randint(1, 60)
        faults.append(PlannedFault(at_ms, "weight", asked, changed, 0, size))
    return faults


def _with_more_masters(plan: RunPlan, masters: int, rng: Random) -> RunPlan:
    """The plan with so many masters at least, of one vote each, and mostly without weights."""
    more = max(0, masters - plan.masters)
    count = plan.masters + more
    sides = tuple(slot for slot in range(count) if rng.random() < 0.5) or (0,)
    rest = tuple(slot for slot in range(count) if slot not in sides)
    return replace(
        plan,
        masters=count,
        centres=plan.centres + tuple(slot % 2 for slot in range(more)),
        weights=plan.weights + (1,) * more if rng.random() < 0.3 else (1,) * count,
        clock_offsets_ms=plan.clock_offsets_ms + (0,) * more,
        clock_rates=plan.clock_rates + (1.0,) * more,
        late_master=-1,
        partition=(sides, rest) if plan.partition and rest else (),
        links=(),
        deaf_master=-1,
    )


MOVED_MAJORITY_SHARE: Final = 0.6
"""Of the plans of five masters in the life ``synchronous``."""
_MOVED_MAJORITY_MS: Final = 3_000
_SAFETY_MS_MAX: Final = 2_400
"""Of a plan without a sleep."""
_LOOP_FAULTS: Final = (*("crash-in-turn",) * 5, "disk-error", "full", "pause")
_LOOPED: Final = (
    *("calm", "links", "crashes", "isolated", "stops", "majority", "members", "orders", "foundings", "flips"),
    *("disks", "views", "splits", "everything") * 2,
    *("retries", "lone", "flow", "clocks-and-keys"),
)
"""Profiles and lives whose masters run the loop in some of the seeds of this life."""

OLD_CLUSTERS: Final = (
    (OldCluster(60, 20, False, 12, 300, 0, 2), 24 << 10),
    (OldCluster(1_000, 40, False, 60, 400, 70, 0), 24 << 10),
    (OldCluster(1_000, 1, True, 100, 400, 40, 3), 32 << 10),
    (OldCluster(5_000, 200, False, 240, 700, 90, 1), 32 << 10),
    (OldCluster(1_000, 999, False, 240, 1_200, 0, 0), 64 << 10),
    (OldCluster(4_000, 2, True, 244, 4_000, 60, 2), 128 << 10),
)
"""With the size of a segment of their journals. Few, for each is made once in a process."""

_OF_ONE: Final = ("crash", "crash-at-step", "restart-all", "pause", "clock", "full", "disk-error", "stop", "stop-all")
"""Faults that one master alone can have."""


def _clients(rng: Random, masters: int, end_ms: int, count: int) -> tuple[PlannedClient, ...]:
    """Some that begin at any time. Each fourth waits until a worker has executed, or every one."""
    return tuple(
        sorted(
            PlannedClient(
                rng.randrange(BEGIN_MS, end_ms - 100),
                rng.randrange(masters),
                _level(at, rng.choice(("accepted", "quorum", "quorum", "synced"))),
                rng.choice((5, 20, 60, 200)),
                rng.choice((2, 4, 8)),
                rng.choice((0, 0, 1, 30, 300, SLEEP_MS)),
            )
            for at in range(count)
        )
    )


def _level(client: int, drawn: str) -> str:
    """What a client waits for."""
    return drawn if client % 4 else ("applied", "applied-all")[client // 4 % 2]


def _sleep(at_ms: int, late_slot: int, late_ms: int) -> PlannedFault:
    """``a`` sleeps for ``size`` milliseconds longer than the others."""
    return PlannedFault(at_ms, "sleep", late_slot, late_slot, SLEEP_MS, late_ms)


Life = Callable[[int], RunPlan]

LIVES: Final[dict[str, tuple[float, Life]]] = {
    "clocks-and-keys": (0.03, _clocks_and_keys),
    "flow": (0.03, _flow),
    "liar": (0.03, _liar),
    "lone": (0.03, _lone),
    "retries": (0.04, _retries),
    "old": (0.02, _old),
    "loop": (0.04, _loop),
    "synchronous": (0.03, _synchronous),
}
"""By name: the share of all seeds, and what draws the plan of one. New ones at the end: the others keep theirs."""
