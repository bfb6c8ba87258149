"""``python -m e2e.rejoin``: how long it takes until two halves of a large database are one again, phase by phase.

A database of real things is everywhere; the links are cut; each side takes many transactions of its own, the smaller
one among them some that wait for their order. When the links are healed: *agreeing* (until the first view of all
masters is installed), *restoring* (the losing side's workers go back), *replaying* (until every worker is at the end).
Meanwhile the winner's workers are asked all the time.
"""

from __future__ import annotations

import argparse
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from bench.cluster import Cluster, cluster_up
from bench.masters import CannotMeasure
from bench.report import Report, console, quantile, show, table
from e2e.split import SIDES, Story, manifests
from txlog.cli.verifying import verify
from txlog.client import Write
from txlog.model.durability import Durability
from txlog.model.errors import TxLogError

STATE: Final = Path(".txlog-rejoin")
QUADS: Final = 500_000
TRANSACTIONS: Final = 10_000
"""Of each side while they are apart."""
QUADS_IN_WRITE: Final = 500
WRITES_AT_ONCE: Final = 500
PATIENCE_S: Final = 600.0
ANYTHING: Final = "SELECT ?s { GRAPH ?g { ?s ?p ?o } } LIMIT 1"


def database(quads: int) -> Iterator[Write]:
    """People who know people, some hundreds of quads in one transaction."""
    for first in range(0, quads, QUADS_IN_WRITE):
        rows = range(first, min(quads, first + QUADS_IN_WRITE))
        graph = f"<https://txlog.example/graph/{first // 50_000}>"
        yield Write(
            quads="".join(
                f"{_person(n)} <http://xmlns.com/foaf/0.1/knows> {_person(n * 7 + 1)} {graph} .\n" for n in rows
            )
        )


def _person(number: int) -> str:
    return f"<https://txlog.example/person/{number}>"


def own_writes(side: str, count: int) -> Iterator[Write]:
    """What one side writes: names, one transaction each."""
    graph = f"<https://txlog.example/graph/{side}>"
    for number in range(count):
        yield Write(quads=f'{_person(number)} <http://xmlns.com/foaf/0.1/name> "{side} {number}" {graph} .\n')


class Reader(threading.Thread):
    """Asks one worker all the time, until told to end. ``failed``: what went wrong; ``seconds``: of each answer."""

    def __init__(self, cluster: Cluster, worker: str) -> None:
        super().__init__(daemon=True)
        self.failed: list[str] = []
        self.seconds: list[float] = []
        self._ask: Callable[[], object] = lambda: cluster.query_worker(worker, ANYTHING)
        self._over = threading.Event()

    def run(self) -> None:
        while not self._over.wait(0.02):
            began = time.perf_counter()
            try:
                self._ask()
            except (TxLogError, CannotMeasure, OSError) as wrong:
                self.failed.append(str(wrong))
            else:
                self.seconds.append(time.perf_counter() - began)

    def end(self) -> None:
        self._over.set()
        self.join()


def load(story: Story, side: str, writes: Iterator[Write], level: Durability) -> float:
    """Many transactions, some hundreds in flight; how long it took."""
    began = time.monotonic()
    while part := [write for write, _ in zip(writes, range(WRITES_AT_ONCE), strict=False)]:
        story.load(side, part, level)
    return time.monotonic() - began


def _apart(story: Story, count: int) -> dict[str, float]:
    """Cut, and ``count`` transactions on each side: a tenth while both still wait, the rest when each goes on alone."""
    early = count // 10
    writes = {side: own_writes(side, count) for side in SIDES}
    story.cut()
    for side in SIDES:
        load(story, side, _first(writes[side], early), Durability.ACCEPTED)
    seconds = {"until each went on alone, a backup made": story.wait_state("Isolated", PATIENCE_S)}
    for side in SIDES:
        seconds[f"{count - early:,} transactions in {side}, synced"] = load(
            story, side, writes[side], Durability.SYNCED
        )
    return seconds


def _first(writes: Iterator[Write], count: int) -> Iterator[Write]:
    for _ in range(count):
        yield next(writes)


def _wait_applied(cluster: Cluster) -> None:
    """Until every worker has executed what its own side has ordered."""
    until = time.monotonic() + PATIENCE_S
    while True:
        ends = {dc: max(end for node, (end, _) in cluster.stable().items() if _dc(cluster, node) == dc) for dc in SIDES}
        places = cluster.places()
        behind = [w.name for w in cluster.topology.workers if places.get(w.name, 0) < ends[w.data_center]]
        if not behind:
            return
        if time.monotonic() > until:
            raise CannotMeasure(f"not at the end of their side's log: {', '.join(behind)}")
        time.sleep(0.1)


def _dc(cluster: Cluster, node: str) -> str:
    return next(master.data_center for master in cluster.topology.masters if master.node == node)


def _measure(cluster: Cluster, report: Report, quads: int, count: int, strategy: str) -> None:
    story = Story(cluster, lambda text: console.print(text, highlight=False))
    cluster.wait_applying(240)
    took = load(story, SIDES[0], database(quads), Durability.ACCEPTED)
    cluster.wait_settled(PATIENCE_S)
    phases = {f"{quads:,} quads taken": took}
    story.tell(f"{quads:,} quads are in every worker; now the links are cut")
    phases |= _apart(story, count)
    _wait_applied(cluster)
    winners = [worker.name for worker in cluster.topology.workers if worker.data_center == SIDES[0]]
    readers = [Reader(cluster, name) for name in winners]
    for reader in readers:
        reader.start()
    began = time.monotonic()
    story.heal()
    phases["agreeing: from the healed links to one log"] = story.wait_state("Joined", PATIENCE_S)
    cluster.wait_settled(PATIENCE_S)
    phases["from the healed links until every worker is there"] = time.monotonic() - began
    for reader in readers:
        reader.end()
    split = story.report()[-1]
    for duty in split["duties"]:
        phases[f"{duty['kind']} of {duty.get('worker') or duty.get('name')}"] = float(duty.get("seconds") or 0.0)
    show(table(f"a rejoin under {strategy}", ("phase", "seconds"), [[k, round(v, 1)] for k, v in phases.items()]))
    failed = [why for reader in readers for why in reader.failed]
    asked = sorted(second for reader in readers for second in reader.seconds)
    report.figure("agreeing_s", phases["agreeing: from the healed links to one log"])
    report.figure("rejoined_s", phases["from the healed links until every worker is there"])
    report.figure("reads", len(asked))
    slow = quantile(asked, 0.99)
    report.figure("read_p99_ms", slow * 1000 if slow is not None else None)
    restored = split["restoredWorkers"]
    report.figure("restored", ", ".join(restored))
    report.at_least("moved", split["moved"], count - count // 10)  # the early ones may still have found their order
    report.equal("failed_reads", len(failed), 0)
    if strategy == "Smart":
        report.must("the winner's workers stay as they are", not set(restored) & set(winners), ", ".join(restored))
    report.equal("digests_equal", verify(cluster.masters_by_data_center).equal, True)
    wrong = story.wrong()
    report.must("every acknowledged transaction stands once in every log", not wrong, "; ".join(wrong[:3]))


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m e2e.rejoin", description="how long a rejoin takes, by phase")
    parser.add_argument("--state", type=Path, default=STATE)
    parser.add_argument("--strategy", choices=["Smart", "Simple"], default="Smart")
    parser.add_argument("--quads", type=int, default=QUADS)
    parser.add_argument("--transactions", type=int, default=TRANSACTIONS)
    options = parser.parse_args(arguments)
    report = Report("make rejoin")
    try:
        with (
            manifests(lag="10s", recovery=options.strategy) as folder,
            cluster_up(options.state, (folder,)) as cluster,
        ):
            _measure(cluster, report, options.quads, options.transactions, options.strategy)
    except (CannotMeasure, TxLogError) as why:
        console.print(f"[red]{why}[/red]", highlight=False)
        report.failed("the rejoin", str(why).splitlines()[0][:300])
    return report.end()


if __name__ == "__main__":
    sys.exit(main())
