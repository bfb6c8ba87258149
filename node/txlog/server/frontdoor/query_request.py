"""What a query's URL, form and body ask for together, as one query for a worker. Pure functions."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final, NamedTuple

from txlog.http.router import int_parameter, seconds_parameter
from txlog.model.errors import BadInput, NotAcceptable
from txlog.server.frontdoor.query_plans import parse_level
from txlog.server.frontdoor.read_router import CACHED_CHARS_MAX, CACHED_QUERIES_MAX
from txlog.server.frontdoor.request_parameters import parse_graph_iri
from txlog.server.frontdoor.result_formats import (
    BINARY_TABLE,
    BOOLEAN,
    PREFERRED_FORMATS,
    RDF_ALIASES,
    TABULAR_ALIASES,
    TABULAR_MEDIA_TYPES,
    standard_accept,
)
from txlog.server.frontdoor.tabular_results import negotiate_media_type
from txlog.sparql import hide_system_graphs, query_form, refuse_services
from txlog.sparql.rewrite.blank_node_functions import tell_blank_nodes
from txlog.sparql.rewrite.bound_parameters import apply_limits, bind_query, parse_binding
from txlog.sparql.rewrite.query_dataset import DEFAULT_GRAPH_NAMES, NULL, write_out_dataset
from txlog.sparql.rewrite.star_query import quoted_to_terms
from txlog.sparql.tokens import tokens

QUERY_S_MAX = 3600.0
ACCEPT_CHARS_MAX: Final = 8192
"""As long as a header may be. A form may hold this one, too, and a body is longer."""
_FROM = re.compile(r"\bfrom\b", re.IGNORECASE)

Parameters = tuple[tuple[str, str], ...]


class ParsedQuery(NamedTuple):
    """A query that hides system graphs. ``form``: SELECT, ASK, CONSTRUCT, DESCRIBE. ``union``: it reads all graphs,
    because it names none. ``default``, ``named``: graphs from parameters, as bare IRIs. ``seconds``: None for no
    limit. ``level``: of the plan that is asked for instead of an answer, "" for an answer. ``converted_format``: the
    result format that this master must convert to, "" if a worker has it."""

    text: str
    form: str
    union: bool
    default: tuple[str, ...]
    named: tuple[str, ...]
    accept: str
    seconds: float | None
    level: str = ""
    converted_format: str = ""


def parse_query_request(parameters: Parameters, text: str, accept: str, *, star: bool) -> ParsedQuery:
    """The query of a request. ``parameters``: of its URL and its form; ``accept``: the formats that its client reads;
    ``star``: quoted triples stand for triple terms. :class:`BadInput` names an error. What a request says decides
    alone, so it is kept for the next one that says the same."""
    size = len(text) + sum(len(name) + len(value) for name, value in parameters)
    parse = _parse_cached if size + len(accept) <= CACHED_CHARS_MAX else _parse
    return parse(parameters, text, accept, star)


def _parse(parameters: Parameters, text: str, accept: str, star: bool) -> ParsedQuery:
    values = dict(parameters)
    language = values.get("queryLn", "SPARQL")
    if language.upper() != "SPARQL":
        raise BadInput(f"Unknown query language: {language[:40]}; this server speaks SPARQL")
    level = parse_level(values)
    bindings = {name[1:]: parse_binding(name[1:], value) for name, value in values.items() if name[:1] == "$"}
    limit, offset = int_parameter(values, "limit", 0), int_parameter(values, "offset", 0)
    distinct = values.get("distinct", "").lower() == "true"
    if limit or offset or distinct:
        text = apply_limits(text, limit, offset, distinct=distinct)
    text = bind_query(text, bindings) if bindings else text
    refuse_services(text)
    base = base.strip("<>") if (base := values.get("baseURI")) else None
    if star:
        text = quoted_to_terms(text)
    hidden = tell_blank_nodes(hide_system_graphs(text, base=base))
    given = [value for name, value in parameters if name == "default-graph-uri"]
    given = [NULL if graph in DEFAULT_GRAPH_NAMES else graph for graph in given]
    graphs = [graph if graph == NULL else parse_graph_iri(graph, "default-graph-uri") for graph in given]
    named = [value for name, value in parameters if name == "named-graph-uri"]
    named = [parse_graph_iri(graph, "named-graph-uri") for graph in named]
    written = write_out_dataset(hidden, graphs, named)
    if written != hidden:
        hidden, union, graphs, named = written, False, [], []
    else:
        union = not graphs and not _has_from(hidden)
        graphs = [graph for graph in graphs if graph != NULL]
    seconds = seconds_parameter(values.get("timeout"), "timeout", 0.0, QUERY_S_MAX) or None
    form, accept = query_form(text), standard_accept(accept)
    converted = "" if level else _format_to_convert(form, accept)
    return ParsedQuery(hidden, form, union, tuple(graphs), tuple(named), accept, seconds, level, converted)


_parse_cached = lru_cache(CACHED_QUERIES_MAX)(_parse)


def _format_to_convert(asked: str, accept: str) -> str:
    """The format to which this master must convert a worker's answer to such a query, "" if the worker has it."""
    if asked == "ASK":
        best = negotiate_media_type(accept, (*TABULAR_MEDIA_TYPES, BOOLEAN), TABULAR_ALIASES)
        return BOOLEAN if best == BOOLEAN else ""
    if asked == "SELECT":
        best = negotiate_media_type(accept, (*TABULAR_MEDIA_TYPES, BINARY_TABLE), TABULAR_ALIASES)
        if best is None and BOOLEAN in accept.lower():
            raise NotAcceptable("Accept: text/boolean is for ASK")
        return BINARY_TABLE if best == BINARY_TABLE else ""
    return negotiate_media_type(accept, PREFERRED_FORMATS, RDF_ALIASES) or ""


def _has_from(text: str) -> bool:
    return bool(_FROM.search(text)) and any(t.kind == "WORD" and t.text.upper() == "FROM" for t in tokens(text))
