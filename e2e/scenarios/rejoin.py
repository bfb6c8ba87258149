"""``python -m e2e.scenarios.rejoin``: how long it takes until two halves of a large database are one again, phase by
phase.

A database of real things is everywhere; the links are cut; each side takes many transactions of its own, the smaller
one among them some that wait for their order. When the links are healed: *agreeing* (until the first view of all
masters is installed), *restoring* (the losing side's workers go back), *replaying* (until every worker is at the end).
Meanwhile the winner's workers are asked all the time, the stores themselves and, as a client would, through every
master of the winner's side.
"""

from __future__ import annotations

import argparse
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from e2e.lib.cluster.local import LocalCluster, cluster_up
from e2e.lib.report import BenchReport, CannotMeasure, build_table, console, print_table, quantile
from e2e.lib.wait import NotYet, wait_until
from e2e.scenarios.split_demo import SIDES, SplitScenario, manifests
from txlog.cli.content_verification import compare_contents
from txlog.client import WriteRequest
from txlog.model.durability import Durability
from txlog.model.errors import TxLogError

STATE: Final = Path(".txlog-rejoin")
QUADS: Final = 500_000
TRANSACTIONS: Final = 10_000
"""Of each side while they are apart."""
QUADS_IN_WRITE: Final = 500
WRITES_AT_ONCE: Final = 500
PATIENCE_S: Final = 600.0
ANY_QUAD_QUERY: Final = "SELECT ?s { GRAPH ?g { ?s ?p ?o } } LIMIT 1"


def generate_database(quads: int) -> Iterator[WriteRequest]:
    """People who know people, some hundreds of quads in one transaction."""
    for first in range(0, quads, QUADS_IN_WRITE):
        rows = range(first, min(quads, first + QUADS_IN_WRITE))
        graph = f"<https://txlog.example/graph/{first // 50_000}>"
        yield WriteRequest(
            quads="".join(
                f"{_person(n)} <http://xmlns.com/foaf/0.1/knows> {_person(n * 7 + 1)} {graph} .\n" for n in rows
            )
        )


def _person(number: int) -> str:
    return f"<https://txlog.example/person/{number}>"


def side_writes(side: str, count: int) -> Iterator[WriteRequest]:
    """What one side writes: names, one transaction each."""
    graph = f"<https://txlog.example/graph/{side}>"
    for number in range(count):
        yield WriteRequest(quads=f'{_person(number)} <http://xmlns.com/foaf/0.1/name> "{side} {number}" {graph} .\n')


class ReaderThread(threading.Thread):
    """Asks all the time, until told to end. ``failed``: what went wrong; ``seconds``: of each answer that came with
    something in it: the database is there all the time, so an answer without a row is wrong, too."""

    def __init__(self, ask: Callable[[], list[list[str]]]) -> None:
        super().__init__(daemon=True)
        self.failed: list[str] = []
        self.seconds: list[float] = []
        self._ask = ask
        self._over = threading.Event()

    @classmethod
    def of_worker(cls, cluster: LocalCluster, worker: str) -> ReaderThread:
        """One that asks a store itself."""
        return cls(lambda: cluster.query_worker(worker, ANY_QUAD_QUERY))

    @classmethod
    def of_master(cls, cluster: LocalCluster, master: str) -> ReaderThread:
        """One that asks a master, ``GET /repositories/...``; nothing is asked twice, so a 503 is a failure."""
        return cls(lambda: cluster.query(master, ANY_QUAD_QUERY))

    def run(self) -> None:
        while not self._over.wait(0.02):
            began = time.perf_counter()
            try:
                rows = self._ask()
            except (TxLogError, CannotMeasure, OSError) as wrong:
                self.failed.append(str(wrong))
                continue
            if rows:
                self.seconds.append(time.perf_counter() - began)
            else:
                self.failed.append("an answer without a row")

    def stop(self) -> None:
        self._over.set()
        self.join()


def load_writes(story: SplitScenario, side: str, writes: Iterator[WriteRequest], level: Durability) -> float:
    """Many transactions, some hundreds in flight; how long it took."""
    began = time.monotonic()
    while part := [write for write, _ in zip(writes, range(WRITES_AT_ONCE), strict=False)]:
        story.load(side, part, level)
    return time.monotonic() - began


def _split_and_write(story: SplitScenario, count: int) -> dict[str, float]:
    """Cut, and ``count`` transactions on each side: a tenth while both still wait, the rest when each goes on alone."""
    early = count // 10
    writes = {side: side_writes(side, count) for side in SIDES}
    story.cut()
    for side in SIDES:
        load_writes(story, side, _first_writes(writes[side], early), Durability.ACCEPTED)
    seconds = {"until each went on alone, a backup made": story.wait_state("Isolated", PATIENCE_S)}
    for side in SIDES:
        seconds[f"{count - early:,} transactions in {side}, synced"] = load_writes(
            story, side, writes[side], Durability.SYNCED
        )
    return seconds


def _first_writes(writes: Iterator[WriteRequest], count: int) -> Iterator[WriteRequest]:
    for _ in range(count):
        yield next(writes)


def _wait_applied(cluster: LocalCluster) -> None:
    """Until every worker has executed what its own side has ordered."""

    def probe() -> bool:
        ends = {
            dc: max(end for node, (end, _) in cluster.stable_ends().items() if _data_center_of(cluster, node) == dc)
            for dc in SIDES
        }
        indexes = cluster.worker_indexes()
        behind = [w.name for w in cluster.topology.workers if indexes.get(w.name, 0) < ends[w.data_center]]
        if behind:
            raise NotYet(f"behind: {', '.join(behind)}")
        return True

    wait_until("all workers are at the end of their side's log", PATIENCE_S, probe, pause_s=0.1)


def _data_center_of(cluster: LocalCluster, node: str) -> str:
    return next(master.data_center for master in cluster.topology.masters if master.node == node)


def _measure(cluster: LocalCluster, report: BenchReport, quads: int, count: int, strategy: str) -> None:
    story = SplitScenario(cluster, lambda text: console.print(text, highlight=False))
    cluster.wait_applying(240)
    took = load_writes(story, SIDES[0], generate_database(quads), Durability.ACCEPTED)
    cluster.wait_converged(PATIENCE_S)
    phases = {f"{quads:,} quads taken": took}
    story.report_progress(f"{quads:,} quads are in every worker; now the links are cut")
    phases |= _split_and_write(story, count)
    _wait_applied(cluster)
    winners = [worker.name for worker in cluster.topology.workers if worker.data_center == SIDES[0]]
    readers = [ReaderThread.of_worker(cluster, name) for name in winners]
    door = [ReaderThread.of_master(cluster, url) for url in cluster.masters_by_data_center[SIDES[0]]]
    for reader in (*readers, *door):
        reader.start()
    began = time.monotonic()
    story.heal()
    phases["agreeing: from the healed links to one log"] = story.wait_state("Joined", PATIENCE_S)
    cluster.wait_converged(PATIENCE_S)
    phases["from the healed links until every worker is there"] = time.monotonic() - began
    for reader in (*readers, *door):
        reader.stop()
    split = story.report()[-1]
    for duty in split["duties"]:
        phases[f"{duty['kind']} of {duty.get('worker') or duty.get('name')}"] = float(duty.get("seconds") or 0.0)
    print_table(
        build_table(f"a rejoin under {strategy}", ("phase", "seconds"), [[k, round(v, 1)] for k, v in phases.items()])
    )
    report.figure("agreeing_s", phases["agreeing: from the healed links to one log"])
    report.figure("rejoined_s", phases["from the healed links until every worker is there"])
    _report_reads(report, "reads", "read_p99_ms", readers)
    _report_reads(report, "door_reads", "door_read_p99_ms", door)
    restored = split["restoredWorkers"]
    report.figure("restored", ", ".join(restored))
    report.at_least("moved", split["moved"], count - count // 10)  # the early ones may still have found their order
    report.equal("failed_reads", sum(len(reader.failed) for reader in readers), 0)
    failed = [why for reader in door for why in reader.failed]
    if strategy == "Smart":
        report.equal("failed_door_reads", len(failed), 0)
        report.require("the winner's workers stay as they are", not set(restored) & set(winners), ", ".join(restored))
    else:  # whoever wins, its only worker may have to go back: then nobody could answer
        report.figure("failed_door_reads", len(failed))
    for why in failed[:3]:
        console.print(f"[red]through the door: {why}[/red]", highlight=False)
    report.equal("digests_equal", compare_contents(cluster.masters_by_data_center).equal, True)
    wrong = story.violations()
    report.require("every acknowledged transaction stands once in every log", not wrong, "; ".join(wrong[:3]))


def _report_reads(report: BenchReport, count: str, slow: str, readers: list[ReaderThread]) -> None:
    asked = sorted(second for reader in readers for second in reader.seconds)
    report.figure(count, len(asked))
    late = quantile(asked, 0.99)
    report.figure(slow, late * 1000 if late is not None else None)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m e2e.scenarios.rejoin", description="how long a rejoin takes, by phase"
    )
    parser.add_argument("--state", type=Path, default=STATE)
    parser.add_argument("--strategy", choices=["Smart", "Simple"], default="Smart")
    parser.add_argument("--quads", type=int, default=QUADS)
    parser.add_argument("--transactions", type=int, default=TRANSACTIONS)
    options = parser.parse_args(arguments)
    report = BenchReport("make rejoin")
    with (
        report.part("the rejoin"),
        manifests(lag="10s", recovery=options.strategy) as folder,
        cluster_up(options.state, (folder,)) as cluster,
    ):
        _measure(cluster, report, options.quads, options.transactions, options.strategy)
    return report.end()


if __name__ == "__main__":
    sys.exit(main())
