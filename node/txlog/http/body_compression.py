"""``Content-Encoding``: request bodies that clients compress, and answers that clients accept compressed.

A request body is decompressed while it arrives, within the limits of its reader. aiohttp decompresses nothing: it would
do so without those limits.

An answer is compressed only where :func:`choose_coding` is asked: the answers to reads of a repository. Other answers
may hold secrets, and a length that depends on a secret beside text of an attacker tells the secret (BREACH). For the
same reason a request that a browser sends for a page of another site gets its answer uncompressed, unless the
configuration names its origin.
"""

from __future__ import annotations

import asyncio
import re
import zlib
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Final, Protocol

import zstandard
from aiohttp import web

from txlog.auth.csrf import TRUSTED_FETCH_SITES
from txlog.http.cors import is_admitted_origin
from txlog.model.errors import BadInput, UnsupportedCoding
from txlog.wire.compressed_stream import DEFLATE, GZIP, ZSTD, Decompressor

REQUEST_CODINGS: Final = f"{GZIP}, {DEFLATE}, {ZSTD}"
"""As in the header ``Accept-Encoding`` of an answer to a request with another coding."""
_BY_NAME: Final = {GZIP: GZIP, "x-gzip": GZIP, DEFLATE: DEFLATE, ZSTD: ZSTD}
VARY: Final = "Accept, Accept-Encoding"
"""What an answer to a read depends on."""
_PREFERRED: Final = (ZSTD, GZIP, DEFLATE)
COMPRESSED_BYTES_MIN: Final = 1024
"""A shorter answer is not compressed: its head alone is about as long."""
SILENT_BYTES_MAX: Final = 1 << 20
"""Bytes of a compressed body that may decompress to nothing; every compressor writes something sooner."""
OFF_LOOP_BYTES: Final = 16 << 10
"""A longer piece is compressed in a thread; bytes."""
_GZIP_LEVEL: Final = 4
_ZSTD_LEVEL: Final = 3
_THREADS: Final = 2
_WEIGHT: Final = re.compile(r"q\s*=\s*(0(?:\.[0-9]{0,3})?|1(?:\.0{0,3})?)", re.IGNORECASE)

_pool = ThreadPoolExecutor(_THREADS, "compress")


# Request bodies


def request_coding(request: web.BaseRequest) -> str:
    """The coding of the request's body, "" without one. :class:`UnsupportedCoding` for any other."""
    given = request.headers.getall("Content-Encoding", None)
    if given is None:
        return ""
    named = ", ".join(given).strip().lower()
    if named in ("", "identity"):
        return ""
    coding = _BY_NAME.get(named)
    if coding is None:
        raise UnsupportedCoding(
            f"Content-Encoding: {named[:80]}; send the body as it is, or in one of {REQUEST_CODINGS}", REQUEST_CODINGS
        )
    return coding


class DecodedBody:
    """The decompressed body of a request, in pieces of limited size. ``received``: bytes that have arrived, compressed;
    the caller bounds them and the pieces."""

    def __init__(self, request: web.BaseRequest, coding: str) -> None:
        self._content = request.content
        self._decompressor = Decompressor(coding)
        self._pieces: Iterator[bytes] = iter(())
        self._ended = False
        self._silent = 0
        self.received = 0

    async def readany(self) -> bytes:
        """The next piece, b"" at the end. :class:`BadInput` if the body is not what its coding says, or breaks off."""
        while not self._ended:
            piece = next(self._pieces, b"")
            if piece:
                self._silent = 0
                await asyncio.sleep(0)  # one piece is a millisecond's work; a body may have thousands
                return piece
            data = await self._content.readany()
            self.received += len(data)
            self._silent += len(data)
            if self._silent > SILENT_BYTES_MAX:
                raise BadInput(f"{SILENT_BYTES_MAX} bytes of the compressed body hold nothing")
            if data:
                self._pieces = self._decompressor.decompress(data)
            elif self._content.at_eof():
                self._decompressor.check_complete()
                self._ended = True
        return b""

    def at_eof(self) -> bool:
        """Whether the body has ended and was read completely."""
        return self._ended


# Answers


def choose_coding(request: web.BaseRequest) -> str:
    """The coding in which this client gets an answer, "" for none."""
    accepted = request.headers.get("Accept-Encoding")
    if accepted is None or not (_is_own_page_or_program(request) or is_admitted_origin(request)):
        return ""
    return best_coding(accepted)


def best_coding(accepted: str) -> str:
    """The coding that a header ``Accept-Encoding`` prefers, "" for none."""
    weights = _parse_weights(accepted)
    best, best_weight = "", 0.0
    for coding in _PREFERRED:
        weight = weights.get(coding, weights.get("*", 0.0) if coding == GZIP else 0.0)
        if weight > best_weight:
            best, best_weight = coding, weight
    return best if best_weight >= weights.get("identity", 0.0) else ""


def _is_own_page_or_program(request: web.BaseRequest) -> bool:
    """Whether no page of another site can have sent the request. A browser without ``Sec-Fetch-Site`` does not tell:
    one from before 2023, or one that is asked over HTTP. Every browser calls itself Mozilla, and no page changes that
    without asking first; programs that are no browsers call themselves otherwise."""
    site = request.headers.get("Sec-Fetch-Site")
    if site is None:
        return not request.headers.get("User-Agent", "").startswith("Mozilla/")
    return site.lower() in TRUSTED_FETCH_SITES


def _parse_weights(accepted: str) -> dict[str, float]:
    weights: dict[str, float] = {}
    for item in accepted[:1000].lower().split(","):
        name, _, parameters = item.partition(";")
        found = _WEIGHT.fullmatch(parameters.strip())
        weight = float(found[1]) if found else 0.0 if parameters.strip() else 1.0
        name = name.strip()
        weights[_BY_NAME.get(name, name)] = weight
    return weights


class _Compressor(Protocol):
    def compress(self, data: bytes, /) -> bytes: ...

    def flush(self) -> bytes: ...


def _make_compressor(coding: str) -> _Compressor:
    if coding == ZSTD:
        return zstandard.ZstdCompressor(level=_ZSTD_LEVEL).compressobj()
    window_bits = zlib.MAX_WBITS | 16 if coding == GZIP else zlib.MAX_WBITS
    return zlib.compressobj(_GZIP_LEVEL, zlib.DEFLATED, window_bits)


def compress_whole(body: bytes, coding: str) -> bytes:
    """A body in this coding."""
    compressor = _make_compressor(coding)
    return compressor.compress(body) + compressor.flush()


async def compress_answer(request: web.BaseRequest, answer: web.StreamResponse) -> None:
    """Compresses a complete answer that is not sent yet, unless it is short or the client does not accept that."""
    if not isinstance(answer, web.Response) or answer.prepared or answer.status != 200:
        return
    body = answer.body
    if not isinstance(body, bytes) or len(body) < COMPRESSED_BYTES_MIN:
        return
    answer.headers["Vary"] = VARY
    coding = choose_coding(request)
    if not coding:
        return
    if len(body) < OFF_LOOP_BYTES:
        answer.body = compress_whole(body, coding)
    else:
        answer.body = await asyncio.get_running_loop().run_in_executor(_pool, compress_whole, body, coding)
    answer.headers["Content-Encoding"] = coding


async def compress_unless_short(pieces: AsyncIterator[bytes], coding: str) -> tuple[str, AsyncIterator[bytes]]:
    """The coding and the stream in it. A stream that ends within :data:`COMPRESSED_BYTES_MIN` bytes is unchanged, with
    coding ""."""
    head: list[bytes] = []
    size = 0
    async for piece in pieces:
        head.append(piece)
        size += len(piece)
        if size >= COMPRESSED_BYTES_MIN:
            return coding, _compress_pieces(head, pieces, coding)
    return "", _iterate(head)


async def _iterate(head: Iterable[bytes]) -> AsyncGenerator[bytes, None]:
    for piece in head:
        yield piece


async def _compress_pieces(
    head: Iterable[bytes], rest: AsyncIterator[bytes], coding: str
) -> AsyncGenerator[bytes, None]:
    """A stream that breaks off does so here, too: its end is then missing."""
    loop = asyncio.get_running_loop()
    compressor = _make_compressor(coding)
    for part in (_iterate(head), rest):
        async for piece in part:
            if len(piece) < OFF_LOOP_BYTES:
                data = compressor.compress(piece)
            else:
                data = await loop.run_in_executor(_pool, compressor.compress, piece)
            if data:
                yield data
    yield compressor.flush()
