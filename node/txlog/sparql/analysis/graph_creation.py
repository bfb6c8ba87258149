"""Which graphs must not exist before an update, because a ``CREATE`` without ``SILENT`` would fail.

As in RDF4J a graph exists while it holds a quad, and ``CREATE`` makes none. What operations before a ``CREATE`` do to
its graph is followed for ``INSERT DATA``, ``CLEAR`` and ``DROP``; others are not foreseen.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from txlog.model.errors import Conflict
from txlog.sparql.tokens import Token


class CreatedGraphs:
    """Follows the operations of one update. ``graphs``: those (``<iri>``) that must not hold a quad before it."""

    def __init__(self) -> None:
        self.graphs: list[str] = []
        self._exists: dict[str, bool] = {}
        self._all_cleared = False

    def add_quads(self, graphs: set[bytes]) -> None:
        """INSERT DATA into these graphs."""
        self._exists.update((graph.decode(), True) for graph in graphs if graph)

    def add_operation(self, toks: Sequence[Token], expand: Callable[[Token], str]) -> None:
        """CREATE, CLEAR or DROP; others change nothing here. :class:`Conflict`: the graph exists by then."""
        words = [token.text.upper() for token in toks]
        if words[0] in ("CLEAR", "DROP") and words[-1] in ("ALL", "NAMED"):
            self._exists.clear()
            self._all_cleared = True
        if len(toks) < 3 or words[-2] != "GRAPH" or toks[-1].kind not in ("IRI", "PNAME"):
            return
        graph = f"<{expand(toks[-1])}>"
        if words[0] in ("CLEAR", "DROP"):
            self._exists[graph] = False
        elif words[:2] == ["CREATE", "GRAPH"]:
            known = self._exists.get(graph, False if self._all_cleared else None)
            if known:
                raise existing_graph(graph)
            if known is None and graph not in self.graphs:
                self.graphs.append(graph)


def existing_graph(graph: str) -> Conflict:
    """The error of a CREATE whose graph (``<iri>``) exists."""
    return Conflict(f"Named graph {graph[1:-1]} already exists; CREATE SILENT does nothing then")
