"""All is healed but the cuts that last: how the masters come good, and whether in time (rule 32)."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from txlog_simulation import liveness
from txlog_simulation.lost_disks import order_to_forget
from txlog_simulation.membership_faults import check_configurations, expected_members
from txlog_simulation.process_states import PAUSED, UP
from txlog_simulation.run_plan import NAMES, PlannedWork
from txlog_simulation.split_scenario import run_split
from txlog_simulation.violation import LIVENESS, LOG

if TYPE_CHECKING:
    from txlog_simulation.simulation import Simulation

WORK_MS = 100
"""Within which everybody gets a transaction when all is healed."""


def check_liveness(world: Simulation) -> int:
    """Heal everything but the cuts that last; returns how long it took (rule 32)."""
    _heal(world)
    began_ms = world.now_ms
    if world.damaged or world.overrides.may_be_two_clusters or world.has_ended:
        world.run_until(began_ms + 300)
        if world.forged:
            _wait_until_fork_detected(world, began_ms + liveness.fork_detection_ms(world.plan))
        return 0
    if world.plan.flow:
        _check_during_flow(world)
        began_ms = world.now_ms
    if world.links_cut and world.plan.deaf_master >= 0:
        _check_without_deaf_master(world)
        began_ms = world.now_ms
    if world.plan.partition:
        run_split(world)
        began_ms = world.now_ms
    bound_ms = liveness.bound_ms(world.plan, world.links_cut) + liveness.repair_ms(world)
    while world.now_ms < began_ms + bound_ms and not world.violations.violations:
        world.run_until(world.now_ms + 20)
        if world.has_ended:
            world.run_until(world.now_ms + 300)
            return 0
        if order_to_forget(world):
            began_ms = world.now_ms
        if liveness.has_converged(world):
            check_configurations(world, expected_members(world) or [])
            healed_ms = world.now_ms - began_ms
            if world.plan.loop is not None:
                _check_loops(world)
            return healed_ms
    if not world.violations.violations and liveness.stays_damaged(world):
        world.damaged = True
        world.coverage["damage that nobody can mend"] += 1
    elif not world.violations.violations:
        world.violations.add(LIVENESS, "32", f"not good after {bound_ms} ms: {liveness.describe_unconverged(world)}")
    return world.now_ms - began_ms


def _check_loops(world: Simulation) -> None:
    """What is in all logs now, is that when the masters have heard of it from each other: its clients are told."""
    plan, stable = world.plan, {entry.txid for entry in world.log.longest}
    waiting = [
        (m, m.process, one) for m in world.simulated_masters if m.process for one in m.process.open.waiting_for(stable)
    ]
    world.run_until(world.now_ms + 3 * (plan.idle_interval_ms + 2 * plan.far_ms + plan.disk_ms) + 50)
    for machine, process, request in waiting:
        if machine.process is process and not request.write.waiter.done():
            text = f"{machine.name} has not told a client of {request.write.answers[-1]}, which is in all logs"
            world.violations.add(LIVENESS, "15", text)


def _check_without_deaf_master(world: Simulation) -> None:
    """While one master hears nobody, all that the others are brought becomes stable in a view without it; then it
    hears again."""
    plan, began_ms = world.plan, world.now_ms
    bound_ms = liveness.bound_ms(plan, chain=False) + liveness.term_ms(plan)
    world.run_until(began_ms + WORK_MS)
    while not world.violations.violations and not world.has_ended:
        if liveness.has_converged_without(world, NAMES[plan.deaf_master]):
            world.coverage["good without a deaf one"] += 1
            break
        if any(liveness.has_left(machine) for machine in world.simulated_masters if machine.slot != plan.deaf_master):
            world.coverage["left, and waits for a deaf one"] += 1
            break
        if world.now_ms >= began_ms + bound_ms:
            deaf = f"{NAMES[plan.deaf_master]} is deaf, and the others are"
            world.violations.add(
                LIVENESS, "22", f"{deaf} not good after {bound_ms} ms: {liveness.describe_unconverged(world)}"
            )
            break
        world.run_until(world.now_ms + 20)
    world.trace_event(NAMES[plan.deaf_master], "hears", "")
    world.network.cuts = dict.fromkeys(world.network.cuts, 0)
    world.links_cut = False
    world.submit_final_work()


def _check_during_flow(world: Simulation) -> None:
    """While clients go on writing, all masters come to work in one view, and what they are brought becomes stable."""
    plan, began_ms, rng = world.plan, world.now_ms, Random(f"flow of {world.plan.seed}")
    bound_ms = liveness.bound_ms(plan, world.links_cut) + liveness.repair_ms(world)
    every_ms, many = plan.flow
    stable = -1
    while not world.violations.violations and not world.has_ended:
        slot = rng.randrange(plan.masters)
        world.submit_work(PlannedWork(world.now_ms, slot, many, False, False, False))
        world.run_until(world.now_ms + every_ms)
        if order_to_forget(world):
            began_ms = world.now_ms
        if stable < 0 and liveness.is_at_work(world):
            stable = len(world.log.longest)
            world.coverage["all at work while clients write"] += 1
        if stable >= 0 and all(m.durable_state.stable > stable for m in world.simulated_masters):
            return
        if world.now_ms >= began_ms + bound_ms:
            text = f"clients write, and not all work after {bound_ms} ms: {liveness.describe_unconverged(world)}"
            world.violations.add(LIVENESS, "32", text)


def _wait_until_fork_detected(world: Simulation, end_ms: int) -> None:
    """Of two masters that run and hear each other, neither has another log than the other (rule 17): one of them
    has ended by name."""
    fork = _find_fork(world)
    while world.now_ms < end_ms and not world.violations.violations:
        if not fork and any(m.ended_by == "Forked" for m in world.simulated_masters):
            return
        world.run_until(min(end_ms, world.now_ms + 50))
        fork = _find_fork(world)
    if fork and not world.violations.violations:
        world.violations.add(LOG, "17", fork)


def _find_fork(world: Simulation) -> str:
    running = [m for m in world.simulated_masters if m.state == UP and m.executor is not None]
    logs = [(m, a.log_index) for m in running if m.executor and (a := m.executor.core.log_state) is not None]
    for at, (one, history) in enumerate(logs):
        for other, theirs in logs[at + 1 :]:
            index = min(history.length, theirs.length)
            if index < max(history.start, theirs.start):
                continue
            if history.hash_at(index) != theirs.hash_at(index):
                return f"{one.name} and {other.name} differ at or before index {index}, and both go on"
    return ""


def _heal(world: Simulation) -> None:
    world.healing = True
    world.trace_event("run", "heal", "")
    world.network.healed = True
    world.network.losing.clear()
    world.network.cuts = dict.fromkeys(world.network.cuts, 0)
    if world.links_cut:
        for link in world.plan.links:
            world.network.cuts[link] = 1
    for machine in world.simulated_masters:
        machine.steps_to_crash = 0
        machine.record_traps.clear()
        machine.crash_when_ahead = False
        machine.disk.set_full(False)
        if machine.state == PAUSED:
            machine.resume(machine.incarnation)
        if machine.executor is not None and machine.executor.core.closing:
            machine.crash("still leaving")
        machine.start()
    world.submit_final_work()
