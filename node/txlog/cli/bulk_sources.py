"""Reads RDF files for a bulk load: canonical N-Quads without blank nodes, and every error with its place.

The same files give the same bytes for the same load. A blank node is named by the load and the number of its file, so
two loads, or two files of equal bytes, share none.
"""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import islice
from typing import IO, Final, cast

import pyoxigraph
from pyoxigraph import RdfFormat

from txlog.bulk.bulk_errors import BulkSyntax, SourceChanged
from txlog.cli.rdf_chunks import (
    LINE_FORMATS,
    RdfSource,
    counted_names,
    rename_blank_nodes,
    rewrite_small_xml,
    serialise_quads,
)
from txlog.model.errors import BadInput
from txlog.sparql import check_supported_terms, skolemise_lines

ERRORS_SHOWN: Final = 20
BLOCK_BYTES: Final = 1 << 20
QUADS_AT_A_TIME: Final = 10_000
_GRAPH_FORMATS: Final = (RdfFormat.N_QUADS, RdfFormat.TRIG)


@dataclass
class SourceProgress:
    """``offset``: bytes of the file that were read. ``errors``: the first of all files, each with its place."""

    offset: int = 0
    quads: int = 0
    errors: list[str] = field(default_factory=list)

    def note(self, name: str, line: int, column: int, why: str) -> None:
        """Notes an error, unless there are enough."""
        if len(self.errors) < ERRORS_SHOWN:
            self.errors.append(f"{name}:{line}:{column}: {why}")

    def raise_errors(self) -> None:
        """:class:`BulkSyntax` with all errors, if there are any."""
        if self.errors:
            more = "" if len(self.errors) < ERRORS_SHOWN else f"\n(the first {ERRORS_SHOWN})"
            raise BulkSyntax("nothing was loaded:\n" + "\n".join(self.errors) + more)


class _HashedFile(io.RawIOBase):
    """A file whose bytes are hashed as they are read."""

    def __init__(self, file: IO[bytes], progress: SourceProgress) -> None:
        self._file, self._progress = file, progress
        self._state = blake2b(digest_size=16)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        data = self._file.read(len(buffer))
        buffer[: len(data)] = data
        self._state.update(data)
        self._progress.offset += len(data)
        return len(data)

    def hexdigest(self) -> str:
        return self._state.hexdigest()


def read_source(
    source: RdfSource, number: int, load: str, graph: str | None, progress: SourceProgress
) -> Iterator[bytes]:
    """Pieces of whole lines. ``number``: of the file in its load. What is no RDF is noted in ``progress``, and left
    out. :class:`SourceChanged` when the file is not what it was when it was opened."""
    stem = blake2b(f"{load}:{number}".encode(), digest_size=16).hexdigest().encode()
    progress.offset = 0
    with open(source.path, "rb") as raw, ExitStack() as closing:
        hashed = _HashedFile(raw, progress)
        whole: IO[bytes] = io.BufferedReader(hashed, BLOCK_BYTES)
        text = whole
        if source.gzipped:
            text = cast("IO[bytes]", closing.enter_context(gzip.open(whole, "rb")))
        read = _read_lines if source.rdf_format in LINE_FORMATS else _read_document
        try:
            for piece in read(source, text, stem, graph, progress):
                progress.quads += piece.count(b"\n")
                yield piece
        except (gzip.BadGzipFile, EOFError, zlib.error) as broken:
            progress.note(source.name, 0, 0, f"broken gzip file: {broken}")
        while whole.read(BLOCK_BYTES):
            pass
        if hashed.hexdigest() != source.digest:
            raise SourceChanged(f"{source.name} has changed while it was read; nothing was loaded, begin again")


def _read_lines(
    source: RdfSource, file: IO[bytes], stem: bytes, graph: str | None, progress: SourceProgress
) -> Iterator[bytes]:
    line, rest = 1, b""
    while block := file.read(BLOCK_BYTES):
        whole, newline, rest = (rest + block).rpartition(b"\n")
        if newline:
            yield _convert(source, whole + newline, line, stem, graph, progress)
            line += whole.count(b"\n") + 1
    if rest:
        yield _convert(source, rest + b"\n", line, stem, graph, progress)


def _convert(
    source: RdfSource, lines: bytes, first: int, stem: bytes, graph: str | None, progress: SourceProgress
) -> bytes:
    try:
        return _canonical(source, lines, stem, graph)
    except (SyntaxError, BadInput, ValueError):
        found = False
        for number, line in enumerate(lines.split(b"\n"), start=first):
            try:
                _canonical(source, line, stem, graph)
            except (SyntaxError, BadInput, ValueError) as error:
                progress.note(source.name, number, _column(error), _reason(error))
                found = True
        if not found:
            progress.note(source.name, first, 0, f"not {source.rdf_format.name}, in or after this line")
        return b""


def _canonical(source: RdfSource, lines: bytes, stem: bytes, graph: str | None) -> bytes:
    quads = pyoxigraph.parse(lines, source.rdf_format)
    if graph is not None and source.rdf_format in _GRAPH_FORMATS:
        text = serialise_quads(list(quads), graph)
    else:
        made = pyoxigraph.serialize(quads, format=RdfFormat.N_QUADS)
        assert made is not None
        text = made if graph is None else made.replace(b" .\n", b" <%s> .\n" % graph.encode())
    check_supported_terms(text)
    return skolemise_lines(text, stem)


def _read_document(
    source: RdfSource, file: IO[bytes], stem: bytes, graph: str | None, progress: SourceProgress
) -> Iterator[bytes]:
    name_of = counted_names(stem.decode())
    try:
        document = rewrite_small_xml(source, file)
        text = file if document is None else document.text
        quads = pyoxigraph.parse(text, source.rdf_format, base_iri=source.base)
        while some := list(islice(quads, QUADS_AT_A_TIME)):
            lines = serialise_quads(some, graph)
            lines = lines if document is None else b"".join(map(document.restore, lines.splitlines(keepends=True)))
            check_supported_terms(lines)
            yield rename_blank_nodes(lines, name_of)
    except (SyntaxError, BadInput, ValueError) as error:
        progress.note(source.name, getattr(error, "lineno", None) or 0, _column(error), _reason(error))


def _column(error: Exception) -> int:
    return getattr(error, "offset", None) or 0


def _reason(error: Exception) -> str:
    return str(getattr(error, "msg", None) or error)
