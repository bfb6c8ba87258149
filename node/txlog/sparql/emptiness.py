"""Patterns that a graph without quads can satisfy.

Stores do not agree on which such graphs there are: Oxigraph keeps a graph whose last quad went, or that ``CREATE``
made, Jena and RDF4J know of none, and no dump carries them, so a worker that was restored has lost them. What an update
does to quads may therefore not hang on them; such an update is evaluated once.

Source: SPARQL 1.1 Query Language, section 19.8 (productions 53 to 64) and 18.6 (``eval(D(G), Graph(…))``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from txlog.sparql.tokens import Token, TokenReader, tokens
from txlog.sparql.walk import significant

_BLOCKS: Final = ("OPTIONAL", "UNION", "MINUS", "GRAPH", "FILTER", "BIND", "VALUES", "SELECT", "SERVICE")
_PLAIN_HEAD: Final = ("DISTINCT", "REDUCED", "WHERE")
_END: Final = Token("MARK", "}", -1)


def met_by_empty_graphs(operation: str) -> bool:
    """Whether one operation of an update, which parses, has a ``GRAPH`` in its pattern that may match without a quad
    in that graph."""
    if "GRAPH" not in operation.upper():
        return False
    reader = _Reader(significant(tokens(operation)))
    reader.operation()
    return reader.met


class _Reader(TokenReader):
    """Each method reads what begins at an index; it returns the index behind it, and whether that needs a quad."""

    def __init__(self, toks: Sequence[Token]) -> None:
        super().__init__(toks, _END)
        self.met = False

    def operation(self) -> None:
        """Templates and data are passed over: an empty group in them writes nothing."""
        for at in range(len(self._toks)):
            if self._word(at) == "WHERE" and self._mark(at + 1) == "{":
                self._group(at + 1)
                return

    def _group(self, at: int) -> tuple[int, bool]:
        """From ``{`` to behind its ``}``."""
        at, needs = at + 1, False
        while self._mark(at) != "}":
            mark, word = self._mark(at), self._word(at)
            if mark == ".":
                at += 1
            elif mark == "{":
                at, some = self._union(at)
                needs |= some
            elif word in ("OPTIONAL", "MINUS"):
                at, _ = self._group(at + 1)
            elif word == "GRAPH":
                at, some = self._group(at + 2)
                self.met |= not some
            elif word == "SELECT":
                at, some = self._select(at)
                needs |= some
            elif word == "VALUES":
                at = self._values(at)
            elif word in _BLOCKS:
                at = self._constraint(at + 1)
            else:
                at, some = self._triples(at)
                needs |= some
        return at + 1, needs

    def _union(self, at: int) -> tuple[int, bool]:
        at, needs = self._group(at)
        while self._word(at) == "UNION":
            at, some = self._group(at + 1)
            needs &= some
        return at, needs

    def _select(self, at: int) -> tuple[int, bool]:
        """Up to the brace that ends the group around it. One that aggregates has a solution where nothing is."""
        plain, at = True, at + 1
        while self._mark(at) != "{":
            if self._at(at) is _END:
                return at, False
            plain &= self._at(at).kind == "VARIABLE" or self._mark(at) == "*" or self._word(at) in _PLAIN_HEAD
            at += 1
        at, needs = self._group(at)
        needs &= plain and self._mark(at) == "}"
        while self._mark(at) != "}":
            at = self._values(at) if self._word(at) == "VALUES" else self._token(at)
        return at, needs

    def _values(self, at: int) -> int:
        while self._mark(at) != "}":
            at += 1
        return at + 1

    def _constraint(self, at: int) -> int:
        """``FILTER``'s or ``BIND``'s: a group of ``EXISTS``, or up to the parenthesis that closes."""
        while self._mark(at) not in ("(", "{", "}"):
            at += 1
        if self._mark(at) != "(":
            return self._token(at)
        depth = 0
        while True:
            depth += {"(": 1, ")": -1}.get(self._mark(at), 0)
            if self._mark(at) == "}":
                return at
            at = self._token(at)
            if not depth:
                return at

    def _token(self, at: int) -> int:
        """One token, or a whole group."""
        return self._group(at)[0] if self._mark(at) == "{" else at + (self._at(at) is not _END)

    def _triples(self, at: int) -> tuple[int, bool]:
        """As many as stand together. A path of length zero is there in every graph."""
        needs = True
        while self._mark(at) not in (".", "{", "}") and self._word(at) not in _BLOCKS:
            needs &= self._mark(at) not in ("*", "?")
            at += 1
        return at, needs
