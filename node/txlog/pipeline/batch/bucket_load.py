"""Loads a bucket into the worker, in the task that has all of its pieces."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence

from txlog.apply import WorkerState
from txlog.model.entry import Position
from txlog.pipeline.batch.net_effect import merge_pieces
from txlog.pipeline.batch.task_messages import (
    BucketPiece,
    BucketResult,
    LoadJob,
    LoadSuperseded,
    TaskFault,
    UpdateIndexes,
)
from txlog.workers import ADAPTERS
from txlog.workers.adapter import Transport, UnexpectedAnswer, Unreachable
from txlog.workers.http_transport import HttpTransport

LOAD_BYTES = 48 << 20
LOAD_QUADS = 250_000
"""N-Quads in one request. The store must merge sorted files of each load, so larger loads are cheaper (a quarter less
CPU than at 16 MB). But the store holds a whole load in memory, about 0.8 KB for a quad of 200 bytes."""
ERASE_QUADS = 1000
"""Quads deleted in one request."""
REQUEST_TIMEOUT_S = 120.0
"""Time-out of one request; no reader uses the worker meanwhile."""


def load_bucket(
    job: LoadJob, messages: Iterable[BucketPiece | UpdateIndexes | TaskFault], transport: Transport | None = None
) -> BucketResult:
    """Never raises for an error of the worker or the log: the answer contains it, and the load can be repeated."""
    began = time.time()
    return _load_pieces(job, messages, transport)._replace(began=began)


def _load_pieces(
    job: LoadJob, messages: Iterable[BucketPiece | UpdateIndexes | TaskFault], transport: Transport | None
) -> BucketResult:
    found: list[BucketPiece] = []
    cuts: list[int] = []
    before: Position | None = None
    for each in messages:
        if isinstance(each, TaskFault):
            return BucketResult(fault=each)
        if isinstance(each, UpdateIndexes):
            cuts += each.indexes
            before = each.before if before is None or each.before.index < before.index else before
        else:
            found.append(each)
    first = min(cuts, default=None)
    if first is not None:
        found = [piece for piece in found if piece.first < first]
    known = BucketResult(update_indexes=tuple(sorted(cuts)), before=before)
    if not found:
        return known
    made = merge_pieces(found)
    found.clear()
    deletes = [] if job.worker_was_empty else made.deletes
    adds = 0
    way = transport or HttpTransport(job.url, REQUEST_TIMEOUT_S)
    adapter = ADAPTERS[job.engine]
    try:
        for at in range(0, len(deletes), ERASE_QUADS):
            _check_ownership(job, way)
            _send_checked("taking quads out", way, adapter.delete_quads(deletes[at : at + ERASE_QUADS], ()))
        if made.kept_graphs:
            _check_ownership(job, way)
            _send_checked("making graphs", way, adapter.delete_quads((), made.kept_graphs))
        for body in _join_bodies(made.adds):
            _check_ownership(job, way)
            _send_checked("loading", way, adapter.load(body))
            adds += body.count(b"\n")
    except Unreachable as gone:
        return known._replace(fault=TaskFault(WorkerState.UNREACHABLE, str(gone)))
    except (LoadSuperseded, UnexpectedAnswer) as wrong:
        return known._replace(fault=TaskFault(WorkerState.LOADING, str(wrong)))
    finally:
        if transport is None and isinstance(way, HttpTransport):
            way.close()
    return known._replace(adds=adds, deletes=len(deletes))


def _check_ownership(job: LoadJob, transport: Transport) -> None:
    adapter = ADAPTERS[job.engine]
    if not adapter.parse_is_at(transport.send(adapter.is_loading(job.loading))):
        raise LoadSuperseded(f"{job.worker} is no longer being loaded by this batch; a later load took it over")


def _send_checked(what: str, transport: Transport, request: object) -> None:
    answer = transport.send(request)  # type: ignore[arg-type]
    if not answer.ok:
        raise UnexpectedAnswer(what, answer)


def _join_bodies(adds: Sequence[bytes]) -> Iterator[bytes]:
    """Request bodies of about :data:`LOAD_BYTES` or :data:`LOAD_QUADS`; ``adds`` are whole lines, one or many each."""
    held: list[bytes] = []
    size = quads = 0
    for each in adds:
        more = each.count(b"\n")
        if size and (size + len(each) > LOAD_BYTES or quads + more > LOAD_QUADS):
            yield b"".join(held)
            held, size, quads = [], 0, 0
        held.append(each)
        size += len(each)
        quads += more
    if held:
        yield b"".join(held)
