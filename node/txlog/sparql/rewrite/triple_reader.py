"""Reads the triples of patterns and templates: terms, blank nodes, collections and property paths.

Source: SPARQL 1.1 Query Language, sections 18.2.2 (translation of patterns) and 19.8 (productions 53 to 113).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from txlog.sparql.tokens import Token, TokenCursor, UnsupportedPattern

_RDF: Final = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
_FIRST: Final = f"<{_RDF}first>"
_REST: Final = f"<{_RDF}rest>"
_NIL: Final = f"<{_RDF}nil>"
_TYPE: Final = f"<{_RDF}type>"
TERM_KINDS: Final = ("VARIABLE", "IRI", "BLANK", "STRING", "NUMBER")


class TriplePattern(NamedTuple):
    """One pattern: the texts of its terms."""

    subject: str
    verb: str
    value: str

    def text(self) -> str:
        """The pattern as SPARQL."""
        return f"{self.subject} {self.verb} {self.value}"


class PropertyPath(NamedTuple):
    """``kind``: ``step`` (``text``: a term), ``other`` (a step by any term but those in ``text``, which commas
    separate), ``inverse``, ``sequence``, ``alternative`` or ``any`` (of any length; ``text``: the mark ``*``, ``+`` or
    ``?``)."""

    kind: str
    text: str = ""
    parts: tuple[PropertyPath, ...] = ()

    def has_kind(self, kind: str) -> bool:
        """Whether it, or a part of it, is of this kind."""
        return self.kind == kind or any(part.has_kind(kind) for part in self.parts)


PathTriple = tuple[str, PropertyPath, str]


class FreshVariables:
    """Draws variables that an operation does not use."""

    def __init__(self, toks: Sequence[Token]) -> None:
        self._prefix = "g"
        names = {token.text[1:] for token in toks if token.kind == "VARIABLE"}
        while any(name.startswith(self._prefix) for name in names):
            self._prefix += "_"
        self._count = 0

    def draw(self) -> str:
        """Another one, with its question mark."""
        self._count += 1
        return f"?{self._prefix}{self._count}"


class TripleReader(TokenCursor):
    """Reads triples: each method takes the index at which a construct begins, and returns the index after it. Blank
    nodes become variables."""

    def __init__(self, toks: Sequence[Token], fresh: FreshVariables) -> None:
        super().__init__(toks)
        self.fresh = fresh
        self._labels: dict[str, str] = {}

    def variable_of(self, label: str) -> str:
        """The variable in place of a blank node's label."""
        if label not in self._labels:
            self._labels[label] = self.fresh.draw()
        return self._labels[label]

    def same_subject(self, at: int) -> tuple[list[PathTriple], int]:
        """The triples of one subject."""
        found: list[PathTriple] = []
        alone = self._mark_at(at) in ("[", "(")
        subject, at = self._node(at, found)
        if not (alone and not self._is_verb(at)):
            at = self._properties(subject, at, found)
        return found, at

    def _is_verb(self, at: int) -> bool:
        token = self._token_at(at)
        return token.kind in ("VARIABLE", "IRI") or token.text == "a" or self._mark_at(at) in ("^", "!", "(")

    def _properties(self, subject: str, at: int, found: list[PathTriple]) -> int:
        while True:
            path, at = self._verb(at)
            while True:
                inside: list[PathTriple] = []
                value, at = self._node(at, inside)
                found += [(subject, path, value), *inside]
                if self._mark_at(at) != ",":
                    break
                at += 1
            while self._mark_at(at) == ";":
                at += 1
                if self._is_verb(at):
                    break
            else:
                return at

    def _node(self, at: int, found: list[PathTriple]) -> tuple[str, int]:
        token, mark = self._token_at(at), self._mark_at(at)
        if token.kind == "BLANK":
            return self.variable_of(token.text), at + 1
        if token.kind == "STRING":
            if self._token_at(at + 1).kind == "LANGUAGE":
                return token.text + self._token_at(at + 1).text, at + 2
            if self._mark_at(at + 1) == "^^":
                return f"{token.text}^^{self._token_at(at + 2).text}", at + 3
            return token.text, at + 1
        if token.kind in TERM_KINDS or token.text in ("true", "false"):
            return token.text, at + 1
        if mark in ("+", "-") and self._token_at(at + 1).kind == "NUMBER":
            return mark + self._token_at(at + 1).text, at + 2
        if mark == "[":
            name = self.fresh.draw()
            return name, (at + 2 if self._mark_at(at + 1) == "]" else self._properties(name, at + 1, found) + 1)
        if mark == "(":
            return self._collection(at + 1, found)
        if mark == "<<(":
            return self._triple_term(at + 1, found)
        raise UnsupportedPattern(token.text or "the end")

    def _triple_term(self, at: int, found: list[PathTriple]) -> tuple[str, int]:
        subject, at = self._node(at, found)
        verb = "a" if self._token_at(at).text == "a" else ""
        predicate, at = (verb, at + 1) if verb else self._node(at, found)
        value, at = self._node(at, found)
        if self._mark_at(at) != ")>>":
            raise UnsupportedPattern("<<(")
        return f"<<( {subject} {predicate} {value} )>>", at + 1

    def _collection(self, at: int, found: list[PathTriple]) -> tuple[str, int]:
        members: list[str] = []
        while self._mark_at(at) != ")":
            member, at = self._node(at, found)
            members.append(member)
        cells = [self.fresh.draw() for _ in members]
        for cell, member, rest in zip(cells, members, [*cells[1:], _NIL], strict=False):
            found += [
                (cell, PropertyPath("step", _FIRST), member),
                (cell, PropertyPath("step", _REST), rest),
            ]
        return (cells[0] if cells else _NIL), at + 1

    # -- paths

    def _verb(self, at: int) -> tuple[PropertyPath, int]:
        token = self._token_at(at)
        if token.kind == "VARIABLE":
            return PropertyPath("step", token.text), at + 1
        return self._path(at)

    def _path(self, at: int) -> tuple[PropertyPath, int]:
        return self._chain(at, "|", "alternative", lambda at: self._chain(at, "/", "sequence", self._step))

    def _chain(
        self, at: int, mark: str, kind: str, read: Callable[[int], tuple[PropertyPath, int]]
    ) -> tuple[PropertyPath, int]:
        first, at = read(at)
        parts = [first]
        while self._mark_at(at) == mark:
            part, at = read(at + 1)
            parts.append(part)
        return (first if len(parts) == 1 else PropertyPath(kind, parts=tuple(parts))), at

    def _step(self, at: int) -> tuple[PropertyPath, int]:
        token, mark = self._token_at(at), self._mark_at(at)
        if mark == "^":
            path, at = self._step(at + 1)
            return PropertyPath("inverse", parts=(path,)), at
        if mark == "!":
            path, at = self._negated_set(at + 1)
        elif mark == "(":
            path, at = self._path(at + 1)
            at += 1
        elif token.kind == "IRI" or token.text == "a":
            path, at = PropertyPath("step", token.text), at + 1
        else:
            raise UnsupportedPattern(token.text or "the end")
        if self._mark_at(at) in ("*", "+", "?") and not self._is_signed_number(at):
            return PropertyPath("any", self._mark_at(at), (path,)), at + 1
        return path, at

    def _negated_set(self, at: int) -> tuple[PropertyPath, int]:
        end = at
        if self._mark_at(at) == "(":
            while self._mark_at(end) != ")":
                end += 1
        elif self._mark_at(at) == "^":
            end += 1
        forth, back = list[str](), list[str]()
        for index in range(at, end + 1):
            token = self._token_at(index)
            if token.kind == "IRI" or token.text == "a":
                names = back if self._mark_at(index - 1) == "^" else forth
                names.append(_TYPE if token.text == "a" else token.text)
        parts: list[PropertyPath] = []
        if forth or not back:
            parts.append(PropertyPath("other", ", ".join(forth)))
        if back:
            parts.append(PropertyPath("inverse", parts=(PropertyPath("other", ", ".join(back)),)))
        return (parts[0] if len(parts) == 1 else PropertyPath("alternative", parts=tuple(parts))), end + 1

    def _is_signed_number(self, at: int) -> bool:
        """Whether a plus is the sign of a number, as in ``<a:p> +2``."""
        sign, number = self._token_at(at), self._token_at(at + 1)
        return sign.text == "+" and number.kind == "NUMBER" and number.start == sign.start + 1
