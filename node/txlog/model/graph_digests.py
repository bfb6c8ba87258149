"""What a worker contained at one position: per graph how many quads, or their sum as well; or the sum of one cell."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from typing import Final

import msgspec

from txlog.model.store_cell import StoreCell

GRAPHS_MAX: Final = 100
"""For a store with more graphs, only the fingerprint is reported, because the digests go to every master."""
KINDS: Final = ("counts", "sums", "cells")


class GraphDigests(msgspec.Struct, frozen=True):
    """``kind``: ``counts`` (quads in each graph), ``sums`` (with the sum of their hashes) or ``cells`` (the sum of one
    ``cell`` alone). ``hash`` in hexadecimal.
    ``fingerprint``: of the whole table, equal exactly when the tables are. ``graphs``: by IRI (empty: the default
    graph), as text; None when there are more than :data:`GRAPHS_MAX`."""

    kind: str
    index: int
    hash: str
    fence: int
    quads: int
    fingerprint: str
    graphs: dict[str, str] | None = None
    cell: StoreCell | None = None
    more: bool = False
    """More cells differ than are reported."""

    @property
    def scope(self) -> tuple[str, StoreCell | None]:
        """Only digests with the same one are comparable."""
        return self.kind, self.cell

    @property
    def position(self) -> tuple[int, str]:
        """Index and hash of the position that the digests are for."""
        return self.index, self.hash


def build_graph_digests(
    kind: str, index: int, digest: str, fence: int, graphs: Mapping[str, tuple[int, int | None]]
) -> GraphDigests:
    """``graphs``: quads and sum (None for ``counts``) by IRI; those without quads are left out."""
    table = {
        name: f"{quads}" if total is None else f"{quads}:{total:032x}"
        for name, (quads, total) in graphs.items()
        if quads
    }
    made = blake2b(digest_size=16)
    for name in sorted(table):
        made.update(f"{name}\t{table[name]}\n".encode())
    quads = sum(count for count, _ in graphs.values())
    named = table if len(table) <= GRAPHS_MAX else None
    return GraphDigests(kind, index, digest, fence, quads, made.hexdigest(), named)


def build_cell_digests(
    cell: StoreCell, index: int, digest: str, fence: int, quads: int, total: int, *, more: bool = False
) -> GraphDigests:
    """``quads``, ``total``: how many quads the cell has, and the sum of their hashes."""
    text = f"{quads}:{total:032x}"
    graphs = {cell.graph: text} if quads else {}
    return GraphDigests("cells", index, digest, fence, quads, text, graphs, cell, more)


def differing_graphs(one: GraphDigests, other: GraphDigests) -> list[str] | None:
    """The graphs whose contents differ between the two, sorted; None when that is not known."""
    if one.graphs is None or other.graphs is None:
        return None
    names = one.graphs.keys() | other.graphs.keys()
    return sorted(name for name in names if one.graphs.get(name) != other.graphs.get(name))
