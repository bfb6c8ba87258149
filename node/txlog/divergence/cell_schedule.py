"""Which cells are read next: those that were written, soon; a cell that no entry touched, in its turn of a pass.

Pure: the caller says what time it is, in seconds of any clock.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from txlog.model.quad_pattern import DEFAULT_GRAPH, PatternTerm
from txlog.model.store_cell import StoreCell

CELLS_MAX: Final = 10_000
"""Above it the cells are whole graphs."""
CELLS_PER_READ: Final = 64
QUADS_PER_READ: Final = 100_000
"""Bounds of one query, except that it reads one cell at least: about 0.6 s of a store."""
TOUCH_WAIT_S: Final = 15.0
"""A written cell is read after that time, so that writes of some seconds cost one reading."""
REREAD_S: Final = 45.0
"""The least time between two readings of a cell that is written, or of a large one that differs."""
SUSPECT_REREAD_S: Final = 10.0
"""The least time between two readings of a small cell that differs: a finding ends by a newer reading."""
SUSPECT_QUADS: Final = QUADS_PER_READ // 2
"""The most quads of such a cell: about 0.3 s of a store."""
RELIST_S: Final = 600.0
"""The least time between two listings of all graphs for entries that may have added quads to any."""
MISSES_MAX: Final = 3
"""Readings with a write in between, after which the workers are paused for the next one."""


@dataclasses.dataclass
class _CellState:
    since: float
    """When it became known."""
    quads: int = 0
    read_at: float | None = None
    touched_at: float | None = None
    """The first write since the last reading began."""
    misses: int = 0
    is_suspect: bool = False
    """It differed when it was read last, or masters know that it does."""


class CellRead(NamedTuple):
    """The cells of one query. ``is_aligned``: of workers that are paused at one index until it has begun.
    ``is_urgent``: they were written, or differ."""

    cells: list[StoreCell]
    is_aligned: bool
    is_urgent: bool


class PassProgress(NamedTuple):
    """``cells`` and ``quads`` in all, ``quads_left`` to read in this pass, which takes ``elapsed_s`` until now.
    ``pass_s``: how long the last whole one took, None before its end. ``oldest_cell_s``: since the cell was read whose
    last reading is the oldest; for one that was never read, since it is known."""

    cells: int
    quads: int
    quads_left: int
    elapsed_s: float
    pass_s: float | None
    oldest_cell_s: float
    touched: int


class CellSchedule:
    """All known cells. A *pass* reads every cell once. A cell that was read after the pass began, because it had been
    written, is not read once more."""

    def __init__(self, now: float) -> None:
        self._cells: dict[StoreCell, _CellState] = {}
        self._touched: dict[StoreCell, None] = {}
        """Written or suspect, in the order in which they became so."""
        self._unlisted: dict[str | None, float] = {}
        """Graphs to which entries may have added predicates (None: any graph), and since when."""
        self._relisted_at = float("-inf")
        self._by_graph = False
        self._queue = deque[StoreCell]()
        self._pass_began = now
        self.pass_s: float | None = None
        self.pass_count = 0
        """Passes that have ended."""
        self.is_listed = False
        """Whether the cells of this pass are known, so that it can end."""

    def __contains__(self, cell: object) -> bool:
        return cell in self._cells

    @property
    def reads_graphs(self) -> bool:
        """Whether the cells are whole graphs."""
        return self._by_graph

    def cell_of(self, cell: StoreCell) -> StoreCell:
        """The cell that is read for this one."""
        return StoreCell(cell.graph, None) if self._by_graph else cell

    def touch(
        self,
        written: Iterable[tuple[PatternTerm, PatternTerm]],
        now: float,
        is_current: Callable[[StoreCell], bool] = lambda _: False,
    ) -> None:
        """Entries may have written to these graphs and predicates, as in a pattern; None: any. ``is_current``: whether
        the last readings of a cell have these writes already."""
        for graph, predicate in written:
            if graph is None or (predicate is None and not self._by_graph):
                met = [cell for cell in self._cells if _meets(cell, graph, predicate)]
            else:
                name = None if predicate is None else predicate[1:-1].decode()
                met = [self._add(StoreCell(graph[1:-1].decode(), name), now)]
            for cell in met:
                if cell in self._cells and not is_current(cell):
                    self._mark(cell, now)

    def touch_all(self, now: float, is_current: Callable[[StoreCell], bool]) -> None:
        """Read all cells soon that are not current."""
        for cell in [cell for cell in self._cells if not is_current(cell)]:
            self._mark(cell, now)

    def suspect(self, cell: StoreCell, now: float) -> None:
        """The cell is known to differ, or was: it is read soon, also where its last readings are current."""
        cell = self._add(cell, now)
        self._cells[cell].is_suspect = True
        self._mark(cell, now)

    def touch_unread(self, cells: Iterable[StoreCell], now: float) -> None:
        """Those of these cells that were never read are read soon."""
        for cell in map(self.cell_of, cells):
            state = self._cells.get(cell)
            if state is not None and state.read_at is None:
                self._mark(cell, now)

    def extend(self, graphs: Iterable[PatternTerm], now: float) -> None:
        """Entries may have added any predicate to these graphs; None: to any graph."""
        if not self._by_graph or None in graphs:
            for graph in graphs:
                self._unlisted.setdefault(None if graph is None else graph[1:-1].decode(), now)

    def pop_unlisted(self, now: float) -> list[str | None]:
        """The graphs whose cells have to be listed now; None: all graphs, once in :data:`RELIST_S` at most."""
        due = [graph for graph, since in self._unlisted.items() if now >= since + TOUCH_WAIT_S]
        if now < self._relisted_at + RELIST_S:
            due = [graph for graph in due if graph is not None]
        elif None in due:
            self._relisted_at = now
        for graph in due:
            del self._unlisted[graph]
        return due

    def _mark(self, cell: StoreCell, now: float) -> None:
        state = self._cells[cell]
        if state.touched_at is None:
            state.touched_at = now
        self._touched.setdefault(cell)

    def begin_pass(self, now: float) -> None:
        """The cells are listed next (:meth:`add_listed`, :meth:`end_listing`)."""
        self._pass_began, self.is_listed = now, False
        self._queue.clear()

    def add_listed(self, cells: Mapping[StoreCell, int]) -> None:
        """The cells of all stores, with the number of quads in the store that has most of them."""
        if not self._by_graph and len(self._cells.keys() | cells.keys()) > CELLS_MAX:
            self._merge_graphs()
        merged: dict[StoreCell, int] = {}
        for cell, quads in cells.items():
            cell = self.cell_of(cell)
            merged[cell] = merged.get(cell, 0) + quads
        for cell, quads in merged.items():
            state = self._cells.setdefault(cell, _CellState(self._pass_began))
            state.quads = max(state.quads, quads)

    def end_listing(self) -> None:
        """All cells of all stores are known: this pass reads them."""
        self.is_listed = True
        self._queue.extend(sorted(self._cells, key=lambda cell: (cell.graph, cell.predicate or "")))

    def _add(self, cell: StoreCell, now: float) -> StoreCell:
        """Returns the cell that is read for this one."""
        if not self._by_graph and cell not in self._cells and len(self._cells) >= CELLS_MAX:
            self._merge_graphs()
        cell = self.cell_of(cell)
        self._cells.setdefault(cell, _CellState(now))
        return cell

    def _merge_graphs(self) -> None:
        """From here on cells are graphs: each has to be read before it can be compared."""
        before, self._cells, self._by_graph = self._cells, {}, True
        was_touched, self._touched = self._touched, {}
        self._queue.clear()
        for cell, state in before.items():
            merged = self._cells.setdefault(StoreCell(cell.graph, None), _CellState(state.since))
            merged.since = min(merged.since, state.since)
            merged.quads += state.quads
            if state.touched_at is not None:
                merged.touched_at = min(state.touched_at, merged.touched_at or state.touched_at)
        for cell in was_touched:
            self._touched.setdefault(StoreCell(cell.graph, None))
        if self.is_listed:
            self.end_listing()

    def next_due(self, now: float) -> CellRead | None:
        """Cells that were written, or that differ, and whose time has come."""
        due = [cell for cell in self._touched if now >= self._due_at(cell, now)]
        return self._group(due, is_urgent=True) if due else None

    def _due_at(self, cell: StoreCell, now: float) -> float:
        state = self._cells[cell]
        due = now if state.touched_at is None else state.touched_at + TOUCH_WAIT_S
        pause_s = SUSPECT_REREAD_S if state.is_suspect and state.quads <= SUSPECT_QUADS else REREAD_S
        return due if state.read_at is None else max(due, state.read_at + pause_s)

    def next_in_pass(self) -> CellRead | None:
        """The next cells of this pass; None at its end, and before the cells are listed."""
        waiting = list[StoreCell]()
        while self._queue and len(waiting) < CELLS_PER_READ:
            cell = self._queue.popleft()
            state = self._cells.get(cell)
            if state is not None and self._is_unread(state):
                waiting.append(cell)
        group = self._group(waiting, is_urgent=False) if waiting else None
        if group is not None:
            self._queue.extendleft(reversed([cell for cell in waiting if cell not in group.cells]))
        return group

    def _group(self, cells: Sequence[StoreCell], *, is_urgent: bool) -> CellRead:
        aligned = self._cells[cells[0]].misses >= MISSES_MAX
        found, quads = list[StoreCell](), 0
        for cell in cells:
            state = self._cells[cell]
            quads += state.quads
            if found and (len(found) >= CELLS_PER_READ or quads > QUADS_PER_READ):
                break
            if (state.misses >= MISSES_MAX) is aligned:
                found.append(cell)
        return CellRead(found, aligned, is_urgent)

    def on_begin(self, read: CellRead) -> None:
        """It is read now: what is written from here on is another touch."""
        for cell in read.cells:
            self._cells[cell].touched_at = None

    def on_read(self, cell: StoreCell, now: float, quads: int, *, is_compared: bool, is_suspect: bool) -> bool:
        """The cell was read from all workers. ``quads``: the most that one has. ``is_suspect``: it differs, so it is
        read again soon. Returns False for a cell that no worker has: it is forgotten."""
        state = self._cells.get(cell)
        if state is None:
            return True  # its graph is read from here on
        state.read_at, state.quads, state.is_suspect = now, quads, is_suspect
        state.misses = 0 if is_compared else state.misses + 1
        if is_suspect or state.touched_at is not None or not is_compared:
            if not is_compared and state.touched_at is None:
                state.touched_at = now
            self._touched.setdefault(cell)
            return True
        self._touched.pop(cell, None)
        if not quads:
            del self._cells[cell]
        return bool(quads)

    def on_failed(self, read: CellRead, now: float) -> None:
        """No worker could be read: the cells are due again like written ones."""
        for cell in read.cells:
            if cell in self._cells:
                self._mark(cell, now)

    def end_pass(self, now: float) -> bool:
        """Whether every cell was read since the pass began. The next one then begins."""
        if self._queue or not self.is_listed or any(self._is_unread(self._cells[cell]) for cell in self._touched):
            return False
        self.pass_s = now - self._pass_began
        self.pass_count += 1
        self.begin_pass(now)
        return True

    def _is_unread(self, state: _CellState) -> bool:
        return state.read_at is None or state.read_at < self._pass_began

    @property
    def is_settled(self) -> bool:
        """Whether all that entries wrote was compared since, and all workers were read whole once."""
        return not self._touched and not self._unlisted and self.pass_s is not None

    @property
    def is_up_to_date(self) -> bool:
        """Whether all that entries wrote was read since, and all workers whole once. Cells that differ may be due."""
        is_read = all(self._cells[cell].touched_at is None for cell in self._touched)
        return is_read and not self._unlisted and self.pass_s is not None

    def restart(self, now: float) -> None:
        """A worker was added, repaired or rebuilt: nothing is known of it, so a pass over everything begins."""
        self.pass_s = None
        self.begin_pass(now)

    def progress(self, now: float) -> PassProgress:
        """For the status."""
        ages = (now - (state.since if state.read_at is None else state.read_at) for state in self._cells.values())
        left = sum(state.quads for state in self._cells.values() if self._is_unread(state))
        return PassProgress(
            len(self._cells),
            sum(state.quads for state in self._cells.values()),
            left,
            now - self._pass_began,
            self.pass_s,
            max(ages, default=now - self._pass_began),
            len(self._touched),
        )


def _meets(cell: StoreCell, graph: PatternTerm, predicate: PatternTerm) -> bool:
    if graph is not None and graph != (f"<{cell.graph}>".encode() if cell.graph else DEFAULT_GRAPH):
        return False
    return predicate is None or cell.predicate is None or predicate == f"<{cell.predicate}>".encode()
