"""What happens to masters, their disks, clocks and links, and when: each fault of a plan."""

from __future__ import annotations

from typing import TYPE_CHECKING

from txlog_simulation import scripted_schedules
from txlog_simulation.lost_disks import LOSSES, lose_disks
from txlog_simulation.membership_faults import MEMBER_FAULTS, request_change
from txlog_simulation.operator_overrides import OVERRIDE_FAULTS, run_override
from txlog_simulation.process_states import UP
from txlog_simulation.run_plan import NAMES, PlannedFault, PlannedWork
from txlog_simulation.simulated_master import SimulatedMaster
from txlog_simulation.view_change_faults import CHANGE_FAULTS, set_trap

if TYPE_CHECKING:
    from txlog_simulation.simulation import Simulation

STEPS = ("append", "begin_sync", "pwrite", "fdatasync", "run", "end_sync", "release")
"""At which a process may end; see ``machine.py``."""
LOOP_STEPS = ("append", "begin_sync", "pwrite", "fdatasync", "run", "end_sync", "send", "tell", "release", "receive")
"""The same in the turn of a loop, and between two turns."""


def inject_fault(world: Simulation, fault: PlannedFault) -> None:
    """It happens now, and ends by itself."""
    world.faults += 1
    world.coverage[fault.kind] += 1
    if fault.kind == "clock":
        world.coverage["clock forward" if fault.size > 0 else "clock back"] += 1
    world.trace_event(NAMES[fault.a], fault.kind, f"b={NAMES[fault.b]} lasts_ms={fault.lasts_ms} size={fault.size}")
    a, b, machine = fault.a, fault.b, world.simulated_masters[fault.a]
    end_ms = world.now_ms + fault.lasts_ms
    match fault.kind:
        case "cut":
            world.cut([(a, b), (b, a)], end_ms)
        case "cut-one-way":
            world.cut([(a, b)], end_ms)
        case "partition":
            side = {slot for slot in range(world.plan.masters) if world.rng.random() < 0.5} | {a}
            across = [(i, j) for i in range(world.plan.masters) for j in range(world.plan.masters)]
            world.cut([(i, j) for i, j in across if (i in side) != (j in side)], end_ms)
        case "isolate":
            others = [slot for slot in range(world.plan.masters) if slot != a]
            world.cut([pair for o in others for pair in ((a, o), (o, a))], end_ms)
        case "deaf":
            world.cut([(o, a) for o in range(world.plan.masters) if o != a], end_ms)
        case "amnesia":
            _forgotten_promise(world, machine)
        case "hearsay":
            _relayed_counter(world, machine)
        case "relapse":
            _counter_after_restart(world, machine, b)
        case "slow":
            world.slow([(a, b), (b, a)], end_ms)
        case "crash":
            world.crash_for(machine, end_ms)
        case "crash-at-step":
            machine.steps_to_crash, machine.crash_step = fault.size, ""
            if fault.size % 2:  # a certain step, soon
                machine.steps_to_crash, machine.crash_step = 1 + fault.size % 3, STEPS[fault.size // 2 % len(STEPS)]
        case "restart-all":
            for each in world.simulated_masters:
                world.crash_for(each, world.now_ms + world.rng.choice((10, 100, 300)))
        case "sleep":
            world.asleep_until_ms = end_ms
            for each in world.simulated_masters:
                each.crash("to sleep")
                world.schedule(end_ms + (fault.size if each is machine else 0), each.start)
        case "pause":
            machine.pause()
            world.schedule(end_ms, machine.resume, machine.incarnation)
        case "clock":
            machine.clock_offset_ms += fault.size
        case _:
            _inject_local_fault(world, fault, machine, end_ms)


def _forgotten_promise(world: Simulation, machine: SimulatedMaster) -> None:
    """What makes a promise forgotten in a crash do harm: a master that hears nobody goes on promising, the
    others rely on it, it crashes, its clock goes back, and a client finds it before anybody speaks to it."""
    plan, a = world.plan, machine.slot
    others = [slot for slot in range(plan.masters) if slot != a]
    unheard_ms = world.now_ms + plan.round_timeout_ms + 30
    crash_ms = unheard_ms + 2 * plan.idle_interval_ms + 60
    again_ms = crash_ms + plan.round_timeout_ms + 60
    world.cut([(o, a) for o in others], again_ms + 100)
    for other in others:
        world.schedule(unheard_ms, world.submit_work, PlannedWork(unheard_ms, other, 2, False, False, False))
    world.schedule(crash_ms, _crash_with_old_clock, world, machine)
    for later_ms in (0, 30):
        world.schedule(again_ms + later_ms, world.submit_work, PlannedWork(again_ms, a, 2, False, False, False))


def _relayed_counter(world: Simulation, machine: SimulatedMaster) -> None:
    """What makes a counter do harm that is read apart from what came with it: two masters that have not heard each
    other for a while submit in one instant, and a third, the first to hear of it, tells one the other's counter."""
    plan, a = world.plan, machine.slot
    between, *_, other = [slot for slot in range(plan.masters) if slot != a] * 2
    world.simulated_masters[other].clock_offset_ms = machine.clock_offset_ms
    begin_ms = world.now_ms + plan.round_timeout_ms + 40
    told_ms = begin_ms + plan.network_ms(a, between) + plan.disk_ms
    world.cut([(a, other), (other, a)], told_ms + plan.round_timeout_ms)
    for at_ms, slot, many in (
        (begin_ms, a, 20),
        (begin_ms, other, 5),
        (told_ms, between, 1),
        (told_ms + 1, between, 1),
    ):
        world.schedule(at_ms, world.submit_work, PlannedWork(at_ms, slot, many, False, False, False))


def _counter_after_restart(world: Simulation, machine: SimulatedMaster, lost: int) -> None:
    """What makes counters kept over a restart do harm: two masters that do not hear each other submit in one
    instant; a third crashes before it has synced what came from the one, who is then silent for a while."""
    plan, crashing = world.plan, machine.slot
    others = [slot for slot in range(plan.masters) if slot not in (crashing, lost)]
    if not others:
        world.crash_for(machine, world.now_ms + 20)
        return
    other = others[0]
    begin_ms = world.now_ms + 20
    hops_ms = max(plan.near_ms, plan.far_ms) + plan.jitter_ms
    apart = [pair for o in others for pair in ((lost, o), (o, lost))]
    end_ms = begin_ms + hops_ms + plan.round_timeout_ms + 350
    world.cut(apart, end_ms)
    world.simulated_masters[other].clock_offset_ms = world.simulated_masters[lost].clock_offset_ms
    machine.disk_stalls_until = begin_ms + hops_ms + 60
    world.schedule(begin_ms, world.submit_work, PlannedWork(begin_ms, lost, 20, False, False, False))
    world.schedule(begin_ms, world.submit_work, PlannedWork(begin_ms, other, 5, False, False, False))
    world.schedule(begin_ms + hops_ms + 4, world.cut, [(lost, crashing), (crashing, lost)], end_ms)
    world.schedule(begin_ms + hops_ms + 8, world.crash_for, machine, begin_ms + hops_ms + 20)


def _crash_with_old_clock(world: Simulation, machine: SimulatedMaster) -> None:
    if not world.healing:
        machine.clock_offset_ms -= 30_000
        world.crash_for(machine, world.now_ms + 10)


def _inject_local_fault(world: Simulation, fault: PlannedFault, machine: SimulatedMaster, end_ms: int) -> None:
    """Of a disk, of a process that stops in order, of what the log says of its members."""
    match fault.kind:
        case "full":
            machine.disk.set_full(True)
            world.schedule(end_ms, machine.disk.set_full, False)
        case "wipe":
            world.crash_for(machine, end_ms)
            world.wipe(machine)
        case _ if fault.kind in LOSSES:
            lose_disks(world, fault)
        case "old-image":
            world.schedule(end_ms, _restore_image, world, machine, machine.disk.image())
        case "flip" if world.rng.random() < 0.5 and world.plan.masters > 2:
            # what is lost is news that the first one to be asked has not heard of
            away, plan = min(slot for slot in range(world.plan.masters) if slot != fault.a), world.plan
            flip_ms = world.now_ms + 2 * (max(plan.near_ms, plan.far_ms) + plan.jitter_ms + plan.disk_ms) + 5
            links = [pair for o in range(plan.masters) if o != away for pair in ((o, away), (away, o))]
            world.cut(links, flip_ms + 20)
            world.schedule(
                world.now_ms + 1, world.submit_work, PlannedWork(world.now_ms, fault.a, 9, False, False, False)
            )
            world.schedule(flip_ms, _flip_bit, world, machine, flip_ms + 20, True)
        case "flip":
            _flip_bit(world, machine, end_ms, False)
        case "forge":
            _forge_log(world, machine, fault.b, fault.lasts_ms)
        case "disk-error":
            world.coverage["disk-error"] -= 1  # counted when it happens
            machine.disk.fail_syncs()
        case "crash-in-turn":
            machine.steps_to_crash = 1 + fault.size % 3
            machine.crash_step = LOOP_STEPS[fault.size // 3 % len(LOOP_STEPS)]
        case "stop":
            if machine.executor is not None and machine.state == UP:
                world.schedule(world.now_ms, machine.stop_gracefully, machine.incarnation, end_ms)
                world.schedule(end_ms + 50, machine.start)
        case _ if fault.kind in MEMBER_FAULTS:
            request_change(world, fault)
        case _ if fault.kind in OVERRIDE_FAULTS:
            run_override(world, fault)
        case "crash-ahead":
            machine.crash_when_ahead = True
        case _ if fault.kind in CHANGE_FAULTS:
            set_trap(world, fault)
        case _ if fault.kind in scripted_schedules.SCRIPTED_FAULTS:
            world.coverage[fault.kind] -= fault.kind != "flap"  # counted when it comes about
            scripted_schedules.run_schedule(world, fault)
        case "stop-all":
            for each in world.simulated_masters:
                if each.executor is not None and each.state == UP:
                    stop_ms = world.now_ms + world.rng.choice((0, 5, 50, 100))
                    world.schedule(stop_ms, each.stop_gracefully, each.incarnation, stop_ms + 150)
                    world.schedule(end_ms + world.rng.choice((200, 220, 300)), each.start)
        case _:
            raise AssertionError(fault.kind)


def _flip_bit(world: Simulation, machine: SimulatedMaster, back_ms: int, late: bool) -> None:
    """Only behind a seal: without one a flipped last record reads as a torn tail, as the journal says."""
    if not world.healing and machine.stop_cleanly(sealed=True) and machine.disk.flip_bit(late):
        machine.flipped = True
        world.coverage["bit flipped"] += 1
    world.schedule(back_ms, machine.start, machine.incarnation)


def _forge_log(world: Simulation, machine: SimulatedMaster, behind: int, lasts_ms: int) -> None:
    """One master comes back with another log, another one with a shorter log, which the first may offer to mend.
    That one was deaf, so that it holds what the others have ordered since, and hears of their order from the first
    alone; or it had crashed. Or nobody is behind, and nothing is written any more: idle posts alone can tell."""
    plan = world.plan
    hop_ms = max(plan.near_ms, plan.far_ms) + plan.jitter_ms
    begin_ms = world.now_ms + 5
    third = next((slot for slot in range(plan.masters) if slot not in (machine.slot, behind)), behind)
    for slot in (machine.slot, third):
        world.schedule(begin_ms, world.submit_work, PlannedWork(begin_ms, slot, 4, False, False, False))
    how = world.rng.random()
    if how < 0.35:
        world.schedule(
            begin_ms + 5 * hop_ms + 4 * plan.disk_ms + 60, _install_forged_log, world, machine, machine, lasts_ms, 30
        )
        return
    if how < 0.45:
        crash_ms = begin_ms + 2 * hop_ms + world.rng.randint(1, 12)
        world.schedule(crash_ms, world.crash_for, world.simulated_masters[behind], crash_ms + 300)
    else:
        world.schedule(
            begin_ms + 1,
            _cut_incoming_links,
            world,
            world.simulated_masters[behind],
            {machine.name, NAMES[third]},
            machine.slot,
            150,
        )
    forge_ms = begin_ms + 3 * hop_ms + 2 * plan.disk_ms + 20
    world.schedule(forge_ms, _install_forged_log, world, machine, world.simulated_masters[behind], lasts_ms, 30)
    back_ms = forge_ms + lasts_ms
    for later_ms in (60, 150):  # what is added behind a forged log shows it
        for slot in (machine.slot, third):
            world.schedule(back_ms + later_ms, world.submit_work, PlannedWork(back_ms, slot, 2, False, False, False))


def _cut_incoming_links(
    world: Simulation, machine: SimulatedMaster, waiting: set[str], speaker: int, tries: int
) -> None:
    """As soon as it holds transactions of these that are not in its log; ``speaker`` is heard again first."""
    plan = world.plan
    agreement = machine.executor.core.log_state if machine.executor else None
    if tries and not (agreement and {q.origin.node for q in agreement.queues if len(q)} >= waiting):
        world.schedule(world.now_ms + 1, _cut_incoming_links, world, machine, waiting, speaker, tries - 1)
        return
    others = [slot for slot in range(plan.masters) if slot != machine.slot]
    end_ms = world.now_ms + 4 * plan.round_timeout_ms + 200
    world.cut([(slot, machine.slot) for slot in others if slot != speaker], end_ms)
    world.cut([(speaker, machine.slot)], world.now_ms + plan.round_timeout_ms + 50)


def _install_forged_log(
    world: Simulation, machine: SimulatedMaster, behind: SimulatedMaster, lasts_ms: int, tries: int
) -> None:
    if world.healing:
        return
    quiet = behind is machine
    if machine.replace_with_forged_log(behind.durable_state.log_length if tries and not quiet else 0):
        world.coverage["log forged"] += 1
        world.forged, world.quiet = True, quiet
        world.mark_damaged(machine)
        world.schedule(world.now_ms + lasts_ms, machine.start, machine.incarnation)
        if not quiet:
            rest = [slot for slot in range(world.plan.masters) if slot not in (machine.slot, behind.slot)]
            away = [(machine.slot, slot) for slot in rest] + [(slot, machine.slot) for slot in rest]
            world.cut(away, world.now_ms + lasts_ms + world.plan.round_timeout_ms + 150)
    elif tries:  # it is down, or its log has no such neighbours yet
        world.schedule(world.now_ms + 20, _install_forged_log, world, machine, behind, lasts_ms, tries - 1)


def _restore_image(world: Simulation, machine: SimulatedMaster, image: dict[str, bytes]) -> None:
    if world.healing:
        return
    world.crash_for(machine, world.now_ms + 50)
    world.mark_damaged(machine)
    world.old_disk = True
    machine.disk.restore(image)
