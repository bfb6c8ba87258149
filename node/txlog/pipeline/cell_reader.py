"""Reads cells of one store: their digests, and the marker, as of one moment of the store."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from txlog.divergence.cell_schedule import QUADS_PER_READ
from txlog.divergence.cells import CellReading
from txlog.model.store_cell import StoreCell
from txlog.workers.adapter import (
    Adapter,
    MarkerPosition,
    StreamedResponse,
    StreamTransport,
    SystemGraphs,
    UnexpectedAnswer,
    WorkerResponse,
)
from txlog.workers.cell_rows import CellLines, CellRows
from txlog.workers.digest import sum_lines

READ_TIMEOUT_S: Final = 120.0
"""Time-out for the next bytes of an answer: a stopped store delays all comparisons for so long."""
PAUSE_S_MAX: Final = 20.0
"""Below the time-out after which stores abandon a reader."""


class CellAnswer(NamedTuple):
    """``readings``: of all cells that were asked for. ``busy_s``: how long the store worked; ``unpaid_s``: the part of
    it for which the read has not paused itself."""

    readings: dict[StoreCell, CellReading]
    busy_s: float
    unpaid_s: float


class ReadPace(NamedTuple):
    """``share()``: the part of the time that the store may work now. ``stop``: the read ends early."""

    share: Callable[[], float]
    stop: threading.Event


def single_marker(system: SystemGraphs) -> MarkerPosition | None:
    """The worker's marker; None when it holds no prefix of the log."""
    if system.loading or len(system.markers) != 1 or system.markers[0].unordered:
        return None
    return system.markers[0]


def read_cells(
    adapter: Adapter,
    transport: StreamTransport,
    cells: Sequence[StoreCell],
    pace: ReadPace,
    on_begun: Callable[[], None] = lambda: None,
) -> CellAnswer | None:
    """Read these cells by one query. ``on_begun``: called when the store has fixed the moment that the answer shows.
    A read of a large cell pauses inside, for its share. None when the worker holds no prefix of the log, or after
    ``stop``. Raises :class:`~txlog.workers.adapter.Unreachable` and
    :class:`~txlog.workers.adapter.UnexpectedAnswer`."""
    sums = [(0, 0)] * len(cells)
    names = list[str]()
    busy_s = unpaid_s = 0.0
    rows, began = 0, time.monotonic()
    with transport.stream(adapter.read_cells(cells)) as answer:
        if answer.status != 200:
            body = b"".join(answer.chunks)
            raise UnexpectedAnswer("reading cells", WorkerResponse(answer.status, answer.headers, body))
        on_begun()
        for place, lines in _read_rows(adapter, cells, answer):
            if place is None:
                names += [line.decode() for line in lines]
                continue
            count, total = sum_lines(lines)
            sums[place] = sums[place][0] + count, (sums[place][1] + total) % (1 << 128)
            rows += count
            if rows <= QUADS_PER_READ:
                continue
            busy = time.monotonic() - began
            busy_s += busy
            if pace.stop.wait(min(PAUSE_S_MAX, busy / pace.share() - busy)):
                return None
            began = time.monotonic()
    unpaid_s = time.monotonic() - began
    marker = single_marker(adapter.system_graphs_from_names(names))
    if marker is None:
        return None
    at = marker.position
    readings = {cell: CellReading(at.index, at.hash, marker.fence, *sums[n]) for n, cell in enumerate(cells)}
    return CellAnswer(readings, busy_s + unpaid_s, unpaid_s)


def _read_rows(adapter: Adapter, cells: Sequence[StoreCell], answer: StreamedResponse) -> Iterator[CellLines]:
    try:
        yield from CellRows(adapter, cells).read(answer.chunks)
    except (ValueError, SyntaxError, LookupError) as wrong:
        about = WorkerResponse(answer.status, answer.headers, f"{type(wrong).__name__}: {wrong}".encode())
        raise UnexpectedAnswer("reading cells", about) from None
