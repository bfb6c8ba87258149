"""A master with a long log: how long it takes from its command to ready, and what it holds in memory.

The log is written by :mod:`bench.journal_fill` into the journals of masters that are stopped. Up to
``THREE_MASTERS_ENTRIES_MAX`` entries three masters have it, and one of them is started again while the others run, as
after a crash; a longer one stands on one master that is a cluster of its own, since three times the disk tells nothing
more about one start."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import Final

from bench.journal_fill import FillResult, fill_journals
from e2e.lib.cluster.masters import NODES, REPOSITORY, BenchMasters, three_masters
from e2e.lib.host_metrics import cpu_seconds, rss_mb
from e2e.lib.load.closed_loop import ClosedLoad, RequestTemplate
from e2e.lib.report import BenchReport, CannotMeasure, Figure, build_table, console, median, print_table
from txlog.client import MasterClient, MasterUnreachable
from txlog.model.errors import TxLogError

THREE_MASTERS_ENTRIES_MAX: Final = 5_000_000
TRANSACTION_BYTES: Final = 200
"""Bytes of a transaction's payload, up to ``SIZE_UP_TO`` entries; above it one quad is as small as it can be."""
SIZE_UP_TO: Final = 20_000_000
SMALLEST: Final = 0
WAITING: Final = 1_000_000
START_COUNT: Final = 3
START_MAX_S: Final = 600.0

LIMITS: Final = ((1_000_000, 2.0, 150.0), (100_000_000, 10.0, None))
"""Up to so many entries: seconds to ready, MB of memory."""
WAITING_MB: Final = 300.0


def limits_for(entries: int) -> tuple[float | None, float | None]:
    """Seconds and MB that a start with so many entries may take; None: nothing was promised."""
    for most, seconds, memory in LIMITS:
        if entries <= most:
            return seconds, memory
    return None, None


def measure_restart(folder: Path, entries: int, report: BenchReport) -> None:
    size = TRANSACTION_BYTES if entries <= SIZE_UP_TO else SMALLEST
    nodes = NODES if entries <= THREE_MASTERS_ENTRIES_MAX else NODES[:1]
    name = f"restart_{entries}"
    with three_masters(folder, nodes=nodes, log_bytes_max=1 << 40, start_s=START_MAX_S) as masters:
        _write_some(masters)
        node = next(iter(masters.by_node))
        _end_masters(masters, [node])
        short, short_cpu = _timed_start(masters, node)
        report.figure("restart_short_log_s", short)
        report.figure("restart_short_log_cpu_s", short_cpu)
        _end_masters(masters, list(masters.by_node))
        grown = _fill(masters, entries, size, 0)
        report.figure("restart_entries", grown.entries)
        report.figure("restart_payload_bytes", size or "one quad of 27 to 29")
        report.figure("restart_journal_mb", grown.disk_bytes / 1e6, 0)
        report.figure("restart_written_per_s", entries / grown.seconds, 0)
        for other in list(masters.by_node)[1:]:
            masters.start(other)
        took, cpu, memory = [], [], []
        for turn in range(START_COUNT if entries <= THREE_MASTERS_ENTRIES_MAX else 1):
            if turn:
                _end_masters(masters, [node], signal.SIGKILL)
            seconds, used = _timed_start(masters, node)
            took.append(seconds)
            cpu.append(used)
            with MasterClient(masters.by_node[node], 30.0) as master:
                found = master.status().stable.index
            memory.append(rss_mb(masters.pids[node]))
            said = f"  ready after {seconds:.2f} s ({used:.2f} s of processor) at {found:,}, {memory[-1]:.0f} MB"
            console.print(said, highlight=False)
            report.require(f"{name}: the whole log is there", found >= grown.entries, found)
        seconds_max, memory_max = limits_for(entries)
        _figure(report, f"{name}_s", median(took), seconds_max)
        _figure(report, f"{name}_rss_mb", median(memory), memory_max)
        report.figure(f"{name}_cpu_s", median(cpu))
        rows: list[list[Figure]] = [
            ["a short log", short, short_cpu, None, None],
            [f"{entries:,} entries", median(took), median(cpu), median(memory), grown.disk_bytes / 1e6],
        ]
        if len(nodes) > 1:
            rows.append(_measure_waiting(masters, node, report))
        columns = ("journal", "to ready s", "its processor s", "RSS MB", "on disk MB")
        print_table(build_table("one master starts again", columns, rows))


def _timed_start(masters: BenchMasters, node: str) -> tuple[float, float]:
    """Seconds from the command to ready, and those of processor that the process used until then."""
    began = time.monotonic()
    masters.start(node)
    masters.wait_joined(START_MAX_S)
    return time.monotonic() - began, cpu_seconds(masters.pids[node])


def _measure_waiting(masters: BenchMasters, node: str, report: BenchReport) -> list[Figure]:
    """The same master with transactions that cannot be ordered: the others are gone, and it waits for them."""
    _end_masters(masters, list(masters.by_node))
    grown = _fill(masters, 0, TRANSACTION_BYTES, WAITING, only=node)
    began = time.monotonic()
    masters.start(node)
    found = 0
    while time.monotonic() < began + START_MAX_S:
        try:
            with MasterClient(masters.by_node[node], 30.0) as master:
                found = master.status().queue.transactions
        except (MasterUnreachable, TxLogError) as not_yet:
            if masters.processes[node].poll() is not None:
                raise CannotMeasure(f"{node} ended: {masters.last_log_lines(node)}") from not_yet
        if found >= WAITING:
            break
        time.sleep(0.05)
    took = time.monotonic() - began
    memory = rss_mb(masters.pids[node])
    report.equal("waiting_transactions", found, WAITING)
    report.figure("waiting_restart_s", took)
    report.at_most("waiting_rss_mb", memory, WAITING_MB)
    return [f"{grown.entries:,} entries and {WAITING:,} that wait", took, None, memory, grown.disk_bytes / 1e6]


def _figure(report: BenchReport, name: str, value: float | None, limit: float | None) -> None:
    if limit is None:
        report.figure(name, value)
    else:
        report.at_most(name, value, limit)


def _write_some(masters: BenchMasters) -> None:
    """So that there is a log to go on from; a founding alone is no entry."""
    load = ClosedLoad(masters.urls, RequestTemplate(REPOSITORY, "synced", 1, "restart"), len(masters.urls))
    load.run(0.1, 0.3, lambda: None, lambda: None)
    if load.wrong:
        raise CannotMeasure(load.wrong[0][:300])
    masters.wait_at_rest()


def _fill(masters: BenchMasters, entries: int, size: int, waiting: int, only: str | None = None) -> FillResult:
    node = next(iter(masters.by_node))
    folders = [masters.journal_of(each) for each in ([only] if only else masters.by_node)]
    console.print(f"writing {entries + waiting:,} transactions into {len(folders)} journals ...", highlight=False)
    step = [0]

    def tell(done: int) -> None:
        if done >= step[0] + max(entries // 10, 500_000):
            step[0] = done
            console.print(f"  {done:,}", highlight=False)

    return fill_journals(folders, node, entries, size, waiting=waiting, tell=tell)


def _end_masters(masters: BenchMasters, nodes: list[str], how: signal.Signals = signal.SIGTERM) -> None:
    for node in nodes:
        masters.processes[node].send_signal(how)
    for node in nodes:
        masters.processes[node].wait(60)
