"""What operators order (docs/how-to/add-remove-masters.md): members are let go, rightly and wrongly; a cluster begins
without all.

An operator who is refused asks again. Who is gone for good is named until its old birth is out of the view, since no
majority may be left without that; whoever is only cut off is named for a while, on one side or on both.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from txlog.model.errors import Conflict
from txlog_simulation.change_faults import CHANGE_RECORDS, CHANGE_STEPS, burn
from txlog_simulation.plan import Fault, Work
from txlog_simulation.violation import LOG

if TYPE_CHECKING:
    from txlog.model.view import Member
    from txlog.protocol.core import Core
    from txlog_simulation.machine import Machine
    from txlog_simulation.world import World

ORDERS = ("order", "order-cut", "order-heard", "found", "come")
AGAIN_MS = 120
TRIES = 8


def give(world: World, fault: Fault) -> None:
    """The operator of this fault begins."""
    match fault.kind:
        case "order":
            _lost(world, fault)
        case "order-cut":
            _cut_off(world, fault)
        case "order-heard":
            _heard(world, fault)
        case "found":
            _found(world, fault, TRIES)
        case _:
            world.machines[fault.a].start()


def _others(world: World, fault: Fault) -> list[int]:
    """Who is named: one of the others, or several, or all; at least one stays."""
    rest = [slot for slot in range(world.plan.masters) if slot not in (fault.a, fault.b)]
    return sorted([fault.b, *world.rng.sample(rest, world.rng.randint(0, len(rest)))])


def _core(world: World, slot: int) -> Core | None:
    machine = world.machines[slot]
    return machine.executor.core if machine.executor is not None and machine.state == "up" else None


# Members are gone


def _lost(world: World, fault: Fault) -> None:
    """They end; some come back later, others have lost their disks. ``size``: whether a step of the change that
    follows ends the process of one that stays, too."""
    named, now_ms = _others(world, fault), world.now_ms
    stays = world.machines[fault.a]
    mirror = stays.mirror
    knows = mirror.installed and mirror.accepted is not None
    gone = knows and not world.met["order about lost disks"] and world.rng.random() < 0.4
    for slot in named:
        machine = world.machines[slot]
        if not gone:
            world.crash_for(machine, now_ms + fault.lasts_ms)
        elif machine.origin is not None and machine.state in ("up", "paused", "down"):
            world.crash_for(machine, now_ms + fault.lasts_ms)
            world.wipe(machine)
    world.met["order about lost disks"] += gone
    if fault.size % 2:
        _trap(world, fault, named)
    world.at(now_ms + 5, _let_go, world, fault.a, named, gone, TRIES * (10 if gone else 1))
    _work(world, [slot for slot in range(world.plan.masters) if slot not in named], now_ms + fault.lasts_ms // 2)


def _trap(world: World, fault: Fault, named: list[int]) -> None:
    stay = [slot for slot in range(world.plan.masters) if slot not in named]
    kind = CHANGE_RECORDS[fault.size // 2 % 3]
    step = CHANGE_STEPS[fault.size // 6 % len(CHANGE_STEPS)]
    machine = world.machines[world.rng.choice(stay)]
    machine.traps[kind] = lambda: burn(machine, kind, step)


def _let_go(world: World, at: int, named: list[int], gone: bool, tries: int) -> None:
    """Those who stay are asked one after the other until they are let go."""
    if world.healing and not gone:
        return
    core = _core(world, at)
    there = _members(world, core, named, gone)
    taken = bool(there) and _force(world, at, there)
    stay = [slot for slot in range(world.plan.masters) if slot not in named]
    if taken and world.rng.random() < 0.3:
        world.met["order given again"] += 1  # at another master, or at the same
        world.at(world.now_ms + world.rng.choice((0, 10)), _again, world, world.rng.choice(stay), named, gone)
    if tries and (gone or not taken):
        asked = at if taken else world.rng.choice(stay)
        if taken and tries % TRIES == 0:  # nothing came of it for a while: who was asked is of no use, another may be
            asked = stay[(stay.index(at) + 1) % len(stay)] if at in stay else stay[0]
        world.at(world.now_ms + AGAIN_MS, _let_go, world, asked, named, gone, tries - 1)


def _again(world: World, at: int, named: list[int], gone: bool) -> None:
    there = _members(world, _core(world, at), named, gone)
    if there and not world.healing:
        _force(world, at, there)


def _members(world: World, core: Core | None, named: list[int], gone: bool) -> list[Member]:
    """Those of them who are in the view still. ``gone``: with a birth that no disk has any more."""
    view = core.views.accepted if core is not None else None
    machines = [world.machines[slot] for slot in named]
    found = [(m, view.member(m.name)) for m in machines] if view is not None else []
    return [member for m, member in found if member is not None and not (gone and member.origin == m.origin)]


def _force(world: World, at: int, there: list[Member]) -> bool:
    """``txlog force-view`` without these. False when it is refused."""
    machine = world.machines[at]
    assert machine.executor is not None
    with machine.guard:
        try:
            machine.executor.force_view([member.node for member in there])
        except Conflict as refused:
            world.met["order refused"] += 1
            world.note(machine.name, "order refused", str(refused)[:100])
            return False
        world.met["order taken"] += 1
        world.orders.named.update((member.node, member.birth) for member in there)
        world.note(machine.name, "order taken", " ".join(member.node for member in there))
        machine.turn_by(machine.executor.poll(machine.now()))
        machine.flush()
    return True


def _work(world: World, slots: list[int], at_ms: int) -> None:
    for later_ms in (0, 60, 150):
        for slot in slots:
            world.at(at_ms + later_ms, world.work, Work(at_ms, slot, 2, False, False, False))


# Members are cut off, and taken for gone


def _cut_off(world: World, fault: Fault) -> None:
    """They live on the other side. ``size``: whether an order is given there, too; or one link alone is cut, so that
    others hear them and no order is taken."""
    plan, now_ms, named = world.plan, world.now_ms, _others(world, fault)
    stay = [slot for slot in range(plan.masters) if slot not in named]
    across = [(one, other) for one in stay for other in named]
    if fault.size % 6 == 5 and plan.masters > 2:
        named, across = [fault.b], [(fault.a, fault.b)]
    end_ms = now_ms + fault.lasts_ms + 4 * plan.round_timeout_ms
    world.cut([pair for one, other in across for pair in ((one, other), (other, one))], end_ms)
    if fault.size % 2:
        _trap(world, fault, named)
    ask_ms = now_ms + plan.round_timeout_ms
    world.at(ask_ms, _let_go, world, fault.a, named, False, TRIES)
    if fault.size % 3 == 0:
        world.met["order on both sides"] += 1
        world.at(ask_ms + world.rng.choice((0, 50)), _let_go, world, fault.b, stay, False, TRIES)
    for later_ms in (0, plan.round_timeout_ms, 3 * plan.round_timeout_ms):
        _work(world, [*stay, *named], ask_ms + later_ms)


# Members answer


def _heard(world: World, fault: Fault) -> None:
    """Two that nothing has disturbed for some round time-outs hear each other: an order about one is refused."""
    if not world.plan.loss and world.plan.disk_ms <= 3:
        _watch(world, world.machines[fault.a], world.machines[fault.b], (-1, -1), 0)


def _undisturbed(world: World, one: Machine, other: Machine) -> bool:
    network = world.network
    links = [(one.slot, other.slot), (other.slot, one.slot)]
    running = one.executor is not None and other.executor is not None and one.state == other.state == "up"
    view = one.mirror.accepted
    together = one.mirror.installed and other.mirror.installed and view == other.mirror.accepted
    stalled = max(one.disk_stalls_until, other.disk_stalls_until) > world.now_ms or one.disk.full or other.disk.full
    leaving = one.leaving or other.leaving or one.mirror.stopped or other.mirror.stopped
    return (
        running
        and together
        and not (stalled or leaving)
        and not any(network.cuts[link] or network.slow[link] for link in links)
    )


def _watch(world: World, one: Machine, other: Machine, lives: tuple[int, int], until_ms: int) -> None:
    if world.healing:
        return
    now, core = (one.life, other.life), _core(world, one.slot)
    if now != lives or core is None or not _undisturbed(world, one, other):
        lives, until_ms = now, world.now_ms + 3 * world.plan.round_timeout_ms
    if world.now_ms < until_ms or core is None:
        world.at(world.now_ms + 10, _watch, world, one, other, lives, until_ms)
        return
    world.met["order about one that is heard"] += 1
    there = _members(world, core, [other.slot], False)
    if there and _force(world, one.slot, there):
        text = f"{one.name} takes an order to let {other.name} go, which has answered all the time"
        world.findings.add(LOG, "21", text)


# A cluster begins


def _found(world: World, fault: Fault, tries: int) -> None:
    """``txlog found`` with those that answer, or some of them, to the first; some operators ask another, too. Once an
    order was taken the same is given again; ``size``: or, against all advice, one that names others."""
    if world.healing:
        return
    before = next(iter(sorted(world.orders.begin)), ()) if fault.size % 12 else ()
    names = before or tuple(m.name for m in world.machines if m.state == "up" and world.rng.random() < 0.9)
    if not names:
        return
    asked = world.slots[names[0]] if world.rng.random() < 0.9 else world.rng.randrange(world.plan.masters)
    core, machine = _core(world, asked), world.machines[asked]
    if core is not None and machine.executor is not None and _take_found(world, machine, names):
        return
    if tries:
        world.at(world.now_ms + AGAIN_MS // 2, _found, world, fault, tries - 1)


def _take_found(world: World, machine: Machine, names: tuple[str, ...]) -> bool:
    executor = machine.executor
    assert executor is not None
    with machine.guard:
        try:
            executor.bootstrap(list(names))
        except Conflict as refused:
            world.met["order to found refused"] += 1
            world.note(machine.name, "found refused", str(refused)[:100])
            return False
        world.met["order to found taken"] += 1
        world.met["order to found given again"] += names in world.orders.begin
        world.orders.begin.add(names)
        world.met["two clusters ordered"] += world.orders.torn
        world.note(machine.name, "found", " ".join(names))
        machine.turn_by(executor.poll(machine.now()))
        machine.flush()
    return True


# A strategy is preferred


def prefer(world: World, at: int, strategy: str, tries: int = TRIES) -> None:
    """``txlog set splitRecovery``: refused while its master is not ``Joined``, and where a worker executed in another
    order under ``None``; then the operator asks again."""
    if world.healing:
        return
    machine, core = world.machines[at], _core(world, at)
    unordered = machine.strategy == "None" and bool(machine.worker.paths)
    if core is not None and core.state == "Joined" and not unordered and machine.executor is not None:
        with machine.guard:
            machine.strategy = strategy
            machine.executor.adopt(replace(core.settings, strategy=strategy))
            machine.turn_by(machine.executor.poll(machine.now()))
            machine.flush()
        world.met["asked to prefer"] += 1
        world.note(machine.name, "prefers", strategy)
    elif tries:
        world.at(world.now_ms + AGAIN_MS, prefer, world, at, strategy, tries - 1)
