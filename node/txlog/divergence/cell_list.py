"""Lists the cells of one store, by queries of a bounded number of quads. Pure: what is asked, and what came."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from txlog.model.store_cell import StoreCell

LIST_QUADS: Final = 500_000
"""Quads of one query: 0.2 s of a store, and as much for a million quads of the same graph that precede them."""
GRAPHS_PER_QUERY: Final = 64
_NAMEABLE: Final = re.compile(r'[^\x00-\x20<>"{}|\\^`]*')
"""What a query can have between brackets."""


class ListedPart(NamedTuple):
    """The quads of these graphs (empty: the default graph), after the first ``first``."""

    graphs: tuple[str, ...]
    first: int


class CellListing:
    """The listing of these graphs (empty: the default graph) of one store. ``cells``: those that were found, with the
    number of their quads."""

    def __init__(self, graphs: Iterable[str]) -> None:
        names = [graph for graph in graphs if _NAMEABLE.fullmatch(graph)]
        self._parts = deque(
            ListedPart(tuple(names[first : first + GRAPHS_PER_QUERY]), 0)
            for first in range(0, len(names), GRAPHS_PER_QUERY)
        )
        self.cells: dict[StoreCell, int] = {}

    @property
    def next_part(self) -> ListedPart | None:
        """What to ask for next; None at the end."""
        return self._parts[0] if self._parts else None

    def add(self, found: Mapping[StoreCell, int]) -> None:
        """The answer for :attr:`next_part`. Several graphs that are more than one query are asked for in halves."""
        part = self._parts.popleft()
        if sum(found.values()) >= LIST_QUADS:
            if len(part.graphs) > 1:
                middle = len(part.graphs) // 2
                self._parts.extendleft([ListedPart(part.graphs[middle:], 0), ListedPart(part.graphs[:middle], 0)])
                return
            self._parts.appendleft(ListedPart(part.graphs, part.first + LIST_QUADS))
        for cell, quads in found.items():
            if cell.predicate is not None and _NAMEABLE.fullmatch(cell.predicate):
                self.cells[cell] = self.cells.get(cell, 0) + quads
