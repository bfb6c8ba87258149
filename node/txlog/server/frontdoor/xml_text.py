"""Keeps carriage returns in XML results: a raw one in a text is read as a line feed by every XML parser.

Some engines write it raw. Between the elements a carriage return is only formatting, so it stays. Source: XML 1.0,
section 2.11.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, AsyncIterator
from typing import IO, Final

from txlog.server.frontdoor.stream_converter import closing_stream

_MEDIA_TYPES: Final = ("application/sparql-results+xml", "application/xml", "text/xml")
_LITERAL: Final = b"<literal"
_TAG_OR_RETURN: Final = re.compile(rb"<[^>]*>|\r")
_REFERENCE: Final = b"&#13;"


def _is_xml(media: str) -> bool:
    return media.partition(";")[0].strip().lower() in _MEDIA_TYPES


def keep_carriage_returns(media: str, body: bytes) -> bytes:
    """A whole result of that media type; only XML changes."""
    return _Rewriter().rewrite(body) if b"\r" in body and _is_xml(media) else body


def keep_carriage_returns_in_stream(media: str, pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """A result in pieces; at most one tag is delayed."""
    return _rewrite_pieces(pieces) if _is_xml(media) else pieces


async def _rewrite_pieces(pieces: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
    rewriter = _Rewriter()
    begun = b""
    async with closing_stream(pieces):
        async for piece in pieces:
            whole = begun + piece
            at = whole.rfind(b"<")
            begun = whole[at:] if at >= 0 and b">" not in whole[at:] else b""
            whole = whole[: len(whole) - len(begun)]
            if whole:
                yield rewriter.rewrite(whole)
    if begun:
        yield begun


class _Rewriter:
    """Called with text that ends outside a tag. Remembers whether it ended inside a literal."""

    def __init__(self) -> None:
        self._in_literal = False

    def rewrite(self, text: bytes) -> bytes:
        if b"\r" in text:
            return _TAG_OR_RETURN.sub(self._replace, text)
        at = text.rfind(b"<")
        if at >= 0:
            self._in_literal = text.startswith(_LITERAL, at)
        return text

    def _replace(self, found: re.Match[bytes]) -> bytes:
        mark = found[0]
        if mark == b"\r":
            return _REFERENCE if self._in_literal else mark
        self._in_literal = mark.startswith(_LITERAL)
        return mark


class CarriageReturnSink:
    """A file for a writer that writes carriage returns of texts raw, and has no others."""

    def __init__(self, out: IO[bytes]) -> None:
        self._out = out

    def write(self, data: bytes) -> int:
        """Writes all the bytes."""
        self._out.write(data.replace(b"\r", _REFERENCE))
        return len(data)

    def flush(self) -> None:
        """Flushes the file behind it."""
        self._out.flush()
