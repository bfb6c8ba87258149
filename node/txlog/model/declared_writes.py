"""What an entry of the log may write, from its bytes alone: the same at every master, whatever its version.

Quads are their own declaration. A text is preceded by a comment with patterns, which the master wrote that took the
request (``#w1 graph subject predicate object ...``). So no verdict depends on the version of a parser. Workers pass
over the comment. A text without it may write anything.

In the comment ``*`` is any term, ``-`` the default graph.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from txlog.model.entry import KIND_CONFIG, KIND_QUADS, KIND_SKIP, KIND_UPDATE
from txlog.model.namespaces import KEY_PREFIX
from txlog.model.quad_pattern import (
    DEFAULT_GRAPH,
    EVERY_QUAD,
    PATTERN_BYTES_MAX,
    PATTERNS_MAX,
    PatternTerm,
    QuadPattern,
    bound_patterns,
    pattern_of_line,
)
from txlog.model.quads import decode_quads
from txlog.model.restore_points import KEY_PREFIX as POINT_PREFIX

_TAG: Final = b"#w1"
_TERM: Final = re.compile(rb' (\*|-|<[^<>\s"\\]*+>|"[^"\\\r\n]*+")')
_TERMS: Final = 4
_DECLARATION_BYTES_MAX: Final = PATTERN_BYTES_MAX + PATTERNS_MAX * 4 * 2 + len(_TAG) + 1


class WriteSet(NamedTuple):
    """What an entry may write. ``deletes``, ``adds``: the very quads, where the entry lists them. ``may_write``:
    patterns, where it is a text or has only a summary."""

    deletes: tuple[QuadPattern, ...] = ()
    adds: tuple[QuadPattern, ...] = ()
    may_write: tuple[QuadPattern, ...] = ()

    def patterns(self) -> Iterator[QuadPattern]:
        """All of them."""
        yield from self.deletes
        yield from self.adds
        yield from self.may_write


WRITES_NOTHING: Final = WriteSet()
WRITES_ANYTHING: Final = WriteSet(may_write=(EVERY_QUAD,))


def find_writes(kind: int, key: str, payload: bytes) -> WriteSet:
    """Of an entry of the log. A kind that is not known here may write anything."""
    if kind == KIND_QUADS:
        deletes: list[QuadPattern] = []
        adds: list[QuadPattern] = []
        for is_add, line in decode_quads(payload):
            (adds if is_add else deletes).append(pattern_of_line(line))
        return WriteSet(tuple(deletes), tuple(adds))
    if kind == KIND_UPDATE:
        declared = decode_declaration(payload)
        return WRITES_ANYTHING if declared is None else WriteSet(may_write=declared)
    if kind == KIND_CONFIG or (kind == KIND_SKIP and key.startswith((KEY_PREFIX, POINT_PREFIX))):
        return WRITES_NOTHING
    return WRITES_ANYTHING  # a skip changes the effect of another entry


def encode_declaration(patterns: Iterable[QuadPattern]) -> str:
    """A comment, with its newline, that precedes a text. Too many patterns become fewer and wider ones."""
    terms = [_encode_term(term) for pattern in bound_patterns(patterns) for term in pattern]
    return b" ".join([_TAG, *terms]).decode() + "\n"


def _encode_term(term: PatternTerm) -> bytes:
    if term is None:
        return b"*"
    return b"-" if term == DEFAULT_GRAPH else term


def decode_declaration(payload: bytes) -> tuple[QuadPattern, ...] | None:
    """The patterns of a text that begins with a declaration. None for any other text, and for a declaration that no
    master writes."""
    end = payload.find(b"\n", 0, _DECLARATION_BYTES_MAX)
    if end < 0 or not payload.startswith(_TAG):
        return None
    terms: list[PatternTerm] = []
    at = len(_TAG)
    while at < end:
        found = _TERM.match(payload, at, end)
        if found is None:
            return None
        terms.append(_decode_term(found[1]))
        at = found.end()
    if len(terms) % _TERMS or len(terms) > PATTERNS_MAX * _TERMS:
        return None
    return tuple(QuadPattern(*terms[first : first + _TERMS]) for first in range(0, len(terms), _TERMS))


def _decode_term(text: bytes) -> PatternTerm:
    if text == b"*":
        return None
    return DEFAULT_GRAPH if text == b"-" else text
