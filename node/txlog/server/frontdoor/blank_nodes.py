"""Restores blank nodes in answers: a worker or an evaluation names them by IRIs, and clients get blank nodes.

SPARQL's CSV has no types of terms. A whole field that is such a name is a blank node, also where it was a string.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Final, NamedTuple

from txlog.server.frontdoor.result_formats import N_QUADS, N_TRIPLES, RESULTS_JSON
from txlog.server.frontdoor.stream_converter import closing_stream
from txlog.sparql.language_tags import ENCODED_PREFIX_BYTES, restore_tags_in_json, restore_tags_in_xml
from txlog.sparql.skolem_iris import (
    SKOLEM_IRI_PATTERN,
    SKOLEM_PREFIX_BYTES,
    name_to_label_bytes,
    unskolemise_lines,
    unskolemise_terms,
)

_JSON = re.compile(rb'"type"(\s*+:\s*+)"uri"(\s*+,\s*+)"value"(\s*+:\s*+)"' + SKOLEM_IRI_PATTERN + rb'"')
_XML = re.compile(rb"<uri>" + SKOLEM_IRI_PATTERN + rb"</uri>")
_CSV: Final = "text/csv"
_CSV_FIELD = re.compile(rb'"[^"]*+(?:"|\Z)|(?<![^,\r\n])' + SKOLEM_IRI_PATTERN + rb"(?=[,\r\n]|\Z)")


def _restore_in_json(text: bytes) -> bytes:
    return _restore_nodes_in_json(restore_tags_in_json(text))


def _restore_nodes_in_json(text: bytes) -> bytes:
    # Inside a string these quotes are escaped with a backslash.
    return _JSON.sub(lambda m: b'"type"%s"bnode"%s"value"%s"%s"' % (m[1], m[2], m[3], name_to_label_bytes(m[4])), text)


def _restore_in_xml(text: bytes) -> bytes:
    text = restore_tags_in_xml(text)
    return _XML.sub(lambda m: b"<bnode>%s</bnode>" % name_to_label_bytes(m[1]), text)


def _restore_in_csv(text: bytes) -> bytes:
    """``text`` begins outside of quotes."""
    return _CSV_FIELD.sub(lambda m: m[0] if m[1] is None else b"_:" + name_to_label_bytes(m[1]), text)


class _BlankNodeFormat(NamedTuple):
    """``boundary``: an answer can be split after the last of these, or before it."""

    restore: Callable[[bytes], bytes]
    boundary: bytes
    cut_after_boundary: bool


_FORMATS: Final = {
    N_QUADS: _BlankNodeFormat(unskolemise_lines, b"\n", True),
    N_TRIPLES: _BlankNodeFormat(unskolemise_lines, b"\n", True),
    "text/tab-separated-values": _BlankNodeFormat(unskolemise_terms, b"\n", True),
    _CSV: _BlankNodeFormat(_restore_in_csv, b"\n", True),
    RESULTS_JSON: _BlankNodeFormat(_restore_in_json, b"{", False),
    "application/sparql-results+xml": _BlankNodeFormat(_restore_in_xml, b"<binding", False),
}


_TO_CONVERT: Final = {RESULTS_JSON: _BlankNodeFormat(_restore_nodes_in_json, b"{", False)}
"""For an answer that this master converts: a parser refuses the tags that ``language_tags.py`` restores."""


def _format_for(media: str, final: bool) -> _BlankNodeFormat | None:
    name = media.partition(";")[0].strip().lower()
    return (None if final else _TO_CONVERT.get(name)) or _FORMATS.get(name)


def restore_blank_nodes(media: str, body: bytes, *, final: bool = True) -> bytes:
    """Restores a whole answer of that media type. An answer of an unsupported type is unchanged. ``final``: no
    conversion follows."""
    if not may_change(body):
        return body
    form = _format_for(media, final)
    return body if form is None else form.restore(body)


def may_change(text: bytes) -> bool:
    """Whether anything of this answer, or of this piece of one, may have to be restored."""
    return SKOLEM_PREFIX_BYTES in text or ENCODED_PREFIX_BYTES in text


def restore_blank_nodes_in_stream(
    media: str, pieces: AsyncIterator[bytes], *, final: bool = True
) -> AsyncIterator[bytes]:
    """Restores an answer in pieces. It delays at most one line, or one result. ``final``: no conversion follows."""
    form = _format_for(media, final)
    if form is None:
        return pieces
    return _restore_pieces(form, pieces) if form.restore is not _restore_in_csv else _restore_csv_pieces(form, pieces)


async def _restore_csv_pieces(form: _BlankNodeFormat, pieces: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
    """A quoted field may hold line ends, so a piece that begins after one may begin inside quotes."""
    quoted = False
    cut = _cut_pieces(form, pieces)
    async with closing_stream(cut):
        async for piece in cut:
            outside = piece.find(b'"') + 1 if quoted else 0
            if quoted and not outside:
                yield piece
                continue
            quoted = bool(piece.count(b'"', outside) % 2)
            yield piece[:outside] + form.restore(piece[outside:]) if may_change(piece) else piece


async def _restore_pieces(form: _BlankNodeFormat, pieces: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
    cut = _cut_pieces(form, pieces)
    async with closing_stream(cut):
        async for piece in cut:
            yield form.restore(piece) if may_change(piece) else piece


async def _cut_pieces(form: _BlankNodeFormat, pieces: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
    """The same in pieces that end at a boundary."""
    held: list[bytes] = []
    async with closing_stream(pieces):
        async for piece in pieces:
            at = piece.rfind(form.boundary)
            if at < 0:
                held.append(piece)
                continue
            at += len(form.boundary) if form.cut_after_boundary else 0
            whole = b"".join((*held, piece[:at]))
            held = [piece[at:]]
            if whole:
                yield whole
    rest = b"".join(held)
    if rest:
        yield rest
