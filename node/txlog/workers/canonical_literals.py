"""Literals as Oxigraph writes them: ``01`` and ``"1"^^xsd:int`` are ``"1"^^xsd:integer``, ``1.10`` is ``1.1``.

Engines rewrite literals in different ways (docs/limits.md). TxLog writes these forms to an engine that is not Oxigraph,
and converts its output to them again, so that the digests of all engines compare. Oxigraph's own code, in this process,
computes the form: there is no second implementation that could differ from it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Final

import pyoxigraph as ox

from txlog.config.units import AS_WRITTEN

CANONICAL_FORM: Final = "oxigraph"
"""The engine whose form it is: the value of the header ``TxLog-Literals`` where literals are in it."""
ENGINES_WITH_OWN_FORM: Final = frozenset(("fuseki", "virtuoso", AS_WRITTEN))
"""Engines whose query results write values in a form of their own; the others return what they were given."""
_HELD: Final = 1 << 16
"""The number of literals whose form is cached."""
CACHED_BYTES_MAX: Final = 128
"""The longest literal whose form is cached, so that the cache has some 30 MB at most. Texts with escapes come once."""
_LITERAL: Final = re.compile(rb'"(?:[^"\\\n]++|\\.|)*+"(?:\^\^<[^<>]*>|@[A-Za-z0-9-]+|)')
# Literals of a datatype that may have a canonical form, with a language tag in capitals, or with possible escapes.
_MAY_NEED_REWRITING: Final = re.compile(
    rb'"\^\^<http://www\.w3\.org/2001/XMLSchema#|"@[A-Za-z0-9-]*[A-Z]|[\\\x00-\x09\x0b-\x1f\x7f]'
)
_TYPED: Final = b'"^^<http://www.w3.org/2001/XMLSchema#'
_CAPITALS: Final = re.compile(rb'"@[A-Za-z0-9-]*[A-Z]')
_ESCAPED: Final = bytes([*range(10), *range(11, 32), ord("\\"), 127])
_ALREADY_CANONICAL: Final = re.compile(
    rb'"(?:(?:-?[1-9][0-9]{0,17}|0)"\^\^<http://www\.w3\.org/2001/XMLSchema#integer>'
    rb'|(?:true|false)"\^\^<http://www\.w3\.org/2001/XMLSchema#boolean>'
    rb'|-?(?:[1-9][0-9]{0,15}|0)\.[0-9]{0,14}[1-9]"\^\^<http://www\.w3\.org/2001/XMLSchema#decimal>'
    rb'|[1-9][0-9]{3}-[01][0-9]-[0-3][0-9](?:T[01][0-9]:[0-5][0-9]:[0-5][0-9])?Z?"'
    rb"\^\^<http://www\.w3\.org/2001/XMLSchema#date(?:Time)?>)"
)
"""The most frequent literals that are canonical already, so that Oxigraph's code need not run."""
_BEFORE: Final = b"<x:s> <x:p> "


def canonical_literal(literal: bytes) -> bytes:
    """One literal of N-Quads in the form in which Oxigraph returns it. Raises ``SyntaxError`` when it is none."""
    return _compute_cached(literal) if len(literal) <= CACHED_BYTES_MAX else _compute(literal)


def _compute(literal: bytes) -> bytes:
    store = ox.Store()
    store.load(_BEFORE + literal + b" .\n", format=ox.RdfFormat.N_QUADS)
    line = store.dump(format=ox.RdfFormat.N_QUADS)
    assert line is not None, "it is given back, not written to a file"
    return line[len(_BEFORE) : line.rindex(b" .")]


_compute_cached = lru_cache(_HELD)(_compute)


def canonical_lines(lines: bytes) -> bytes:
    """Whole lines of N-Quads, or payloads of :data:`~txlog.model.entry.KIND_QUADS`, with every literal in its canonical
    form. The lines keep their order, also those that have become equal."""
    return _LITERAL.sub(_rewrite_match, lines) if _may_need_rewriting(lines) else lines


def lines_with_lower_tags(lines: bytes) -> bytes:
    """The same lines with each literal as it is, except that its language tag is in lower case. RDF4J takes ``en-US``
    and ``en-us`` for one tag, and keeps the spelling that it met first, in a quad of another time or subject. So two
    workers of one content would differ in it."""
    if _CAPITALS.search(lines) is None:
        return lines
    return _LITERAL.sub(_lower_tag, lines)


def _lower_tag(found: re.Match[bytes]) -> bytes:
    text, quote, tail = found[0].rpartition(b'"')
    return text + quote + tail.lower() if tail.startswith(b"@") else found[0]


def _may_need_rewriting(lines: bytes) -> bool:
    """A fast check that implies :data:`_MAY_NEED_REWRITING`, in a tenth of its time: most lines need no rewriting."""
    return _TYPED in lines or _CAPITALS.search(lines) is not None or len(lines.translate(None, _ESCAPED)) < len(lines)


def _rewrite_match(found: re.Match[bytes]) -> bytes:
    literal = found[0]
    return (
        canonical_literal(literal)
        if _MAY_NEED_REWRITING.search(literal) and not _ALREADY_CANONICAL.fullmatch(literal)
        else literal
    )


def stored_form(as_written: bool) -> str:
    """The engine in whose form the stores of a cluster hold literals."""
    return AS_WRITTEN if as_written else CANONICAL_FORM


def literal_form(engine: str, *, cleaned: bool) -> str:
    """The engine in whose form an answer of this engine has its literals. ``cleaned``: it is a snapshot, not a query
    result (:meth:`~txlog.workers.adapter.Adapter.clean_snapshot`)."""
    own = engine in ENGINES_WITH_OWN_FORM and (not cleaned or engine == AS_WRITTEN)
    return engine if own else CANONICAL_FORM


def clean_quads(chunks: Iterable[bytes], system: bytes, *, as_written: bool = False) -> Iterator[bytes]:
    """N-Quads as whole lines with canonical literals, without the lines that begin with ``system``. A chunk may end
    inside a line. ``as_written``: literals stay as they are, with :func:`lines_with_lower_tags`."""
    rest = b""
    for chunk in chunks:
        head, newline, tail = chunk.rpartition(b"\n")
        if not newline:
            rest += chunk
            continue
        whole, rest = rest + head + b"\n", tail
        if found := _clean_lines(whole, system, as_written):
            yield found
    if rest and (found := _clean_lines(rest, system, as_written)):
        yield found


def _clean_lines(lines: bytes, system: bytes, as_written: bool) -> bytes:
    if system in lines:
        lines = b"".join([line for line in lines.splitlines(keepends=True) if not line.startswith(system)])
    return lines_with_lower_tags(lines) if as_written else canonical_lines(lines)
