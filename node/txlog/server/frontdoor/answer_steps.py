"""What becomes of a worker's answer on its way to a client: as a whole where it is small, else in pieces.

A small answer costs one write to its client, and no thread.
"""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator, Sequence
from typing import IO, Final, NamedTuple

import pyoxigraph as ox
from aiohttp import StreamReader

from txlog.model.errors import WorkerFault
from txlog.server.frontdoor.blank_nodes import restore_blank_nodes, restore_blank_nodes_in_stream
from txlog.server.frontdoor.read_router import WorkerRequestSpec
from txlog.server.frontdoor.result_formats import N_QUADS
from txlog.server.frontdoor.statement_lines import StatementPattern, filter_lines, select_lines
from txlog.server.frontdoor.stream_converter import Stage, StreamConverter, convert_stream
from txlog.server.frontdoor.xml_text import keep_carriage_returns, keep_carriage_returns_in_stream
from txlog.workers import Adapter

SMALL_BYTES: Final = 64 << 10
"""An answer up to this that passes as it is goes out in one piece; bytes."""
CONVERTED_BYTES_MAX: Final = 8 << 10
"""The same for an answer that this master converts: a thread converts a longer one, because the loop waits for it."""
SMALL_S: Final = 0.05
"""How long the rest of an answer is waited for after its header, before it is sent in pieces as it comes; seconds."""
CLEANING_CHUNK_BYTES: Final = 64 << 10
_ROWS_IN_BATCH: Final = 500


class AnswerSteps(NamedTuple):
    """``media``: of the worker's answer, after ``prepare``. ``prepare``: makes lines of N-Quads without statements of
    TxLog's own. ``keep`` selects lines; ``more``: lines after those. ``convert``: to the client's format."""

    media: str
    prepare: StreamConverter | None = None
    keep: Callable[[bytes], bool] | None = None
    more: Sequence[bytes] = ()
    convert: StreamConverter | None = None

    @property
    def converts(self) -> bool:
        """Whether this master converts the answer, and does not only restore blank nodes in it."""
        return self.prepare is not None or self.keep is not None or self.convert is not None

    @property
    def small_bytes(self) -> int:
        """The size up to which :meth:`apply` may take a whole answer."""
        return CONVERTED_BYTES_MAX if self.converts else SMALL_BYTES

    def apply(self, body: bytes) -> bytes:
        """A whole answer. :class:`WorkerFault` for one that cannot be read."""
        try:
            if self.prepare is not None:
                body = _run(self.prepare, body)
            if self.keep is not None:
                body = select_lines(body, self.keep, self.more)
            body = restore_blank_nodes(self.media, body, final=self.convert is None)
            body = keep_carriage_returns(self.media, body)
            return body if self.convert is None else _run(self.convert, body)
        except (SyntaxError, ValueError) as wrong:
            raise WorkerFault(f"the worker's answer cannot be read: {wrong}") from wrong

    def stream(self, pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """The same of an answer in pieces."""
        if self.prepare is not None:
            pieces = convert_stream(pieces, self.prepare, Stage.PREPARE)
        if self.keep is not None:
            pieces = filter_lines(pieces, self.keep, self.more)
        pieces = restore_blank_nodes_in_stream(self.media, pieces, final=self.convert is None)
        pieces = keep_carriage_returns_in_stream(self.media, pieces)
        return pieces if self.convert is None else convert_stream(pieces, self.convert)


def steps_for(adapter: Adapter, build: WorkerRequestSpec, media: str) -> AnswerSteps:
    """What an engine's answer of that media type to this request needs before it is one of a repository."""
    if isinstance(build, StatementPattern) and build.is_match_for(adapter.capabilities):
        return AnswerSteps(media, clean_lines(adapter))
    if isinstance(build, StatementPattern) and build.is_query_for(adapter.capabilities):
        return AnswerSteps(N_QUADS, lines_of_rows(adapter))
    if not isinstance(build, (StatementPattern, str)):
        return AnswerSteps(media)
    keep = build.line_filter() if isinstance(build, StatementPattern) else None
    return AnswerSteps(media, None if adapter.capabilities.hidden_marker else clean_lines(adapter), keep)


def _run(convert: StreamConverter, body: bytes) -> bytes:
    sink = io.BytesIO()
    convert(io.BytesIO(body), sink)
    return sink.getvalue()


async def read_beginning(content: StreamReader, bytes_max: int) -> tuple[list[bytes], bool]:
    """What there is of a body within :data:`SMALL_S`, up to about ``bytes_max``, and whether that is all of it.
    TimeoutError, ClientError and OSError if the worker breaks off."""
    pieces: list[bytes] = []
    try:
        async with asyncio.timeout(None if content.is_eof() else SMALL_S) as limit:
            left = bytes_max
            while left >= 0 and not content.at_eof():
                pieces.append(await content.readany())
                left -= len(pieces[-1])
    except TimeoutError:
        if not limit.expired():
            raise
    return pieces, content.at_eof() and sum(map(len, pieces)) <= bytes_max


async def resume(beginning: Sequence[bytes], content: StreamReader) -> AsyncGenerator[bytes, None]:
    """A body of which the beginning is read."""
    for piece in beginning:
        yield piece
    async for piece in content.iter_any():
        yield piece


# Lines of N-Quads


def lines_of_rows(adapter: Adapter) -> StreamConverter:
    """Makes clean lines of rows in JSON: ``?s ?p ?o``, and ``?g`` unless the statement is in the default graph."""

    def convert(source: IO[bytes], sink: IO[bytes]) -> None:
        _write_all(adapter.clean_snapshot(_read_rows(source)), sink)

    return convert


def clean_lines(adapter: Adapter) -> StreamConverter:
    """Removes TxLog's own statements from a worker's N-Quads."""

    def convert(source: IO[bytes], sink: IO[bytes]) -> None:
        _write_all(adapter.clean_snapshot(iter(lambda: source.read(CLEANING_CHUNK_BYTES), b"")), sink)

    return convert


def _write_all(chunks: Iterable[bytes], sink: IO[bytes]) -> None:
    for lines in chunks:
        sink.write(lines)


def _read_rows(source: IO[bytes]) -> Iterator[bytes]:
    rows = ox.parse_query_results(source, ox.QueryResultsFormat.JSON)
    if not isinstance(rows, ox.QuerySolutions):
        raise ValueError("rows were asked for")
    batch: list[ox.Quad] = []
    for row in rows:
        batch.append(ox.Quad(row["s"], row["p"], row["o"], row["g"]))
        if len(batch) == _ROWS_IN_BATCH:
            yield _lines_of(batch)
            batch = []
    if batch:
        yield _lines_of(batch)


def _lines_of(quads: Sequence[ox.Quad]) -> bytes:
    lines = ox.serialize(quads, format=ox.RdfFormat.N_QUADS)
    assert lines is not None, "it is given back, not written to a file"
    return lines
