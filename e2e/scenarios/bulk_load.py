"""``python -m e2e.scenarios.bulk_load``: a file goes into every worker beside the log, while clients write and read.

Three figures are ratios of times on this machine: one store's load to the engine's own loader, and ``txlog bulk load``
to ``txlog load`` of the same quads. Meanwhile one client writes and waits until each write is applied, and another one
counts the graph: it must see none of the load, or all.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from e2e.lib.cluster.local import MANIFESTS, LocalCluster, cluster_up, empty_folder, run_txlog
from e2e.lib.cluster.stores import OXIGRAPH, empty_oxigraph
from e2e.lib.load.requests import http_get, write_one
from e2e.lib.report import BenchReport, CannotMeasure, console
from e2e.lib.wait import NotYet, wait_until
from txlog.bulk.held_body import BodyPhase, HeldBody
from txlog.model.errors import TxLogError
from txlog.workers import ADAPTERS

STATE: Final = Path(".txlog-bulk")
QUADS: Final = 1_000_000
"""A whole batch of the store: fewer than that are filled up, which costs time."""
READY_S: Final = 1200.0
GRAPHS: Final = 50
COMMANDS: Final = "bulk"
STREAM: Final = "stream"
STREAM_SHARE: Final = 10
"""Only so many parts of the quads go through the log: that takes several times as long."""


def write_file(path: Path, quads: int, prefix: str) -> None:
    """N-Quads in some graphs; the graph's name begins with the prefix."""
    with open(path, "w") as file:
        for number in range(quads):
            graph = f"<urn:{prefix}:{number % GRAPHS}>"
            file.write(f'<http://example.org/{prefix}/{number}> <http://example.org/p> "value {number}" {graph} .\n')


def count_text(prefix: str) -> str:
    """The query for the number of quads in the graphs of a file."""
    mine = f'FILTER(STRSTARTS(STR(?g), "urn:{prefix}:"))'
    return f"SELECT (COUNT(*) AS ?n) {{ GRAPH ?g {{ ?s <http://example.org/p> ?o }} {mine} }}"


class BesideLoad:
    """A client that writes, and one that counts, each until the end."""

    def __init__(self, cluster: LocalCluster) -> None:
        self._cluster = cluster
        self._over = threading.Event()
        self.writes: list[float] = []
        """Seconds of each write until it was applied."""
        self.counts: set[int] = set()
        self.failed = 0

    @contextmanager
    def running(self) -> Iterator[None]:
        threads = [threading.Thread(target=each) for each in (self._write, self._count)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._over.set()
            for thread in threads:
                thread.join()

    def _write(self) -> None:
        number = 0
        while not self._over.is_set():
            began = time.monotonic()
            number += 1
            update = f"INSERT DATA {{ <urn:beside:{number}> <urn:p> {number} }}"
            with suppress(CannotMeasure):  # it was not applied in time, which the seconds show
                write_one(self._cluster.masters[0], self._cluster.repository, update, "applied")
            self.writes.append(time.monotonic() - began)
            self._over.wait(0.05)

    def _count(self) -> None:
        while not self._over.is_set():
            try:
                self.counts.add(int(self._cluster.query(self._cluster.masters[0], count_text(COMMANDS))[0][0]))
            except TxLogError as error:
                console.print(f"[red]a read failed: {error}[/red]", highlight=False)
                self.failed += 1
            self._over.wait(0.02)


def journal_bytes(cluster: LocalCluster) -> int:
    """Of the first master's journal."""
    text = http_get(cluster.masters[0], "/metrics", "text/plain", 30.0).decode()
    found = [line for line in text.splitlines() if line.startswith("txlog_journal_bytes_used")]
    if not found:
        raise CannotMeasure("no metric txlog_journal_bytes_used")
    return int(float(found[0].split()[-1]))


def engine_seconds(folder: Path, file: Path) -> float:
    """The engine's own loader into an empty folder."""
    began = time.monotonic()
    command = [str(each) for each in (OXIGRAPH, "load", "-l", folder, "-f", file)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.monotonic() - began


def held_seconds(folder: Path, file: Path) -> float:
    """The same quads as a body that is held, and ended at once."""
    adapter = ADAPTERS["oxigraph"]
    with empty_oxigraph(folder) as (url, _):
        began = time.monotonic()
        body = HeldBody(url, adapter.load(b""), lambda: _read_blocks(file))

        def held() -> bool:
            if body.phase is BodyPhase.SENDING:
                raise NotYet(f"{body.quads} quads")
            return True

        wait_until("the body is held", READY_S, held, pause_s=0.02)
        body.end()

        def landed() -> bool:
            if body.phase is BodyPhase.LANDING:
                raise NotYet("landing")
            return True

        wait_until("the body has landed", READY_S, landed, pause_s=0.02)
        if body.phase is not BodyPhase.LANDED:
            raise CannotMeasure(f"the body is {body.phase}: {body.error}")
        return time.monotonic() - began


def _read_blocks(file: Path) -> Iterator[bytes]:
    with open(file, "rb") as lines:
        while block := lines.readlines(1 << 20):
            yield b"".join(block)


def bulk_load(state: Path, file: Path) -> dict[str, Any]:
    """``txlog bulk load``."""
    found: dict[str, Any] = json.loads(run_txlog("bulk", "load", file, "--json", "--state", state, timeout_s=READY_S))
    return found


def run(folder: Path, quads: int, report: BenchReport) -> None:
    """The whole story in one folder."""
    state, file, streamed = folder / "state", folder / "bulk.nq", folder / "stream.nq"
    write_file(file, quads, COMMANDS)
    write_file(streamed, quads // STREAM_SHARE, STREAM)
    own, held = engine_seconds(folder / "own", file), held_seconds(folder / "held", file)
    report.at_least("of_engine_loader", own / held, 0.85)
    with cluster_up(state, (MANIFESTS,), wait_s=READY_S) as cluster:
        cluster.wait_applying(READY_S)
        before, beside = journal_bytes(cluster), BesideLoad(cluster)
        began = time.monotonic()
        with beside.running():
            made = bulk_load(state, file)
            seconds = time.monotonic() - began
        report.figure("seconds", seconds)
        report.equal("loaded", sum(worker["loaded"] for worker in made["workers"]), len(cluster.topology.workers))
        cluster.wait_converged(READY_S)
        for worker in cluster.topology.workers:
            found = int(cluster.query_worker(worker.name, count_text(COMMANDS))[0][0])
            report.require(f"all quads in {worker.name}", found == quads, found)
        report.equal("reads_failed", beside.failed, 0)
        report.equal("reads_partial", len(beside.counts - {0, quads}), 0)
        report.at_most("applied_stall_s", max(beside.writes, default=None), 5.0)
        report.figure("writes_beside", len(beside.writes))
        # The writes beside the load are in the journal, too: some hundreds of bytes each.
        report.at_most("journal_bytes", float(journal_bytes(cluster) - before - 1000 * len(beside.writes)), 1e6)
        began = time.monotonic()
        run_txlog("load", streamed, "--state", state, timeout_s=READY_S)
        cluster.wait_converged(READY_S)
        report.at_least("of_stream_load", (time.monotonic() - began) * STREAM_SHARE / seconds, 3.0)
        again = run_txlog("bulk", "status", "--json", "--state", state)
        report.equal("state", json.loads(again)["loads"][0]["state"], "Loaded")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m e2e.scenarios.bulk_load", description="a bulk load beside clients that write and read"
    )
    parser.add_argument("--state", type=Path, default=STATE, help="a folder that is deleted first")
    parser.add_argument("--quads", type=int, default=QUADS)
    options = parser.parse_args(arguments)
    report = BenchReport("make bulk")
    with report.part("a bulk load", OSError, subprocess.SubprocessError):
        run(empty_folder(options.state.absolute()), options.quads, report)
    return report.end()


if __name__ == "__main__":
    sys.exit(main())
