"""Forms of RDF that RDF4J has and pyoxigraph has not, read apart from the masters' own code: TriX, RDF/JSON, binary.

Sources: W3C's RDF 1.1 JSON Alternate Serialization, HP's TriX, RDF4J's ``BinaryRDFConstants``.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from typing import Final
from xml.etree import ElementTree

import pyoxigraph as ox

from e2e.conformance.w3c.result_comparison import Term as PlainTerm

Term = PlainTerm | ox.Triple
_TRIX: Final = "{http://www.w3.org/2004/03/trix/trix-1/}"
_LANGUAGE: Final = "{http://www.w3.org/XML/1998/namespace}lang"
_INT: Final = struct.Struct(">i")
_END: Final = 127


def _blank(name: str) -> ox.BlankNode:
    """Any text may be a name."""
    return ox.BlankNode(f"b{name.encode().hex()}")


def _literal(text: str, language: str | None, datatype: str | None) -> ox.Literal:
    if language:
        return ox.Literal(text, language=language)
    return ox.Literal(text, datatype=ox.NamedNode(datatype) if datatype else None)


def _quad(subject: Term | None, predicate: Term | None, value: Term | None, graph: Term | None) -> ox.Quad:
    assert isinstance(subject, ox.NamedNode | ox.BlankNode), subject
    assert isinstance(predicate, ox.NamedNode), predicate
    assert value is not None
    assert graph is None or isinstance(graph, ox.NamedNode | ox.BlankNode), graph
    return ox.Quad(subject, predicate, value, graph)


def read_trix(body: bytes) -> Iterator[ox.Quad]:
    """Its statements. ValueError, AssertionError when it is none, as of the others."""
    for graph in ElementTree.fromstring(body):
        named: Term | None = None
        for part in graph:
            if part.tag == f"{_TRIX}triple":
                subject, predicate, value = (_of_trix(term) for term in part)
                yield _quad(subject, predicate, value, named)
            else:
                named = _of_trix(part)


def _of_trix(term: ElementTree.Element) -> Term:
    text = term.text or ""
    if term.tag == f"{_TRIX}uri":
        return ox.NamedNode(text.strip())
    if term.tag == f"{_TRIX}id":
        return _blank(text.strip())
    return _literal(text, term.get(_LANGUAGE), term.get("datatype"))


def read_rdf_json(body: bytes) -> Iterator[ox.Quad]:
    """The same; a value may say its graphs, as RDF4J writes them."""
    for subject, facts in json.loads(body).items():
        for predicate, values in facts.items():
            for value in values:
                if value["type"] == "literal":
                    term: Term = _literal(value["value"], value.get("lang"), value.get("datatype"))
                else:
                    term = _named(value["value"])
                for graph in value.get("graphs") or [None]:
                    yield _quad(_named(subject), ox.NamedNode(predicate), term, _named(graph) if graph else None)


def _named(text: str) -> Term:
    return _blank(text[2:]) if text.startswith("_:") else ox.NamedNode(text)


class _IndependentBinaryReader:
    """Shares no code with the reader of the masters, so that it finds their mistakes."""

    def __init__(self, body: bytes) -> None:
        self._body, self._at = body, 4
        assert body[:4] == b"BRDF", body[:8]
        self._old = True
        self._old = self.number() == 1
        self._charset = "utf-16-be" if self._old else "ascii"
        if not self._old:
            self._charset = self.text()
        self._values: dict[int, Term | None] = {}

    def read_bytes(self, count: int) -> bytes:
        found = self._body[self._at : self._at + count]
        assert len(found) == count, "it is cut"
        self._at += count
        return found

    def number(self) -> int:
        if self._old:
            return int(_INT.unpack(self.read_bytes(4))[0])
        number = shift = 0
        while (byte := self.read_bytes(1)[0]) & 128:
            number |= (byte & 127) << shift
            shift += 7
        return number | byte << shift

    def text(self) -> str:
        return self.read_bytes(self.number() * (2 if self._old else 1)).decode(self._charset)

    def term(self) -> Term | None:
        kind = self.read_bytes(1)[0]
        if kind == 0:
            return None
        if kind == 6:
            return self._values[self.number()]
        if kind == 7:
            return _quad(self.term(), self.term(), self.term(), None).triple
        text = self.text()
        if kind in (1, 2):
            return ox.NamedNode(text) if kind == 1 else _blank(text)
        return _literal(text, self.text() if kind == 4 else None, self.text() if kind == 5 else None)

    def quads(self) -> Iterator[ox.Quad]:
        while (record := self.read_bytes(1)[0]) != _END:
            if record == 1:
                yield _quad(self.term(), self.term(), self.term(), self.term())
            elif record == 3:
                number = self.number()
                self._values[number] = self.term()
            else:
                for _ in range({0: 2, 2: 1}[record]):  # a namespace, a comment
                    self.text()


def read_binary(body: bytes) -> Iterator[ox.Quad]:
    """The same of ``application/x-binary-rdf``, versions 1 and 2."""
    return _IndependentBinaryReader(body).quads()


def _value(kind: int, *texts: str) -> bytes:
    return bytes((kind,)) + b"".join(
        _INT.pack(len(text.encode("utf-16-be")) // 2) + text.encode("utf-16-be") for text in texts
    )


def binary_document(label: str) -> bytes:
    """``_:label <urn:p> "x𝄞"@en`` and ``_:label <urn:q> _:label <urn:f>``, in version 1."""
    node = _value(2, label)
    one = node + _value(1, "urn:p") + _value(4, "x\U0001d11e", "en") + b"\0"
    other = node + _value(1, "urn:q") + node + _value(1, "urn:f")
    return b"BRDF" + _INT.pack(1) + b"\x01" + one + b"\x01" + other + bytes((_END,))
