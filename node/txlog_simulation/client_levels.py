"""What a simulated master tells clients that wait for a level, or ask for a transaction: the shipped tracker of levels,
beside the shipped executor."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from txlog.model.durability import Durability
from txlog.model.ids import Txid
from txlog.protocol.events import DurabilityMarks
from txlog.protocol.views.decisions import SynchronousAnswer
from txlog.runtime.durability_tracker import DurabilityTracker
from txlog.runtime.executor import Executor
from txlog.runtime.master_loop import MasterLoop
from txlog.runtime.master_status import MasterStatus
from txlog_simulation.applied_levels import ABOVE_SYNCED, AppliedLevels, WatermarkListener
from txlog_simulation.violation import ACKNOWLEDGEMENT

if TYPE_CHECKING:
    from txlog_simulation.simulated_master import SimulatedMaster


class WaitingClient(NamedTuple):
    """``future`` has a result once the client has its answer: whether the transaction reached the level."""

    txid: Txid
    level: Durability
    future: asyncio.Future[bool]


class ClientLevels:
    """Of one process. It ends with it, and clients that wait are told nothing."""

    def __init__(self, machine: SimulatedMaster, executor: Executor, loop: MasterLoop | None = None) -> None:
        self._machine = machine
        status, listener = MasterStatus(executor), WatermarkListener()
        self._tracker = loop.durability if loop is not None else DurabilityTracker(executor, status, listener)
        self.applied = AppliedLevels(machine, self._tracker, status)
        listener.registry = self.applied.registry
        self._waiting: list[WaitingClient] = []

    def wait(self, txid: Txid, level: Durability) -> WaitingClient:
        """A client waits. Its future has a result when the client was told, and what it was told has been checked."""
        self._tracker.detect_view_change()
        if level in ABOVE_SYNCED:
            one = WaitingClient(txid, level, asyncio.get_running_loop().create_future())
            self.applied.wait(txid, level, one.future)
        else:
            one = WaitingClient(txid, level, self._tracker.wait_txid(txid, level))
        self._waiting.append(one)
        self._check_told()
        return one

    def ask(self, txid: Txid) -> Durability | None:
        """A client asks how far a transaction is; the answer is checked."""
        self._tracker.detect_view_change()
        level = self.applied.level_of(txid)
        if level is not None:
            self.check(txid, level)
        return level

    def synchronous_answer(self, txid: Txid, level: Durability) -> SynchronousAnswer | None:
        """A client asks what became of a synchronous transaction."""
        self._tracker.detect_view_change()
        return self._tracker.synchronous_answer(txid, level)

    def on_released(self, marks: DurabilityMarks | None) -> None:
        """The executor has let something out."""
        self._tracker.detect_view_change()
        self._tracker.apply_released(marks)
        self.advance()

    def advance(self) -> None:
        """Levels may have moved."""
        self.applied.advance()
        self._check_told()

    def on_worker_moved(self) -> None:
        """The worker of this master is at another position."""
        self._tracker.detect_view_change()
        self.applied.on_worker_moved()
        self._check_told()

    def _check_told(self) -> None:
        if not self._waiting:
            return
        waiting, self._waiting = self._waiting, []
        for one in waiting:
            if not one.future.done():
                self._waiting.append(one)
            elif one.future.result():
                self.check(one.txid, one.level)

    def check(self, txid: Txid, level: Durability) -> None:
        """A client is told this now: is it so?"""
        machine, world = self._machine, self._machine.world
        mirror, view = machine.durable_state, machine.durable_state.accepted
        if machine.damaged or view is None or machine.origin is None or txid.origin in world.transactions.lost:
            return
        if level in ABOVE_SYNCED:
            self.applied.check(txid, level)
            return
        world.coverage[f"told {level}"] += 1
        held = mirror.held_seqs.get(txid.origin, 0)
        if held < txid.seq:
            self._report("15", f"{txid} is {level}, its disk has {held}")
        if level is Durability.QUORUM:
            mirrors = world.undamaged_states()
            world.acknowledgements.check_quorum(machine.origin, txid.origin, txid.seq, mirrors, view)
        if level is Durability.SYNCED and txid.seq > mirror.trimmed_seqs.get(txid.origin, 0):
            stable = world.log.branch_of(mirror).entries[mirror.log_start : mirror.stable]
            if all(entry.txid != txid for entry in stable):
                self._report("16", f"{txid} is synced, its stable log of {mirror.stable} has none of it")

    def _report(self, rule: str, text: str) -> None:
        self._machine.world.violations.add(ACKNOWLEDGEMENT, rule, f"{self._machine.name} tells a client: {text}")
