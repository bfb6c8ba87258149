"""One simulated master: the real executor and core, on a disk, under a clock, in a process that can end at any step."""

from __future__ import annotations

import math
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING

from txlog.journal import Journal
from txlog.journal.memory_vfs import SimulatedCrash
from txlog.model.entry import KIND_CONFIG, KIND_UPDATE
from txlog.model.errors import Conflict, PeerFault, Refused
from txlog.model.hashes import content_hash
from txlog.model.ids import Origin, Txid
from txlog.model.records import Added, Held, Record, Recovered, Trimmed, ViewAccepted
from txlog.protocol.core import Core
from txlog.protocol.events import Accepted, ConfiguredMember, Marks, Now, Settings, Submission
from txlog.protocol.trimming import Place
from txlog.runtime.executor import Executor, SyncTask
from txlog.runtime.journal_repair import JournalRepair
from txlog.wire import messages as wire
from txlog.wire.messages import Message, Post
from txlog_simulation.change_faults import count_crash, judge_change
from txlog_simulation.checkers.workers import Worker
from txlog_simulation.disk import Disk, forged_records
from txlog_simulation.feeding import feed
from txlog_simulation.member_faults import judge_removed, judge_submission, note_changes, note_removed
from txlog_simulation.mending import check_readable, check_recovered, mend, mending_turn, open_journal
from txlog_simulation.mirror import Mirror
from txlog_simulation.violation import ACKNOWLEDGEMENT, PROCESS
from txlog_simulation.watched import Guard, WatchedJournal

if TYPE_CHECKING:
    from txlog_simulation.world import World

EPOCH_MS = 1_700_000_000_000
MONO_BASE_MS = 1000
DOWN, UP, PAUSED, ENDED, REMOVED = "down", "up", "paused", "ended", "removed"
NEVER_WITHOUT_DAMAGE = ("Regressed", "StampsFall", "Malformed", "UnknownFormat", "OtherCluster", "Misplaced")
"""Reasons to refuse a peer that no network and no crash may bring about."""


class Machine:
    """``state`` is one of the five words above. ``mirror`` is what its disk holds durably; ``pending`` what was
    appended behind that. ``fuse`` counts the steps to a crash, of those called ``fuse_step`` if that is set; ``traps``
    are sprung by the next record of a kind, and ``fuse_of`` is the kind that lit the fuse. ``repair``
    is there instead of an ``executor`` while a damaged journal is mended."""

    def __init__(self, world: World, slot: int, name: str) -> None:
        self.world = world
        self.slot = slot
        self.name = name
        self.disk = Disk(
            name, Random(f"disk {slot} of {world.plan.seed}"), world.plan.segment_bytes, world.met, self.step
        )
        self.rng = Random(f"machine {slot} of {world.plan.seed}")
        self.state = DOWN
        self.life = 0
        self.executor: Executor | None = None
        self.repair: JournalRepair | None = None
        self.asked: Message | None = None
        self.known_elsewhere: list[tuple[Machine, dict[Origin, int]]] = []
        self.mirror = Mirror()
        self.pending: list[Record] = []
        self.written: list[Record] = []
        self.worker = Worker(name, world.findings)
        self.told = Marks(0, 0, 0, 0, 0)
        self.inbox: list[tuple[int, bytes]] = []
        self.fuse = 0
        self.fuse_step = self.fuse_of = ""
        self.traps: dict[str, Callable[[], None]] = {}
        self.disk_stalls_until = 0
        self.offset_ms = world.plan.clock_offsets_ms[slot]
        self.rate = world.plan.clock_rates[slot]
        self.turn_at = -1
        self.syncing: SyncTask | None = None
        self.last_seen = (0, 0)
        self.damaged = False
        self.flipped = False
        self.forged = False
        self.origin: Origin | None = None
        self.rejoined = False
        self.backup_life = -1
        self.ended_by = ""
        self.leaving = False
        self.hunted = False
        self.down_ms = 0
        self.strategy = world.plan.prefers[slot] if world.plan.prefers else world.plan.strategy
        self.disk.on_error = self._disk_failed
        self.guard = Guard(self)

    # Time

    def now(self) -> Now:
        """This master's clocks."""
        elapsed = int(self.world.now_ms * self.rate)
        return Now(EPOCH_MS + elapsed + self.offset_ms, MONO_BASE_MS + elapsed)

    def turn_by(self, wake_mono_ms: int) -> None:
        """Have a turn when this master's own clock says so, or earlier."""
        if wake_mono_ms >= 1 << 50:
            return
        at_ms = math.ceil((wake_mono_ms - MONO_BASE_MS) / self.rate)
        self.turn_soon(max(at_ms, self.world.now_ms + 1))

    def turn_soon(self, at_ms: int) -> None:
        """Have a turn at this time, or earlier if one is due earlier."""
        if self.turn_at < self.world.now_ms or at_ms < self.turn_at:
            self.turn_at = at_ms
            self.world.at(at_ms, self._turn, self.life)

    # The process

    def start(self, life: int = -1) -> None:
        """Start the process, unless it runs, ended by name, or ``life`` is over."""
        if self.state != DOWN or (life >= 0 and life != self.life):
            return
        self.life += 1
        self.leaving = False
        self.turn_at = -1
        self.state = UP
        with self.guard:
            journal, recovered = open_journal(self)
            if recovered.damage:
                mend(self, journal, recovered)
            else:
                check_recovered(self, recovered)
                check_readable(self, journal)
                self.begin(journal, recovered)

    def begin(self, journal: Journal, recovered: Recovered) -> None:
        """The journal is whole: the core begins."""
        world = self.world
        self.pending = []
        settings = self.settings()
        self.last_seen = (recovered.birth, recovered.start)
        if self.origin is None:
            self.origin = Origin(self.name, recovered.birth)
            world.mirrors[self.origin] = self.mirror
        world.note(self.name, "start", f"birth={recovered.birth:016x} start={recovered.start}")
        self.executor = Executor(Core(settings, recovered, self.now()), WatchedJournal(self, journal))
        self.turn_soon(world.now_ms)

    def settings(self) -> Settings:
        """What its configuration says."""
        plan = self.world.plan
        last_birth, last_start = self.last_seen if plan.supervised else (0, 0)
        return Settings(
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
            strategy=self.strategy,
        )

    def step(self, name: str) -> None:
        """A step of the process is done; it may have been the last."""
        if self.fuse and self.fuse_step in ("", name):
            self.fuse -= 1
            if not self.fuse:
                self.world.met[f"crash after {name}"] += 1
                if self.fuse_of:
                    self.world.met[f"crash after {name} of {self.fuse_of}"] += 1
                if self.repair is not None:
                    self.world.met["crash while mending"] += 1
                elif self.executor is None or self.executor.core.agreement is None:
                    self.world.met["crash while founding"] += 1
                raise SimulatedCrash(name)

    def crash(self, why: str) -> None:
        """The process is gone at once, and with it what the disk had not synced."""
        if self.state in (DOWN, ENDED, REMOVED):
            return
        self.world.note(self.name, "crash", why)
        count_crash(self)
        self.state = DOWN
        self._forget()
        self.disk.crash()
        if self.origin is not None:
            self.world.gone(self, *self.last_seen)

    def empty(self) -> None:
        """Its disk has nothing on it any more."""
        self.origin = None
        self.mirror = Mirror()
        self.pending, self.written = [], []

    def _disk_failed(self) -> None:
        """A disk that failed once has its power fail soon: who told anybody of what it did not sync has lied."""
        self.world.at(self.world.now_ms + self.rng.randint(1, 8), self._crash_in, self.life)

    def _crash_in(self, life: int) -> None:
        if life == self.life and self.state == UP:
            self.crash("behind a failed fsync")
            self.world.at(self.world.now_ms + 20, self.start, self.life)

    def rest(self, *, sealed: bool) -> bool:
        """Stopped in order, everything synced. False when it did not run or, if that is asked for, no seal stands
        behind its last record."""
        if self.state != UP or self.executor is None:
            return False
        self.world.note(self.name, "rest")
        has_seal = False
        with self.guard:
            self._finish_sync()
            has_seal = self.disk.rest()
            self.durable(len(self.pending))
            self.state = DOWN
            self._forget()
        return self.state == DOWN and (has_seal or not sealed)

    def forge(self, above: int) -> bool:
        """Put another log in the place of this one: two neighbours above an index exchanged, hashes and all. No crash
        does this; a restored folder of another branch does."""
        records = [*self.written, *self.pending]
        trimmed = self.mirror.foot or any(isinstance(record, Trimmed) for record in self.pending)
        forged = forged_records(records, above) if not trimmed else None
        if forged is None or self.origin is None or not self.rest(sealed=False):
            return False
        self.disk.rewrite(forged, self.origin.birth, self.last_seen[1])
        self.forged = True
        return True

    def _forget(self) -> None:
        self.life += 1
        if self.executor is not None:
            note_removed(self.world, self.executor.core)
        self.executor = None
        self.repair = None
        self.syncing = None
        self.fuse = 0
        self.fuse_step = self.fuse_of = ""
        self.inbox.clear()
        self.told = Marks(0, 0, 0, 0, 0)

    def end(self, reason: str, text: str) -> None:
        """The process ended itself, by name; nobody starts it again."""
        self.world.note(self.name, "ended", f"{reason} {text[:120]}")
        self.world.met["ended by name"] += 1
        self.ended_by = reason
        self._forget()
        self.state = ENDED
        self.disk.crash()

    def pause(self) -> None:
        """SIGSTOP."""
        if self.state == UP:
            self.state = PAUSED

    def resume(self, life: int) -> None:
        """SIGCONT."""
        if self.state == PAUSED and life == self.life:
            self.state = UP
            if self.syncing is not None:
                self._synced(self.life)
            self.turn_at = -1
            self.turn_soon(self.world.now_ms)

    def gone_for_good(self) -> None:
        """The log does without it; its process ends, and nobody starts it again."""
        self.world.met["removed"] += 1
        judge_removed(self.world, self)
        self.crash("removed")
        self.state = REMOVED

    def named_again(self) -> None:
        """The side of a split that had named it lost, so it was no master any more and ended by name. Whoever gives
        that change again starts it again (docs/how-to/add-remove-masters.md)."""
        if self.state == REMOVED:
            self.world.met["named again"] += 1
            self.state = DOWN
            self.start()

    def stop_gently(self, life: int, by_ms: int) -> None:
        """What SIGTERM leads to: no new work, the view is left, then the end; at ``by_ms`` in any case."""
        executor = self.executor
        if life != self.life or self.state not in (UP, PAUSED) or executor is None:
            return
        world = self.world
        self.leaving = True
        if self.state == UP:
            with self.guard:
                executor.leave(self.now(), by_ms - world.now_ms)
                self.turn_by(executor.poll(self.now()))
                self.flush()
            if life != self.life:
                return
            if executor.core.leave_done and executor.idle:
                world.met["left"] += 1
                self.crash("left")
                world.at(world.now_ms + self.rng.choice((5, 50, 300)), self.start, self.life)
                return
        if world.now_ms >= by_ms + 30:
            world.met["stopped without leaving"] += 1
            self.crash("stopped")
            world.at(world.now_ms + self.rng.choice((5, 50, 300)), self.start, self.life)
            return
        world.at(world.now_ms + 5, self.stop_gently, life, by_ms)

    def told_down(self, other: Machine, birth: int, start: int) -> None:
        """The supervisor has seen that this process of another master is gone."""
        if self.state != UP or self.executor is None:
            return
        self.world.note(self.name, "told down", f"{other.name} start={start}")
        with self.guard:
            try:
                self.executor.prove_down(other.name, birth, start)
            except Refused as refused:
                self.world.refused[f"proof {type(refused).__name__}"] += 1
                self.world.met["stale proof"] += 1
            self.turn_by(self.executor.poll(self.now()))
            self.flush()

    # Input

    def receive(self, source: int, data: bytes) -> None:
        """A message has arrived; a paused process finds it later, a dead one never."""
        if self.state in (UP, PAUSED):
            self.inbox.append((source, data))
            if self.turn_at != self.world.now_ms:
                self.turn_soon(self.world.now_ms)

    def _turn(self, life: int) -> None:
        if life != self.life or self.turn_at != self.world.now_ms or self.state != UP:
            return
        self.turn_at = -1
        executor = self.executor
        with self.guard:
            inbox, self.inbox = self.inbox, []
            if executor is None:
                if self.repair is not None:
                    mending_turn(self, self.repair, inbox)
                return
            now = self.now()
            for source, data in inbox:
                self._receive_one(executor, source, data, now)
            self.turn_by(executor.poll(now))
            self.flush()
        core = self.executor.core if self.executor is not None and self.executor.idle else None
        if core is not None and core.removed and core.leave_done and self.state == UP:
            self.gone_for_good()
        core = self.executor.core if self.executor is not None else None
        if core is not None and (core.wants_backup or core.recalls_backup) and self.backup_life != self.life:
            self.backup_life = self.life
            world = self.world
            if self.rng.random() < 0.8 and (world.target or world.healing):
                world.at(world.now_ms + self.rng.choice((1, 10, 50, 150)), self.back_up, self.life)
            else:
                world.met["split backup failed"] += 1
            world.at(world.now_ms + 300, self._again, self.life)

    def _again(self, life: int) -> None:
        """The supervisor looks whether a backup is wanted still."""
        if life == self.life:
            self.backup_life = -1

    def _receive_one(self, executor: Executor, source: int, data: bytes, now: Now) -> None:
        world = self.world
        peer = world.machines[source]
        try:
            executor.receive(peer.name, data, now)
        except PeerFault as fault:
            world.note(self.name, "refused", f"{peer.name} {fault.reason}")
            world.refused[fault.reason] += 1
            if fault.reason == "Misplaced" and self.flipped:
                return  # an answer to what it asked before it was mended
            wiped = world.met["wipe"] or world.met["order about lost disks"]
            if fault.reason == "OtherCluster" and (wiped or world.orders.torn):
                return  # a cluster that was being founded with its earlier birth, in a message that was on its way
            if fault.reason == "OtherCluster" and world.orders.begin and executor.core.views.unfounded:
                return  # it has not heard yet that the cluster was founded without it
            if fault.reason in NEVER_WITHOUT_DAMAGE and not world.damaged:
                world.findings.add(PROCESS, "9", f"{self.name} refuses {fault}")
        if world.trace.wanted:
            world.note(self.name, "receive", f"{peer.name} {len(data)} bytes log={self.mirror.log}")
        self.step("receive")

    def submit(self, batch: list[Submission]) -> bool:
        """A client's transactions; False when this master takes none."""
        if self.state != UP or self.executor is None:
            return False
        world = self.world
        with self.guard:
            world.transactions.submit(self.name, batch)
            answers = self.executor.submit(batch, self.now())
            refused = [answer for answer in answers if isinstance(answer, Refused)]
            world.note(self.name, "submit", f"count={len(batch)} refused={len(refused)}")
            for answer in refused:
                if getattr(answer, "reason", "") == "DiskFull":
                    world.met["refused for a full disk"] += 1
                world.refused[getattr(answer, "reason", type(answer).__name__)] += 1
            taken = any(isinstance(answer, Accepted) for answer in answers)
            judge_submission(world, self, taken and batch[0].kind != KIND_CONFIG)
            self.step("submit")
            self.turn_by(self.executor.poll(self.now()))
            self.flush()
            return not refused
        return False

    # Durable, then out

    def appended(self, record: Record) -> None:
        """The executor hands a record to the journal."""
        self.pending.append(record)
        if isinstance(record, Held) and record.run.origin == self.origin:
            note_changes(self.world, self.name, record.run.items)
        if isinstance(record, Added) and self.executor is not None:
            core = self.executor.core
            present = {peer.origin for peer in core.peers if core.is_present(peer)}
            self.world.log.first_added(self.name, record, present, self.world.sound_mirrors())
        if isinstance(record, Held) and record.run.origin == self.origin and not self.damaged:
            for at, item in enumerate(record.run.items):
                if item.stamp:
                    self.world.promises.made(record.run.origin, item.stamp, record.run.first_seq + at)
        if self.executor is not None:
            judge_change(self.world, self.executor.core.views, record)
        if isinstance(record, ViewAccepted) and not self.damaged:
            for several in record.stamped:
                own = Origin(several.node, several.birth) == self.origin
                if own and self.origin and not self.world.log.stamp(self.name, Txid(self.origin, several.first_seq)):
                    self.world.promises.made(self.origin, several.stamps[0], several.first_seq)

    def durable(self, count: int) -> None:
        """The first ``count`` records that were pending are durable now."""
        for record in self.pending[:count]:
            self.now_durable(record)
        del self.pending[:count]

    def now_durable(self, record: Record) -> None:
        """The oldest of those that were pending."""
        self.written.append(record)
        self.world.durable(self, record)
        if isinstance(record, ViewAccepted) and self.mirror.accepted is not None:
            before, branch = self.mirror.accepted.number, self.world.log.branches.get(record.view.number)
            lost = before not in record.view.history or (branch is not None and before in branch.moved)
            self.rejoined = self.rejoined or lost
        self.mirror.apply(record)
        if self.hunted and self.mirror.stable > max(m.mirror.log for m in self.world.machines if m is not self):
            self.hunted = False
            self.world.met["crash of the one that is ahead"] += 1
            self.fuse, self.fuse_step, self.down_ms = 1, "release", 400

    def flush(self) -> None:
        """As the product's loop does it: one sync in flight; release what may leave."""
        executor = self.executor
        assert executor is not None
        if self.world.plan.disk_ms == 0:
            while (sync := executor.begin_sync()) is not None:
                self._run_sync(executor, sync)
        elif self.syncing is None:
            self.syncing = executor.begin_sync()
            if self.syncing is not None:
                self.step("begin_sync")
                done_ms = self.world.now_ms + 1 + self.rng.randrange(self.world.plan.disk_ms)
                self.world.at(max(done_ms, self.disk_stalls_until), self._synced, self.life)
        self._release(executor)
        if self.syncing is None:
            self.disk.idle()

    def _run_sync(self, executor: Executor, sync: SyncTask) -> None:
        self.step("begin_sync")
        sync.run()
        if self.world.trace.wanted:
            self.world.note(self.name, "durable", f"log={self.mirror.log} stable={self.mirror.stable}")
        self.step("run")
        executor.end_sync()
        self.step("end_sync")
        self.disk.remove_trimmed()

    def _finish_sync(self) -> None:
        executor, sync = self.executor, self.syncing
        assert executor is not None
        if sync is not None:
            self.syncing = None
            self._run_sync(executor, sync)

    def _synced(self, life: int) -> None:
        if life != self.life or self.state != UP or self.executor is None or self.syncing is None:
            return
        with self.guard:
            self._finish_sync()
            self._release(self.executor)
            self.flush()

    def _release(self, executor: Executor) -> None:
        released = executor.release()
        world = self.world
        if released.marks is not None:
            self._tell(released.marks)
        for peer, data in released.messages:
            target = world.slots[peer]
            message = wire.decode(peer, data)
            if isinstance(message, Post) and self.mirror.members and self.origin and not self.damaged:
                world.promises.post(self.origin, message.claim, self.mirror)
            if world.trace.wanted:
                world.note(self.name, "send", f"{peer} kind={message.__struct_config__.tag} {len(data)} bytes")
            world.network.send(world.now_ms, self.slot, target, data)
            self.step("send")
        if released.messages or released.marks:
            self.step("release")

    def _tell(self, marks: Marks) -> None:
        world = self.world
        self.told = marks
        view = self.mirror.accepted
        if view is None or self.origin is None:
            world.findings.add(ACKNOWLEDGEMENT, "21", f"{self.name} tells {marks} without a durable view")
            return
        if world.trace.wanted:
            world.note(self.name, "release", " ".join(f"{k}={v}" for k, v in marks._asdict().items()))
        world.acknowledgements.marks(self.origin, marks, world.sound_mirrors(), view)
        if max(marks.stable, marks.log if view.strategy == "None" else 0) > self.worker.index:
            world.at(world.now_ms + self.rng.randint(5, 80), self._feed, self.life)

    # Its worker

    def _feed(self, life: int) -> None:
        if life == self.life and self.state == UP and self.executor is not None:
            feed(self, self.executor)

    def trim(self, places: list[Place]) -> None:
        """What its shell does now and then."""
        executor = self.executor
        if self.state != UP or executor is None or self.forged or executor.core.agreement is None:
            return
        with self.guard:
            verdict = executor.trim(places, 1 << 60)
            if self.world.trace.wanted:
                self.world.note(
                    self.name,
                    "trim",
                    f"{verdict.start} to {verdict.cut}: {[tuple(holder) for holder in verdict.holders[:1]]}",
                )
            self.turn_by(executor.poll(self.now()))
            self.flush()

    def back_up(self, life: int) -> None:
        """What the supervisor does when a split is feared (rule 23): a backup of this master's worker, which goes back
        before, where it is on no log of this view."""
        if life != self.life or self.state != UP or self.executor is None:
            return
        feed(self, self.executor)
        agreement = self.executor.core.agreement
        if agreement is None:
            return
        core = self.executor.core
        if core.wants_backup and self.worker.is_on(agreement.history):
            (index, value), what = self.worker.back_up(), "split backup"
        else:
            known = self.worker.newest_up_to(agreement.stable, agreement.history) if core.recalls_backup else None
            if known is None:
                return
            (index, value), what = known, "split backup recalled"
        self.world.met[what] += 1
        with self.guard:
            try:
                self.executor.backup_done(index, value or agreement.history.start_hash)
            except Conflict:
                if agreement.installed and not self.damaged:
                    raise
                self.world.met["split backup refused"] += 1  # an accept has cut it off, or an old disk knows less
            self.turn_by(self.executor.poll(self.now()))
            self.flush()


def submission(text: str, key: str, kind: int = KIND_UPDATE) -> Submission:
    """A transaction as the front door hands it in."""
    payload = text.encode()
    return Submission(kind, key, payload, content_hash(kind, key, payload))


def configured(
    plan_members: int, centres: tuple[int, ...], weights: tuple[int, ...], names: list[str]
) -> tuple[ConfiguredMember, ...]:
    """The list of members, the same at every master."""
    from txlog_simulation.plan import DATA_CENTRES

    return tuple(ConfiguredMember(names[i], DATA_CENTRES[centres[i]], weights[i]) for i in range(plan_members))
