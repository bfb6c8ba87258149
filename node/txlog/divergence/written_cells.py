"""Which cells the entries of the log wrote to, and where last: so a reading of a cell counts at later positions, too.

A cell that no entry in (P, Q] may have written holds at Q what it held at P. Entries declare what they write
(:mod:`txlog.model.declared_writes`). What is not known counts as a write to every cell.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final

from txlog.model.entry import Position
from txlog.model.quad_pattern import DEFAULT_GRAPH, PatternTerm, QuadPattern
from txlog.model.store_cell import StoreCell

HASHES_KEPT: Final = 100_000
"""Entries behind the head whose hashes are kept. A worker that is further behind is not compared until it is not."""
KEYS_MAX: Final = 20_000
"""Cells, graphs or predicates that are tracked singly. Above it wider ones are."""


class WrittenCells:
    """The part of the log that was followed: (:attr:`floor`, :attr:`head`]. A reading from before it never counts.
    ``restarts``: how often it began at another position."""

    def __init__(self, start: Position) -> None:
        self.restarts = -1
        self.restart(start)

    def restart(self, start: Position) -> None:
        """Begin at another position, with nothing known of what was written before it: the log was not followed
        without a gap, or another view has truncated it."""
        self.restarts += 1
        self.floor = start.index
        self.head = start
        self._hashes = deque[bytes]([start.hash], maxlen=HASHES_KEPT)
        self._anywhere = 0
        self._by_cell: dict[tuple[bytes, bytes], int] = {}
        self._by_graph: dict[bytes, int] = {}
        self._by_predicate: dict[bytes, int] = {}
        self._in_graph: dict[bytes, int] = {}
        """The last write to a graph, of any predicate."""
        self._in_any_graph = 0
        self._touched: set[tuple[PatternTerm, PatternTerm]] = set()
        self._extended: set[PatternTerm] = set()

    def add(
        self, index: int, digest: bytes, writes: Iterable[QuadPattern], additions: Iterable[QuadPattern] = ()
    ) -> None:
        """The next entry. ``digest``: the hash of the log behind it; ``writes``: what it may write. ``additions``: the
        part of it that may be quads of graphs and predicates that ``writes`` does not name."""
        assert index == self.head.index + 1, (index, self.head)
        self.head = Position(0, index, digest)
        self._hashes.append(digest)
        for pattern in writes:
            graph, predicate = pattern.graph, pattern.predicate
            self._touched.add((graph, predicate))
            if graph is None and predicate is None:
                self._anywhere = index
            elif graph is None:
                assert predicate is not None
                self._by_predicate[predicate] = self._in_any_graph = index
            else:
                self._in_graph[graph] = index
                if predicate is None:
                    self._by_graph[graph] = index
                else:
                    self._by_cell[graph, predicate] = index
        for pattern in additions:
            if pattern.graph is None or pattern.predicate is None:
                self._extended.add(pattern.graph)
        self._bound()

    def _bound(self) -> None:
        if len(self._by_cell) > KEYS_MAX:
            for (graph, _), index in self._by_cell.items():
                self._by_graph[graph] = max(index, self._by_graph.get(graph, 0))
            self._by_cell.clear()
        if max(len(self._in_graph), len(self._by_predicate)) > KEYS_MAX:
            self._anywhere = self.head.index
            for table in (self._by_cell, self._by_graph, self._by_predicate, self._in_graph):
                table.clear()
        if len(self._touched) > KEYS_MAX:
            self._touched = {(None, None)}
        if len(self._extended) > KEYS_MAX:
            self._extended = {None}

    def pop_extended(self) -> set[PatternTerm]:
        """The graphs to which predicates may have been added that no entry names, since the last call; None: any."""
        extended, self._extended = self._extended, set()
        return extended

    def pop_touched(self) -> set[tuple[PatternTerm, PatternTerm]]:
        """What was written since the last call: graph and predicate as in a pattern; None: any."""
        touched, self._touched = self._touched, set()
        return touched

    def last_write(self, cell: StoreCell) -> int:
        """The index of the last entry that may have written to a cell; 0: none that was followed."""
        graph = f"<{cell.graph}>".encode() if cell.graph else DEFAULT_GRAPH
        if cell.predicate is None:
            return max(self._anywhere, self._in_any_graph, self._in_graph.get(graph, 0), self._by_graph.get(graph, 0))
        predicate = f"<{cell.predicate}>".encode()
        return max(
            self._anywhere,
            self._by_graph.get(graph, 0),
            self._by_predicate.get(predicate, 0),
            self._by_cell.get((graph, predicate), 0),
        )

    def hash_at(self, index: int) -> bytes | None:
        """The hash of the log at an index; None where it is not known any more, or not yet."""
        behind = self.head.index - index
        return self._hashes[-1 - behind] if 0 <= behind < len(self._hashes) else None

    def counts_at(self, cell: StoreCell, index: int, at: int) -> bool:
        """Whether what a store on this log held of a cell at ``index`` is what it holds at ``at``, as far as the log
        says. ``at`` may not be below ``index``, nor above the head."""
        assert index <= at <= self.head.index, (index, at, self.head)
        return index >= self.floor and (index == at or self.last_write(cell) <= index)
