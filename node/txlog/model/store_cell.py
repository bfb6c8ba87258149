"""The unit in which the contents of stores are compared."""

from __future__ import annotations

from typing import NamedTuple


class StoreCell(NamedTuple):
    """The quads of one ``graph`` with one ``predicate``: IRIs without brackets. An empty graph is the default graph.
    ``predicate`` None: all quads of the graph."""

    graph: str
    predicate: str | None
