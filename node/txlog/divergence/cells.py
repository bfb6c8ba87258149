"""Compares readings of a cell, taken of several workers or at several moments. Pure.

A reading was taken at the position of its worker. Two readings are comparable where both count at one position: at the
same one, or where no entry between them may have written to the cell (:mod:`txlog.divergence.written_cells`). So no
worker is paused, except for cells that are written all the time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from txlog.divergence.written_cells import WrittenCells
from txlog.model.hashes import NO_HASH
from txlog.model.store_cell import StoreCell


class CellReading(NamedTuple):
    """What a worker held of a cell at one moment. ``log_index``, ``hash``, ``fence``: its marker then, read in the same
    query. ``quads``: how many; ``total``: the sum of their hashes (:mod:`txlog.workers.digest`)."""

    log_index: int
    hash: bytes
    fence: int
    quads: int
    total: int

    @property
    def content(self) -> tuple[int, int]:
        """Equal exactly where the quads are."""
        return self.quads, self.total


class CellEvidence(NamedTuple):
    """What ``worker`` holds at a position, by a reading that counts there."""

    worker: str
    cell: StoreCell
    reading: CellReading


class CellVerdict(NamedTuple):
    """``is_compared``: all readings count at one position. ``differs``: a worker holds something else than another one
    at one position, or than itself before without a write to the cell. ``evidence``: readings as of the positions at
    which they are compared, in the order of time for each worker."""

    is_compared: bool
    differs: bool
    evidence: list[CellEvidence]


class _Listing(NamedTuple):
    """``begun``: the position of each worker before it, as a reading without quads. ``cells``, ``graphs``: what it
    showed."""

    begun: Mapping[str, CellReading]
    cells: frozenset[StoreCell]
    graphs: frozenset[str]

    def find_empty(self, worker: str, cell: StoreCell) -> CellReading | None:
        """The reading of a worker that had no quad of the cell; None where it may have had some, or was not listed."""
        is_shown = cell in self.cells or (cell.predicate is None and cell.graph in self.graphs)
        return None if is_shown else self.begun.get(worker)


class CellReadings:
    """The last reading of each cell of each worker. ``written`` has followed the log up to all readings that it gets,
    else they are not compared."""

    def __init__(self, written: WrittenCells) -> None:
        self._written = written
        self._by_cell: dict[StoreCell, dict[str, CellReading]] = {}
        self._listed = self._listed_before = _Listing({}, frozenset(), frozenset())

    def on_listed(self, begun: Mapping[str, CellReading], cells: Iterable[StoreCell]) -> None:
        """All cells of each worker were listed, from these positions on (without quads). ``cells``: those that any of
        them had. A cell that the listing before did not show was empty then."""
        shown = frozenset(cells)
        graphs = frozenset(cell.graph for cell in shown)
        self._listed_before, self._listed = self._listed, _Listing(dict(begun), shown, graphs)

    def of(self, cell: StoreCell) -> Mapping[str, CellReading]:
        """By worker."""
        return self._by_cell.get(cell, {})

    def forget(self, cell: StoreCell) -> None:
        """The cell does not exist any more."""
        self._by_cell.pop(cell, None)

    def forget_predicates(self) -> None:
        """From here on graphs are read whole: what was read of single predicates would be in sums beside them."""
        for cell in [cell for cell in self._by_cell if cell.predicate is not None]:
            del self._by_cell[cell]

    @property
    def written(self) -> WrittenCells:
        """What the log wrote."""
        return self._written

    def keep_fences(self, fences: Mapping[str, int]) -> None:
        """Forget readings with a lower fence than the worker's: they are from before a repair or a rebuild."""
        for cell, readings in self._by_cell.items():
            kept = {name: each for name, each in readings.items() if each.fence >= fences.get(name, 0)}
            if len(kept) < len(readings):
                self._by_cell[cell] = kept

    def is_current(self, cell: StoreCell, workers: Iterable[str]) -> bool:
        """Whether nothing may have written to the cell since the last readings of these workers."""
        readings = self._by_cell.get(cell, {})
        last = self._written.last_write(cell)
        return all(
            (reading := readings.get(name)) is not None and max(last, self._written.floor) <= reading.log_index
            for name in workers
        )

    def judge(self, cell: StoreCell, new: Mapping[str, CellReading]) -> CellVerdict:
        """Compare readings of one cell with each other, and with the earlier ones of the same workers. Afterwards they
        are the last ones."""
        known = {name: each for name, each in new.items() if self._is_on_log(each)}
        at = max(known.values(), default=None)
        if at is None:
            return CellVerdict(False, False, [])
        before = self._by_cell.setdefault(cell, {})
        evidence = []
        for name, reading in known.items():
            was = before.get(name) or self._listed_before.find_empty(name, cell)
            if was is None or was.fence != reading.fence or was.content == reading.content:
                continue
            if self._counts_at(cell, was, reading):
                evidence += [CellEvidence(name, cell, as_of(was, reading)), CellEvidence(name, cell, reading)]
        counting = {name: each for name, each in known.items() if self._counts_at(cell, each, at)}
        differs = bool(evidence) or len({each.content for each in counting.values()}) > 1
        evidence += [CellEvidence(name, cell, as_of(each, at)) for name, each in counting.items()]
        before.update(known)
        return CellVerdict(len(counting) == len(known), differs, evidence)

    def _is_on_log(self, reading: CellReading) -> bool:
        if reading.log_index < self._written.floor:
            return False
        # A store that has executed nothing names no log.
        is_before_all = reading.log_index == 0 and reading.hash == NO_HASH
        return is_before_all or self._written.hash_at(reading.log_index) == reading.hash

    def _counts_at(self, cell: StoreCell, reading: CellReading, at: CellReading) -> bool:
        return reading.log_index <= at.log_index and self._written.counts_at(cell, reading.log_index, at.log_index)

    def sums_at(self, index: int, worker: str) -> dict[str, tuple[int, int]] | None:
        """``(quads, sum)`` of each graph of a worker at a position; None where a reading does not count there."""
        graphs: dict[str, tuple[int, int]] = {}
        for cell, readings in self._by_cell.items():
            reading = readings.get(worker)
            if (
                reading is None
                or reading.log_index > index
                or not self._written.counts_at(cell, reading.log_index, index)
            ):
                return None
            quads, total = graphs.get(cell.graph, (0, 0))
            graphs[cell.graph] = quads + reading.quads, (total + reading.total) % (1 << 128)
        return graphs


def as_of(reading: CellReading, at: CellReading) -> CellReading:
    """The reading at the position of another one, where it counts there."""
    return reading._replace(log_index=at.log_index, hash=at.hash)
