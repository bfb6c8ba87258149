"""Which quads an update reads and which it may write, as patterns (:mod:`txlog.model.quad_pattern`).

The normalised form is read, as workers get it: IRIs in full, one request's operations with ``;`` between them. Both
answers are supersets. Templates bound what an operation writes; what they do not depend on, it does not read: adding a
quad that may be there already reads nothing.

Source: SPARQL 1.1 Update, section 3.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from txlog.model.errors import BadInput, TooLarge
from txlog.model.quad_pattern import DEFAULT_GRAPH, EVERY_QUAD, PatternCollector, PatternTerm, QuadPattern
from txlog.sparql.analysis.pattern_reader import PatternReader, pattern_term
from txlog.sparql.rewrite.read_query import tokens_with_full_names
from txlog.sparql.tokens import Token, TokenCursor, UnsupportedPattern, closing_index, tokens_by_operation

Patterns = tuple[QuadPattern, ...]
_QUERY_FORMS: Final = ("SELECT", "ASK", "CONSTRUCT")


def find_read_patterns(update: str, *, union: bool = False) -> Patterns:
    """Of a normalised update. ``union``: its default graph is the union of all graphs, and what it deletes outside of
    ``GRAPH`` goes from all of them, so it reads where that is."""
    return _collect(update, lambda operation, found: operation.read(found, union=union))


def find_written_patterns(update: str) -> Patterns:
    """Of a normalised update whose default graph is its own."""
    return _collect(update, lambda operation, found: operation.write(found))


def find_added_patterns(update: str) -> Patterns:
    """What a normalised update may add: as :func:`find_written_patterns`, without what it can only delete."""
    return _collect(update, lambda operation, found: operation.add(found))


def find_query_patterns(query: str, *, union: bool = False) -> Patterns:
    """What a client's query reads. ``union``: as above. A text that is no query reads everything."""
    found = PatternCollector()
    try:
        body = tokens_with_full_names(query)
        if body is None:
            return (EVERY_QUAD,)
        _read_query(body, found, union=union)
    except (UnsupportedPattern, BadInput, TooLarge, ValueError):
        return (EVERY_QUAD,)
    return found.patterns()


def _collect(update: str, add: Callable[[_OperationPatterns, PatternCollector], None]) -> Patterns:
    found = PatternCollector()
    try:
        for toks in tokens_by_operation(update):
            add(_OperationPatterns(toks), found)
    except (UnsupportedPattern, ValueError):
        return (EVERY_QUAD,)
    return found.patterns()


def _read_query(toks: Sequence[Token], found: PatternCollector, *, union: bool) -> None:
    words = [token.word for token in toks]
    if not words or words[0] not in _QUERY_FORMS:
        raise UnsupportedPattern  # DESCRIBE: whatever is said of a term
    start = 1
    if words[0] == "CONSTRUCT" and len(toks) > 1 and toks[1].text == "{":
        start = _block_end(toks, 1)  # what it makes, it does not read
    head = next((at for at in range(start, len(toks)) if toks[at].text in ("{", "(")), len(toks))
    sources = [
        pattern_term(toks[at + 1].text)
        for at in range(start, min(head, len(toks) - 1))
        if words[at] == "FROM" and toks[at + 1].kind == "IRI"
    ]
    if "FROM" in words and not sources:
        sources = [DEFAULT_GRAPH]
    PatternReader(toks, found).read_solutions(start, _default_graphs(sources, union=union))


def _default_graphs(named: Sequence[PatternTerm], *, union: bool) -> list[PatternTerm]:
    """The graphs that triples outside of ``GRAPH`` are read from."""
    return [None] if union else list(named) or [DEFAULT_GRAPH]


def _block_end(toks: Sequence[Token], at: int) -> int:
    """The index after the block that opens at ``at``."""
    end = closing_index(toks, at)
    if at >= len(toks) or toks[at].text != "{" or end == len(toks):
        raise UnsupportedPattern
    return end + 1


class _ModifyParts(NamedTuple):
    """``INSERT`` and ``DELETE``: indices of braces. ``target``: of ``WITH``."""

    target: PatternTerm
    inserts: list[int]
    deletes: list[int]
    sources: list[PatternTerm]
    where: int | None


class _OperationPatterns(TokenCursor):
    """One operation: its significant tokens."""

    def read(self, found: PatternCollector, *, union: bool) -> None:
        """Adds what it reads."""
        word = self._word_at(0)
        if word in ("CLEAR", "DROP", "CREATE"):
            return
        if word in ("COPY", "MOVE", "ADD"):
            (source, _), _ = self._moved()
            found.add(QuadPattern(None if union and source == DEFAULT_GRAPH else source))
            return
        parts = self._modify()
        reader = PatternReader(self._toks, found)
        if union and parts.target == DEFAULT_GRAPH:
            for at in parts.deletes:
                reader.read_template(at, [None])
        if parts.where is not None:
            sources = parts.sources or ([] if parts.target == DEFAULT_GRAPH else [parts.target])
            reader.read_group(parts.where, _default_graphs(sources, union=union and not sources))

    def write(self, found: PatternCollector) -> None:
        """Adds what it may write."""
        word = self._word_at(0)
        if word in ("CLEAR", "DROP", "CREATE"):
            found.add(QuadPattern(self._managed_graph()))
            return
        if word in ("COPY", "MOVE", "ADD"):
            (source, _), target = self._moved()
            found.add(QuadPattern(target))
            if word == "MOVE":
                found.add(QuadPattern(source))
            return
        parts = self._modify()
        reader = PatternReader(self._toks, found)
        for at in (*parts.deletes, *parts.inserts):
            reader.read_template(at, [parts.target])

    def add(self, found: PatternCollector) -> None:
        """Adds what it may add to a store."""
        word = self._word_at(0)
        if word in ("CLEAR", "DROP", "CREATE"):
            return
        if word in ("COPY", "MOVE", "ADD"):
            found.add(QuadPattern(self._moved()[1]))
            return
        parts = self._modify()
        for at in parts.inserts:
            PatternReader(self._toks, found).read_template(at, [parts.target])

    def _iri(self, at: int) -> PatternTerm:
        token = self._token_at(at)
        if token.kind != "IRI":
            raise UnsupportedPattern
        return pattern_term(token.text)

    def _managed_graph(self) -> PatternTerm:
        at = 1 + (self._word_at(1) == "SILENT")
        if self._word_at(at) == "DEFAULT":
            return DEFAULT_GRAPH
        return self._iri(at + 1) if self._word_at(at) == "GRAPH" else None  # NAMED, ALL

    def _moved(self) -> tuple[tuple[PatternTerm, int], PatternTerm]:
        source, at = self._graph_or_default(1 + (self._word_at(1) == "SILENT"))
        if self._word_at(at) != "TO":
            raise UnsupportedPattern
        return (source, at), self._graph_or_default(at + 1)[0]

    def _graph_or_default(self, at: int) -> tuple[PatternTerm, int]:
        if self._word_at(at) == "DEFAULT":
            return DEFAULT_GRAPH, at + 1
        at += self._word_at(at) == "GRAPH"
        return self._iri(at), at + 1

    def _modify(self) -> _ModifyParts:
        parts = _ModifyParts(self._iri(1) if self._word_at(0) == "WITH" else DEFAULT_GRAPH, [], [], [], None)
        at = 2 if self._word_at(0) == "WITH" else 0
        while self._word_at(at) in ("INSERT", "DELETE"):
            braces = parts.inserts if self._word_at(at) == "INSERT" else parts.deletes
            second = self._word_at(at + 1)
            at += 1 + (second in ("DATA", "WHERE"))
            braces.append(at)
            end = _block_end(self._toks, at)
            if second == "WHERE":
                return self._at_end(end, parts._replace(where=at))
            if second == "DATA":
                return self._at_end(end, parts)
            at = end
        if not (parts.inserts or parts.deletes):
            raise UnsupportedPattern  # LOAD, whose document may name any graph
        while self._word_at(at) == "USING":
            is_named = self._word_at(at + 1) == "NAMED"
            source = self._iri(at + 1 + is_named)
            if not is_named:
                parts.sources.append(source)
            at += 2 + is_named
        if self._word_at(at) != "WHERE":
            raise UnsupportedPattern
        return self._at_end(_block_end(self._toks, at + 1), parts._replace(where=at + 1))

    def _at_end(self, at: int, parts: _ModifyParts) -> _ModifyParts:
        if at != len(self._toks):
            raise UnsupportedPattern
        return parts
