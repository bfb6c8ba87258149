"""The cluster itself changes: masters come, go for good, are muted, get other weights (rule 20)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from txlog.model.configuration import LEAVING, MEMBER, MUTED, Configuration, Master, decode_configuration_change
from txlog.model.entry import KIND_CONFIG, RunItem
from txlog.model.errors import BadInput, Refused
from txlog.model.hashes import content_hash
from txlog.protocol.events import Submission
from txlog_simulation.run_plan import BEGIN_MS, DATA_CENTRES, NAMES, PlannedFault
from txlog_simulation.violation import LOG

if TYPE_CHECKING:
    from txlog.protocol.core import Core
    from txlog_simulation.simulated_master import SimulatedMaster
    from txlog_simulation.simulation import Simulation

MEMBER_FAULTS = ("add", "remove", "mute", "weight", "mode")
AGAIN_MS = 120
"""An operator whose order was refused gives it again, some times."""
TRIES = 8


def request_change(world: Simulation, fault: PlannedFault, tries: int = TRIES) -> None:
    """An operator asks some master for a change."""
    if world.healing:
        return
    machine = world.simulated_masters[fault.a]
    core = machine.executor.core if machine.executor is not None and machine.state == "up" else None
    now = core.configuration if core is not None else None
    taken = core is not None and now is not None and _submit_change(world, machine, core, now, fault)
    if not taken and tries:
        other = world.rng.choice([slot for slot in range(world.plan.masters) if slot != fault.b])
        world.schedule(world.now_ms + AGAIN_MS, request_change, world, fault._replace(a=other), tries - 1)


def _submit_change(
    world: Simulation, machine: SimulatedMaster, core: Core, now: Configuration, fault: PlannedFault
) -> bool:
    """False when it is refused and may be asked for later."""
    wanted = _wanted_configuration(world, now, fault)
    if wanted is None:
        return True
    try:
        submission = core.prepare_change(wanted, fault.kind)
    except BadInput:
        return True  # Majority: somebody would have half of the votes
    except Refused:
        return False
    if not machine.submit([submission]):
        return False
    world.coverage[f"asked to {fault.kind}"] += 1
    if fault.kind == "add":
        world.simulated_masters[world.plan.late_master].on_added_again()
    if fault.kind == "mute":
        world.schedule(world.now_ms + fault.lasts_ms + 150, unmute, world, fault.a, NAMES[fault.b])
    return True


def _wanted_configuration(world: Simulation, now: Configuration, fault: PlannedFault) -> Configuration | None:
    """None when there is nothing to be done."""
    plan = world.plan
    node = NAMES[plan.late_master if fault.kind == "add" else fault.b]
    master = now.master(node)
    if fault.kind == "add":
        if plan.late_master < 0 or master is not None or node in now.removed:
            return None
        new = Master(node, DATA_CENTRES[plan.centres[plan.late_master]], plan.weights[plan.late_master])
        return msgspec.structs.replace(now, masters=[*now.masters, new])
    if fault.kind == "mode":
        return msgspec.structs.replace(now, majority=not now.majority)
    if master is None or master.role == LEAVING:
        return None
    match fault.kind:
        case "mute":
            master = msgspec.structs.replace(master, role=MUTED)
        case "remove":
            if len(now.masters) < 3:
                return None
            master = msgspec.structs.replace(master, role=LEAVING)
        case _:
            master = msgspec.structs.replace(master, weight=1 + fault.size % 3)
    return msgspec.structs.replace(now, masters=[master if m.node == node else m for m in now.masters])


def unmute(world: Simulation, at: int, node: str, tries: int = 4 * TRIES) -> None:
    """Nobody stays muted: clients come back when all is healed."""
    machine = world.simulated_masters[at]
    core = machine.executor.core if machine.executor is not None and machine.state == "up" else None
    now = core.configuration if core is not None else None
    master = now.master(node) if now is not None else None
    if now is not None and (master is None or master.role != MUTED):
        return
    if core is not None and now is not None and master is not None:
        masters = [msgspec.structs.replace(m, role=MEMBER) if m.node == node else m for m in now.masters]
        try:
            if machine.submit([core.prepare_change(msgspec.structs.replace(now, masters=masters), "unmute")]):
                world.coverage["asked to unmute"] += 1
                return
        except Refused:
            pass
    if tries:
        world.schedule(world.now_ms + AGAIN_MS, unmute, world, world.rng.randrange(world.plan.masters), node, tries - 1)


def record_changes(world: Simulation, node: str, items: list[RunItem]) -> None:
    """A master makes changes of its own, too: it takes itself out. From now on their weights may be in force."""
    for item in items:
        change = decode_configuration_change(item.key) if item.kind == KIND_CONFIG else None
        if change is not None:
            made = Submission(item.kind, item.key, item.payload, content_hash(item.kind, item.key, item.payload))
            world.transactions.on_submitted(node, [made])
            world.acknowledgements.weights.append({m.node: m.weight for m in change.configuration.masters})


def start_late(world: Simulation) -> None:
    """The new master's process begins, before or after it is named."""
    if world.plan.late_master >= 0:
        world.schedule(
            BEGIN_MS + world.rng.choice((0, 100, 300)), world.simulated_masters[world.plan.late_master].start
        )


def expected_members(world: Simulation) -> list[str] | None:
    """Who is a master when all is good, as the one says whose log is longest: all that were planned, while no log
    names its masters yet. None while a master is being taken out."""
    longest: Core | None = None
    for machine in world.simulated_masters:
        core = machine.executor.core if machine.executor is not None else None
        agreement = core.log_state if core is not None else None
        if core is None or agreement is None or core.configuration is None:
            continue
        before = longest.log_state if longest is not None else None
        if before is None or agreement.stable > before.stable:
            longest = core
    now = longest.configuration if longest is not None else None
    if now is None or not now.masters:
        return [m.node for m in world.members]
    if longest is None or longest.pending_change is not None or any(m.role == LEAVING for m in now.masters):
        return None
    return [m.node for m in now.masters]


def check_submission(world: Simulation, machine: SimulatedMaster, taken: bool) -> None:
    """A master that its own log mutes, or takes out, takes nothing of a client."""
    core = machine.executor.core if machine.executor is not None else None
    agreement = core.log_state if core is not None else None
    if not taken or agreement is None or not agreement.configurations.latest.masters:
        return
    mine = agreement.configurations.latest.master(machine.name)
    if mine is None or mine.role != MEMBER:
        role = mine.role if mine is not None else "no master"
        world.violations.add(LOG, "20", f"{machine.name} is {role}, and takes a client's transactions")


def record_removed(world: Simulation, core: Core) -> None:
    """What a process knew that ends now."""
    if core.configuration is not None:
        world.removed.update(core.configuration.removed)


def is_removed(world: Simulation, machine: SimulatedMaster) -> bool:
    """Whether the log does without it for good, as somebody said."""
    for other in world.simulated_masters:
        if other is not machine and other.executor is not None:
            record_removed(world, other.executor.core)
    return machine.name in world.removed


def check_removed(world: Simulation, machine: SimulatedMaster) -> None:
    """A master that has gone for good leaves nothing behind: somebody who stays holds all that its clients were told.
    Whether that comes into the log is judged at the end."""
    origin = machine.origin
    if origin is None or world.damaged:
        return
    accepted = world.transactions.accepted.get(origin, 0)
    there = max(m.durable_state.held_seqs.get(origin, 0) for m in world.simulated_masters if m is not machine)
    if there < accepted:
        world.violations.add(LOG, "20", f"{machine.name} has gone for good; of {accepted} accepted, {there} are held")


def check_configurations(world: Simulation, names: list[str]) -> None:
    """All is good: everybody has the same configuration, and is a master by it."""
    found: set[bytes] = set()
    for machine in world.simulated_masters:
        core = machine.executor.core if machine.executor is not None else None
        if core is not None and machine.name in names and core.configuration is not None:
            found.add(msgspec.msgpack.encode(core.configuration))
    if len(found) > 1:
        world.violations.add(LOG, "20", f"{len(found)} configurations are in force at once")
