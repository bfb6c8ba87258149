"""One simulated master: the real executor and core, on a disk, under a clock, in a process that can end at any step."""

from __future__ import annotations

import math
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING

from txlog.journal import Journal
from txlog.journal.memory_vfs import SimulatedCrash
from txlog.model.entry import KIND_CONFIG
from txlog.model.errors import Refused
from txlog.model.ids import Origin, Txid
from txlog.model.records import LogAppended, LogTrimmed, Record, RecoveredState, TransactionsPersisted, ViewAccepted
from txlog.protocol.core import Core
from txlog.protocol.events import (
    ClockReading,
    DurabilityMarks,
    ProtocolSettings,
    Submission,
    SubmissionAccepted,
)
from txlog.runtime.executor import Executor, SyncTask
from txlog.runtime.journal_repair import JournalRepair
from txlog.runtime.master_loop import MasterLoop
from txlog.wire.messages import Message
from txlog_simulation.checkers.workers import SimulatedWorker
from txlog_simulation.client_levels import ClientLevels
from txlog_simulation.durable_state import DurableState
from txlog_simulation.journal_probe import CrashGuard, ProbedJournal, lose_power
from txlog_simulation.journal_repair import begin_repair, check_readable, check_recovered, open_journal, run_repair_turn
from txlog_simulation.looped_process import LoopedProcess
from txlog_simulation.lost_disks import check_old_copy
from txlog_simulation.master_inputs import look_after, receive_one
from txlog_simulation.master_output import finish_sync, go_on, on_synced, sync_and_release
from txlog_simulation.membership_faults import check_removed, check_submission, record_changes, record_removed
from txlog_simulation.process_states import DOWN, ENDED, PAUSED, REMOVED, UP
from txlog_simulation.simulated_disk import SimulatedDisk, forged_records
from txlog_simulation.simulated_event_loop import SimulatedEventLoop
from txlog_simulation.view_change_faults import check_view_change, count_crash

if TYPE_CHECKING:
    from txlog_simulation.simulation import Simulation

EPOCH_MS = 1_700_000_000_000
MONO_BASE_MS = 1000


class SimulatedMaster:
    """``state`` is one of the five words above. ``durable_state`` is what its disk holds durably; ``pending_records``
    what was appended behind that. ``steps_to_crash`` counts the steps to a crash, of those called ``crash_step`` if
    that is set; ``record_traps`` are sprung by the next record of a kind, and ``crash_record`` is the kind that lit the
    fuse. ``repair`` is there instead of an ``executor`` while a damaged journal is mended."""

    def __init__(self, world: Simulation, slot: int, name: str) -> None:
        self.world = world
        self.slot = slot
        self.name = name
        self.disk = SimulatedDisk(
            name, Random(f"disk {slot} of {world.plan.seed}"), world.plan.segment_bytes, world.coverage, self.on_step
        )
        self.rng = Random(f"machine {slot} of {world.plan.seed}")
        self.state = DOWN
        self.incarnation = 0
        self.executor: Executor | None = None
        self.levels: ClientLevels | None = None
        self.process: LoopedProcess | None = None
        self.process_events: SimulatedEventLoop
        self.repair: JournalRepair | None = None
        self.repair_request: Message | None = None
        self.known_elsewhere: list[tuple[SimulatedMaster, dict[Origin, int]]] = []
        self.durable_state = DurableState()
        self.pending_records: list[Record] = []
        self.durable_records: list[Record] = []
        self.worker = SimulatedWorker(name, world.violations)
        self.released_marks = DurabilityMarks(0, 0, 0, 0, 0)
        self.inbox: list[tuple[int, bytes]] = []
        self.steps_to_crash = 0
        self.crash_step = self.crash_record = ""
        self.record_traps: dict[str, Callable[[], None]] = {}
        self.disk_stalls_until = 0
        self.clock_offset_ms = world.plan.clock_offsets_ms[slot]
        self.clock_jump_ms = 0
        self.clock_rate = world.plan.clock_rates[slot]
        self.next_turn_ms = -1
        self.syncing: SyncTask | None = None
        self.last_seen = (0, 0)
        self.last_member = (0, 0)
        """The last incarnation and start that its supervisor saw in an installed view."""
        self.damaged = False
        self.flipped = False
        self.forged = self.has_old_copy = False
        self.origin: Origin | None = None
        self.rejoined = False
        self.backup_life = -1
        self.ended_by = ""
        self.leaving = False
        self.crash_when_ahead = False
        self.down_ms = 0
        self.strategy = (
            world.plan.preferred_strategies[slot] if world.plan.preferred_strategies else world.plan.strategy
        )
        self.disk.on_error = self._on_disk_failed
        self.guard = CrashGuard(self)

    # Time

    def now(self) -> ClockReading:
        """This master's clocks."""
        elapsed = int(self.world.now_ms * self.clock_rate)
        passed = elapsed * 1000 if self.world.plan.true_time else elapsed
        wall = EPOCH_MS + passed + self.clock_offset_ms + self.clock_jump_ms * 1000
        return ClockReading(wall, MONO_BASE_MS + elapsed)

    @property
    def control(self) -> MasterLoop | Executor:
        """What takes orders of operators: the loop, where the process has one."""
        if self.process is not None:
            return self.process.loop
        assert self.executor is not None
        return self.executor

    def jump_clock(self, size_ms: int) -> None:
        """The wall clock jumps."""
        self.clock_jump_ms += size_ms
        self.world.coverage["clock jump"] += 1

    def schedule_turn_by(self, wake_mono_ms: int) -> None:
        """Have a turn when this master's own clock says so, or earlier."""
        if wake_mono_ms >= 1 << 50:
            return
        at_ms = math.ceil((wake_mono_ms - MONO_BASE_MS) / self.clock_rate)
        self.schedule_turn(max(at_ms, self.world.now_ms + 1))

    def schedule_turn(self, at_ms: int) -> None:
        """Have a turn at this time, or earlier if one is due earlier."""
        if self.next_turn_ms < self.world.now_ms or at_ms < self.next_turn_ms:
            self.next_turn_ms = at_ms
            self.world.schedule(at_ms, self._turn, self.incarnation)

    # The process

    def start(self, life: int = -1) -> None:
        """Start the process, unless it runs, ended by name, all are to be down, or ``incarnation`` is over."""
        is_over = life >= 0 and life != self.incarnation
        if self.state != DOWN or is_over or self.world.now_ms < self.world.asleep_until_ms:
            return
        self.incarnation += 1
        self.leaving = False
        self.next_turn_ms = -1
        self.state = UP
        with self.guard:
            journal, recovered = open_journal(self)
            if recovered.damage:
                begin_repair(self, journal, recovered)
            else:
                check_recovered(self, recovered)
                check_readable(self, journal)
                self.start_core(journal, recovered)

    def start_core(self, journal: Journal, recovered: RecoveredState) -> None:
        """The journal is whole: the core begins."""
        world = self.world
        self.pending_records = []
        settings = self.settings()
        self.last_seen = (recovered.birth, recovered.start)
        if self.origin is None:
            self.origin = Origin(self.name, recovered.birth)
            world.durable_states[self.origin] = self.durable_state
        world.trace_event(self.name, "start", f"birth={recovered.birth:016x} start={recovered.start}")
        world.clients.starts += 1
        core = Core(settings, recovered, self.now())
        if world.plan.loop is not None:
            self.process_events = SimulatedEventLoop(self)
            self.process = LoopedProcess(self, core, journal)
            self.executor = self.process.executor
            self.levels = ClientLevels(self, self.executor, self.process.loop)
            return
        self.executor = Executor(core, ProbedJournal(self, journal))
        self.levels = ClientLevels(self, self.executor) if world.plan.clients or world.plan.synchronous else None
        self.schedule_turn(world.now_ms)

    def settings(self) -> ProtocolSettings:
        """What its configuration says."""
        plan = self.world.plan
        last_birth, last_start = self.last_member if plan.supervised else (0, 0)
        return ProtocolSettings(
            node=self.name,
            members=tuple(m for m in self.world.masters if m in self.world.members or m.node == self.name),
            round_timeout_ms=plan.round_timeout_ms,
            idle_interval_ms=plan.idle_interval_ms,
            key_retention_ms=plan.key_retention_ms,
            last_seen_birth=last_birth,
            last_seen_start=last_start,
            majority=plan.majority,
            max_peer_lag_ms=plan.max_peer_lag_ms,
            none_split_delay_ms=plan.max_peer_lag_ms,
            max_clock_skew_ms=plan.max_clock_skew_ms,
            strategy=self.strategy,
            synchronous=plan.synchronous,
        )

    def on_step(self, name: str) -> None:
        """A step of the process is done; it may have been the last."""
        if self.executor is not None:
            if self.executor.core.views.installed:
                self.last_member = self.last_seen
            self.world.master_states.on_step(self.incarnation, self.executor.core)
            self.world.clocks.on_step(self.executor.core, self.world.now_ms)
        if self.steps_to_crash and self.crash_step in ("", name):
            self.steps_to_crash -= 1
            if not self.steps_to_crash:
                self.world.coverage[f"crash after {name}"] += 1
                if self.crash_record:
                    self.world.coverage[f"crash after {name} of {self.crash_record}"] += 1
                if self.repair is not None:
                    self.world.coverage["crash while mending"] += 1
                elif self.executor is None or self.executor.core.log_state is None:
                    self.world.coverage["crash while founding"] += 1
                raise SimulatedCrash(name)

    def crash(self, why: str, *, failed_sync: bool = False) -> bool:
        """The process is gone at once, and with it what the disk had not synced. False if a failed sync ended it and
        the power stayed."""
        if self.state in (DOWN, ENDED, REMOVED):
            return True
        self.world.trace_event(self.name, "crash", why)
        count_crash(self)
        self.state = DOWN
        self._reset_process()
        lost_power = self.disk.end_by_failed_sync() if failed_sync else self.disk.crash()
        if self.origin is not None:
            self.world.on_process_ended(self, *self.last_seen)
        return lost_power

    def on_disk_wiped(self) -> None:
        """Its disk has nothing on it any more."""
        self.origin = None
        self.durable_state = DurableState()
        self.pending_records, self.durable_records = [], []

    def _on_disk_failed(self) -> None:
        """A disk that failed once has its power fail soon: who told anybody of what it did not sync has lied."""
        self.world.schedule(self.world.now_ms + self.rng.randint(1, 8), lose_power, self, self.incarnation)

    def stop_cleanly(self, *, sealed: bool) -> bool:
        """Stopped in order, everything synced. False when it did not run or, if that is asked for, no seal stands
        behind its last record."""
        if self.state != UP or self.executor is None:
            return False
        self.world.trace_event(self.name, "rest")
        has_seal = False
        with self.guard:
            finish_sync(self)
            if self.state != UP:  # it crashed in that sync
                return False
            has_seal = self.disk.close_cleanly()
            self.on_durable(len(self.pending_records))
            self.state = DOWN
            self._reset_process()
        return self.state == DOWN and (has_seal or not sealed)

    def replace_with_forged_log(self, above: int) -> bool:
        """Put another log in the place of this one: two neighbours above an index exchanged, hashes and all. No crash
        does this; a restored folder of another branch does."""
        records = [*self.durable_records, *self.pending_records]
        trimmed = self.durable_state.log_start or any(isinstance(record, LogTrimmed) for record in self.pending_records)
        forged = forged_records(records, above) if not trimmed else None
        if forged is None or self.origin is None or not self.stop_cleanly(sealed=False):
            return False
        self.disk.rewrite(forged, self.origin.birth, self.last_seen[1])
        self.forged = True
        return True

    def _reset_process(self) -> None:
        self.incarnation += 1
        if self.executor is not None:
            record_removed(self.world, self.executor.core)
        if self.process is not None:
            self.process.events.end()
        self.executor = self.levels = self.repair = self.syncing = self.process = None
        self.steps_to_crash = 0
        self.crash_step = self.crash_record = ""
        self.inbox.clear()
        self.released_marks = DurabilityMarks(0, 0, 0, 0, 0)

    def terminate(self, reason: str, text: str) -> None:
        """The process ended itself, by name; nobody starts it again."""
        self.world.trace_event(self.name, "ended", f"{reason} {text[:120]}")
        self.world.coverage["ended by name"] += 1
        self.ended_by = reason
        self._reset_process()
        self.state = ENDED
        self.disk.crash()

    def pause(self) -> None:
        """SIGSTOP."""
        if self.state == UP:
            self.state = PAUSED

    def resume(self, life: int) -> None:
        """SIGCONT."""
        if self.state == PAUSED and life == self.incarnation:
            self.state = UP
            if self.process is not None:
                self.process.events.resume()
                return
            if self.syncing is not None:
                on_synced(self, self.incarnation)
            self.next_turn_ms = -1
            self.schedule_turn(self.world.now_ms)

    def on_removed(self) -> None:
        """The log does without it; its process ends, and nobody starts it again."""
        self.world.coverage["removed"] += 1
        check_removed(self.world, self)
        self.crash("removed")
        self.state = REMOVED

    def on_added_again(self) -> None:
        """The side of a split that had named it lost, so it was no master any more and ended by name. Whoever gives
        that change again starts it again (docs/how-to/add-remove-masters.md)."""
        if self.state == REMOVED:
            self.world.coverage["named again"] += 1
            self.state = DOWN
            self.start()

    def stop_gracefully(self, life: int, by_ms: int) -> None:
        """What SIGTERM leads to: no new work, the view is left, then the end; at ``by_ms`` in any case."""
        executor = self.executor
        if life != self.incarnation or self.state not in (UP, PAUSED) or executor is None:
            return
        world = self.world
        self.leaving = True
        if self.state == UP:
            has_left = False
            with self.guard:
                if self.process is not None:
                    has_left = self.process.leave(by_ms - world.now_ms)
                else:
                    executor.leave(self.now(), by_ms - world.now_ms)
                    go_on(self)
                    has_left = executor.core.is_leave_done and executor.idle
            if life != self.incarnation:
                return
            if has_left:
                world.coverage["left"] += 1
                self.crash("left")
                world.schedule(world.now_ms + self.rng.choice((5, 50, 300)), self.start, self.incarnation)
                return
        if world.now_ms >= by_ms + 30:
            world.coverage["stopped without leaving"] += 1
            self.crash("stopped")
            world.schedule(world.now_ms + self.rng.choice((5, 50, 300)), self.start, self.incarnation)
            return
        world.schedule(world.now_ms + 5, self.stop_gracefully, life, by_ms)

    def on_peer_down(self, other: SimulatedMaster, birth: int, start: int) -> None:
        """The supervisor has seen that this process of another master is gone."""
        if self.state != UP or self.executor is None:
            return
        self.world.trace_event(self.name, "told down", f"{other.name} start={start}")
        with self.guard:
            try:
                self.control.prove_down(other.name, birth, start)
            except Refused as refused:
                self.world.refused[f"proof {type(refused).__name__}"] += 1
                self.world.coverage["stale proof"] += 1
            go_on(self)

    # Input

    def receive(self, source: int, data: bytes) -> None:
        """A message has arrived; a paused process finds it later, a dead one never."""
        if self.process is not None:
            self.process.receive(source, data)
        elif self.state in (UP, PAUSED):
            self.inbox.append((source, data))
            if self.next_turn_ms != self.world.now_ms:
                self.schedule_turn(self.world.now_ms)

    def _turn(self, life: int) -> None:
        if life != self.incarnation or self.next_turn_ms != self.world.now_ms or self.state != UP:
            return
        self.next_turn_ms = -1
        executor = self.executor
        with self.guard:
            inbox, self.inbox = self.inbox, []
            if executor is None:
                if self.repair is not None:
                    run_repair_turn(self, self.repair, inbox)
                return
            now = self.now()
            for source, data in inbox:
                receive_one(self, lambda peer, message: executor.receive(peer, message, now), source, data)
            decisions_awaited = self.incarnation % 2 > 0  # so that both ways are driven in each run
            self.schedule_turn_by(executor.poll(now, decisions_awaited))
            sync_and_release(self)
        look_after(self)

    def submit(self, batch: list[Submission]) -> bool:
        """A client's transactions; False when this master takes none."""
        if self.process is not None:
            return self.process.submit(batch)
        answers = self.take(batch)
        return bool(answers) and not any(isinstance(answer, Refused) for answer in answers)

    def take(self, batch: list[Submission]) -> list[SubmissionAccepted | Refused]:
        """The answers to a client's transactions; none when the process does not run, or ends before it answers."""
        if self.state != UP or self.executor is None:
            return []
        world = self.world
        with self.guard:
            world.transactions.on_submitted(self.name, batch)
            world.clients.on_sent(batch)
            answers = self.executor.submit(batch, self.now())
            if self.origin is not None and not self.damaged:
                trimmed = self.durable_state.trimmed_seqs
                world.clients.on_answers(self.origin, batch, answers, world.now_ms, trimmed)
                world.synchronous.on_answers(self, batch, answers)
            refused = [answer for answer in answers if isinstance(answer, Refused)]
            world.trace_event(self.name, "submit", f"count={len(batch)} refused={len(refused)}")
            for answer in refused:
                if getattr(answer, "reason", "") == "DiskFull":
                    world.coverage["refused for a full disk"] += 1
                world.refused[getattr(answer, "reason", type(answer).__name__)] += 1
            taken = any(isinstance(answer, SubmissionAccepted) for answer in answers)
            if taken:
                check_old_copy(self)
            check_submission(world, self, taken and batch[0].kind != KIND_CONFIG)
            self.on_step("submit")
            go_on(self)
            return answers
        return []

    # Durable, then out

    def on_appended(self, record: Record) -> None:
        """The executor hands a record to the journal."""
        self.pending_records.append(record)
        if isinstance(record, TransactionsPersisted) and record.run.origin == self.origin:
            record_changes(self.world, self.name, record.run.items)
            self.world.synchronous.on_own_persisted(self, record.run.items)
        if isinstance(record, LogAppended) and self.executor is not None:
            core = self.executor.core
            present = {peer.origin for peer in core.peers if core.is_present(peer)}
            self.world.log.on_first_appended(self.name, record, present, self.world.undamaged_states())
        if isinstance(record, TransactionsPersisted) and record.run.origin == self.origin and not self.damaged:
            for at, item in enumerate(record.run.items):
                if item.stamp:
                    self.world.promises.on_transaction(record.run.origin, item.stamp, record.run.first_seq + at)
        if self.executor is not None:
            check_view_change(self.world, self.executor.core.views, record)
        if isinstance(record, ViewAccepted) and not self.damaged:
            for several in record.reassigned:
                own = Origin(several.node, several.birth) == self.origin
                if own and self.origin and not self.world.log.stamp_of(self.name, Txid(self.origin, several.first_seq)):
                    self.world.promises.on_transaction(self.origin, several.stamps[0], several.first_seq)

    def on_durable(self, count: int) -> None:
        """The first ``count`` records that were pending are durable now."""
        for record in self.pending_records[:count]:
            self.on_record_durable(record)
        del self.pending_records[:count]

    def on_record_durable(self, record: Record) -> None:
        """The oldest of those that were pending."""
        self.durable_records.append(record)
        self.world.on_durable(self, record)
        if isinstance(record, ViewAccepted) and self.durable_state.accepted is not None:
            before, branch = self.durable_state.accepted.number, self.world.log.branches.get(record.view.number)
            lost = not record.view.descends_from(before) or (branch is not None and before in branch.moved)
            self.rejoined = self.rejoined or lost
        self.durable_state.apply(record)
        if self.crash_when_ahead and self.durable_state.stable > max(
            m.durable_state.log_length for m in self.world.simulated_masters if m is not self
        ):
            self.crash_when_ahead = False
            self.world.coverage["crash of the one that is ahead"] += 1
            self.steps_to_crash, self.crash_step, self.down_ms = 1, "release", 400
