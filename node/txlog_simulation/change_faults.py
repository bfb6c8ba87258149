"""Faults that strike while views change: traps that a master's own records spring, and what is counted of changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from txlog.model.records import Record, ViewAccepted
from txlog.protocol.coordinating import Coordinating
from txlog_simulation.checkers.closing import check
from txlog_simulation.plan import Fault

if TYPE_CHECKING:
    from txlog_simulation.machine import Machine
    from txlog_simulation.world import World

CHANGE_RECORDS = ("Promised", "ViewAccepted", "ViewInstalled", "Left", "Ceiling")
CHANGE_STEPS = ("append", "begin_sync", "run", "end_sync", "send", "release")
KINDS_OF_CHANGE = {
    "left": "leave",
    "down": "down",
    "lost": "loss",
    "silent": "silence",
    "ordered": "order",
    "removed": "removal",
}
"""What is counted, by the reason of a departure; every reason of ``wire.messages.Departure`` stands here."""
CHANGE_FAULTS = ("crash-at-change", "cut-at-change", "slow-at-change")


def set_trap(world: World, fault: Fault) -> None:
    """A trap at master ``a``, and a reason for a change of views: master ``b`` leaves, or ends."""
    machine, other = world.machines[fault.a], world.machines[fault.b]
    kind = CHANGE_RECORDS[fault.size % len(CHANGE_RECORDS)]
    if fault.kind == "crash-at-change":
        step = CHANGE_STEPS[fault.size // len(CHANGE_RECORDS) % len(CHANGE_STEPS)]
        machine.traps[kind] = lambda: burn(machine, kind, step)
    else:
        kind = CHANGE_RECORDS[fault.size % 3]
        machine.traps[kind] = lambda: _part(world, fault, kind)
    leaver = machine if kind == "Left" else other
    if fault.size % 4 == 3 and kind != "Left":
        world.crash_for(other, world.now_ms + 20)
    elif leaver.executor is not None:
        world.at(world.now_ms, leaver.stop_gently, leaver.life, world.now_ms + 150)


def burn(machine: Machine, kind: str, step: str) -> None:
    """From now on this step of this record ends its process."""
    machine.fuse, machine.fuse_step, machine.fuse_of = 1, step, kind


def _part(world: World, fault: Fault, kind: str) -> None:
    """From now on its messages are lost, or come late; others may begin a change of their own meanwhile."""
    if world.healing:
        return
    a, others = fault.a, [slot for slot in range(world.plan.masters) if slot != fault.a]
    lasts_ms = world.plan.round_timeout_ms * (1 + fault.size % 3) + fault.lasts_ms
    links = [(a, other) for other in others]
    world.met[f"{fault.kind}: {kind}"] += 1
    if fault.kind == "cut-at-change":
        if fault.size % 2:
            links += [(other, a) for other in others]
        world.cut(links, world.now_ms + lasts_ms)
    else:
        world.slow(links, world.now_ms + lasts_ms)


def judge_change(world: World, views: Coordinating, record: Record) -> None:
    """Whoever coordinates a change accepts the view that it has put together: is that what follows from the reports?
    What kind of change it is is counted, too."""
    change = views.change
    if isinstance(record, ViewAccepted):
        world.met["view accepted"] += 1
    if not isinstance(record, ViewAccepted) or change is None or change.closed is None:
        return
    if change.number != record.view.number:
        return
    met, view = world.met, record.view
    parent, told = world.views.accepted.get(view.history[-1]), list(change.reports.values())
    world.orders.change(change.gone, told, view, parent)
    met["let in by those of an order"] += world.orders.lets_in(told, view, parent)
    if not world.damaged:
        reports = [change.reports[m.node] for m in change.members]
        one_line = all(r.view.is_majority(r.installed) for r in reports if r.view is not None)
        check(world.findings, world.log, change.closed, reports, change.closed.weights, one_line)
        before = world.views.accepted.get(view.history[-1])
        if before is not None and any(one.why == "silent" for one in change.gone):
            here = {m.node for m in view.members}
            backups = [m.name for m in world.machines if m.name in here and len(m.worker.backups) > 1]
            world.views.split(before, view, bool(backups))
    if parent is not None and view.members == parent.members and view.strategy != parent.strategy:
        met["view of another strategy"] += 1
    for why in sorted({one.why for one in change.gone}):
        met[f"view of {KINDS_OF_CHANGE[why]}"] += 1
    known = {n.number: n.apart_at for r in change.reports.values() if (n := r.view) is not None}
    if any(one.why == "silent" for one in change.gone) and known.get(view.history[-1], -1) >= 0:
        met["nested split"] += 1
    if any(report.view is None for report in change.reports.values()):
        met["learner taken in"] += 1
    if len(change.closed.branches) > 1:
        met[f"view of rejoin, {'Simple' if view.merged else 'Smart'}"] += 1
        if len(view.members) < world.plan.masters:
            met["partial rejoin"] += 1
        if len(change.closed.branches) > 2:
            met["rejoin of three branches"] += 1


def count_crash(machine: Machine) -> None:
    """In which state of a change a process ended; for coverage only."""
    met, mirror = machine.world.met, machine.mirror
    accepted = mirror.accepted
    if accepted is None or not accepted.history:
        return
    if mirror.promised > accepted.number:
        met["crash between promise and accept"] += 1
    elif not mirror.installed:
        met["crash between accept and install"] += 1
