"""What stands between a simulated master and its journal, and what happens when something ends its process."""

from __future__ import annotations

import traceback
from typing import TYPE_CHECKING

from txlog.journal import GroupCommit as JournalSync
from txlog.journal import Journal
from txlog.journal.memory_vfs import SimulatedCrash
from txlog.model.errors import Fatal, JournalBroken, JournalDamaged, JournalFault, JournalFull
from txlog.model.records import Record, TransactionsPersisted
from txlog.runtime.executor import SyncTask
from txlog_simulation.membership_faults import is_removed
from txlog_simulation.process_states import UP
from txlog_simulation.violation import ACKNOWLEDGEMENT, PROCESS

if TYPE_CHECKING:
    from txlog_simulation.simulated_master import SimulatedMaster


class ProbedSync:
    """Tells the machine when the fsync has returned."""

    def __init__(self, journal: ProbedJournal, inner: JournalSync, count: int) -> None:
        self.journal = journal
        self.inner = inner
        self.count = count

    def run(self) -> None:
        """See ``SyncTask.run``."""
        self.inner.run()
        self.journal.machine.on_durable(self.count)


class ProbedJournal:
    """The journal that the executor gets: every record passes here, every step may be the process's last."""

    def __init__(self, machine: SimulatedMaster, inner: Journal) -> None:
        self.machine = machine
        self.inner = inner
        self.read = inner.read
        self.segments_freed_by = inner.segments_freed_by
        self.room = True

    @property
    def dirty(self) -> bool:
        """See the journal."""
        return self.inner.dirty

    def has_room_for(self, length: int) -> bool:
        """See the journal."""
        self.room = self.inner.has_room_for(length)
        return self.room

    def append(self, record: Record) -> None:
        """See the journal."""
        if isinstance(record, TransactionsPersisted):
            self.machine.disk.stage_payloads(record)
        used = self.inner.staged_used
        try:
            self.inner.append(record)
        except JournalFull as full:
            world = self.machine.world
            world.coverage["room for work asked for too small"] += self.room
            if not self.room:
                world.violations.add(ACKNOWLEDGEMENT, "29", f"{self.machine.name} took what it cannot store: {full}")
            raise
        self.machine.world.coverage["payload on the disk before its record"] += self.inner.staged_used - used
        self.machine.on_appended(record)
        trap = self.machine.record_traps.pop(type(record).__name__, None)
        if trap is not None:
            trap()
        self.machine.on_step("append")

    def begin_sync(self) -> ProbedSync | None:
        """See the journal."""
        inner = self.inner.begin_sync()
        if inner is None:
            return None
        return ProbedSync(self, inner, len(self.machine.pending_records))

    def end_sync(self, sync: SyncTask) -> None:
        """See the journal."""
        assert isinstance(sync, ProbedSync)
        self.inner.end_sync(sync.inner)


def lose_power(machine: SimulatedMaster, life: int = -1) -> None:
    """The power of a disk fails whose fsync failed before, if the process runs, in this incarnation (-1: in any). What
    the start after the failed fsync believed must be on the disk."""
    if machine.state == UP and life in (-1, machine.incarnation):
        machine.crash("behind a failed fsync")
        machine.world.schedule(machine.world.now_ms + 20, machine.start, machine.incarnation)


class CrashGuard:
    """Ends the process as its exception says: a simulated crash, by name, or by our own mistake."""

    def __init__(self, machine: SimulatedMaster) -> None:
        self.machine = machine

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, wrong: BaseException | None, _: object) -> bool:
        machine = self.machine
        world = machine.world
        match wrong:
            case None:
                return True
            case SimulatedCrash():
                machine.crash(f"at step {wrong}")
                back_ms = machine.down_ms or machine.rng.choice((5, 50, 300))
                machine.down_ms = 0
                world.schedule(world.now_ms + back_ms, machine.start, machine.incarnation)
            case JournalBroken() if "the disk failed" in str(wrong):
                lost_power = machine.crash("by a failed fsync", failed_sync=True)
                back_ms = world.now_ms + machine.rng.choice((5, 50, 300))
                world.schedule(back_ms, machine.start, machine.incarnation)
                if not lost_power:
                    world.schedule(back_ms + machine.rng.randint(1, 200), lose_power, machine)
            case JournalFull() | JournalBroken() if self.machine.disk.full:
                # a record larger than the promised room, or the reserve used up: it ends, and holds the log
                world.coverage["ended for a full disk"] += 1
                machine.crash("for a full disk")
                world.schedule(world.now_ms + machine.rng.choice((50, 300)), machine.start, machine.incarnation)
            case JournalDamaged() if machine.flipped and "start this master again" in str(wrong):
                # an index stood for the damaged segment, or it was damaged before; its supervisor starts it again
                world.coverage["damage found behind an index"] += 1
                machine.crash("by damage that no start had seen")
                world.schedule(world.now_ms + machine.rng.choice((5, 50, 300)), machine.start, machine.incarnation)
            case Fatal() if wrong.reason == "Removed" and is_removed(world, machine):
                machine.on_removed()
            case Fatal() if wrong.reason == "OldJournal" and machine.disk.may_have_lost_seal:
                # without its seals a flipped last record reads as a torn tail; the supervisor knows a later start
                world.coverage["seal lost behind a flip"] += 1
                world.mark_damaged(machine)
                machine.terminate(wrong.reason, str(wrong))
            case Fatal() | JournalFault():
                reason = getattr(wrong, "reason", type(wrong).__name__)
                machine.terminate(reason, str(wrong))
                # a forged log, or an old disk whose numbers were given again while the one who held them was away
                may_be_forked = reason == "Forked" and (world.forged or world.old_disk)
                if not machine.damaged and world.plan.liar < 0 and not may_be_forked:
                    world.violations.add(PROCESS, "2", f"{machine.name} ends without cause: {wrong}")
            case AssertionError() if world.old_disk and "rule 13" in str(wrong):
                # A master with an old disk asked, and nobody answered: it makes stamps below its forgotten promise.
                world.coverage["stopped by rule 13 against an old disk"] += 1
                machine.terminate("AssertionError", str(wrong))
            case Exception():
                where = "".join(traceback.format_exception(wrong)[-3:])
                machine.terminate(type(wrong).__name__, str(wrong))
                world.violations.add(PROCESS, "31", f"{machine.name} breaks: {type(wrong).__name__} {wrong}\n{where}")
            case _:
                return False
        return True
