"""What stores cost that hold much and are not written to."""

from __future__ import annotations

import time
from typing import Final

from e2e.lib.cluster.local import LocalCluster
from e2e.lib.host_metrics import CpuMeter
from e2e.lib.load.store_fill import fill_stores
from e2e.lib.report import BenchReport, CannotMeasure, Figure, build_table, console, print_table
from txlog.client import MasterClient

GRAPHS: Final = 20
WINDOW_S: Final = 60.0
"""A part of the wait until the stores rest."""
REST_CPU_PCT: Final = 4.0
"""Of a core, over a window: less than a comparison at the normal pace takes."""
WAIT_S: Final = 3600.0
FIRST_PASS_S: Final = 4 * 3600.0
"""Longest wait for the first pass over all that the stores hold: 20 minutes for 10 M quads on a machine that is not
busy."""
MEASURED_S: Final = 600.0
"""Long enough for several samples of each kind of comparison, also where one takes seconds."""
STORE_CPU_PCT_MAX: Final = 2.0


def measure_resting_stores(cluster: LocalCluster, quads: int, report: BenchReport) -> None:
    """The processor of the store that costs most, once what was loaded was compared whole."""
    fill_stores(cluster, quads, GRAPHS)
    cluster.wait_applying(WAIT_S)
    pids = cluster.pids()
    stores = [worker.name for worker in cluster.topology.workers]
    console.print("waiting until the stores were compared whole ...")
    waited_s = _wait_for_rest(cluster, {name: pids[name] for name in stores})
    pass_s = max(_pass_lengths(cluster))
    console.print(f"measuring for {MEASURED_S:g} s ...")
    meter = CpuMeter({name: pids[name] for name in pids})
    time.sleep(MEASURED_S)  # what is measured
    shares = meter.shares()
    rows: list[list[Figure]] = [[name, shares[name]] for name in sorted(pids)]
    print_table(build_table(f"{quads:,} quads in each store, idle over {MEASURED_S:g} s", ("process", "cpu %"), rows))
    report.figure("store_quads", quads)
    report.figure("store_rests_after_s", waited_s)
    report.figure("pass_s_per_million", pass_s / quads * 1e6)
    report.at_most("store_idle_cpu_pct", max(shares[name] for name in stores), STORE_CPU_PCT_MAX)


def _pass_lengths(cluster: LocalCluster) -> list[float]:
    """Seconds that the first pass took of each worker for which it has ended."""
    found: dict[str, float] = {}
    for url in cluster.masters:
        with MasterClient(url, 10.0) as master:
            for worker in master.workers():
                if worker.comparison is not None and worker.comparison.pass_s is not None:
                    found[worker.name] = worker.comparison.pass_s
    return list(found.values())


def _wait_for_rest(cluster: LocalCluster, pids: dict[str, int]) -> float:
    """Until all was compared once, and the processors show that the stores rest."""
    began = time.monotonic()
    while time.monotonic() < began + FIRST_PASS_S:
        meter = CpuMeter(pids)
        time.sleep(WINDOW_S)  # what is measured
        shares = meter.shares()
        console.print("  " + ", ".join(f"{name} {share:.1f} %" for name, share in sorted(shares.items())))
        if max(shares[name] for name in pids) <= REST_CPU_PCT and len(_pass_lengths(cluster)) == len(pids):
            return time.monotonic() - began
    raise CannotMeasure(f"the stores are compared still after {FIRST_PASS_S:g} s")
