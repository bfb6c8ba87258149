"""A simulated process whose executor is driven by the shipped ``MasterLoop``: what is done in a turn, in which order,
and which client is answered when, is the product's; time, threads, the disk and the network are simulated."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

from txlog.journal import GroupCommit as JournalSync
from txlog.journal import Journal
from txlog.journal.memory_vfs import SimulatedCrash
from txlog.model.errors import Refused, Unavailable
from txlog.model.records import Record
from txlog.protocol.core import Core
from txlog.protocol.events import DurabilityMarks, Submission
from txlog.runtime.executor import Executor, SyncTask
from txlog.runtime.interactive_load import InteractiveLoad
from txlog.runtime.master_listener import MasterListener, ViewTransition
from txlog.runtime.master_loop import SYNC_DELAY_MS, MasterLoop
from txlog_simulation.client_levels import ClientLevels
from txlog_simulation.journal_probe import ProbedJournal, ProbedSync
from txlog_simulation.loop_requests import LoopRequest, OpenRequests, TrackedRequest
from txlog_simulation.master_inputs import look_after, receive_one
from txlog_simulation.master_output import on_marks_released, send_one
from txlog_simulation.process_states import UP
from txlog_simulation.simulated_event_loop import ProcessExit, SimulatedSyncThread
from txlog_simulation.violation import ACKNOWLEDGEMENT, LIVENESS

if TYPE_CHECKING:
    from txlog_simulation.simulated_master import SimulatedMaster

_NO_MARKS = DurabilityMarks(0, 0, 0, 0, 0)
_LEVELS = ("accepted", "quorum", "synced")


class LoopSync(ProbedSync):
    """``takes_us``: how long it takes. It runs in the loop's turn, unless ``in_thread``."""

    def __init__(self, journal: LoopJournal, inner: JournalSync, count: int, takes_us: int) -> None:
        super().__init__(journal, inner, count)
        self.takes_us = takes_us
        self.in_thread = False

    def run(self) -> None:
        """See ``SyncTask.run``. A crash in the thread ends the process from here."""
        machine = self.journal.machine
        if not self.in_thread:
            machine.world.coverage["sync on the loop"] += 1
            machine.process_events.spend(self.takes_us)
            self._run()
            return
        machine.world.coverage["sync in the thread"] += 1
        try:
            self._run()
        except SimulatedCrash as crash:
            with machine.guard:
                raise crash

    def _run(self) -> None:
        machine = self.journal.machine
        super().run()
        if machine.world.trace.wanted:
            machine.world.trace_event(
                machine.name, "durable", f"log={machine.durable_state.log_length} stable={machine.durable_state.stable}"
            )
        machine.on_step("run")


class LoopJournal(ProbedJournal):
    """The journal with the work that a loop has done in threads."""

    def __init__(self, machine: SimulatedMaster, inner: Journal) -> None:
        super().__init__(machine, inner)
        self._rng = Random(f"syncs {machine.world.plan.seed} {machine.slot} {machine.incarnation}")
        self.begin_preallocation = inner.begin_preallocation
        self.end_preallocation = inner.end_preallocation
        self.begin_scrub = inner.begin_scrub
        self.end_scrub = inner.end_scrub
        self.begin_removal = inner.begin_removal
        self.seal = inner.seal

    def append(self, record: Record) -> None:
        """See the journal."""
        if self.machine.process is not None:
            self.machine.process.open.note_answers()
        super().append(record)

    def begin_sync(self) -> LoopSync | None:
        """See the journal."""
        inner = self.inner.begin_sync()
        if inner is None:
            return None
        sync = LoopSync(self, inner, len(self.machine.pending_records), self._draw_us())
        self.machine.on_step("begin_sync")
        return sync

    def _draw_us(self) -> int:
        world = self.machine.world
        plan = world.plan.loop
        assert plan is not None
        took_us = self._rng.randint(*plan.sync_us)
        if not world.healing and self._rng.random() < plan.stalls:
            world.coverage["slow fsync"] += 1
            took_us += 1000 * self._rng.randint(5, 80)
        return max(took_us, 1000 * (self.machine.disk_stalls_until - world.now_ms))

    def end_sync(self, sync: SyncTask) -> None:
        """See the journal."""
        super().end_sync(sync)
        self.machine.on_step("end_sync")

    def end_removal(self, removal: Any) -> None:
        """See the journal."""
        self.inner.end_removal(removal)
        self.machine.world.coverage["segments removed"] += len(removal.segments)


class LoopedProcess(MasterListener):
    """Of one incarnation. ``open``: the requests of clients that wait here."""

    def __init__(self, machine: SimulatedMaster, core: Core, journal: Journal) -> None:
        world = machine.world
        plan = world.plan.loop
        assert plan is not None
        self.machine = machine
        self.events = machine.process_events
        self.levels: ClientLevels | None = None
        self._rng = Random(f"loop {world.plan.seed} {machine.slot} {machine.incarnation}")
        self._has_sent = False
        self._marks = _NO_MARKS
        with self.events.running():
            self.loop = MasterLoop(
                Executor(core, LoopJournal(machine, journal)),
                send=self._send,
                listener=self,
                now=machine.now,
                company=InteractiveLoad(self.events.time),
                batch_transactions=plan.batch_max,
                requests_in_flight=plan.in_flight_max,
                run_syncs=self._make_sync_thread,
                timer=self.events.timer,
            )
        self.executor = self.loop.executor
        self.open = OpenRequests(self)
        self.events.after_call = self._after_call
        self.events.when_idle = self._check_idle

    def _make_sync_thread(self, loop: Any, done: Any, timer: Any) -> SimulatedSyncThread:
        self.sync_thread = SimulatedSyncThread(loop, done, timer)
        return self.sync_thread

    # In

    def receive(self, source: int, data: bytes) -> None:
        """A message is in the socket."""
        self.events.call_soon(self._receive, source, data)

    def _receive(self, source: int, data: bytes) -> None:
        receive_one(self.machine, self.loop.receive, source, data)

    def submit(self, batch: list[Submission]) -> bool:
        """A client's transactions. They wait for some level, and are not tried again. False when none can be taken."""
        if self.machine.state != UP or self.executor.core.log_state is None:
            return False
        level = self._rng.choice(_LEVELS)
        self.events.call_soon(self._submit, LoopRequest(self, batch, level))
        if self._rng.random() < 0.3:
            self.events.create_task(self.wait_durable())
        return True

    def _submit(self, request: LoopRequest) -> None:
        try:
            request.enqueue()
        except Refused:
            return

    async def wait_durable(self) -> None:
        """Wait as orders of operators do, and check that everything before it is on the disk then."""
        machine = self.machine
        due = len(machine.durable_records) + len(machine.pending_records)
        try:
            await self.loop.wait_durable()
        except Unavailable:
            return
        machine.world.coverage["waited until durable"] += 1
        if len(machine.durable_records) < due:
            missing = due - len(machine.durable_records)
            text = f"{machine.name} tells an operator that all is durable, {missing} records are not"
            machine.world.violations.add(ACKNOWLEDGEMENT, "15", text)

    def leave(self, timeout_ms: int) -> bool:
        """SIGTERM. True when nothing is left to do."""
        if self.loop.end_reason is None and not self.executor.core.closing:
            self.events.call_soon(self.loop.leave, timeout_ms)
        if not self.loop.has_left:
            return False
        with self.events.running():
            self.loop.durability.abort_waiters()
        return True

    # Out

    def _send(self, peer: str, data: bytes) -> None:
        self._has_sent = True
        send_one(self.machine, max(self.machine.world.now_ms, self.events.busy_until_ms), peer, data)

    def _after_call(self) -> None:
        """What the callback that has just run let out: marks, answers."""
        machine, durability = self.machine, self.loop.durability
        self.open.note_answers()
        marks = DurabilityMarks(
            durability.accepted.value,
            durability.quorum.value,
            durability.synced.value,
            durability.log_index,
            durability.stable.value,
            durability.quorum_index,
        )
        released = self._has_sent or marks != self._marks
        self._has_sent = False
        if marks != self._marks:
            self._marks = marks
            on_marks_released(machine, marks)
        self.open.check_answers()
        if machine.levels is not None:
            machine.levels.advance()
        if released:
            machine.on_step("release")
        look_after(machine)

    # Events of the loop

    def on_stable_moved(self) -> None:
        """See :class:`MasterListener`."""
        if self.machine.levels is not None:
            self.machine.levels.applied.registry.update_watermarks()

    def on_view_changed(self, change: ViewTransition) -> None:
        """See :class:`MasterListener`."""
        self.machine.world.coverage["view changes under waiting clients"] += len(self.open) > 0

    def on_ended(self, error: BaseException) -> None:
        """See :class:`MasterListener`. The product ends its process here."""
        raise ProcessExit(error)

    # Checks

    def _check_idle(self) -> None:
        """No callback is left. What does not wait for the disk or for other masters is done: it does not wait for some
        timer. Only records that nothing waits for may wait for their sync."""
        if not self.sync_thread.is_idle or self.loop.end_reason is not None:
            return
        machine = self.machine
        is_idle, mono_ms = self.executor.idle, machine.now().mono
        if not is_idle and not mono_ms < self.loop.sync_by_ms <= mono_ms + SYNC_DELAY_MS:
            machine.world.violations.add(LIVENESS, "32", f"{machine.name} is idle, and records wait for the disk")
        if (not is_idle or len(machine.world.members) > 1) and not self.events.has_timer(self.loop._on_timer):
            machine.world.violations.add(LIVENESS, "32", f"{machine.name} is idle, and nothing wakes it")
        self.open.check_idle()

    def finish_sync(self) -> None:
        """The syncs under way are done; the process is about to be stopped in order. It may crash in one of them."""
        had = not self.sync_thread.is_idle
        self.sync_thread.finish()
        if had and self.machine.state == UP:
            self.executor.end_sync()

    def track(self, request: TrackedRequest) -> None:
        """See :attr:`open`."""
        self.open.add(request)
