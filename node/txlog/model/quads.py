"""The payload of kind QUADS: what a transaction deletes and adds, already free of blank nodes.

UTF-8 lines, deletes before adds, no quad twice, each line one operation::

    D <s> <p> "o"@en <g> .
    A <s> <p> <o> .

After the two leading characters follows one line of canonical N-Quads, single spaces, as the HTTP API writes them.
No graph term means the default graph. An object may be a triple term of RDF 1.2, ``<<( <s> <p> "o" )>>``; subjects and
graphs are IRIs. The payload ends with a newline, or is empty.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

_LINE = re.compile(
    rb'^(?:<[^<>]*> ){2}(?:<[^<>]*>|"(?:[^"\\\n]|\\.)*"(?:@[A-Za-z0-9-]+|\^\^<[^<>]*>)?'
    rb"|<<\( .* \)>>)( <[^<>]*>)? \.$"
)
# A quoted literal may contain anything, so the graph term is found by matching the line as a whole. After the end of a
# triple term nothing but the graph follows, so what it holds need not be parsed.


def encode_quads(deletes: Collection[bytes], adds: Collection[bytes]) -> bytes:
    """N-Quads lines (without newline) to a payload; the caller has netted them: no line is in both."""
    return _prefix_lines(b"D ", deletes) + _prefix_lines(b"A ", adds)


def _prefix_lines(letter: bytes, lines: Collection[bytes]) -> bytes:
    """Joined once: formatting each line costs several times as much."""
    if not lines:
        return b""
    parts = list(lines)
    parts[0] = letter + parts[0]
    parts[-1] += b"\n"
    return (b"\n" + letter).join(parts)


def decode_quads(payload: bytes) -> Iterator[tuple[bool, bytes]]:
    """``(is_add, n-quads line)`` in order. The HTTP API has checked the payload, so anything else is our mistake."""
    for line in payload.splitlines() if payload else ():
        assert line[:2] in (b"A ", b"D "), line[:80]
        yield line[:1] == b"A", line[2:]


def split_graph(line: bytes) -> tuple[bytes, bytes]:
    """An N-Quads line to ``(triple text without dot, graph IRI in <> or empty)``."""
    found = _LINE.match(line)
    assert found is not None, line[:200]
    at = found.start(1)
    if at < 0:
        return line[:-2], b""
    return line[:at], found[1][1:]
