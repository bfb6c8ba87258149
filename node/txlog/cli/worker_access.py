"""Workers as the commands for backups and workers reach them: by name through their masters, or by URL."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, TypeVar

from rich.progress import MofNCompleteColumn, TextColumn, TimeElapsedColumn

from txlog.backup import ProgressCallback, RestoreTarget, SourceWorker
from txlog.backup.backup_errors import OtherEngine
from txlog.backup.pinned_snapshot import POLL_S, choose_most_advanced, read_system_graphs
from txlog.backup.progress import BackupProgress
from txlog.backup.worker_lookup import list_workers, open_source_worker
from txlog.cli.cli_cluster import CliCluster
from txlog.cli.tables import open_progress
from txlog.client import MasterClient, WorkerStatus
from txlog.client.first_answer import ask_in_turn
from txlog.config.units import server_of_engine
from txlog.model.errors import BadInput, NotFound, TxLogError
from txlog.workers import ADAPTERS
from txlog.workers.adapter import Unreachable
from txlog.workers.engine_detection import detect
from txlog.workers.http_transport import HttpTransport

ENGINE_NAMES = " or ".join((", ".join(list(ADAPTERS)[:-1]), list(ADAPTERS)[-1]))
T = TypeVar("T")
STORE_START_TIMEOUT_S = 60.0
"""How long a store may take to start."""


def find_worker_by_name(
    cluster: CliCluster, name: str, closing: ExitStack
) -> tuple[str, list[MasterClient], WorkerStatus]:
    """The data centre of a worker, clients of that data centre's masters, and the worker. :class:`NotFound`."""
    known: list[str] = []
    for data_center in cluster.data_centers:
        where, masters = cluster.open_masters(data_center, closing)
        workers = list_workers(masters)
        known += [worker.name for worker in workers]
        for worker in workers:
            if worker.name == name:
                return where, masters, worker
    raise NotFound(f"no worker is called {name}; there are {', '.join(known) or 'none'}")


def has_log_entries(masters: Sequence[MasterClient]) -> bool:
    """Whether the log has an entry, so that a copy of a worker has content. :class:`Unavailable` where no master of the
    data centre answers."""
    return ask_in_turn(masters, MasterClient.status, "no master of that data centre answers").stable.index > 0


def find_source_worker(
    cluster: CliCluster, name: str, home: str, source: str | None, closing: ExitStack
) -> SourceWorker:
    """The most advanced worker that can be copied to the worker ``name``, preferably of the data centre ``home``.
    ``source``: only this one. :class:`NotFound`."""
    groups: list[tuple[list[MasterClient], list[WorkerStatus]]] = []
    for data_center in sorted(cluster.data_centers, key=lambda each: each != home):
        masters = cluster.open_masters(data_center, closing)[1]
        groups.append((masters, [w for w in list_workers(masters) if w.name != name]))
    for masters, workers in groups:
        found = choose_most_advanced([w for w in workers if source in (None, w.name)])
        if found is not None:
            return open_source_worker(found, masters, closing, cluster.open_transport)
    raise NotFound(f"{source or 'no other worker'} works and has a position; see txlog status")


def wait_for_store(into: RestoreTarget) -> None:
    """Return when a store that was just started answers; :class:`Unreachable` after :data:`STORE_START_TIMEOUT_S`."""
    retry_while(Unreachable, STORE_START_TIMEOUT_S, lambda: read_system_graphs(into.adapter, into.transport))


def retry_while(fault: type[TxLogError], wait_s: float, act: Callable[[], T]) -> T:
    """The result of ``act``. It is tried again while it raises ``fault``, which is raised after ``wait_s``."""
    until = time.monotonic() + wait_s
    while True:
        try:
            return act()
        except fault:
            if time.monotonic() > until:
                raise
            time.sleep(POLL_S)


@contextmanager
def progress_bars(quiet: bool) -> Iterator[ProgressCallback]:
    """A callback that draws a bar for the current phase, on a terminal."""
    with open_progress(quiet, MofNCompleteColumn(), TextColumn("quads"), TimeElapsedColumn()) as bar:
        tasks: dict[str, Any] = {}

        def show(step: BackupProgress) -> None:
            if step.phase not in tasks:
                for task in tasks.values():
                    bar.update(task, visible=False)
                tasks[step.phase] = bar.add_task(step.phase, total=step.total)
            text = f"{step.phase}: {step.detail}" if step.detail else step.phase
            bar.update(tasks[step.phase], completed=step.done, total=step.total, description=text)

        yield show


def engine_in_use(engine: str, masters: Sequence[MasterClient]) -> str:
    """The engine of a new store beside these masters' workers, with the form in which those hold literals."""
    found = next((each.engine for each in list_workers(masters) if each.engine), engine)
    return found if server_of_engine(found) == server_of_engine(engine) else engine


def detect_engine(
    transport: HttpTransport, expected: str | None, with_form: Callable[[str], str] = lambda found: found
) -> str:
    """The engine of a store that no master knows. ``with_form``: adds the form of literals to what a store reports.
    :class:`OtherEngine` if it reports another one than ``expected``; :class:`BadInput` if it reports none and
    ``expected`` is None."""
    found = detect(transport)
    if expected is not None and found not in (None, server_of_engine(expected)):
        raise OtherEngine(f"{transport.url} is {found}, not {expected}")
    engine = expected or (found and with_form(found))
    if engine is None:
        raise BadInput(
            f"{transport.url} does not say which engine it is; expected a store's URL, or --engine {ENGINE_NAMES}"
        )
    return engine
