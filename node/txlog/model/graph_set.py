"""The graphs that a transaction may write: named ones and the default graph, or every graph."""

from __future__ import annotations

from typing import Final

import msgspec

SYSTEM_GRAPH_PREFIX: Final = "urn:txlog:system"
"""The beginning of the names of TxLog's own graphs. No transaction of a client writes one."""


class GraphSet(msgspec.Struct, frozen=True):
    """Certain graphs. ``named``: their IRIs, without brackets. ``default``: the default graph, too."""

    named: frozenset[str] = frozenset()
    default: bool = False


class EveryGraph(msgspec.Struct, frozen=True):
    """Any graph that exists, or will: nothing bounds what the transaction writes."""


WrittenGraphs = GraphSet | EveryGraph
EVERY_GRAPH: Final = EveryGraph()
NO_GRAPH: Final = GraphSet()


def unite_graphs(one: WrittenGraphs, other: WrittenGraphs) -> WrittenGraphs:
    """The graphs of both."""
    if isinstance(one, EveryGraph) or isinstance(other, EveryGraph):
        return EVERY_GRAPH
    return GraphSet(one.named | other.named, one.default or other.default)
