"""A split that lasts while all else is well: each side must go on, once its workers are backed up (rules 23, 32); under
``Majority`` the one with more than half of the votes, if there is one (rule 20).

The links are cut while the masters are still becoming one again after all that went wrong before, at any step of that.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Final

from txlog_simulation import liveness
from txlog_simulation.run_plan import RunPlan
from txlog_simulation.violation import LIVENESS

if TYPE_CHECKING:
    from txlog_simulation.simulation import Simulation

WITHIN_MS = 400
"""From the heal to the split."""
SIDES: Final = {2: "both", 3: "three"}


def run_split(world: Simulation) -> None:
    """Cut, wait until all sides that go on are good, mend."""
    plan, network = world.plan, world.network
    going_on = _surviving_sides(plan)
    chance = Random(f"parting {plan.seed}")
    world.run_until(world.now_ms + chance.randrange(WITHIN_MS))
    if not going_on or not all(
        m.executor is not None and m.executor.core.membership.bootstrap.is_bootstrapped for m in world.simulated_masters
    ):
        return  # a cluster begins with everybody, or by order
    side_of = {slot: number for number, side in enumerate(plan.partition) for slot in side}
    across = [(a, b) for a in side_of for b in side_of if side_of[a] != side_of[b]]
    text = " | ".join(" ".join(world.simulated_masters[slot].name for slot in side) for side in plan.partition)
    world.trace_event("run", "part", text)
    for link in across:
        network.cuts[link] += 1
    world.submit_final_work()
    sides = [[m for m in world.simulated_masters if m.slot in side] for side in going_on]
    bound_ms = liveness.bound_ms(plan, chain=False) + liveness.term_ms(plan)
    end_ms = world.now_ms + bound_ms
    while not world.violations.violations and not world.has_ended:
        if any(liveness.has_left(machine) for machine in world.simulated_masters):
            world.coverage["left, and waits for the other side"] += 1
            break
        if all(liveness.has_converged_among(side) for side in sides):
            world.coverage[
                "good on the side of a majority" if plan.majority else f"good on {SIDES[len(sides)]} sides"
            ] += 1
            break
        if world.now_ms >= end_ms:
            unconverged = liveness.describe_unconverged(world)
            wrong = f"parted into {text}: not good, each by itself, after {bound_ms} ms: {unconverged}"
            world.violations.add(LIVENESS, "23", wrong)
            break
        world.run_until(world.now_ms + 20)
    world.trace_event("run", "join", "")
    for link in across:
        network.cuts[link] -= 1
    world.submit_final_work()


def _surviving_sides(plan: RunPlan) -> list[tuple[int, ...]]:
    """The sides that must."""
    if not plan.majority:
        return list(plan.partition)
    return [side for side in plan.partition if 2 * sum(plan.weights[slot] for slot in side) > sum(plan.weights)]
