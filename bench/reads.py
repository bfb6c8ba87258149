"""``make bench ONLY=reads``: queries through a master, beside HAProxy in front of the same workers.

64 clients (``wrk``, one thread) ask for one subject after another, and for results of about 1 MB, while each master
takes some twenty writes a second. In each round the workers of one data centre are asked in turn: one of them directly,
all of them through HAProxy, all of them through a master. A must compares the master with HAProxy within a round, since
a machine has slow and fast minutes; what counts is the median of the rounds.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import quote, urlsplit

from bench.competitors.programs import unpack_debian_packages
from e2e.lib.cluster.local import LocalCluster
from e2e.lib.load.background_load import BackgroundLoad
from e2e.lib.load.store_fill import fill_stores
from e2e.lib.ports import free_ports
from e2e.lib.report import BenchReport, CannotMeasure, Figure, build_table, console, median, print_table

CACHE: Final = Path("build/reads")
PACKAGES: Final = (
    *("wrk", "libluajit-5.1-2", "libluajit-5.1-common"),
    *("haproxy", "liblua5.3-0", "libopentracing-c-wrapper0", "libopentracing1"),
)
CLIENTS: Final = 64
QUADS: Final = 100_000
GRAPHS: Final = 20
RESULTS_JSON: Final = "application/sparql-results+json"
RATIO_MIN: Final = 0.8
P99_RATIO_MAX: Final = 1.5
WAIT_S: Final = 240.0
START_S: Final = 10.0
PATIENCE: Final = "60s"
"""Longer than any answer takes: ``wrk`` counts an answer after it as an error."""


class QueryShape(NamedTuple):
    """``query``: the text, with ``%d`` for a number below ``numbers``."""

    name: str
    query: str
    numbers: int


SHAPES: Final = (
    QueryShape("subject", "SELECT ?p ?o ?g { GRAPH ?g { <https://txlog.example/thing/%d> ?p ?o } }", QUADS),
    QueryShape("megabyte", "SELECT ?s ?o { GRAPH <https://txlog.example/graph/%d> { ?s ?p ?o } } LIMIT 4000", GRAPHS),
)
SYSTEMS: Final = ("direct", "haproxy", "master")


class Measured(NamedTuple):
    """``per_s``: answers a second; ``p99_ms``: their 99th percentile; ``wrong``: what was no good answer."""

    per_s: float
    p99_ms: float
    wrong: str


def measure_reads(cluster: LocalCluster, folder: Path, rounds: int, seconds: float, report: BenchReport) -> None:
    """The figures and musts of the module's text. ``seconds``: of each load."""
    root = unpack_debian_packages(CACHE, PACKAGES, "usr/bin/wrk").resolve()
    data_center = cluster.topology.data_centers[0]
    workers = [worker.url for worker in cluster.topology.workers if worker.data_center == data_center]
    fill_stores(cluster, QUADS, GRAPHS)
    cluster.wait_applying(WAIT_S)
    writes = BackgroundLoad(cluster.masters, 7, cluster.repository)
    found: dict[tuple[str, str], list[Measured]] = {}
    try:
        with haproxy(root, folder, workers) as proxy:
            asked = {
                "direct": (workers[0], "/query"),
                "haproxy": (proxy, "/query"),
                "master": (cluster.master_of(data_center), f"/repositories/{cluster.repository}"),
            }
            for turn in range(rounds):
                for shape in SHAPES:
                    for system in SYSTEMS:
                        url, path = asked[system]
                        script = folder / f"{shape.name}-{system}.lua"
                        script.write_text(wrk_script(shape, path))
                        done = run_wrk(root, url, script, seconds)
                        found.setdefault((shape.name, system), []).append(done)
                        report.require(f"{shape.name} {system}: every answer is good", not done.wrong, done.wrong)
                        console.print(
                            f"round {turn + 1} of {rounds}: {shape.name} {system} {done.per_s:,.0f}/s, "
                            f"p99 {done.p99_ms:.1f} ms",
                            highlight=False,
                        )
    finally:
        writes.stop()
    report.require("writes went on beside", writes.written > 0)
    _compare(found, len(workers), report)


def _compare(found: dict[tuple[str, str], list[Measured]], workers: int, report: BenchReport) -> None:
    rows: list[list[Figure]] = []
    for shape in SHAPES:
        for system in SYSTEMS:
            done = found[shape.name, system]
            per_s, p99_ms = median([one.per_s for one in done]), median([one.p99_ms for one in done])
            rows.append([shape.name, system, per_s, p99_ms])
            report.figure(f"{shape.name}_{system}_per_s", per_s)
            report.figure(f"{shape.name}_{system}_p99_ms", p99_ms)
        pairs = list(zip(found[shape.name, "master"], found[shape.name, "haproxy"], strict=True))
        prefix = "" if shape == SHAPES[0] else f"{shape.name}_"
        report.at_least(f"{prefix}ratio", median([mine.per_s / other.per_s for mine, other in pairs]), RATIO_MIN)
        report.at_most(
            f"{prefix}p99_ratio", median([mine.p99_ms / other.p99_ms for mine, other in pairs]), P99_RATIO_MAX
        )
    title = f"{CLIENTS} clients, {workers} workers, {QUADS:,} quads"
    print_table(build_table(title, ("query", "asked", "answers/s", "p99 ms"), rows))


def wrk_script(shape: QueryShape, path: str) -> str:
    """The load of one shape for ``wrk``, in its Lua."""
    before, after = (quote(part) for part in shape.query.split("%d"))
    return (
        f'wrk.headers["Accept"] = "{RESULTS_JSON}"\n'
        "request = function()\n"
        f'  return wrk.format("GET", "{path}?query={before}" .. math.random(0, {shape.numbers - 1}) .. "{after}")\n'
        "end\n"
    )


def run_wrk(root: Path, url: str, script: Path, seconds: float) -> Measured:
    """One load. :class:`CannotMeasure` where ``wrk`` says nothing."""
    command = [
        root / "usr/bin/wrk",
        "-t1",
        f"-c{CLIENTS}",
        f"-d{seconds:g}s",
        "--timeout",
        PATIENCE,
        "--latency",
        "-s",
        script,
        url,
    ]
    done = subprocess.run(
        [str(part) for part in command], env=_environment(root), capture_output=True, text=True, check=False
    )
    rate = re.search(r"Requests/sec:\s+([\d.]+)", done.stdout)
    p99 = re.search(r"99%\s+([\d.]+)(us|ms|s)\b", done.stdout)
    if rate is None or p99 is None:
        raise CannotMeasure(f"wrk: {(done.stderr or done.stdout).strip()[-400:]}")
    wrong = re.search(r"Non-2xx.*|Socket errors.*", done.stdout)
    p99_ms = float(p99[1]) * {"us": 0.001, "ms": 1.0, "s": 1000.0}[p99[2]]
    return Measured(float(rate[1]), p99_ms, "" if wrong is None else wrong[0])


@contextmanager
def haproxy(root: Path, folder: Path, workers: list[str]) -> Iterator[str]:
    """HAProxy in front of these workers, as its documentation has it for stateless servers: the one with the fewest
    connections is next. Gives its URL."""
    folder.mkdir(parents=True, exist_ok=True)
    port = free_ports(1)[0]
    servers = [f"  server s{at} {urlsplit(url).netloc}" for at, url in enumerate(workers)]
    lines = ["defaults", "  mode http", "  timeout connect 2s", "  timeout client 60s", "  timeout server 60s"]
    lines += ["frontend clients", f"  bind 127.0.0.1:{port}", "  default_backend workers"]
    lines += ["backend workers", "  balance leastconn", *servers, ""]
    configuration = folder / "haproxy.cfg"
    configuration.write_text("\n".join(lines))
    with (folder / "haproxy.log").open("wb") as log:
        running = subprocess.Popen(
            [str(root / "usr/sbin/haproxy"), "-f", str(configuration)], env=_environment(root), stdout=log, stderr=log
        )
    try:
        deadline = time.monotonic() + START_S
        while not _listens(port):
            if running.poll() is not None or time.monotonic() > deadline:
                raise CannotMeasure(f"HAProxy: {(folder / 'haproxy.log').read_text()[-400:]}")
            time.sleep(0.05)
        yield f"http://127.0.0.1:{port}"
    finally:
        running.kill()
        running.wait()


def _listens(port: int) -> bool:
    with socket.socket() as trying:
        return trying.connect_ex(("127.0.0.1", port)) == 0


def _environment(root: Path) -> dict[str, str]:
    libraries = [str(path) for path in sorted((root / "usr/lib").glob("*-linux-gnu"))]
    return {**os.environ, "LD_LIBRARY_PATH": ":".join(libraries)}
