"""``python -m e2e.scenarios.divergence``: a difference planted in one graph of one store, behind TxLog's back: how
soon it is found and named, and that it is repaired, by itself, by copying only that graph.

One data centre with three workers and a large database. Quads are taken out, put in, and (the same number) put in the
place of others, each once while nothing is written and once while writes go on. The last is not seen by counting: it is
found by a pass over all cells, later, which is ``exchanged_found_s``.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from e2e.lib.cluster.local import LocalCluster, cluster_up, run_txlog
from e2e.lib.load.requests import write_one
from e2e.lib.load.store_fill import database_line, fill_stores, graph_iri
from e2e.lib.report import BenchReport, CannotMeasure, Figure, build_table, console, print_table
from e2e.lib.wait import wait_until
from txlog.client import MasterClient
from txlog.model.errors import TxLogError
from txlog.wire.divergence_report import DivergenceFinding
from txlog.workers.adapter import WorkerRequest
from txlog.workers.http_transport import HttpTransport

STATE: Final = Path(".txlog-divergence")
QUADS: Final = 1_000_000
GRAPHS: Final = 20
PLANTED: Final = 5
KINDS: Final = ("taken out", "put in", "exchanged")
DETECTION_S_MAX: Final = 10.0
EXCHANGED_S: Final = 300.0
"""For a million quads: a pass at a tenth of the time of a store, on a busy machine (docs/limits.md)."""
EXCHANGED_AT_REST_S: Final = 900.0
"""The same in a store at rest: a pass at the share that :mod:`txlog.pipeline.scan_pace` gives it."""
DEAD_DETECTION_S_MAX: Final = 10.0
WAIT_S: Final = 900.0
START_S: Final = 900.0
PATIENCE_S: Final = 1800.0
MANIFEST: Final = """apiVersion: txlog.io/v1alpha1
kind: TxLogCluster
metadata: {name: divergence}
spec:
  repository: divergence
  dataCenter: uk
  peers: [{name: uk, masters: 1, address: "txlog-uk-{index}.example.net"}]
  durability: {default: applied, writeTimeout: 30s}
  masters: {storage: {size: 20Gi}}
  workers: {replicas: 3, engine: oxigraph}
  pipeline: {mode: local}
"""
WORKERS: Final = {"taken out": "uk-worker-2", "put in": "uk-worker-3", "exchanged": "uk-worker-1"}
"""By kind: one that is repaired by itself too often is left to people."""
DEAD_WORKER: Final = "uk-worker-2"


def _in_braces(quads: list[str]) -> str:
    made = []
    for each in quads:
        triple, _, graph = each[:-2].rpartition(" ")
        made.append(f"GRAPH {graph} {{ {triple} }}")
    return " ".join(made)


def plant_difference(cluster: LocalCluster, kind: str, graph: int, graphs: int) -> None:
    """In the store itself."""
    mine = [graph + graphs * n for n in range(PLANTED)]
    there = _in_braces([database_line(n, graphs) for n in mine])
    other = _in_braces([database_line(n, graphs, " planted") for n in mine])
    text = {
        "taken out": f"DELETE DATA {{ {there} }}",
        "put in": f"INSERT DATA {{ {other} }}",
        "exchanged": f"DELETE DATA {{ {there} }} ; INSERT DATA {{ {other} }}",
    }[kind]
    place = next(worker for worker in cluster.topology.workers if worker.name == WORKERS[kind])
    with HttpTransport(place.url, 60.0) as transport:
        headers = {"Content-Type": "application/sparql-update"}
        answer = transport.send(WorkerRequest("POST", "/update", headers, text.encode()))
    if not answer.ok:
        raise CannotMeasure(f"planting: {answer.status} {answer.text}")


def read_finding(cluster: LocalCluster) -> dict[str, DivergenceFinding]:
    with MasterClient(cluster.masters[0], 10.0) as master:
        return {worker.name: worker.divergence for worker in master.workers() if worker.divergence is not None}


def await_finding(cluster: LocalCluster, wait_s: float = WAIT_S) -> tuple[float | None, dict[str, DivergenceFinding]]:
    began = time.monotonic()
    while time.monotonic() < began + wait_s:
        found = read_finding(cluster)
        if any(each.wrong for each in found.values()):  # while looks come in, two may differ undecided
            return time.monotonic() - began, {name: each for name, each in found.items() if each.wrong}
        time.sleep(0.05)
    return None, {}


def read_repair(cluster: LocalCluster, name: str) -> tuple[int, list[str]]:
    """How often it was repaired by itself, and the graphs that were copied last."""
    with MasterClient(cluster.masters[0], 10.0) as master:
        found = next(worker.repair for worker in master.workers() if worker.name == name)
    return (0, []) if found is None or found.last is None else (found.done, found.last.graphs)


def await_repair(cluster: LocalCluster, name: str, before: int) -> list[str]:
    what = f"{name} is repaired by itself; see txlog worker list"
    wait_until(what, WAIT_S, lambda: read_repair(cluster, name)[0] > before)
    return read_repair(cluster, name)[1]


def await_no_finding(cluster: LocalCluster) -> bool:
    until = time.monotonic() + WAIT_S
    while time.monotonic() < until:
        if not read_finding(cluster):
            return True
        time.sleep(0.2)
    return False


@contextmanager
def background_writes(cluster: LocalCluster, on: bool) -> Iterator[None]:
    """One small transaction after another, all the time."""
    over = threading.Event()

    def run() -> None:
        number = 0
        while not over.wait(0.05):
            text = f'INSERT DATA {{ GRAPH <urn:live> {{ <urn:live:{number}> <urn:is> "{number}" }} }}'
            number += 1
            try:
                write_one(cluster.masters[0], cluster.repository, text, "synced")
            except (CannotMeasure, TxLogError) as wrong:
                console.print(f"a write failed: {wrong}", highlight=False)

    thread = threading.Thread(target=run, daemon=True)
    if on:
        thread.start()
    try:
        yield
    finally:
        over.set()
        if on:
            thread.join()


def measure_dead_store(cluster: LocalCluster) -> float | None:
    """A store that stands still, with nothing written: how long until the masters say so."""
    pid = cluster.pids()[DEAD_WORKER]
    os.kill(pid, signal.SIGSTOP)
    began = time.monotonic()
    try:
        with MasterClient(cluster.masters[0], 10.0) as master:
            while time.monotonic() < began + WAIT_S:
                states = {worker.name: worker.state for worker in master.workers()}
                if states[DEAD_WORKER] == "Unreachable":
                    return time.monotonic() - began
                time.sleep(0.05)
    finally:
        os.kill(pid, signal.SIGCONT)
    return None


def measure(cluster: LocalCluster, quads: int, graphs: int, kinds: Sequence[str], report: BenchReport) -> None:
    console.print(f"filling the stores with {quads:,} quads ...", highlight=False)
    began = time.monotonic()
    fill_stores(cluster, quads, graphs)
    report.figure("fill_s", time.monotonic() - began)
    console.print("starting to apply ...")
    cluster.wait_applying(PATIENCE_S)
    rows: list[list[Figure]] = []
    slowest, longest, copied_most = defaultdict[str, float](float), 0.0, 0
    for at, (kind, on) in enumerate((kind, on) for kind in kinds for on in (False, True)):
        graph = (7 * at + 3) % graphs
        name = WORKERS[kind]
        console.print(f"{kind} in {graph_iri(graph)} of {name}{', writes go on' if on else ''} ...")
        with background_writes(cluster, on):
            time.sleep(1.0)  # the writes are under way
            before, _ = read_repair(cluster, name)
            plant_difference(cluster, kind, graph, graphs)
            began = time.monotonic()
            found_s, found = await_finding(cluster)
            named = found.get(name)
            right = named is not None and named.wrong and named.graphs == [graph_iri(graph)] and len(found) == 1
            told = "; ".join(f"{name}: {', '.join(each.graphs)}" for name, each in sorted(found.items()))
            report.require(f"{kind}{', writing' if on else ''}: named, and nobody else", right, told or "nobody")
            if found_s is None:
                raise CannotMeasure(f"{kind}: not found within {WAIT_S:g} s")
            figure = "found_s" if kind != "exchanged" else "exchanged_found_s" if on else "exchanged_at_rest_found_s"
            slowest[figure] = max(slowest[figure], found_s)
            copied = await_repair(cluster, name, before)
            repair_s = time.monotonic() - began
            report.require(
                f"{kind}{', writing' if on else ''}: that graph only is copied", copied == [graph_iri(graph)]
            )
            copied_most = max(copied_most, len(copied))
            longest = max(longest, repair_s)
            report.require(f"{kind}{', writing' if on else ''}: equal again", await_no_finding(cluster))
        rows.append([kind, "yes" if on else "no", found_s, repair_s, len(copied)])
    cluster.wait_converged(PATIENCE_S)
    dead_s = measure_dead_store(cluster)
    cluster.wait_converged(PATIENCE_S)
    run_txlog("verify", "--state", cluster.state.root, timeout_s=900.0)
    print_table(
        build_table(
            f"{quads:,} quads in {graphs} graphs", ("planted", "writes", "found s", "repaired s", "graphs"), rows
        )
    )
    size = max(1.0, quads / QUADS)
    bounds = {
        "found_s": DETECTION_S_MAX,
        "exchanged_found_s": EXCHANGED_S * size,
        "exchanged_at_rest_found_s": EXCHANGED_AT_REST_S * size,
    }
    for figure, seconds in slowest.items():
        report.at_most(figure, seconds, bounds[figure])
    report.equal("graphs_copied", copied_most, 1)
    report.figure("repaired_s", longest)
    report.at_most("dead_found_s", dead_s, DEAD_DETECTION_S_MAX)


def main() -> int:
    parser = argparse.ArgumentParser(prog="make divergence", description="a planted difference, found and repaired")
    parser.add_argument("--quads", type=int, default=QUADS)
    parser.add_argument("--graphs", type=int, default=GRAPHS)
    parser.add_argument("--kinds", default=",".join(KINDS), help="of what is planted, with commas between")
    options = parser.parse_args()
    kinds = [kind for kind in KINDS if kind in options.kinds.split(",")]
    report = BenchReport("divergence")
    with report.part("divergence"), tempfile.TemporaryDirectory() as folder:
        manifest = Path(folder) / "uk.yaml"
        manifest.write_text(MANIFEST)
        with cluster_up(STATE, (manifest,), wait_s=START_S) as cluster:
            measure(cluster, options.quads, options.graphs, kinds, report)
    return report.end()


if __name__ == "__main__":
    sys.exit(main())
