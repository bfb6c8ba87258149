"""A bucket into the worker, by the task that has all of its pieces."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence

from txlog.apply import State
from txlog.pipeline.batch.netting import net
from txlog.pipeline.batch.words import Cuts, Fault, Job, Loaded, LoadLost, Piece
from txlog.workers import ADAPTERS
from txlog.workers.base import Transport, UnexpectedAnswer, Unreachable
from txlog.workers.transport import HttpTransport

LOAD_BYTES = 48 << 20
LOAD_QUADS = 250_000
"""N-Quads in one request. Each load leaves sorted files behind that the store has to merge, so larger ones are cheaper
(a quarter less processor than at 16 MB); but it holds all of one in memory, about 0.8 KB for a quad of 200 bytes."""
ERASED = 1000
"""Quads taken out in one request."""
REQUEST_S = 120.0
"""A worker may think so long about one request; it answers nobody meanwhile that could wait for it."""


def load(job: Job, told: Iterable[Piece | Cuts | Fault], transport: Transport | None = None) -> Loaded:
    """Never raises for a fault of the worker or the log: it is in the answer, and the load can be repeated."""
    began = time.time()
    return _load(job, told, transport)._replace(began=began)


def _load(job: Job, told: Iterable[Piece | Cuts | Fault], transport: Transport | None) -> Loaded:
    found: list[Piece] = []
    cuts: list[int] = []
    for each in told:
        if isinstance(each, Fault):
            return Loaded(fault=each)
        if isinstance(each, Cuts):
            cuts += each.indexes
        else:
            found.append(each)
    first = min(cuts, default=None)
    if first is not None:
        found = [piece for piece in found if piece.first < first]
    known = tuple(sorted(cuts))
    if not found:
        return Loaded(cuts=known)
    made = net(found)
    found.clear()
    deletes = [] if job.bare else made.deletes
    adds = 0
    way = transport or HttpTransport(job.url, REQUEST_S)
    adapter = ADAPTERS[job.engine]
    try:
        for at in range(0, len(deletes), ERASED):
            _still_ours(job, way)
            _done("taking quads out", way, adapter.erase(deletes[at : at + ERASED], ()))
        if made.left:
            _still_ours(job, way)
            _done("making graphs", way, adapter.erase((), made.left))
        for body in _bodies(made.adds):
            _still_ours(job, way)
            _done("loading", way, adapter.load(body))
            adds += body.count(b"\n")
    except Unreachable as gone:
        return Loaded(cuts=known, fault=Fault(State.UNREACHABLE, str(gone)))
    except (LoadLost, UnexpectedAnswer) as wrong:
        return Loaded(cuts=known, fault=Fault(State.LOADING, str(wrong)))
    finally:
        if transport is None and isinstance(way, HttpTransport):
            way.close()
    return Loaded(adds, len(deletes), known)


def _still_ours(job: Job, transport: Transport) -> None:
    adapter = ADAPTERS[job.engine]
    if not adapter.is_at_in(transport.send(adapter.is_loading(job.loading))):
        raise LoadLost(f"{job.worker} is no longer being loaded by this batch; whoever took it over goes on")


def _done(what: str, transport: Transport, request: object) -> None:
    answer = transport.send(request)  # type: ignore[arg-type]
    if not answer.ok:
        raise UnexpectedAnswer(what, answer)


def _bodies(adds: Sequence[bytes]) -> Iterator[bytes]:
    """Of about :data:`LOAD_BYTES` or :data:`LOAD_QUADS`; ``adds`` are whole lines, one or many each."""
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
