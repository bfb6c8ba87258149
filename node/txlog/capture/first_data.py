"""The data with which a capture store begins: none, where the log makes it from nothing; else a copy of a worker.

The copy is streamed through a file, so its size does not matter. A worker gives it at one position of the log.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Final, NamedTuple

import pyoxigraph as ox

from txlog.backup.pinned_snapshot import choose_most_advanced
from txlog.backup.worker_lookup import READ_TIMEOUT_S, list_workers
from txlog.client import MasterClient, StatusResponse, WorkerStatus
from txlog.evaluation.dataset_copy import dump_position, dump_quads
from txlog.model.entry import Position
from txlog.model.errors import Conflict, LogNeedsRestore, NotFound
from txlog.model.hashes import chain_start
from txlog.wire.log_page import LogPage
from txlog.workers import ADAPTERS
from txlog.workers.http_transport import HttpTransport

ENGINE: Final = "oxigraph"
ReadPage = Callable[[int, bytes], LogPage]
"""The page of the log after this index and hash."""


class FirstData(NamedTuple):
    """Where a store begins, and its quads there."""

    position: Position
    quads: Iterator[ox.Quad]


def log_start(status: StatusResponse) -> Position:
    """The position before the first entry of a cluster."""
    return Position(0, 0, chain_start(bytes.fromhex(status.cluster_id or "")))


def log_has_all(status: StatusResponse, read_page: ReadPage) -> bool:
    """Whether the log makes the data from nothing: it is not trimmed, and no store was adopted with its content."""
    if any(worker.position is not None and worker.position.base for worker in status.workers):
        return False
    try:
        read_page(0, log_start(status).hash)
    except LogNeedsRestore:
        return False
    return True


def choose_source(workers: Sequence[WorkerStatus]) -> WorkerStatus | None:
    """The worker that is copied: the most advanced Oxigraph that works and is not known to be wrong."""
    return choose_most_advanced([each for each in workers if each.engine in ("", ENGINE)])


@contextmanager
def copy_worker(masters: Sequence[MasterClient], scratch: Path | None = None) -> Iterator[FirstData]:
    """The data of a worker of these masters' data centre at one position of the log. ``scratch``: the folder of the
    file that holds it meanwhile. Raises :class:`NotFound` where no Oxigraph works, and :class:`Conflict` where one is
    at no position of the log."""
    found = choose_source(list_workers(masters))
    if found is None:
        raise NotFound("no working worker of this data centre is an Oxigraph: there is no data to begin with")
    with ExitStack() as closing:
        rows = closing.enter_context(tempfile.TemporaryFile(dir=scratch))
        adapter = ADAPTERS[found.engine or ENGINE]
        transport = closing.enter_context(HttpTransport(found.url, READ_TIMEOUT_S))
        with transport.stream(adapter.dump()) as answer:
            _save(found.name, answer.status, answer.chunks, rows)
        position = dump_position(adapter, rows)
        if position is None:
            raise Conflict(f"the worker {found.name} is at no position of the log; try again")
        yield FirstData(position, dump_quads(adapter, rows))


def _save(name: str, status: int, chunks: Iterator[bytes], rows: IO[bytes]) -> None:
    if status != 200:
        raise Conflict(f"the worker {name} answered {status} when its data was read")
    for chunk in chunks:
        rows.write(chunk)
    rows.flush()
