"""The rows of an answer to ``read_cells``, as lines of canonical N-Quads by cell.

Engines answer in SPARQL's TSV, whose terms are those of N-Quads but for abbreviated numbers, escapes and triple terms.
Rows without these are rewritten many at a time. A parser reads all other rows, and other formats.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import pyoxigraph as ox

from txlog.model.store_cell import StoreCell
from txlog.workers.adapter import Adapter
from txlog.workers.chunk_stream import ChunkStream
from txlog.workers.sparql_http import TSV

CellLines = tuple[int | None, list[bytes]]
"""Lines of the cell at that place; None: names of system graphs."""
PART_ROWS: Final = 10_000
_ODD: Final = re.compile(rb'\t[^\t\n<"]|\\|<<\(|[\x00-\x08\x0b-\x1f\x7f]')
"""What a row contains that is not written as in N-Quads."""
_HEADER: Final = b"?c\t?s\t?p\t?o\n"


class CellRows:
    """Rows of these cells from this engine."""

    def __init__(self, adapter: Adapter, cells: Sequence[StoreCell]) -> None:
        self._adapter = adapter
        self._cells = cells

    def read(self, chunks: Iterable[bytes]) -> Iterator[CellLines]:
        """The lines, some thousands at a time. ``ValueError`` or ``SyntaxError`` for another answer, or for a part."""
        for place, lines in self._read_tsv(chunks) if self._adapter.dump_media_type == TSV else self._parse(chunks):
            if place is None or not lines:
                yield place, lines
            else:
                clean = b"".join(self._adapter.clean_snapshot([b"\n".join(lines) + b"\n"]))
                yield place, clean.split(b"\n")[:-1]

    def _read_tsv(self, chunks: Iterable[bytes]) -> Iterator[CellLines]:
        rest, is_first = b"", True
        for chunk in chunks:
            head, newline, tail = chunk.rpartition(b"\n")
            if not newline:
                rest += chunk
                continue
            rows, rest = rest + head, tail
            if is_first:
                _, _, rows = rows.partition(b"\n")  # the names of the variables
                is_first = False
            if rows:
                yield from self._read_rows(rows)
        if rest or is_first:
            raise ValueError(f"the answer ends inside a row: {rest[:200]!r}")

    def _read_rows(self, rows: bytes) -> Iterator[CellLines]:
        """Whole rows, without the last newline."""
        start = rows[: rows.find(b"\t") + 1]
        if start == b"\t" or rows.count(b"\n" + start) != rows.count(b"\n"):
            groups: dict[bytes, list[bytes]] = {}
            for row in rows.split(b"\n"):
                groups.setdefault(row[: row.find(b"\t") + 1], []).append(row)
            for each, mine in groups.items():
                yield from self._read_same(each, b"\n".join(mine))
            return
        yield from self._read_same(start, rows)

    def _read_same(self, start: bytes, rows: bytes) -> Iterator[CellLines]:
        """Rows of one cell."""
        if start == b"\t" or _ODD.search(rows) is None:
            yield self._rewrite(start, rows)
            return
        odd, even = list[bytes](), list[bytes]()
        for row in rows.split(b"\n"):
            (odd if _ODD.search(row) else even).append(row)
        if even:
            yield self._rewrite(start, b"\n".join(even))
        yield from self._parse([_HEADER, b"\n".join(odd), b"\n"])

    def _rewrite(self, start: bytes, rows: bytes) -> CellLines:
        if start == b"\t":  # ``?s`` alone
            return None, [row.split(b"\t")[1].strip(b"<>") for row in rows.split(b"\n")]
        place = int(start)
        graph, predicate = self._cells[place]
        end = f" <{graph}> .".encode() if graph else b" ."
        lines = rows[len(start) :].replace(b"\n" + start, end + b"\n") + end
        if predicate is None:
            return place, lines.replace(b"\t", b" ").split(b"\n")
        return place, lines.replace(b"\t\t", f" <{predicate}> ".encode()).split(b"\n")

    def _parse(self, chunks: Iterable[bytes]) -> Iterator[CellLines]:
        form = ox.QueryResultsFormat.from_media_type(self._adapter.dump_media_type)
        found = ox.parse_query_results(io.BufferedReader(ChunkStream(chunks), 1 << 16), form)
        assert isinstance(found, ox.QuerySolutions)
        last: object = None
        place, lines = 0, list[bytes]()
        middle, end = "", ""
        for at, subject, predicate, value in found:
            if at is None:
                assert isinstance(subject, ox.NamedNode)
                yield None, [subject.value.encode()]
                continue
            if at != last or len(lines) >= PART_ROWS:
                if lines:
                    yield place, lines
                assert isinstance(at, ox.Literal)
                last, place, lines = at, int(at.value), []
                graph, named = self._cells[place]
                middle = "" if named is None else f" <{named}> "
                end = f" <{graph}> ." if graph else " ."
            lines.append(f"{subject}{middle or f' {predicate} '}{_term_text(value)}{end}".encode())
        if lines:
            yield place, lines


def _term_text(term: object) -> str:
    """In N-Quads."""
    if isinstance(term, ox.Triple):
        return f"<<( {term.subject} {term.predicate} {_term_text(term.object)} )>>"
    return str(term)
