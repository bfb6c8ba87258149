"""Language tags that no text of RDF can hold, such as ``en_us``, which RDF4J takes in its binary format, in JSON and in
XML. A store gets the bytes of such a tag in hexadecimal, as a private tag that every store accepts
(``x-txlog-656e5f75-73``). Formats that can hold the tag give it back to clients. In the others, and to ``LANG``, it is
the private tag."""

from __future__ import annotations

import re
from typing import Final

import pyoxigraph as ox

ENCODED_PREFIX: Final = "x-txlog-"
ENCODED_PREFIX_BYTES: Final = ENCODED_PREFIX.encode()
TAG_CHARS_MAX: Final = 64
"""A longer tag that is none of BCP 47 is refused."""
_SUBTAG_CHARS: Final = 8
_ENCODED_TAG: Final = rb"x-txlog((?:-[0-9a-f]{1,8})+)"
_IN_JSON: Final = re.compile(rb'("xml:lang"\s*+:\s*+")' + _ENCODED_TAG + rb'"')
_IN_XML: Final = re.compile(rb'( xml:lang=")' + _ENCODED_TAG + rb'"')


def tagged_literal(text: str, tag: str) -> ox.Literal:
    """A literal with this tag, as stores hold it. ValueError for an empty tag, a long one, and one with a direction."""
    try:
        return ox.Literal(text, language=tag)
    except ValueError:
        if not tag or len(tag) > TAG_CHARS_MAX or "--" in tag:
            raise
    digits = tag.encode().hex()
    subtags = [digits[at : at + _SUBTAG_CHARS] for at in range(0, len(digits), _SUBTAG_CHARS)]
    return ox.Literal(text, language=ENCODED_PREFIX + "-".join(subtags))


def written_tag(tag: str) -> str:
    """The tag as its client wrote it, of the tag that a store holds."""
    if not tag.startswith(ENCODED_PREFIX):
        return tag
    try:
        return bytes.fromhex(tag.removeprefix(ENCODED_PREFIX).replace("-", "")).decode()
    except ValueError:
        return tag


def _restore(found: re.Match[bytes]) -> bytes:
    tag = written_tag("x-txlog" + found[2].decode())
    escaped = tag.replace("&", "&amp;").replace("<", "&lt;") if found.re is _IN_XML else tag.replace("\\", "\\\\")
    return found[0] if '"' in tag or not tag.isprintable() else found[1] + escaped.encode() + b'"'


def restore_tags_in_json(text: bytes) -> bytes:
    """SPARQL results in JSON with the tags that clients wrote."""
    return _IN_JSON.sub(_restore, text) if ENCODED_PREFIX_BYTES in text else text


def restore_tags_in_xml(text: bytes) -> bytes:
    """SPARQL results in XML with the tags that clients wrote."""
    return _IN_XML.sub(_restore, text) if ENCODED_PREFIX_BYTES in text else text
