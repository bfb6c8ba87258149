"""The net effect of several INSERT DATA and DELETE DATA."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from txlog.model.quads import split_graph
from txlog.sparql.rdf_upload import build_quads_body
from txlog.sparql.transaction_body import TransactionBody

_XSD: Final = b'"^^<http://www.w3.org/2001/XMLSchema#'
_TYPED_LITERAL_LINE = re.compile(
    rb'(<[^>]*+> <[^>]*+> )"(?:[^"\\]++|\\.|)*+"\^\^<http://www\.w3\.org/2001/XMLSchema#[^>]*+>( <[^>]*+>)? \.'
)


def build_net_effect(data: Sequence[tuple[bool, list[bytes]]]) -> TransactionBody | None:
    """The net effect of operations, each with whether it adds and its quads; the last one on a quad wins. None where
    quads would not keep the order of the operations."""
    if len(data) == 1:
        adds, lines = data[0]
        return build_quads_body((), lines) if adds else build_quads_body(lines, ())
    effect: dict[bytes, bool] = {}
    typed: dict[tuple[bytes, bytes], set[bytes]] = {}
    ordered = False
    last_delete = max((number for number, (adds, _) in enumerate(data) if not adds), default=-1)
    for number, (adds, lines) in enumerate(data):
        for line in lines:
            effect[line] = adds
        if not adds and typed:
            ordered = ordered or any(typed.get(key, {line}) != {line} for line, key in _typed_literal_lines(lines))
        if adds and number < last_delete:
            for line, key in _typed_literal_lines(lines):
                typed.setdefault(key, set()).add(line)
    if ordered:
        return None
    return build_quads_body(
        (line for line, adds in effect.items() if not adds), (line for line, adds in effect.items() if adds)
    )


def _typed_literal_lines(lines: list[bytes]) -> list[tuple[bytes, tuple[bytes, bytes]]]:
    """Lines whose object a store may rewrite ("01" as "1"), each with the rest of its identity. An object may be a
    triple term that holds such a literal."""
    found = []
    for line in lines:
        match = _TYPED_LITERAL_LINE.fullmatch(line)
        if match is not None:
            found.append((line, (match[1], match[2] or b"")))
        elif b" <<( " in line and _XSD in line:
            found.append((line, (line.partition(b"<<(")[0], split_graph(line)[1])))
    return found
