"""Replaces a random function, evaluated for each solution, by a constant where there is one solution at most."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from txlog.sparql.skolem_iris import SKOLEM_PREFIX
from txlog.sparql.terms import DEFAULT_PREFIXES
from txlog.sparql.tokens import Token

RANDOM_FUNCTIONS: Final = ("RAND", "UUID", "STRUUID", "BNODE")
"""Functions without arguments whose value differs in each solution."""
_DOUBLE: Final = DEFAULT_PREFIXES["xsd"] + "double"


def random_constant(word: str, bits: int) -> str:
    """The SPARQL constant for a call of that function; ``bits``: 128 random bits."""
    if word == "RAND":
        return f'("{(bits >> 75) / (1 << 53)!r}"^^<{_DOUBLE}>)'
    if word == "BNODE":
        return f"<{SKOLEM_PREFIX}{bits:032x}:0>"
    # RFC 4122, version 4.
    text = f"{bits & ~(0xF << 76) & ~(0x3 << 62) | 4 << 76 | 2 << 62:032x}"
    name = "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))
    return f"<urn:uuid:{name}>" if word == "UUID" else f'"{name}"'


def has_single_solution(toks: Sequence[Token]) -> bool:
    """Whether an operation has one solution at most: its pattern holds only BIND and FILTER, without a group in them.
    (Not the reverse: after ``False`` there may be one solution.)"""
    at = len(toks) - 1
    if at < 0 or toks[at].text != "}":
        return False
    while at >= 0 and toks[at].text != "{":
        at -= 1
    if at < 1 or toks[at - 1].kind != "WORD" or toks[at - 1].text.upper() != "WHERE":
        return False
    at, last = at + 1, len(toks) - 1
    while at < last:
        token = toks[at]
        word = token.word
        at += 1
        if token.text == ".":
            continue
        if word == "FILTER" and toks[at].text != "(":
            at += 1  # the name of a function
        if word not in ("BIND", "FILTER") or at >= len(toks) or toks[at].text != "(":
            return False  # a triple, or a list, which is some
        depth = 0
        while at < last:
            if toks[at].kind == "MARK":
                depth += {"(": 1, ")": -1}.get(toks[at].text, 0)
            at += 1
            if not depth:
                break
    return True
