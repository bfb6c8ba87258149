"""A split that lasts while all else is well: each side must go on, once its workers are backed up (rules 23, 32).

The links are cut while the masters are still becoming one again after all that went wrong before, at any step of that.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from txlog_simulation import liveness
from txlog_simulation.violation import LIVENESS

if TYPE_CHECKING:
    from txlog_simulation.world import World

WITHIN_MS = 400
"""From the heal to the split."""


def part(world: World) -> None:
    """Cut, wait until both sides are good, mend."""
    plan, network = world.plan, world.network
    chance = Random(f"parting {plan.seed}")
    world.run_until(world.now_ms + chance.randrange(WITHIN_MS))
    if not all(m.executor is not None and m.executor.core.founding.founded for m in world.machines):
        return  # a cluster begins with everybody, or by order
    across = [
        (a, b) for a in range(plan.masters) for b in range(plan.masters) if (a in plan.parted) != (b in plan.parted)
    ]
    world.note("run", "part", " ".join(world.machines[slot].name for slot in plan.parted))
    for link in across:
        network.cuts[link] += 1
    world.bring_work()
    sides = [[m for m in world.machines if (m.slot in plan.parted) == inside] for inside in (True, False)]
    bound_ms = liveness.bound_ms(plan, chain=False) + liveness.term_ms(plan)
    end_ms = world.now_ms + bound_ms
    while not world.findings.found and not world.has_ended:
        if any(liveness.has_left(machine) for machine in world.machines):
            world.met["left, and waits for the other side"] += 1
            break
        if all(liveness.is_good_among(side) for side in sides):
            world.met["good on both sides"] += 1
            break
        if world.now_ms >= end_ms:
            text = f"two sides are not good, each by itself, after {bound_ms} ms: {liveness.describe(world)}"
            world.findings.add(LIVENESS, "23", text)
            break
        world.run_until(world.now_ms + 20)
    world.note("run", "join", "")
    for link in across:
        network.cuts[link] -= 1
    world.bring_work()
