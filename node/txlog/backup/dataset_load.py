"""Loads a whole data set into one worker: mark as loading → batches → compare → set the position.

Under the appliers' lock, one transaction marks the worker as loading while it is empty. From then on no applier touches
it, so the lock is released. An interrupted load leaves that mark.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from functools import partial
from typing import Final, NamedTuple

from txlog.backup.backup_errors import LoadingLost, RestoredDiffers, WorkerLoading, WorkerNotEmpty
from txlog.backup.part_codec import batch_lines, coalesce
from txlog.backup.pinned_snapshot import read_system_graphs
from txlog.backup.progress import ProgressCallback, report_progress
from txlog.backup.worker_lock import WorkerLock
from txlog.model.entry import Position
from txlog.workers.adapter import (
    Adapter,
    ApplyResult,
    LoadMarker,
    MarkerPosition,
    StreamTransport,
    SystemGraphs,
    UnexpectedAnswer,
)
from txlog.workers.digest import Digest, digest, stream_statements
from txlog.workers.marker_names import may_land

BATCH_BYTES: Final = 8 << 20
"""N-Quads in one request: the store's memory grows with it, its speed hardly does."""
LOCK_TIMEOUT_S: Final = 120.0


class ExpectedContent(NamedTuple):
    """What the worker must return after the load. ``cluster`` and ``base``: of its marker then."""

    position: Position
    quads: int
    digest: str
    cluster: bytes = b""
    base: bytes = b""


class RestoreTarget(NamedTuple):
    """The worker that receives the data set."""

    name: str
    adapter: Adapter
    transport: StreamTransport


def refuse_unless_empty(into: RestoreTarget, *, again: bool) -> None:
    """:class:`~txlog.backup.backup_errors.WorkerNotEmpty` or ``WorkerLoading``. ``again``: accept the rest of an
    interrupted load."""
    _refuse_occupied(into, _read_store(into), again)


class _StoreContents(NamedTuple):
    """The content of a worker as of one moment."""

    system: SystemGraphs
    has_data: bool

    @property
    def is_occupied(self) -> bool:
        return self.has_data or bool(self.system.markers or self.system.loading)


def _read_store(into: RestoreTarget) -> _StoreContents:
    system = read_system_graphs(into.adapter, into.transport)
    return _StoreContents(system, not into.adapter.parse_is_empty(into.transport.send(into.adapter.is_empty())))


def _refuse_occupied(into: RestoreTarget, found: _StoreContents, again: bool) -> None:
    if found.system.loading:
        if not again:
            raise WorkerLoading(_loading_text(into, found.system))
        return
    if found.system.markers:
        raise WorkerNotEmpty(
            f"{into.name} is at index {found.system.markers[-1].position.index}; only an empty worker is restored "
            "into (to replace what it holds: txlog worker rebuild)"
        )
    if found.has_data:
        raise WorkerNotEmpty(f"{into.name} holds data without a position; give TxLog an empty store")


def start_load(
    into: RestoreTarget, position: Position, *, emptying: bool, again: bool = False, lock_s: float = LOCK_TIMEOUT_S
) -> LoadMarker:
    """Marks the worker as loading; it is empty then. ``emptying``: deletes whatever it holds. ``again``: deletes only
    the rest of an interrupted load.

    Deleting is a request of its own: in one request with others it would take time for each quad. So the worker is
    empty and unmarked for a moment. A pipeline may start the log in it then; in that case the load deletes once more.
    """
    loading = LoadMarker(position, secrets.randbits(62))
    adapter, transport = into.adapter, into.transport
    lock = WorkerLock(into, time.monotonic() + lock_s)
    while True:
        found = _read_store(into)
        if any(may_land(each) for each in found.system.loading):
            raise WorkerLoading(
                f"a bulk load may still come into {into.name}; its pipeline has the store restarted, then begin again"
            )
        if not emptying:
            _refuse_occupied(into, found, again)
        full = found.is_occupied
        emptying = emptying or full  # from here on an interrupted load
        begin = (
            partial(adapter.mark_unusable, found.system, loading) if full else partial(adapter.begin_loading, loading)
        )
        verdict = lock.submit(begin, "beginning to load")
        if verdict is ApplyResult.APPLIED and not full:
            return loading
        if verdict is ApplyResult.APPLIED:
            emptied = transport.send(adapter.clear())
            if not emptied.ok:
                raise UnexpectedAnswer("emptying", emptied)
            continue
        lock.pause()  # an applier changed or claimed the worker at this moment; the next iteration sees the result


def load_batches(
    into: RestoreTarget, loading: LoadMarker, pieces: Iterator[bytes], quads: int | None, on_progress: ProgressCallback
) -> int:
    """Loads N-Quads. Returns the number of bytes."""
    size = 0
    for batch in batch_lines(report_progress("loading", quads, on_progress, pieces), BATCH_BYTES):
        _check_ownership(into, loading)
        answer = into.transport.send(into.adapter.load(batch))
        if not answer.ok:
            raise UnexpectedAnswer("loading", answer)
        size += len(batch)
    return size


def finish_load(
    into: RestoreTarget, loading: LoadMarker, expected: ExpectedContent, fence: int, on_progress: ProgressCallback
) -> MarkerPosition:
    """Compares the worker's content, then replaces the loading mark by its position."""
    found = read_digest(into, expected.quads, on_progress)
    if (found.quads, f"{found.total:032x}") != (expected.quads, expected.digest):
        raise RestoredDiffers(
            f"{into.name} gives out {found.quads:,} quads with digest {found.total:032x}, loaded were "
            f"{expected.quads:,} with {expected.digest}; it stays marked as loading: empty it, or restore again"
        )
    marker = MarkerPosition(expected.position, fence, cluster=expected.cluster, base=expected.base)
    answer = into.transport.send(into.adapter.end_loading(loading, marker))
    if not answer.ok:
        _check_ownership(into, loading)
        raise UnexpectedAnswer("setting the position", answer)
    return marker


def read_digest(into: RestoreTarget, quads: int | None, on_progress: ProgressCallback) -> Digest:
    """The digest of the worker's content."""
    with stream_statements(into.adapter, into.transport) as chunks:
        return digest(report_progress("comparing", quads, on_progress, coalesce(chunks)))


def _check_ownership(into: RestoreTarget, loading: LoadMarker) -> None:
    if not into.adapter.parse_is_at(into.transport.send(into.adapter.is_loading(loading))):
        raise LoadingLost(f"another restore has begun to load {into.name} meanwhile; this one ends")


def _loading_text(into: RestoreTarget, system: SystemGraphs) -> str:
    return (
        f"a restore into {into.name}, up to index {system.loading[0].position.index}, has begun and not ended; "
        "when none runs any more, begin again: txlog restore --again"
    )
