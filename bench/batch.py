"""Catch-up by a batch: the log of real masters into an empty store, from the command to the position in it.

Beside it, in the same run, what is not ours: Spark's start and first job with nothing to do, and the same store taking
the same quads from a sender alone. One after the other they are the *ceiling*: what a batch could reach whose own
work took no time.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, NamedTuple

from bench.journal_fill import fill_journals
from e2e.lib.cluster.masters import NODES, BenchMasters, stop_processes, three_masters
from e2e.lib.cluster.stores import empty_oxigraph
from e2e.lib.host_metrics import CpuMeter, descendants, peak_mb
from e2e.lib.load.closed_loop import quad_line
from e2e.lib.load.requests import submit_all
from e2e.lib.ports import free_ports
from e2e.lib.report import BenchReport, CannotMeasure, Figure, build_table, console, print_table
from txlog.client import MasterClient, WriteRequest
from txlog.local.engines.java_runtime import obtain_java_home
from txlog.model.durability import Durability
from txlog.model.quads import encode_quads
from txlog.workers import ADAPTERS
from txlog.workers.http_transport import HttpTransport

WORKER: Final = "bench-worker"
MIN_OPERATIONS_PER_S: Final = 50_000
SENDERS: Final = 2
"""Connections to the store when it is alone, as many as a batch has tasks on two cores."""
REQUEST_BYTES: Final = 40_000_000
"""Of a load into the store that is alone: about a batch's bucket."""
RECURRING_QUADS: Final = 1_000_000
"""Quads of the backlog that come, go and come again: its store changes rather than grows."""
KINDS: Final = (JVM := "JVM", DRIVER_PYTHON := "driver", TASKS := "Python tasks")
DRIVER_MEMORY: Final = "1g"
DRIVER_RSS_MB_MAX: Final = 1073.7 + 400
"""A heap of 1 GB, and what a JVM has beside its heap: classes, compiled code, threads, buffers."""


class BatchWorkload(NamedTuple):
    """What the transactions of a case are. ``write_all``: one of them by its number; ``remaining_quads``: the quads
    that are there after ``count`` of them."""

    name: str
    description: str
    build_write: Callable[[int], WriteRequest]
    remaining_quads: Callable[[int], Iterator[bytes]]


def _one_quad_write(number: int) -> WriteRequest:
    return WriteRequest(quads=quad_line(number, "batch").decode())


def _one_quad_remaining(count: int) -> Iterator[bytes]:
    return (quad_line(number, "batch") for number in range(count))


ADDS: Final = 5
DELETES: Final = 2
WRITERS: Final = len(NODES)
"""Each master takes every third transaction, in their order (:func:`write_all`)."""


def _mixed_quad(number: int, which: int) -> bytes:
    """About 100 bytes."""
    return b'<http://example.org/m/%012d> <http://example.org/p%d> "value %012d" <http://example.org/g> .\n' % (
        number,
        which,
        number,
    )


def _mixed_write(number: int) -> WriteRequest:
    """Five quads come, and the first two of the transaction before go: each quad is touched at most twice. Before at
    the same master: the log keeps the order of each, and mixes them as they come."""
    adds = b"".join([_mixed_quad(number, which) for which in range(ADDS)])
    if number < WRITERS:
        return WriteRequest(quads=adds.decode())
    gone = b"".join([_mixed_quad(number - WRITERS, which) for which in range(DELETES)])
    return WriteRequest(add=adds.decode(), delete=gone.decode())


def _mixed_remaining(count: int) -> Iterator[bytes]:
    for number in range(count):
        for which in range(0 if number >= count - WRITERS else DELETES, ADDS):
            yield _mixed_quad(number, which)


ONE_QUAD_WORKLOAD: Final = BatchWorkload("batch", "one quad of 200 bytes", _one_quad_write, _one_quad_remaining)
MIXED_WORKLOAD: Final = BatchWorkload("batch52", "5 adds and 2 deletes of 100 bytes", _mixed_write, _mixed_remaining)


def measure_batch(folder: Path, count: int, report: BenchReport, shape: BatchWorkload = ONE_QUAD_WORKLOAD) -> None:
    """``count`` transactions of that shape through three masters. Spark's start counts."""
    (port,) = free_ports(1)
    with three_masters(folder / "masters", workers=[worker_config(port)]) as masters:
        console.print(f"writing {count:,} transactions ({shape.description}) ...")
        write_all(masters.urls, count, shape.build_write)
        ran = _run_batch(folder, masters, port, report, shape.name)
        start_s, job_s = spark_baseline(folder)
        store_s, left = store_baseline(folder, shape.remaining_quads(count))
    report.require(f"{shape.name}: the worker holds every quad", ran.held == left, ran.held)
    rate = ran.entries / ran.seconds
    ceiling = ran.entries / (start_s + job_s + store_s)
    prefix = "spark_batch" if shape is ONE_QUAD_WORKLOAD else "spark_batch52"
    if shape is ONE_QUAD_WORKLOAD:
        report.at_least(f"{prefix}_catchup_per_s", rate, MIN_OPERATIONS_PER_S)
    else:
        report.figure(f"{prefix}_catchup_per_s", rate)
    report.figure(f"{prefix}_spark_start_s", start_s)
    report.figure(f"{prefix}_spark_first_job_s", job_s)
    report.figure(f"{prefix}_store_alone_s", store_s)
    report.figure(f"{prefix}_store_alone_quads_per_s", left / store_s, 0)
    report.figure(f"{prefix}_ceiling_per_s", ceiling, 0)
    report.figure(f"{prefix}_of_ceiling", rate / ceiling)
    rows: list[list[Figure]] = [[name, seconds] for name, seconds in ran.stages.items()]
    rows.append(["from the command to the position", ran.seconds])
    rows.append(["alone: Spark's start", start_s])
    rows.append(["alone: its first job, with nothing to do", job_s])
    rows.append([f"alone: the store takes the {left:,} quads that are left", store_s])
    print_table(
        build_table(f"{ran.entries:,} transactions, {shape.description}: {rate:,.0f}/s", ("stage", "seconds"), rows)
    )


def measure_backlog(folder: Path, operations: int, report: BenchReport) -> None:
    """Operations in transactions of 5 adds and 2 deletes, written into the journal of one master, through a driver of
    1 GB: what every process of the batch holds in memory at most."""
    entries = operations // (ADDS + DELETES)
    (port,) = free_ports(1)
    workers = [worker_config(port)]
    with three_masters(folder / "masters", nodes=NODES[:1], workers=workers, log_bytes_max=1 << 40) as masters:
        write_all(masters.urls, 10, lambda number: WriteRequest(quads=f"<s:first> <s:p> <s:{number}> .\n"))
        masters.wait_at_rest()
        (node,) = masters.by_node
        stop_processes([masters.processes[node]], 60.0)
        console.print(f"writing {entries:,} transactions into the journal ...")
        grown = fill_journals([masters.journal_of(node)], node, entries, 0, make=_recurring_write)
        report.figure("backlog_journal_mb", grown.disk_bytes / 1e6, 0)
        masters.start(node)
        masters.wait_joined(600.0)
        ran = _run_batch(folder, masters, port, report, "backlog")
    report.figure("backlog_operations", entries * (ADDS + DELETES))
    report.figure("backlog_operations_per_s", entries * (ADDS + DELETES) / ran.seconds, 0)
    report.at_most("backlog_jvm_rss_mb", ran.peak_mb[JVM], DRIVER_RSS_MB_MAX)
    report.require("backlog: it stands at the end of the log", ran.entries >= entries, ran.entries)
    first = ran.entries - entries + 1 - 10
    touched = min(RECURRING_QUADS, entries * ADDS)
    report.require("backlog: the worker holds what recurred", 10 <= ran.held - first + 1 <= touched + 10, ran.held)


def _recurring_write(number: int, _: int) -> bytes:
    """Quads spread over :data:`RECURRING_QUADS` by a multiplication; the two that go came a while ago, or never."""

    def line(at: int) -> bytes:
        return b"<s:%09d> <s:says> <o:%09d> <g:one> ." % (at, at)

    def places(of: int, many: int) -> list[int]:
        return [(of * ADDS + which) * 2_654_435_761 % RECURRING_QUADS for which in range(many)]

    adds = places(number, ADDS)
    return encode_quads([line(at) for at in places(number - 1000, DELETES) if at not in adds], [*map(line, adds)])


# -- the batch, and what it is compared with


class BatchResult(NamedTuple):
    """One batch: where it came to, seconds from the command to the position, those of its stages, the most resident
    memory in MB of the JVM, the driver and all Python tasks together, and the quads that the store holds."""

    entries: int
    seconds: float
    stages: dict[str, float]
    peak_mb: dict[str, float]
    held: int


def _run_batch(folder: Path, masters: BenchMasters, port: int, report: BenchReport, name: str) -> BatchResult:
    with empty_oxigraph(folder / "store", port) as (url, holding):
        config = _batch_config(folder, worker_config(port), masters.urls[:2])
        with MasterClient(masters.urls[0], 30.0) as master:
            end = master.status().stable.index
        report.figure("spark_classes_kept", _class_archive_ready(folder))
        console.print(f"the batch, to {end:,} ...")
        command = [sys.executable, "-m", "txlog.pipeline.batch", "--config", str(config), "--worker", WORKER]
        command += ["--memory", DRIVER_MEMORY]
        began = time.monotonic()
        with (folder / "batch.log").open("wb") as log:
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, env=spark_environment(folder))
            meter = CpuMeter({**masters.pids, "store": holding.pid, "Spark and driver": process.pid})
            with PeakMemoryMonitor(process.pid) as peaks:
                at = _await_position(process, url, end, folder / "batch.log", meter)
                seconds = time.monotonic() - began
                shares = meter.shares()
                out, _ = process.communicate(timeout=60)
        result = json.loads(out.splitlines()[-1])
        stages = {"Python's start": seconds - sum(result["stages"].values()), **result["stages"]}
        adapter = ADAPTERS["oxigraph"]
        with HttpTransport(url, 600.0) as transport:
            held = adapter.parse_size(transport.send(adapter.size()))
    report.figure(f"{name}_transactions", at)
    report.figure(f"{name}_seconds", seconds)
    report.nested({f"{name}_stages_s": {stage: round(each, 2) for stage, each in stages.items()}})
    report.nested({f"{name}_rss_mb": {who: round(each) for who, each in peaks.peaks_by_kind.items()}})
    rows: list[list[Figure]] = [[who, share, share * seconds / 100] for who, share in sorted(shares.items())]
    print_table(
        build_table(f"processor while {at:,} transactions are caught up", ("process", "cpu %", "seconds"), rows)
    )
    rows = [[who, each] for who, each in peaks.peaks_by_kind.items()]
    print_table(build_table("the most memory of the batch", ("processes", "RSS MB"), rows))
    return BatchResult(at, seconds, stages, peaks.peaks_by_kind, held)


def worker_config(port: int) -> dict[str, str]:
    """As configurations of masters and pipelines name it."""
    return {"name": WORKER, "url": f"http://127.0.0.1:{port}", "engine": "oxigraph"}


def _batch_config(folder: Path, worker: dict[str, str], masters: list[str]) -> Path:
    file = folder / "pipeline.json"
    config = {"data_center": "uk", "masters": masters, "workers": [worker], "scratch_folder": str(folder / "scratch")}
    file.write_text(json.dumps(config))
    return file


def spark_environment(folder: Path) -> dict[str, str]:
    """With a Java, also where only the wheel's is."""
    return {**os.environ, "JAVA_HOME": str(obtain_java_home(folder / "java"))}


def _class_archive_ready(folder: Path) -> bool:
    """As after ``make classes``, which is done here, before the clock runs, where it was not. False: this Java cannot,
    and the batch does without."""
    command = [sys.executable, "-m", "txlog.pipeline.jvm_class_archive", "--if-missing"]
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=spark_environment(folder))
    return done.returncode == 0


def spark_baseline(folder: Path) -> tuple[float, float]:
    """Seconds from a command to a Spark context as a batch has it, and those of a job with nothing to do in it."""
    command = [sys.executable, "-m", "txlog.pipeline.jvm_class_archive", "--start-only", "--memory", DRIVER_MEMORY]
    began = time.monotonic()
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=spark_environment(folder)
    ) as it:
        assert it.stdout is not None
        started = it.stdout.readline()
        start_s = time.monotonic() - began
        done = it.stdout.readline()
        job_s = time.monotonic() - began - start_s
        it.communicate(timeout=60)
    if not started or not done:
        raise CannotMeasure("Spark alone did not start")
    return start_s, job_s


def store_baseline(folder: Path, lines: Iterator[bytes]) -> tuple[float, int]:
    """Seconds in which an empty store takes ``lines`` in bulk, in requests as large as a batch's, and how many they
    are. They are on the disk before, so that nothing but sending is done meanwhile."""
    parts: list[Path] = []
    count = size = 0
    held: list[bytes] = []

    def put() -> None:
        parts.append(folder / f"part-{len(parts)}.nq")
        parts[-1].write_bytes(b"".join(held))
        held.clear()

    for line in lines:
        held.append(line)
        count += 1
        size += len(line)
        if size >= REQUEST_BYTES:
            put()
            size = 0
    put()
    adapter = ADAPTERS["oxigraph"]
    with empty_oxigraph(folder / "alone") as (url, _):

        def send(first: int) -> None:
            with HttpTransport(url, 600.0) as transport:
                for part in parts[first::SENDERS]:
                    answer = transport.send(adapter.load(part.read_bytes()))
                    if not answer.ok:
                        raise CannotMeasure(f"the store alone refuses to load: {answer.text[:300]}")

        began = time.monotonic()
        with ThreadPoolExecutor(SENDERS) as pool:
            for each in [pool.submit(send, first) for first in range(SENDERS)]:
                each.result()
        seconds = time.monotonic() - began
    for part in parts:
        part.unlink()
    return seconds, count


class PeakMemoryMonitor:
    """The most resident memory of a batch's processes, looked at while it runs: while one lives the kernel knows its
    peak."""

    SAMPLE_INTERVAL_S = 0.1

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._peaks: dict[int, tuple[str, float]] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> PeakMemoryMonitor:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    @property
    def peaks_by_kind(self) -> dict[str, float]:
        """By kind; of Python tasks the sum of what each had at most. Of JVMs the largest: the one that only starts the
        other is small, and a process between fork and exec looks like its parent."""
        of = {kind: [peak for its, peak in self._peaks.values() if its == kind] for kind in KINDS}
        return {kind: sum(peaks) if kind == TASKS else max(peaks, default=0.0) for kind, peaks in of.items()}

    def _run(self) -> None:
        while True:
            for pid in [self._pid, *descendants(self._pid)]:
                kind = self._kind(pid)
                peak = peak_mb(pid)
                if kind and peak:
                    self._peaks[pid] = (kind, peak)
            if self._stop.wait(self.SAMPLE_INTERVAL_S):
                return

    def _kind(self, pid: int) -> str | None:
        if pid == self._pid:
            return DRIVER_PYTHON
        try:
            program = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except OSError:
            return None
        if b"org.apache.spark.deploy.SparkSubmit" in program:
            return JVM
        return TASKS if b"-m" in program else None


def write_all(urls: list[str], count: int, write: Callable[[int], WriteRequest]) -> None:
    """To all masters at once, as clients do: each takes every ``len(urls)``th, one after another."""

    def part(first: int, url: str) -> None:
        submit_all(url, (write(number) for number in range(first, count, len(urls))), Durability.SYNCED)

    with ThreadPoolExecutor(len(urls)) as pool:
        list(pool.map(part, range(len(urls)), urls))


def _await_position(process: subprocess.Popen[bytes], url: str, index: int, log: Path, meter: CpuMeter) -> int:
    while True:
        meter.sample()
        ended = process.poll() is not None
        at = read_marker_index(url)
        if at >= index:
            return at
        if ended:
            raise CannotMeasure(f"the batch ended early: {log.read_text(errors='replace')[-600:]}")
        time.sleep(0.1)


def read_marker_index(url: str) -> int:
    """Where a store stands, asked of itself; 0 when it is empty, or being loaded."""
    adapter = ADAPTERS["oxigraph"]
    with HttpTransport(url, 120.0) as transport:
        markers = adapter.parse_system_graphs(transport.send(adapter.read_system())).markers
    return markers[0].position.index if markers else 0
