"""Repairs the graphs in which a worker differs, from another worker. It reads only those graphs, and writes the
difference and the marker in one request. An interruption leaves the old state or the repaired one. Both workers are
paused meanwhile; a pause that is not renewed expires."""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from txlog.backup.backup_errors import OtherEngine, RepairDiffers, TooMuchDiffers, WorkerMoved
from txlog.backup.chain_check import ChainCheck
from txlog.backup.pinned_snapshot import POLL_S, SourceWorker, pause_worker, read_marker, resume_worker
from txlog.backup.progress import BackupProgress, ProgressCallback, no_progress
from txlog.backup.worker_lock import WorkerLock
from txlog.client import MasterClient
from txlog.model.entry import KIND_QUADS, KIND_UPDATE
from txlog.model.errors import TxLogError
from txlog.model.quads import encode_quads
from txlog.model.store_cell import StoreCell
from txlog.wire.divergence_report import DivergenceFinding
from txlog.workers.adapter import (
    ApplyResult,
    LockAction,
    MarkerPosition,
    StoreOperation,
    UnexpectedAnswer,
    WorkerResponse,
)
from txlog.workers.cell_rows import CellRows
from txlog.workers.digest import digest_worker

LOCK_TIMEOUT_S: Final = 120.0
ALIGN_TIMEOUT_S: Final = 60.0
PAUSE_RENEW_S: Final = 3.0
"""Interval in which a pause is renewed; the masters keep it for several times as long."""
QUADS_MAX: Final = 200_000
"""Quads to write in one request; above it a rebuild is faster and needs less of the store's memory."""
GRAPH_BYTES_MAX: Final = 512 << 20
"""Bytes of one graph, as it is read."""
WHOLE_QUADS_MAX: Final = 1_000_000
"""Quads of a graph that is read whole though a finding names its cells: others of it may differ, too."""
CELLS_MAX: Final = 20
"""A finding with that many cells does not name all."""
PATCHES_MAX: Final = 20
_PATCH = re.compile(r"-[0-9]{12}-[0-9]{6}\.rdfp")
_BLANK = re.compile(rb"^_:|^<[^>]*> <[^>]*> _:")
_BLANK_IN_TRIPLE_TERM = re.compile(rb'^[^"]*? <<\((?: |<[^<>]*>|"(?:[^"\\]|\\.)*"[^ ]*|<<\()*_:')


class RepairResult(NamedTuple):
    """``graphs``: the copied graphs (empty: the default graph), with the number of quads ``added`` and ``removed``.
    ``marker``: the worker's marker after the repair."""

    graphs: list[str]
    added: int
    removed: int
    marker: MarkerPosition


class RepairPatch(NamedTuple):
    """A planned repair as lines of N-Quads: ``removed`` from the worker, whose marker is ``marker``, and ``added`` to
    it."""

    worker: str
    marker: MarkerPosition
    removed: list[bytes]
    added: list[bytes]


class _GraphChange(NamedTuple):
    operations: list[StoreOperation]
    removed: list[bytes]
    added: list[bytes]

    @property
    def size(self) -> int:
        return len(self.removed) + len(self.added)


def known_graphs(known: DivergenceFinding | None) -> list[str] | None:
    """The graphs that are known to differ; None if some of them are unknown."""
    if known is None or known.graph_count is None or known.graph_count != len(known.graphs) or not known.graphs:
        return None
    return known.graphs


def known_cells(known: DivergenceFinding | None) -> list[StoreCell]:
    """The cells that are known to differ, if they are all that is known to."""
    if known is None or known.kind != "cells" or known_graphs(known) is None or len(known.cells) >= CELLS_MAX:
        return []
    return known.cells


def repair_graphs(
    source: SourceWorker,
    into: SourceWorker,
    on_chain: ChainCheck,
    *,
    graphs: Sequence[str] | None = None,
    cells: Sequence[StoreCell] = (),
    lines_max: int = QUADS_MAX,
    on_progress: ProgressCallback = no_progress,
    before: Callable[[RepairPatch], None] = lambda _: None,
) -> RepairResult:
    """Makes the ``graphs`` of ``into`` equal to those of ``source`` at one index. With None it finds the differing
    graphs by reading both workers. Of a large graph it reads the ``cells`` alone, where there are some of it. The
    pipelines are paused meanwhile. ``before`` receives the patch before it is written.

    :class:`~txlog.backup.backup_errors.TooMuchDiffers` when the worker must be rebuilt instead, ``RepairDiffers`` when
    it still differs afterwards, ``WorkerMoved`` when both do not reach one index: nothing was changed.
    """
    if source.adapter.engine != into.adapter.engine:
        raise OtherEngine(f"{source.name} is {source.adapter.engine}, {into.name} is {into.adapter.engine}")
    until = time.monotonic() + ALIGN_TIMEOUT_S
    written: RepairResult | None = None
    with _PausedPair(source, into) as held:
        while True:
            try:
                right, wrong = _align_positions(source, into, held, until)
                on_chain(right.position)
                names = _find_differing_graphs(source, into, on_progress) if graphs is None else list(graphs)
                copied, change = _compute_changes(source, into, names, cells, lines_max, on_progress)
                # A pause takes effect with a delay: a worker that moved in the meantime is read again.
                _check_not_moved(source, right)
                _check_not_moved(into, wrong)
                if not copied:
                    return written._replace(marker=wrong) if written else RepairResult([], 0, 0, wrong)
                if written is not None:
                    raise RepairDiffers(
                        f"{into.name} still differs from {source.name} in {len(copied)} graphs, such as "
                        f"{copied[0] or 'the default graph'}: rebuild it (txlog worker rebuild {into.name} --live)"
                    )
                on_progress(BackupProgress("repairing", 0, None, into.name))
                before(RepairPatch(into.name, wrong, change.removed, change.added))
                marker = _apply_operations(into, wrong, change.operations)
                written, graphs = RepairResult(copied, len(change.added), len(change.removed), marker), copied
            except WorkerMoved:
                if time.monotonic() > until:
                    raise


def save_patch(folder: Path, taken: RepairPatch) -> Path:
    """Saves the repair as an RDF Patch (``D`` removed, ``A`` added), so that no data is lost. The newest
    :data:`PATCHES_MAX` of a worker stay."""
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


class _PausedPair:
    """Pauses both workers at one index; a thread renews the pauses until they end here."""

    def __init__(self, *both: SourceWorker) -> None:
        self._workers = both
        self._index: int | None = None
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._renew, name="txlog-holds", daemon=True)

    def __enter__(self) -> _PausedPair:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()
        for each in self._workers:
            resume_worker(each.masters, each.name, "repair")

    def pause_at(self, index: int) -> None:
        """``Unavailable`` when no master of one of them accepts the pause."""
        self._index = index
        for each in self._workers:
            if each.masters:
                pause_worker(each.masters, each.name, index, "repair")

    def _renew(self) -> None:
        # A client is not thread-safe.
        with ExitStack() as closing:
            urls = {master.url: master.url for each in self._workers for master in each.masters}
            clients = {url: closing.enter_context(MasterClient(url)) for url in urls}
            while not self._stopped.wait(PAUSE_RENEW_S):
                index = self._index
                for each in self._workers if index is not None else ():
                    with suppress(TxLogError):
                        pause_worker([clients[master.url] for master in each.masters], each.name, index or 0, "repair")


def _align_positions(
    source: SourceWorker, into: SourceWorker, held: _PausedPair, until: float
) -> tuple[MarkerPosition, MarkerPosition]:
    """Pauses both at one index, as far as one poll shows."""
    while True:
        right, wrong = read_marker(source), read_marker(into)
        index = max(right.position.index, wrong.position.index)
        held.pause_at(index)
        if right.position.index == wrong.position.index:
            if right.position.hash != wrong.position.hash:
                raise WorkerMoved(f"{into.name} and {source.name} are on different branches at index {index}")
            return right, wrong
        if time.monotonic() > until:
            raise WorkerMoved(
                f"{into.name} ({wrong.position.index}) and {source.name} ({right.position.index}) did not come to "
                f"one index within {ALIGN_TIMEOUT_S:g} s; see txlog worker list"
            )
        time.sleep(POLL_S)


def _check_not_moved(of: SourceWorker, marker: MarkerPosition) -> None:
    if not of.adapter.parse_is_at(of.transport.send(of.adapter.is_at(marker))):
        raise WorkerMoved(f"{of.name} moved on while it was read, although it was held; try again")


def _compute_changes(
    source: SourceWorker,
    into: SourceWorker,
    names: Sequence[str],
    cells: Sequence[StoreCell],
    lines_max: int,
    on_progress: ProgressCallback,
) -> tuple[list[str], _GraphChange]:
    """The graphs that differ, and the changes that make them equal."""
    change, copied = _GraphChange([], [], []), list[str]()
    for name in names:
        on_progress(BackupProgress("comparing", 0, None, name or "the default graph"))
        mine = [cell for cell in cells if cell.graph == name]
        if not (mine and any(_is_large(each, name) for each in (source, into))):
            mine = []
        one = _compute_change(source, into, name, mine)
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


def _find_differing_graphs(source: SourceWorker, into: SourceWorker, on_progress: ProgressCallback) -> list[str]:
    on_progress(BackupProgress("comparing", 0, None, "all graphs of both workers are read"))
    with ThreadPoolExecutor(2) as pool:
        right, wrong = pool.map(lambda each: digest_worker(each.adapter, each.transport), (source, into))
    return wrong.differs_from(right)


def _is_large(of: SourceWorker, graph: str) -> bool:
    """Whether a graph is too large to be read whole for a difference in a few cells."""
    request = of.adapter.list_cells([graph], 0, WHOLE_QUADS_MAX)
    return sum(of.adapter.parse_cells([graph], of.transport.send(request)).values()) >= WHOLE_QUADS_MAX


def _compute_change(source: SourceWorker, into: SourceWorker, graph: str, cells: Sequence[StoreCell]) -> _GraphChange:
    """``cells``: of the graph, those to compare; none: the whole graph."""
    right, wrong = (_read_cells(each, cells) if cells else _read_graph(each, graph) for each in (source, into))
    add, remove = right - wrong, wrong - right
    if any(_BLANK_IN_TRIPLE_TERM.match(line) for line in remove):
        raise TooMuchDiffers(f"{into.name} holds a blank node in a triple term, which no request can name: rebuild")
    if any(_BLANK.match(line) or _BLANK_IN_TRIPLE_TERM.match(line) for line in add):
        raise TooMuchDiffers(
            f"{source.name} holds blank nodes in {graph or 'the default graph'}, which cannot be copied: rebuild"
        )
    operations = []
    if any(_BLANK.match(line) for line in remove):
        # TxLog never writes blank nodes, so all are removed; a request cannot name a single one.
        inside = "?s ?p ?o FILTER(isBlank(?s) || isBlank(?o))"
        where = f"GRAPH <{graph}> {{ {inside} }}" if graph else inside
        pattern = f"GRAPH <{graph}> {{ ?s ?p ?o }}" if graph else "?s ?p ?o"
        text = f"DELETE {{ {pattern} }} WHERE {{ {where} }}"
        operations.append(StoreOperation(KIND_UPDATE, text.encode()))
    end = b" <" + graph.encode() + b"> ." if graph else b" ."
    deletes = [line[:-2] + end for line in sorted(remove) if not _BLANK.match(line)]
    adds = [line[:-2] + end for line in sorted(add)]
    operations.append(StoreOperation(KIND_QUADS, encode_quads(deletes, adds)))
    return _GraphChange(operations, [line[:-2] + end for line in sorted(remove)], adds)


def _read_graph(of: SourceWorker, graph: str) -> set[bytes]:
    """The triples of one graph as lines of N-Triples; none when the graph does not exist."""
    with of.transport.stream(of.adapter.export("application/n-triples", graph or None)) as answer:
        pieces, size = [], 0
        for chunk in of.adapter.clean_snapshot(answer.chunks) if answer.status == 200 else answer.chunks:
            pieces.append(chunk)
            size += len(chunk)
            if size > GRAPH_BYTES_MAX:
                raise TooMuchDiffers(
                    f"{graph or 'the default graph'} is larger than {GRAPH_BYTES_MAX >> 20} MiB: rebuild"
                )
        body = b"".join(pieces)
        if answer.status == 404:
            return set()
        if answer.status != 200:
            raise UnexpectedAnswer("reading a graph", WorkerResponse(answer.status, answer.headers, body))
    return {line for line in body.split(b"\n") if line}


def _read_cells(of: SourceWorker, cells: Sequence[StoreCell]) -> set[bytes]:
    """The triples of these cells of one graph as lines of N-Triples."""
    found, size = set[bytes](), 0
    with of.transport.stream(of.adapter.read_cells(cells)) as answer:
        if answer.status != 200:
            body = b"".join(answer.chunks)
            raise UnexpectedAnswer("reading cells", WorkerResponse(answer.status, answer.headers, body))
        without_graph = [cell._replace(graph="") for cell in cells]
        for place, lines in CellRows(of.adapter, without_graph).read(answer.chunks):
            if place is None:
                continue
            found.update(lines)
            size += sum(map(len, lines))
            if size > GRAPH_BYTES_MAX:
                raise TooMuchDiffers(f"the cells that differ are larger than {GRAPH_BYTES_MAX >> 20} MiB: rebuild")
    return found


def _apply_operations(
    into: SourceWorker, found: MarkerPosition, operations: Sequence[StoreOperation]
) -> MarkerPosition:
    """Applies all operations and a marker with a raised fence, or nothing."""
    new = found._replace(fence=found.fence + 1)
    repair = partial(into.adapter.apply, operations, found, new, lock=LockAction.CONFIRM, release=True)
    lock = WorkerLock(into, time.monotonic() + LOCK_TIMEOUT_S)
    while True:
        verdict = lock.submit(repair, "repairing")
        if verdict is ApplyResult.APPLIED:
            return new
        if verdict is ApplyResult.MOVED:
            raise WorkerMoved(f"{into.name} moved on while it was read, although it was held; try again")
        lock.pause()
