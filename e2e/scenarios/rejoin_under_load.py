"""``python -m e2e.scenarios.rejoin_under_load``: one master is stopped with SIGTERM and started again, while clients
write to the others as fast as these answer.

Clients write in a closed loop and wait for ``synced``: first single transactions, then batches. No master that they use
ends, so every request must be answered, and every transaction must be once in the log of every master. The longest
wait for an answer, from the SIGTERM until all masters are in one view, is the *pause* of ``synced``.
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Final, NamedTuple

from e2e.lib.cluster.log_ends import wait_at_rest
from e2e.lib.cluster.supervised import SupervisedCluster, supervised_up
from e2e.lib.load.closed_loop import ClosedLoad, RequestTemplate
from e2e.lib.readers import read_log
from e2e.lib.report import BenchReport, CannotMeasure, Figure, build_table, print_table
from txlog.model.errors import TxLogError

STATE: Final = Path(".txlog-rejoin-under-load")
JOINED_S: Final = 5.0
PAUSE_MS: Final = 1000.0
WARM_S: Final = 3.0
LOAD_S: Final = 20.0
"""The load goes on for so long after the SIGTERM; a master that is not in the view by then has not joined."""
REST_S: Final = 120.0


class LoadShape(NamedTuple):
    """``clients`` connections, each with ``batch`` transactions in a request."""

    name: str
    clients: int
    batch: int


SHAPES: Final = (LoadShape("single", 32, 1), LoadShape("batches", 8, 250))


class RejoinResult(NamedTuple):
    """``stopped_s``: from the SIGTERM to the end of the process. ``joined_s``: from its start until all masters are in
    one view. ``lost``, ``doubled``: transactions, over the logs of all masters."""

    shape: LoadShape
    rate_per_s: float
    stopped_s: float
    joined_s: float | None
    synced_pause_ms: float
    lost: int
    doubled: int
    wrong: list[str]


class MasterRestart(threading.Thread):
    """Restarts a master, and waits until all are in one view. Times are seconds of ``time.perf_counter``."""

    def __init__(self, masters: SupervisedCluster, node: str) -> None:
        super().__init__(daemon=True)
        self.began_at = self.stopped_at = 0.0
        self.joined_at: float | None = None
        self.error = ""
        self._masters = masters
        self._node = node

    def run(self) -> None:
        try:
            self.began_at = time.perf_counter()
            self._masters.control.stop(self._node)
            self.stopped_at = time.perf_counter()
            self._masters.control.start(self._node)
            self._masters.wait_joined(LOAD_S)
            self.joined_at = time.perf_counter()
        except (CannotMeasure, TxLogError, OSError) as wrong:
            self.error = str(wrong)


def measure_rejoin(masters: SupervisedCluster, shape: LoadShape) -> RejoinResult:
    """One restart of the second master, under the load of this shape at the others."""
    node = list(masters.nodes)[1]
    urls = [url for name, url in masters.nodes.items() if name != node]
    requests = RequestTemplate(masters.repository, "synced", shape.batch, shape.name)
    load = ClosedLoad(urls, requests, shape.clients)
    restart = MasterRestart(masters, node)
    found = load.run(WARM_S, LOAD_S, restart.start, lambda: None)
    restart.join()
    wrong = load.wrong + ([restart.error] if restart.error else [])
    masters.wait_joined()
    wait_at_rest(masters.nodes, REST_S)
    lost = doubled = 0
    for url in masters.masters:
        counts = transaction_counts(url, shape.name)
        lost += sum(counts[number] == 0 for number in range(requests.next))
        doubled += sum(count > 1 for count in counts.values())
    return RejoinResult(
        shape,
        found.per_s,
        restart.stopped_at - restart.began_at,
        None if restart.joined_at is None else restart.joined_at - restart.stopped_at,
        1000 * max(found.latencies, default=LOAD_S),
        lost,
        doubled,
        wrong,
    )


def transaction_counts(url: str, run: str) -> Counter[int]:
    """How often each transaction of this load takes effect in the log of a master."""
    subject = re.compile(rb"/%b/([0-9]{12})>" % run.encode())
    return Counter(
        int(found[1])
        for record in read_log(url)
        if not record.noop and (found := subject.search(record.payload)) is not None
    )


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m e2e.scenarios.rejoin_under_load", description="a master joins while others write"
    )
    parser.add_argument("--state", type=Path, default=STATE)
    parser.add_argument("--keep", action="store_true", help="keep the state folder")
    options = parser.parse_args(arguments)
    report = BenchReport("make rejoin-under-load")
    results: list[RejoinResult] = []
    for shape in SHAPES:
        with report.part(shape.name), supervised_up(options.state) as masters:
            results.append(measure_rejoin(masters, shape))
        if not options.keep:
            shutil.rmtree(options.state, ignore_errors=True)
    report_results(report, results)
    return report.end()


def report_results(report: BenchReport, results: list[RejoinResult]) -> None:
    """The worst of both loads against the limits, and the figures of each."""
    head = ("load", "per s", "stopped in s", "joined after s", "longest wait for synced, ms", "lost", "doubled")
    rows: list[list[Figure]] = [
        [r.shape.name, r.rate_per_s, r.stopped_s, r.joined_s, r.synced_pause_ms, r.lost, r.doubled] for r in results
    ]
    print_table(build_table("one master joins under load", head, rows))
    if not results:
        return
    joined = [r.joined_s for r in results if r.joined_s is not None]
    report.figure("rate_per_s", max(r.rate_per_s for r in results))
    report.at_most("joined_s", max(joined) if len(joined) == len(results) else None, JOINED_S)
    report.at_most("synced_pause_ms", max(r.synced_pause_ms for r in results), PAUSE_MS)
    report.equal("lost", sum(r.lost for r in results), 0)
    report.equal("doubled", sum(r.doubled for r in results), 0)
    for result in results:
        wrong = "; ".join(result.wrong[:3]) or None
        report.require(f"{result.shape.name}: every request is answered", wrong is None, wrong)
        report.figure(f"{result.shape.name}_rate_per_s", result.rate_per_s)


if __name__ == "__main__":
    sys.exit(main())
