"""What a simulated master's executor lets out: syncs of its journal, messages, marks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from txlog.protocol.events import DurabilityMarks
from txlog.runtime.executor import Executor, SyncTask
from txlog.wire import messages as wire
from txlog.wire.messages import Post
from txlog_simulation.hostile_messages import changed_message
from txlog_simulation.process_states import UP
from txlog_simulation.violation import ACKNOWLEDGEMENT
from txlog_simulation.worker_driver import drive_if_running

if TYPE_CHECKING:
    from txlog_simulation.simulated_master import SimulatedMaster

LIES = 0.15
"""Of the messages of a master that lies."""


def sync_and_release(machine: SimulatedMaster) -> None:
    """As the product's loop does it: one sync in flight; release what may leave."""
    executor = machine.executor
    assert executor is not None
    if machine.world.plan.disk_ms == 0:
        while (sync := executor.begin_sync()) is not None:
            run_sync(machine, executor, sync)
    elif machine.syncing is None:
        machine.syncing = executor.begin_sync()
        if machine.syncing is not None:
            machine.on_step("begin_sync")
            done_ms = machine.world.now_ms + 1 + machine.rng.randrange(machine.world.plan.disk_ms)
            machine.world.schedule(max(done_ms, machine.disk_stalls_until), on_synced, machine, machine.incarnation)
    release(machine, executor)
    if machine.syncing is None:
        machine.disk.on_idle()


def go_on(machine: SimulatedMaster) -> None:
    """An order was given to the executor: what follows from it. A loop knows by itself."""
    if machine.process is None:
        assert machine.executor is not None
        machine.schedule_turn_by(machine.executor.poll(machine.now()))
        sync_and_release(machine)


def run_sync(machine: SimulatedMaster, executor: Executor, sync: SyncTask) -> None:
    """Run one sync, with a step after each part of it."""
    machine.on_step("begin_sync")
    sync.run()
    if machine.world.trace.wanted:
        machine.world.trace_event(
            machine.name, "durable", f"log={machine.durable_state.log_length} stable={machine.durable_state.stable}"
        )
    machine.on_step("run")
    executor.end_sync()
    machine.on_step("end_sync")
    machine.disk.remove_trimmed()


def finish_sync(machine: SimulatedMaster) -> None:
    """The sync under way is done."""
    executor, sync = machine.executor, machine.syncing
    assert executor is not None
    if machine.process is not None:
        machine.process.finish_sync()
    if sync is not None:
        machine.syncing = None
        run_sync(machine, executor, sync)


def on_synced(machine: SimulatedMaster, life: int) -> None:
    """The disk has finished the sync of process ``life``."""
    if life != machine.incarnation or machine.state != UP or machine.executor is None or machine.syncing is None:
        return
    with machine.guard:
        finish_sync(machine)
        release(machine, machine.executor)
        sync_and_release(machine)


def release(machine: SimulatedMaster, executor: Executor) -> None:
    """Send what may leave, and check it."""
    released = executor.release()
    world = machine.world
    if released.marks is not None:
        on_marks_released(machine, released.marks)
    if machine.levels is not None:
        machine.levels.on_released(released.marks)
    for peer, data in released.messages:
        send_one(machine, world.now_ms, peer, data)
    if released.messages or released.marks:
        machine.on_step("release")


def send_one(machine: SimulatedMaster, at_ms: int, peer: str, data: bytes) -> None:
    """One message leaves at this time, and is checked."""
    world = machine.world
    if world.plan.liar >= 0 and peer not in world.slots:
        return  # a node that a liar named: there is no link to it
    target = world.slots[peer]
    message = wire.decode(peer, data)
    if isinstance(message, Post) and machine.durable_state.members and machine.origin and not machine.damaged:
        world.promises.on_post(machine.origin, message.claim, machine.durable_state)
    if world.trace.wanted:
        world.trace_event(machine.name, "send", f"{peer} kind={message.__struct_config__.tag} {len(data)} bytes")
    world.network.send(at_ms, machine.slot, target, sent_by_liar(machine, data))
    machine.on_step("send")


def sent_by_liar(machine: SimulatedMaster, data: bytes) -> bytes:
    """What leaves a master that lies: some messages are changed. Of any other one, the message."""
    world = machine.world
    if machine.slot != world.plan.liar or world.liar_rng.random() >= LIES:
        return data
    changed = changed_message(data, world.liar_rng)
    if changed is None:
        return data
    world.coverage["message of a liar"] += 1
    return changed


def on_marks_released(machine: SimulatedMaster, marks: DurabilityMarks) -> None:
    """Clients and workers learn these marks."""
    world = machine.world
    machine.released_marks = marks
    view = machine.durable_state.accepted
    if view is None or machine.origin is None:
        world.violations.add(ACKNOWLEDGEMENT, "21", f"{machine.name} tells {marks} without a durable view")
        return
    if world.trace.wanted:
        world.trace_event(machine.name, "release", " ".join(f"{k}={v}" for k, v in marks._asdict().items()))
    world.acknowledgements.on_marks(machine.origin, marks, world.undamaged_states(), view)
    if max(marks.stable, marks.log if view.strategy == "None" else 0) > machine.worker.index:
        world.schedule(world.now_ms + machine.rng.randint(5, 80), drive_if_running, machine, machine.incarnation)
