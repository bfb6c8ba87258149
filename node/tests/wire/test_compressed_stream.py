"""Streams that clients compress: every way they are cut, broken, or made to grow."""

from __future__ import annotations

import bz2
import gzip
import random
import zlib
from collections.abc import Callable, Iterator

import pytest
import zstandard

from txlog.model.errors import BadInput
from txlog.wire import compressed_stream
from txlog.wire.compressed_stream import (
    BZIP2,
    DEFLATE,
    GZIP,
    INPUT_BYTES,
    PIECE_BYTES,
    ZSTD,
    ZSTD_INPUT_BYTES,
    Decompressor,
    sniff_compression,
)

TEXT = b"".join(b"<urn:s%d> <urn:p> %d .\n" % (n, n * n) for n in range(2000))


def raw_deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(data) + packer.flush()


PACKERS: dict[str, Callable[[bytes], bytes]] = {
    GZIP: gzip.compress,
    DEFLATE: zlib.compress,
    ZSTD: zstandard.ZstdCompressor().compress,
    BZIP2: bz2.compress,
}
MANY = [name for name in PACKERS if name != DEFLATE]


def unpack(name: str, packed: bytes, size: int = 1 << 30) -> bytes:
    decompressor = Decompressor(name)
    found = [piece for at in range(0, len(packed), size) for piece in decompressor.decompress(packed[at : at + size])]
    decompressor.check_complete()
    return b"".join(found)


@pytest.mark.parametrize("name", PACKERS)
@pytest.mark.parametrize("size", [1, 7, 511, 513, 1 << 30])
def test_a_stream_is_read_however_it_is_cut(name: str, size: int) -> None:
    assert unpack(name, PACKERS[name](TEXT), size) == TEXT
    assert unpack(name, PACKERS[name](b""), size) == b""


def test_deflate_without_its_head_is_read() -> None:
    for size in (1, 2, 100):
        assert unpack(DEFLATE, raw_deflate(TEXT), size) == TEXT


@pytest.mark.parametrize("name", MANY)
def test_a_stream_of_several_members_is_read(name: str) -> None:
    packed = b"".join(PACKERS[name](TEXT[at : at + 999]) for at in range(0, len(TEXT), 999))
    assert unpack(name, packed) == unpack(name, packed, 5) == TEXT


@pytest.mark.parametrize("name", PACKERS)
def test_one_that_breaks_off_is_refused(name: str) -> None:
    packed = PACKERS[name](TEXT)
    for end in (3, len(packed) // 2, len(packed) - 1):
        with pytest.raises(BadInput, match=f"is not {name}"):
            unpack(name, packed[:end])


@pytest.mark.parametrize("name", PACKERS)
def test_other_bytes_are_refused(name: str) -> None:
    chance = random.Random(1)
    for wrong in (b"<urn:a> <urn:b> <urn:c> .", PACKERS[name](TEXT) + b"more", bytes(40)):
        with pytest.raises(BadInput, match=f"is not {name}"):
            unpack(name, wrong)
    for _ in range(200):
        packed = bytearray(PACKERS[name](TEXT))
        packed[chance.randrange(len(packed))] ^= 1 << chance.randrange(8)
        try:
            unpack(name, bytes(packed), chance.choice((1 << 30, 100)))
        except BadInput:
            continue


@pytest.mark.parametrize("name", PACKERS)
def test_a_bomb_is_one_piece_at_a_time(name: str) -> None:
    packed = PACKERS[name](bytes(100 << 20))
    assert len(packed) < 1 << 20
    largest = PIECE_BYTES if name != ZSTD else ZSTD_INPUT_BYTES // 4 * (128 << 10)
    pieces = Decompressor(name).decompress(packed)
    for _ in range(5):
        assert len(next(pieces)) <= largest


@pytest.mark.parametrize("name", MANY)
def test_members_without_content_are_bounded(name: str) -> None:
    with pytest.raises(BadInput, match="too many small streams"):
        unpack(name, PACKERS[name](b"") * 2000)
    assert unpack(name, PACKERS[name](b"") * 900) == b""
    unpack(name, PACKERS[name](TEXT[:2000]) * 2000)


def test_a_window_that_takes_much_memory_is_refused() -> None:
    parameters = zstandard.ZstdCompressionParameters(window_log=27, compression_level=3)
    packer = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    packed = packer.compress(TEXT * 10) + packer.flush()
    with pytest.raises(BadInput, match="is not zstd"):
        unpack(ZSTD, packed)


def test_padding_after_a_member_is_no_member() -> None:
    for size in (1, 100, 1 << 30):
        assert unpack(GZIP, gzip.compress(TEXT) + bytes(512), size) == TEXT
        with pytest.raises(BadInput, match="goes on after its end"):
            unpack(GZIP, gzip.compress(TEXT) + bytes(2) + gzip.compress(TEXT), size)


def test_first_bytes_show_what_a_body_is() -> None:
    assert sniff_compression(gzip.compress(b"")) == GZIP
    assert sniff_compression(bz2.compress(b"")) == sniff_compression(bz2.compress(TEXT)) == BZIP2
    for text in (b"", b"B", b"BZh", b"BZh9", b"BZh9 is a name", b"\x1f\x8b", TEXT, b"BRDF\0\0\0\1"):
        assert sniff_compression(text) == ""


@pytest.mark.parametrize("name", PACKERS)
def test_no_decoder_gets_a_whole_body_which_it_would_copy_after_each_piece(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = compressed_stream._MEMBERS[name]
    sizes: list[int] = []

    class Recorder:
        def __init__(self) -> None:
            self._member = made()
            self.is_complete, self.rest = False, b""

        def decompress(self, data: bytes) -> Iterator[bytes]:
            sizes.append(len(data))
            yield from self._member.decompress(data)
            self.is_complete, self.rest = self._member.is_complete, self._member.rest

    monkeypatch.setitem(compressed_stream._MEMBERS, name, Recorder)
    text = random.Random(7).randbytes(1 << 20)
    packed = PACKERS[name](text) * (3 if name in MANY else 1)
    assert unpack(name, packed) == text * (3 if name in MANY else 1)
    assert max(sizes) <= INPUT_BYTES < len(packed) // 8
