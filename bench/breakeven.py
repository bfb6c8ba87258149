"""Stream or batch: from how many missing transactions on a batch is sooner there, both measured in turn.

For each size a log of that many transactions of one quad, an empty store, and the application as it runs in a data
centre: once configured never to start a batch, and once to start one for every worker that lacks entries. The clock
runs from the worker's first report (Spark has started) until the store is at the end of the log. So how long the
planner takes to notice, and what starting tasks costs, are in it.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final

from bench.batch import (
    ONE_QUAD_WORKLOAD,
    WORKER,
    read_marker_index,
    spark_environment,
    worker_config,
    write_all,
)
from e2e.lib.cluster.masters import BenchMasters, stop_processes, three_masters
from e2e.lib.cluster.stores import empty_oxigraph
from e2e.lib.ports import free_ports
from e2e.lib.report import BenchReport, CannotMeasure, Figure, build_table, console, median, print_table
from txlog.client import MasterClient

SIZES: Final = (25_000, 50_000, 100_000, 200_000, 400_000)
BATCH_DISABLED: Final = 1 << 40
START_S: Final = 300.0
TIMEOUT_S: Final = 900.0


def measure_breakeven(folder: Path, sizes: Sequence[int], rounds: int, report: BenchReport) -> None:
    rows: list[list[Figure]] = []
    found: list[tuple[int, float, float]] = []
    for size in sizes:
        stream: list[float] = []
        batch: list[float] = []
        for turn in range(rounds):
            for batch_from, times in ((BATCH_DISABLED, stream), (1, batch)):
                console.print(
                    f"{size:,} transactions, round {turn + 1}, {'batch' if batch_from == 1 else 'stream'} ..."
                )
                # a log of its own each time: a worker that its masters know is treated differently from a new one
                (port,) = free_ports(1)
                with three_masters(folder / "masters", workers=[worker_config(port)]) as masters:
                    write_all(masters.urls, size, ONE_QUAD_WORKLOAD.build_write)
                    times.append(_measure_one(folder, masters, port, batch_from))
        taken = (median(stream) or 0.0, median(batch) or 0.0)
        found.append((size, *taken))
        rows.append([f"{size:,}", *taken, size / taken[0], size / taken[1]])
    columns = ("transactions", "stream s", "batch s", "stream per s", "batch per s")
    print_table(build_table(f"into an empty store, medians of {rounds}", columns, rows))
    told = [{"transactions": size, "stream_s": round(s, 2), "batch_s": round(b, 2)} for size, s, b in found]
    report.nested({"breakeven": told})
    report.figure("breakeven_transactions", find_crossing(found), 0)


def find_crossing(found: Sequence[tuple[int, float, float]]) -> float | None:
    """Where the batch becomes the faster one for good, on straight lines between the sizes; None when it never does.
    The smallest size when it is faster throughout."""
    if not found or found[-1][2] > found[-1][1]:
        return None
    at = float(found[0][0])
    for (low, stream, batch), (high, stream_then, batch_then) in pairwise(found):
        ahead, ahead_then = stream - batch, stream_then - batch_then
        if ahead < 0 <= ahead_then:
            at = low + (high - low) * ahead / (ahead - ahead_then)
    return at


def _measure_one(folder: Path, masters: BenchMasters, port: int, batch_from: int) -> float:
    with empty_oxigraph(folder / "store", port) as (url, _), MasterClient(masters.urls[0], 30.0) as master:
        end = master.status().stable.index
        config = folder / "application.json"
        told = {
            "data_center": "uk",
            "masters": masters.urls[:2],
            "workers": [worker_config(port)],
            "scratch_folder": str(folder / "scratch"),
            "batch_from": batch_from,
            "compare_s": 0,
            "compare_sums_s": 0,
        }
        config.write_text(json.dumps(told))
        with (folder / "application.log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "txlog.pipeline", "--config", str(config)],
                stdout=log,
                stderr=log,
                env=spark_environment(folder),
            )
            try:
                began = _first_report(master, process, folder / "application.log")
                until = began + TIMEOUT_S
                while read_marker_index(url) < end:
                    if time.monotonic() > until or process.poll() is not None:
                        raise CannotMeasure(f"it did not get there: {_last_report(folder / 'application.log')}")
                    time.sleep(0.05)
                return time.monotonic() - began
            finally:
                stop_processes([process], 30.0)


def _first_report(master: MasterClient, process: subprocess.Popen[bytes], log: Path) -> float:
    until = time.monotonic() + START_S
    while not any(worker.reported_at for worker in master.status().workers if worker.name == WORKER):
        if time.monotonic() > until or process.poll() is not None:
            raise CannotMeasure(f"the application did not start: {_last_report(log)}")
        time.sleep(0.02)
    return time.monotonic()


def _last_report(log: Path) -> str:
    return log.read_text(errors="replace")[-600:]
