"""Queries that differ in ordinary IRIs only share one rewritten text.

A client asks the same query about one subject after another. Rewriting a query reads each of its tokens; what it does
depends on no ordinary IRI. So the query is rewritten once with placeholders, and later ones put their IRIs there.

Not ordinary: relative IRIs, and those to which a rewriting or an engine gives a meaning of its own
(:data:`RESERVED_IRIS`). They stay in the template. A query with comments, backslashes, prefixes or a base of its own
has no template: an IRI may be more than a name there.
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import quote_plus

_IRI: Final = re.compile(r'(<(?:https?|urn):[^<>"{}|^`\\\x00-\x20]*>)')
RESERVED_IRIS: Final = (
    "<http://www.w3.org/",
    "<http://www.openrdf.org/",
    "<http://rdf4j.org/",
    "<http://jena.",
    "<http://www.ontotext.com/",
    "<urn:txlog",
    "<urn:rdf4j",
    "<urn:x-",
    "<urn:uuid",
)
"""How an IRI begins that may have a meaning of its own."""
_DECLARES: Final = re.compile(r"[#\\]|\b(?:prefix|base)\b", re.IGNORECASE)
_PLACEHOLDER: Final = "urn:placeholder-5f0c1b9e2a7d4e63:"
_FILLED: Final = re.compile(rb"<" + _PLACEHOLDER.encode() + rb"([0-9]+)>")
_FILLED_IN_FORM: Final = re.compile(rb"%3C" + quote_plus(_PLACEHOLDER).encode() + rb"([0-9]+)%3E")
IRIS_MAX: Final = 16
"""A query with more ordinary IRIs has no template: few others are like it."""


def split_template(text: str) -> tuple[str, tuple[str, ...]]:
    """The query with placeholders, and the IRIs (with their brackets) that belong there. Without a template: the query
    itself, and none."""
    parts = _IRI.split(text)
    if len(parts) == 1 or _PLACEHOLDER in text:
        return text, ()
    places: dict[str, int] = {}
    for at in range(1, len(parts), 2):
        iri = parts[at]
        if not iri.startswith(RESERVED_IRIS):
            parts[at] = f"<{_PLACEHOLDER}{places.setdefault(iri, len(places))}>"
    if not places or len(places) > IRIS_MAX or any(_DECLARES.search(part) for part in parts[::2]):
        return text, ()
    return "".join(parts), tuple(places)


class FilledText:
    """A text that was made of a template, as it goes to a worker. ``text``: with the placeholders. ``is_form``: it is
    encoded as a form."""

    def __init__(self, text: bytes, *, is_form: bool = False) -> None:
        pieces = (_FILLED_IN_FORM if is_form else _FILLED).split(text)
        self._pieces = pieces
        self._is_form = is_form
        self._places = [int(number) for number in pieces[1::2]]

    def fill(self, iris: tuple[bytes, ...]) -> bytes:
        """The text with these IRIs (with their brackets) in place of the placeholders."""
        pieces = list(self._pieces)
        for at, place in enumerate(self._places):
            pieces[2 * at + 1] = quote_plus(iris[place]).encode() if self._is_form else iris[place]
        return b"".join(pieces)
