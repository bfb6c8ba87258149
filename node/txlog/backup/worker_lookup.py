"""Workers as their masters know them, and connections to them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Final

from txlog.backup.dataset_load import RestoreTarget
from txlog.backup.pinned_snapshot import SourceWorker, choose_most_advanced
from txlog.client import MasterClient, WorkerStatus
from txlog.client.first_answer import ask_in_turn
from txlog.model.errors import NotFound, Unavailable
from txlog.workers import ADAPTERS
from txlog.workers.http_transport import HttpTransport

READ_TIMEOUT_S: Final = 600.0
"""Time-out of the store between two chunks of its snapshot."""
TransportFactory = Callable[[str, float], HttpTransport]
"""From the URL of a worker and the seconds that an answer may take."""


def list_workers(masters: Sequence[MasterClient]) -> list[WorkerStatus]:
    """The workers as the first reachable master lists them."""
    return ask_in_turn(masters, MasterClient.workers, "no master answers")


def find_worker(masters: Sequence[MasterClient], name: str | None) -> WorkerStatus:
    """The worker of that name; without a name the most advanced one."""
    workers = list_workers(masters)
    found = choose_most_advanced(workers) if name is None else next((w for w in workers if w.name == name), None)
    if found is None and name is None:
        raise Unavailable("NoWorker", "no worker of this data centre works and has a position; see txlog status")
    if found is None:
        raise NotFound(f"no worker is called {name}; there are {', '.join(w.name for w in workers) or 'none'}")
    return found


def open_restore_target(
    worker: WorkerStatus, closing: ExitStack, open_transport: TransportFactory = HttpTransport
) -> RestoreTarget:
    """A worker to write to; ``closing`` closes its connection."""
    transport = closing.enter_context(open_transport(worker.url, READ_TIMEOUT_S))
    return RestoreTarget(worker.name, ADAPTERS[worker.engine or "oxigraph"], transport)


def open_source_worker(
    worker: WorkerStatus,
    masters: Sequence[MasterClient],
    closing: ExitStack,
    open_transport: TransportFactory = HttpTransport,
) -> SourceWorker:
    """A worker to read from; ``closing`` closes its connection."""
    return SourceWorker(*open_restore_target(worker, closing, open_transport), masters)
