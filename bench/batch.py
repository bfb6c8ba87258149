"""Catch-up by a batch: the log of three real masters into an empty store, from the command to the position in it."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.load import quad
from bench.machine import CpuMeter
from bench.masters import CannotMeasure, free_ports, stop, three_masters, wait_listening
from bench.report import Figure, Report, console, show, table
from txlog.client import MasterClient, Write
from txlog.model.durability import Durability
from txlog.workers import ADAPTERS
from txlog.workers.transport import HttpTransport

WORKER = "bench-worker"
GOAL_PER_S = 50_000


def measure_batch(folder: Path, count: int, report: Report) -> None:
    """``count`` transactions of one quad, 200 bytes, none of which cancels another. Spark's start counts."""
    port = free_ports(1)[0]
    url = f"http://127.0.0.1:{port}"
    worker = {"name": WORKER, "url": url, "engine": "oxigraph"}
    with three_masters(folder / "masters", workers=[worker]) as masters, _store(folder / "store", port) as store:
        console.print(f"writing {count:,} transactions ...")
        _write(masters.urls, count)
        config = folder / "pipeline.json"
        told = {
            "data_center": "uk",
            "masters": masters.urls[:2],
            "workers": [worker],
            "scratch_folder": str(folder / "scratch"),
        }
        config.write_text(json.dumps(told))
        console.print("the batch ...")
        meter = CpuMeter({**masters.pids, "store": store.pid})
        began = time.monotonic()
        command = [sys.executable, "-m", "txlog.pipeline.batch", "--config", str(config), "--worker", WORKER]
        with (folder / "batch.log").open("wb") as said:
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=said)
            at = _await_position(process, url, count, folder / "batch.log")
            seconds = time.monotonic() - began
            shares = meter.shares()
            process.wait(60)
        report.at_least("spark_batch_catchup_per_s", at / seconds, GOAL_PER_S)
        report.figure("batch_transactions", at)
        report.figure("batch_seconds", seconds)
        adapter = ADAPTERS["oxigraph"]
        with HttpTransport(url, 60.0) as transport:
            held = adapter.size_in(transport.send(adapter.size()))
        report.must("the worker holds every quad", held == count, held)
        rows: list[list[Figure]] = [[name, share] for name, share in sorted(shares.items())]
        show(table(f"processor while {at:,} transactions are caught up", ("process", "cpu %"), rows))


@contextmanager
def _store(folder: Path, port: int) -> Iterator[subprocess.Popen[bytes]]:
    program = Path(sys.executable).parent / "oxigraph"
    process = subprocess.Popen([program, "serve", "-l", folder, "-b", f"127.0.0.1:{port}"], stderr=subprocess.DEVNULL)
    try:
        wait_listening(port)
        yield process
    finally:
        stop([process])


def _write(urls: list[str], count: int) -> None:
    """To all masters at once, as clients do."""
    wrong: list[str] = []

    def part(first: int, url: str) -> None:
        with MasterClient(url, 60.0) as client:
            writes = (Write(quads=quad(number, "batch").decode()) for number in range(first, count, len(urls)))
            for answer in client.submit(writes, Durability.SYNCED, wait_s=60):
                if answer.error:
                    wrong.append(f"a write was refused: {answer.error}: {answer.message}")
                    return

    threads = [threading.Thread(target=part, args=each) for each in enumerate(urls)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if wrong:
        raise CannotMeasure(wrong[0])


def _await_position(process: subprocess.Popen[bytes], url: str, index: int, said: Path) -> int:
    """Asked of the store itself."""
    adapter = ADAPTERS["oxigraph"]
    with HttpTransport(url, 120.0) as transport:
        while True:
            ended = process.poll() is not None
            markers = adapter.system_in(transport.send(adapter.read_system())).markers
            if markers and markers[0].position.index >= index:
                return markers[0].position.index
            if ended:
                raise CannotMeasure(f"the batch ended early: {said.read_text(errors='replace')[-600:]}")
            time.sleep(0.1)
