"""The predicates that an update or a query may read: those of all its triple patterns and templates.

A construct that the reader of patterns does not know, or that may match a triple of any predicate (a variable, ``!``,
a path of length zero, a graph's existence), counts as *everything*. That is always correct; its only cost is more
conflicts with transactions of others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from txlog.model.quad_pattern import PatternCollector
from txlog.sparql.analysis.pattern_reader import PatternReader
from txlog.sparql.rewrite.triple_reader import PropertyPath
from txlog.sparql.terms import DEFAULT_PREFIXES
from txlog.sparql.tokens import Token, TokenCursor, UnsupportedPattern, significant_tokens, tokens_by_operation

_TYPE: Final = f"<{DEFAULT_PREFIXES['rdf']}type>"
_MODIFY_KEYWORDS: Final = ("WITH", "INSERT", "DELETE")
_ANY_GRAPH: Final = (None,)
"""Predicates are the same in whichever graph the triples are."""


class UnknownPredicates(Exception):
    """No set of predicates covers what this update or query may read."""


def predicates_of(operation: str) -> frozenset[str]:
    """The predicates of one normalised operation (full IRIs), as ``<iri>``. Raises :class:`UnknownPredicates` where
    they are not known."""
    return _collect(significant_tokens(operation), _PredicateReader.read_operation)


def predicates_of_update(text: str) -> frozenset[str]:
    """The same for several normalised operations, data operations included."""
    found: set[str] = set()
    for operation in tokens_by_operation(text):
        found |= _collect(operation, _PredicateReader.read_operation)
    return frozenset(found)


def predicates_of_query(toks: Sequence[Token]) -> frozenset[str]:
    """The same for a query after its prologue: significant tokens, full IRIs."""
    return _collect(toks, _PredicateReader.read_query)


def is_single_pattern_delete(operation: str) -> bool:
    """Whether a normalised operation is ``DELETE WHERE`` with one triple pattern, in a ``GRAPH`` or not."""
    try:
        return _PredicateReader(significant_tokens(operation)).is_one_pattern()
    except UnsupportedPattern:
        return False


def _collect(toks: Sequence[Token], read: Callable[[_PredicateReader], None]) -> frozenset[str]:
    reader = _PredicateReader(toks)
    try:
        read(reader)
    except UnsupportedPattern:
        raise UnknownPredicates from None
    return frozenset(reader.predicates)


class _PredicateReader(TokenCursor):
    """Collects the predicates of what it reads."""

    def __init__(self, toks: Sequence[Token]) -> None:
        super().__init__(toks)
        self._patterns = PatternReader(toks, PatternCollector(), self._add_path)
        self.predicates: set[str] = set()

    def read_operation(self) -> None:
        if self._word_at(0) not in _MODIFY_KEYWORDS:
            raise UnsupportedPattern
        at = 0
        while at < len(self._toks):
            if self._mark_at(at) == "{":
                at = self._patterns.read_group(at, _ANY_GRAPH)
            elif self._word_at(at) in ("WITH", "INSERT", "DELETE", "DATA", "USING", "NAMED", "WHERE") or (
                self._token_at(at).kind == "IRI" and self._word_at(at - 1) in ("WITH", "USING", "NAMED")
            ):
                at += 1
            else:
                raise UnsupportedPattern

    def read_query(self) -> None:
        form, at = self._word_at(0), 1
        if form not in ("SELECT", "ASK", "CONSTRUCT"):
            raise UnsupportedPattern  # DESCRIBE: whatever is said of a term
        if form == "CONSTRUCT" and self._mark_at(at) == "{":
            at = self._skip_to(at, "}") + 1  # what it makes, it does not read; a template has no braces in it
        self._patterns.read_solutions(at, _ANY_GRAPH)

    def is_one_pattern(self) -> bool:
        if [self._word_at(0), self._word_at(1)] != ["DELETE", "WHERE"]:
            return False
        graph = self._word_at(3) == "GRAPH"
        triples, at = self._patterns.same_subject(6 if graph else 3)
        at += self._mark_at(at) == "."
        step = triples[0][1] if len(triples) == 1 else None
        return step is not None and step.kind == "step" and at + 1 + graph == len(self._toks)

    def _add_path(self, path: PropertyPath) -> None:
        if path.kind == "step" and path.text[0] not in "?$":
            self.predicates.add(_TYPE if path.text == "a" else path.text)
        elif path.kind in ("inverse", "sequence", "alternative") or (path.kind, path.text) == ("any", "+"):
            for part in path.parts:
                self._add_path(part)
        else:
            raise UnsupportedPattern  # a variable, a negated set, or a path of length zero: every term there is
