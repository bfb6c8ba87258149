"""The bodies of INSERT DATA and DELETE DATA: read as TriG, and written again."""

from __future__ import annotations

import re
from typing import Final

from txlog.model.errors import BadInput
from txlog.model.quads import split_graph
from txlog.sparql.prologue import Prologue, SourceMappedText
from txlog.sparql.terms import DEFAULT_PREFIXES
from txlog.sparql.tokens import (
    BLANK,
    COMMENT,
    IRI,
    LANGUAGE,
    NUMBER,
    PNAME,
    SPACE,
    STRING,
    TOKEN,
    WORD,
    Token,
    bad_token_error,
    malformed_query,
)

_FLAGS = re.DOTALL
GAP: Final = rf"(?:{SPACE}|{COMMENT}|)*+"
"""Spaces and comments between two tokens."""
_DATA = re.compile(
    rf"(?:{SPACE}|{IRI}|{BLANK}|{PNAME}|(?!(?i:GRAPH)(?![A-Za-z0-9_])){WORD}|{STRING}|{NUMBER}|\^\^|<<\(?|\)?>>|\{{\||\|\}}|[\[\]();,.+\-~]|{LANGUAGE}|{COMMENT}|)*+",
    _FLAGS,
)
_GRAPH = re.compile(rf"(?i:GRAPH){GAP}({IRI}|{PNAME}){GAP}\{{", _FLAGS)
_DOT = re.compile(rf"{GAP}\.", _FLAGS)


def data_as_trig(text: str, names: Prologue, at: int) -> tuple[SourceMappedText, int]:
    """The body of INSERT DATA or DELETE DATA that begins at ``at``, as TriG: the same triples, those of the default
    graph in braces of their own. Also the offset after the body. ``BadInput`` names the first wrong token."""
    piece, body, start = SourceMappedText(), at, at
    at = _DATA.match(text, at).end()  # type: ignore[union-attr]
    if at < len(text) and text[at] == "}":
        piece.append((text[start - 1 : at + 1], start - 1))
    else:
        at = _graph_blocks_as_trig(text, piece, start, at)
    # Only the prefixes that this operation can use, so that many operations do not each scan the whole text.
    known = [(prefix, iri) for prefix, iri in DEFAULT_PREFIXES.items() if text.find(prefix + ":", body, at) >= 0]
    declared = {**dict(known), **names.prefixes}
    piece.insert(0, ("".join([f"PREFIX {prefix}: <{iri}>\n" for prefix, iri in declared.items()]), body))
    return piece, at + 1


def _graph_blocks_as_trig(text: str, piece: SourceMappedText, start: int, at: int) -> int:
    """Write a body with GRAPH in it; ``text[start:at]`` is the part before the first one. Returns the offset of the
    brace that ends the body."""
    while True:
        piece.append(("{", start))
        piece.append((text[start:at], start))
        piece.append(("}", at))
        if at < len(text) and text[at] == "}":
            return at
        graph = _GRAPH.match(text, at)
        if graph is None:
            raise _unexpected_token(text, at)
        start = graph.end()
        at = _DATA.match(text, start).end()  # type: ignore[union-attr]
        if at >= len(text) or text[at] != "}":
            raise _unexpected_token(text, at)
        piece.append(("GRAPH ", graph.start()))
        piece.append((graph[1], graph.start(1)))
        piece.append((text[start - 1 : at + 1], start - 1))
        start = at + 1
        dot = _DOT.match(text, start)
        if dot is not None:
            start = dot.end()
        at = _DATA.match(text, start).end()  # type: ignore[union-attr]


def _unexpected_token(text: str, at: int) -> BadInput:
    found = TOKEN.match(text, at)
    if found is None:
        return malformed_query(text, at, "expected } before the end")
    token = Token(found.lastgroup or "", found[0], at)
    if token.kind == "ERROR":
        return bad_token_error(text, token)
    if token.kind == "VARIABLE":
        return malformed_query(text, at, f"{token.text}: variables are not allowed in DATA")
    return malformed_query(text, at, f"unexpected {token.text[:80]}; GRAPH <iri> {{ ... }} or a triple is expected")


def data_error(text: str, error: SyntaxError, piece: SourceMappedText) -> BadInput:
    """The parser's error about the TriG ``piece``, at its place in ``text``."""
    lines = piece.text().split("\n")
    row = min(max((error.lineno or 1) - 1, 0), len(lines) - 1)
    column = (error.offset or 1) - 1
    at, within = sum(len(line) + 1 for line in lines[:row]) + column, 0
    for part, start in piece:
        if at < within + len(part):
            at = start + at - within
            break
        within += len(part)
    else:
        at = len(text)
    said = error.msg.rpartition(": ")[2] if error.msg.startswith("Parser error") else error.msg
    if "No scheme found" in said:
        said = "the IRI is relative: send baseURI, or write BASE or the full IRI"
    return malformed_query(text, at, said)


def format_data_update(adds: bool, lines: list[bytes]) -> str:
    """Lines of N-Quads as INSERT DATA or DELETE DATA."""
    graphs: dict[bytes, list[bytes]] = {}
    for line in lines:
        triple, graph = split_graph(line)
        graphs.setdefault(graph, []).append(triple)
    blocks = []
    for graph, triples in graphs.items():
        block = b" .\n".join(triples)
        blocks.append(b"GRAPH %s {\n%s }" % (graph, block) if graph else block + b" .")
    return f"{'INSERT' if adds else 'DELETE'} DATA {{\n" + b"\n".join(blocks).decode() + "\n}"


def shorten_error(said: str) -> str:
    """The words of a parser, without the lists of tokens that it expected."""
    said = re.sub(r"\s+", " ", re.sub(r", \[[^\]]*\](?:\.\.=?\S+)?|\['[^\]]*\](?:, )?", "", said))
    return said if len(said) <= 300 else said[:300] + " …"
