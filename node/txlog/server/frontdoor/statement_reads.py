"""What a worker is asked for the statements of a pattern, and what becomes of its answer: the same on both paths."""

from __future__ import annotations

from typing import NamedTuple

from txlog.server.frontdoor.read_router import WorkerQuery
from txlog.server.frontdoor.result_formats import N_QUADS, N_TRIPLES, ResultFormat, converter
from txlog.server.frontdoor.statement_lines import StatementPattern, construct_query
from txlog.server.frontdoor.stream_converter import StreamConverter

Headers = tuple[tuple[str, str], ...]


class StatementRead(NamedTuple):
    """``headers``: of the answer, besides those of every read; ``convert``: to the client's format, None: the worker's
    is the client's."""

    build: WorkerQuery | StatementPattern
    headers: Headers
    convert: StreamConverter | None


def read_of_pattern(pattern: StatementPattern, form: ResultFormat) -> StatementRead:
    """The statements of a pattern in this format."""
    graphs, name = pattern.graphs, f"statements.{form.extension}"
    if form.has_graphs and (graphs is None or len(graphs) != 1):
        convert = None if form.media_type == N_QUADS else converter(form)
        return StatementRead(pattern, _headers(name, form.media_type), convert)
    graph = graphs[0] if graphs is not None and form.has_graphs else ""
    text = construct_query(*pattern[:3], None if graphs is None else list(graphs))
    return _read_of_construct(text, form, graph, name)


def read_of_graph(graph: str, form: ResultFormat) -> StatementRead:
    """One graph (``<iri>``, "" for the default graph) in this format."""
    return _read_of_construct(construct_query(None, None, None, [graph]), form, graph, f"graph.{form.extension}")


def _read_of_construct(text: str, form: ResultFormat, graph: str, name: str) -> StatementRead:
    query = WorkerQuery(text, N_TRIPLES, union=False)
    if form.media_type == N_TRIPLES:
        return StatementRead(query, _headers(name), None)
    return StatementRead(query, _headers(name, form.media_type), converter(form, graph))


def _headers(name: str, media: str = "") -> Headers:
    shown = ("Content-Disposition", f"attachment; filename={name}")
    return (shown, ("Content-Type", media)) if media else (shown,)
