"""``python -m e2e.scenarios.recovery_crashes``: whatever dies at whatever step of a split's recovery, it goes on.

One cluster, split and healed again and again. Each time one process is killed (kill -9) at one step:

=========== ==================================================================================================
step        when
=========== ==================================================================================================
suspected   a side misses the other, and no backup was begun
backing up  the process that makes a split backup runs
isolated    both sides go on alone
rejoining   the links are healed, and some master has left its state: it has stopped its view, or is in the next one
restoring   the process that makes a worker anew runs
replaying   the worker has what it was restored from, and not yet what the log has behind that
=========== ==================================================================================================

The victims: who coordinates, the losing side's member, another one of the winner's, a worker that has to go back, the
Spark driver that feeds it, and the process of the duty itself. ``--strategy``: under Simple nobody wins, and the
workers of both sides go back. After each: all joined, one log with every acknowledged transaction once, equal digests.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from e2e.lib.cluster.local import LocalCluster, cluster_up
from e2e.lib.report import BenchReport, CannotMeasure, build_table, console, print_table
from e2e.lib.wait import wait_until
from e2e.scenarios.split_demo import SIDES, SplitScenario, manifests
from txlog.cli.content_verification import compare_contents
from txlog.client import MasterClient, WriteRequest
from txlog.model.durability import Durability
from txlog.model.errors import TxLogError
from txlog.workers import ADAPTERS
from txlog.workers.http_transport import HttpTransport

STATE: Final = Path(".txlog-recovery")
STEPS: Final = ("suspected", "backing up", "isolated", "rejoining", "restoring", "replaying")
SKIPPABLE_STEPS: Final = ("backing up", "restoring")
"""Steps that are a process of their own."""
DATABASE: Final = 40
"""Transactions of :data:`QUADS` quads, so that a backup and a restore last long enough to be met."""
QUADS: Final = 2_000
REPLAYED: Final = 2_000
"""Transactions of each side while they are apart, so that a replay lasts long enough to be met."""
STEP_S: Final = 90.0
SETTLE_S: Final = 240.0


class StepMissed(Exception):
    """The step was over before its process was seen; nothing was killed."""


def find_victims(cluster: LocalCluster) -> dict[str, str]:
    """Role to process. The coordinator is the first in order; the side with less weight goes back."""
    losing = SIDES[1]
    worker = next(w.name for w in cluster.topology.workers if w.data_center == losing)
    member = next(m.node for m in cluster.topology.masters if m.data_center == losing)
    return {
        "coordinator": cluster.topology.masters[0].node,
        "member": member,
        "winner's member": cluster.topology.masters_of(SIDES[0])[-1].node,
        "worker": worker,
        "Spark driver": f"{losing}-pipeline",
    }


class CrashAttempt:
    """One split, one kill."""

    def __init__(self, cluster: LocalCluster, step: str, role: str) -> None:
        self.cluster = cluster
        self.story = SplitScenario(cluster)
        self.step = step
        self.role = role
        self.killed = 0
        self._number = 0

    def run(self) -> float:
        """Seconds from the healed links until everything has come to rest."""
        self._write("before", Durability.SYNCED)
        self.story.cut()
        try:
            self._write("while it waits", Durability.ACCEPTED)
            if self.step == "suspected":
                self._wait_until("somebody is missed", lambda: "Suspected" in self._states())
                self._kill()
            elif self.step == "backing up":
                self._kill_while("--backup")
            self._wait_until("each side goes on alone", self._has_split)
            self._write("alone", Durability.ACCEPTED, REPLAYED if self.step == "replaying" else 20)
            if self.step == "isolated":
                self._kill()
                self._wait_until("each side goes on alone again", self._has_split)
            self._wait_until("the losing side's worker has executed its own order", self._executed)
        finally:
            self.story.heal()
        began = time.monotonic()
        if self.step == "rejoining":
            self._wait_until("a view is stopped", lambda: set(self._states()) - {"Isolated"} != set(), pause_s=0.005)
            self._kill()
        elif self.step == "restoring":
            self._kill_while("--restore=")
        elif self.step == "replaying":
            self._await_replay()
            self._kill()
        self.story.wait_state("Joined", SETTLE_S)
        self.cluster.wait_converged(SETTLE_S)
        return time.monotonic() - began

    def violations(self) -> list[str]:
        """What must not be, afterwards."""
        found = self.story.violations()
        if not compare_contents(self.cluster.masters_by_data_center, 120).equal:
            found.append("the workers' digests differ")
        return found

    # -- pieces

    def _write(self, when: str, level: Durability, count: int = 20) -> None:
        for side in SIDES:
            self._number += 1
            graph = f"<https://txlog.example/graph/{self.step.replace(' ', '-')}>"
            about = f"<https://txlog.example/{self.role.replace(' ', '-')}/{side}/{self._number}>"
            rows = [
                WriteRequest(quads=f'{about} <https://txlog.example/said> "{when} {n}" {graph} .\n')
                for n in range(count)
            ]
            self.story.load(side, rows, level)

    def _has_split(self) -> bool:
        """Each side has a view of its own. A master whose end was proved is no reason to be Isolated."""
        try:
            for place in self.cluster.topology.masters:
                with MasterClient(place.url, 5.0) as master:
                    status = master.status()
                mine = {m.node for m in self.cluster.topology.masters_of(place.data_center)}
                inside = {str(member["node"]) for member in status.members}
                if inside != mine or not status.view.installed or status.state not in ("Isolated", "Joined"):
                    return False
        except TxLogError:
            return False
        return True

    def _states(self) -> list[str]:
        with contextlib.suppress(TxLogError):
            return list(self.story.states().values())
        return []

    def _executed(self) -> bool:
        ends = self.cluster.stable_ends()
        places = self.cluster.worker_indexes()
        losing = SIDES[1]
        end = max(ends[m.node][0] for m in self.cluster.topology.masters if m.data_center == losing)
        mine = [places.get(w.name, 0) for w in self.cluster.topology.workers if w.data_center == losing]
        return min(mine) >= end

    def _wait_until(self, what: str, is_so: Callable[[], bool], pause_s: float = 0.05) -> None:
        wait_until(what, STEP_S, is_so, pause_s)

    def _await_replay(self) -> None:
        """Until the worker that was made anew stands somewhere again, below the end of the log."""
        name = find_victims(self.cluster)["worker"]
        place = next(worker for worker in self.cluster.topology.workers if worker.name == name)
        adapter = ADAPTERS[place.engine]
        was_loading = False
        until = time.monotonic() + STEP_S
        with HttpTransport(place.url, 10.0) as transport:
            while time.monotonic() < until:
                system = adapter.parse_system_graphs(transport.send(adapter.read_system()))
                was_loading = was_loading or bool(system.loading)
                if was_loading and system.markers and not system.loading:
                    at, end = (
                        system.markers[-1].position.index,
                        max(end for end, _ in self.cluster.stable_ends().values()),
                    )
                    if at >= end:
                        raise StepMissed(f"{name} was at the end of the log, {end}, before it was seen at {at}")
                    return
                time.sleep(0.01)
        raise StepMissed(f"{name} was not seen to be restored within {STEP_S:g} s")

    def _kill(self) -> None:
        name = find_victims(self.cluster)[self.role]
        if self.cluster.kill(name) is None:
            raise CannotMeasure(f"{name} does not run, so it cannot be killed")
        self.killed += 1

    def _kill_while(self, way: str) -> None:
        """As soon as a duty's process runs; that very process when it is the victim."""
        until = time.monotonic() + STEP_S
        while time.monotonic() < until:
            pid = duty_process(self.cluster.state.root, way)
            if pid is None:
                time.sleep(0.01)
                continue
            if self.role != "duty":
                self._kill()
            else:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                    self.killed += 1
            return
        raise StepMissed(f"no process with {way} was seen within {STEP_S:g} s")


def duty_process(state: Path, way: str) -> int | None:
    """A process of ``txlog.backup.duty`` that works for this cluster in this way."""
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            words = (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        ours = "txlog.backup.duty" in words and any(str(state.resolve()) in word for word in words)
        if ours and any(word.startswith(way) for word in words):
            return int(folder.name)
    return None


def crash_cases(roles: list[str]) -> list[tuple[str, str]]:
    """Every step with every victim; the duty's own process where there is one."""
    return [(step, role) for step in STEPS for role in [*roles, *(["duty"] if step in SKIPPABLE_STEPS else [])]]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m e2e.scenarios.recovery_crashes", description="kill -9 at each step"
    )
    parser.add_argument("--state", type=Path, default=STATE)
    parser.add_argument("--strategy", choices=["Smart", "Simple"], default="Smart")
    parser.add_argument("--only", default="", help="steps or victims, separated by commas")
    options = parser.parse_args(arguments)
    only = [word for word in options.only.split(",") if word]
    report = BenchReport("make recovery-crashes")
    with (
        report.part("the scenarios"),
        manifests(lag="5s", recovery=options.strategy) as folder,
        cluster_up(options.state, (folder,)) as cluster,
    ):
        _run_all(cluster, report, only)
    return report.end()


def _run_all(cluster: LocalCluster, report: BenchReport, only: list[str]) -> None:
    cluster.wait_applying(240)
    first = SplitScenario(cluster)
    predicate = "<https://txlog.example/knows>"
    for number in range(DATABASE):
        quads = "".join(
            f"<https://txlog.example/{number}/{n}> {predicate} <https://txlog.example/{n}> .\n" for n in range(QUADS)
        )
        first.load(SIDES[0], [WriteRequest(quads=quads)], Durability.ACCEPTED)
    cluster.wait_converged(SETTLE_S)
    rows: list[list[str | float]] = []
    killed = 0
    for step, role in crash_cases(list(find_victims(cluster))):
        if only and step not in only and role not in only:
            continue
        attempt = CrashAttempt(cluster, step, role)
        try:
            took = attempt.run()
        except (StepMissed, CannotMeasure) as why:
            report.require(f"{role} killed while {step}", False, str(why))
            cluster.wait_converged(SETTLE_S)
            continue
        wrong = attempt.violations()
        killed += attempt.killed
        rows.append([step, role, round(took, 1), "; ".join(wrong[:2]) or "as it must be"])
        console.print(f"{step}, {role} killed: at rest {took:.1f} s after the links were healed", highlight=False)
        report.require(f"{role} killed while {step}", not wrong, "; ".join(wrong[:2]) or "goes on")
    print_table(build_table("kill -9 during a recovery", ("step", "killed", "at rest after, s", "found"), rows))
    report.figure("kills", killed)
    report.figure("scenarios", len(rows))


if __name__ == "__main__":
    sys.exit(main())
