"""``MINUS`` in updates of an RDF4J, which compares variables that neither of its parts has.

In ``?x <p> ?y MINUS { ?c <q> ?d } ?b <r> ?a`` both parts of the MINUS have no variable in common, so it removes nothing
(SPARQL 1.1, section 18.5). Where RDF4J's plan begins with ``?b <r> ?a``, both parts are evaluated with these values, so
they have ``?a`` and ``?b`` in common, and everything is removed. The plan follows from statistics: the same update does
something else in a store with the same data.

A sub-select is evaluated with its own variables only. So what comes before a MINUS, and the MINUS, go into one:
``{ SELECT * WHERE { ?x <p> ?y MINUS { ?c <q> ?d } } } ?b <r> ?a``. A FILTER is about the whole group, and stays
outside.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from txlog.sparql.tokens import Token, TokenCursor, UnsupportedPattern, tokens_by_operation
from txlog.workers.pattern_scan import find_where

_MINUS: Final = re.compile(r"\bminus\b", re.IGNORECASE)


def isolate_minus(text: str) -> str:
    """Rewrite an update of the log so that each MINUS sees the variables of its own parts only. A text that does
    not parse stays."""
    if not _MINUS.search(text):
        return text
    pieces, last = list[str](), 0
    for toks in tokens_by_operation(text):
        where = find_where(toks)
        if where < 0:
            continue
        try:
            group, _ = _MinusWriter(text, toks).read_group(where)
        except UnsupportedPattern:
            continue
        pieces += (text[last : toks[where].start], group)
        last = toks[-1].end
    return "".join([*pieces, text[last:]])


class _MinusWriter(TokenCursor):
    """Methods that read take the index at which a construct begins, and return its new text and the index after it."""

    def __init__(self, text: str, toks: Sequence[Token]) -> None:
        super().__init__(toks)
        self._text = text

    def read_group(self, at: int) -> tuple[str, int]:
        """A group in braces. The braces of a data block are read like those of a group."""
        parts, filters, is_parted = list[str](), list[str](), self._has_minus(at)
        copied = self._token_at(at).end
        at += 1
        while (mark := self._mark_at(at)) != "}":
            word, begin = self._word_at(at), self._token_at(at).start
            if word == "FILTER":
                new, at = self._read_filter(at)
            elif word == "MINUS":
                new, at = self.read_group(at + 1)
            elif mark in ("{", "("):
                new, at = self.read_group(at) if mark == "{" else self._read_parentheses(at)
            else:
                at = self._next(at)
                continue
            parts.append(self._text[copied:begin])
            copied = self._token_at(at - 1).end
            if word == "MINUS":
                parts = [f" {{ SELECT * WHERE {{ {''.join(parts)} MINUS {new} }} }} "]
            elif word == "FILTER" and is_parted:
                filters.append(f"{new} ")
            else:
                parts.append(new)
        parts.append(self._text[copied : self._token_at(at).start])
        return f"{{{''.join([*parts, *filters])}}}", at + 1

    def _has_minus(self, at: int) -> bool:
        """Whether a MINUS is directly in this group."""
        depth = 0
        while True:
            depth += {"{": 1, "}": -1}.get(self._mark_at(at), 0)
            if not depth or (depth == 1 and self._word_at(at) == "MINUS"):
                return depth > 0
            at = self._next(at)

    def _read_filter(self, at: int) -> tuple[str, int]:
        begin = self._token_at(at).start
        at = self._skip_to(at, "(", "{")
        head = self._text[begin : self._token_at(at).start]
        new, at = self.read_group(at) if self._mark_at(at) == "{" else self._read_parentheses(at)
        return head + new, at

    def _read_parentheses(self, at: int) -> tuple[str, int]:
        return self._rewrite_expression(self._text, at, self.read_group)
