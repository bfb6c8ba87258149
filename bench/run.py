"""``python -m bench.run``: how fast this is, with a plain client's eyes. Cases:

========= ==================================================================================================
c1        one client, one transaction in a request: accepted and synced
c64       64 clients, one transaction in a request, synced
b100      64 clients, 100 transactions in a request, synced
append    through Spark: Poisson arrivals, from the POST to its ``applied`` answer
catchup   through Spark: an emptied worker takes in a log of 100,000 transactions
batch     the same by a batch: 1,000,000 transactions into an empty store, from the command to the position; beside it
          Spark's start alone, and the store alone
idle      nothing to do: processor and memory of masters, with both pipelines attached
--------- --------------------------------------------------------------------------------------------------
sites     two sites far apart: synced at 1,000 transactions a second
restart   a master with a long log, and with a long queue: from its command to ready, and its memory
disturbed small transactions beside a dead master, a slow one, and 100 MB
batch52   as ``batch``, with 5 adds and 2 deletes in each transaction; needs 5 GB of disk
backlog   20,000,000 operations by a batch, through a driver of 1 GB: its memory
breakeven the stream and a batch in the running application, in turn: from how many transactions on a batch is sooner
========= ==================================================================================================

*synced*: in the agreed order, and durable (fsync) on **all three** masters. Rounds are interleaved, each figure is
the median of its rounds, and the rate at which the disk syncs stands beside them. What stands below the line is
measured only when it is named.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, NamedTuple

from bench.batch import MIXED_WORKLOAD, measure_backlog, measure_batch
from bench.breakeven import SIZES, measure_breakeven
from bench.disturbance import measure_disturbed
from bench.echo import measure_baseline
from bench.profiler import Profiler
from bench.restart import measure_restart
from bench.wan_latency import measure_sites
from e2e.lib.checks import read_back, same_log
from e2e.lib.cluster.local import LocalCluster, WriteProber, cluster_up
from e2e.lib.cluster.masters import REPOSITORY, BenchMasters, CannotMeasure, three_masters
from e2e.lib.host_metrics import CpuMeter, NotOnDisk, disk_of, fsync_rate, fsync_rate_shared, rss_mb
from e2e.lib.load.closed import AcknowledgedSample, ClosedLoad, LoadRound, RequestTemplate, quad_line
from e2e.lib.report import BenchReport, Figure, build_table, console, median, print_table, quantile
from txlog.client import MasterClient, StatusResponse, WriteRequest
from txlog.model.durability import Durability
from txlog.model.errors import TxLogError

LOG_CASES: Final = ("c1", "c64", "b100")
SPARK_CASES: Final = ("append", "catchup", "idle")
BATCH_CASES: Final = ("batch",)
NAMED_CASES: Final = ("sites", "restart", "disturbed", "batch52", "backlog", "breakeven")
IDLE_WAIT_S: Final = 30.0
IDLE_CPU_PCT_MAX: Final = 2.0
"""Of a core, over a second."""
"""Measured only when they are asked for."""


class BenchOptions(NamedTuple):
    only: list[str]
    folder: Path
    rounds: int
    seconds: float
    warm_s: float
    rest_s: float
    appends: int
    rate: float
    catchup: int
    batch: int
    operations: int
    sizes: list[int]
    entries: int
    idle_s: float
    profile: Path | None
    keep: bool


class LogCase(NamedTuple):
    """A case of the log: how many clients, transactions in a request, and the level asked for."""

    case: str
    clients: int
    batch: int
    level: str


LOG_CASE_SHAPES: Final = (
    LogCase("c1", 1, 1, "accepted"),
    LogCase("c1", 1, 1, "synced"),
    LogCase("c64", 64, 1, "synced"),
    LogCase("b100", 64, 100, "synced"),
)


def main(arguments: list[str] | None = None) -> int:
    options = _options(arguments)
    report = BenchReport("make bench")
    try:
        where = disk_of(options.folder)
    except NotOnDisk as refused:
        console.print(f"[red]{refused}[/red]")
        report.failed("journals on a disk", str(refused))
        return report.end()
    report.figure("file_system", where)
    report.figure("cores", os.cpu_count())
    console.print(f"journals in {options.folder} on {where}, {os.cpu_count()} cores", highlight=False)
    try:
        if set(options.only) & set(LOG_CASES):
            _run_part(report, "the log's cases", lambda: _measure_log(options, report))
        if set(options.only) & set(SPARK_CASES):
            _run_part(report, "the cases with Spark", lambda: _measure_spark(options, report))
        if set(options.only) & set(BATCH_CASES):
            _run_part(report, "the batch", lambda: measure_batch(options.folder / "batch", options.batch, report))
        if "batch52" in options.only:
            mixed = options.folder / "batch52"
            _run_part(
                report, "the batch of 5 and 2", lambda: measure_batch(mixed, options.batch, report, MIXED_WORKLOAD)
            )
        if "backlog" in options.only:
            _run_part(
                report, "a backlog", lambda: measure_backlog(options.folder / "backlog", options.operations, report)
            )
        if "breakeven" in options.only:
            even = options.folder / "breakeven"
            _run_part(report, "break-even", lambda: measure_breakeven(even, options.sizes, options.rounds, report))
        if "sites" in options.only:
            _run_part(report, "two sites", lambda: measure_sites(options.folder / "sites", 2 * options.seconds, report))
        if "restart" in options.only:
            _run_part(report, "the start", lambda: measure_restart(options.folder / "restart", options.entries, report))
        if "disturbed" in options.only:
            _run_part(
                report, "troubles", lambda: measure_disturbed(options.folder / "troubles", options.seconds, report)
            )
    finally:
        if not options.keep:
            shutil.rmtree(options.folder, ignore_errors=True)
    return report.end()


def _options(arguments: list[str] | None) -> BenchOptions:
    cases = (*LOG_CASES, *SPARK_CASES, *BATCH_CASES)
    parser = argparse.ArgumentParser(prog="python -m bench.run", description="measures; see the module's head")
    known = (*cases, *NAMED_CASES)
    parser.add_argument("--only", default=",".join(cases), help="cases, with commas: " + ", ".join(known))
    parser.add_argument("--folder", type=Path, help="where journals are, on a disk")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5.0, help="measured in each round")
    parser.add_argument("--warm", type=float, default=1.0, help="seconds before each")
    parser.add_argument(
        "--rest",
        type=float,
        default=15.0,
        help="seconds of nothing before each round: after half a minute of full load a shared host grants a third less",
    )
    parser.add_argument("--appends", type=int, default=500)
    parser.add_argument("--rate", type=float, default=3.0, help="appends a second, on average")
    parser.add_argument("--catchup", type=int, default=100_000, help="transactions to catch up")
    parser.add_argument("--batch", type=int, default=1_000_000, help="transactions of the batch")
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)), help="transactions, of the break-even")
    parser.add_argument("--operations", type=int, default=20_000_000, help="of the backlog")
    parser.add_argument("--entries", type=int, default=1_000_000, help="of the log of a master that starts again")
    parser.add_argument("--idle", type=float, default=60.0, help="seconds of idling")
    parser.add_argument("--profile", type=Path, help="a folder for py-spy's recordings of one master in each case")
    parser.add_argument("--keep", action="store_true", help="leave journals and logs where they are")
    found = parser.parse_args(arguments)
    only = [case.strip() for case in found.only.split(",") if case.strip()]
    wrong = [case for case in only if case not in known]
    if wrong:
        parser.error(f"no case is called {', '.join(wrong)}; there are {', '.join(known)}")
    scratch = Path.cwd() / ".txlog-bench"  # not the system's folder for temporary files, which may be in memory
    if found.folder is None:
        scratch.mkdir(exist_ok=True)
    folder = found.folder or Path(tempfile.mkdtemp(prefix="run-", dir=scratch))
    return BenchOptions(
        only,
        folder,
        found.rounds,
        found.seconds,
        found.warm,
        found.rest,
        found.appends,
        found.rate,
        found.catchup,
        found.batch,
        found.operations,
        [int(size) for size in found.sizes.split(",")],
        found.entries,
        found.idle,
        found.profile,
        found.keep,
    )


def _run_part(report: BenchReport, what: str, measure: Callable[[], None]) -> None:
    """One part that cannot be measured does not take the others' figures with it."""
    try:
        measure()
    except (CannotMeasure, TxLogError) as why:
        console.print(f"[red]{what}: {why}[/red]", highlight=False)
        report.failed(what, str(why).splitlines()[0][:300])


# -- the log


class MeasuredRound(NamedTuple):
    shape: LogCase
    round: LoadRound
    cpu: dict[str, float]


def _measure_log(options: BenchOptions, report: BenchReport) -> None:
    shapes = [shape for shape in LOG_CASE_SHAPES if shape.case in options.only]
    done: list[MeasuredRound] = []
    syncs: list[float] = []
    shared: list[float] = []
    samples: list[AcknowledgedSample] = []
    echoed, echo_us = measure_baseline(min(2.0, options.seconds), options.folder / "echo.log")
    report.figure("rest_s", options.rest_s, 0)
    report.figure("echo_c64_per_s", echoed, 0)
    report.figure("echo_c64_server_us", echo_us, 1)
    console.print(
        f"a server that only answers: {echoed:,.0f}/s, {echo_us:.0f} us of its processor each", highlight=False
    )
    with three_masters(options.folder / "masters", keep=options.keep) as masters:
        profiler = Profiler(options.profile, masters.pids["uk-1"]) if options.profile else None
        report.figure("native", all(_status(url).native for url in masters.urls))
        number = 0
        for turn in range(options.rounds):
            syncs.append(fsync_rate(options.folder))
            shared.append(fsync_rate_shared(options.folder, len(masters.urls)))
            for shape in shapes:
                time.sleep(options.rest_s)
                console.print(f"round {turn + 1} of {options.rounds}: {shape.case} {shape.level} ...", highlight=False)
                measured, load = _one_round(masters, shape, options, number, profiler if not turn else None)
                number = load.requests.next
                samples += load.samples
                done.append(measured)
                if load.wrong:
                    report.require(f"{shape.case}: every answer is good", False, load.wrong[0][:300])
        _log_figures(report, shapes, done, syncs, shared)
        console.print(f"reading {len(samples)} acknowledged transactions back from all three logs ...")
        back = read_back(masters.urls, samples)
        agree, lengths = same_log(masters.urls)
        report.figure("log_entries", min(lengths))
        report.figure("read_back", back.checked)
        report.require("every sample is in all three logs", not back.missing, "; ".join(back.missing[:3]) or None)
        report.require("the logs are one", agree)
        for name, pid in masters.pids.items():
            report.figure(f"rss_mb_{name}_loaded", rss_mb(pid), 1)
    if profiler is not None:
        for made in profiler.tables():
            print_table(made)


def _status(url: str) -> StatusResponse:
    with MasterClient(url, 5.0) as master:
        return master.status()


def _one_round(
    masters: BenchMasters, shape: LogCase, options: BenchOptions, number: int, profiler: Profiler | None
) -> tuple[MeasuredRound, ClosedLoad]:
    requests = RequestTemplate(REPOSITORY, shape.level, shape.batch, "bench", number)
    load = ClosedLoad(masters.urls, requests, shape.clients)
    meter = CpuMeter({**masters.pids, "generator": os.getpid()})
    shares: dict[str, float] = {}

    def begin() -> None:
        if profiler is not None:
            profiler.begin(f"{shape.case}-{shape.level}", options.seconds)
        meter.begin()

    def end() -> None:
        shares.update(meter.shares())

    round_ = load.run(options.warm_s, options.seconds, begin, end)
    if profiler is not None:
        profiler.end()
    return MeasuredRound(shape, round_, shares), load


def _log_figures(
    report: BenchReport, shapes: list[LogCase], done: list[MeasuredRound], syncs: list[float], shared: list[float]
) -> None:
    rows: list[list[Figure]] = []
    for shape in shapes:
        mine = [each for each in done if each.shape == shape]
        p50s = [1000 * (quantile(each.round.latencies, 0.5) or 0.0) for each in mine]
        p99s = [1000 * (quantile(each.round.latencies, 0.99) or 0.0) for each in mine]
        per_s = median([each.round.per_s for each in mine])
        cpu = {name: median([each.cpu.get(name, 0.0) for each in mine]) for name in mine[0].cpu}
        generator_us = median([each.round.generator_us for each in mine])
        name = f"{shape.case}_{shape.level}" if shape.case == "c1" else shape.case
        name = "b100x64" if shape.case == "b100" else name
        if name == "c1_synced":
            report.at_most("c1_synced_p50_ms", median(p50s), 2.0)
        elif name == "c64":
            report.at_least("c64_per_s", per_s, 9_000)
        elif name == "b100x64":
            report.at_least("b100x64_per_s", per_s, 100_000)
        if shape.case == "c1":
            report.figure(f"{name}_p50_ms", median(p50s), 3)
            report.figure(f"{name}_per_s", per_s, 0)
        else:
            report.figure(f"{name}_p50_ms", median(p50s))
        report.figure(f"{name}_p99_ms", median(p99s))
        report.figure(f"{name}_generator_us", generator_us, 1)
        report.figure(f"{name}_generator_cpu_pct", cpu["generator"], 0)
        report.figure(f"{name}_others_cpu_pct", cpu["others"], 0)
        masters = [value for node, value in cpu.items() if node not in ("generator", "others")]
        used = sum(value for value in masters if value is not None)
        us = 1e4 * used / per_s if per_s else None
        report.figure(f"{name}_masters_us", us, 1)
        rows.append(
            [
                f"{shape.clients} client{'s' if shape.clients > 1 else ''} x {shape.batch}, {shape.level}",
                per_s,
                median(p50s),
                median(p99s),
                " ".join(f"{value:.0f}" for value in masters if value is not None),
                us,
                cpu["generator"],
                generator_us,
                cpu["others"],
            ]
        )
    report.figure("fsync_per_s", median(syncs), 0)
    report.figure("fsync_each_of_three_per_s", median(shared), 0)
    columns = (
        "load",
        "txn/s",
        "p50 ms",
        "p99 ms",
        "masters cpu %",
        "their us a txn",
        "generator %",
        "us a request",
        "others %",
    )
    disk_said = f"the disk syncs {median(syncs) or 0:,.0f}/s, three at once {median(shared) or 0:,.0f}/s each"
    print_table(build_table(f"three masters, 200-byte transactions; {disk_said}", columns, rows))


# -- with Spark and workers


def _measure_spark(options: BenchOptions, report: BenchReport) -> None:
    with cluster_up(options.folder / "cluster", keep=options.keep) as cluster:
        cluster.wait_applying(240)
        if "idle" in options.only:
            _measure_idle(cluster, options, report)
        if "append" in options.only:
            _measure_append(cluster, options, report)
        if "catchup" in options.only:
            _measure_catchup(cluster, options, report)


def _measure_idle(cluster: LocalCluster, options: BenchOptions, report: BenchReport) -> None:
    """Processor and memory of each master while nobody writes; the worst of them is the figure."""
    pids = cluster.pids()
    nodes = list(cluster.nodes)
    _await_idle({name: pids[name] for name in nodes})
    console.print(f"idle for {options.idle_s:g} s ...")
    meter = CpuMeter({name: pids[name] for name in pids})
    time.sleep(options.idle_s)
    shares = meter.shares()
    memory = {name: rss_mb(pid) for name, pid in pids.items()}
    rows: list[list[Figure]] = [[name, shares[name], memory[name]] for name in sorted(pids)]
    print_table(build_table(f"idle over {options.idle_s:g} s", ("process", "cpu %", "RSS MB"), rows))
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


def _measure_append(cluster: LocalCluster, options: BenchOptions, report: BenchReport) -> None:
    """Arrivals do not wait for each other's answers, so a slow one delays no later one's start."""
    draw = random.Random(1)
    masters = cluster.masters
    latencies: list[float] = []
    late: list[int] = []
    free: dict[str, list[WriteProber]] = {url: [] for url in masters}
    lock = threading.Lock()

    def one(number: int) -> None:
        url = masters[number % len(masters)]
        with lock:
            prober = free[url].pop() if free[url] else None
        prober = prober or WriteProber(url, cluster.repository, "applied")
        took = prober.write(quad_line(number, "append"))
        with lock:
            free[url].append(prober)
            if took is None:
                late.append(number)
            else:
                latencies.append(took)

    for number in range(len(masters) * 5):  # connections, and what Spark does only once
        one(1_000_000 + number)
    latencies.clear()
    console.print(f"{options.appends} appends, {options.rate:g} a second ...")
    meter = CpuMeter(cluster.pids())
    with ThreadPoolExecutor(64) as pool:
        pending = []
        due = time.perf_counter()
        for number in range(options.appends):
            due += draw.expovariate(options.rate)
            time.sleep(max(0.0, due - time.perf_counter()))
            pending.append(pool.submit(one, number))
            if number % 50 == 49:
                console.print(f"  {number + 1} sent, p50 so far {1000 * (quantile(latencies, 0.5) or 0):.0f} ms")
        for each in pending:
            each.result()
    shares = meter.shares()
    for probers in free.values():
        for prober in probers:
            prober.close()
    p50, p99 = quantile(latencies, 0.5), quantile(latencies, 0.99)
    report.at_most("spark_append_applied_p50_ms", 1000 * p50 if p50 is not None else None, 70.0)
    report.figure("spark_append_applied_p99_ms", 1000 * p99 if p99 is not None else None)
    report.equal("spark_append_late", len(late), 0)
    rows: list[list[Figure]] = [[name, share] for name, share in sorted(shares.items())]
    print_table(
        build_table(f"processor during {options.appends} appends, {options.rate:g}/s", ("process", "cpu %"), rows)
    )


def _measure_catchup(cluster: LocalCluster, options: BenchOptions, report: BenchReport) -> None:
    """The worker of the data centre that has one is stopped and emptied; the log grows; the worker starts."""
    place = cluster.topology.workers[-1]
    name = place.name
    control = cluster.control
    control.stop(name)
    for path in cluster.state.worker(name).iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    console.print(f"{name} is stopped and emptied; writing {options.catchup} transactions ...")
    with MasterClient(cluster.masters[0], 60.0) as client:
        writes = (WriteRequest(quads=quad_line(number, "catchup").decode()) for number in range(options.catchup))
        for answer in client.submit(writes, Durability.SYNCED, wait_s=60):
            if answer.error:
                raise CannotMeasure(f"a write was refused: {answer.error}: {answer.message}")
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
    count = cluster.query_worker(name, "SELECT (COUNT(*) AS ?n) { GRAPH ?g { ?s <http://example.org/says> ?o } }")
    report.require("the worker holds every quad", int(count[0][0]) >= options.catchup, int(count[0][0]))
    rows: list[list[Figure]] = [[each, share] for each, share in sorted(shares.items())]
    print_table(build_table(f"processor while {name} catches up", ("process", "cpu %"), rows))


def _worker_index(cluster: LocalCluster, name: str) -> int:
    """0 also while the store does not answer."""
    try:
        return cluster.worker_index(name)
    except TxLogError:
        return 0


def _wait_workers(cluster: LocalCluster, names: list[str], deadline_s: float) -> int:
    until = time.monotonic() + deadline_s
    while time.monotonic() < until:
        end = max(cluster.stable_ends().values())[0]
        places = cluster.worker_indexes()
        if all(places.get(name, 0) >= end for name in names):
            return end
        time.sleep(0.2)
    raise CannotMeasure(f"{', '.join(names)} did not catch up within {deadline_s:g} s")


if __name__ == "__main__":
    sys.exit(main())
