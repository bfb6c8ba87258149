"""Blank nodes on the way out: what a worker or an evaluation here calls by an IRI, clients get as a blank node.

Of SPARQL's CSV this says nothing: there an IRI and a string look alike, so the IRI stays.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Final, NamedTuple

from txlog.server.frontdoor.forms import N_QUADS, N_TRIPLES, RESULTS_JSON
from txlog.server.frontdoor.through import ending
from txlog.sparql.blank import IRI, MARK, blank_lines, blank_terms, label_bytes

_JSON = re.compile(rb'"type"(\s*+:\s*+)"uri"(\s*+,\s*+)"value"(\s*+:\s*+)"' + IRI + rb'"')
_XML = re.compile(rb"<uri>" + IRI + rb"</uri>")


def _json(text: bytes) -> bytes:
    # In a string these quotes have a backslash before them.
    return _JSON.sub(lambda m: b'"type"%s"bnode"%s"value"%s"%s"' % (m[1], m[2], m[3], label_bytes(m[4])), text)


def _xml(text: bytes) -> bytes:
    return _XML.sub(lambda m: b"<bnode>%s</bnode>" % label_bytes(m[1]), text)


class _Form(NamedTuple):
    """``begins``: behind, or else before, the last of these a piece can be cut."""

    change: Callable[[bytes], bytes]
    begins: bytes
    behind: bool


_FORMS: Final = {
    N_QUADS: _Form(blank_lines, b"\n", True),
    N_TRIPLES: _Form(blank_lines, b"\n", True),
    "text/tab-separated-values": _Form(blank_terms, b"\n", True),
    RESULTS_JSON: _Form(_json, b"{", False),
    "application/sparql-results+xml": _Form(_xml, b"<binding", False),
}


def _form_of(media: str) -> _Form | None:
    return _FORMS.get(media.partition(";")[0].strip().lower())


def blank_again(media: str, body: bytes) -> bytes:
    """A whole answer of that media type; as it is when it is of none that can be changed."""
    form = _form_of(media)
    return body if form is None or MARK not in body else form.change(body)


def blank_stream(media: str, pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The same of an answer piece by piece. At most one line, or one result, is held back."""
    form = _form_of(media)
    return pieces if form is None else _changed(form, pieces)


async def _changed(form: _Form, pieces: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
    held: list[bytes] = []
    async with ending(pieces):
        async for piece in pieces:
            at = piece.rfind(form.begins)
            if at < 0:
                held.append(piece)
                continue
            at += len(form.begins) if form.behind else 0
            whole = b"".join((*held, piece[:at]))
            held = [piece[at:]]
            if whole:
                yield form.change(whole) if MARK in whole else whole
    rest = b"".join(held)
    if rest:
        yield form.change(rest) if MARK in rest else rest
