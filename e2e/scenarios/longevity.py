"""``python -m e2e.scenarios.longevity``: the life of a cluster, as years of restarts and lost disks would make it.

Three masters in this one process, each with the real core, executor and journal on a disk: they are restarted one after
the other for 5,000 views and more, then lose 250 disks one after the other, while each writes. What a view change and a
transaction cost then is compared with a young cluster, in turns, so that a machine with other work slows down both.
Seconds are those of the wall clock, for the work of all three masters together.
"""

from __future__ import annotations

import argparse
import resource
import shutil
import sys
import time
from pathlib import Path
from typing import Final

from e2e.lib.cluster.in_process import InProcessCluster, TooSlow
from e2e.lib.report import BenchReport, Figure, build_table, console_for, median, print_table

STATE: Final = Path(".txlog-longevity")
NODES: Final = ("txlog-uk-0", "txlog-uk-1", "txlog-uk-2")
VIEWS: Final = 5000
BIRTHS: Final = 250
SAMPLE: Final = 100
"""Transactions that a figure is the median of."""
CHANGES: Final = 30
TRIM_EVERY: Final = 100
"""Restarts or disks between two trims of the log."""
SLOWER_MAX: Final = 1.2
VIEW_CHANGE_MS: Final = 50.0
MESSAGE_BYTES: Final = 65_536
JOURNAL_MB: Final = 256.0
MEMORY_MB: Final = 600.0
PROGRESS_S: Final = 10.0


class LongLife:
    """A cluster, and what has been measured of its life. ``change_ms``: of each change that a leave began;
    ``accepted``: transactions."""

    def __init__(self, folder: Path) -> None:
        self.cluster = InProcessCluster(folder, NODES)
        self.births = 0
        self.accepted = 0
        self.violations: list[str] = []
        self.change_ms: list[float] = []
        self._console = console_for(stderr=True)
        self._told_s = time.perf_counter()
        self._wait_for_all("the bootstrap")

    @property
    def views(self) -> int:
        """How many views there have been."""
        return self.cluster.executors[NODES[0]].core.views.number[0]

    def _wait_for_all(self, what: str) -> None:
        self.cluster.wait(lambda: self.cluster.in_view(*NODES), what)

    def synced_ms(self, node: str) -> float:
        """Until one transaction of this master is synced."""
        self.accepted += 1
        return 1000 * self.cluster.synced_s(node, f"measured {self.accepted}")

    def restart(self, node: str) -> None:
        """A rolling restart's part: leave, end, start, join."""
        others = [one for one in NODES if one != node]
        began = time.perf_counter()
        self.cluster.leave(node)
        self.cluster.wait(lambda: self.cluster.in_view(*others), f"a view without {node}")
        self.change_ms.append(1000 * (time.perf_counter() - began))
        self.cluster.kill(node)
        self.cluster.start(node)
        self._wait_for_all(f"{node} is back")
        self._tell()

    def lose_disk(self, node: str) -> None:
        """Its journal is gone; it joins with a new incarnation, and writes."""
        self.cluster.lose_disk(node)
        self.cluster.start(node)
        self._wait_for_all(f"{node} joins with an empty disk")
        self.births += 1
        self.cluster.submit(node, f"by incarnation {self.births}")
        self.accepted += 1
        self.cluster.run(50)
        self._tell()

    def check(self) -> None:
        """Every master has every transaction once, in the same order."""
        self.cluster.run(1000)
        logs = [self.cluster.log_state(node).log_index for node in NODES]
        if len({(log.length, log.hash) for log in logs}) != 1:
            self.violations.append("the logs differ")
        for node in NODES:
            stable = self.cluster.log_state(node).stable
            if stable != self.accepted:
                self.violations.append(f"{node}: {stable} of {self.accepted} transactions are in the log")
        listed = max(len(self.cluster.log_state(node).view.ancestors) for node in NODES)
        if listed > 2 * len(NODES):
            self.violations.append(f"a view lists {listed} ancestors")

    def _tell(self) -> None:
        now_s = time.perf_counter()
        if now_s - self._told_s > PROGRESS_S:
            self._told_s = now_s
            self._console.print(f"{self.views} views, {self.births} lost disks, {self.cluster.starts} starts")


def compare(young: LongLife, old: LongLife) -> tuple[float, float, float, float]:
    """Medians of both, in milliseconds: ``synced`` of the young and the old one, a view change of the young and the old
    one."""
    synced: tuple[list[float], list[float]] = ([], [])
    for number in range(SAMPLE):
        for one, found in zip((young, old), synced, strict=True):
            found.append(one.synced_ms(NODES[number % len(NODES)]))
    for number in range(CHANGES):
        for one in (young, old):
            one.restart(NODES[number % len(NODES)])
    young_ms, old_ms = (median(one.change_ms[-CHANGES:]) or 0.0 for one in (young, old))
    return median(synced[0]) or 0.0, median(synced[1]) or 0.0, young_ms, old_ms


def live(life: LongLife, young: LongLife, views: int, births: int) -> dict[str, float]:
    """The whole life; the medians of what was measured."""
    found: dict[str, float] = {}
    number = 0
    while life.views < views:
        life.restart(NODES[number % len(NODES)])
        number += 1
        if number % TRIM_EVERY == 0:
            life.cluster.trim()
            life.check()
    _, found["synced_p50_ms_after_views"], _, found["view_change_ms_after_views"] = compare(young, life)
    found["view_message_bytes_max"] = life.cluster.message_bytes_max
    for number in range(births):
        life.lose_disk(NODES[1 + number % 2])
        if number % TRIM_EVERY == 0:
            life.cluster.trim()
    names = ("synced_p50_ms_first", "synced_p50_ms_last", "view_change_ms_first", "view_change_ms_last")
    found.update(zip(names, compare(young, life), strict=True))
    life.check()
    life.cluster.trim()
    return found


def report_life(report: BenchReport, life: LongLife, found: dict[str, float], views: int, births: int) -> None:
    """The figures, and what each must be."""
    rows: list[list[Figure]] = [
        ["a young cluster, ms", found["view_change_ms_first"], found["synced_p50_ms_first"]],
        [f"after {views} views, ms", found["view_change_ms_after_views"], found["synced_p50_ms_after_views"]],
        [f"and {births} lost disks, ms", found["view_change_ms_last"], found["synced_p50_ms_last"]],
    ]
    print_table(build_table("a long life", ("median", "view change", "synced"), rows))
    report.at_least("views", life.views, views)
    report.at_least("births", life.births, births)
    report.figure("restarts", life.cluster.starts - len(NODES))
    report.at_most("journal_mb", life.cluster.journal_bytes / 1e6, JOURNAL_MB)
    report.at_most("message_bytes_max", life.cluster.message_bytes_max, MESSAGE_BYTES)
    report.figure("view_message_bytes_max", found["view_message_bytes_max"])
    report.at_most("memory_mb", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, MEMORY_MB)
    report.figure("synced_p50_ms_first", found["synced_p50_ms_first"])
    report.at_most("synced_p50_ms_last", found["synced_p50_ms_last"], SLOWER_MAX * found["synced_p50_ms_first"])
    report.figure("view_change_ms_first", found["view_change_ms_first"])
    report.at_most("view_change_ms_last", found["view_change_ms_last"], VIEW_CHANGE_MS)
    report.equal("violations", len(life.violations), 0)
    for text in life.violations[:3]:
        report.failed("every transaction is in every log once", text)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m e2e.scenarios.longevity", description="the life of a cluster")
    parser.add_argument("--state", type=Path, default=STATE, help="a folder for the journals; its content is removed")
    parser.add_argument("--views", type=int, default=VIEWS)
    parser.add_argument("--births", type=int, default=BIRTHS)
    options = parser.parse_args(arguments)
    report = BenchReport("make longevity")
    shutil.rmtree(options.state, ignore_errors=True)
    with report.part("a long life", TooSlow):
        life, young = LongLife(options.state / "old"), LongLife(options.state / "young")
        found = live(life, young, options.views, options.births)
        report_life(report, life, found, options.views, options.births)
    shutil.rmtree(options.state, ignore_errors=True)
    return report.end()


if __name__ == "__main__":
    sys.exit(main())
