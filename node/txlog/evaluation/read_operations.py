"""Read operations on a copy: queries, and matching of statements. A DESCRIBE goes on through blank nodes."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Final

import pyoxigraph as ox

from txlog.evaluation.dataset_copy import DatasetCopy
from txlog.evaluation.pipe_protocol import N_TRIPLES, QueryRequest
from txlog.model.errors import BadInput, Conflict
from txlog.sparql.rewrite.describe_query import DescribeQuery, Row, describe_steps, parse_describe, statement_queries
from txlog.sparql.rewrite.total_order import make_order_total

_RESULT_FORMATS: Final = {
    "application/sparql-results+json": ox.QueryResultsFormat.JSON,
    "application/sparql-results+xml": ox.QueryResultsFormat.XML,
    "text/csv": ox.QueryResultsFormat.CSV,
    "text/tab-separated-values": ox.QueryResultsFormat.TSV,
}
Term = ox.NamedNode | ox.BlankNode | ox.Literal | ox.Triple


class BoundedResult(io.BytesIO):
    """A buffer that raises :class:`Conflict` for more than ``bytes_max`` bytes."""

    def __init__(self, bytes_max: int) -> None:
        super().__init__()
        self._left = bytes_max

    def write(self, piece: bytes | bytearray | memoryview) -> int:  # type: ignore[override]
        """Append ``piece``, or raise :class:`Conflict` where the buffer would exceed its limit."""
        self._left -= len(piece)
        if self._left < 0:
            raise Conflict("the answer is larger than one may be that is evaluated by a master; ask for less")
        return super().write(piece)


def execute_query(copy: DatasetCopy, asked: QueryRequest) -> bytes:
    """The answer to a query. Raises :class:`BadInput` for a text that is no query, or has no answer in that media
    type."""
    found = start_query(copy, asked)
    out = BoundedResult(asked.bytes_max)
    if not isinstance(found, ox.QuerySolutions | ox.QueryBoolean):
        if asked.media_type != N_TRIPLES:
            raise BadInput(f"MALFORMED QUERY: its answer is a graph, which is not {asked.media_type}")
        ox.serialize(found, out, ox.RdfFormat.N_TRIPLES)
        return copy.decode(out.getvalue())
    if asked.media_type not in _RESULT_FORMATS:
        raise BadInput(f"MALFORMED QUERY: its answer is no graph, so not {asked.media_type}")
    found.serialize(out, _RESULT_FORMATS[asked.media_type])
    return copy.decode(out.getvalue())


def start_query(copy: DatasetCopy, asked: QueryRequest) -> ox.QuerySolutions | ox.QueryBoolean | Iterable[ox.Triple]:
    """The solutions, or the statements, not written yet, in the terms of the copy
    (:meth:`~txlog.evaluation.dataset_copy.DatasetCopy.decode`). Raises :class:`BadInput` for a text that is no query,
    and :class:`TooLarge` for a DESCRIBE of too many nodes."""
    described = parse_describe(asked.text)
    if described is not None:
        try:
            return _describe(copy, asked, described)
        except BadInput:
            pass  # the client's own text says where the fault is
    return _query(copy, asked, asked.text)


def _query(copy: DatasetCopy, asked: QueryRequest, text: str) -> ox.QuerySolutions | ox.QueryBoolean | ox.QueryTriples:
    graphs: list[ox.NamedNode | ox.BlankNode | ox.DefaultGraph] = [ox.NamedNode(g) for g in asked.default]
    try:
        return copy.query(
            make_order_total(text),
            use_default_graph_as_union=asked.union,
            default_graph=graphs or None,
            named_graphs=[ox.NamedNode(g) for g in asked.named] or None,
        )
    except (SyntaxError, ValueError) as wrong:
        raise BadInput(f"MALFORMED QUERY: {wrong}") from None


def _describe(copy: DatasetCopy, asked: QueryRequest, described: DescribeQuery) -> Iterable[ox.Triple]:
    steps = describe_steps(described)
    try:
        text = next(steps)
        while True:
            text = steps.send(_rows(_query(copy, asked, text)))
    except StopIteration as done:
        texts = statement_queries(described, done.value)
    return chain.from_iterable(_triples(_query(copy, asked, text)) for text in texts)


def _triples(found: ox.QuerySolutions | ox.QueryBoolean | ox.QueryTriples) -> Iterable[ox.Triple]:
    return found if isinstance(found, ox.QueryTriples) else ()


def _rows(found: ox.QuerySolutions | ox.QueryBoolean | ox.QueryTriples) -> list[Row]:
    if isinstance(found, ox.QuerySolutions):
        names = [variable.value for variable in found.variables]
        return [
            {
                name: str(term)
                for name, term in zip(names, row, strict=True)
                if isinstance(term, ox.NamedNode | ox.Literal)
            }
            for row in found
        ]
    return [{}] if isinstance(found, ox.QueryBoolean) and found else []


def match_quads(copy: DatasetCopy, terms: Sequence[str | None], graphs: Sequence[str] | None) -> Iterator[ox.Quad]:
    """The matching quads, each once, in the terms of the copy. ``terms``: canonical N-Triples, None for any;
    ``graphs``: ``<iri>``, "" for the default graph, None for all."""
    subject, predicate, value = (None if term is None else copy.encode(_parse_term(term)) for term in terms)
    names = [None] if graphs is None else [_parse_term(g) if g else ox.DefaultGraph() for g in dict.fromkeys(graphs)]
    for name in names:
        yield from copy.store.quads_for_pattern(subject, predicate, value, name)  # type: ignore[arg-type]


def serialise_quads(quads: Iterator[ox.Quad], merged: bool, bytes_max: int) -> bytes:
    """The quads as N-Quads. ``merged``: without graphs, each statement once. Raises :class:`Conflict` for more than
    ``bytes_max`` bytes."""
    out = BoundedResult(bytes_max)
    if merged:
        triples = dict.fromkeys(quad.triple for quad in quads)
        ox.serialize(triples, out, ox.RdfFormat.N_TRIPLES)
    else:
        ox.serialize(quads, out, ox.RdfFormat.N_QUADS)
    return out.getvalue()


def _parse_term(text: str) -> Term:
    quads: list[ox.Quad] = list(ox.parse(f"<x:s> <x:p> {text} .", ox.RdfFormat.N_TRIPLES))
    return quads[0].object
