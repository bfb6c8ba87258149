"""One strategy for its share of the time: a cluster of its own, load, faults in two lanes, and looks at everything
after each split and at the end."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from e2e.lib.checks import LogReplay, Verdict, judge_log, judge_worker, parse_dump
from e2e.lib.cluster.supervised import SupervisedCluster, supervised_up
from e2e.lib.history import LogRecord
from e2e.lib.load.requests import http_get
from e2e.lib.load.synchronous_load import RULES
from e2e.lib.readers import read_log
from e2e.lib.report import CannotMeasure, console
from e2e.soak import master_faults as gentle
from e2e.soak.backup_target_faults import SoakBackupTargets, targets_up
from e2e.soak.cluster_shape import ClusterShape
from e2e.soak.fault_log import FaultLog, InjectedFault, ShuffledDeck, active_ticks, format_clock
from e2e.soak.quorum_load import QuorumLoad, without_quorum_writes
from e2e.soak.soak_load import SoakLoad
from e2e.soak.split_faults import (
    BACKUP_SPLIT_VARIANTS,
    CUT_INSIDE_DATA_CENTER,
    SPLIT_VARIANTS,
    ExpectationMissed,
    ObservedSplit,
    SplitFault,
    observed_splits,
    pause_long,
)
from e2e.soak.worker_faults import FaultLane
from txlog.cli.content_verification import NotHeld, compare_contents
from txlog.client import MasterClient, MasterUnreachable, WorkerStatus
from txlog.model.errors import TxLogError, Unavailable

JOIN_S: Final = 120.0
SETTLE_S: Final = 180.0
START_S: Final = 900.0
"""For all pipelines, also where the processor is busy."""
WORK_S: Final = 180.0
"""For all workers, once every pipeline follows the log: what is left is to make them anew and to catch up."""
SPLIT_EACH_S: Final = 30.0
"""From the beginning of one split to that of the next; the other faults have the time between."""


@dataclass
class PhaseResult:
    """What one phase has seen. Texts name what is wrong, the faults before it and where the logs are."""

    strategy: str
    faults: dict[str, int] = field(default_factory=dict)
    acknowledged: int = 0
    unknown: int = 0
    splits: int = 0
    pauses: int = 0
    checks: int = 0
    lost: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)
    disordered: list[str] = field(default_factory=list)
    unequal: list[str] = field(default_factory=list)
    false_splits: list[str] = field(default_factory=list)
    missed_splits: list[str] = field(default_factory=list)
    contradictions: list[str] = field(default_factory=list)
    """Of writes that need a quorum: answers that log and masters do not agree with."""
    told: dict[str, int] = field(default_factory=dict)
    """Of these, how often clients were told what, and how many they sent again."""
    wrong: list[str] = field(default_factory=list)
    """Anything else: it does not come together again, a client met an error that it must not meet."""
    stalls: int = 0
    seconds: float = 0.0

    @property
    def is_clean(self) -> bool:
        return not any(texts for texts in vars(self).values() if isinstance(texts, list))


class SoakPhase:
    def __init__(
        self, strategy: str, folder: Path, seed: int, per_s: float, shape: ClusterShape, *, synchronous: bool = False
    ) -> None:
        """``synchronous``: a third of the graphs that clients write need a quorum."""
        self.found = PhaseResult(strategy)
        self._shape = shape
        self._strategy = strategy
        self._folder = folder
        self._seed = seed
        self._per_s = per_s
        self._draw = random.Random(f"{seed}.{strategy}")
        self._fault_log = FaultLog(self._log_fault)
        self._known: set[ObservedSplit] = set()
        self._arena: SupervisedCluster
        self._load: SoakLoad
        self._lane: FaultLane
        self._targets: SoakBackupTargets
        self._rules = RULES[:1] if synchronous else ()
        self._quorum_load: QuorumLoad | None = None

    @property
    def _majority(self) -> bool:
        return self._strategy == "Majority"

    @property
    def _in_s3(self) -> int | None:
        """Which data centre's backups of splits go to an S3 store, by the seed; None where nobody backs up."""
        if self._majority or self._shape.is_lone:
            return None
        return random.Random(f"{self._seed}.{self._strategy}.targets").randrange(2)

    def run(self, seconds: float) -> PhaseResult:
        """Faults for so many seconds; not counted are the start, the last look, and when the machine stood still. Never
        raises for what it finds."""
        began = time.monotonic()
        over = threading.Event()
        watch = threading.Thread(target=self._fault_log.watch, args=(over,), daemon=True)
        watch.start()
        try:
            with (
                self._shape.manifest_files(self._strategy, self._rules) as files,
                supervised_up(self._folder, files) as self._arena,
                targets_up(self._arena, self._in_s3) as self._targets,
            ):
                self._print_line(f"{self._strategy}: {', '.join(self._arena.nodes)}, logs in {self._arena.state.logs}")
                self._load = SoakLoad(self._arena, self._per_s, self._seed)
                self._arena.wait_applying(START_S)
                self._load.set_up()
                if self._rules:
                    self._quorum_load = QuorumLoad(self._arena, self._seed)
                self._lane = FaultLane(
                    self._arena, self._fault_log, random.Random(f"{self._seed}.{self._strategy}.stores")
                )
                try:
                    self._start_load()
                    self._lane.start()
                    self._faults(seconds)
                finally:
                    self._lane.stop()
                    self._stop_load()
                self._check_all(last=True)
        except (CannotMeasure, ExpectationMissed, TxLogError, OSError) as why:
            self.found.wrong.append(self._describe_finding(f"the phase of {self._strategy} ended early: {why}"))
        over.set()
        watch.join(5)
        found = self.found
        found.faults = dict(self._fault_log.counts())
        found.stalls = len(self._fault_log.stalls)
        found.seconds = time.monotonic() - began
        with suppress(AttributeError):  # it did not come so far
            found.acknowledged = self._load.acknowledged
            found.unknown = len(self._load.history) - found.acknowledged
            found.wrong += [self._describe_finding(text) for text in (*self._load.errors[:5], *self._lane.wrong)]
        return found

    def _start_load(self) -> None:
        self._load.start()
        if self._quorum_load is not None:
            self._quorum_load.clients.start()

    def _stop_load(self) -> None:
        self._load.stop()
        if self._quorum_load is not None:
            self._quorum_load.clients.stop()

    # -- faults

    def _faults(self, seconds: float) -> None:
        until = time.monotonic() + seconds - self._fault_log.stalled_s
        others = ShuffledDeck(self._shape.faults, self._draw)
        ways = ShuffledDeck(SPLIT_VARIANTS if self._majority else (*SPLIT_VARIANTS, *BACKUP_SPLIT_VARIANTS), self._draw)
        next_split = time.monotonic() + SPLIT_EACH_S / 3
        while time.monotonic() < until + self._fault_log.stalled_s and not self.found.wrong:
            # A Spark application takes minutes to start where the processor is busy. Masters can have faults meanwhile.
            if time.monotonic() >= next_split and not self._arena.late_pipelines():
                next_split = time.monotonic() + SPLIT_EACH_S
                way = ways.draw()
                if self._shape.is_lone:
                    self._check_all()
                elif way is None:
                    self._pause()
                else:
                    self._split(way)
                next_split = max(next_split, time.monotonic() + SPLIT_EACH_S / 4)
            else:
                self._inject_harmless(others.draw())

    def _inject_harmless(self, fault: Callable[[SupervisedCluster, random.Random, FaultLog], None]) -> None:
        """One that must not split anything."""
        began = time.time()
        try:
            fault(self._arena, self._draw, self._fault_log)
        except (CannotMeasure, TxLogError) as why:
            self.found.wrong.append(self._describe_finding(f"{fault.__name__}: {why}"))
            return
        self._await_joined()
        for parting in self._unexplained_splits():
            if self._fault_log.stalled(began - gentle.LAG_S, time.time()):
                self._print_line(f"{parting}, while the machine stood still")
            elif gentle.silence_was_too_long(self._fault_log, parting.started_at):
                self._print_line(f"{parting}: the machine was too busy to end {fault.__name__} in time")
            else:
                self.found.false_splits.append(
                    self._describe_finding(f"{parting} at {format_clock(parting.started_at)}", parting.started_at)
                )

    def _pause(self) -> None:
        self._print_line("a master stands still beyond maxPeerLag")
        before, began = self._restores(), time.time()
        try:
            with self._lane.paused():
                self._await_working_workers()
                pause_long(self._arena, self._draw, self._fault_log)
                self._await_joined()
        except ExpectationMissed as missed:
            self._record_missed(missed, began)
        else:
            self.found.pauses += 1
        self._unexplained_splits()
        if self._check_all() and self._restores() != before:
            self.found.false_splits.append(
                self._describe_finding("a worker had to go back although a master only stood still")
            )

    def _split(self, way: Callable[[SplitFault], None]) -> None:
        split = SplitFault(self._arena, self._fault_log, self._draw, self._targets, majority=self._majority)
        began = time.time()
        missed: ExpectationMissed | None = None
        self._print_line(f"split: {way.__name__}")
        with self._lane.paused():
            self._await_working_workers()
            try:
                way(split)
            except ExpectationMissed as why:
                missed = why
            except (CannotMeasure, TxLogError) as why:
                self.found.wrong.append(self._describe_finding(f"{way.__name__}: {why}"))
            self._await_joined()
        new = self._unexplained_splits()
        if missed is None and not new:
            missed = ExpectationMissed("nobody went on without the others, as /txlog/splits tells")
        if missed is not None:
            self._record_missed(missed, began)
        elif self._check_all():
            self.found.splits += 1

    def _record_missed(self, missed: ExpectationMissed, began: float) -> None:
        if self._fault_log.stalled(began, time.time()):
            self._print_line(f"{missed}; the machine stood still meanwhile, so that says nothing")
            return
        self.found.missed_splits.append(self._describe_finding(str(missed)))

    def _await_working_workers(self) -> None:
        """Until every master knows its workers to work: without one there is no backup, and nobody may go on. A Spark
        application that was killed is waited for first; where the processor is busy its start takes minutes."""
        last, late = "nothing", list[str]()
        try:
            for _ in active_ticks(START_S):
                late = self._arena.late_pipelines()
                if not late:
                    break
            else:
                raise CannotMeasure(f"{', '.join(late)}: not at work {START_S:g} s after the last start")
        except CannotMeasure as why:
            self.found.wrong.append(self._describe_finding(str(why)))
            return
        for _ in active_ticks(WORK_S):
            try:
                told = [worker for url in self._arena.masters for worker in _workers(url)]
                last = ", ".join(f"{worker.name} {worker.state}" for worker in told if worker.state != "Working")
            except TxLogError as not_now:
                last = str(not_now)
            if not last:
                return
        self.found.wrong.append(
            self._describe_finding(
                f"not every worker works {WORK_S:g} s after the last fault of any, and all pipelines: {last}"
            )
        )

    def _await_joined(self) -> None:
        """Until all masters are in one view again; else this phase is over."""
        try:
            self._arena.wait_joined(JOIN_S)
        except CannotMeasure:
            states = []
            for node in self._arena.nodes:
                try:
                    status = self._arena.status(node)
                    states.append(f"{node} {status.state} in {status.view.number}: {status.view.holding}")
                except TxLogError as silent:
                    states.append(f"{node}: {silent}")
            text = f"not in one view after {JOIN_S:g} s: {'; '.join(states)}"
            self.found.wrong.append(self._describe_finding(text))

    def _unexplained_splits(self) -> list[ObservedSplit]:
        now = observed_splits(self._arena)
        new = sorted(now - self._known, key=lambda parting: parting.started_at)
        self._known |= now
        return new

    def _restores(self) -> int:
        done = self._arena.state.read("duties.json", {}).get("done", [])
        return sum(1 for duty in done if duty["kind"] == "restore")

    # -- looking

    def _check_all(self, *, last: bool = False) -> bool:
        """Let everything come to rest; look at the logs and the workers. Whether all was well."""
        if self.found.wrong and not last:
            return False
        with self._lane.paused():
            self._stop_load()
            try:
                self._await_converged()
                judged = self._judge_logs(last=last)
            except (CannotMeasure, TxLogError) as why:
                self.found.wrong.append(self._describe_finding(str(why)))
                return False
            finally:
                if not last:
                    self._start_load()
        self.found.checks += 1
        new = self._record_findings(judged)
        counts = self._fault_log.counts()
        self._print_line(
            f"  {sum(counts.values())} faults, {self._load.acknowledged:,} acknowledged, {self.found.splits} splits; "
            + ("NOT CLEAN" if new else "clean")
        )
        return not new

    def _await_converged(self) -> None:
        """Until one log is everywhere, and no duty is left."""
        until = time.monotonic() + SETTLE_S
        while True:
            self._arena.wait_converged(max(1.0, until - time.monotonic()))
            open_ = []
            for url in self._arena.masters:
                with MasterClient(url, 5.0) as master:
                    open_ += [str(duty["id"]) for duty in master.duties()]
            if not open_:
                return
            if time.monotonic() > until:
                raise CannotMeasure(f"duties that nobody performs: {', '.join(sorted(set(open_)))}")
            time.sleep(0.2)

    def _side_of(self, node: str) -> str:
        """Whoever parted together: the data centre, unless one has been split in itself."""
        if self._fault_log.counts()[CUT_INSIDE_DATA_CENTER]:
            return node
        return next(master.data_center for master in self._arena.topology.masters if master.node == node)

    def _judge_logs(self, *, last: bool) -> Verdict:
        arena, history = self._arena, self._load.history
        judged = Verdict()
        log: list[LogRecord] = []
        for url in arena.masters if last else [self._draw.choice(arena.masters)]:
            log = read_log(url)
            judged.add(judge_log(history, without_quorum_writes(log), self._side_of, moves=not self._majority))
        if self._quorum_load is not None:
            texts = self._quorum_load.judge(keeps_places=self._strategy != "Simple", last=last)
            self.found.contradictions += [self._describe_finding(text) for text in texts]
            self.found.told = self._quorum_load.told()
        if not self._digests_equal():
            judged.differs.append(f"the workers' digests differ, look {self.found.checks + 1}")
        replay = LogReplay()
        replay.run(log)
        wanted = replay.quads()
        for worker in arena.topology.workers if last else [self._draw.choice(arena.topology.workers)]:
            held = parse_dump(http_get(worker.url, "/store", "application/n-quads", 120.0))
            judged.add(judge_worker(worker.name, wanted, held))
        return judged

    def _digests_equal(self) -> bool:
        """Of all workers. A busy machine may need a second try to stop them all at one index."""
        for again in (True, False):
            try:
                return compare_contents(self._arena.masters_by_data_center, SETTLE_S).equal
            except (MasterUnreachable, NotHeld, Unavailable) as not_now:
                if not again:
                    raise
                self._print_line(f"the digests again: {not_now}")
        raise AssertionError("unreachable")

    def _record_findings(self, judged: Verdict) -> int:
        """Each finding once, with what came before it. How many are new."""
        new = 0
        ended = {op.name: op.ended_at + self._load.clock for op in self._load.history}
        pairs = (
            (self.found.lost, judged.lost),
            (self.found.doubled, judged.doubled),
            (self.found.foreign, judged.foreign),
            (self.found.disordered, judged.disordered),
            (self.found.unequal, judged.differs),
        )
        for kept, texts in pairs:
            known = {text.partition(" | ")[0] for text in kept}
            for text in texts:
                if text not in known:
                    new += 1
                    kept.append(self._describe_finding(text, ended.get(text.partition(" ")[0], time.time())))
        return new

    def _describe_finding(self, text: str, at: float | None = None) -> str:
        at = time.time() if at is None else at
        where = f"logs: {self._folder / 'logs'}"
        line = f"{text} | {self._strategy}, {format_clock(at)}; before it: {self._fault_log.faults_before(at)}; {where}"
        self._print_line(f"WRONG: {line[:800]}")
        return line

    def _log_fault(self, fault: InjectedFault) -> None:
        with open(self._folder / "logs" / "faults.log", "a") as log:
            log.write(f"{fault}\n")

    def _print_line(self, text: str) -> None:
        console.print(f"{format_clock(time.time())} {text}", highlight=False, markup=False)


def _workers(url: str) -> list[WorkerStatus]:
    with MasterClient(url, 5.0) as master:
        return master.workers()
