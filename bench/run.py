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
keys      a master with ENTRIES idempotency keys: its memory, the longest turn of a trim, its start behind the trim
disturbed small transactions beside a dead master, a slow one, and 100 MB
batch52   as ``batch``, with 5 adds and 2 deletes in each transaction; needs 5 GB of disk
backlog   20,000,000 operations by a batch, through a driver of 1 GB: its memory
capture   change sets: the processor of an entry in a capture store, against a store that only executes it
reads     queries through a master beside HAProxy in front of the same workers: rates and 99th percentiles
synchronous writes of a graph with a rule, beside the same without: latency of quorum and synced, rate of 64 clients
breakeven the stream and a batch in the running application, in turn: from how many transactions on a batch is sooner
========= ==================================================================================================

*synced*: in the agreed order, and durable (fsync) on **all three** masters. Rounds are interleaved, each figure is
the median of its rounds, and the rate at which the disk syncs stands beside them. What stands below the line is
measured only when it is named.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from bench.batch import MIXED_WORKLOAD, measure_backlog, measure_batch
from bench.breakeven import SIZES, measure_breakeven
from bench.capture import measure_capture
from bench.disturbance import measure_disturbed
from bench.echo import measure_baseline
from bench.keys import measure_keys
from bench.profiler import Profiler
from bench.reads import measure_reads
from bench.restart import measure_restart
from bench.resting_stores import measure_resting_stores
from bench.spark_cases import measure_append, measure_catchup, measure_idle
from bench.synchronous import measure_synchronous
from bench.wan_latency import measure_sites
from e2e.lib.cluster.local import cluster_up
from e2e.lib.cluster.masters import REPOSITORY, BenchMasters, three_masters
from e2e.lib.host_metrics import CpuMeter, NotOnDisk, disk_of, fsync_rate, fsync_rate_shared, rss_mb
from e2e.lib.load.closed_loop import AcknowledgedSample, ClosedLoad, LoadRound, RequestTemplate
from e2e.lib.readers import read_back, same_log
from e2e.lib.report import BenchReport, Figure, build_table, console, median, print_table, quantile
from txlog.client import MasterClient, StatusResponse

LOG_CASES: Final = ("c1", "c64", "b100")
SPARK_CASES: Final = ("append", "catchup", "idle")
BATCH_CASES: Final = ("batch",)
NAMED_CASES: Final = (
    "sites",
    "restart",
    "keys",
    "disturbed",
    "batch52",
    "backlog",
    "breakeven",
    "capture",
    "synchronous",
    "reads",
)
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
    store_quads: int
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
        for cases, what, measure in _parts(options, report):
            if set(options.only) & set(cases):
                with report.part(what):
                    measure()
    finally:
        if not options.keep:
            shutil.rmtree(options.folder, ignore_errors=True)
    return report.end()


def _parts(options: BenchOptions, report: BenchReport) -> list[tuple[Sequence[str], str, Callable[[], None]]]:
    """Cases, how the report names them, and what measures those of them that were asked for."""
    folder = options.folder
    return [
        (LOG_CASES, "the log's cases", lambda: _measure_log(options, report)),
        (SPARK_CASES, "the cases with Spark", lambda: _measure_spark(options, report)),
        (BATCH_CASES, "the batch", lambda: measure_batch(folder / "batch", options.batch, report)),
        (
            ("batch52",),
            "the batch of 5 and 2",
            lambda: measure_batch(folder / "batch52", options.batch, report, MIXED_WORKLOAD),
        ),
        (("backlog",), "a backlog", lambda: measure_backlog(folder / "backlog", options.operations, report)),
        (
            ("breakeven",),
            "break-even",
            lambda: measure_breakeven(folder / "breakeven", options.sizes, options.rounds, report),
        ),
        (("capture",), "change sets", lambda: measure_capture(folder / "capture", report)),
        (
            ("synchronous",),
            "synchronous transactions",
            lambda: measure_synchronous(
                folder / "synchronous", options.rounds, options.seconds, options.rest_s, report
            ),
        ),
        (("reads",), "reads", lambda: _measure_reads(options, report)),
        (("sites",), "two sites", lambda: measure_sites(folder / "sites", 2 * options.seconds, report)),
        (("restart",), "the start", lambda: measure_restart(folder / "restart", options.entries, report)),
        (("keys",), "idempotency keys", lambda: measure_keys(folder / "keys", options.entries, report)),
        (("disturbed",), "troubles", lambda: measure_disturbed(folder / "troubles", options.seconds, report)),
    ]


def _measure_reads(options: BenchOptions, report: BenchReport) -> None:
    with cluster_up(options.folder / "readers", keep=options.keep) as cluster:
        measure_reads(cluster, options.folder / "reads", options.rounds, options.seconds, report)


def _measure_spark(options: BenchOptions, report: BenchReport) -> None:
    with cluster_up(options.folder / "cluster", keep=options.keep) as cluster:
        cluster.wait_applying(240)
        if "idle" in options.only:
            measure_idle(cluster, options.idle_s, report)
        if "append" in options.only:
            measure_append(cluster, options.appends, options.rate, report)
        if "catchup" in options.only:
            measure_catchup(cluster, options.catchup, report)
    if "idle" in options.only and options.store_quads:
        with cluster_up(options.folder / "resting", keep=options.keep) as cluster:
            measure_resting_stores(cluster, options.store_quads, report)


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
    parser.add_argument("--store-quads", type=int, default=0, help="in each store of a second idle cluster")
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
        found.store_quads,
        found.profile,
        found.keep,
    )


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


if __name__ == "__main__":
    sys.exit(main())
