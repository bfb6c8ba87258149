"""``FROM rdf4j:nil`` and ``FROM sesame:nil``: in RDF4J and GraphDB, the default graph alone."""

from __future__ import annotations

import re
from typing import Final

from txlog.model.errors import BadInput
from txlog.sparql.expansion_limit import limit_for
from txlog.sparql.prologue import Prologue
from txlog.sparql.rewrite.pattern_union import NO_GRAPH_NAMES
from txlog.sparql.rewrite.read_query import parse_prologue
from txlog.sparql.rewrite.token_rewriter import skip_trivia
from txlog.sparql.terms import base_iri
from txlog.sparql.tokens import tokens

DEFAULT_GRAPH_NAMES: Final = frozenset(("null", *(name[1:-1] for name in NO_GRAPH_NAMES)))
"""What ``default-graph-uri`` calls the default graph."""
_MAY_NAME_IT: Final = re.compile(r"\bfrom\b[^{]*\bnil\b", re.IGNORECASE)
_MIXED: Final = (
    "the default graph together with other graphs cannot be asked; name graphs only, or the default graph only"
)


def take_default_graph_clause(query: str, base: str | None = None) -> tuple[str, bool]:
    """The query without its clause that names the default graph, and whether it had one. :class:`BadInput` if it names
    other graphs, too."""
    if not _MAY_NAME_IT.search(query):
        return query, False
    toks = skip_trivia(tokens(query))
    names = Prologue(base_iri(base), limit_for(len(query)))
    start = parse_prologue(query, toks, names)
    cuts: list[tuple[int, int]] = []
    others = False
    for at in range(start, len(toks) - 1):
        if toks[at].text in ("{", "("):
            break
        if toks[at].kind != "WORD" or toks[at].text.upper() != "FROM":
            continue
        graph = toks[at + 1]
        is_term = graph.kind in ("IRI", "PNAME")
        if is_term and f"<{names.expand(query, graph, lenient=True)}>" in NO_GRAPH_NAMES:
            cuts.append((toks[at].start, graph.start + len(graph.text)))
        else:
            others = True
    if not cuts:
        return query, False
    if others:
        raise BadInput(f"FROM: {_MIXED}")
    for first, last in reversed(cuts):
        query = f"{query[:first]} {query[last:]}"
    return query, True


def parse_default_graphs(given: list[str]) -> list[str] | None:
    """The graphs of ``default-graph-uri``, None for the default graph. :class:`BadInput` for both."""
    if not any(name in DEFAULT_GRAPH_NAMES for name in given):
        return given
    if len(given) > 1:
        raise BadInput(f"default-graph-uri: {_MIXED}")
    return None
