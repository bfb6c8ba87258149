"""TriX, RDF's plain XML: read and written.

Source: Carroll and Stickler, "RDF Triples in XML" (HPL-2004-56); empty graph names as RDF4J reads them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import IO, Final
from xml.parsers import expat
from xml.sax.saxutils import escape, quoteattr

import pyoxigraph as ox

from txlog.sparql.language_tags import tagged_literal, written_tag
from txlog.sparql.skolem_iris import make_blank_node

NAMESPACE: Final = "http://www.w3.org/2004/03/trix/trix-1/"
_STRING: Final = "http://www.w3.org/2001/XMLSchema#string"
_XML_LANGUAGE: Final = "http://www.w3.org/XML/1998/namespace lang"
_TERMS: Final = ("uri", "id", "plainLiteral", "typedLiteral")


def write_trix(quads: Iterable[ox.Quad], out: IO[bytes]) -> None:
    """Write all quads; consecutive quads of one graph share its element."""
    out.write(f'<?xml version="1.0" encoding="UTF-8"?>\n<TriX xmlns="{NAMESPACE}">\n'.encode())
    graph: object = None
    for quad in quads:
        if quad.graph_name != graph:
            out.write(b"</graph>\n" if graph is not None else b"")
            graph = quad.graph_name
            name = b"" if isinstance(graph, ox.DefaultGraph) else _element(graph)
            out.write(b"<graph>\n" + name)
        out.write(b"<triple>\n" + b"".join(map(_element, quad.triple)) + b"</triple>\n")
    out.write(b"</graph>\n</TriX>\n" if graph is not None else b"</TriX>\n")


def _element(term: object) -> bytes:
    if isinstance(term, ox.NamedNode):
        text = f"<uri>{escape(term.value)}</uri>"
    elif isinstance(term, ox.BlankNode):
        text = f"<id>{escape(term.value)}</id>"
    elif isinstance(term, ox.Literal):
        # A carriage return would be read as a line feed; the reader refuses characters that no XML can hold.
        value = escape(term.value, {"\r": "&#13;"})
        if term.language:
            text = f"<plainLiteral xml:lang={quoteattr(written_tag(term.language))}>{value}</plainLiteral>"
        elif term.datatype.value == _STRING:
            text = f"<plainLiteral>{value}</plainLiteral>"
        else:
            text = f"<typedLiteral datatype={quoteattr(term.datatype.value)}>{value}</typedLiteral>"
    else:
        raise ValueError(f"{term} has no place in TriX")
    return f"{text}\n".encode()


def read_trix(data: bytes) -> list[ox.Quad]:
    """The statements of a document. Raises SyntaxError with the place of a mistake; refuses a DTD, which may
    refer to anything."""
    reader = _TrixReader()
    try:
        reader.parser.Parse(data, True)
    except expat.ExpatError as wrong:
        raise SyntaxError(f"line {wrong.lineno}: {expat.ErrorString(wrong.code)}") from None
    except ValueError as wrong:
        raise SyntaxError(f"line {reader.parser.CurrentLineNumber}: {wrong}") from None
    return reader.quads


class _TrixReader:
    def __init__(self) -> None:
        self.quads: list[ox.Quad] = []
        self.parser = expat.ParserCreate(namespace_separator=" ")
        self.parser.buffer_text = True
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end
        self.parser.CharacterDataHandler = self._characters
        self.parser.StartDoctypeDeclHandler = self._doctype
        self._path: list[str] = []
        self._text: list[str] = []
        self._attributes: dict[str, str] = {}
        self._graph: ox.NamedNode | ox.BlankNode | None = None
        self._terms: list[ox.NamedNode | ox.BlankNode | ox.Literal] = []

    def _doctype(self, *_: object) -> None:
        raise ValueError("a document type declaration; send it without")

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        local = name.rpartition(" ")[2]
        inside = {"": ("TriX",), "TriX": ("graph",), "graph": ("triple", *_TERMS), "triple": _TERMS}
        if local not in inside.get(self._path[-1] if self._path else "", ()):
            raise ValueError(f"<{local[:40]}> may not stand here")
        if local == "graph":
            self._graph = None
        if local == "triple":
            self._terms = []
        self._path.append(local)
        self._text, self._attributes = [], attributes

    def _characters(self, text: str) -> None:
        if self._path and self._path[-1] in _TERMS:
            self._text.append(text)
        elif not text.isspace():
            raise ValueError(f"text may not stand here: {text[:40]!r}")

    def _end(self, name: str) -> None:
        local = self._path.pop()
        if local in _TERMS:
            term = self._term(local, "".join(self._text))
            if self._path[-1] == "triple":
                self._terms.append(term)
            elif isinstance(term, ox.Literal) or self._graph is not None:
                raise ValueError("a graph has one name, an IRI or a blank node")
            else:
                self._graph = term
        elif local == "triple":
            if len(self._terms) != 3:
                raise ValueError(f"a triple of {len(self._terms)} terms")
            subject, predicate, value = self._terms
            if isinstance(subject, ox.Literal) or not isinstance(predicate, ox.NamedNode):
                raise ValueError("a literal is no subject, and a predicate is an IRI")
            self.quads.append(ox.Quad(subject, predicate, value, self._graph))

    def _term(self, local: str, text: str) -> ox.NamedNode | ox.BlankNode | ox.Literal:
        if local == "uri":
            return ox.NamedNode(text.strip())
        if local == "id":
            return make_blank_node(text.strip())
        if local == "typedLiteral":
            datatype = self._attributes.get("datatype")
            if datatype is None:
                raise ValueError("a typedLiteral without datatype")
            return ox.Literal(text, datatype=ox.NamedNode(datatype))
        language = self._attributes.get(_XML_LANGUAGE)
        return tagged_literal(text, language) if language else ox.Literal(text)
