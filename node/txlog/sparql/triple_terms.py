"""Triple terms of RDF 1.2: ``<<( s p o )>>`` as an object. RDF-star's quoted triples are the same terms, and may be
subjects, too; no store of RDF 1.2 has these.

RDF4J writes a quoted triple as ``<<s p o>>`` in its own formats. In formats that cannot hold one it writes an IRI,
``urn:rdf4j:triple:`` and the triple in base64, which its clients read as the triple again.

Sources: RDF 1.2 N-Quads, section 6; RDF 1.2 Turtle, section 2.9; RDF4J 5 (``RDFStarUtil``, ``NTriplesUtil``).
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Final

import pyoxigraph as ox

from txlog.model.entry import KIND_UPDATE
from txlog.model.errors import BadInput
from txlog.sparql.nesting_limit import check_triple_term_nesting
from txlog.sparql.terms import string_text, string_token
from txlog.sparql.tokens import TOKEN

OPENS: Final = b"<<("
_QUOTED_QUAD: Final = re.compile(rb"^[AD] <[^<>]*> <[^<>]*> <<\(", re.MULTILINE)
"""A quad of a payload with a triple term: nothing but an object is one."""
_MARKS: Final = frozenset(("<<(", ")>>"))
FUNCTIONS: Final = frozenset(
    ("TRIPLE", "ISTRIPLE", "SUBJECT", "PREDICATE", "OBJECT", "LANGDIR", "HASLANG", "HASLANGDIR")
)
"""Functions of SPARQL 1.2 that an update may call. ``STRLANGDIR`` is none: a literal says its direction itself."""
_MAY_USE: Final = re.compile(rb"<<\(|(?:triple|subject|predicate|object|lang|dir)\s*+\(", re.IGNORECASE)
_ENCODED: Final = "urn:rdf4j:triple:"
_ENCODED_OBJECT: Final = re.compile(rb"^(<[^<>]*> <[^<>]*>|_:[^ ]+ <[^<>]*>) <urn:rdf4j:triple:([A-Za-z0-9_=-]+)>")


def find_triple_term(kind: int, payload: bytes) -> str:
    """What only a store of RDF 1.2 has in a transaction, for people; "" without it. It is a triple term in a quad, or
    the mark of one or a function of SPARQL 1.2 in an update."""
    if kind != KIND_UPDATE:
        return "a triple term" if OPENS in payload and _QUOTED_QUAD.search(payload) is not None else ""
    if _MAY_USE.search(payload) is None:
        return ""
    for token in TOKEN.finditer(payload.decode()):
        if token.lastgroup == "MARK" and token[0] in _MARKS:
            return "a triple term"
        if token.lastgroup == "WORD" and token[0].upper() in FUNCTIONS:
            return f"the function {token[0].upper()}"
    return ""


# -- RDF-star's texts


def quoted_to_triple_terms(body: bytes) -> bytes:
    """A text of Turtle-star, TriG-star or N-Triples-star with its quoted triples as triple terms. Where one is a
    subject, a parser of RDF 1.2 refuses it. Raises :class:`BadInput` for an annotation, which is about a subject, and
    for what is not UTF-8."""
    pieces: list[str] = []
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        raise BadInput(f"MALFORMED DATA: byte {error.start} is not UTF-8") from None
    for found in TOKEN.finditer(text):
        mark = found[0]
        if found.lastgroup == "MARK":
            if mark in ("{|", "|}", "~"):
                raise BadInput(f"MALFORMED DATA: {mark}: {SUBJECT_REFUSED}")
            mark = {"<<": "<<( ", ">>": " )>>"}.get(mark, mark)
        pieces.append(mark)
    return "".join(pieces).encode()


def shorten_strings(source: bytes | str) -> bytes:
    """A text of Turtle or TriG with strings in three quotes as strings in one. Bytes that are no UTF-8 stay."""
    text = source.decode("utf-8", "surrogateescape") if isinstance(source, bytes) else source
    pieces: list[str] = []
    for found in TOKEN.finditer(text):
        token = found[0]
        if found.lastgroup == "STRING" and token[:3] in ("'''", '"""'):
            with suppress(ValueError):
                token = string_token(string_text(token))
        pieces.append(token)
    return "".join(pieces).encode("utf-8", "surrogateescape")


SUBJECT_REFUSED: Final = (
    "a quoted triple of RDF-star as a subject: stores of RDF 1.2 have triples as objects only; "
    "write ?r rdf:reifies <<( s p o )>> and say it of ?r"
)
"""Why a quoted triple is refused as a subject."""


def refused_subject() -> BadInput:
    """The refusal of a quoted triple as a subject."""
    return BadInput(f"MALFORMED DATA: {SUBJECT_REFUSED}")


# -- RDF4J's IRIs


def with_triple_iris(quads: Iterable[ox.Quad]) -> Iterator[ox.Quad]:
    """The quads with an IRI for each triple term."""
    for quad in quads:
        if isinstance(quad.object, ox.Triple):
            yield ox.Quad(quad.subject, quad.predicate, triple_iri(quad.object), quad.graph_name)
        else:
            yield quad


def triple_iri(triple: ox.Triple) -> ox.NamedNode:
    """RDF4J's IRI of a triple, for formats that cannot hold it."""
    coded = base64.urlsafe_b64encode(star_text(triple).encode()).decode()
    return ox.NamedNode(_ENCODED + coded)


def star_text(term: object) -> str:
    """A term in N-Triples, a triple term as RDF-star's quoted triple."""
    if isinstance(term, ox.Triple):
        return f"<<{star_text(term.subject)} {star_text(term.predicate)} {star_text(term.object)}>>"
    return str(term)


def decode_triple_iris(nquads: bytes) -> bytes:
    """Lines of N-Quads with the triple terms for which RDF4J's IRIs stand as objects. A subject stays an IRI."""
    if _ENCODED.encode() not in nquads:
        return nquads
    return b"\n".join([_ENCODED_OBJECT.sub(_decode_object, line) for line in nquads.split(b"\n")])


def _decode_object(found: re.Match[bytes]) -> bytes:
    try:
        coded = base64.urlsafe_b64decode(found[2] + b"=" * (-len(found[2]) % 4))
    except ValueError:
        return found[0]  # an IRI of that kind, but of no triple
    term = parse_star_term(coded)
    return found[0] if term is None else b"%s <<( %s )>>" % (found[1], str(term).encode())


def parse_star_term(coded: bytes) -> ox.Triple | None:
    """The triple of a text such as ``<<<urn:s> <urn:p> "o">>`` or ``<<( <urn:s> <urn:p> "o" )>>``; None for another
    text, and for a triple whose subject is one. Raises :class:`BadInput` for too many inside one another."""
    check_triple_term_nesting(coded)
    try:
        [quad] = ox.parse(b"<x:s> <x:p> %s ." % quoted_to_triple_terms(coded), ox.RdfFormat.N_TRIPLES)
    except (SyntaxError, ValueError, BadInput):
        return None
    return quad.object if isinstance(quad.object, ox.Triple) else None
