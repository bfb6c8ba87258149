"""A worker that holds something else in some graphs, set right from another one: only those graphs are read, and what
differs is written in one request together with the marker. Whatever ends in the middle leaves the old state or the
repaired one.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Final, NamedTuple

from txlog.backup.chain import OnChain
from txlog.backup.faults import OtherEngine, RepairDiffers, TooMuchDiffers, WorkerMoved
from txlog.backup.locking import Lock
from txlog.backup.progress import Progress, Told, nobody
from txlog.backup.standing import POLL_S, Source, marker_of
from txlog.client import MasterClient
from txlog.model.entry import KIND_QUADS, KIND_UPDATE
from txlog.model.errors import TxLogError, Unavailable
from txlog.model.quads import encode_quads
from txlog.workers import base
from txlog.workers.base import MarkerPosition, Operation, UnexpectedAnswer, Verdict, WorkerResponse
from txlog.workers.digest import digest_of_worker

LOCK_S: Final = 120.0
MEET_S: Final = 60.0
LINES_MAX: Final = 200_000
"""Quads to write in one request; above it a rebuild is faster, and kinder to the store's memory."""
BYTES_MAX: Final = 512 << 20
"""Of one graph, as it is read."""
_BLANK = re.compile(rb"^_:|^<[^>]*> <[^>]*> _:")


class Repaired(NamedTuple):
    """``graphs``: those that were copied (empty: the default graph), with how many quads were ``added`` and
    ``removed``; ``marker``: where the worker stands now."""

    graphs: list[str]
    added: int
    removed: int
    marker: MarkerPosition


class _Change(NamedTuple):
    operations: list[Operation]
    added: int
    removed: int


def repair(
    source: Source,
    into: Source,
    on_chain: OnChain,
    *,
    graphs: Sequence[str] | None = None,
    lines_max: int = LINES_MAX,
    told: Told = nobody,
) -> Repaired:
    """``into`` holds in ``graphs`` (None: in whatever graphs differ, found by reading both) what ``source`` holds, both
    standing at one index. Their pipelines are asked to stand still meanwhile.

    :class:`~txlog.backup.faults.TooMuchDiffers` when it has to be rebuilt instead, ``RepairDiffers`` when it still
    differs afterwards, ``WorkerMoved`` when they do not come to one index: nothing was touched."""
    if source.adapter.engine != into.adapter.engine:
        raise OtherEngine(f"{source.name} is {source.adapter.engine}, {into.name} is {into.adapter.engine}")
    until = time.monotonic() + MEET_S
    written: Repaired | None = None
    with _held(source, into):
        while True:
            try:
                right, wrong = _meet(source, into, until)
                on_chain(right.position)
                names = _different(source, into, told) if graphs is None else list(graphs)
                copied, change = _differences(source, into, names, lines_max, told)
                # A hold takes a moment to be heard: whoever moved on meanwhile is read again.
                _refuse_moved(source, right)
                _refuse_moved(into, wrong)
                if not copied:
                    return written._replace(marker=wrong) if written else Repaired([], 0, 0, wrong)
                if written is not None:
                    raise RepairDiffers(
                        f"{into.name} still differs from {source.name} in {len(copied)} graphs, such as "
                        f"{copied[0] or 'the default graph'}: rebuild it (txlog worker rebuild {into.name} --live)"
                    )
                told(Progress("repairing", 0, None, into.name))
                marker = _write(into, wrong, change.operations)
                written, graphs = Repaired(copied, change.added, change.removed, marker), copied
            except WorkerMoved:
                if time.monotonic() > until:
                    raise


@contextmanager
def _held(*both: Source) -> Iterator[None]:
    """The holds that are asked for meanwhile end here."""
    try:
        yield
    finally:
        for each in both:
            for master in each.masters:
                with suppress(TxLogError):
                    master.lift_hold(each.name)


def _meet(source: Source, into: Source, until: float) -> tuple[MarkerPosition, MarkerPosition]:
    """Both at one index, as far as a look can tell."""
    while True:
        right, wrong = marker_of(source), marker_of(into)
        index = max(right.position.index, wrong.position.index)
        for each in (source, into):
            _hold(each.masters, each.name, index)
        if right.position.index == wrong.position.index:
            if right.position.hash != wrong.position.hash:
                raise WorkerMoved(f"{into.name} and {source.name} stand on different branches at index {index}")
            return right, wrong
        if time.monotonic() > until:
            raise WorkerMoved(
                f"{into.name} ({wrong.position.index}) and {source.name} ({right.position.index}) did not come to "
                f"one index within {MEET_S:g} s; see txlog worker list"
            )
        time.sleep(POLL_S)


def _refuse_moved(of: Source, marker: MarkerPosition) -> None:
    if not of.adapter.is_at_in(of.transport.send(of.adapter.is_at(marker))):
        raise WorkerMoved(f"{of.name} moved on while it was read, although it was held; try again")


def _differences(
    source: Source, into: Source, names: Sequence[str], lines_max: int, told: Told
) -> tuple[list[str], _Change]:
    """The graphs that differ, and what makes them equal."""
    change, copied = _Change([], 0, 0), list[str]()
    for name in names:
        told(Progress("comparing", 0, None, name or "the default graph"))
        one = _difference(source, into, name)
        if one.added or one.removed:
            copied.append(name)
        change = _Change(change.operations + one.operations, change.added + one.added, change.removed + one.removed)
        if change.added + change.removed > lines_max:
            raise TooMuchDiffers(
                f"{into.name} differs from {source.name} in more than {lines_max:,} quads: rebuild it "
                f"(txlog worker rebuild {into.name} --live)"
            )
    return copied, change


def _hold(masters: Sequence[MasterClient], worker: str, index: int) -> None:
    done = 0
    for master in masters:
        with suppress(TxLogError):
            master.put_hold(worker, index)
            done += 1
    if masters and not done:
        raise Unavailable("NoMaster", f"no master takes the hold of {worker}; see txlog status")


def _different(source: Source, into: Source, told: Told) -> list[str]:
    told(Progress("comparing", 0, None, "all graphs of both workers are read"))
    with ThreadPoolExecutor(2) as pool:
        right, wrong = pool.map(lambda each: digest_of_worker(each.adapter, each.transport), (source, into))
    return wrong.differs_from(right)


def _difference(source: Source, into: Source, graph: str) -> _Change:
    right, wrong = _lines(source, graph), _lines(into, graph)
    add, remove = right - wrong, wrong - right
    if any(_BLANK.match(line) for line in add):
        raise TooMuchDiffers(
            f"{source.name} holds blank nodes in {graph or 'the default graph'}, which cannot be copied: rebuild"
        )
    operations = []
    if any(_BLANK.match(line) for line in remove):
        # Nothing of ours has blank nodes, so all of them go; they cannot be named one by one.
        inside = "?s ?p ?o FILTER(isBlank(?s) || isBlank(?o))"
        where = f"GRAPH <{graph}> {{ {inside} }}" if graph else inside
        pattern = f"GRAPH <{graph}> {{ ?s ?p ?o }}" if graph else "?s ?p ?o"
        text = f"DELETE {{ {pattern} }} WHERE {{ {where} }}"
        operations.append(Operation(KIND_UPDATE, text.encode()))
    end = b" <" + graph.encode() + b"> ." if graph else b" ."
    deletes = [line[:-2] + end for line in sorted(remove) if not _BLANK.match(line)]
    operations.append(Operation(KIND_QUADS, encode_quads(deletes, [line[:-2] + end for line in sorted(add)])))
    return _Change(operations, len(add), len(remove))


def _lines(of: Source, graph: str) -> set[bytes]:
    """The triples of one graph as lines of N-Triples; none when it is not there."""
    with of.transport.stream(of.adapter.export("application/n-triples", graph or None)) as answer:
        pieces, size = [], 0
        for chunk in of.adapter.cleaned(answer.chunks) if answer.status == 200 else answer.chunks:
            pieces.append(chunk)
            size += len(chunk)
            if size > BYTES_MAX:
                raise TooMuchDiffers(f"{graph or 'the default graph'} is larger than {BYTES_MAX >> 20} MiB: rebuild")
        body = b"".join(pieces)
        if answer.status == 404:
            return set()
        if answer.status != 200:
            raise UnexpectedAnswer("reading a graph", WorkerResponse(answer.status, answer.headers, body))
    return {line for line in body.split(b"\n") if line}


def _write(into: Source, found: MarkerPosition, operations: Sequence[Operation]) -> MarkerPosition:
    """All of it and the marker behind a new fence, or nothing."""
    adapter, transport = into.adapter, into.transport
    new = found._replace(fence=found.fence + 1)
    lock = Lock(into, time.monotonic() + LOCK_S)
    while True:
        token = lock.claim()
        request = adapter.apply(operations, found, new, lock=base.Lock.CONFIRM, token=token, release=True)
        answer = transport.send(request)
        verdict = adapter.verdict(answer)
        if verdict is Verdict.APPLIED:
            return new
        transport.send(adapter.unclaim(token))
        if verdict is Verdict.REFUSED:
            raise UnexpectedAnswer("repairing", answer)
        if verdict is Verdict.MOVED:
            raise WorkerMoved(f"{into.name} moved on while it was read, although it was held; try again")
        lock.refuse_when_late()
        time.sleep(random.uniform(POLL_S / 5, POLL_S))
