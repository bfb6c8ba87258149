"""Templates of DELETE and INSERT: parsed once, then filled with each solution of the pattern.

pyoxigraph's parser reads a template as TriG, with an IRI in place of each variable. So literals, collections of names
and triple terms have one reader. A constant gets the form in which a store returns it.

Source: SPARQL 1.1 Update, section 3.1.3: a triple that a solution leaves incomplete or makes illegal is left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec
import pyoxigraph as ox

from txlog.sparql.terms import string_text, string_token
from txlog.sparql.tokens import Token

_VARIABLE: Final = "urn:txlog:variable:"
"""Before the name of a variable, in the IRI that takes its place. Such IRIs leave this module only as slots."""
_DEFAULT: Final = ox.DefaultGraph()


class _Slot(msgspec.Struct, frozen=True):
    """The place of a variable: its column in the rows of solutions."""

    column: int


class _TripleSlot(msgspec.Struct, frozen=True):
    """A triple term that holds a variable."""

    parts: tuple[Any, Any, Any]


class QuadTemplate(msgspec.Struct, frozen=True):
    """The quads of a template: subject, predicate, object and graph, each a term or the place of a variable."""

    quads: tuple[tuple[Any, Any, Any, Any], ...] = ()

    def fill(self, row: Sequence[Any]) -> Iterator[ox.Quad]:
        """The quads of one solution. ``row``: its values, in the order of the columns; None for unbound ones."""
        for subject, predicate, value, graph in self.quads:
            made = (_fill(subject, row), _fill(predicate, row), _fill(value, row), _fill(graph, row))
            if _is_legal(*made):
                yield ox.Quad(*made)


def parse_template(toks: Sequence[Token], default: str, columns: dict[str, int]) -> QuadTemplate:
    """The template between two braces. ``default``: the graph (``<iri>``) of triples outside of GRAPH, "" for the
    default graph. ``columns``: the columns of variables by name, without ``?``; new ones are added. Raises
    ``SyntaxError`` for a text that is no template."""
    quads = []
    for quad in ox.parse(_as_trig(toks, default), ox.RdfFormat.TRIG):
        terms = (quad.subject, quad.predicate, quad.object, quad.graph_name)
        quads.append(tuple(_slot(term, columns) for term in terms))
    return QuadTemplate(tuple(quads))


def parse_data(toks: Sequence[Token]) -> list[ox.Quad]:
    """The quads between the braces of ``INSERT DATA`` or ``DELETE DATA``."""
    return list(ox.parse(_as_trig(toks, ""), ox.RdfFormat.TRIG))


def _as_trig(toks: Sequence[Token], default: str) -> str:
    """The template as TriG: triples outside of GRAPH in braces of their own."""
    parts: list[str] = []
    opening = f"GRAPH {default} {{ " if default else "{ "
    at, inside = 0, False
    plain: list[str] = []
    while at < len(toks):
        kind, text, _ = toks[at]
        if kind == "WORD" and text.upper() == "GRAPH":
            parts += [opening, *plain, "} GRAPH ", _trig_token(toks[at + 1]), " { "]
            plain, inside, at = [], True, at + 3
            continue
        if kind == "MARK" and text == "}":
            parts.append("} ")
            inside = False
            at += 2 if at + 1 < len(toks) and toks[at + 1].text == "." else 1
            continue
        (parts if inside else plain).append(_trig_token(toks[at]))
        at += 1
    return "".join([*parts, opening, *plain, "}"])


def _trig_token(token: Token) -> str:
    if token.kind == "VARIABLE":
        # As hexadecimal digits: a variable may hold letters that an IRI may not.
        return f"<{_VARIABLE}{token.text[1:].encode().hex()}> "
    if token.kind == "STRING":
        # In triple terms the parser reads no string but one in double quotes.
        return string_token(string_text(token.text))
    # A sign belongs to the number after it, a datatype and a language to the string before it.
    return token.text if token.text in ("+", "-", "^^") else f"{token.text} "


def _slot(term: Any, columns: dict[str, int]) -> Any:
    if isinstance(term, ox.NamedNode) and term.value.startswith(_VARIABLE):
        name = bytes.fromhex(term.value[len(_VARIABLE) :]).decode()
        return _Slot(columns.setdefault(name, len(columns)))
    if isinstance(term, ox.Triple):
        parts = tuple(_slot(part, columns) for part in (term.subject, term.predicate, term.object))
        if any(isinstance(part, _Slot | _TripleSlot) for part in parts):
            return _TripleSlot(parts)
    return term


def _fill(part: Any, row: Sequence[Any]) -> Any:
    if isinstance(part, _Slot):
        return row[part.column]
    if not isinstance(part, _TripleSlot):
        return part
    subject, predicate, value = (_fill(each, row) for each in part.parts)
    return ox.Triple(subject, predicate, value) if _is_legal(subject, predicate, value, _DEFAULT) else None


def _is_legal(subject: Any, predicate: Any, value: Any, graph: Any) -> bool:
    return (
        value is not None
        and isinstance(subject, ox.NamedNode | ox.BlankNode)
        and isinstance(predicate, ox.NamedNode)
        and isinstance(graph, ox.NamedNode | ox.DefaultGraph | ox.BlankNode)
    )
