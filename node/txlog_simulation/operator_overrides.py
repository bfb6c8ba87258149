"""What operators order (docs/how-to/add-remove-masters.md): members are let go, rightly and wrongly; a cluster begins
without all.

An operator who is refused asks again. Who is gone for good is named until its old birth is out of the view, since no
majority may be left without that; whoever is only cut off is named for a while, on one side or on both.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from txlog.model.errors import Conflict
from txlog_simulation.master_output import go_on
from txlog_simulation.run_plan import PlannedFault, PlannedWork
from txlog_simulation.view_change_faults import CHANGE_RECORDS, CHANGE_STEPS, crash_at_step
from txlog_simulation.violation import LOG

if TYPE_CHECKING:
    from txlog.model.view import Member
    from txlog.protocol.core import Core
    from txlog_simulation.simulated_master import SimulatedMaster
    from txlog_simulation.simulation import Simulation

OVERRIDE_FAULTS = ("order", "order-cut", "order-heard", "found", "come")
AGAIN_MS = 120
TRIES = 8


def run_override(world: Simulation, fault: PlannedFault) -> None:
    """The operator of this fault begins."""
    match fault.kind:
        case "order":
            _lose_members(world, fault)
        case "order-cut":
            _isolate_members(world, fault)
        case "order-heard":
            _order_about_live_member(world, fault)
        case "found":
            _order_bootstrap(world, fault, TRIES)
        case _:
            world.simulated_masters[fault.a].start()


def _named_members(world: Simulation, fault: PlannedFault) -> list[int]:
    """Who is named: one of the others, or several, or all; at least one stays."""
    rest = [slot for slot in range(world.plan.masters) if slot not in (fault.a, fault.b)]
    return sorted([fault.b, *world.rng.sample(rest, world.rng.randint(0, len(rest)))])


def _core_of(world: Simulation, slot: int) -> Core | None:
    machine = world.simulated_masters[slot]
    return machine.executor.core if machine.executor is not None and machine.state == "up" else None


# Members are gone


def _lose_members(world: Simulation, fault: PlannedFault) -> None:
    """They end; some come back later, others have lost their disks. ``size``: whether a step of the change that
    follows ends the process of one that stays, too."""
    named, now_ms = _named_members(world, fault), world.now_ms
    stays = world.simulated_masters[fault.a]
    mirror = stays.durable_state
    knows = mirror.installed and mirror.accepted is not None
    gone = knows and not world.coverage["order about lost disks"] and world.rng.random() < 0.4
    for slot in named:
        machine = world.simulated_masters[slot]
        if not gone:
            world.crash_for(machine, now_ms + fault.lasts_ms)
        elif machine.origin is not None and machine.state in ("up", "paused", "down"):
            world.crash_for(machine, now_ms + fault.lasts_ms)
            world.wipe(machine)
    world.coverage["order about lost disks"] += gone
    if fault.size % 2:
        _set_crash_trap(world, fault, named)
    world.schedule(now_ms + 5, _order_until_taken, world, fault.a, named, gone, TRIES * (10 if gone else 1))
    _work(world, [slot for slot in range(world.plan.masters) if slot not in named], now_ms + fault.lasts_ms // 2)


def _set_crash_trap(world: Simulation, fault: PlannedFault, named: list[int]) -> None:
    stay = [slot for slot in range(world.plan.masters) if slot not in named]
    kind = CHANGE_RECORDS[fault.size // 2 % 3]
    step = CHANGE_STEPS[fault.size // 6 % len(CHANGE_STEPS)]
    machine = world.simulated_masters[world.rng.choice(stay)]
    machine.record_traps[kind] = lambda: crash_at_step(machine, kind, step)


def _order_until_taken(world: Simulation, at: int, named: list[int], gone: bool, tries: int) -> None:
    """Those who stay are asked one after the other until they are let go."""
    if world.healing and not gone:
        return
    core = _core_of(world, at)
    there = _members_in_view(world, core, named, gone)
    taken = bool(there) and _force_view(world, at, there)
    stay = [slot for slot in range(world.plan.masters) if slot not in named]
    if taken and world.rng.random() < 0.3:
        world.coverage["order given again"] += 1  # at another master, or at the same
        world.schedule(
            world.now_ms + world.rng.choice((0, 10)), _order_again, world, world.rng.choice(stay), named, gone
        )
    if tries and (gone or not taken):
        asked = at if taken else world.rng.choice(stay)
        if taken and tries % TRIES == 0:  # nothing came of it for a while: who was asked is of no use, another may be
            asked = stay[(stay.index(at) + 1) % len(stay)] if at in stay else stay[0]
        world.schedule(world.now_ms + AGAIN_MS, _order_until_taken, world, asked, named, gone, tries - 1)


def _order_again(world: Simulation, at: int, named: list[int], gone: bool) -> None:
    there = _members_in_view(world, _core_of(world, at), named, gone)
    if there and not world.healing:
        _force_view(world, at, there)


def _members_in_view(world: Simulation, core: Core | None, named: list[int], gone: bool) -> list[Member]:
    """Those of them who are in the view still. ``gone``: with a birth that no disk has any more."""
    view = core.views.accepted if core is not None else None
    machines = [world.simulated_masters[slot] for slot in named]
    found = [(m, view.member(m.name)) for m in machines] if view is not None else []
    return [member for m, member in found if member is not None and not (gone and member.origin == m.origin)]


def _force_view(world: Simulation, at: int, there: list[Member]) -> bool:
    """``txlog force-view`` without these. False when it is refused."""
    machine = world.simulated_masters[at]
    assert machine.executor is not None
    with machine.guard:
        try:
            machine.control.force_view([member.node for member in there])
        except Conflict as refused:
            world.coverage["order refused"] += 1
            world.trace_event(machine.name, "order refused", str(refused)[:100])
            return False
        world.coverage["order taken"] += 1
        world.overrides.excluded.update((member.node, member.birth) for member in there)
        world.trace_event(machine.name, "order taken", " ".join(member.node for member in there))
        go_on(machine)
        _wait_durable(machine)
    return True


def _wait_durable(machine: SimulatedMaster) -> None:
    """The operator is answered when the order is on the disk."""
    if machine.process is not None:
        machine.process.events.create_task(machine.process.wait_durable())


def _work(world: Simulation, slots: list[int], at_ms: int) -> None:
    for later_ms in (0, 60, 150):
        for slot in slots:
            world.schedule(at_ms + later_ms, world.submit_work, PlannedWork(at_ms, slot, 2, False, False, False))


# Members are cut off, and taken for gone


def _isolate_members(world: Simulation, fault: PlannedFault) -> None:
    """They live on the other side. ``size``: whether an order is given there, too; or one link alone is cut, so that
    others hear them and no order is taken."""
    plan, now_ms, named = world.plan, world.now_ms, _named_members(world, fault)
    stay = [slot for slot in range(plan.masters) if slot not in named]
    across = [(one, other) for one in stay for other in named]
    if fault.size % 6 == 5 and plan.masters > 2:
        named, across = [fault.b], [(fault.a, fault.b)]
    end_ms = now_ms + fault.lasts_ms + 4 * plan.round_timeout_ms
    world.cut([pair for one, other in across for pair in ((one, other), (other, one))], end_ms)
    if fault.size % 2:
        _set_crash_trap(world, fault, named)
    ask_ms = now_ms + plan.round_timeout_ms
    world.schedule(ask_ms, _order_until_taken, world, fault.a, named, False, TRIES)
    if fault.size % 3 == 0:
        world.coverage["order on both sides"] += 1
        world.schedule(ask_ms + world.rng.choice((0, 50)), _order_until_taken, world, fault.b, stay, False, TRIES)
    for later_ms in (0, plan.round_timeout_ms, 3 * plan.round_timeout_ms):
        _work(world, [*stay, *named], ask_ms + later_ms)


# Members answer


def _order_about_live_member(world: Simulation, fault: PlannedFault) -> None:
    """Two that nothing has disturbed for some round time-outs hear each other: an order about one is refused."""
    if not world.plan.loss and world.plan.disk_ms <= 3:
        _order_when_undisturbed(world, world.simulated_masters[fault.a], world.simulated_masters[fault.b], (-1, -1), 0)


def _is_undisturbed(world: Simulation, one: SimulatedMaster, other: SimulatedMaster) -> bool:
    network = world.network
    links = [(one.slot, other.slot), (other.slot, one.slot)]
    running = one.executor is not None and other.executor is not None and one.state == other.state == "up"
    view = one.durable_state.accepted
    together = one.durable_state.installed and other.durable_state.installed and view == other.durable_state.accepted
    stalled = max(one.disk_stalls_until, other.disk_stalls_until) > world.now_ms or one.disk.full or other.disk.full
    leaving = one.leaving or other.leaving or one.durable_state.is_stopped or other.durable_state.is_stopped
    return (
        running
        and together
        and not (stalled or leaving)
        and not any(network.cuts[link] or network.slow[link] for link in links)
    )


def _order_when_undisturbed(
    world: Simulation, one: SimulatedMaster, other: SimulatedMaster, lives: tuple[int, int], until_ms: int
) -> None:
    if world.healing:
        return
    now, core = (one.incarnation, other.incarnation), _core_of(world, one.slot)
    if now != lives or core is None or not _is_undisturbed(world, one, other):
        lives, until_ms = now, world.now_ms + 3 * world.plan.round_timeout_ms
    if world.now_ms < until_ms or core is None:
        world.schedule(world.now_ms + 10, _order_when_undisturbed, world, one, other, lives, until_ms)
        return
    world.coverage["order about one that is heard"] += 1
    there = _members_in_view(world, core, [other.slot], False)
    if there and _force_view(world, one.slot, there):
        text = f"{one.name} takes an order to let {other.name} go, which has answered all the time"
        world.violations.add(LOG, "21", text)


# A cluster begins


def _order_bootstrap(world: Simulation, fault: PlannedFault, tries: int) -> None:
    """``txlog found`` with those that answer, or some of them, to the first; some operators ask another, too. Once an
    order was taken the same is given again; ``size``: or, against all advice, one that names others."""
    if world.healing:
        return
    before = next(iter(sorted(world.overrides.bootstrap_members)), ()) if fault.size % 12 else ()
    names = before or tuple(m.name for m in world.simulated_masters if m.state == "up" and world.rng.random() < 0.9)
    if not names:
        return
    asked = world.slots[names[0]] if world.rng.random() < 0.9 else world.rng.randrange(world.plan.masters)
    core, machine = _core_of(world, asked), world.simulated_masters[asked]
    if core is not None and machine.executor is not None and _bootstrap_once(world, machine, names):
        return
    if tries:
        world.schedule(world.now_ms + AGAIN_MS // 2, _order_bootstrap, world, fault, tries - 1)


def _bootstrap_once(world: Simulation, machine: SimulatedMaster, names: tuple[str, ...]) -> bool:
    executor = machine.executor
    assert executor is not None
    with machine.guard:
        try:
            machine.control.bootstrap(list(names))
        except Conflict as refused:
            world.coverage["order to found refused"] += 1
            world.trace_event(machine.name, "found refused", str(refused)[:100])
            return False
        world.coverage["order to found taken"] += 1
        world.coverage["order to found given again"] += names in world.overrides.bootstrap_members
        world.overrides.bootstrap_members.add(names)
        world.coverage["two clusters ordered"] += world.overrides.may_be_two_clusters
        world.trace_event(machine.name, "found", " ".join(names))
        go_on(machine)
        _wait_durable(machine)
    return True


# A strategy is preferred


def change_split_recovery(world: Simulation, at: int, strategy: str, tries: int = TRIES) -> None:
    """``txlog set splitRecovery``: refused while its master is not ``Joined``, and where a worker executed in another
    order under ``None``; then the operator asks again."""
    if world.healing:
        return
    machine, core = world.simulated_masters[at], _core_of(world, at)
    unordered = machine.strategy == "None" and bool(machine.worker.left_positions)
    if core is not None and core.state == "Joined" and not unordered and machine.executor is not None:
        with machine.guard:
            machine.strategy = strategy
            machine.control.adopt(replace(core.settings, strategy=strategy))
            go_on(machine)
        world.coverage["asked to prefer"] += 1
        world.trace_event(machine.name, "prefers", strategy)
    elif tries:
        world.schedule(world.now_ms + AGAIN_MS, change_split_recovery, world, at, strategy, tries - 1)
