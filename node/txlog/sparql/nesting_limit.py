"""Bounds how deep a document nests, before a parser sees it.

The parsers of JSON-LD and of triple terms are recursive: a few kilobytes of brackets overflow the stack and end the
process. Those of JSON-LD and RDF/XML also take time with the square of the depth. Turtle, TriG and N3 keep their
brackets on a heap, in linear time, so they need no bound. The scans here are linear, whatever the document holds.
"""

from __future__ import annotations

import re
from typing import Final

from txlog.model.errors import BadInput
from txlog.sparql.tokens import TOKEN, malformed_query

JSON_DEPTH_MAX: Final = 64
"""Objects and arrays inside one another. Above 3,000, the parser of JSON-LD ends the process."""
XML_DEPTH_MAX: Final = 128
"""Elements inside one another: in RDF/XML every second one is a property."""
TRIPLE_TERM_DEPTH_MAX: Final = 16
"""Triple terms inside one another. The stores' parsers and this process' are recursive."""

_JSON: Final = re.compile(rb'"(?:[^"\\]++|\\.|)*+"?|[\[{]|[\]}]', re.DOTALL)
XML_MARKUP: Final = re.compile(
    rb"<!--(?:.*?-->|.*)|<!\[CDATA\[(?:.*?\]\]>|.*)|<\?(?:.*?\?>|.*)"
    rb"""|<(?:[^<>"']++|"[^"]*+"|'[^']*+'|)*+>?""",
    re.DOTALL,
)
"""A comment, a section, an instruction or a tag of XML; an unfinished one takes all the rest."""
_OPENS: Final = (b"{", b"[")
_CLOSES: Final = (b"}", b"]")


def check_json_nesting(body: bytes) -> None:
    """Raise :class:`BadInput` for JSON whose objects and arrays nest deeper than :data:`JSON_DEPTH_MAX`."""
    depth = 0
    for found in _JSON.finditer(body):
        mark = found[0]
        if mark in _OPENS:
            depth += 1
            if depth > JSON_DEPTH_MAX:
                raise _too_deep(f"more than {JSON_DEPTH_MAX} objects and arrays", body, found.start())
        elif mark in _CLOSES:
            depth -= 1


def check_xml_nesting(body: bytes) -> None:
    """Raise :class:`BadInput` for XML whose elements nest deeper than :data:`XML_DEPTH_MAX`."""
    depth = 0
    for found in XML_MARKUP.finditer(body):
        tag = found[0]
        if tag.startswith((b"<!", b"<?")) or tag.endswith(b"/>"):
            continue
        if tag.startswith(b"</"):
            depth -= 1
            continue
        depth += 1
        if depth > XML_DEPTH_MAX:
            raise _too_deep(f"more than {XML_DEPTH_MAX} elements", body, found.start())


def check_triple_term_nesting(body: bytes | str) -> None:
    """Raise :class:`BadInput` for text of the Turtle family, or (as ``str``) of SPARQL, whose triple terms (RDF 1.2)
    nest deeper than :data:`TRIPLE_TERM_DEPTH_MAX`."""
    if (body.count("<<") if isinstance(body, str) else body.count(b"<<")) <= TRIPLE_TERM_DEPTH_MAX:
        return
    depth = 0
    text = body if isinstance(body, str) else body.decode("utf-8", "replace")
    for found in TOKEN.finditer(text):
        if found.lastgroup != "MARK":
            continue
        mark = found[0]
        if mark.startswith("<<"):
            depth += 1
            if depth > TRIPLE_TERM_DEPTH_MAX:
                what = f"more than {TRIPLE_TERM_DEPTH_MAX} triples (RDF 1.2)"
                if isinstance(body, str):
                    raise malformed_query(body, found.start(), f"{what} inside one another")
                raise _too_deep(what, body, len(text[: found.start()].encode()))
        elif mark.endswith(">>"):
            depth -= 1


def _too_deep(what: str, body: bytes, offset: int) -> BadInput:
    line = body.count(b"\n", 0, offset) + 1
    return BadInput(
        f"MALFORMED DATA: line {line}: {what} inside one another; write what is inside with names of its own"
    )
