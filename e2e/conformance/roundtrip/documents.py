"""Writers of the formats that RDF4J has and pyoxigraph has not, apart from the masters' own code."""

from __future__ import annotations

import base64
import json
import re
import struct
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple
from xml.sax.saxutils import escape, quoteattr

import pyoxigraph as ox

from e2e.conformance.roundtrip.values import LANGUAGES

Value = ox.NamedNode | ox.BlankNode | ox.Literal | ox.Triple
Statement = tuple[str, str, Value]
"""Subject and predicate as bare IRIs, and the value."""
_STRING: Final = "http://www.w3.org/2001/XMLSchema#string"
_NULL, _IRI, _BLANK, _PLAIN, _LANGUAGE, _TYPED, _STATEMENT, _END = 0, 1, 2, 3, 4, 5, 1, 127
_TRIPLE: Final = 7
_TRIPLE_IRI: Final = "urn:rdf4j:triple:"
_QUOTED: Final = re.compile(r'"(?:[^"\\]|\\.)*"|<[^<>]*>|<<|>>')
WITHOUT_TRIPLE_TERMS: Final = ("text/n3", "application/ld+json", "application/trix", "application/rdf+json")
"""Formats in which RDF4J writes a triple as an IRI."""


def with_triple_iri(value: Value) -> ox.NamedNode | ox.BlankNode | ox.Literal:
    """The value, or RDF4J's IRI of a triple."""
    if not isinstance(value, ox.Triple):
        return value
    return ox.NamedNode(_TRIPLE_IRI + base64.urlsafe_b64encode(_star(value).encode()).decode())


def _star(term: object) -> str:
    return f"<<{' '.join(map(_star, term))}>>" if isinstance(term, ox.Triple) else str(term)


def triple_of_iri(iri: str) -> str:
    """The triple term, in N-Triples, for which RDF4J's IRI stands; "" for another IRI."""
    if not iri.startswith(_TRIPLE_IRI):
        return ""
    text = base64.urlsafe_b64decode(iri.removeprefix(_TRIPLE_IRI)).decode()
    return _QUOTED.sub(lambda found: {"<<": "<<( ", ">>": " )>>"}.get(found[0], found[0]), text)


class _Parts(NamedTuple):
    text: str
    language: str
    datatype: str


def _parts(value: ox.Literal) -> _Parts:
    """With the language as it is sent: pyoxigraph has it in lower case."""
    if value.language:
        return _Parts(value.value, LANGUAGES.get(value.language, value.language), "")
    return _Parts(value.value, "", "" if value.datatype.value == _STRING else value.datatype.value)


def trix_document(statements: Iterable[Statement]) -> bytes:
    """The statements as TriX."""
    triples = [
        f"<triple><uri>{escape(subject)}</uri><uri>{escape(predicate)}</uri>{_trix_value(value)}</triple>"
        for subject, predicate, value in statements
    ]
    inside = "".join(triples)
    return f'<TriX xmlns="http://www.w3.org/2004/03/trix/trix-1/"><graph>{inside}</graph></TriX>'.encode()


def _trix_value(given: Value) -> str:
    value = with_triple_iri(given)
    if not isinstance(value, ox.Literal):
        name = "uri" if isinstance(value, ox.NamedNode) else "id"
        return f"<{name}>{escape(value.value)}</{name}>"
    text, language, datatype = _parts(value)
    text = escape(text, {"\r": "&#13;"})
    if datatype:
        return f"<typedLiteral datatype={quoteattr(datatype)}>{text}</typedLiteral>"
    said = f" xml:lang={quoteattr(language)}" if language else ""
    return f"<plainLiteral{said}>{text}</plainLiteral>"


def rdf_json_document(statements: Iterable[Statement]) -> bytes:
    """The statements as RDF/JSON."""
    found: dict[str, dict[str, list[dict[str, str]]]] = {}
    for subject, predicate, value in statements:
        found.setdefault(subject, {}).setdefault(predicate, []).append(_json_value(value))
    return json.dumps(found).encode()


def _json_value(given: Value) -> dict[str, str]:
    value = with_triple_iri(given)
    if isinstance(value, ox.NamedNode):
        return {"type": "uri", "value": value.value}
    if isinstance(value, ox.BlankNode):
        return {"type": "bnode", "value": f"_:{value.value}"}
    text, language, datatype = _parts(value)
    said = {"lang": language} if language else {"datatype": datatype} if datatype else {}
    return {"type": "literal", "value": text, **said}


def binary_document(statements: Iterable[Statement]) -> bytes:
    """The statements as binary RDF, version 1."""
    made = [b"BRDF", struct.pack(">i", 1)]
    for subject, predicate, value in statements:
        made += [bytes((_STATEMENT,)), _value(_IRI, subject), _value(_IRI, predicate), _binary_value(value)]
        made.append(bytes((_NULL,)))
    return b"".join([*made, bytes((_END,))])


def _binary_value(value: Value) -> bytes:
    if isinstance(value, ox.Triple):
        return bytes((_TRIPLE,)) + b"".join(map(_binary_value, value))
    if not isinstance(value, ox.Literal):
        return _value(_IRI if isinstance(value, ox.NamedNode) else _BLANK, value.value)
    text, language, datatype = _parts(value)
    if language or datatype:
        return _value(_LANGUAGE if language else _TYPED, text, language or datatype)
    return _value(_PLAIN, text)


def _value(kind: int, *texts: str) -> bytes:
    coded = [text.encode("utf-16-be") for text in texts]
    return bytes((kind,)) + b"".join([struct.pack(">i", len(text) // 2) + text for text in coded])


WRITERS: Final[dict[str, Callable[[Iterable[Statement]], bytes]]] = {
    "application/trix": trix_document,
    "application/rdf+json": rdf_json_document,
    "application/x-binary-rdf": binary_document,
}
