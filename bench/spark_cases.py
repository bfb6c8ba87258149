"""Cases of ``python -m bench.run`` through Spark and workers, on one cluster as ``txlog up`` starts it."""

from __future__ import annotations

import random
import shutil
import time
from contextlib import closing
from itertools import accumulate
from typing import Final

from e2e.lib.cluster.local import LocalCluster
from e2e.lib.host_metrics import CpuMeter, rss_mb
from e2e.lib.load.closed_loop import RequestTemplate, quad_line
from e2e.lib.load.open_loop import OpenLoad
from e2e.lib.load.requests import WriteProber, submit_all
from e2e.lib.report import BenchReport, CannotMeasure, Figure, build_table, console, print_table
from e2e.lib.wait import wait_until
from txlog.client import WriteRequest
from txlog.model.durability import Durability
from txlog.model.errors import TxLogError

IDLE_WAIT_S: Final = 30.0
IDLE_CPU_PCT_MAX: Final = 2.0
"""Of a core, over a second."""
WARM_UP_WRITES: Final = 5
"""To each master."""


def measure_idle(cluster: LocalCluster, seconds: float, report: BenchReport) -> None:
    """Processor and memory of each master while no client writes; the worst of them is the figure."""
    pids = cluster.pids()
    nodes = list(cluster.nodes)
    _await_idle({name: pids[name] for name in nodes})
    console.print(f"idle for {seconds:g} s ...")
    meter = CpuMeter({name: pids[name] for name in pids})
    time.sleep(seconds)
    shares = meter.shares()
    memory = {name: rss_mb(pid) for name, pid in pids.items()}
    rows: list[list[Figure]] = [[name, shares[name], memory[name]] for name in sorted(pids)]
    print_table(build_table(f"idle over {seconds:g} s", ("process", "cpu %", "RSS MB"), rows))
    report.at_most("idle_cpu_pct", max(shares[node] for node in nodes), 1.0)
    report.at_most("rss_mb", max(memory[node] for node in nodes), 150.0)


def _await_idle(pids: dict[str, int]) -> None:
    """What start-up left to do is no idling: until a second costs none of them much, at most 30 s."""
    until = time.monotonic() + IDLE_WAIT_S
    shares = {"": 100.0}
    while time.monotonic() < until and max(shares.values()) > IDLE_CPU_PCT_MAX:
        meter = CpuMeter(pids)
        time.sleep(1)  # what is measured
        shares = {name: share for name, share in meter.shares().items() if name in pids}


def measure_append(cluster: LocalCluster, count: int, rate: float, report: BenchReport) -> None:
    """Poisson arrivals, ``rate`` a second on average: they do not wait for each other's answers, so a slow one delays
    no later one's start."""
    draw = random.Random(1)
    for url in cluster.masters:  # what Spark does only once
        with closing(WriteProber(url, cluster.repository, "applied")) as prober:
            for number in range(WARM_UP_WRITES):
                prober.write(quad_line(number, "append-first"))
    console.print(f"{count} appends, {rate:g} a second ...")
    dues = list(accumulate(draw.expovariate(rate) for _ in range(count)))
    load = OpenLoad(cluster.masters, RequestTemplate(cluster.repository, "applied", 1, "append"), rate)

    def tell() -> None:
        console.print(f"  {len(load.answers)} answered, p50 so far {load.quantile_ms(0.5) or 0:.0f} ms")

    meter = CpuMeter(cluster.pids())
    load.run(dues[-1], dict.fromkeys(dues[49::50], tell), arrivals=dues)
    shares = meter.shares()
    report.at_most("spark_append_applied_p50_ms", load.quantile_ms(0.5), 70.0)
    report.figure("spark_append_applied_p99_ms", load.quantile_ms(0.99))
    report.equal("spark_append_late", len(load.wrong) + load.lost, 0)
    rows: list[list[Figure]] = [[name, share] for name, share in sorted(shares.items())]
    print_table(build_table(f"processor during {count} appends, {rate:g}/s", ("process", "cpu %"), rows))


def measure_catchup(cluster: LocalCluster, count: int, report: BenchReport) -> None:
    """The worker of the data centre that has one is stopped and emptied; the log grows; the worker starts."""
    place = cluster.topology.workers[-1]
    name = place.name
    control = cluster.control
    control.stop(name)
    for path in cluster.state.worker(name).iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    console.print(f"{name} is stopped and emptied; writing {count} transactions ...")
    writes = (WriteRequest(quads=quad_line(number, "catchup").decode()) for number in range(count))
    submit_all(cluster.masters[0], writes, Durability.SYNCED)
    others = [worker.name for worker in cluster.topology.workers if worker.name != name]
    end = _wait_workers(cluster, others, 600)
    console.print(f"the others have applied all {end}; starting {name}")
    meter = CpuMeter(cluster.pids())
    control.start(name)
    seen: list[tuple[float, int]] = []
    until = time.monotonic() + 600
    while not seen or seen[-1][1] < end:
        if time.monotonic() > until:
            raise CannotMeasure(f"{name} is at {seen[-1][1] if seen else 0} of {end} after 600 s")
        at = _worker_index(cluster, name)
        if at > (seen[-1][1] if seen else 0):
            seen.append((time.monotonic(), at))
        time.sleep(0.05)
    shares = meter.shares()
    (began, first), (ended, last) = seen[0], seen[-1]
    rate = (last - first) / (ended - began) if ended > began else float(last)
    report.at_least("spark_stream_catchup_per_s", rate, 4_000)
    report.figure("catchup_transactions", last - first)
    report.figure("catchup_seconds", ended - began)
    held = cluster.query_worker(name, "SELECT (COUNT(*) AS ?n) { GRAPH ?g { ?s <http://example.org/says> ?o } }")
    report.require("the worker holds every quad", int(held[0][0]) >= count, int(held[0][0]))
    rows: list[list[Figure]] = [[each, share] for each, share in sorted(shares.items())]
    print_table(build_table(f"processor while {name} catches up", ("process", "cpu %"), rows))


def _worker_index(cluster: LocalCluster, name: str) -> int:
    """0 also while the store does not answer."""
    try:
        return cluster.worker_index(name)
    except TxLogError:
        return 0


def _wait_workers(cluster: LocalCluster, names: list[str], deadline_s: float) -> int:
    def probe() -> int | None:
        end = max(cluster.stable_ends().values())[0]
        indexes = cluster.worker_indexes()
        return end if all(indexes.get(name, 0) >= end for name in names) else None

    return wait_until(f"{', '.join(names)} caught up", deadline_s, probe, pause_s=0.2)
