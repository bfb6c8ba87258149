"""Decompresses what clients send, piece by piece, so that a few bytes never become more memory than the caller allows.

A stream is one or more members (gzip, bzip2, Zstandard) or exactly one (deflate). Sources: RFC 1950 to 1952, RFC 8878,
RFC 9110 section 8.4.1.
"""

from __future__ import annotations

import bz2
import zlib
from collections.abc import Callable, Iterator
from typing import Final, Protocol

import zstandard

from txlog.model.errors import BadInput

PIECE_BYTES: Final = 256 << 10
"""Bytes that are decompressed at once, about a millisecond's work."""
INPUT_BYTES: Final = 32 << 10
"""Input given to a member at once. Its decoder copies what it leaves, after each piece and each member: with a whole
body at once, the time would grow with the square of its length."""
ZSTD_INPUT_BYTES: Final = 512
"""Input given to Zstandard at once. Four bytes may become a block of 128 KiB, so this may become 16 MiB."""
ZSTD_WINDOW_BYTES_MAX: Final = 8 << 20
"""A decoder must have this window (RFC 8878, section 3.1.1.1.2). A larger one is refused, because it is memory."""
SMALL_MEMBERS_MAX: Final = 1000
MEMBER_BYTES_MIN: Final = 1024
"""A stream may have :data:`SMALL_MEMBERS_MAX` members, and one more for each :data:`MEMBER_BYTES_MIN` bytes."""

GZIP: Final = "gzip"
DEFLATE: Final = "deflate"
ZSTD: Final = "zstd"
BZIP2: Final = "bzip2"


class _Member(Protocol):
    """``is_complete``: the member has ended. ``rest``: the input after its end."""

    is_complete: bool
    rest: bytes

    def decompress(self, data: bytes) -> Iterator[bytes]: ...


class _ZlibMember:
    def __init__(self, window_bits: int) -> None:
        self._decoder = zlib.decompressobj(window_bits)
        self.is_complete, self.rest = False, b""

    def decompress(self, data: bytes) -> Iterator[bytes]:
        decoder = self._decoder
        piece = b""
        while (data or len(piece) == PIECE_BYTES) and not decoder.eof:
            piece = decoder.decompress(data, PIECE_BYTES)
            data = decoder.unconsumed_tail
            if piece:
                yield piece
        self.is_complete, self.rest = decoder.eof, decoder.unused_data


class _DeflateMember:
    """``deflate`` is the zlib format; some clients send it without its two bytes of head, and browsers take both."""

    def __init__(self) -> None:
        self._head = b""
        self._member: _ZlibMember | None = None
        self.is_complete, self.rest = False, b""

    def decompress(self, data: bytes) -> Iterator[bytes]:
        if self._member is None:
            data = self._head + data
            if len(data) < 2:
                self._head = data
                return
            has_head = data[0] & 0x0F == zlib.DEFLATED and int.from_bytes(data[:2], "big") % 31 == 0
            self._member = _ZlibMember(zlib.MAX_WBITS if has_head else -zlib.MAX_WBITS)
        yield from self._member.decompress(data)
        self.is_complete, self.rest = self._member.is_complete, self._member.rest


class _Bzip2Member:
    def __init__(self) -> None:
        self._decoder = bz2.BZ2Decompressor()
        self.is_complete, self.rest = False, b""

    def decompress(self, data: bytes) -> Iterator[bytes]:
        decoder = self._decoder
        while not decoder.eof:
            piece = decoder.decompress(data, PIECE_BYTES)
            data = b""
            if piece:
                yield piece
            elif decoder.needs_input:
                break
        self.is_complete, self.rest = decoder.eof, decoder.unused_data


class _ZstdMember:
    def __init__(self) -> None:
        self._decoder = zstandard.ZstdDecompressor(max_window_size=ZSTD_WINDOW_BYTES_MAX).decompressobj()
        self.is_complete, self.rest = False, b""

    def decompress(self, data: bytes) -> Iterator[bytes]:
        for at in range(0, len(data), ZSTD_INPUT_BYTES):
            part = data[at : at + ZSTD_INPUT_BYTES]
            piece = self._decoder.decompress(part)
            if self._decoder.eof:
                self.is_complete = True
                self.rest = self._decoder.unused_data + data[at + len(part) :]
            if piece:
                yield piece
            if self.is_complete:
                return


_MEMBERS: Final[dict[str, Callable[[], _Member]]] = {
    GZIP: lambda: _ZlibMember(zlib.MAX_WBITS | 16),
    DEFLATE: _DeflateMember,
    ZSTD: _ZstdMember,
    BZIP2: _Bzip2Member,
}
_ERRORS: Final = (zlib.error, zstandard.ZstdError, OSError, EOFError, ValueError)


class Decompressor:
    """Decompresses one stream. ``name``: one of the names of this module."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._member: _Member | None = None
        self._members = 0
        self._is_padded = False
        self._size = 0

    def decompress(self, data: bytes) -> Iterator[bytes]:
        """The next pieces, each of limited size; consume them all. :class:`BadInput` for what is no such stream."""
        for at in range(0, len(data), INPUT_BYTES):
            yield from self._decompress_part(data[at : at + INPUT_BYTES])

    def _decompress_part(self, data: bytes) -> Iterator[bytes]:
        while data:
            if self._member is None:
                self._begin_member(data)
            if self._member is None:
                return
            try:
                for piece in self._member.decompress(data):
                    self._size += len(piece)
                    yield piece
            except _ERRORS as error:
                raise BadInput(f"the body is not {self._name}: {error}") from None
            if not self._member.is_complete:
                return
            data, self._member = self._member.rest, None

    def _begin_member(self, data: bytes) -> None:
        if self._members and data[:1] == b"\0":
            self._is_padded = True  # as some writers of archives leave it
            data = data.lstrip(b"\0")
            if not data:
                return
        if self._is_padded or (self._members and self._name == DEFLATE):
            raise BadInput(f"the body is not {self._name}: it goes on after its end")
        self._members += 1
        if self._members > SMALL_MEMBERS_MAX + self._size // MEMBER_BYTES_MIN:
            raise BadInput(f"the body is not {self._name}: it consists of too many small streams")
        self._member = _MEMBERS[self._name]()

    def check_complete(self) -> None:
        """:class:`BadInput` if the stream has not ended with its input."""
        if self._member is not None:
            raise BadInput(f"the body is not {self._name}: it breaks off")


def sniff_compression(data: bytes) -> str:
    """Which of gzip and bzip2 the first bytes show, "" for neither."""
    if data.startswith(b"\x1f\x8b\x08"):
        return GZIP
    if data.startswith(b"BZh") and data[3:4] in b"123456789" and data[4:10] in _BZIP2_BLOCKS:
        return BZIP2
    return ""


_BZIP2_BLOCKS: Final = (b"1AY&SY", b"\x17rE8P\x90")
"""What a first block begins with: of data, and of nothing."""
