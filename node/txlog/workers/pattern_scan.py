"""Finds the triples in the pattern of an update, each with the places of its variables in the text.

Engines need some patterns in another form than the log has them. What decides is which variable is where in a triple:
see :mod:`txlog.workers.rdf4j_repeats` and :mod:`txlog.workers.jena_templates`.

Source: SPARQL 1.1 Query Language, sections 18.2.2 (translation of groups) and 19.8 (productions 53 to 113).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from txlog.sparql.rewrite.triple_reader import (
    FreshVariables,
    PathTriple,
    PropertyPath,
    TripleReader,
)
from txlog.sparql.tokens import Edit, Token, UnsupportedPattern, apply_edits, tokens_by_operation

HAS_VARIABLE: Final = re.compile(r"[?$]\w")
"""Where it finds nothing in an update, no pattern or template needs to be looked at."""
_PLACE: Final = "?#"


@dataclass
class ScannedGroup:
    """The triples that are directly in one group. ``graph``: the term behind its ``GRAPH``, or of a group around it;
    empty outside of ``GRAPH``. ``is_joined``: each solution of the whole pattern has one of this group. ``end``: the
    offset of its closing brace."""

    graph: str
    is_joined: bool
    triples: list[PathTriple] = field(default_factory=list[PathTriple])
    end: int = 0


class PatternScan(TripleReader):
    """Reads groups and templates. In its triples a variable is given as the place of its token: see :meth:`place`.
    ``term_subjects``: places of variables that are the subject of a triple term. Raises :class:`.UnsupportedPattern`
    for what it does not know."""

    def __init__(self, toks: Sequence[Token]) -> None:
        super().__init__(toks, FreshVariables(toks))
        self.groups: list[ScannedGroup] = []
        self.term_subjects: list[int] = []

    @staticmethod
    def place(term: str) -> int:
        """The index of the token of a variable; -1 for another term, and for a blank node."""
        return int(term[len(_PLACE) :]) if term.startswith(_PLACE) else -1

    def read_template(self, at: int) -> list[PathTriple]:
        """The triples of a template whose brace is at ``at``, in GRAPH or not."""
        found: list[PathTriple] = []
        self._template(at, found)
        return found

    def read_group(self, at: int, graph: str = "", *, is_joined: bool = True) -> int:
        """Read a group in braces, and those inside it, into ``groups``. Returns the index after it."""
        group = ScannedGroup(graph, is_joined)
        self.groups.append(group)
        at += 1
        before = ""
        while (mark := self._mark_at(at)) != "}":
            word = self._word_at(at)
            if mark == "{":
                is_union = "UNION" in (before, self._word_at(self._after_bracket(at)))
                joined = is_joined and not is_union and before not in ("OPTIONAL", "MINUS")
                at = self.read_group(at, graph, is_joined=joined)
            elif mark == "." or word in ("UNION", "OPTIONAL", "MINUS"):
                at += 1
            elif word == "GRAPH":
                at = self.read_group(at + 2, self._token_at(at + 1).text, is_joined=is_joined)
            elif word == "FILTER":
                at = self._constraint(at + 1, graph)
            elif word == "BIND":
                at = self._expression(at + 1, graph)
            elif word == "VALUES":
                at = self._skip_to(at, "}") + 1
            elif word == "SELECT":
                at = self._select(at, graph)
            else:
                triples, at = self.same_subject(at)
                group.triples += triples
            before = word
        group.end = self._token_at(at).start
        return at + 1

    # -- what is inside a group: each method takes the index at which a construct begins, and returns the one after it

    def _template(self, at: int, found: list[PathTriple]) -> int:
        at += 1
        while self._mark_at(at) != "}":
            if self._mark_at(at) == ".":
                at += 1
            elif self._word_at(at) == "GRAPH":
                at = self._template(at + 2, found)
            else:
                triples, at = self.same_subject(at)
                found += triples
        return at + 1

    def _constraint(self, at: int, graph: str) -> int:
        at = self._skip_to(at, "(", "{")
        return self._inner_group(at, graph) if self._mark_at(at) == "{" else self._expression(at, graph)

    def _expression(self, at: int, graph: str) -> int:
        return self._after_expression(at, lambda begin: self._inner_group(begin, graph))

    def _inner_group(self, at: int, graph: str) -> int:
        """Of EXISTS, or of a sub-select."""
        return self.read_group(at, graph, is_joined=False)

    def _select(self, at: int, graph: str) -> int:
        """A sub-select up to the brace that closes the group around it."""
        while self._mark_at(at) != "}":
            if self._word_at(at) == "VALUES":
                at = self._skip_to(at, "}") + 1
            elif self._mark_at(at) == "{":
                at = self._inner_group(at, graph)
            elif self._mark_at(at) == "(":
                at = self._expression(at, graph)
            else:
                at = self._next(at)
        return at

    # -- terms

    def _node(self, at: int, found: list[PathTriple]) -> tuple[str, int]:
        if self._token_at(at).kind == "VARIABLE":
            return f"{_PLACE}{at}", at + 1
        return super()._node(at, found)

    def _triple_term(self, at: int, found: list[PathTriple]) -> tuple[str, int]:
        if self._token_at(at).kind == "VARIABLE":
            self.term_subjects.append(at)
        return super()._triple_term(at, found)

    def _verb(self, at: int) -> tuple[PropertyPath, int]:
        if self._token_at(at).kind == "VARIABLE":
            return PropertyPath("step", f"{_PLACE}{at}"), at + 1
        return super()._verb(at)


def find_where(toks: Sequence[Token]) -> int:
    """The index of the brace that opens the pattern of an operation; -1 without one, or where the operation does not
    end with a brace."""
    if toks[-1].text != "}":
        return -1
    depth = 0
    for at, token in enumerate(toks):
        if token.kind == "MARK":
            depth += {"{": 1, "}": -1}.get(token.text, 0)
        elif not depth and token.word == "WHERE":
            return at + 1 if toks[at + 1].text == "{" else -1
    return -1


def rewrite_operations(text: str, edits_of: Callable[[Sequence[Token]], Iterable[Edit]]) -> str:
    """An update of the log with these edits of each operation. One that does not parse stays as it is."""
    edits = list[Edit]()
    for toks in tokens_by_operation(text):
        with suppress(UnsupportedPattern):
            edits += list(edits_of(toks))
    return apply_edits(text, edits)


def extend_pattern(toks: Sequence[Token], addition: str) -> list[Edit]:
    """Edits that add elements at the end of an operation's pattern. A SELECT cannot stand beside other elements, so it
    gets a group of its own."""
    where = find_where(toks)
    end = toks[-1].start
    if toks[where + 1].word != "SELECT":
        return [(end, end, f" {addition} ")]
    begin = toks[where + 1].start
    return [(begin, begin, "{ "), (end, end, f"}} {addition} ")]
