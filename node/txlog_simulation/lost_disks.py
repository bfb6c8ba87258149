"""All disks of a cluster are lost, or the disk of a lone master is exchanged for an older copy of it.

No other master is left that could tell. What a supervisor hands over is all there is: the last birth and start that it
has seen (rule 2).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from txlog.model.errors import Conflict
from txlog.model.view import View
from txlog.protocol.events import DurabilityMarks
from txlog_simulation.master_output import sync_and_release
from txlog_simulation.process_states import UP
from txlog_simulation.run_plan import PlannedFault
from txlog_simulation.violation import ACKNOWLEDGEMENT, LOG

if TYPE_CHECKING:
    from txlog_simulation.simulated_master import SimulatedMaster
    from txlog_simulation.simulation import Simulation

LOSSES: Final = ("lose-all", "old-copy")
COPY_BEFORE_MS: Final = 60
"""Between the copy and the next start of the process, whose number the copy does not have."""


class DiskCopy(NamedTuple):
    """A copy of a disk, the last start that it knows, and the marks that had left the master when it was made."""

    image: dict[str, bytes]
    start: int
    released: DurabilityMarks | None

    def is_outdated(self, machine: SimulatedMaster) -> bool:
        """Whether the master that gets it back must take no work: its supervisor saw a later start, or something has
        left the master since.

        Otherwise a later process wrote the number of its start, ended before it did anything, and no supervisor saw
        it. Then the copy lacks that number alone, which no other process has seen: to take work on it is right."""
        return machine.last_member[1] > self.start or _released_marks(machine) != self.released


def lose_disks(world: Simulation, fault: PlannedFault) -> None:
    """The fault happens."""
    if world.healing:
        return
    if fault.kind == "lose-all":
        for machine in world.simulated_masters:
            machine.crash("its disk is lost")
            world.wipe(machine)
            world.schedule(world.now_ms + fault.lasts_ms + world.rng.choice((0, 0, 40)), machine.start)
        world.damaged = True
        return
    machine = world.simulated_masters[fault.a]
    copy = DiskCopy(machine.disk.image(), machine.last_seen[1], _released_marks(machine))
    world.crash_for(machine, world.now_ms + COPY_BEFORE_MS)
    world.schedule(world.now_ms + 2 * COPY_BEFORE_MS + fault.lasts_ms, _put_copy_back, world, machine, copy)


def _released_marks(machine: SimulatedMaster) -> DurabilityMarks | None:
    """What has left this master so far, over all its starts."""
    return machine.world.acknowledgements.released_marks.get(machine.origin) if machine.origin is not None else None


def _put_copy_back(world: Simulation, machine: SimulatedMaster, copy: DiskCopy) -> None:
    if world.healing or machine.state != UP or machine.origin is None:
        return
    world.coverage["older copy put back"] += 1
    world.crash_for(machine, world.now_ms + 50)
    world.mark_damaged(machine)
    world.old_disk = True
    machine.has_old_copy = copy.is_outdated(machine)
    world.coverage["older copy that equals the disk for all others"] += not machine.has_old_copy
    machine.disk.restore(copy.image)


def check_old_copy(machine: SimulatedMaster) -> None:
    """A master has taken work of a client."""
    if machine.has_old_copy and machine.world.plan.supervised:
        machine.world.violations.add(
            ACKNOWLEDGEMENT, "2", f"{machine.name} takes work on an older copy of its disk, and was told of the newer"
        )


def order_to_forget(world: Simulation) -> bool:
    """What operators do where a master waits for it, all others answer, and none has the log: they begin the cluster
    again (``txlog bootstrap --forget``). Returns whether the order was taken.

    It happens to a founding: its first master had installed view 1, and lost its disk before another one heard of it.
    A supervisor saw that master in a view, and what others have only accepted does not say what it went on to do."""
    machines = world.simulated_masters
    executors = [m.executor for m in machines if m.executor is not None and m.state == UP]
    if len(executors) < len(machines) or any(m.durable_state.installed for m in machines):
        return False
    if not any(executor.core.membership.bootstrap.awaits_order for executor in executors):
        return False
    names = tuple(member.node for member in executors[0].core.settings.members)
    first = machines[world.slots[names[0]]]
    assert first.executor is not None
    with first.guard:
        try:
            first.executor.bootstrap(list(names), forget=True)
        except Conflict:
            return False
        world.overrides.bootstrap_members.add(names)
        world.coverage["begun again by order"] += 1
        world.trace_event(first.name, "bootstrap", "forgets")
        first.schedule_turn_by(first.executor.poll(first.now()))
        sync_and_release(first)
    return True


class FoundingChecker:
    """A cluster is founded once, unless nobody can know of the first one, or an operator orders the second."""

    def __init__(self, world: Simulation) -> None:
        self._world = world
        self._first: bytes = b""

    def on_installed(self, view: View) -> None:
        """A view is in force at some master."""
        world = self._world
        if self._first in (b"", view.cluster_id):
            self._first = view.cluster_id
            return
        world.coverage["second cluster"] += 1
        if world.plan.supervised and not world.overrides.bootstrap_members:
            world.violations.add(LOG, "2", f"{view.number} founds a second cluster, and a birth of the first is known")
