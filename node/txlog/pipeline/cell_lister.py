"""Lists the cells of several stores side by side, one bounded query to each at a time."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from txlog.backup.pinned_snapshot import read_system_graphs
from txlog.divergence.cell_list import LIST_QUADS, CellListing
from txlog.divergence.cells import CellReading
from txlog.model.errors import TxLogError
from txlog.model.store_cell import StoreCell
from txlog.pipeline.cell_reader import READ_TIMEOUT_S, single_marker
from txlog.pipeline.scanned_workers import ScannedWorker
from txlog.workers.http_transport import HttpTransport

log = logging.getLogger(__name__)
T = TypeVar("T")


class CellLister:
    """``graphs``: those to list (empty: the default graph); None: all. ``begun``: the position of each worker before
    its listing, as a reading without quads. A worker that does not answer is left out from there on."""

    def __init__(self, graphs: Sequence[str] | None = None) -> None:
        self._graphs = graphs
        self._listings: dict[str, CellListing] | None = None
        self.begun: dict[str, CellReading] = {}

    @property
    def is_done(self) -> bool:
        """Whether all was listed."""
        return self._listings is not None and all(each.next_part is None for each in self._listings.values())

    def cells(self) -> dict[StoreCell, int]:
        """What was found, with the number of quads in the store that has most of them."""
        most: dict[StoreCell, int] = {}
        for listing in (self._listings or {}).values():
            for cell, quads in listing.cells.items():
                most[cell] = max(quads, most.get(cell, 0))
        return most

    def step(self, places: Sequence[ScannedWorker]) -> float:
        """One query to each worker. Returns the seconds that the slowest took."""
        if self._listings is None:
            begun, busy_s = _ask_all(places, self._begin)
            self._listings = {name: listing for name, (_, listing) in begun.items()}
            self.begun = {name: reading for name, (reading, _) in begun.items()}
            return busy_s
        listings = self._listings
        parts = {name: part for name, each in listings.items() if (part := each.next_part) is not None}

        def ask(place: ScannedWorker, transport: HttpTransport) -> dict[StoreCell, int]:
            part = parts[place.name]
            request = place.adapter.list_cells(part.graphs, part.first, LIST_QUADS)
            return place.adapter.parse_cells(part.graphs, transport.send(request))

        found, busy_s = _ask_all([place for place in places if place.name in parts], ask)
        for name in parts:
            if name in found:
                listings[name].add(found[name])
            else:
                del listings[name], self.begun[name]
        return busy_s

    def _begin(self, place: ScannedWorker, transport: HttpTransport) -> tuple[CellReading, CellListing] | None:
        """None for a worker that holds no prefix of the log."""
        marker = single_marker(read_system_graphs(place.adapter, transport))
        if marker is None:
            return None
        graphs = self._graphs
        if graphs is None:
            graphs = ["", *place.adapter.parse_contexts(transport.send(place.adapter.contexts()))]
        at = marker.position
        return CellReading(at.index, at.hash, marker.fence, 0, 0), CellListing(graphs)


def _ask_all(
    places: Sequence[ScannedWorker], ask: Callable[[ScannedWorker, HttpTransport], T | None]
) -> tuple[dict[str, T], float]:
    """The answers by worker, and the seconds that the slowest took."""

    def timed(place: ScannedWorker) -> tuple[T | None, float]:
        began = time.monotonic()
        try:
            with HttpTransport(place.url, READ_TIMEOUT_S, connect_s=1.0) as transport:
                return ask(place, transport), time.monotonic() - began
        except (TxLogError, OSError) as wrong:
            log.info("%s is not listed: %s", place.name, wrong)
            return None, time.monotonic() - began

    if not places:
        return {}, 0.0
    with ThreadPoolExecutor(len(places)) as pool:
        found = dict(zip([place.name for place in places], pool.map(timed, places), strict=True))
    answers = {name: answer for name, (answer, _) in found.items() if answer is not None}
    return answers, max(seconds for _, seconds in found.values())
