"""A whole data set into one worker: Loading → batches → compared → its position.

Under the appliers' lock the worker is marked as loading, in one transaction with its being empty. From then on no
applier touches it, so the lock is given back. What breaks off leaves that mark.
"""

from __future__ import annotations

import random
import secrets
import time
from collections.abc import Iterator
from typing import Final, NamedTuple

from txlog.backup.backup_errors import LoadingLost, RestoredDiffers, WorkerLoading, WorkerNotEmpty
from txlog.backup.part_codec import batch_lines, coalesce
from txlog.backup.pinned_snapshot import POLL_S, read_system_graphs
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

BATCH_BYTES: Final = 8 << 20
"""N-Quads in one request: the store's memory grows with it, its speed hardly."""
LOCK_TIMEOUT_S: Final = 120.0


class ExpectedContent(NamedTuple):
    """What the worker must give out when everything is loaded."""

    position: Position
    quads: int
    digest: str


class RestoreTarget(NamedTuple):
    """The worker to load into."""

    name: str
    adapter: Adapter
    transport: StreamTransport


def refuse_unless_empty(into: RestoreTarget, *, again: bool) -> None:
    """:class:`~txlog.backup.backup_errors.WorkerNotEmpty` or ``WorkerLoading``. ``again``: a load that broke off may
    lie there."""
    _refuse_occupied(into, _read_store(into), again)


class _StoreContents(NamedTuple):
    """What lies in a worker, as of one moment."""

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
            f"{into.name} stands at index {found.system.markers[-1].position.index}; only an empty worker is restored "
            "into (to replace what it holds: txlog worker rebuild)"
        )
    if found.has_data:
        raise WorkerNotEmpty(f"{into.name} holds data without a position; give TxLog an empty store")


def start_load(
    into: RestoreTarget, position: Position, *, emptying: bool, again: bool = False, lock_s: float = LOCK_TIMEOUT_S
) -> LoadMarker:
    """Mark the worker as loading; it is empty then. ``emptying``: whatever it holds goes. ``again``: only what a load
    that broke off has left there goes.

    To empty it is a request of its own, since beside others it takes as long as there are quads. So between it and the
    mark there is an empty worker, which is where every log can begin, and if a pipeline does just that, it is emptied
    once more."""
    loading = LoadMarker(position, secrets.randbits(62))
    adapter, transport = into.adapter, into.transport
    lock = WorkerLock(into, time.monotonic() + lock_s)
    while True:
        found = _read_store(into)
        if not emptying:
            _refuse_occupied(into, found, again)
        full = found.is_occupied
        emptying = emptying or full  # a load that broke off, from here on
        token = lock.claim()
        request = adapter.mark_unusable(found.system, loading, token) if full else adapter.begin_loading(loading, token)
        answer = transport.send(request)
        verdict = adapter.parse_apply_result(answer)
        if verdict is ApplyResult.APPLIED and not full:
            return loading
        if verdict is ApplyResult.APPLIED:
            emptied = transport.send(adapter.clear())
            if not emptied.ok:
                raise UnexpectedAnswer("emptying", emptied)
            continue
        transport.send(adapter.release_claim(token))
        if verdict is ApplyResult.REFUSED:
            raise UnexpectedAnswer("beginning to load", answer)
        # Somebody applied or claimed at this very moment: what that led to is seen at the next turn.
        lock.raise_if_timed_out()
        time.sleep(random.uniform(POLL_S / 5, POLL_S))


def load_batches(
    into: RestoreTarget, loading: LoadMarker, pieces: Iterator[bytes], quads: int | None, told: ProgressCallback
) -> int:
    """Load N-Quads. Returns how many bytes."""
    size = 0
    for batch in batch_lines(report_progress("loading", quads, told, pieces), BATCH_BYTES):
        _check_ownership(into, loading)
        answer = into.transport.send(into.adapter.load(batch))
        if not answer.ok:
            raise UnexpectedAnswer("loading", answer)
        size += len(batch)
    return size


def finish_load(
    into: RestoreTarget, loading: LoadMarker, expected: ExpectedContent, fence: int, told: ProgressCallback
) -> MarkerPosition:
    """Compare what the worker gives out, then let it be a worker at its position."""
    found = read_digest(into, expected.quads, told)
    if (found.quads, f"{found.total:032x}") != (expected.quads, expected.digest):
        raise RestoredDiffers(
            f"{into.name} gives out {found.quads:,} quads with digest {found.total:032x}, loaded were "
            f"{expected.quads:,} with {expected.digest}; it stays marked as loading: empty it, or restore again"
        )
    marker = MarkerPosition(expected.position, fence)
    answer = into.transport.send(into.adapter.end_loading(loading, marker))
    if not answer.ok:
        _check_ownership(into, loading)
        raise UnexpectedAnswer("setting the position", answer)
    return marker


def read_digest(into: RestoreTarget, quads: int | None, told: ProgressCallback) -> Digest:
    """The digest of what the worker holds."""
    with stream_statements(into.adapter, into.transport) as chunks:
        return digest(report_progress("comparing", quads, told, coalesce(chunks)))


def _check_ownership(into: RestoreTarget, loading: LoadMarker) -> None:
    if not into.adapter.parse_is_at(into.transport.send(into.adapter.is_loading(loading))):
        raise LoadingLost(f"somebody else has begun to load {into.name} meanwhile; theirs counts, this one ends")


def _loading_text(into: RestoreTarget, system: SystemGraphs) -> str:
    return (
        f"a restore into {into.name}, to stand at index {system.loading[0].position.index}, has begun and not ended; "
        "when none runs any more, begin again: txlog restore --again"
    )
