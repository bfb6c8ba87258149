"""What is asked of a copy without changing it: queries, and statements that match."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from typing import Final

import pyoxigraph as ox

from txlog.evaluation.frames import N_TRIPLES, Query
from txlog.model.errors import BadInput, Conflict
from txlog.sparql.ordering import totally_ordered

PIECE_BYTES: Final = 1 << 20
_RESULTS: Final = {
    "application/sparql-results+json": ox.QueryResultsFormat.JSON,
    "application/sparql-results+xml": ox.QueryResultsFormat.XML,
    "text/csv": ox.QueryResultsFormat.CSV,
    "text/tab-separated-values": ox.QueryResultsFormat.TSV,
}
Term = ox.NamedNode | ox.BlankNode | ox.Literal | ox.Triple


class Bounded(io.BytesIO):
    """:class:`Conflict` for more than ``bytes_max``."""

    def __init__(self, bytes_max: int) -> None:
        super().__init__()
        self._left = bytes_max

    def write(self, piece: bytes | bytearray | memoryview) -> int:  # type: ignore[override]
        self._left -= len(piece)
        if self._left < 0:
            raise Conflict("the answer is larger than one may be that is evaluated by a master; ask for less")
        return super().write(piece)


def answered(store: ox.Store, asked: Query) -> bytes:
    """:class:`BadInput` for what is no query, or has no answer in that media type."""
    graphs: list[ox.NamedNode | ox.BlankNode | ox.DefaultGraph] = [ox.NamedNode(g) for g in asked.default]
    try:
        found = store.query(
            totally_ordered(asked.text),
            use_default_graph_as_union=asked.union,
            default_graph=graphs or None,
            named_graphs=[ox.NamedNode(g) for g in asked.named] or None,
        )
    except (SyntaxError, ValueError) as wrong:
        raise BadInput(f"MALFORMED QUERY: {wrong}") from None
    out = Bounded(asked.bytes_max)
    if isinstance(found, ox.QueryTriples):
        if asked.media != N_TRIPLES:
            raise BadInput(f"MALFORMED QUERY: its answer is a graph, which is not {asked.media}")
        ox.serialize(found, out, ox.RdfFormat.N_TRIPLES)
        return out.getvalue()
    if asked.media not in _RESULTS:
        raise BadInput(f"MALFORMED QUERY: its answer is no graph, so not {asked.media}")
    found.serialize(out, _RESULTS[asked.media])
    return out.getvalue()


def matching(store: ox.Store, terms: Sequence[str | None], graphs: Sequence[str] | None) -> Iterator[ox.Quad]:
    """Each once. Canonical N-Triples, None for any; graphs ``<iri>``, "" for the default one, None for all."""
    subject, predicate, value = (None if term is None else _term(term) for term in terms)
    names = [None] if graphs is None else [_term(g) if g else ox.DefaultGraph() for g in dict.fromkeys(graphs)]
    for name in names:
        yield from store.quads_for_pattern(subject, predicate, value, name)  # type: ignore[arg-type]


def written(quads: Iterator[ox.Quad], merged: bool, bytes_max: int) -> bytes:
    """As N-Quads. ``merged``: without graphs, each statement once."""
    out = Bounded(bytes_max)
    if merged:
        triples = dict.fromkeys(quad.triple for quad in quads)
        ox.serialize(triples, out, ox.RdfFormat.N_TRIPLES)
    else:
        ox.serialize(quads, out, ox.RdfFormat.N_QUADS)
    return out.getvalue()


def _term(text: str) -> Term:
    quads: list[ox.Quad] = list(ox.parse(f"<x:s> <x:p> {text} .", ox.RdfFormat.N_TRIPLES))
    return quads[0].object
