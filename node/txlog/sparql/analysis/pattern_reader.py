"""Reads groups and templates of SPARQL as patterns of quads: a superset of the quads that they can match or make.

What it does not know raises :class:`.UnsupportedPattern`: the caller then counts every quad. That is always correct;
its only cost is more conflicts with transactions of others.

``VALUES`` narrows the triples that are directly in its group, or directly in a ``GRAPH`` of its group: there, a row
that the triple adds must join with one of ``VALUES``. In ``OPTIONAL``, ``MINUS``, ``EXISTS``, a sub-select or a
``UNION`` it narrows nothing: ``{ VALUES ?s { <a> } { SELECT ?s { ?s <p> ?o } LIMIT 1 } }`` reads all of ``<p>``.

Source: SPARQL 1.1 Query Language, sections 18.2.2 (translation of groups), 18.6 (``Join``) and 19.8.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from txlog.model.quad_pattern import (
    EVERY_QUAD,
    PATTERNS_MAX,
    PatternCollector,
    PatternTerm,
    QuadPattern,
    plain_term,
)
from txlog.sparql.rewrite.triple_reader import (
    TERM_KINDS,
    FreshVariables,
    PathTriple,
    PropertyPath,
    TripleReader,
)
from txlog.sparql.terms import DEFAULT_PREFIXES, iri_text, string_text
from txlog.sparql.tokens import Token, UnsupportedPattern

_TYPE: Final = f"<{DEFAULT_PREFIXES['rdf']}type>"
_XSD: Final = f"<{DEFAULT_PREFIXES['xsd']}"
_VARIABLE: Final = ("?", "$")
_COMPUTED: Final = (
    # Engines compute what has these predicates from quads with others, or from an index.
    f"<{DEFAULT_PREFIXES['rdfs']}member>",
    f"<{DEFAULT_PREFIXES['sesame']}direct",
    "<http://jena.apache.org/",
    "<http://jena.hpl.hp.com/",
    "<java:",
    "<http://www.opengis.net/ont/geosparql#",
    "<http://www.openrdf.org/contrib/lucenesail#",
    "<http://www.ontotext.com/",
)


class ValuesBlock(NamedTuple):
    """``VALUES``: in each row, a term for each variable; None: any."""

    variables: tuple[str, ...]
    rows: tuple[tuple[PatternTerm, ...], ...]


Slot = str | PatternTerm
"""A term of a pattern, or the name of a variable that ``VALUES`` may narrow."""


class PatternReader(TripleReader):
    """Each method takes the index at which a construct begins, and returns the index after it. ``found``: what was
    read so far. Raises :class:`.UnsupportedPattern` where no set of patterns covers the text."""

    def __init__(
        self, toks: Sequence[Token], found: PatternCollector, add_path: Callable[[PropertyPath], None] | None = None
    ) -> None:
        """``add_path``: takes the path of each triple, in place of its pattern: neither ``VALUES`` nor an engine's own
        function counts then, and a graph of which any quad counts is not known."""
        super().__init__(toks, FreshVariables(toks))
        self._found = found
        self._add_path = add_path

    def read_solutions(self, at: int, graphs: Sequence[Slot]) -> int:
        """What a query reads after its form: projection, group, modifiers."""
        at = self.read_group(self._before_group(at, graphs), graphs)
        while at < len(self._toks):
            if self._mark_at(at) in ("{", "}"):
                raise UnsupportedPattern
            at = self._modifier(at, graphs)
        return at

    def read_template(self, at: int, plain: Sequence[Slot]) -> int:
        """From the brace of a template to after the one that ends it. ``plain``: where triples outside of ``GRAPH``
        go."""
        at = self._expect(at, "{")
        while self._mark_at(at) != "}":
            if self._mark_at(at) == ".":
                at += 1
            elif self._word_at(at) == "GRAPH":
                at = self.read_template(at + 2, (self._graph_slot(at + 1),))
            else:
                at = self._triples(at, plain, ())
        return at + 1

    def _expect(self, at: int, mark: str) -> int:
        if self._mark_at(at) != mark:
            raise UnsupportedPattern
        return at + 1

    def _graph_slot(self, at: int) -> Slot:
        token = self._token_at(at)
        if token.kind == "VARIABLE":
            return f"?{token.text[1:]}"
        if token.kind != "IRI":
            raise UnsupportedPattern
        return pattern_term(token.text)

    # -- groups

    def read_group(self, at: int, graphs: Sequence[Slot], outer: Sequence[ValuesBlock] = ()) -> int:
        """A group of a WHERE. ``graphs``: those that triples outside of ``GRAPH`` are read from. ``outer``: of the
        group in which this ``GRAPH`` is."""
        at = self._expect(at, "{")
        blocks = [*outer, *self._blocks_of_group(at)]
        while True:
            mark, word = self._mark_at(at), self._word_at(at)
            if mark == "}":
                return at + 1
            if mark == "{":
                at = self.read_group(at, _fixed(graphs))
            elif mark == "." or word in ("UNION", "OPTIONAL", "MINUS"):
                at += 1
            elif word == "GRAPH":
                at = self._graph(at, blocks)
            elif word == "FILTER":
                at = self._constraint(at + 1, graphs)
            elif word == "BIND":
                at = self._expression(at + 1, graphs)
            elif word == "VALUES":
                _, at = self._values(at + 1)
            elif word == "SELECT":
                at = self._select(at + 1, graphs)
            else:
                at = self._triples(at, graphs, blocks)

    def _graph(self, at: int, blocks: Sequence[ValuesBlock]) -> int:
        slot = self._graph_slot(at + 1)
        first = self._token_at(at + 3)
        if first.kind not in TERM_KINDS and self._mark_at(at + 3) not in ("[", "("):
            # It may match without a triple, so it reads whether the graph has a quad.
            self._add((slot, None, None, None), blocks)
        return self.read_group(at + 2, (slot,), blocks)

    def _blocks_of_group(self, at: int) -> Iterator[ValuesBlock]:
        """The ``VALUES`` of the group whose first token is at ``at``. Those after a sub-select are a part of it."""
        if self._word_at(at) == "SELECT" or self._add_path is not None:
            return
        depth = 0
        while depth or self._mark_at(at) != "}":
            depth += {"{": 1, "}": -1}.get(self._mark_at(at), 0)
            if not depth and self._word_at(at) == "VALUES":
                block, at = self._values(at + 1)
                yield block
            else:
                at = self._next(at)

    def _values(self, at: int) -> tuple[ValuesBlock, int]:
        if self._add_path is not None:
            return ValuesBlock((), ()), self._skip_to(at, "}") + 1
        if self._token_at(at).kind == "VARIABLE":
            variables = [self._token_at(at)]
            at += 1
        else:
            at, variables = self._expect(at, "("), []
            while self._mark_at(at) != ")":
                variables.append(self._token_at(at))
                at = self._next(at)
            at += 1
        is_single = self._mark_at(at - 1) != ")"
        at = self._expect(at, "{")
        rows: list[tuple[PatternTerm, ...]] = []
        while self._mark_at(at) != "}":
            row: list[PatternTerm] = []
            if is_single:
                at = self._data_value(at, row)
            else:
                at = self._expect(at, "(")
                while self._mark_at(at) != ")":
                    at = self._data_value(at, row)
                at += 1
            if len(row) != len(variables):
                raise UnsupportedPattern
            rows.append(tuple(row))
        return ValuesBlock(tuple(f"?{token.text[1:]}" for token in variables), tuple(rows)), at + 1

    def _data_value(self, at: int, row: list[PatternTerm]) -> int:
        if self._word_at(at) == "UNDEF":
            row.append(None)
            return at + 1
        text, at = self._node(at, [])
        row.append(pattern_term(text))
        return at

    # -- expressions and sub-selects

    def _constraint(self, at: int, graphs: Sequence[Slot]) -> int:
        while self._word_at(at) in ("NOT", "EXISTS"):
            at += 1
        if self._mark_at(at) == "{":
            return self.read_group(at, _fixed(graphs))
        if self._mark_at(at) != "(":
            self._refuse_foreign_function(at)
            at += 1  # the name of a function
        return self._expression(at, graphs)

    def _expression(self, at: int, graphs: Sequence[Slot]) -> int:
        """From its opening parenthesis to the one that closes it; groups inside are those of EXISTS."""
        at, depth = self._expect(at, "("), 1
        while depth:
            mark = self._mark_at(at)
            if mark == "}":
                raise UnsupportedPattern
            if mark == "{":
                at = self.read_group(at, _fixed(graphs))
                continue
            self._refuse_foreign_function(at)
            depth += {"(": 1, ")": -1}.get(mark, 0)
            at = self._next(at)
        return at

    def _refuse_foreign_function(self, at: int) -> None:
        """An engine's own function may read anything. A cast reads nothing."""
        token = self._token_at(at)
        if self._add_path is not None:
            return
        if token.kind == "IRI" and self._mark_at(at + 1) == "(" and not token.text.startswith(_XSD):
            raise UnsupportedPattern

    def _select(self, at: int, graphs: Sequence[Slot]) -> int:
        """A sub-select, up to the brace that ends the group around it. In ``GRAPH ?v``, Oxigraph reads any graph for
        one that does not project ``?v``."""
        graphs = _fixed(graphs)
        at = self.read_group(self._before_group(at, graphs), graphs)
        while self._mark_at(at) != "}":
            if self._mark_at(at) == "{":
                raise UnsupportedPattern
            at = self._modifier(at, graphs)
        return at

    def _before_group(self, at: int, graphs: Sequence[Slot]) -> int:
        """The part before the group of a query: its projection, its graphs."""
        while self._mark_at(at) != "{":
            if self._mark_at(at) == "}":
                raise UnsupportedPattern
            at = self._expression(at, graphs) if self._mark_at(at) == "(" else self._next(at)
        return at

    def _modifier(self, at: int, graphs: Sequence[Slot]) -> int:
        """A token, or a whole bracket, of the part after the group of a query."""
        if self._word_at(at) == "VALUES":
            return self._values(at + 1)[1]
        self._refuse_foreign_function(at)
        return self._expression(at, graphs) if self._mark_at(at) == "(" else self._next(at)

    # -- triples

    def _negated_set(self, at: int) -> tuple[PropertyPath, int]:
        if self._mark_at(at) == "(" and not any(token.text == ")" for token in self._toks[at:]):
            raise UnsupportedPattern
        return super()._negated_set(at)

    def _triples(self, at: int, graphs: Sequence[Slot], blocks: Sequence[ValuesBlock]) -> int:
        triples, at = self.same_subject(at)
        for triple in triples:
            for graph in graphs:
                self._add_triple(triple, graph, blocks)
        return at

    def _add_triple(self, triple: PathTriple, graph: Slot, blocks: Sequence[ValuesBlock]) -> None:
        subject, path, value = triple
        if self._add_path is not None:
            self._add_path(path)
            return
        if path.kind == "inverse" and path.parts[0].kind == "step":
            subject, path, value = value, path.parts[0], subject
        if path.kind == "step":
            self._add((graph, _slot(subject), _slot(path.text), _slot(value)), blocks)
            return
        # Only the ends of a path have its subject and its value, so no step is narrowed by them.
        for step in _steps_of(path):
            self._add((graph, None, step, None), blocks)

    def _add(self, slots: tuple[Slot, ...], blocks: Sequence[ValuesBlock]) -> None:
        """One pattern, or one for each row that ``VALUES`` allows."""
        if self._add_path is not None:
            raise UnsupportedPattern
        found = [slots]
        for block in blocks:
            if any(slot in block.variables for slot in slots if isinstance(slot, str)):
                narrowed = dict.fromkeys(
                    _bind(each, dict(zip(block.variables, row, strict=True))) for each in found for row in block.rows
                )
                found = list(narrowed) if len(narrowed) <= PATTERNS_MAX else found
        for each in found:
            graph, subject, predicate, value = (None if isinstance(slot, str) else slot for slot in each)
            is_computed = predicate is not None and predicate.startswith(_COMPUTED_BYTES)
            self._found.add(EVERY_QUAD if is_computed else QuadPattern(graph, subject, predicate, value))


_COMPUTED_BYTES: Final = tuple(text.encode() for text in _COMPUTED)


def _fixed(graphs: Sequence[Slot]) -> list[Slot]:
    """For a group inside: a variable is any graph there. ``VALUES ?g`` in an ``OPTIONAL`` of ``GRAPH ?g`` gives rows to
    all graphs, and those that do not fit remove the whole solution."""
    return [None if isinstance(slot, str) else slot for slot in graphs]


def _bind(slots: tuple[Slot, ...], row: dict[str, PatternTerm]) -> tuple[Slot, ...]:
    return tuple(row.get(slot, slot) if isinstance(slot, str) else slot for slot in slots)


def _steps_of(path: PropertyPath) -> Iterator[PatternTerm]:
    """The predicates of its steps. None, any: a step by any term but some, or a path of any length, which may be 0 and
    then has every term of the graph."""
    if path.kind == "step":
        yield pattern_term(path.text)
    elif path.kind in ("any", "other"):
        yield None
    else:
        for part in path.parts:
            yield from _steps_of(part)


def _slot(text: str) -> Slot:
    return f"?{text[1:]}" if text.startswith(_VARIABLE) else pattern_term(text)


def pattern_term(text: str) -> PatternTerm:
    """The term of a pattern that a term of SPARQL gives: full IRIs, ``a`` and simple strings. None for a variable, and
    for a literal that stores may write otherwise."""
    if text == "a":
        return _TYPE.encode()
    if text.startswith("<") and not text.startswith("<<"):
        return plain_term(f"<{iri_text(text)}>".encode())
    if text[:1] in ('"', "'") and text[-1] == text[0]:
        value = string_text(text)
        return None if '"' in value else plain_term(f'"{value}"'.encode())
    return None
