"""SPARQL for engines whose plain patterns match all graphs together (RDF4J, Virtuoso). In the log they match the
default graph, as SPARQL 1.1 defines.

Such an engine has a name for its default graph, as RDF4J's :data:`NIL`; a ``GRAPH`` inside a ``GRAPH`` keeps its own.
So the rewriter puts a pattern inside ``GRAPH`` of that name, and the plain triples of templates that would otherwise
mean another graph. It writes ``WITH`` as ``GRAPH``, too: to RDF4J a ``WITH`` is a data set without named graphs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from txlog.sparql.tokens import Edit, Token, apply_edits, significant_tokens, tokens, tokens_by_operation
from txlog.workers.canonical_literals import canonical_literal

NIL: Final = "<http://rdf4j.org/schema/rdf4j#nil>"
_XSD: Final = "http://www.w3.org/2001/XMLSchema#"
_OPENS: Final = ("{", "(", "[")
_CLOSES: Final = ("}", ")", "]")
_SIMPLE: Final = re.compile(r"""[^"'\\\r\n]*""")
_MAY_HAVE_CAPITALS: Final = re.compile(r"@[A-Za-z0-9-]*[A-Z]")
_MAY_BE_IF: Final = re.compile(r"\bif\b", re.IGNORECASE)
_MAY_DIFFER: Final = re.compile(r"\^\^|@[A-Za-z0-9-]*[A-Z]|[0-9][.eE]|\.[0-9]|(?<![\w.])0[0-9]")


class DefaultGraphScope(NamedTuple):
    """How an engine names its default graph. ``default``: the name. ``inserts``: whether plain triples of INSERT
    templates need that graph, too. ``hides``: whether ``GRAPH ?g`` would match it, so that a filter must exclude it."""

    default: str
    inserts: bool = False
    hides: bool = False


RDF4J: Final = DefaultGraphScope(NIL)


def scoped_update(text: str, scope: DefaultGraphScope = RDF4J) -> str:
    """Rewrite an update of the log (full IRIs): its patterns without GRAPH, WITH or USING match the default graph."""
    edits = list[Edit]()
    for toks in tokens_by_operation(text):
        edits += _scope_operation(text, toks, scope)
    return apply_edits(text, edits)


def split_operations(text: str) -> Iterator[tuple[str, list[str]]]:
    """The operations of an update one by one, each with the texts of its tokens; empty operations are left out."""
    for toks in tokens_by_operation(text):
        yield text[toks[0].start : toks[-1].end], [token.text for token in toks]


def scoped_query(text: str, scope: DefaultGraphScope = RDF4J) -> str:
    """Rewrite a query without FROM: its patterns without GRAPH match the default graph."""
    toks = significant_tokens(text)
    for at, depth in enumerate(_depths(toks)):
        if not depth and toks[at].text == "{" and (not at or toks[at - 1].text.upper() != "CONSTRUCT"):
            return apply_edits(text, _wrap_in_graph(toks[at : at + _bracketed_length(toks[at:])], scope.default))
    return text


def exclude_default_graph(text: str, scope: DefaultGraphScope) -> str:
    """Rewrite a query so that its ``GRAPH ?g`` never match the default graph."""
    return apply_edits(text, _exclude_default_graph(significant_tokens(text), scope))


def has_dataset_clause(text: str) -> bool:
    """Whether a query names its graphs by FROM."""
    return any(token.kind == "WORD" and token.text.upper() == "FROM" for token in tokens(text))


def give_if_its_errors(text: str) -> str:
    """The same text with each ``IF(c, a, b)`` as ``COALESCE(IF((!(!(c))) = (RAND() >= 0), a, b))``. For RDF4J:

    - At a condition that is an error its ``IF`` gives no value instead of an error, and a comparison with that ends the
      whole request. To ``COALESCE`` no value is an error, as it is in SPARQL.
    - Where a condition is a constant, its optimiser fails at an ``IF`` inside ``IN`` or ``COALESCE``. ``RAND() >= 0``
      is always true, and no constant to the optimiser. The double negation is the condition's truth value.

    A text whose brackets do not match stays as it is."""
    if not _MAY_BE_IF.search(text):
        return text
    toks = significant_tokens(text)
    depths = _depths(toks)
    opening, closing = list[Edit](), list[Edit]()
    for at, token in enumerate(toks[:-1]):
        if token.kind != "WORD" or token.text.upper() != "IF" or toks[at + 1].text != "(":
            continue
        outside = depths[at + 1]
        close = next((each for each in range(at + 2, len(toks)) if depths[each] == outside), None)
        if close is None:
            return text
        opening.append((token.start, token.start, "COALESCE("))
        closing.append((toks[close].end, toks[close].end, ")"))
        first = range(at + 2, close)
        comma = next((toks[n].start for n in first if toks[n].text == "," and depths[n] == outside + 1), None)
        if comma is not None:
            opening.append((toks[at + 1].end, toks[at + 1].end, "(!(!("))
            # With spaces: without them `?a<1)))=(RAND()>` would hold an IRI.
            closing.append((comma, comma, " ))) = (RAND() >= 0)"))
    edits = [*opening, *reversed(closing)]  # at one offset an inner call ends before the condition that it is in
    return apply_edits(text, edits)


def canonical_constants(text: str) -> str:
    """The same text with its literals in the form that all engines share (:mod:`txlog.workers.canonical_literals`). Not
    changed: a number with a sign after a variable, which may be a difference; strings with escapes or quotes."""
    if not _MAY_DIFFER.search(text):
        return text
    toks = significant_tokens(text)
    edits = list[Edit]()
    for at, token in enumerate(toks):
        if token.kind == "LANGUAGE":
            edits.append((token.start, token.end, token.text.lower()))
        elif token.kind == "NUMBER":
            edits += _canonicalise_number(toks, at)
        elif token.kind == "STRING" and [each.kind for each in toks[at + 1 : at + 3]] == ["MARK", "IRI"]:
            value, kind = token.text.strip(token.text[0]), toks[at + 2]
            if toks[at + 1].text == "^^" and kind.text.startswith(f"<{_XSD}") and _SIMPLE.fullmatch(value):
                edits.append((token.start, kind.end, _canonical(value, kind.text)))
    return apply_edits(text, edits)


def lower_tags(text: str) -> str:
    """The same text with its language tags in lower case."""
    if not _MAY_HAVE_CAPITALS.search(text):
        return text
    found = (token for token in tokens(text) if token.kind == "LANGUAGE")
    return apply_edits(text, [(token.start, token.end, token.text.lower()) for token in found])


def _canonicalise_number(toks: Sequence[Token], at: int) -> Iterator[Edit]:
    token, value = toks[at], toks[at].text
    start = token.start
    if at and toks[at - 1].text in ("-", "+") and toks[at - 1].end == start:
        before = toks[at - 2] if at > 1 else toks[at - 1]
        if before.kind == "VARIABLE":
            return
        if before.kind not in ("NUMBER", "STRING") and before.text not in _CLOSES:
            start, value = toks[at - 1].start, toks[at - 1].text + value
    form = "double" if "e" in value.lower() else "decimal" if "." in value else "integer"
    canonical = _canonical(value, f"<{_XSD}{form}>")
    if canonical != f'"{value}"^^<{_XSD}{form}>':
        yield start, token.end, canonical


def _canonical(value: str, kind: str) -> str:
    return canonical_literal(f'"{value}"^^{kind}'.encode()).decode()


def _scope_operation(text: str, toks: Sequence[Token], scope: DefaultGraphScope) -> Iterator[Edit]:
    first, second = ([token.word for token in toks[:2]] + ["", ""])[:2]
    if first not in ("WITH", "INSERT", "DELETE") or second == "DATA":
        return
    if (first, second) == ("DELETE", "WHERE"):
        # One group is both the template and the pattern.
        inside = toks[3:-1]
        begin, end = toks[2].end, toks[-1].start
        template = apply_edits(text, _wrap_template(inside, scope.default), begin, end)
        pattern = apply_edits(text, _exclude_default_graph(inside, scope), begin, end)
        yield toks[1].start, end, f"{{{template}}} WHERE {{ GRAPH {scope.default} {{{pattern}}} "
        return
    with_graph, at = "", 0
    if first == "WITH":
        with_graph, at = toks[1].text, 2
        yield toks[0].start, toks[1].end, ""
    using = False
    while at < len(toks):
        if toks[at].kind != "MARK" or toks[at].text != "{":
            using = using or toks[at].text.upper() == "USING"
            at += 1
            continue
        length = _bracketed_length(toks[at:])
        before = toks[at - 1].text.upper()
        if before == "DELETE":
            yield from _wrap_template(toks[at + 1 : at + length - 1], with_graph or scope.default)
        elif before == "INSERT":
            if with_graph or scope.inserts:
                yield from _wrap_template(toks[at + 1 : at + length - 1], with_graph or scope.default)
        elif not using:
            yield from _wrap_in_graph(toks[at : at + length], with_graph or scope.default)
            yield from _exclude_default_graph(toks[at : at + length], scope)
        at += length


def _exclude_default_graph(toks: Sequence[Token], scope: DefaultGraphScope) -> Iterator[Edit]:
    """Edits of a pattern, so that its ``GRAPH ?g`` never match the default graph."""
    if not scope.hides:
        return
    for at, token in enumerate(toks[:-2]):
        if token.kind == "WORD" and token.text.upper() == "GRAPH" and toks[at + 1].kind == "VARIABLE":
            end = toks[at + 1 + _bracketed_length(toks[at + 2 :])].end
            yield end, end, f" FILTER({toks[at + 1].text} != {scope.default})"


def _wrap_in_graph(toks: Sequence[Token], graph: str) -> list[Edit]:
    """Edits that put the contents of a group inside GRAPH."""
    begin, end = toks[0].end, toks[-1].start
    return [(begin, begin, f" GRAPH {graph} {{"), (end, end, "} ")]


def _wrap_template(toks: Sequence[Token], graph: str) -> Iterator[Edit]:
    """Edits that put the triples of a template that are outside of GRAPH inside this graph."""
    plain, at = list[Token](), 0
    while at <= len(toks):
        over = at == len(toks)
        if over or (toks[at].kind == "WORD" and toks[at].text.upper() == "GRAPH"):
            if plain:
                yield plain[0].start, plain[0].start, f"GRAPH {graph} {{ "
                yield plain[-1].end, plain[-1].end, " } "
                plain.clear()
            at += 1 if over else 2 + _bracketed_length(toks[at + 2 :])
        else:
            if plain or toks[at].text != ".":
                plain.append(toks[at])
            at += 1


def _depths(toks: Sequence[Token]) -> list[int]:
    """The number of open brackets around each token; a bracket is outside itself."""
    depth, found = 0, list[int]()
    for token in toks:
        mark = token.text if token.kind == "MARK" else ""
        depth -= mark in _CLOSES
        found.append(depth)
        depth += mark in _OPENS
    return found


def _bracketed_length(toks: Sequence[Token]) -> int:
    """The number of tokens of the bracket that the first token opens, both brackets included."""
    return _depths(toks).index(0, 1) + 1
