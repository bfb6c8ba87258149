"""The clients of a plan begin."""

from __future__ import annotations

from typing import TYPE_CHECKING

from txlog_simulation.loop_clients import LoopClient
from txlog_simulation.simulated_clients import SimulatedClient

if TYPE_CHECKING:
    from txlog_simulation.simulation import Simulation


def start_clients(world: Simulation) -> None:
    """Those of the plan, each at its time; they speak to loops where masters have them."""
    for number, plan in enumerate(world.plan.clients):
        submission = world.build_client_submission(number)
        if world.plan.loop is not None:
            world.schedule(plan.at_ms, LoopClient(world, plan, number, submission).send)
        else:
            world.schedule(plan.at_ms, SimulatedClient(world, plan, number, submission).send)
