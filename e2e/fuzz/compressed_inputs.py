"""Compressed streams, archives and bodies: whole ones, ones that are wrong in one place, and ones that expand to
much."""

from __future__ import annotations

import asyncio
import bz2
import gzip
import io
import random
import zipfile
import zlib
from collections.abc import Callable
from functools import cache
from typing import Final, cast

import zstandard
from aiohttp import web
from multidict import CIMultiDict

from txlog.http.body_compression import DecodedBody, request_coding
from txlog.model.errors import BadInput, TooLarge
from txlog.sparql.packed_upload import is_packed, prepare_packed_removal, prepare_upload
from txlog.wire.compressed_stream import BZIP2, DEFLATE, GZIP, ZSTD, Decompressor

TEXTS: Final = (b"", b"<urn:a> <urn:p> <urn:o> .\n", b"<urn:a> <urn:p> <urn:o> .\n" * 300, bytes(1 << 16))
NAMES: Final = ("a.nt", "b.ttl", "c/d.TRIG", "e.nt.gz", "f", "g.rdf", "h.jsonld", "i/")
STREAM_BYTES_MAX: Final = 1 << 20
_LINE: Final = TEXTS[1]


def _archive(method: int) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        for name, text in (("a.nt", TEXTS[2]), ("b.ttl.gz", gzip.compress(_LINE, mtime=0)), ("c/", b""), ("d", _LINE)):
            archive.writestr(zipfile.ZipInfo(name), text, method)
    return out.getvalue()


STREAM_SEEDS: Final = (
    *(gzip.compress(text, mtime=0) for text in TEXTS),
    *(zlib.compress(text) for text in TEXTS),
    *(bz2.compress(text) for text in TEXTS),
    *(zstandard.ZstdCompressor().compress(text) for text in TEXTS),
    gzip.compress(_LINE, mtime=0) * 3,
)
"""Whole streams."""
UPLOAD_SEEDS: Final = (
    _archive(zipfile.ZIP_DEFLATED),
    _archive(zipfile.ZIP_STORED),
    gzip.compress(_archive(zipfile.ZIP_DEFLATED), mtime=0),
    gzip.compress(_LINE, mtime=0),
    bz2.compress(_LINE),
)
"""Whole uploads."""


BOMB_BYTES: Final = 32 << 20
_PACKERS: Final[dict[str, Callable[[bytes], bytes]]] = {
    "gzip": lambda data: gzip.compress(data, mtime=0),
    "deflate": zlib.compress,
    "zstd": lambda data: zstandard.ZstdCompressor().compress(data),
}


@cache
def _bombs() -> tuple[bytes, ...]:
    """Small inputs that expand to much: in one stream, in each file of an archive, in a stream of streams, and in very
    many members."""
    zeros, line = bytes(BOMB_BYTES), gzip.compress(_LINE, mtime=0)
    streams = [gzip.compress(zeros, mtime=0), zlib.compress(zeros), bz2.compress(zeros)]
    streams.append(zstandard.ZstdCompressor().compress(zeros))
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for at in range(3):
            archive.writestr(zipfile.ZipInfo(f"{at}.nt"), zeros[: BOMB_BYTES // 4], zipfile.ZIP_DEFLATED)
        archive.writestr(zipfile.ZipInfo("a.nt.bz2"), streams[2], zipfile.ZIP_STORED)
    packed = [out.getvalue(), gzip.compress(streams[0], mtime=0), zstandard.ZstdCompressor().compress(streams[2])]
    return (*streams, *packed, line * 1500, gzip.compress(b"", mtime=0) * 3000, bz2.compress(b"") * 3000)


CODINGS: Final = (
    *("gzip", "deflate", "zstd", "x-gzip", "GZIP", "br", "bzip2", "identity", ""),
    *("gzip, gzip", "gzip, zstd", "*", "gzip;q=1"),
)
"""Values of ``Content-Encoding``: those that there are, and those that are refused."""


def coded_body(chance: random.Random) -> bytes:
    """A coding, a line feed, and a body in that coding, in another one, in two, or in none."""
    body = chance.choice((compressed_stream, packed_upload, lambda _: chance.choice(TEXTS)))(chance)
    coding, pack = chance.choice([*_PACKERS.items()])
    if chance.random() < 0.7:
        body = pack(body)
    if chance.random() < 0.2:
        coding = chance.choice(CODINGS)
    return coding.encode() + b"\n" + body


def _bomb(chance: random.Random) -> bytes:
    return chance.choice(_bombs())


def compressed_stream(chance: random.Random) -> bytes:
    """One or more members of one format, maybe cut, or followed by something; now and then one that expands to much."""
    if chance.random() < 0.02:
        return _bomb(chance)
    packed = b"".join(_packed(chance, chance.choice(TEXTS)) for _ in range(chance.choice((1, 1, 1, 2, 5))))
    match chance.randrange(4):
        case 0:
            return packed[: chance.randrange(len(packed) + 1)]
        case 1:
            return packed + chance.choice((b"\0\0", b"x", packed))
        case _:
            return packed


def _packed(chance: random.Random, text: bytes) -> bytes:
    raw = zlib.compressobj(wbits=-15)
    return chance.choice(
        (
            lambda: gzip.compress(text, mtime=0),
            lambda: bz2.compress(text),
            lambda: zlib.compress(text),
            lambda: raw.compress(text) + raw.flush(),
            lambda: zstandard.ZstdCompressor().compress(text),
        )
    )()


def packed_upload(chance: random.Random) -> bytes:
    """An archive with a byte or two changed outside its files, or a stream of it."""
    out = io.BytesIO()
    method = chance.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2))
    with zipfile.ZipFile(out, "w", method) as archive:
        for at in range(chance.randrange(4)):
            text = chance.choice(TEXTS)
            name = f"{at}{chance.choice(NAMES)}"
            archive.writestr(
                zipfile.ZipInfo(name), gzip.compress(text, mtime=0) if name.endswith("gz") else text, method
            )
    packed = bytearray(out.getvalue())
    for _ in range(chance.choice((0, 1, 2))):
        at = packed.find(chance.choice((b"PK\x01\x02", b"PK\x03\x04", b"PK\x05\x06"))) + chance.randrange(4, 46)
        if at < len(packed):
            packed[at] = chance.choice((0, 1, 0x7F, 0xFF))
    return gzip.compress(packed, mtime=0) if chance.random() < 0.2 else bytes(packed)


def read_stream(data: bytes) -> None:
    """However a stream is cut, what is read of it is the same; all readers of it must refuse it to refuse it."""
    refused: list[BadInput] = []
    names = (GZIP, DEFLATE, ZSTD, BZIP2)
    for name in names:
        found = [_read(name, data, size, refused) for size in (1 << 30, 61)]
        is_long = any(text is not None and len(text) > STREAM_BYTES_MAX for text in found)
        if found[0] != found[1] and not is_long:
            raise AssertionError(f"{name}: what is read depends on how it is cut")
    if len(refused) == 2 * len(names):
        raise refused[0]


def _read(name: str, data: bytes, size: int, refused: list[BadInput]) -> bytes | None:
    """None when it is refused. Of a longer one than :data:`STREAM_BYTES_MAX` only the beginning: what comes later may
    still be wrong."""
    decompressor = Decompressor(name)
    found = b""
    try:
        for at in range(0, len(data), size):
            for piece in decompressor.decompress(data[at : at + size]):
                found += piece
                if len(found) > STREAM_BYTES_MAX:
                    return found
        decompressor.check_complete()
    except BadInput as error:
        refused.append(error)
        return None
    return found


def read_packed(data: bytes) -> None:
    """As the front door reads an upload, in a format that its archive's names may change."""
    if not is_packed(data):
        raise BadInput("not packed")
    prepare_upload(data, "text/turtle", STREAM_BYTES_MAX, base=None, contexts=[], draw=lambda: 7)
    prepare_packed_removal(data, "text/turtle", STREAM_BYTES_MAX, base=None, graphs=None)


class _Request:
    """What :class:`DecodedBody` and :func:`request_coding` ask of a request. The body comes in two parts."""

    def __init__(self, coding: str, body: bytes) -> None:
        self.headers = CIMultiDict({"Content-Encoding": coding})
        self.content = self
        self._parts = [part for part in (body[: len(body) // 3], body[len(body) // 3 :]) if part]

    async def readany(self) -> bytes:
        return self._parts.pop(0) if self._parts else b""

    def at_eof(self) -> bool:
        return not self._parts


def read_coded(data: bytes) -> None:
    """As the front door reads the body of a request, and then its upload."""
    coding, _, body = data.partition(b"\n")
    decoded = asyncio.run(_decode(coding.decode("utf-8", "replace"), body))
    prepare_upload(decoded, "text/turtle", STREAM_BYTES_MAX, base=None, contexts=[], draw=lambda: 7)


async def _decode(coding: str, body: bytes) -> bytes:
    request = cast(web.BaseRequest, _Request(coding, body))
    known = request_coding(request)
    if not known:
        return body
    decoded = DecodedBody(request, known)
    found = b""
    while piece := await decoded.readany():
        found += piece
        if len(found) > STREAM_BYTES_MAX:
            raise TooLarge("the body is too long")
    if not decoded.at_eof():
        raise AssertionError(f"{known}: a body ended before its end")
    return found
