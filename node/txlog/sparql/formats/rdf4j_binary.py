"""RDF4J's binary formats: ``application/x-binary-rdf`` (read and written) and
``application/x-binary-rdf-results-table`` (written).

Source: the constants and the reader of RDF4J 5 (``BinaryRDFConstants``, ``BinaryQueryResultConstants``). Numbers are
big-endian. RDF: ``BRDF``, version, then records. Version 1, which all readers know, is what is written: strings are
their length in UTF-16 units and UTF-16BE; in version 2 a charset's name follows the head, and lengths and ids are
numbers of seven bits a byte, lowest first. Results: ``BRTR``, version 4, columns, a record for each cell; strings are
their length in bytes and UTF-8.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from struct import Struct
from typing import IO, Final

import pyoxigraph as ox

from txlog.sparql.language_tags import tagged_literal, written_tag
from txlog.sparql.nesting_limit import TRIPLE_TERM_DEPTH_MAX
from txlog.sparql.skolem_iris import make_blank_node
from txlog.sparql.triple_terms import SUBJECT_REFUSED

_INT = Struct(">i")
_RDF: Final = b"BRDF"
_TABLE: Final = b"BRTR"
_NAMESPACE, _STATEMENT, _COMMENT, _DECLARE, _END = 0, 1, 2, 3, 127
_NULL, _IRI, _BLANK, _PLAIN, _LANGUAGE, _TYPED, _REFERENCE, _TRIPLE = range(8)
_STRING_TYPE: Final = "http://www.w3.org/2001/XMLSchema#string"
_TABLE_VERSION: Final = 4
_CELL_NULL, _CELL_IRI, _CELL_BLANK, _CELL_PLAIN, _CELL_LANGUAGE, _CELL_TYPED, _EMPTY_ROW, _CELL_TRIPLE = (
    0,
    4,
    5,
    6,
    7,
    8,
    9,
    10,
)
_CHARSETS: Final = ("UTF-8", "UTF-16BE", "UTF-16", "UTF-16LE", "US-ASCII", "ISO-8859-1")

Term = ox.NamedNode | ox.BlankNode | ox.Literal | ox.Triple


def _encode_utf16_string(text: str) -> bytes:
    data = text.encode("utf-16-be", "surrogatepass")
    return _INT.pack(len(data) // 2) + data


def _encode_value(term: object) -> bytes:
    if isinstance(term, ox.NamedNode):
        return bytes((_IRI,)) + _encode_utf16_string(term.value)
    if isinstance(term, ox.BlankNode):
        return bytes((_BLANK,)) + _encode_utf16_string(term.value)
    if isinstance(term, ox.Literal):
        if term.language:
            return (
                bytes((_LANGUAGE,))
                + _encode_utf16_string(term.value)
                + _encode_utf16_string(written_tag(term.language))
            )
        if term.datatype.value == _STRING_TYPE:
            return bytes((_PLAIN,)) + _encode_utf16_string(term.value)
        return bytes((_TYPED,)) + _encode_utf16_string(term.value) + _encode_utf16_string(term.datatype.value)
    if isinstance(term, ox.DefaultGraph):
        return bytes((_NULL,))
    if isinstance(term, ox.Triple):
        return bytes((_TRIPLE,)) + b"".join(map(_encode_value, term))
    raise ValueError(f"{term} has no place in the binary format")


def write_rdf(quads: Iterable[ox.Quad], out: IO[bytes]) -> None:
    """Write all quads as binary RDF, version 1."""
    out.write(_RDF + _INT.pack(1))
    mark = bytes((_STATEMENT,))
    for quad in quads:
        out.write(mark + b"".join(map(_encode_value, (quad.subject, quad.predicate, quad.object, quad.graph_name))))
    out.write(bytes((_END,)))


class MalformedBinaryRdf(ValueError):
    """The bytes are no valid document; the message names the place."""


def _triple_depth(term: Term | None) -> int:
    """How many triples are inside one another; a term that was declared before may have some."""
    depth = 0
    while isinstance(term, ox.Triple):
        term, depth = term.object, depth + 1
    return depth


class _BinaryRdfReader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._offset = 8
        if data[:4] != _RDF or len(data) < 8:
            raise MalformedBinaryRdf("it does not begin with BRDF")
        [version] = _INT.unpack_from(data, 4)
        if version not in (1, 2):
            raise MalformedBinaryRdf(f"binary RDF of version {version}; versions 1 and 2 are known")
        self._is_version_1 = version == 1
        self._charset = "UTF-8"
        if not self._is_version_1:
            self._charset = self._read_string()
            if self._charset.upper() not in _CHARSETS:
                raise MalformedBinaryRdf(f"the charset {self._charset[:40]!r}; {', '.join(_CHARSETS)} are known")
        self._declared: dict[int, Term | None] = {}

    def _read_bytes(self, count: int) -> bytes:
        end = self._offset + count
        if count < 0 or end > len(self._data):
            raise MalformedBinaryRdf(f"it ends in the middle of something that begins at byte {self._offset}")
        piece, self._offset = self._data[self._offset : end], end
        return piece

    def _read_int(self) -> int:
        if self._is_version_1:
            [number] = _INT.unpack(self._read_bytes(4))
            return int(number)
        number = shift = 0
        while True:
            [byte] = self._read_bytes(1)
            number |= (byte & 127) << shift
            if byte < 128:
                return number
            shift += 7
            if shift > 28:
                raise MalformedBinaryRdf(f"there is no number at byte {self._offset}")

    def _read_string(self) -> str:
        length = self._read_int()
        data = self._read_bytes(2 * length if self._is_version_1 else length)
        try:
            return data.decode("utf-16-be" if self._is_version_1 else self._charset)
        except UnicodeDecodeError:
            raise MalformedBinaryRdf(f"no text stands before byte {self._offset}") from None

    def _read_triple(self, at: int, depth: int) -> ox.Triple:
        self._check_depth(depth, at)
        subject, predicate, value = (self._read_term(depth) for _ in range(3))
        self._check_depth(depth + _triple_depth(value), at)
        if isinstance(subject, ox.Triple):
            raise MalformedBinaryRdf(SUBJECT_REFUSED)
        if not isinstance(subject, ox.NamedNode | ox.BlankNode) or not isinstance(predicate, ox.NamedNode):
            raise MalformedBinaryRdf(f"there is no triple at byte {at}")
        if value is None:
            raise MalformedBinaryRdf(f"there is no triple at byte {at}")
        return ox.Triple(subject, predicate, value)

    def _check_depth(self, depth: int, at: int) -> None:
        if depth > TRIPLE_TERM_DEPTH_MAX:
            raise MalformedBinaryRdf(f"more than {TRIPLE_TERM_DEPTH_MAX} triples inside one another at byte {at}")

    def _read_term(self, depth: int = 0) -> Term | None:
        at = self._offset
        [kind] = self._read_bytes(1)
        if kind == _NULL:
            return None
        if kind == _REFERENCE:
            number = self._read_int()
            if number not in self._declared:
                raise MalformedBinaryRdf(f"value {number} is used at byte {at} and was not declared")
            return self._declared[number]
        if kind == _TRIPLE:
            return self._read_triple(at, depth + 1)
        text = self._read_string() if kind in (_IRI, _BLANK, _PLAIN, _LANGUAGE, _TYPED) else ""
        try:
            if kind == _IRI:
                return ox.NamedNode(text)
            if kind == _BLANK:
                return make_blank_node(text)
            if kind == _PLAIN:
                return ox.Literal(text)
            if kind == _LANGUAGE:
                return tagged_literal(text, self._read_string())
            if kind == _TYPED:
                return ox.Literal(text, datatype=ox.NamedNode(self._read_string()))
        except ValueError as wrong:
            raise MalformedBinaryRdf(f"at byte {at}: {wrong}") from None
        raise MalformedBinaryRdf(f"a value of kind {kind} at byte {at} cannot be carried")

    def quads(self) -> Iterable[ox.Quad]:
        while True:
            at = self._offset
            [record] = self._read_bytes(1)
            if record == _END:
                return
            if record == _STATEMENT:
                terms = [self._read_term() for _ in range(4)]
                subject, predicate, value, graph = terms
                if isinstance(subject, ox.Triple):
                    raise MalformedBinaryRdf(SUBJECT_REFUSED)
                if (
                    not isinstance(subject, ox.NamedNode | ox.BlankNode)
                    or not isinstance(predicate, ox.NamedNode)
                    or value is None
                    or isinstance(graph, ox.Literal | ox.Triple)
                ):
                    raise MalformedBinaryRdf(f"there is no statement at byte {at}")
                yield ox.Quad(subject, predicate, value, graph)
            elif record == _DECLARE:
                number = self._read_int()
                self._declared[number] = self._read_term()
            elif record == _NAMESPACE:
                self._read_string()
                self._read_string()
            elif record == _COMMENT:
                self._read_string()
            else:
                raise MalformedBinaryRdf(f"a record of kind {record} at byte {at}")


def read_rdf(data: bytes) -> Iterable[ox.Quad]:
    """The statements of a binary RDF document. Raises :class:`MalformedBinaryRdf` when it is none."""
    return _BinaryRdfReader(data).quads()


def _encode_utf8_string(text: str) -> bytes:
    data = text.encode()
    return _INT.pack(len(data)) + data


def _encode_cell(term: object) -> bytes:
    if term is None:
        return bytes((_CELL_NULL,))
    if isinstance(term, ox.NamedNode):
        return bytes((_CELL_IRI,)) + _encode_utf8_string(term.value)
    if isinstance(term, ox.BlankNode):
        return bytes((_CELL_BLANK,)) + _encode_utf8_string(term.value)
    if isinstance(term, ox.Literal):
        if term.language:
            return (
                bytes((_CELL_LANGUAGE,))
                + _encode_utf8_string(term.value)
                + _encode_utf8_string(written_tag(term.language))
            )
        if term.datatype.value == _STRING_TYPE:
            return bytes((_CELL_PLAIN,)) + _encode_utf8_string(term.value)
        return bytes((_CELL_TYPED,)) + _encode_utf8_string(term.value) + _encode_cell(term.datatype)
    if isinstance(term, ox.Triple):
        return bytes((_CELL_TRIPLE,)) + b"".join(map(_encode_cell, term))
    raise ValueError(f"{term} has no place in the binary format")


def write_table(names: Sequence[str], rows: Iterable[Sequence[object]], out: IO[bytes]) -> None:
    """Write a tuple result. A cell is a term of pyoxigraph, or None."""
    out.write(_TABLE + _INT.pack(_TABLE_VERSION) + _INT.pack(len(names)) + b"".join(map(_encode_utf8_string, names)))
    for row in rows:
        bound = any(cell is not None for cell in row)
        out.write(b"".join(map(_encode_cell, row)) if bound else bytes((_EMPTY_ROW,)))
    out.write(bytes((_END,)))
