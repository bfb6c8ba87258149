"""Updates without joins inside the second part of another join, for a Fuseki that fails at them.

Jena 5.4 to 5.6 closes the second part of a join unread where the first one is empty. Where that part is a join itself,
closing it fails, and ends the request ("this.hashTable is null"). Whether the first part is empty depends on the data.

``{ A } { B C }`` becomes ``{ A } { { B C } UNION { FILTER(false) } }``: Jena begins with the parts of a union only when
they are read. The solutions are the same. Such a join reads its second part as a whole and uses no index for it, so
only a refused update is written this way.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from txlog.sparql.tokens import Token, TokenCursor, UnsupportedPattern, significant_tokens

FAULT: Final = b"this.hashTable"
"""In the answer of a Fuseki that failed so."""
_NOTHING: Final = " UNION { FILTER(false) }"
_ELEMENTS: Final = ("GRAPH", "OPTIONAL", "MINUS")


def separate_joins(update: str) -> str:
    """The operations of a normalised update with each part of their patterns that may hold a join behind a union. A
    text that does not parse stays."""
    toks = significant_tokens(update)
    try:
        return _JoinWriter(update, toks).written()
    except UnsupportedPattern:
        return update


class _JoinWriter(TokenCursor):
    """Methods that read take the index at which a construct begins, and return its text and the index after it."""

    def __init__(self, text: str, toks: Sequence[Token]) -> None:
        super().__init__(toks)
        self._text = text

    def written(self) -> str:
        """The whole text."""
        out, at, copied, depth = list[str](), 0, 0, 0
        while at < len(self._toks):
            if not depth and self._word_at(at) == "WHERE" and self._word_at(at - 1) != "DELETE":
                out.append(self._text[copied : self._token_at(at + 1).start])
                group, at = self._group(at + 1)
                out.append(group)
                copied = self._after(at - 1)
                continue
            depth += {"{": 1, "}": -1}.get(self._mark_at(at), 0)
            at += 1
        return "".join([*out, self._text[copied:]])

    def _after(self, at: int) -> int:
        return self._token_at(at).end

    def _group(self, at: int) -> tuple[str, int]:
        """A group in braces."""
        parts, filters, at = self._parts(at)
        return f"{{ {' '.join([*parts, *filters])} }}", at

    def _parts(self, at: int) -> tuple[list[str], list[str], int]:
        """The elements of a group, and its filters, which hold for all of it."""
        if self._mark_at(at) != "{":
            raise UnsupportedPattern("no group")
        at += 1
        if self._word_at(at) == "SELECT":
            select, at = self._select(at)
            return [select], [], at
        parts, filters = list[str](), list[str]()
        while self._mark_at(at) != "}":
            word = self._word_at(at)
            if self._mark_at(at) == ".":
                at += 1
                continue
            if self._mark_at(at) == "{":
                part, at = self._union(at)
            elif word in _ELEMENTS:
                part, at = self._element(word, at)
            elif word == "FILTER":
                part, at = self._expression(at)
                filters.append(part)
                continue
            elif word == "BIND":
                part, at = self._expression(at)
            elif word == "VALUES":
                part, at = self._values(at)
            else:
                part, at = self._triples(at)
            parts.append(part)
        return parts, filters, at + 1

    def _union(self, at: int) -> tuple[str, int]:
        start = at
        group, at = self._group(at)
        if self._word_at(at) != "UNION":
            return (f"{group}{_NOTHING}" if self._may_join(start, at) else group), at
        branches = [group]
        while self._word_at(at) == "UNION":
            group, at = self._group(at + 1)
            branches.append(group)
        return " UNION ".join(branches), at

    def _element(self, word: str, at: int) -> tuple[str, int]:
        head = self._token_at(at).text
        if word == "GRAPH":
            head += f" {self._token_at(at + 1).text}"
            at += 1
        start = at + 1
        parts, filters, at = self._parts(start)
        whole = " ".join(parts)
        if self._may_join(start, at):
            inside = f"{{ {whole} }}{_NOTHING} {' '.join(filters)}"
        else:
            inside = f"{whole} {' '.join(filters)}"
        return f"{head} {{ {inside} }}", at

    def _may_join(self, at: int, end: int) -> bool:
        """Whether a group has more than triples of its own."""
        return any(
            self._mark_at(each) == "{" or self._word_at(each) in ("BIND", "VALUES") for each in range(at + 1, end)
        )

    def _expression(self, at: int) -> tuple[str, int]:
        """``FILTER`` or ``BIND`` with the groups of its EXISTS."""
        begin = self._token_at(at).start
        at = self._skip_to(at, "(", "{")
        head = self._text[begin : self._token_at(at).start]
        is_group = self._mark_at(at) == "{"
        new, at = self._group(at) if is_group else self._rewrite_expression(self._text, at, self._group)
        return head + new, at

    def _values(self, at: int) -> tuple[str, int]:
        end = self._skip_to(at, "}")
        return self._text[self._token_at(at).start : self._after(end)], end + 1

    def _select(self, at: int) -> tuple[str, int]:
        """A SELECT up to the brace that closes its group."""
        out, has_pattern = list[str](), False
        while self._mark_at(at) != "}":
            if self._word_at(at) == "VALUES" and has_pattern:
                part, at = self._values(at)
            elif self._mark_at(at) == "{":
                part, at = self._group(at)
                has_pattern = True
            elif self._mark_at(at) == "(":
                part, at = self._bracket(at)
            else:
                part, at = self._token_at(at).text, self._next(at)
            out.append(part)
        return " ".join(out), at + 1

    def _bracket(self, at: int) -> tuple[str, int]:
        end = self._after_bracket(at, "(", ")")
        return self._text[self._token_at(at).start : self._after(end - 1)], end

    def _triples(self, at: int) -> tuple[str, int]:
        """Triples up to the next element of the group."""
        start = at
        while self._mark_at(at) not in ("{", "}") and self._word_at(at) not in (*_ELEMENTS, "FILTER", "BIND", "VALUES"):
            at = self._next(at)
        if at == start:
            raise UnsupportedPattern("no triple")
        end = "" if self._mark_at(at - 1) == "." else " ."
        return self._text[self._token_at(start).start : self._after(at - 1)] + end, at
