"""Literals of a copy that follows stores which hold them as they were sent (``rdf4j-as-written``).

Oxigraph would store ``"01"^^xsd:integer`` as ``1``. Such a literal is *encoded*: its datatype, with a prefix of this
process before it, is one that Oxigraph does not know. All other literals stay as they are. What leaves the copy is
decoded.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import Any, Final

import pyoxigraph as ox

from txlog.evaluation.form_rewriter import DATATYPE, VALUE, FormRewriter
from txlog.workers.canonical_literals import CACHED_BYTES_MAX, canonical_lines, canonical_literal

_PREFIX: Final = f"urn:txlog:form:{secrets.token_hex(8)}:"
"""Before the datatype of an encoded literal. It is random, so no client's data holds it."""
_XSD: Final = "http://www.w3.org/2001/XMLSchema#"
_STRING: Final = f"{_XSD}string"
_INTEGER: Final = f"{_XSD}integer"
_PLAIN_INTEGER: Final = re.compile(r"-?[1-9][0-9]{0,8}|0")
_CACHED: Final = 1 << 14
_MAY_DIFFER: Final = re.compile(r"\^\^|[0-9][.eE]|\.[0-9]|(?<![\w.])0[0-9]|[+-][0-9]")
"""Of a text that holds a constant in another form."""


def _has_other_form(value: str, datatype: str) -> bool:
    """Whether Oxigraph stores this literal in another form."""
    if datatype == _STRING or not datatype.startswith(_XSD):
        return False
    if datatype != _INTEGER and _PLAIN_INTEGER.fullmatch(value) and _becomes_integer(datatype):
        return True
    return _is_changed(value, datatype)


@lru_cache
def _becomes_integer(datatype: str) -> bool:
    """Whether Oxigraph stores whole numbers of this datatype as ``xsd:integer``, so that none needs a look."""
    found = canonical_literal(str(ox.Literal("1", datatype=ox.NamedNode(datatype))).encode())
    return found.endswith(f"<{_INTEGER}>".encode())


def _compare_forms(value: str, datatype: str) -> bool:
    line = str(ox.Literal(value, datatype=ox.NamedNode(datatype))).encode()
    return canonical_lines(line) != line


_compare_forms_cached = lru_cache(_CACHED)(_compare_forms)


def _is_changed(value: str, datatype: str) -> bool:
    compare = _compare_forms_cached if len(value) <= CACHED_BYTES_MAX else _compare_forms
    return compare(value, datatype)


def encode_text(value: str, datatype: str) -> str | None:
    """The encoded literal in N-Triples; None for one that stays as it is."""
    if not _has_other_form(value, datatype):
        return None
    return str(ox.Literal(value, datatype=ox.NamedNode(_PREFIX + datatype)))


def encode_term(term: Any) -> Any:
    """A term as the copy holds it."""
    if isinstance(term, ox.Literal) and _has_other_form(term.value, term.datatype.value):
        return ox.Literal(term.value, datatype=ox.NamedNode(_PREFIX + term.datatype.value))
    return term


def decode_term(term: Any) -> Any:
    """A term of the copy as it was sent."""
    if isinstance(term, ox.Literal) and term.datatype.value.startswith(_PREFIX):
        return ox.Literal(term.value, datatype=ox.NamedNode(term.datatype.value[len(_PREFIX) :]))
    return term


def decode_text(text: str) -> str:
    """Terms or lines of the copy, as text, as they were sent."""
    return text.replace(_PREFIX, "")


def decode_bytes(text: bytes) -> bytes:
    """As :func:`decode_text`; of any of RDF's and SPARQL's formats in UTF-8."""
    return text.replace(_PREFIX.encode(), b"")


def _datatype(term: Any) -> Any:
    return decode_term(term).datatype if isinstance(term, ox.Literal) else None


class LiteralForms:
    """What a copy with such literals knows of them. ``found``: whether it has met one that is encoded."""

    functions: Final[dict[ox.NamedNode, Callable[..., Any]]] = {
        ox.NamedNode(VALUE): decode_term,
        ox.NamedNode(DATATYPE): _datatype,
    }

    def __init__(self) -> None:
        self.found = False

    def encode(self, quads: Iterable[ox.Quad]) -> Iterator[ox.Quad]:
        """The quads as the copy holds them."""
        for quad in quads:
            value = encode_term(quad.object)
            if value is quad.object:
                yield quad
            else:
                self.found = True
                yield ox.Quad(quad.subject, quad.predicate, value, quad.graph_name)

    def rewrite(self, text: str) -> str:
        """A query or an update for the copy. It stays as it is while nothing is encoded, here and in the copy."""
        if not self.found and not _MAY_DIFFER.search(text):
            return text
        rewriter = FormRewriter(text, encode_text)
        made = rewriter.rewrite()
        self.found = self.found or rewriter.has_constants
        return made if self.found else text
