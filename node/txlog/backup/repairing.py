"""A worker that holds something else in some graphs, set right from another one: only those graphs are read, and what
differs is written in one request together with the marker. Whatever ends in the middle leaves the old state or the
repaired one. Both are held meanwhile; the holds end by themselves when nobody asks for them any more.
"""

from __future__ import annotations

import os
import random
import re
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final, NamedTuple

from txlog.backup.chain import OnChain
from txlog.backup.faults import OtherEngine, RepairDiffers, TooMuchDiffers, WorkerMoved
from txlog.backup.locking import Lock
from txlog.backup.progress import Progress, Told, nobody
from txlog.backup.standing import POLL_S, Source, marker_of
from txlog.client import Divergence, MasterClient
from txlog.model.entry import KIND_QUADS, KIND_UPDATE
from txlog.model.errors import TxLogError, Unavailable
from txlog.model.quads import encode_quads
from txlog.workers import base
from txlog.workers.base import MarkerPosition, Operation, UnexpectedAnswer, Verdict, WorkerResponse
from txlog.workers.digest import digest_of_worker

LOCK_S: Final = 120.0
MEET_S: Final = 60.0
HOLD_S: Final = 3.0
"""After so long a hold is asked for again; the masters keep it for some times that."""
LINES_MAX: Final = 200_000
"""Quads to write in one request; above it a rebuild is faster, and kinder to the store's memory."""
BYTES_MAX: Final = 512 << 20
"""Of one graph, as it is read."""
PATCHES_MAX: Final = 20
_PATCH = re.compile(r"-[0-9]{12}-[0-9]{6}\.rdfp")
_BLANK = re.compile(rb"^_:|^<[^>]*> <[^>]*> _:")


class Repaired(NamedTuple):
    """``graphs``: those that were copied (empty: the default graph), with how many quads were ``added`` and
    ``removed``; ``marker``: where the worker stands now."""

    graphs: list[str]
    added: int
    removed: int
    marker: MarkerPosition


class Taken(NamedTuple):
    """What a repair is about to do, as lines of N-Quads: ``removed`` from the worker, which stands at ``marker``, and
    ``added``."""

    worker: str
    marker: MarkerPosition
    removed: list[bytes]
    added: list[bytes]


class _Change(NamedTuple):
    operations: list[Operation]
    removed: list[bytes]
    added: list[bytes]

    @property
    def size(self) -> int:
        return len(self.removed) + len(self.added)


def named(known: Divergence | None) -> list[str] | None:
    """The graphs that are known to differ; None: not all of them are."""
    if known is None or known.graph_count is None or known.graph_count != len(known.graphs) or not known.graphs:
        return None
    return known.graphs


def repair(
    source: Source,
    into: Source,
    on_chain: OnChain,
    *,
    graphs: Sequence[str] | None = None,
    lines_max: int = LINES_MAX,
    told: Told = nobody,
    before: Callable[[Taken], None] = lambda _: None,
) -> Repaired:
    """``into`` holds in ``graphs`` (None: in whatever graphs differ, found by reading both) what ``source`` holds, both
    standing at one index. Their pipelines are asked to stand still meanwhile. ``before``: hears what will be written.

    :class:`~txlog.backup.faults.TooMuchDiffers` when it has to be rebuilt instead, ``RepairDiffers`` when it still
    differs afterwards, ``WorkerMoved`` when they do not come to one index: nothing was touched."""
    if source.adapter.engine != into.adapter.engine:
        raise OtherEngine(f"{source.name} is {source.adapter.engine}, {into.name} is {into.adapter.engine}")
    until = time.monotonic() + MEET_S
    written: Repaired | None = None
    with _Held(source, into) as held:
        while True:
            try:
                right, wrong = _meet(source, into, held, until)
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
                before(Taken(into.name, wrong, change.removed, change.added))
                marker = _write(into, wrong, change.operations)
                written, graphs = Repaired(copied, len(change.added), len(change.removed), marker), copied
            except WorkerMoved:
                if time.monotonic() > until:
                    raise


def keep_taken(folder: Path, taken: Taken) -> Path:
    """Write that as an RDF Patch (``D`` taken out, ``A`` put in), so that nothing is lost that somebody may want; the
    newest :data:`PATCHES_MAX` of a worker stay."""
    folder.mkdir(parents=True, exist_ok=True)
    at = taken.marker.position.index
    path = folder / f"{taken.worker}-{at:012d}-{taken.marker.fence:06d}.rdfp"
    new = path.with_suffix(".new")
    with open(new, "wb") as file:
        file.writelines(b"D " + line + b"\n" for line in taken.removed)
        file.writelines(b"A " + line + b"\n" for line in taken.added)
        file.flush()
        os.fsync(file.fileno())
    os.replace(new, path)
    mine = sorted(
        each for each in folder.glob(f"{taken.worker}-*.rdfp") if _PATCH.fullmatch(each.name, len(taken.worker))
    )
    for old in mine[:-PATCHES_MAX]:
        old.unlink(missing_ok=True)
    return path


class _Held:
    """The holds of both: asked for at one index, and again and again by a thread, until they end here."""

    def __init__(self, *both: Source) -> None:
        self._both = both
        self._index: int | None = None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._renew, name="txlog-holds", daemon=True)

    def __enter__(self) -> _Held:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        for each in self._both:
            for master in each.masters:
                with suppress(TxLogError):
                    master.lift_hold(each.name, why="repair")

    def at(self, index: int) -> None:
        """``Unavailable`` when no master of one of them takes it."""
        self._index = index
        for each in self._both:
            _hold(each.masters, each.name, index)

    def _renew(self) -> None:
        # A client is one thread's.
        with ExitStack() as closing:
            urls = {master.url: master.url for each in self._both for master in each.masters}
            clients = {url: closing.enter_context(MasterClient(url)) for url in urls}
            while not self._over.wait(HOLD_S):
                index = self._index
                for each in self._both if index is not None else ():
                    with suppress(TxLogError):
                        _hold([clients[master.url] for master in each.masters], each.name, index or 0)


def _meet(source: Source, into: Source, held: _Held, until: float) -> tuple[MarkerPosition, MarkerPosition]:
    """Both at one index, as far as a look can tell."""
    while True:
        right, wrong = marker_of(source), marker_of(into)
        index = max(right.position.index, wrong.position.index)
        held.at(index)
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
    change, copied = _Change([], [], []), list[str]()
    for name in names:
        told(Progress("comparing", 0, None, name or "the default graph"))
        one = _difference(source, into, name)
        if one.size:
            copied.append(name)
            change.operations.extend(one.operations)
            change.removed.extend(one.removed)
            change.added.extend(one.added)
        if change.size > lines_max:
            raise TooMuchDiffers(
                f"{into.name} differs from {source.name} in more than {lines_max:,} quads: rebuild it "
                f"(txlog worker rebuild {into.name} --live)"
            )
    return copied, change


def _hold(masters: Sequence[MasterClient], worker: str, index: int) -> None:
    done = 0
    for master in masters:
        with suppress(TxLogError):
            master.put_hold(worker, index, why="repair")
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
    adds = [line[:-2] + end for line in sorted(add)]
    operations.append(Operation(KIND_QUADS, encode_quads(deletes, adds)))
    return _Change(operations, [line[:-2] + end for line in sorted(remove)], adds)


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
