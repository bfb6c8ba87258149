"""Faults that strike while views change: traps that a master's own records spring, and what is counted of changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from txlog.model.records import Record, ViewAccepted
from txlog.protocol.views.view_state import ViewState
from txlog_simulation.checkers.next_view import check_next_view
from txlog_simulation.run_plan import PlannedFault

if TYPE_CHECKING:
    from txlog_simulation.simulated_master import SimulatedMaster
    from txlog_simulation.simulation import Simulation

CHANGE_RECORDS = ("ViewPromised", "ViewAccepted", "ViewInstalled", "ViewLeft", "CounterCeiling")
CHANGE_STEPS = ("append", "begin_sync", "run", "end_sync", "send", "release")
VIEW_CHANGE_REASONS = {
    "left": "leave",
    "down": "down",
    "lost": "loss",
    "silent": "silence",
    "ordered": "order",
    "removed": "removal",
}
"""What is counted, by the reason of a departure; every reason of ``wire.messages.Departure`` stands here."""
CHANGE_FAULTS = ("crash-at-change", "cut-at-change", "slow-at-change")


def set_trap(world: Simulation, fault: PlannedFault) -> None:
    """A trap at master ``a``, and a reason for a change of views: master ``b`` leaves, or ends."""
    machine, other = world.simulated_masters[fault.a], world.simulated_masters[fault.b]
    kind = CHANGE_RECORDS[fault.size % len(CHANGE_RECORDS)]
    if fault.kind == "crash-at-change":
        step = CHANGE_STEPS[fault.size // len(CHANGE_RECORDS) % len(CHANGE_STEPS)]
        machine.record_traps[kind] = lambda: crash_at_step(machine, kind, step)
    else:
        kind = CHANGE_RECORDS[fault.size % 3]
        machine.record_traps[kind] = lambda: _disturb_links(world, fault, kind)
    leaver = machine if kind == "ViewLeft" else other
    if fault.size % 4 == 3 and kind != "ViewLeft":
        world.crash_for(other, world.now_ms + 20)
    elif leaver.executor is not None:
        world.schedule(world.now_ms, leaver.stop_gracefully, leaver.incarnation, world.now_ms + 150)


def crash_at_step(machine: SimulatedMaster, kind: str, step: str) -> None:
    """From now on this step of this record ends its process."""
    machine.steps_to_crash, machine.crash_step, machine.crash_record = 1, step, kind


def _disturb_links(world: Simulation, fault: PlannedFault, kind: str) -> None:
    """From now on its messages are lost, or come late; others may begin a change of their own meanwhile."""
    if world.healing:
        return
    a, others = fault.a, [slot for slot in range(world.plan.masters) if slot != fault.a]
    lasts_ms = world.plan.round_timeout_ms * (1 + fault.size % 3) + fault.lasts_ms
    links = [(a, other) for other in others]
    world.coverage[f"{fault.kind}: {kind}"] += 1
    if fault.kind == "cut-at-change":
        if fault.size % 2:
            links += [(other, a) for other in others]
        world.cut(links, world.now_ms + lasts_ms)
    else:
        world.slow(links, world.now_ms + lasts_ms)


def check_view_change(world: Simulation, views: ViewState, record: Record) -> None:
    """Whoever coordinates a change accepts the view that it has put together: is that what follows from the reports?
    What kind of change it is is counted, too."""
    change = views.change
    if isinstance(record, ViewAccepted):
        world.coverage["view accepted"] += 1
    if not isinstance(record, ViewAccepted) or change is None or change.next_view is None:
        return
    if change.number != record.view.number:
        return
    met, view = world.coverage, record.view
    parent, told = world.views.accepted.get(view.ancestors[-1]), list(change.reports.values())
    world.overrides.on_view_change(change.departures, told, view, parent)
    met["let in by those of an order"] += world.overrides.admits_without_majority(told, view, parent)
    if not world.damaged:
        reports = [change.reports[m.node] for m in change.members]
        one_line = all(r.view.is_majority(r.installed) for r in reports if r.view is not None)
        check_next_view(world.violations, world.log, change.next_view, reports, change.next_view.weights, one_line, met)
        before = world.views.accepted.get(view.ancestors[-1])
        if before is not None and any(one.why == "silent" for one in change.departures):
            here = {m.node for m in view.members}
            backups = [m.name for m in world.simulated_masters if m.name in here and len(m.worker.backups) > 1]
            world.views.on_split(before, view, bool(backups))
    if parent is not None and view.members == parent.members and view.strategy != parent.strategy:
        met["view of another strategy"] += 1
    for why in sorted({one.why for one in change.departures}):
        met[f"view of {VIEW_CHANGE_REASONS[why]}"] += 1
    known = {n.number: n.diverged_index for r in change.reports.values() if (n := r.view) is not None}
    if any(one.why == "silent" for one in change.departures) and known.get(view.ancestors[-1], -1) >= 0:
        met["nested split"] += 1
    if any(report.view is None for report in change.reports.values()):
        met["learner taken in"] += 1
    joins_branches = len(change.next_view.branches) > 1
    world.synchronous.coverage.on_view(view, told, joins_branches=joins_branches)
    if joins_branches:
        met[f"view of rejoin, {'Simple' if view.merged else 'Smart'}"] += 1
        if len(view.members) < world.plan.masters:
            met["partial rejoin"] += 1
        if len(change.next_view.branches) > 2:
            met["rejoin of three branches"] += 1


def count_crash(machine: SimulatedMaster) -> None:
    """In which state of a change a process ended; for coverage only."""
    met, mirror = machine.world.coverage, machine.durable_state
    accepted = mirror.accepted
    if accepted is None or not accepted.ancestors:
        return
    if mirror.promised > accepted.number:
        met["crash between promise and accept"] += 1
    elif not mirror.installed:
        met["crash between accept and install"] += 1
