"""Rewrites queries so that no answer shows a system graph."""

from __future__ import annotations

import re
from typing import Final

from txlog.model.errors import BadInput, TooLarge
from txlog.sparql.analysis.empty_graphs import select_counts_graphs
from txlog.sparql.analysis.predicates import UnknownPredicates, predicates_of_query
from txlog.sparql.expansion_limit import limit_for
from txlog.sparql.nesting_limit import check_triple_term_nesting
from txlog.sparql.plan_limit import check_plan, may_exceed_plan
from txlog.sparql.prologue import Prologue
from txlog.sparql.rewrite.token_rewriter import TokenRewriter
from txlog.sparql.terms import DEFAULT_PREFIXES, base_iri
from txlog.sparql.tokens import TOKEN, Token, malformed_query, significant_tokens, tokens
from txlog.sparql.update_effect import PREDICATES_MAX

_MAY_NAME_SYSTEM_GRAPH: Final = re.compile(r"(?i:graph)|urn:|\\|\b(?:rdfs?|owl|xsd|fn|sesame|rdf4j):")
_SERVICE: Final = re.compile("service", re.IGNORECASE)
_UNNAMED_GRAPH_MESSAGE: Final = (
    "a SELECT inside of GRAPH ?g that may match without a quad can count graphs of ours: "
    "put a triple pattern into it, or that GRAPH, or give out its variable"
)
_SHORT_QUERY_CHARS: Final = 1000
"""A shorter text cannot nest deep enough to end the worker that parses it."""


def hide_system_graphs(query: str, *, base: str | None = None) -> str:
    """A query that returns, on a worker with a position marker, what ``query`` returns on the same data without it.

    The marker is an empty named graph, so only a ``GRAPH ?v {...}`` that can match without a triple could show it. A
    group around each filters ``?v`` (so a row that computes such a name as ``?v`` is not shown either). RDF4J's default
    prefixes are declared when they are used, and ``base`` (a client's ``baseURI``) when there is one. A query that
    needs none of this is returned unchanged.

    Raises ``SystemGraphNamed`` for a query that names a system graph. Raises ``BadInput`` for wrong tokens, an
    undeclared prefix, nesting that would end the worker, or a SELECT inside of ``GRAPH ?v`` that no filter reaches.
    The worker's parser reports other mistakes.
    """
    check_triple_term_nesting(query)
    if not base and len(query) < _SHORT_QUERY_CHARS and not _MAY_NAME_SYSTEM_GRAPH.search(query):
        if may_exceed_plan(query):
            check_plan(query, significant_tokens(query))
        return query
    toks = significant_tokens(query)
    check_plan(query, toks)
    names = Prologue(base_iri(base), limit_for(len(query)))
    start = parse_prologue(query, toks, names)
    walk = TokenRewriter(query, names, None)
    rest = toks[start:]
    walk.run(rest, "top")
    for at in walk.unnamed_selects:
        if select_counts_graphs(rest, at):
            raise malformed_query(query, rest[at].start, _UNNAMED_GRAPH_MESSAGE)
    begin = toks[start].start if start < len(toks) else len(query)
    prologue = query[:begin]
    head = f"BASE <{base_iri(base)}> " if base else ""
    if base and any(token.kind == "WORD" and token.text.upper() == "BASE" for token in toks[:start]):
        # Of two declarations RDF4J takes the first one, so there is one, and all prefixes are written out.
        head = f"BASE <{names.base}> "
        prologue = "".join(f"PREFIX {prefix}: <{iri}> " for prefix, iri in names.prefixes.items())
    head += "".join(
        [f"PREFIX {prefix}: <{DEFAULT_PREFIXES[prefix]}> " for prefix in sorted(names.used_default_prefixes)]
    )
    return head + prologue + (walk.out.text() if walk.filter_count else query[begin:])


def refuse_services(query: str) -> None:
    """Raise ``BadInput`` for a query with ``SERVICE``: it would give clients access to the worker's network."""
    if not _SERVICE.search(query):
        return
    for token in tokens(query):
        if token.kind == "WORD" and token.text.upper() == "SERVICE":
            why = "SERVICE is refused, it would reach what only this data centre may; ask the other endpoint first"
            raise malformed_query(query, token.start, why)


def query_form(query: str) -> str:
    """``SELECT``, ``ASK``, ``CONSTRUCT`` or ``DESCRIBE``; "" for a text that is no query."""
    skip = 0
    for found in TOKEN.finditer(query):
        if found.lastgroup in ("SPACE", "COMMENT"):
            continue
        if skip:
            skip -= 1
            continue
        word = found[0].upper() if found.lastgroup == "WORD" else ""
        if word not in ("BASE", "PREFIX"):
            return word if word in ("SELECT", "ASK", "CONSTRUCT", "DESCRIBE") else ""
        skip = 1 if word == "BASE" else 2
    return ""


def query_predicates(query: str) -> frozenset[str] | None:
    """The predicates (``<iri>``) of all quads that a query may read; None: any, or not known. The worker reports a text
    that is no query."""
    try:
        body = tokens_with_full_names(query)
        if body is None:
            return None
        found = predicates_of_query(body)
    except (UnknownPredicates, BadInput, TooLarge):
        return None
    return found if len(found) <= PREDICATES_MAX else None


def tokens_with_full_names(query: str) -> list[Token] | None:
    """The tokens after the prologue, each name as its whole IRI in brackets. None when a relative IRI has no base in
    the text. Raises :class:`BadInput` and :class:`TooLarge`."""
    toks = significant_tokens(query)
    names = Prologue(None, limit_for(len(query)))
    start = parse_prologue(query, toks, names)
    body = [
        Token("IRI", f"<{names.expand(query, each, lenient=True)}>", each.start)
        if each.kind in ("IRI", "PNAME")
        else each
        for each in toks[start:]
    ]
    return None if names.has_relative_iris and names.base is None else body


def parse_prologue(query: str, toks: list[Token], names: Prologue) -> int:
    """Adds the declarations to ``names``, and returns the index of the token after them."""
    at = 0
    while at < len(toks) and toks[at].kind == "WORD":
        word = toks[at].text.upper()
        if word == "BASE" and at + 1 < len(toks) and toks[at + 1].kind == "IRI":
            names.base = names.expand(query, toks[at + 1], lenient=True)
            at += 2
        elif word == "PREFIX" and at + 2 < len(toks) and toks[at + 1].kind == "PNAME" and toks[at + 2].kind == "IRI":
            if not toks[at + 1].text.endswith(":"):
                raise malformed_query(
                    query, toks[at + 1].start, f"{toks[at + 1].text[:80]} is no prefix; it ends with a colon"
                )
            names.prefixes[toks[at + 1].text[:-1]] = names.expand(query, toks[at + 2], lenient=True)
            at += 3
        else:
            break
    return at
