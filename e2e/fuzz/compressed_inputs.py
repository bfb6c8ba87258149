"""Compressed streams and archives, whole ones and ones that are wrong in one place."""

from __future__ import annotations

import bz2
import gzip
import io
import random
import zipfile
import zlib
from typing import Final

import zstandard

from txlog.model.errors import BadInput
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


def compressed_stream(chance: random.Random) -> bytes:
    """One or more members of one format, maybe cut, or followed by something."""
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
