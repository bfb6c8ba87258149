"""Patterns that a graph without quads can satisfy.

Stores do not agree on which such graphs exist. Oxigraph keeps a graph whose last quad was deleted, or that ``CREATE``
made; Jena and RDF4J have none. No dump contains them, so a restored worker has lost them. The effect of an update on
quads must therefore not depend on them; such an update is evaluated once.

Source: SPARQL 1.1 Query Language, section 19.8 (productions 53 to 64) and 18.6 (``eval(D(G), Graph(…))``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from txlog.model.errors import NotDeterministic
from txlog.sparql.tokens import Token, TokenCursor, significant_tokens

_BLOCKS: Final = ("OPTIONAL", "UNION", "MINUS", "GRAPH", "FILTER", "BIND", "VALUES", "SELECT", "SERVICE")
_PLAIN_HEAD: Final = ("DISTINCT", "REDUCED", "WHERE")
_FILTERING_CLAUSES: Final = ("OPTIONAL", "MINUS", "BIND")
_END: Final = Token("MARK", "}", -1)


def may_match_empty_graph(operation: str) -> bool:
    """Whether one operation of an update, which parses, has a ``GRAPH`` in its pattern that may match without a quad
    in that graph."""
    if "GRAPH" not in operation.upper():
        return False
    reader = _EmptyGraphAnalyser(significant_tokens(operation))
    reader.operation()
    return reader.matches_empty


def select_counts_graphs(toks: Sequence[Token], at: int) -> bool:
    """Whether the result of the SELECT at ``at`` of significant tokens, in a graph that Oxigraph may choose, depends on
    graphs without quads."""
    return _EmptyGraphAnalyser(toks, apart=True).counts_graphs(at)


def empty_graph_error() -> NotDeterministic:
    """The refusal of such an update."""
    why = "not every worker knows the same graphs without quads; put a triple pattern into its group"
    return NotDeterministic("GRAPH over empty graphs", why, once=True)


class _EmptyGraphAnalyser(TokenCursor):
    """Each method parses the construct at an index; it returns the index after it, and whether that needs a quad."""

    def __init__(self, toks: Sequence[Token], *, apart: bool = False) -> None:
        """``apart``: a SELECT inside says nothing of the graph around it, since it may read another one."""
        super().__init__(toks, _END)
        self.matches_empty = False
        self._ignores_subselects = apart
        self._bare = False
        """Whether a group so far, in the graph that all of this reads, is only about the graph itself."""

    def operation(self) -> None:
        """Analyse one operation. Templates and data are skipped: an empty group in them writes nothing."""
        for at in range(len(self._toks)):
            if self._word_at(at) == "WHERE" and self._mark_at(at + 1) == "{":
                self._group(at + 1)
                return

    def counts_graphs(self, at: int) -> bool:
        at, _ = self._skip_projection(at + 1)
        outside, self._bare = self._bare, False
        at, needs = self._group(at)
        inside, self._bare = self._bare, outside
        self._skip_solution_modifiers(at)
        return self._bare or (inside and not needs)

    def _group(self, at: int) -> tuple[int, bool]:
        """From ``{`` to after its ``}``. A group whose first element only filters or extends solutions begins with the
        empty pattern, which has one solution in each graph."""
        at, needs, begun = at + 1, False, False
        while self._mark_at(at) != "}":
            mark, word = self._mark_at(at), self._word_at(at)
            if mark == ".":
                at += 1
                continue
            if word != "FILTER":
                self._bare |= not begun and word in _FILTERING_CLAUSES
                begun = True
            if mark == "{":
                at, some = self._union(at)
                needs |= some
            elif word in ("OPTIONAL", "MINUS"):
                at, _ = self._group(at + 1)
            elif word == "GRAPH":
                bare = self._bare
                at, some = self._group(at + 2)
                self.matches_empty |= not some
                self._bare = bare
            elif word == "SELECT":
                bare = self._bare
                at, some = self._select(at)
                needs |= some and not self._ignores_subselects
                self._bare = bare
            elif word == "VALUES":
                at = self._values(at)
            elif word in _BLOCKS:
                at = self._constraint(at + 1)
            else:
                at, some = self._triples(at)
                needs |= some
        self._bare |= not begun
        return at + 1, needs

    def _union(self, at: int) -> tuple[int, bool]:
        at, needs = self._group(at)
        while self._word_at(at) == "UNION":
            at, some = self._group(at + 1)
            needs &= some
        return at, needs

    def _select(self, at: int) -> tuple[int, bool]:
        """Up to the brace that ends the group around it. One that aggregates has a solution where nothing is."""
        at, plain = self._skip_projection(at + 1)
        if self._token_at(at) is _END:
            return at, False
        at, needs = self._group(at)
        needs &= plain and self._mark_at(at) == "}"
        return self._skip_solution_modifiers(at), needs

    def _skip_projection(self, at: int) -> tuple[int, bool]:
        """Over what a SELECT gives; whether that is only variables."""
        plain, depth = True, 0
        while self._token_at(at) is not _END and (depth or self._mark_at(at) != "{"):
            plain &= (
                self._token_at(at).kind == "VARIABLE" or self._mark_at(at) == "*" or self._word_at(at) in _PLAIN_HEAD
            )
            depth += {"(": 1, ")": -1}.get(self._mark_at(at), 0)
            at = self._token(at)
        return at, plain

    def _skip_solution_modifiers(self, at: int) -> int:
        """Skip the solution modifiers after a SELECT's group."""
        while self._mark_at(at) != "}":
            at = self._values(at) if self._word_at(at) == "VALUES" else self._token(at)
        return at

    def _values(self, at: int) -> int:
        while self._mark_at(at) != "}":
            at += 1
        return at + 1

    def _constraint(self, at: int) -> int:
        """``FILTER``'s or ``BIND``'s: a group of ``EXISTS``, or up to the parenthesis that closes."""
        while self._mark_at(at) not in ("(", "{", "}"):
            at += 1
        if self._mark_at(at) != "(":
            return self._token(at)
        depth = 0
        while True:
            depth += {"(": 1, ")": -1}.get(self._mark_at(at), 0)
            if self._mark_at(at) == "}":
                return at
            at = self._token(at)
            if not depth:
                return at

    def _token(self, at: int) -> int:
        """One token, or a whole group."""
        return self._group(at)[0] if self._mark_at(at) == "{" else at + (self._token_at(at) is not _END)

    def _triples(self, at: int) -> tuple[int, bool]:
        """As many as stand together. A path of length zero is there in every graph."""
        needs = True
        while self._mark_at(at) not in (".", "{", "}") and self._word_at(at) not in _BLOCKS:
            needs &= self._mark_at(at) not in ("*", "?")
            at += 1
        return at, needs
