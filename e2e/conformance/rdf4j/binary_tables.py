"""Tuple results in RDF4J's binary form (``application/x-binary-rdf-results-table``, version 4), read apart from the
code that writes them. Source: RDF4J's ``BinaryQueryResultConstants``."""

from __future__ import annotations

import io
import struct
from typing import Final, cast

import pyoxigraph as ox

from e2e.conformance.w3c.result_comparison import Solutions, Term

_NULL, _REPEAT, _NAMESPACE, _QNAME, _IRI, _BLANK, _PLAIN, _LANGUAGE, _TYPED, _EMPTY, _END = (*range(10), 127)
_TRIPLE: Final = 10
_INT: Final = struct.Struct(">i")


class _BinaryTableReader:
    def __init__(self, body: bytes) -> None:
        self._from = io.BytesIO(body)
        self._spaces: dict[int, str] = {}

    def bytes(self, count: int) -> bytes:
        found = self._from.read(count)
        if len(found) < count:
            raise ValueError("the table is cut")
        return found

    def number(self) -> int:
        return int(_INT.unpack(self.bytes(4))[0])

    def text(self) -> str:
        return self.bytes(self.number()).decode()

    def kind(self) -> int:
        """Of the next cell or row; namespaces are read on the way."""
        while (kind := self.bytes(1)[0]) == _NAMESPACE:
            number = self.number()
            self._spaces[number] = self.text()
        return kind

    def term(self, kind: int) -> Term:
        if kind == _QNAME:
            return ox.NamedNode(self._spaces[self.number()] + self.text())
        if kind == _TRIPLE:
            subject, predicate, value = (self.term(self.kind()) for _ in range(3))
            assert isinstance(subject, ox.NamedNode | ox.BlankNode), subject
            assert isinstance(predicate, ox.NamedNode), predicate
            return cast("Term", ox.Triple(subject, predicate, value))  # results are compared without them
        text = self.text()
        if kind == _IRI:
            return ox.NamedNode(text)
        if kind == _BLANK:
            return ox.BlankNode("b" + text.encode().hex())
        if kind == _PLAIN:
            return ox.Literal(text)
        if kind == _LANGUAGE:
            return ox.Literal(text, language=self.text())
        if kind == _TYPED:
            datatype = self.term(self.kind())
            assert isinstance(datatype, ox.NamedNode), datatype
            return ox.Literal(text, datatype=datatype)
        raise ValueError(f"a cell of kind {kind}")


def read_table(body: bytes) -> Solutions:
    """What it says. ValueError when it is none."""
    table = _BinaryTableReader(body)
    if table.bytes(4) != b"BRTR" or table.number() != 4:
        raise ValueError(f"no table, or of another version: {body[:8]!r}")
    names = [table.text() for _ in range(table.number())]
    rows: list[tuple[tuple[str, Term], ...]] = []
    last: list[Term | None] = [None] * len(names)
    while (kind := table.kind()) != _END:
        row: list[Term | None] = [None] * len(names)
        for at in range(0 if kind == _EMPTY else len(names)):
            kind = kind if at == 0 else table.kind()
            row[at] = last[at] if kind == _REPEAT else None if kind == _NULL else table.term(kind)
        rows.append(tuple((name, cell) for name, cell in zip(names, row, strict=True) if cell is not None))
        last = row
    return Solutions(frozenset(names), tuple(rows))
