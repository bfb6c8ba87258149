"""The key of a quad: what a conflict between two sites is decided on.

A key is the bytes of its terms as canonical N-Quads, separated by spaces. Keys of different kinds are never compared.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple

from txlog.model.graph_set import SYSTEM_GRAPH_PREFIX
from txlog.model.quads import split_graph

SITES_GRAPH: Final = "urn:txlog:sites"
"""The graph with the records of links (:mod:`txlog.sites.link_record`). It never crosses a link."""
_OWN_GRAPHS: Final = (f"<{SITES_GRAPH}>".encode(), f"<{SYSTEM_GRAPH_PREFIX}".encode())
"""A graph that was named by a blank node is ``urn:txlog:bnode:…`` in the log: it is data."""


class KeyKind(StrEnum):
    """``property``: graph, subject and predicate. ``subject``: graph and subject. ``quad``: the whole quad."""

    PROPERTY = "property"
    SUBJECT = "subject"
    QUAD = "quad"


class KeyPattern(NamedTuple):
    """The quads of a key: terms as N-Quads writes them. ``predicate`` and ``object`` None: any. ``graph`` empty: the
    default graph."""

    subject: bytes
    predicate: bytes | None
    object: bytes | None
    graph: bytes


def key_of(line: bytes, kind: KeyKind) -> bytes:
    """The key of a quad. ``line``: canonical N-Quads without newline."""
    if kind is KeyKind.QUAD:
        return line
    subject, predicate, _ = line.split(b" ", 2)
    graph = split_graph(line)[1]
    terms = (subject, predicate, graph) if kind is KeyKind.PROPERTY else (subject, graph)
    return b" ".join(term for term in terms if term)


def crosses_links(line: bytes) -> bool:
    """Whether a quad is data: those in the graphs of links and of stores stay at their site."""
    return not split_graph(line)[1].startswith(_OWN_GRAPHS)


def pattern_of(key: bytes, kind: KeyKind) -> KeyPattern:
    """The quads of a key. Raises ``ValueError`` for bytes that are no key of this kind."""
    if kind is KeyKind.QUAD:
        try:
            triple, graph = split_graph(key)
            subject, predicate, term = triple.rstrip().split(b" ", 2)
        except (AssertionError, ValueError):
            raise ValueError(f"{key[:80]!r} is no quad") from None
        return KeyPattern(subject, predicate, term, graph)
    terms = key.split(b" ")
    fixed = 2 if kind is KeyKind.PROPERTY else 1
    if not fixed <= len(terms) <= fixed + 1 or any(not (t[:1] == b"<" and t[-1:] == b">") for t in terms):
        raise ValueError(f"{key[:80]!r} is no key of kind {kind}")
    graph = terms[fixed] if len(terms) > fixed else b""
    return KeyPattern(terms[0], terms[1] if kind is KeyKind.PROPERTY else None, None, graph)


def is_key(key: bytes, kind: KeyKind) -> bool:
    """Whether bytes are a key of this kind, of quads that cross links."""
    try:
        graph = pattern_of(key, kind).graph
        key.decode()
    except ValueError:
        return False
    return not graph.startswith(_OWN_GRAPHS)
