"""A master's worker executes the order that it is offered: what the pipeline does, and a duty to go back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from txlog.model.ids import Origin, Txid
from txlog.model.synchronous_entry import SYNCHRONOUS_AND_DECISION
from txlog.protocol.log.executed_out_of_order import BranchPosition, ExecutedElsewhere, find_branch_position
from txlog.protocol.log.log_state import LogState
from txlog.runtime.executor import Executor
from txlog_simulation.checkers.workers import SimulatedWorker
from txlog_simulation.process_states import UP
from txlog_simulation.refused_stores import is_refused
from txlog_simulation.synchronous_driver import execute_synchronous, note_state
from txlog_simulation.violation import WORKER

if TYPE_CHECKING:
    from txlog_simulation.simulated_master import SimulatedMaster


def drive_worker(machine: SimulatedMaster, executor: Executor) -> None:
    """The worker executes what it has been offered, and its position is reported; it survives its master."""
    before = machine.worker.index, machine.worker.hash
    _execute(machine, executor)
    moved = (machine.worker.index, machine.worker.hash) != before
    if machine.levels is not None and (moved or machine.worker.refused_by):
        machine.levels.on_worker_moved()


def _execute(machine: SimulatedMaster, executor: Executor) -> None:
    agreement = executor.core.log_state
    if agreement is None or machine.forged:  # a worker does not follow another log
        return
    worker, history = machine.worker, agreement.log_index
    view = machine.durable_state.accepted
    # The install counts once it is durable: before that, the released stable index is the one of the view before it.
    if not machine.durable_state.installed or view is None or view.number != agreement.view.number:
        return
    if is_refused(machine, view):
        return
    none = view.strategy == "None"
    paths = _branch_positions(worker, agreement) if none else None
    if not worker.is_on(history) and paths is not None:
        at = max(path.shared_index for path in paths)
        machine.world.trace_event(machine.name, "worker set", f"{worker.index} to {at}")
        machine.world.coverage["worker unordered"] += 1
        worker.skip_ahead(at, history.hash_at(at))
    elif not worker.is_on(history) or (none and paths is None):
        _restore_worker(machine, agreement, without_order=none)
        paths = []
    branch = machine.world.log.branch_of(machine.durable_state)
    to_end = executor.core.executes_to_end
    end = max(
        machine.released_marks.stable,
        min(machine.released_marks.log, machine.durable_state.log_length) if to_end else 0,
    )
    to_end = to_end and none  # what is judged is never taken from the core's word alone
    worker.past_stable &= worker.index > machine.released_marks.stable  # everybody's order has come to where it stands
    if end <= worker.index:
        return
    worker.past_stable |= to_end and end > machine.released_marks.stable
    over = ExecutedElsewhere(paths) if paths and worker.left_positions else None
    worker.births.add(machine.last_seen[0])
    if worker.index < history.served_from:
        machine.world.violations.add(
            WORKER, "19", f"worker of {machine.name} at {worker.index}, served from {history.served_from}"
        )
        return
    with machine.guard:
        for span in history.spans(worker.index, min(end, history.length)):
            origin = Origin(span.node, span.birth)
            seq, left = span.first_seq, span.count
            while left:
                run = executor.journal.read(span.node, span.birth, seq, left, 1 << 20)
                worker.follow(view.cluster_id)
                for item in run.items:
                    index = worker.index + 1
                    if item.kind in SYNCHRONOUS_AND_DECISION:
                        execute_synchronous(machine, executor, branch, Txid(origin, seq), item)
                        seq += 1
                        continue
                    passes = over is not None and (
                        over.was_executed(index, origin, seq)
                        or over.repeats_executed_key(agreement, Txid(origin, seq), item.key, item.stamp)
                    )
                    noop, value = agreement.noops.get(index), history.hash_at(index)
                    worker.execute(branch, origin, seq, item, noop, value, to_end=to_end, passes=passes)
                    note_state(machine)
                    seq += 1
                left -= len(run.items)
    if machine.world.trace.wanted:
        machine.world.trace_event(machine.name, "work", f"index={worker.index}")


def _branch_positions(worker: SimulatedWorker, agreement: LogState) -> list[BranchPosition] | None:
    """The way to where it stands, and to where it stood; None when this master does not know one of them."""
    found = [find_branch_position(agreement, *place) for place in [*worker.left_positions, (worker.index, worker.hash)]]
    known = [path for path in found if path is not None]
    return known if len(known) == len(found) else None


def _restore_worker(machine: SimulatedMaster, agreement: LogState, *, without_order: bool) -> None:
    """Its position is on no log of this view: only a rejoin may bring that about. ``without_order``: nor does its
    master know how it came there, which only the loss of a disk may bring about."""
    worker = machine.worker
    index = worker.index
    # What a view of another strategy cut off, and was never installed, is kept for workers that go back by a backup.
    one_strategy = not machine.world.plan.preferred_strategies
    if without_order and one_strategy and worker.births <= {machine.last_seen[0]} and not machine.damaged:
        machine.world.violations.add(WORKER, "33", f"{machine.name} does not know the order that its worker executed")
    past_stable = worker.past_stable  # what its view cut off since never was everybody's order
    worker.restore_backup(agreement.log_index, agreement.view.cluster_id)
    machine.world.trims.on_worker_restored(machine, agreement)
    machine.world.coverage["worker sent back"] += 1
    machine.world.trace_event(machine.name, "worker back", f"{index} to {worker.index}")
    plan, met = machine.world.plan, machine.world.coverage
    # Whoever went on by order may have lost its disk since, and with it what would tell that two views were parted.
    parted = met["asked to mode"] or met["order about lost disks"] or machine.world.views.majority_diverged
    expected = without_order or past_stable
    if not expected and ((plan.majority and not parted) or not machine.rejoined):
        machine.world.violations.add(WORKER, "33", f"worker of {machine.name} at {index} is off the log of its master")


def drive_if_running(machine: SimulatedMaster, life: int) -> None:
    """The worker executes if the process ``life`` still runs."""
    if life == machine.incarnation and machine.state == UP and machine.executor is not None:
        drive_worker(machine, machine.executor)
