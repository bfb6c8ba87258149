"""Writes the parameters of a request into the text itself: bindings (``$var``), graphs, limit, offset, distinct.

A worker knows only the protocol's parameters for graphs of queries. All other parameters are written into the text, by
token, before the rewriter checks it: so it finds a system name in a parameter like any other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import pyoxigraph

from txlog.model.errors import BadInput
from txlog.sparql.expansion_limit import EXPANDED_BYTES_MAX, check_expansion
from txlog.sparql.skolem_iris import label_to_iri
from txlog.sparql.tokens import Token, apply_edits, malformed_query, significant_tokens, tokens

NUMBER_DIGITS_MAX: Final = 19
"""Digits of LIMIT and OFFSET: as many as 64 bits need."""
_CLOSING_BRACKET: Final = {"{": "}", "(": ")", "[": "]"}


def parse_binding(name: str, text: str) -> str:
    """The value of ``$name``, a term in N-Triples, as SPARQL. BadInput when it is none."""
    try:
        [quad] = pyoxigraph.parse(f"<x:s> <x:p> {text} .", pyoxigraph.RdfFormat.N_TRIPLES)
        term = quad.object
    except (SyntaxError, ValueError):
        term = None
    if isinstance(term, pyoxigraph.BlankNode):
        return f"<{label_to_iri(term.value)}>"
    if not isinstance(term, pyoxigraph.NamedNode | pyoxigraph.Literal):
        raise BadInput(f"${name[:40]}={text[:80]}: a term in N-Triples, such as <http://example.org/a>")
    return str(term)


class _TextEditor:
    """Tokens of a text with their depth, and changes to be made at offsets of it."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.toks = significant_tokens(source)
        self.depth: list[int] = []
        self.closing_index: dict[int, int] = {}
        """Index of the bracket that closes the one at this index."""
        stack: list[int] = []
        for at, token in enumerate(self.toks):
            if token.kind == "MARK" and token.text in ("}", ")", "]") and stack:
                self.closing_index[stack.pop()] = at
            self.depth.append(len(stack))
            if token.kind == "MARK" and token.text in _CLOSING_BRACKET:
                stack.append(at)
        self._edits: list[tuple[int, int, str]] = []

    def word(self, at: int) -> str:
        return self.toks[at].text.upper() if 0 <= at < len(self.toks) and self.toks[at].kind == "WORD" else ""

    def is_mark(self, at: int, mark: str) -> bool:
        return 0 <= at < len(self.toks) and self.toks[at].kind == "MARK" and self.toks[at].text == mark

    def index_of_close(self, at: int) -> int:
        return self.closing_index.get(at, len(self.toks) - 1)

    def inside(self, at: int) -> str:
        """The text between a bracket and the one that closes it."""
        last = self.toks[self.index_of_close(at)]
        return self.source[self.toks[at].start + 1 : last.start]

    def insert(self, offset: int, text: str) -> None:
        self._edits.append((offset, offset, text))

    def insert_after(self, at: int, text: str) -> None:
        token = self.toks[at]
        self.insert(token.end, text)

    def replace(self, first: Token, last: Token, text: str) -> None:
        self._edits.append((first.start, last.end, text))

    def edited_text(self) -> str:
        written = len(self.source) + sum(len(text) for _, _, text in self._edits)
        # Later steps may expand it to twice this size: so here it may grow only a little.
        check_expansion(written, max(EXPANDED_BYTES_MAX, len(self.source) * 9 // 8))
        return apply_edits(self.source, self._edits)


def _variables_in(text: _TextEditor) -> set[str]:
    return {token.text[1:] for token in text.toks if token.kind == "VARIABLE"}


def _values_block(text: _TextEditor, bindings: Mapping[str, str]) -> str:
    """The bindings of variables that occur, as a block; "" when none does."""
    used = sorted(_variables_in(text) & bindings.keys())
    if not used:
        return ""
    return f" VALUES ({' '.join(f'?{name}' for name in used)}) {{ ({' '.join(bindings[name] for name in used)}) }} "


def _bind_groups(text: _TextEditor, first: int, last: int, block: str) -> None:
    """Insert ``block`` at the beginning of every group of patterns that opens between two tokens: so an inner group has
    the bindings as well as an outer one."""
    at = first
    while at <= last:
        if text.word(at) == "VALUES":
            while at <= last and not text.is_mark(at, "{"):
                at += 1
            at = text.index_of_close(at)
        elif text.is_mark(at, "{") and text.word(at + 1) != "SELECT":
            text.insert_after(at, block)
        at += 1


def _query_form_index(text: _TextEditor) -> int:
    """The index of a query's form (``SELECT`` and so on), after its prologue."""
    at = 0
    while text.word(at) in ("BASE", "PREFIX"):
        at += 2 if text.word(at) == "BASE" else 3
    return at


def bind_query(query: str, bindings: Mapping[str, str]) -> str:
    """The query with variables bound (:func:`parse_binding`); variables that do not occur in it are ignored."""
    text = _TextEditor(query)
    block = _values_block(text, bindings)
    if not block:
        return query
    form = _query_form_index(text)
    group = form + 1
    if text.word(form) == "CONSTRUCT":
        if text.is_mark(group, "{"):
            group = text.index_of_close(group) + 1
        else:
            short = next((at for at in range(form, len(text.toks)) if text.is_mark(at, "{")), None)
            if short is not None:
                text.insert_after(form, f" {{{text.inside(short)}}} ")
    if text.word(form) == "DESCRIBE" and not any(text.is_mark(at, "{") for at in range(form, len(text.toks))):
        text.insert(len(query), f"\nWHERE {{ {block} }}")
        return text.edited_text()
    _bind_groups(text, group, len(text.toks) - 1, block)
    return text.edited_text()


def apply_limits(query: str, limit: int = 0, offset: int = 0, *, distinct: bool = False) -> str:
    """The query with at most ``limit`` (0: all) of its solutions after the first ``offset``, each once if ``distinct``.
    For a CONSTRUCT solutions count, not statements; an ASK is returned unchanged."""
    text = _TextEditor(query)
    form = _query_form_index(text)
    if text.word(form) not in ("SELECT", "CONSTRUCT", "DESCRIBE"):
        return query
    if distinct and text.word(form) == "SELECT":
        if text.word(form + 1) == "REDUCED":
            text.replace(text.toks[form + 1], text.toks[form + 1], "DISTINCT")
        elif text.word(form + 1) != "DISTINCT":
            text.insert_after(form, " DISTINCT")
    if limit or offset:
        _apply_limit_and_offset(text, form, limit, offset)
    return text.edited_text()


def _apply_limit_and_offset(text: _TextEditor, form: int, limit: int, offset: int) -> None:
    has: dict[str, int] = {}
    place = len(text.source)
    for at in range(form, len(text.toks)):
        word = text.word(at) if not text.depth[at] else ""
        if word in ("LIMIT", "OFFSET") and at + 1 < len(text.toks) and text.toks[at + 1].text.isdecimal():
            if len(text.toks[at + 1].text) > NUMBER_DIGITS_MAX:
                raise malformed_query(
                    text.source, text.toks[at + 1].start, f"{word}: at most {NUMBER_DIGITS_MAX} digits"
                )
            has[word] = int(text.toks[at + 1].text)
            text.replace(text.toks[at], text.toks[at + 1], "")
        elif word == "VALUES":
            place = text.toks[at].start
    own = has.get("LIMIT")
    bounds = ([] if own is None else [max(0, own - offset)]) + ([limit] if limit else [])
    clause = f"\nOFFSET {has.get('OFFSET', 0) + offset}" if has.get("OFFSET") or offset else ""
    if bounds:
        clause = f"\nLIMIT {min(bounds)}{clause}"
    text.insert(place, f"{clause}\n")


class UpdateGraphs:
    """The graphs that a request gives its update. Each is a bare IRI, or ``null`` for the default graph."""

    def __init__(
        self,
        using: Sequence[str] = (),
        named: Sequence[str] = (),
        remove: Sequence[str] = (),
        insert: Sequence[str] = (),
    ) -> None:
        self.remove, self.insert = list(remove), list(insert)
        if len(self.insert) > 1:
            raise BadInput("insert-graph-uri: one graph")
        if "null" in using and len(using) > 1:
            raise BadInput("using-graph-uri=null together with other graphs cannot be said in SPARQL; name graphs only")
        self.using = "".join(f" USING <{graph}>" for graph in using if graph != "null")
        self.using += "".join(f" USING NAMED <{graph}>" for graph in named)

    def __bool__(self) -> bool:
        return bool(self.using or self.remove or self.insert)


def apply_parameters(update: str, bindings: Mapping[str, str], graphs: UpdateGraphs) -> str:
    """The update with variables bound, and with the graphs that its operations read, remove from and insert into, where
    they name none themselves. BadInput where both name graphs."""
    text = _TextEditor(update)
    block = _values_block(text, bindings)
    if not block and not graphs:
        return update
    at = 0
    while at < len(text.toks):
        word = text.word(at) if not text.depth[at] else ""
        if word in ("INSERT", "DELETE"):
            at = _rewrite_operation(text, at, block, graphs)
        elif word in ("WITH", "USING") and graphs:
            raise BadInput(f"using-graph-uri and its like are not possible with {word} in the update")
        else:
            at += 1
    return text.edited_text()


def _rewrite_operation(text: _TextEditor, at: int, block: str, graphs: UpdateGraphs) -> int:
    """Rewrite one INSERT or DELETE clause with the WHERE after it; returns the index of the next token."""
    verb = text.word(at)
    into = graphs.insert if verb == "INSERT" else graphs.remove
    if verb == "DELETE" and text.word(at + 1) == "WHERE" and text.is_mark(at + 2, "{"):
        inside = text.inside(at + 2)
        text.insert_after(at, f" {{{_repeat_in_graphs(inside, into)}}}{graphs.using} ")
        last = text.index_of_close(at + 2)
        _bind_groups(text, at + 2, last, block)
        return last + 1
    data = text.word(at + 1) == "DATA"
    template = at + 2 if data else at + 1
    if not text.is_mark(template, "{"):
        return at + 1
    last = text.index_of_close(template)
    if into:
        inside = text.inside(template)
        text.replace(text.toks[template], text.toks[last], f"{{{_repeat_in_graphs(inside, into)}}}")
    if data or text.word(last + 1) != "WHERE":
        return last + 1
    text.insert(text.toks[last + 1].start, graphs.using + " ")
    end = text.index_of_close(last + 2)
    _bind_groups(text, last + 2, end, block)
    return end + 1


def _repeat_in_graphs(inside: str, graphs: Sequence[str]) -> str:
    """The contents of a template, in each of these graphs."""
    if not graphs:
        return inside
    if any(token.kind == "WORD" and token.text.upper() == "GRAPH" for token in tokens(inside)):
        raise BadInput("insert-graph-uri and remove-graph-uri are not possible with GRAPH in the update")
    check_expansion(sum(len(inside) + len(graph) for graph in graphs), EXPANDED_BYTES_MAX)
    # Triples of the default graph come first: after a GRAPH they would need no dot, before one they may have one.
    plain = [f" {inside} " for graph in graphs if graph == "null"]
    return "\n".join(plain + [f" GRAPH <{graph}> {{{inside}}} " for graph in graphs if graph != "null"])
