"""Heads of queries that differ in ordinary IRIs only.

A client asks one query about one subject after another: its heads are equal but for an escaped IRI in the URL. The
first one is recognised as any head. Later ones are found by what they share with it, and only their IRIs are read.
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import unquote_to_bytes

from txlog.sparql.rewrite.query_template import RESERVED_IRIS

_ESCAPED_IRI: Final = re.compile(rb"%3[Cc]((?:https?|urn)(?::|%3[Aa])(?:[A-Za-z0-9._~:/-]|%3[Aa]|%2[Ff]|%23)*)%3[Ee]")
"""An IRI with its brackets, of characters to which no query and no URL gives another meaning."""
_RESERVED: Final = tuple(iri.encode() for iri in RESERVED_IRIS)

HeadKey = tuple[bytes, ...]
"""What heads share: the parts around their ordinary IRIs, which of these are the same IRI, and the headers."""


def split_head(head: bytes) -> tuple[HeadKey, tuple[bytes, ...]]:
    """What other heads may share with this one, and its ordinary IRIs (with their brackets, each once). Only the
    request line is split: what a header says belongs to the key."""
    line, _, headers = head.partition(b"\r\n")
    parts = _ESCAPED_IRI.split(line)
    places: dict[bytes, int] = {}
    for at in range(1, len(parts), 2):
        raw = parts[at]
        iri = b"<%b>" % (unquote_to_bytes(raw) if b"%" in raw else raw)
        if not iri.startswith(_RESERVED):
            parts[at] = b"%d" % places.setdefault(iri, len(places))
    parts.append(headers)
    return tuple(parts), tuple(places)


def has_one_parameter(target: bytes) -> bool:
    """Whether the query is the only parameter of this URL: an IRI of another one belongs to no template."""
    return target.partition(b"?")[2].startswith(b"query=") and b"&" not in target and b";" not in target
