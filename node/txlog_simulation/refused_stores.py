"""A store that holds the data of another cluster: no master writes or empties it until a person says so (rule 30).

All disks of a cluster were lost, no supervisor knew of it, and the masters founded a second cluster. What the shipped
:func:`store_refusal` says of a worker decides; the worker itself finds out when it is written or emptied nevertheless.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Final

from txlog.model.view import View
from txlog.runtime.store_judgement import store_refusal
from txlog.runtime.worker_state import WorkerMarker
from txlog_simulation.checkers.workers import SimulatedWorker

if TYPE_CHECKING:
    from txlog_simulation.simulated_master import SimulatedMaster

DISCARD_PROBABILITY: Final = 0.7
"""Of the refused stores, those that a person lets the masters empty."""
_DECIDES_AFTER_MS: Final = (5, 60, 300)


def marker_of(worker: SimulatedWorker, epoch: int) -> WorkerMarker:
    """What a pipeline reads in this worker."""
    return WorkerMarker(
        epoch,
        worker.index,
        worker.hash.hex() or bytes(16).hex(),
        unordered=[f"{index}:{value.hex()}" for index, value in worker.left_positions],
        cluster=worker.cluster.hex(),
    )


def is_refused(machine: SimulatedMaster, view: View) -> bool:
    """Whether the master of this view refuses its worker's store. A person hears of the first refusal."""
    worker, world = machine.worker, machine.world
    refusal = store_refusal(worker.name, marker_of(worker, view.epoch), view.cluster_id.hex(), True)
    if refusal is None:
        return False
    if worker.refused_by != view.cluster_id:
        worker.refused_by = view.cluster_id
        world.coverage["store of another cluster refused"] += 1
        world.trace_event(machine.name, "store refused", refusal.partition(":")[0])
        person = Random(f"person {world.plan.seed} {machine.slot} {machine.incarnation}")
        if person.random() < DISCARD_PROBABILITY:
            world.schedule(world.now_ms + person.choice(_DECIDES_AFTER_MS), _discard, machine, worker.cluster)
    return True


def _discard(machine: SimulatedMaster, cluster: bytes) -> None:
    """``txlog worker rebuild --discard``: it holds for the content that the person saw."""
    if machine.worker.cluster == cluster:
        machine.world.coverage["store of another cluster discarded"] += 1
        machine.world.trace_event(machine.name, "store discarded")
        machine.worker.discard()
