"""Patterns of quads: what an update reads, and what a transaction may write. Two of them meet, or do not.

A term is an IRI or a simple string without escapes, as N-Quads writes it; the default graph is ``b""``. Every other
literal is None, as a variable is: stores write ``01`` as ``1`` and ``"a"@EN`` as ``"a"@en``, so such texts decide
nothing. Triple terms are None, too.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

PatternTerm = bytes | None
DEFAULT_GRAPH: Final = b""

PATTERNS_MAX: Final = 256
PATTERN_BYTES_MAX: Final = 16 << 10
"""Bounds of a set of patterns. Above them terms become None (:class:`PatternCollector`)."""


class QuadPattern(NamedTuple):
    """The quads whose terms equal those that are given. None: any term."""

    graph: PatternTerm = None
    subject: PatternTerm = None
    predicate: PatternTerm = None
    value: PatternTerm = None

    def meets(self, other: QuadPattern) -> bool:
        """Whether a quad may be one of both."""
        graph, subject, predicate, value = self
        return (
            (predicate is None or other.predicate is None or predicate == other.predicate)
            and (subject is None or other.subject is None or subject == other.subject)
            and (graph is None or other.graph is None or graph == other.graph)
            and (value is None or other.value is None or value == other.value)
        )

    def covers(self, other: QuadPattern) -> bool:
        """Whether every quad of the other one is one of this."""
        return all(mine is None or mine == its for mine, its in zip(self, other, strict=True))

    @property
    def size(self) -> int:
        """Bytes of its terms."""
        return sum(len(term) for term in self if term is not None)


EVERY_QUAD: Final = QuadPattern()


def sets_meet(some: Iterable[QuadPattern], others: Iterable[QuadPattern]) -> bool:
    """Whether a pattern of one set meets one of the other."""
    others = tuple(others)
    return any(one.meets(other) for one in some for other in others)


def pattern_of_line(line: bytes) -> QuadPattern:
    """The quad of a line of canonical N-Quads (:mod:`txlog.model.quads`)."""
    subject, predicate, rest = line.split(b" ", 2)
    value, graph = rest[:-2], DEFAULT_GRAPH
    # No IRI has a space, a quote or `<` in it. So this is a graph, and neither a datatype nor a part of a literal.
    at = value.rfind(b" <")
    if at >= 0 and value[-1:] == b">" and value[-3:] != b")>>" and b'"' not in value[at:]:
        value, graph = value[:at], value[at + 1 :]
    return QuadPattern(_iri(graph), _iri(subject), _iri(predicate), plain_term(value))


def plain_term(text: bytes) -> PatternTerm:
    """The term of a pattern that an IRI or a literal in N-Quads gives; None for what decides nothing."""
    if b"\\" in text:
        return None
    if text[:1] == b"<":
        return None if text[:3] == b"<<(" else text
    is_simple = len(text) > 1 and text[:1] == text[-1:] == b'"' and text.count(b'"') == 2
    return text if is_simple and b"\n" not in text and b"\r" not in text else None


def _iri(text: bytes) -> PatternTerm:
    return None if b"\\" in text else text


_WIDENED: Final = ("value", "subject", "graph", "predicate")
"""Which terms become None first where there are too many patterns."""


class PatternCollector:
    """A bounded set of patterns. Above the bounds all of them lose their values, then their subjects, graphs and
    predicates. So it covers whatever was added, and has at most as many patterns as it may."""

    def __init__(self, count_max: int = PATTERNS_MAX, bytes_max: int = PATTERN_BYTES_MAX) -> None:
        self._count_max = count_max
        self._bytes_max = bytes_max
        self._widened = 0
        self._patterns: dict[QuadPattern, None] = {}
        self._size = 0

    def add(self, pattern: QuadPattern) -> None:
        """One more."""
        self._insert(self._widen(pattern))
        while len(self._patterns) > self._count_max or self._size > self._bytes_max:
            self._widened += 1
            patterns, self._patterns, self._size = self._patterns, {}, 0
            for each in patterns:
                self._insert(self._widen(each))

    def patterns(self) -> tuple[QuadPattern, ...]:
        """Without those that others cover, in the order in which they were added."""
        return tuple(
            each
            for each in self._patterns
            if not any(other is not each and other.covers(each) for other in self._patterns)
        )

    def _insert(self, pattern: QuadPattern) -> None:
        if pattern not in self._patterns:
            self._patterns[pattern] = None
            self._size += pattern.size

    def _widen(self, pattern: QuadPattern) -> QuadPattern:
        for name in _WIDENED[: self._widened]:
            pattern = pattern._replace(**{name: None})
        return pattern


def bound_patterns(patterns: Iterable[QuadPattern]) -> tuple[QuadPattern, ...]:
    """The patterns, or fewer and wider ones that cover them."""
    collector = PatternCollector()
    for each in patterns:
        collector.add(each)
    return collector.patterns()
