"""What a simulated master knows of workers, and what it tells clients of the levels above ``synced``: the shipped
registry of workers and the shipped tracker of transactions, with reports and notices under simulated time."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from random import Random
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec

from txlog.config.process_config import WorkerConfig
from txlog.model.durability import Durability
from txlog.model.ids import Txid
from txlog.runtime.durability_tracker import DurabilityTracker
from txlog.runtime.master_listener import MasterListener
from txlog.runtime.master_loop import MasterLoop
from txlog.runtime.master_status import MasterStatus
from txlog.runtime.transaction_status import TransactionTracker
from txlog.runtime.worker_registry import WorkerRegistry
from txlog.runtime.worker_state import PipelineReport
from txlog_simulation.checkers.workers import SimulatedWorker
from txlog_simulation.process_states import UP
from txlog_simulation.refused_stores import marker_of
from txlog_simulation.violation import ACKNOWLEDGEMENT

if TYPE_CHECKING:
    from txlog_simulation.simulated_master import SimulatedMaster

ABOVE_SYNCED: Final = (Durability.APPLIED, Durability.APPLIED_ALL)
_NOTICE_MS: Final = (1, 3, 20, 90)
"""How long a report takes to a master beside the one that it is given to."""
_FOR_EVER_S: Final = 1e7


class WatermarkListener(MasterListener):
    """Has the registry judge the workers' positions again where the log moved, as the program around a loop does."""

    def __init__(self) -> None:
        self.registry: WorkerRegistry | None = None

    def on_stable_moved(self) -> None:
        """See :class:`MasterListener`."""
        if self.registry is not None:
            self.registry.update_watermarks()


class _LoopParts:
    """Of a loop, what the registry and the tracker of transactions read."""

    def __init__(self, durability: DurabilityTracker, status: MasterStatus) -> None:
        self.durability = durability
        self.status = status


class _Wait:
    """A client's wait, which goes on when the future is done that it awaits: nothing runs on the event loop."""

    def __init__(self, wait: Coroutine[Any, Any, bool], told: asyncio.Future[bool]) -> None:
        self._wait = wait
        self._awaited: asyncio.Future[bool] | None = None
        self._told = told

    def advance(self) -> bool:
        """False when it is over."""
        while self._awaited is None or self._awaited.done():
            try:
                self._awaited = self._wait.send(None)
            except StopIteration as end:
                if end.value:
                    self._told.set_result(True)
                return False
        return True


class AppliedLevels:
    """Of one process."""

    def __init__(self, machine: SimulatedMaster, durability: DurabilityTracker, status: MasterStatus) -> None:
        world = machine.world
        self._machine = machine
        self._rng = Random(f"reports {world.plan.seed} {machine.slot} {machine.incarnation}")
        self._centre = world.masters[machine.slot].data_center
        here = [m.node for m in world.masters if m.data_center == self._centre]
        configs = [WorkerConfig(name=node, url=f"http://{node}:7878") for node in here]
        loop = cast("MasterLoop", _LoopParts(durability, status))
        self.registry = WorkerRegistry(self._centre, configs, loop, clock=lambda: 1 + world.now_ms / 1000)
        self._transactions = TransactionTracker(loop, self.registry)
        self._waits: list[_Wait] = []

    def wait(self, txid: Txid, level: Durability, told: asyncio.Future[bool]) -> None:
        """``told`` has the result True as soon as a client is told this level."""
        self._waits.append(_Wait(self._transactions.wait_for_level(txid, level, _FOR_EVER_S), told))
        self.advance()

    async def wait_in_task(self, txid: Txid, level: Durability, seconds: float) -> bool:
        """As the handler of a request waits, on the loop of its process."""
        return await self._transactions.wait_for_level(txid, level, seconds)

    def level_of(self, txid: Txid) -> Durability | None:
        """What ``GET /txlog/transactions/...`` answers."""
        return self._transactions.outcome(txid).level

    def advance(self) -> None:
        """Something may have moved."""
        self._waits = [one for one in self._waits if one.advance()]

    # Reports

    def on_worker_moved(self) -> None:
        """The worker of this master has executed, or was sent back: its pipeline reports it, and others hear of it."""
        machine, view = self._machine, self._machine.durable_state.accepted
        if view is None:
            return
        worker = machine.worker
        marker = marker_of(worker, view.epoch)
        self.registry.report(worker.name, msgspec.json.encode(PipelineReport(marker, "Working")))
        self.advance()
        notice = self.registry.notices.encode()
        for other in machine.world.simulated_masters:
            if other is not machine:
                at_ms = machine.world.now_ms + self._rng.choice(_NOTICE_MS)
                machine.world.schedule(at_ms, _deliver, machine, other, notice)

    def check(self, txid: Txid, level: Durability) -> None:
        """A client is told this: workers have executed the transaction, and did not go back behind it."""
        world = self._machine.world
        world.coverage[f"told {level}"] += 1
        known = [name.rpartition("/")[2] for name, _ in self.registry.known.all()]
        here = {m.node for m in world.masters if m.data_center == self._centre}
        workers = [m.worker for m in world.simulated_masters if m.name in known]
        if level is Durability.APPLIED:
            good = any(self._has_executed(worker, txid) for worker in workers if worker.name in here)
        else:
            good = all(self._has_executed(worker, txid) for worker in workers)
        if not good:
            at = ", ".join(f"{worker.name} at {worker.index}" for worker in workers)
            text = f"{self._machine.name} tells a client: {txid} is {level}; workers are {at}"
            world.violations.add(ACKNOWLEDGEMENT, "16", text)

    def _has_executed(self, worker: SimulatedWorker, txid: Txid) -> bool:
        if txid in worker.seen:
            return True
        branch = self._machine.world.log.branch_of(self._machine.durable_state)
        on_it = worker.index <= len(branch.entries) and branch.hash_at(worker.index) == worker.hash
        return on_it and any(entry.txid == txid for entry in branch.entries[: worker.index])


def _deliver(source: SimulatedMaster, target: SimulatedMaster, notice: bytes) -> None:
    """A notice arrives, where the link works and the process runs."""
    cuts = source.world.network.cuts
    if target.state == UP and target.levels is not None and not cuts.get((source.slot, target.slot)):
        target.levels.applied.registry.on_notice(notice, source.name)
        target.levels.applied.advance()
