"""What a worker does at a synchronous transaction or a decision, with what its master knows and its journal has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from txlog.model.entry import RunItem
from txlog.model.hashes import content_hash
from txlog.model.ids import Txid
from txlog.model.synchronous_entry import KIND_DECISION
from txlog.runtime.executor import Executor
from txlog_simulation.checkers.log import ObservedBranch
from txlog_simulation.checkers.synchronous import ObservedEffect
from txlog_simulation.violation import WORKER

if TYPE_CHECKING:
    from txlog_simulation.simulated_master import SimulatedMaster


def execute_synchronous(
    machine: SimulatedMaster, executor: Executor, branch: ObservedBranch, txid: Txid, item: RunItem
) -> None:
    """The worker executes what takes effect at the next entry, as its master serves it."""
    log, worker, world = executor.core.log_state, machine.worker, machine.world
    assert log is not None
    index, effects = worker.index + 1, log.synchronous
    served: list[ObservedEffect] = []
    if item.kind == KIND_DECISION:
        repeats = effects.repeats_at(index)
        served = [ObservedEffect(one, repeats.get(one)) for one in effects.committed_at(index, item.key, log.log_index)]
        for effect in served:
            _check_payload(machine, executor, effect.txid)
    elif not effects.is_passed_over(index, item.kind):
        served = [ObservedEffect(txid, log.noops.get(index))]
    found = worker.execute_synchronous(branch, txid, served, log.log_index.hash_at(index))
    view = machine.durable_state.accepted
    for one in found:
        world.coverage["synchronous effect"] += 1
        if view is not None and machine.origin is not None and one.origin not in world.transactions.lost:
            mirrors = world.undamaged_states()
            world.acknowledgements.check_quorum(machine.origin, one.origin, one.seq, mirrors, view)
    note_state(machine)


def _check_payload(machine: SimulatedMaster, executor: Executor, txid: Txid) -> None:
    """The journal has what takes effect here (rule S13)."""
    log, world = executor.core.log_state, machine.world
    assert log is not None
    if log.log_index.is_trimmed(txid.origin, txid.seq):
        world.violations.add(WORKER, "S13", f"{machine.name} has trimmed {txid}, which takes effect later")
        return
    item = executor.journal.read(*txid.origin, txid.seq, 1, 1 << 20).items[0]
    made = world.transactions.by_origin.get(txid.origin, [])
    if txid.seq <= len(made) and content_hash(item.kind, item.key, item.payload) != made[txid.seq - 1].content:
        world.violations.add(WORKER, "8", f"{machine.name} serves {txid} with another payload than was accepted")


def note_state(machine: SimulatedMaster) -> None:
    """The worker is at a position, with what it has executed (rule S7)."""
    worker, world = machine.worker, machine.world
    if world.synchronous.enabled and not worker.left_positions:
        state = hash(frozenset(worker.effects))
        world.synchronous.checker.on_state(machine.name, worker.index, worker.hash, state)
