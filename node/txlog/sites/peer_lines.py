"""Checks lines of N-Quads that the masters of a site sent: they become part of SPARQL texts at this one."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import pyoxigraph as ox

from txlog.model.errors import PeerFault
from txlog.sites.keys import KeyKind, crosses_links, key_of
from txlog.workers.canonical_literals import canonical_lines

_IRI_ENDS: Final = re.compile(r'[\x00-\x20<>"{}|^`\\]')
"""What an IRI in SPARQL cannot hold."""


def check_lines(site: str, lines: Sequence[bytes]) -> None:
    """Raises :class:`PeerFault` for a line that is not one quad, written as this program writes it."""
    if not lines:
        return
    try:
        # A newline within a line would make two of them: the text of each quad is compared with its line.
        quads = list(ox.parse(b"\n".join(lines), ox.RdfFormat.N_QUADS, lenient=True))
        texts = [f"{quad} .".encode() for quad in quads]
        if texts != list(lines):
            texts = canonical_lines(b"\n".join(texts)).split(b"\n")
    except (SyntaxError, ValueError) as wrong:
        raise PeerFault(site, "Malformed", f"a line of N-Quads: {str(wrong)[:200]}") from None
    if not len(quads) == len(texts) == len(lines):
        raise PeerFault(site, "Malformed", f"{len(lines)} lines have {len(quads)} quads")
    for quad, text, line in zip(quads, texts, lines, strict=True):
        if text != line or not _is_writable(quad):
            raise PeerFault(site, "Malformed", f"{line[:200]!r} is no quad of a log")


def check_value(site: str, key: bytes, lines: Sequence[bytes], kind: KeyKind) -> None:
    """Raises :class:`PeerFault` where lines are not those of a key."""
    check_lines(site, lines)
    for line in lines:
        if key_of(line, kind) != key or not crosses_links(line):
            raise PeerFault(site, "Malformed", f"{line[:200]!r} is no quad of the key {key[:200]!r}")


def _is_writable(quad: ox.Quad) -> bool:
    terms = [quad.subject, quad.predicate]
    if not isinstance(quad.graph_name, ox.DefaultGraph):
        terms.append(quad.graph_name)
    return all(isinstance(term, ox.NamedNode) for term in terms) and all(map(_is_iri, (*terms, quad.object)))


def _is_iri(term: object) -> bool:
    """Whether the IRIs of a term can be written in SPARQL; a blank node cannot."""
    if isinstance(term, ox.NamedNode):
        return _IRI_ENDS.search(term.value) is None
    if isinstance(term, ox.Literal):
        return _IRI_ENDS.search(term.datatype.value) is None
    if isinstance(term, ox.Triple):
        return all(map(_is_iri, (term.subject, term.predicate, term.object)))
    return False
