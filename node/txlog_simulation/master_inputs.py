"""What comes to a simulated master, and what its supervisor sees of it after each turn."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from txlog.model.errors import PeerFault
from txlog.wire import messages as wire
from txlog_simulation.master_duties import back_up_for_split
from txlog_simulation.process_states import UP
from txlog_simulation.violation import PROCESS

if TYPE_CHECKING:
    from txlog_simulation.simulated_master import SimulatedMaster

FAULT_REASONS_OF_DAMAGE = ("Regressed", "StampsFall", "Malformed", "UnknownFormat", "OtherCluster", "Misplaced")
"""Reasons to refuse a peer that no network and no crash may bring about."""


def receive_one(machine: SimulatedMaster, receive: Callable[[str, bytes], None], source: int, data: bytes) -> None:
    """One message goes to ``receive(peer, data)``; a refusal that nothing may bring about is a violation."""
    world = machine.world
    peer = world.simulated_masters[source]
    try:
        receive(peer.name, data)
    except PeerFault as fault:
        world.trace_event(machine.name, "refused", f"{peer.name} {fault.reason}")
        world.refused[fault.reason] += 1
        if fault.reason == "Misplaced" and machine.flipped:
            return  # an answer to what it asked before it was mended
        wiped = world.coverage["wipe"] or world.coverage["order about lost disks"]
        if fault.reason == "OtherCluster" and (wiped or world.overrides.may_be_two_clusters):
            return  # a cluster that was being founded with its earlier birth, in a message that was on its way
        ordered = fault.reason == "OtherCluster" and world.overrides.bootstrap_members
        if ordered and (_is_bootstrapping(machine) or isinstance(wire.decode(peer.name, data), wire.ProposeBootstrap)):
            return  # one of the two had not heard yet that an order had founded the cluster
        if fault.reason in FAULT_REASONS_OF_DAMAGE and not world.damaged:
            world.violations.add(PROCESS, "9", f"{machine.name} refuses {fault}")
    if world.trace.wanted:
        world.trace_event(
            machine.name, "receive", f"{peer.name} {len(data)} bytes log={machine.durable_state.log_length}"
        )
    machine.on_step("receive")


def _is_bootstrapping(machine: SimulatedMaster) -> bool:
    return machine.executor is not None and machine.executor.core.views.bootstrap_unconfirmed


def look_after(machine: SimulatedMaster) -> None:
    """What a supervisor sees after a turn: a master that the log does without, and one that wants a backup."""
    core = machine.executor.core if machine.executor is not None and machine.executor.idle else None
    if core is not None and core.removed and core.is_leave_done and machine.state == UP:
        machine.on_removed()
    core = machine.executor.core if machine.executor is not None else None
    if (
        core is not None
        and (core.needs_split_backup or core.accepts_earlier_backup)
        and machine.backup_life != machine.incarnation
    ):
        machine.backup_life = machine.incarnation
        world = machine.world
        if machine.rng.random() < 0.8 and (world.target or world.healing):
            world.schedule(
                world.now_ms + machine.rng.choice((1, 10, 50, 150)), back_up_for_split, machine, machine.incarnation
            )
        else:
            world.coverage["split backup failed"] += 1
        world.schedule(world.now_ms + 300, _allow_backup_again, machine, machine.incarnation)


def _allow_backup_again(machine: SimulatedMaster, life: int) -> None:
    """The supervisor looks whether a backup is wanted still."""
    if life == machine.incarnation:
        machine.backup_life = -1
