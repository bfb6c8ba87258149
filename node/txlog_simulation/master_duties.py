"""What a supervisor makes a simulated master do: trim its log, back its worker up."""

from __future__ import annotations

from typing import TYPE_CHECKING

from txlog.model.errors import OffTheLog
from txlog.protocol.log.log_trim import RetentionPosition
from txlog_simulation.master_output import go_on
from txlog_simulation.process_states import UP
from txlog_simulation.worker_driver import drive_worker

if TYPE_CHECKING:
    from txlog_simulation.simulated_master import SimulatedMaster


def trim_log(machine: SimulatedMaster, places: list[RetentionPosition]) -> None:
    """Trim the log as far as these positions allow."""
    executor = machine.executor
    if machine.state != UP or executor is None or machine.forged or executor.core.log_state is None:
        return
    with machine.guard:
        verdict = machine.control.trim(places, 1 << 60)
        if machine.world.trace.wanted:
            machine.world.trace_event(
                machine.name,
                "trim",
                f"{verdict.start} to {verdict.trim_to}: {[tuple(holder) for holder in verdict.blockers[:1]]}",
            )
        go_on(machine)


def back_up_for_split(machine: SimulatedMaster, life: int) -> None:
    """What the supervisor does when a split is feared (rule 23): a backup of this master's worker, which goes back
    before, where it is on no log of this view."""
    if life != machine.incarnation or machine.state != UP or machine.executor is None:
        return
    drive_worker(machine, machine.executor)
    agreement = machine.executor.core.log_state
    if agreement is None:
        return
    core = machine.executor.core
    if core.needs_split_backup and machine.worker.is_on(agreement.log_index):
        (index, value), what = machine.worker.back_up(), "split backup"
    else:
        known = (
            machine.worker.newest_backup_up_to(agreement.stable, agreement.log_index)
            if core.accepts_earlier_backup
            else None
        )
        if known is None:
            return
        (index, value), what = known, "split backup recalled"
    machine.world.coverage[what] += 1
    with machine.guard:
        try:
            machine.control.backup_done(index, value or agreement.log_index.empty_log_hash, -1)
        except OffTheLog:
            if agreement.installed and not machine.damaged:
                raise
            machine.world.coverage["split backup refused"] += 1  # an accept has cut it off, or an old disk knows less
        go_on(machine)
