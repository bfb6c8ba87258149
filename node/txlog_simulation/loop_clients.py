"""Clients of masters with loops. Some are answered in the loop's turn, as connections of the fast path are. Others are
tasks that wait, as handlers of requests do. Their writes gather in a turn, and they give up."""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING

from txlog.model.durability import Durability
from txlog.model.errors import Refused, Unavailable
from txlog.model.ids import Txid
from txlog.protocol.events import Submission
from txlog.runtime.master_loop import PendingWrite
from txlog.runtime.transaction_status import BELOW_APPLIED
from txlog_simulation.loop_requests import LoopRequest
from txlog_simulation.run_plan import PlannedClient
from txlog_simulation.simulated_clients import PAUSE_MS

if TYPE_CHECKING:
    from txlog_simulation.looped_process import LoopedProcess
    from txlog_simulation.simulation import Simulation


class TaskRequest:
    """A request whose task waits for a future of the loop."""

    def __init__(self, write: PendingWrite) -> None:
        self.write = write
        self.is_noted = False

    @property
    def is_answered(self) -> bool:
        """Whether the future says that the level was reached."""
        waiter = self.write.waiter
        assert isinstance(waiter, asyncio.Future)
        return waiter.done() and not waiter.cancelled() and bool(waiter.result())


class LoopClient:
    """``successes``: how often its request was answered with the level that it waited for."""

    def __init__(self, world: Simulation, plan: PlannedClient, number: int, submission: Submission) -> None:
        self._world = world
        self._plan = plan
        self._level = Durability(plan.level)
        self._submission = submission
        self._rng = Random(f"client {number} of {world.plan.seed}")
        self._tries = 0
        self._was_answered = False
        self.successes = 0

    def send(self) -> None:
        """One try, at the first master or the next one."""
        world, plan = self._world, self._plan
        machine = world.simulated_masters[(plan.a + self._tries) % len(world.simulated_masters)]
        self._tries += 1
        self._was_answered = False
        if machine.process is not None:
            machine.process.events.call_soon(self._arrive, machine.process)
        world.schedule(world.now_ms + plan.patience_ms, self._look)

    def _arrive(self, process: LoopedProcess) -> None:
        if self._level in BELOW_APPLIED and self._rng.random() < 0.6:
            request = LoopRequest(process, [self._submission], self._plan.level, self._on_answer_in_turn)
            try:
                request.enqueue()
            except Unavailable:
                return
            return
        task = process.events.create_task(self._ask(process))
        if self._rng.random() < 0.1:  # it disconnects, and the server cancels its handler
            self._world.coverage["client disconnects"] += 1
            process.events.after(self._plan.patience_ms // 2, _cancel, task)

    async def _ask(self, process: LoopedProcess) -> None:
        """As the handler of a write does it."""
        loop, levels, patience_s = process.loop, process.machine.levels, self._plan.patience_ms / 1000
        assert levels is not None
        self._world.transactions.on_submitted(process.machine.name, [self._submission])
        self._world.clients.on_sent([self._submission])
        try:
            write = loop.write([self._submission], self._level)
        except Unavailable as refused:
            self._world.refused[refused.reason] += 1
            return
        process.track(TaskRequest(write))
        loop.in_flight += 1
        try:
            reached = await loop.durability.wait_for(write.reached, patience_s)
            answer = write.answers[-1] if write.answers else None
            if not reached or answer is None or isinstance(answer, Refused):
                return
            if (answer.is_repeat or self._level not in BELOW_APPLIED) and not await levels.applied.wait_in_task(
                answer.txid, self._level, patience_s
            ):
                return
        finally:
            loop.in_flight -= 1
        if answer.is_repeat or self._level not in BELOW_APPLIED:
            levels.check(answer.txid, self._level)
        self._world.coverage["answered by a task"] += 1
        self._on_success(answer.txid)

    def _on_answer_in_turn(self, write: PendingWrite) -> None:
        answer = write.answers[-1]
        if not isinstance(answer, Refused) and not answer.is_repeat:
            self._on_success(answer.txid)

    def _on_success(self, txid: Txid) -> None:
        self.successes += 1
        self._was_answered = True
        self._world.clients.on_told(txid, self._submission.content)

    def _look(self) -> None:
        """Its patience is over, or its request was answered."""
        world = self._world
        if not self._was_answered:
            world.coverage["client gave up waiting"] += 1
            if self._tries < self._plan.tries:
                world.schedule(world.now_ms + self._rng.choice(PAUSE_MS), self.send)
        elif self._plan.again_ms and self.successes == 1:
            world.coverage["client sends again"] += 1
            self._tries = 0
            world.schedule(world.now_ms + self._plan.again_ms, self.send)


def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()
