"""Workers of one data centre: what it costs to carry a transaction out on all of them.

A whole cluster for each point, as ``txlog up`` starts it: one master, one pipeline, and so many Oxigraphs. One client
writes one transaction after the other and waits until all workers have executed it (``applied-all``).

Model: each worker adds the same, so a line through the points with one and with four tells the others. On this machine
they share two cores; where the executors of a pipeline have cores of their own, its micro-batches wait for the slowest
of them, and not for the sum.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final

from bench.curve_points import Point, deviation_pct
from e2e.lib.cluster.local import READY_S, LocalCluster, cluster_up
from e2e.lib.host_metrics import cpu_seconds, rss_mb
from e2e.lib.load.closed_loop import quad_line
from e2e.lib.load.requests import WriteProber
from e2e.lib.report import CannotMeasure, quantile

WORKER_COUNTS: Final = (1, 2, 4, 8, 16)
WARM_UP_WRITES: Final = 10
"""Not counted: connections, and what Spark does only once."""
WRITES_MIN: Final = 20
"""So many at least make a point."""
MANIFEST: Final = """\
apiVersion: txlog.io/v1alpha1
kind: TxLogCluster
metadata:
  name: workers
spec:
  repository: workers
  dataCenter: uk
  peers:
  - {{name: uk, masters: 1, address: "txlog-uk-{{index}}.example.net"}}
  durability: {{default: applied, writeTimeout: 30s}}
  masters:
    storage: {{size: 20Gi}}
  workers: {{replicas: {workers}, engine: oxigraph}}
  pipeline: {{mode: local}}
"""


def extrapolate(one: float, four: float, count: int) -> float:
    """At ``count``, of what is ``one`` at 1 and ``four`` at 4."""
    return one + (four - one) / 3 * (count - 1)


def curve_workers(folder: Path, seconds: float) -> list[Point]:
    """Each point takes ``seconds``, and longer until it has enough."""
    points: list[Point] = []
    for count in WORKER_COUNTS:
        place = folder / str(count)
        place.mkdir(parents=True)
        manifest = place / "workers.yaml"
        manifest.write_text(MANIFEST.format(workers=count))
        with cluster_up(place / "state", [manifest], wait_s=READY_S) as cluster:
            cluster.wait_applying(READY_S)
            points.append(_point(cluster, count, seconds))
        if count > 4:
            for name in ("p50_ms", "cpu_ms"):
                at = {point["at"]: point[name] for point in points}
                model = extrapolate(at[1], at[4], count)
                points[-1] |= {
                    f"model_{name}": round(model, 1),
                    f"{name}_off_pct": round(deviation_pct(model, at[count]), 1),
                }
    return points


def _point(cluster: LocalCluster, count: int, seconds: float) -> Point:
    prober = WriteProber(cluster.masters[0], cluster.repository, "applied-all")
    latencies: list[float] = []
    try:
        for number in range(WARM_UP_WRITES):
            prober.write(quad_line(number, f"first-{count}"))
        before, began = _cpu_used(cluster), time.monotonic()
        while len(latencies) < WRITES_MIN or time.monotonic() < began + seconds:
            took = prober.write(quad_line(len(latencies), f"workers-{count}"))
            if took is None:
                raise CannotMeasure(f"a transaction did not reach all {count} workers in time")
            latencies.append(took)
        used = {name: after - before[name] for name, after in _cpu_used(cluster).items()}
    finally:
        prober.close()
    p50, p99 = quantile(latencies, 0.5) or 0.0, quantile(latencies, 0.99) or 0.0
    workers = sum(used[worker.name] for worker in cluster.topology.workers)
    pids = cluster.pids()
    return {
        "of": "workers",
        "at": count,
        "p50_ms": round(1000 * p50, 1),
        "p99_ms": round(1000 * p99, 1),
        "cpu_ms": round(1000 * sum(used.values()) / len(latencies), 1),
        "stores_cpu_ms": round(1000 * workers / len(latencies), 1),
        "stores_mb": round(sum(rss_mb(pids[worker.name]) for worker in cluster.topology.workers)),
        "n": len(latencies),
    }


def _cpu_used(cluster: LocalCluster) -> dict[str, float]:
    return {name: cpu_seconds(pid, children=True) for name, pid in cluster.pids().items()}
