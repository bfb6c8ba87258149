"""A master with a long log: how long it takes from its command to ready, and what it holds in memory.

The log is written by :mod:`bench.journals` into the journals of masters that are stopped. Up to ``TOGETHER_MAX``
entries three masters have it, and one of them is started again while the others run, as after a crash; a longer one
stands on one master that is a cluster of its own, since three times the disk tells nothing more about one start.
"""

from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import Final

from bench.journals import Grown, grow
from bench.load import Load, Requests
from bench.machine import cpu_seconds, rss_mb
from bench.masters import NODES, REPOSITORY, CannotMeasure, Masters, three_masters
from bench.report import Figure, Report, console, median, show, table
from txlog.client import MasterClient, MasterUnreachable
from txlog.model.errors import TxLogError

TOGETHER_MAX: Final = 5_000_000
SIZE: Final = 200
"""Bytes of a transaction's payload, up to ``SIZE_UP_TO`` entries; above it one quad is as small as it can be."""
SIZE_UP_TO: Final = 20_000_000
SMALLEST: Final = 0
WAITING: Final = 1_000_000
STARTS: Final = 3
START_MAX_S: Final = 600.0

MUSTS: Final = ((1_000_000, 2.0, 150.0), (100_000_000, 10.0, None))
"""Up to so many entries: seconds to ready, MB of memory."""
WAITING_MB: Final = 300.0


def limits(entries: int) -> tuple[float | None, float | None]:
    """Seconds and MB that a start with so many entries may take; None: nothing was promised."""
    for most, seconds, memory in MUSTS:
        if entries <= most:
            return seconds, memory
    return None, None


def measure_restart(folder: Path, entries: int, report: Report) -> None:
    size = SIZE if entries <= SIZE_UP_TO else SMALLEST
    nodes = NODES if entries <= TOGETHER_MAX else NODES[:1]
    name = f"restart_{entries}"
    with three_masters(folder, nodes=nodes, log_bytes_max=1 << 40, start_s=START_MAX_S) as masters:
        _write_some(masters)
        node = next(iter(masters.by_node))
        _end(masters, [node])
        short, short_cpu = _start(masters, node)
        report.figure("restart_short_log_s", short)
        report.figure("restart_short_log_cpu_s", short_cpu)
        _end(masters, list(masters.by_node))
        grown = _grow(masters, entries, size, 0)
        report.figure("restart_entries", grown.entries)
        report.figure("restart_payload_bytes", size or "one quad of 27 to 29")
        report.figure("restart_journal_mb", grown.disk_bytes / 1e6, 0)
        report.figure("restart_written_per_s", entries / grown.seconds, 0)
        for other in list(masters.by_node)[1:]:
            masters.start(other)
        took, cpu, memory = [], [], []
        for turn in range(STARTS if entries <= TOGETHER_MAX else 1):
            if turn:
                _end(masters, [node], signal.SIGKILL)
            seconds, used = _start(masters, node)
            took.append(seconds)
            cpu.append(used)
            with MasterClient(masters.by_node[node], 30.0) as master:
                found = master.status().stable.index
            memory.append(rss_mb(masters.pids[node]))
            said = f"  ready after {seconds:.2f} s ({used:.2f} s of processor) at {found:,}, {memory[-1]:.0f} MB"
            console.print(said, highlight=False)
            report.must(f"{name}: the whole log is there", found >= grown.entries, found)
        seconds_max, memory_max = limits(entries)
        _figure(report, f"{name}_s", median(took), seconds_max)
        _figure(report, f"{name}_rss_mb", median(memory), memory_max)
        report.figure(f"{name}_cpu_s", median(cpu))
        rows: list[list[Figure]] = [
            ["a short log", short, short_cpu, None, None],
            [f"{entries:,} entries", median(took), median(cpu), median(memory), grown.disk_bytes / 1e6],
        ]
        if len(nodes) > 1:
            rows.append(_waiting(masters, node, report))
        columns = ("journal", "to ready s", "its processor s", "RSS MB", "on disk MB")
        show(table("one master starts again", columns, rows))


def _start(masters: Masters, node: str) -> tuple[float, float]:
    """Seconds from the command to ready, and those of processor that the process used until then."""
    began = time.monotonic()
    masters.start(node)
    masters.wait_joined(START_MAX_S)
    return time.monotonic() - began, cpu_seconds(masters.pids[node])


def _waiting(masters: Masters, node: str, report: Report) -> list[Figure]:
    """The same master with transactions that cannot be ordered: the others are gone, and it waits for them."""
    _end(masters, list(masters.by_node))
    grown = _grow(masters, 0, SIZE, WAITING, only=node)
    began = time.monotonic()
    masters.start(node)
    found = 0
    while time.monotonic() < began + START_MAX_S:
        try:
            with MasterClient(masters.by_node[node], 30.0) as master:
                found = master.status().queue.transactions
        except (MasterUnreachable, TxLogError) as not_yet:
            if masters.processes[node].poll() is not None:
                raise CannotMeasure(f"{node} ended: {masters.last_words(node)}") from not_yet
        if found >= WAITING:
            break
        time.sleep(0.05)
    took = time.monotonic() - began
    memory = rss_mb(masters.pids[node])
    report.equal("waiting_transactions", found, WAITING)
    report.figure("waiting_restart_s", took)
    report.at_most("waiting_rss_mb", memory, WAITING_MB)
    return [f"{grown.entries:,} entries and {WAITING:,} that wait", took, None, memory, grown.disk_bytes / 1e6]


def _figure(report: Report, name: str, value: float | None, limit: float | None) -> None:
    if limit is None:
        report.figure(name, value)
    else:
        report.at_most(name, value, limit)


def _write_some(masters: Masters) -> None:
    """So that there is a log to go on from; a founding alone is no entry."""
    load = Load(masters.urls, Requests(REPOSITORY, "synced", 1, "restart"), len(masters.urls))
    load.run(0.1, 0.3, lambda: None, lambda: None)
    if load.wrong:
        raise CannotMeasure(load.wrong[0][:300])
    come_to_rest(masters)


def come_to_rest(masters: Masters, deadline_s: float = 30.0) -> int:
    """Until nothing waits and all logs end alike; where."""
    until = time.monotonic() + deadline_s
    while True:
        ends = set()
        for url in masters.urls:
            with MasterClient(url, 5.0) as master:
                status = master.status()
                ends.add((status.log.index, status.stable.index, status.queue.transactions))
        if len(ends) == 1 and all(log == stable and not queue for log, stable, queue in ends):
            return ends.pop()[0]
        if time.monotonic() > until:
            raise CannotMeasure(f"the logs do not come to rest: {sorted(ends)}")
        time.sleep(0.1)


def _grow(masters: Masters, entries: int, size: int, waiting: int, only: str | None = None) -> Grown:
    node = next(iter(masters.by_node))
    folders = [masters.journal_of(each) for each in ([only] if only else masters.by_node)]
    console.print(f"writing {entries + waiting:,} transactions into {len(folders)} journals ...", highlight=False)
    step = [0]

    def tell(done: int) -> None:
        if done >= step[0] + max(entries // 10, 500_000):
            step[0] = done
            console.print(f"  {done:,}", highlight=False)

    return grow(folders, node, entries, size, waiting=waiting, tell=tell)


def _end(masters: Masters, nodes: list[str], how: signal.Signals = signal.SIGTERM) -> None:
    for node in nodes:
        masters.processes[node].send_signal(how)
    for node in nodes:
        masters.processes[node].wait(60)
