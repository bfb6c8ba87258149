"""``python -m e2e.scenarios.bulk_faults``: a bulk load is in everywhere or nowhere, whatever fails.

Real masters, pipelines and stores of two data centres, under clients that write and read. Each load stops itself at a
step (:mod:`e2e.lib.cluster.stopped_loads`, and *landing*: a store has the mark of the load). There one fault is made:

=========== ================================================================================================
killed      kill -9 of the command, a master, a pipeline or a store
no room     the target takes no further file of the command
damaged     a bit of a part is flipped, on the first target or the second
slow        a store is stopped for some seconds
split       the data centres lose each other until both have a view of their own, and are joined
twice       two commands of the same file
abort       ``txlog bulk abort`` of what a killed command has left
=========== ================================================================================================

Then the command is repeated until it ends well. After each: the entry is in force once, every store has each quad of
the load but those that a client deleted behind it, and clients' transactions are there once. No read saw a part.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple

from e2e.lib.checks import Verdict, check_counters, check_log, check_worker
from e2e.lib.cluster.local import run_txlog
from e2e.lib.cluster.stopped_loads import STEPS, CommandEnd, LoadCommand
from e2e.lib.cluster.supervised import SupervisedCluster, supervised_up
from e2e.lib.cluster.tried_loads import PartialReads, TriedLoad, read_system
from e2e.lib.history import counter_raises, logged_operations
from e2e.lib.load.writers import RetryingSender, WriteClients, WriteMix, rotated
from e2e.lib.readers import read_log, read_worker
from e2e.lib.report import BenchReport, CannotMeasure, build_table, console, print_table
from e2e.lib.wait import NotYet, wait_until
from e2e.scenarios.split_demo import SIDES, SplitScenario, manifests
from txlog.cli.content_verification import compare_contents
from txlog.client.bulk_calls import BulkCalls

STATE: Final = Path(".txlog-bulk-faults")
QUADS: Final = 45_000
"""The store sorts them at the end of the body, so that a load lands for long enough to be met."""
LANDING: Final = "landing"
VICTIMS: Final = ("command", "master", "pipeline", "store")
REPEATS_MAX: Final = 6
MET_MAX: Final = 3
"""So often a load is begun to meet it while it lands."""
SLOW_S: Final = 12.0
SLOW_LANDING_S: Final = 40.0
"""Longer than a lane waits for any other answer."""
READY_S: Final = 240.0
SETTLE_S: Final = 240.0
CLIENTS: Final = 3
IN_ALREADY: Final = "in the cluster already"
MIX: Final = WriteMix(pause_s=0.4, applied_every=3)


class LandingMissed(Exception):
    """The load was in before it was seen to land."""


Plant = Callable[[TriedLoad, LoadCommand], CommandEnd]


class FaultCase(NamedTuple):
    """``plant``: makes the fault while the command is stopped at ``step``, lets it go on, and returns how it ended.
    ``error``: what the command has to name, in place of its success."""

    step: str
    fault: str
    plant: Plant
    error: str = ""

    @property
    def name(self) -> str:
        return f"{self.step}: {self.fault}"


class FaultRow(NamedTuple):
    """Of one case. ``repeats``: of the command, until it ended well."""

    case: str
    ended: str
    repeats: int
    seconds: float
    found: list[str]


class BulkFaults:
    """One cluster, and all cases."""

    def __init__(self, cluster: SupervisedCluster, clients: WriteClients, folder: Path, quads: int, seed: int) -> None:
        self.cluster, self.clients = cluster, clients
        self._folder, self._quads = folder, quads
        self._chance = random.Random(seed)
        self._number = 0
        self.rows: list[FaultRow] = []
        self.reads = PartialReads(cluster)
        self.killed = self.missed = 0

    def cases(self) -> Iterator[FaultCase]:
        """Every step with every victim, then the other faults."""
        for step in STEPS:
            for victim in VICTIMS:
                yield FaultCase(step, f"{victim} killed", self._kill_at(victim))
        for victim in VICTIMS:
            yield FaultCase(LANDING, f"{victim} killed", self._kill_landing(victim))
        for step in ("writing", "written", "deciding", "appended"):
            yield FaultCase(step, "no room", self._without_room, "TargetFull")
        yield FaultCase("written", "part damaged", self._damage_at(SIDES[0]), "PartDamaged")
        yield FaultCase("copied", "copy damaged", self._damage_at(SIDES[1]), "PartDamaged")
        yield FaultCase("decided", "copy damaged and store killed", self._damage_decided)
        yield FaultCase("sending", "slow store", self._slow)
        yield FaultCase("deciding", "slow store", self._slow)
        yield FaultCase(LANDING, "slow store", self._slow_landing)
        yield FaultCase("copied", "twice", self._twice)
        for step in ("writing", "held", "decided"):
            yield FaultCase(step, "command killed, then abort", self._abort)
        for step in ("held", "decided"):
            yield FaultCase(step, "split", self._split)

    def run(self, case: FaultCase) -> None:
        """One case, from its file to its row."""
        began, seen = time.monotonic(), len(self.reads.partial)
        self.clients.start()
        try:
            tried, ended = self._meet(case)
            found = self._judge_end(case, tried, ended)
            repeats = self._repeat(tried, ended)
            if not tried.is_deleted:
                tried.delete_some(self.cluster.masters)
        finally:
            self.clients.stop()
        self._settle()
        found += tried.find_faults() + self.reads.partial[seen:]
        tried.drop()
        how = {0: "well", -signal.SIGKILL: "killed"}.get(ended.code, ended.text.strip().partition(":")[0][:40])
        self.rows.append(FaultRow(case.name, how, repeats, time.monotonic() - began, found))
        console.print(
            f"{case.name}: ended {how}, {repeats} repeats, {self.rows[-1].seconds:.0f} s, "
            f"{'; '.join(found) or 'as it must be'}",
            highlight=False,
            markup=False,
        )

    # -- a load

    def _meet(self, case: FaultCase) -> tuple[TriedLoad, CommandEnd]:
        for _ in range(MET_MAX):
            self._await_ready()
            self._await_forgotten()
            tried = self._new_round()
            command = LoadCommand(tried.file, self.cluster.state.root, "decided" if case.step == LANDING else case.step)
            try:
                command.wait_stopped()
                return tried, case.plant(tried, command)
            except LandingMissed as missed:
                self.missed += 1
                console.print(f"{case.name}: {missed}", highlight=False, markup=False)
                self._repeat(tried, command.wait())
                tried.drop()
            finally:
                command.close()
        raise CannotMeasure(f"{case.name}: not met in {MET_MAX} loads")

    def _new_round(self) -> TriedLoad:
        self._number += 1
        made = TriedLoad(self.cluster, self._folder, self._number, self._quads)
        self.reads.watch(made)
        return made

    def _judge_end(self, case: FaultCase, tried: TriedLoad, ended: CommandEnd) -> list[str]:
        """What is wrong before the command is repeated."""
        found = []
        if case.error and (ended.code == 0 or case.error not in ended.text):
            found.append(f"the command did not name {case.error}: {ended}")
        if ended.code != 0 and tried.folder_at(SIDES[0]).read_decision() is None:
            found += [f"nothing is decided, and {trace}" for trace in tried.find_traces()]
        return found

    def _repeat(self, tried: TriedLoad, ended: CommandEnd) -> int:
        """As a user does until the load is in. How often."""
        for repeats in range(REPEATS_MAX):
            if ended.code == 0 or IN_ALREADY in ended.text:
                return repeats
            if ended.code > 0:
                console.print(f"  {ended.text.strip()[-400:]}", highlight=False, markup=False)
            self._await_ready()
            ended = LoadCommand(tried.file, self.cluster.state.root).wait()
        raise CannotMeasure(f"the load is not in after {REPEATS_MAX} repeats: {ended.text.strip()[-400:]}")

    def _await_ready(self) -> None:
        def probe() -> bool:
            states = {name: found.state for name, found in self.cluster.workers().items()}
            if set(states.values()) != {"Working"} or len(states) < len(self.cluster.topology.workers):
                raise NotYet(f"{states}")
            return self.cluster.is_joined() and not self.cluster.late_pipelines()

        wait_until("all masters are joined, and all workers work", READY_S, probe, pause_s=0.2)

    def _await_forgotten(self) -> None:
        """What a killed command has asked for is forgotten after half a minute; another load is refused until then."""

        def probe() -> bool:
            prepared = [load for load in map(find_prepared, self.cluster.masters) if load]
            if prepared:
                raise NotYet(f"{prepared} are prepared")
            return True

        wait_until("no load is prepared", READY_S, probe, pause_s=0.2)

    def _settle(self) -> None:
        self.cluster.wait_converged(SETTLE_S)

    # -- faults

    def _pick(self, victim: str) -> str:
        names = {
            "master": list(self.cluster.nodes),
            "pipeline": [f"{side}-pipeline" for side in SIDES],
            "store": [worker.name for worker in self.cluster.topology.workers],
        }
        return self._chance.choice(names[victim])

    def _kill(self, name: str) -> None:
        wait_until(f"{name} runs", READY_S, lambda: self.cluster.kill(name))
        self.killed += 1

    def _kill_at(self, victim: str) -> Plant:
        def plant(tried: TriedLoad, command: LoadCommand) -> CommandEnd:
            if victim == "command":
                self.killed += 1
                return command.kill()
            self._kill(self._pick(victim))
            command.resume()
            return command.wait()

        return plant

    @contextmanager
    def _landing(self, tried: TriedLoad, command: LoadCommand) -> Iterator[str]:
        """A store that has the mark of the load, stopped, and a client's transaction behind the load. The store goes on
        at the end, if it was not killed."""
        name = self._pick("store")
        pid = self.cluster.pids()[name]
        command.resume()
        until = time.monotonic() + READY_S
        while not read_system(self.cluster, name).loading:
            if command.has_ended() or time.monotonic() > until:
                raise LandingMissed(f"{name} was not seen to take the load in")
        os.kill(pid, signal.SIGSTOP)
        try:
            tried.delete_some(self.cluster.masters)
            yield name
        finally:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    def _kill_landing(self, victim: str) -> Plant:
        def plant(tried: TriedLoad, command: LoadCommand) -> CommandEnd:
            with self._landing(tried, command) as store:
                if victim == "command":
                    self.killed += 1
                    return command.kill()
                side = next(each.data_center for each in self.cluster.topology.workers if each.name == store)
                names = {"store": store, "pipeline": f"{side}-pipeline"}
                self._kill(names.get(victim) or self._pick(victim))
            return command.wait()

        return plant

    def _without_room(self, tried: TriedLoad, command: LoadCommand) -> CommandEnd:
        command.fill_disk()
        command.resume()
        return command.wait()

    def _flip_bit(self, file: Path) -> None:
        data = bytearray(file.read_bytes())
        data[self._chance.randrange(len(data))] ^= 1
        file.write_bytes(data)

    def _damage_at(self, side: str) -> Plant:
        def plant(tried: TriedLoad, command: LoadCommand) -> CommandEnd:
            self._flip_bit(tried.part_at(side))
            command.resume()
            return command.wait()

        return plant

    def _damage_decided(self, tried: TriedLoad, command: LoadCommand) -> CommandEnd:
        """The store loses what it held, and finds no sound part until it is copied from the other data centre."""
        (store,) = [each.name for each in self.cluster.topology.workers if each.data_center == SIDES[1]]
        part = tried.part_at(SIDES[1])
        self._flip_bit(part)
        self._kill(store)
        command.resume()

        def is_named() -> bool:
            found = self.cluster.workers()[store]
            return found.state == "Blocked" and part.name in str(found.error)

        wait_until(f"{store} names the damaged part", READY_S, is_named)
        shutil.copyfile(tried.part_at(SIDES[0]), part)
        return command.wait()

    def _slow(self, tried: TriedLoad, command: LoadCommand) -> CommandEnd:
        pid = self.cluster.pids()[self._pick("store")]
        os.kill(pid, signal.SIGSTOP)
        command.resume()
        time.sleep(SLOW_S)
        os.kill(pid, signal.SIGCONT)
        return command.wait()

    def _slow_landing(self, tried: TriedLoad, command: LoadCommand) -> CommandEnd:
        with self._landing(tried, command):
            time.sleep(SLOW_LANDING_S)
        return command.wait()

    def _twice(self, tried: TriedLoad, command: LoadCommand) -> CommandEnd:
        second = LoadCommand(tried.file, self.cluster.state.root)
        command.resume()
        ends = [command.wait(), second.wait()]
        for end in ends:
            if end.code != 0 and IN_ALREADY not in end.text:
                raise CannotMeasure(f"of two commands of the same file one ended so: {end}")
        return ends[0]

    def _abort(self, tried: TriedLoad, command: LoadCommand) -> CommandEnd:
        """Before the decision the load never happens, and behind it an abort is refused."""
        ended = command.kill()
        self.killed += 1
        folder = tried.folder_at(SIDES[0])
        is_decided, refusal = folder.read_decision() is not None, ""
        try:
            run_txlog("bulk", "abort", folder.load, "--yes", "--state", self.cluster.state.root)
        except CannotMeasure as refused:
            refusal = str(refused)
        if ("cannot be aborted" in refusal) != is_decided or bool(refusal) != is_decided:
            raise CannotMeasure(f"decided: {is_decided}, and the abort: {refusal or 'done'}")
        return ended

    def _split(self, tried: TriedLoad, command: LoadCommand) -> CommandEnd:
        story = SplitScenario(self.cluster)
        story.cut()
        try:
            command.resume()
            story.wait_state("Isolated", SETTLE_S)
            ended = command.wait()
        finally:
            story.heal()
        story.wait_state("Joined", SETTLE_S)
        return ended


def find_prepared(url: str) -> str:
    """The load that a master's data centre prepares; empty: none."""
    calls = BulkCalls(url, 5.0)
    try:
        found = calls.describe().preparing
    finally:
        calls.close()
    return "" if found is None else found.id


# -- the end


def check_clients(faults: BulkFaults) -> tuple[Verdict, list[str]]:
    """Every log and every store against what clients were answered. A split may move what was acknowledged, so the
    order is another command's (``make soak``)."""
    verdict, counters = Verdict(), list[str]()
    history = faults.clients.history
    for url in faults.cluster.masters:
        log = read_log(url)
        verdict.add(check_log(history, logged_operations(log)))
    raised = counter_raises(log)
    for worker in faults.cluster.topology.workers:
        names, values = read_worker(faults.cluster, worker.name)
        verdict.add(check_worker(history, names))
        counters += [f"{worker.name}: {wrong}" for wrong in check_counters(raised, values)]
    return verdict, counters


def run_faults(folder: Path, quads: int, seed: int, only: Sequence[str], report: BenchReport) -> None:
    """``only``: words of the names of cases; empty: all of them."""
    folder.mkdir(parents=True)
    with manifests(lag="5s") as manifest, supervised_up(folder / "state", manifest) as cluster:
        sender = RetryingSender(cluster.repository, f"bulk-faults-{seed}")
        clients = WriteClients(sender, {at: rotated(cluster.masters, at) for at in range(CLIENTS)}, MIX, seed)
        clients.reset_counters()
        cluster.wait_applying(READY_S)
        faults = BulkFaults(cluster, clients, folder, quads, seed)
        with faults.reads.running():
            for case in faults.cases():
                if not only or any(words in case.name for words in only):
                    with report.part(case.name, OSError, subprocess.SubprocessError):
                        faults.run(case)
        _conclude(faults, report)


def _conclude(faults: BulkFaults, report: BenchReport) -> None:
    rows = [(row.case, row.ended, row.repeats, row.seconds, "; ".join(row.found) or "-") for row in faults.rows]
    print_table(build_table("bulk loads", ("step: fault", "ended", "repeats", "s", "wrong"), rows))
    faults.cluster.wait_converged(SETTLE_S)
    verdict, counters = check_clients(faults)
    report.figure("cases", len(faults.rows))
    report.figure("kills", faults.killed)
    report.figure("not_met", faults.missed)
    report.at_most("repeats", max((row.repeats for row in faults.rows), default=None), 1)
    report.equal("wrong", sum(bool(row.found) for row in faults.rows), 0)
    report.at_least("reads", faults.reads.reads, 1)
    report.equal("partial", len(faults.reads.partial), 0)
    for name in ("lost", "doubled", "foreign"):
        report.equal(name, len(verdict.findings[name]), 0)
    report.equal("counters", len(counters), 0)
    report.at_least("acknowledged", faults.clients.acknowledged, 1)
    report.require("no client was refused", not faults.clients.errors, "; ".join(faults.clients.errors[:2]) or "none")
    equal = compare_contents(faults.cluster.masters_by_data_center, 120).equal
    report.require("all stores hold the same", equal)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m e2e.scenarios.bulk_faults", description="bulk loads under faults; see the module's head"
    )
    parser.add_argument("--state", type=Path, default=STATE)
    parser.add_argument("--quads", type=int, default=QUADS)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--only", default="", help='words of cases with commas, such as "landing: store"')
    options = parser.parse_args(arguments)
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(1 << 32)
    report = BenchReport("make bulk-faults")
    report.figure("seed", seed)
    folder = options.state.absolute()
    words = [word for word in options.only.split(",") if word]
    return report.end_in_folder(
        "bulk loads under faults", folder, lambda: run_faults(folder, options.quads, seed, words, report)
    )


if __name__ == "__main__":
    sys.exit(main())
