"""Clients that send one write under a key until they are told that it has reached a level, and some once more later."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from txlog.model.durability import Durability
from txlog.model.errors import Refused
from txlog.protocol.events import Submission, SubmissionAccepted
from txlog_simulation.process_states import UP
from txlog_simulation.run_plan import PlannedClient

if TYPE_CHECKING:
    from txlog_simulation.client_levels import WaitingClient
    from txlog_simulation.simulated_master import SimulatedMaster
    from txlog_simulation.simulation import Simulation

PAUSE_MS = (1, 5, 40, 150)
"""Between two tries of a client."""


class SimulatedClient:
    """``told``: how often it was told what it waited for."""

    def __init__(self, world: Simulation, plan: PlannedClient, number: int, submission: Submission) -> None:
        self._world = world
        self._plan = plan
        self._submission = submission
        self._rng = Random(f"client {number} of {world.plan.seed}")
        self._tries = 0
        self.told = 0

    def send(self) -> None:
        """One try, at the first master or the next one."""
        world, plan = self._world, self._plan
        machine = world.simulated_masters[(plan.a + self._tries) % len(world.simulated_masters)]
        self._tries += 1
        answers = machine.take([self._submission])
        levels, answer = machine.levels, answers[0] if answers else None
        if answer is None or isinstance(answer, Refused) or levels is None:
            self._try_again()
            return
        if answer.is_repeat:
            world.coverage["client's retry"] += 1
            check_age(world, machine, answer)
        waiter = levels.wait(answer.txid, Durability(plan.level))
        world.schedule(world.now_ms + plan.patience_ms, self._look, machine, machine.incarnation, waiter)

    def _try_again(self) -> None:
        world = self._world
        if self._tries < self._plan.tries:
            world.schedule(world.now_ms + self._rng.choice(PAUSE_MS), self.send)

    def _look(self, machine: SimulatedMaster, life: int, waiter: WaitingClient) -> None:
        """Its patience is over, if it was not told before."""
        world = self._world
        if not waiter.future.done():
            world.coverage["client gave up waiting"] += 1
            if machine.incarnation == life and self._tries % 2 and self._rng.random() < 0.5:  # it may ask first
                world.schedule(world.now_ms + self._plan.patience_ms, self._look, machine, life, waiter)
                self._tries += 1
            else:
                self._try_again()
            return
        self.told += 1
        world.clients.on_told(waiter.txid, self._submission.content)
        for other in world.simulated_masters:
            if other.state == UP and other.levels is not None and self._rng.random() < 0.5:
                other.levels.ask(waiter.txid)
        if self._plan.again_ms and self.told == 1:
            world.coverage["client sends again"] += 1
            self._tries = 0
            world.schedule(world.now_ms + self._plan.again_ms, self.send)


def check_age(world: Simulation, machine: SimulatedMaster, answer: SubmissionAccepted) -> None:
    """A repeat of what stands in the log is of a key that has not expired. A master whose counter has not come up to
    the time yet (a stopped view, a lone clock that was put forward) cannot know better."""
    executor, mirror, txid = machine.executor, machine.durable_state, answer.txid
    log = executor.core.log_state if executor is not None else None
    if log is None or not world.plan.true_time or world.plan.clock_jumps or machine.damaged:
        return
    index = log.log_index.index_of(txid.origin, txid.seq)
    if not 0 < index <= mirror.stable or not world.clocks.is_near(log.last_stamp, world.now_ms):
        return
    world.clients.check_age_of_repeat(machine.name, txid, world.now_ms)
