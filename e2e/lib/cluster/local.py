"""A whole cluster of two data centres, as `txlog up` starts it: what demo, bench and faults run against."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final
from urllib.parse import urlencode

from e2e.lib.cluster.log_ends import read_log_ends
from e2e.lib.history import WARM_UP
from e2e.lib.load.requests import csv_rows, http_get, write_one
from e2e.lib.report import CannotMeasure
from txlog.client import MasterClient, MasterUnreachable, WorkerStatus
from txlog.local.state_folder import StateFolder, Topology
from txlog.local.supervisor_client import SupervisorClient
from txlog.model.durability import Durability
from txlog.model.errors import TxLogError
from txlog.workers import ADAPTERS
from txlog.workers.http_transport import HttpTransport

MANIFESTS: Final = Path("examples/two-data-centres")
READY_S: Final = 180.0


class LocalCluster:
    """A running local cluster, by its state folder. Everything is asked the way a user would: the command line, the
    masters' HTTP, the stores' HTTP; the supervisor's files only tell what runs where."""

    def __init__(self, folder: Path) -> None:
        self.state = StateFolder(folder)
        self.topology: Topology = self.state.topology()
        self.repository = self.topology.repository

    @property
    def masters(self) -> list[str]:
        return [master.url for master in self.topology.masters]

    @property
    def nodes(self) -> dict[str, str]:
        """Master to URL."""
        return {master.node: master.url for master in self.topology.masters}

    @property
    def masters_by_data_center(self) -> dict[str, Sequence[str]]:
        return {dc: [m.url for m in self.topology.masters_of(dc)] for dc in self.topology.data_centers}

    @property
    def control(self) -> SupervisorClient:
        return SupervisorClient(self.state)

    def pids(self) -> dict[str, int]:
        """What runs now: name of the process to its id."""
        return {name: int(mark["pid"]) for name, mark in self.state.read("processes.json", {}).items()}

    def master_of(self, data_center: str) -> str:
        """The first master of a data centre."""
        return self.topology.masters_of(data_center)[0].url

    # -- faults

    def kill(self, name: str) -> int | None:
        """kill -9, as a crash would; the process id, or None when it does not run at this moment."""
        pid = self.pids().get(name)
        if pid is None:
            return None
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            return None
        return pid

    # -- waiting

    def stable_ends(self) -> dict[str, tuple[int, str]]:
        """Index and hash of the end of every master's stable log."""
        return read_log_ends(self.nodes).stable

    def workers(self) -> dict[str, WorkerStatus]:
        """Every worker as the masters of its data centre know it: the report that is furthest."""
        found: dict[str, WorkerStatus] = {}
        for place in self.topology.masters:
            with MasterClient(place.url, 5.0) as master:
                for worker in master.workers():
                    known = found.get(worker.name)
                    if known is None or worker_number(worker) > worker_number(known):
                        found[worker.name] = worker
        return found

    def worker_positions(self) -> dict[str, tuple[int, str]]:
        """Index and hash of every worker's position, read from the store itself: masters only know the last report.
        Index 0 for one that holds nothing yet; one that does not answer is left out."""
        found = {}
        for worker in self.topology.workers:
            with suppress(TxLogError):
                found[worker.name] = self.worker_position(worker.name)
        return found

    def worker_position(self, name: str) -> tuple[int, str]:
        """Index and hash of the position inside one store; index 0 without any."""
        place = next(worker for worker in self.topology.workers if worker.name == name)
        adapter = ADAPTERS[place.engine]
        with HttpTransport(place.url, 10.0) as transport:
            markers = adapter.parse_system_graphs(transport.send(adapter.read_system())).markers
        return max(((marker.position.index, marker.position.hash.hex()) for marker in markers), default=(0, ""))

    def worker_indexes(self) -> dict[str, int]:
        """The index of every worker's position."""
        return {name: index for name, (index, _) in self.worker_positions().items()}

    def worker_index(self, name: str) -> int:
        """The index of one store's position."""
        return self.worker_position(name)[0]

    def wait_converged(self, deadline_s: float) -> tuple[int, str]:
        """Until all masters have one log, nothing waits for its order, and every worker has applied it all. A worker
        that is still on an abandoned branch has not, however far it is. Returns the end of the log.
        :class:`CannotMeasure` names what is behind when the time is over."""
        until = time.monotonic() + deadline_s
        last = "no master answered"
        while time.monotonic() < until:
            try:
                ends = read_log_ends(self.nodes)
                positions = self.worker_positions()
                end = ends.last
                behind = [f"{name} {at[0]}" for name, at in positions.items() if at != end]
                is_equal = len(set(ends.stable.values())) == 1
                if is_equal and not ends.queued and not behind and len(positions) == len(self.topology.workers):
                    return end
                last = f"{ends}; workers: {', '.join(behind) or 'none'}"
            except TxLogError as not_now:
                last = str(not_now)
            time.sleep(0.2)
        raise CannotMeasure(f"not settled after {deadline_s:g} s: {last}")

    def wait_applying(self, deadline_s: float) -> float:
        """Until one transaction has been executed by every worker, so that all that starts slowly (a JVM, Spark's
        first micro-batch) has started. Leaves nothing behind in the stores. How long it took, in seconds. A master that
        its supervisor has just started again is waited for."""
        began = time.monotonic()
        while True:
            try:
                name = write_one(self.masters[0], self.repository, WARM_UP, "synced")["txlog-transaction"]
                break
            except MasterUnreachable as refused:
                if refused.sent or time.monotonic() > began + deadline_s:
                    raise
                time.sleep(0.2)
        while time.monotonic() < began + deadline_s:
            reached: str | None = None
            with suppress(MasterUnreachable), MasterClient(self.masters[0], 10.0) as master:
                reached = master.transaction(name, 5.0, Durability.APPLIED_ALL).durability
            if reached == Durability.APPLIED_ALL:
                return time.monotonic() - began
        states = ", ".join(f"{worker.name} {worker.state}" for worker in self.workers().values())
        raise CannotMeasure(f"not every worker applies after {deadline_s:g} s: {states}; see {self.state.logs}")

    # -- reading

    def query(self, master: str, text: str, timeout_s: float = 60.0) -> list[list[str]]:
        """A SELECT through a master's SPARQL endpoint: its rows as CSV has them."""
        path = f"/repositories/{self.repository}?{urlencode({'query': text})}"
        return csv_rows(http_get(master, path, "text/csv", timeout_s))

    def query_worker(self, name: str, text: str, timeout_s: float = 60.0) -> list[list[str]]:
        """The same, asked of a store itself."""
        place = next(worker for worker in self.topology.workers if worker.name == name)
        return csv_rows(http_get(place.url, f"/query?{urlencode({'query': text})}", "text/csv", timeout_s))


def worker_number(worker: WorkerStatus) -> int:
    return worker.position.index if worker.position is not None else 0


def run_txlog(*arguments: str | Path, timeout_s: float = 300.0, quiet: bool = True) -> str:
    """Run the command line as a user does. :class:`CannotMeasure` with its output when it fails."""
    program = Path(sys.executable).with_name("txlog")
    done = subprocess.run(
        [program, *(str(each) for each in arguments)],
        capture_output=quiet,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    if done.returncode != 0:
        output = f"{done.stdout or ''}{done.stderr or ''}".strip()
        raise CannotMeasure(f"txlog {' '.join(str(each) for each in arguments)} ended with {done.returncode}: {output}")
    return done.stdout or ""


def empty_folder(folder: Path) -> Path:
    """The folder, without what an earlier run left in it. A cluster that still runs in its folder ``state`` is ended
    first."""
    state = folder / "state"
    if state.exists():
        run_txlog("down", "--purge", "--state", state)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


@contextmanager
def cluster_up(
    folder: Path, manifests: Sequence[Path] = (MANIFESTS,), *, keep: bool = False, wait_s: float | None = None
) -> Iterator[LocalCluster]:
    """`txlog up --detach`, and at the end `txlog down --purge`, unless it is to be kept. ``wait_s``: until all of it is
    ready."""
    files = [part for manifest in manifests for part in ("-f", manifest)]
    if folder.exists():
        run_txlog("down", "--purge", "--state", folder)
    try:
        patience: tuple[str, ...] = () if wait_s is None else ("--wait", str(wait_s))
        run_txlog("up", "--detach", *files, *patience, "--state", folder, timeout_s=max(300.0, 60 + (wait_s or 0)))
        yield LocalCluster(folder)
    finally:
        if not keep and folder.exists():
            run_txlog("down", "--purge", "--state", folder)
