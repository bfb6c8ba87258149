"""Triple terms of patterns whose variables may be bound to what no triple holds there.

In ``?e <p> ?a . ?z <q> <<( ?a <r> 1 )>>`` the variable may be a literal, and a literal is no subject. Such a solution
matches nothing. An Oxigraph (0.5.13) that binds the variable first ends the whole request instead: "The storage
returned a triple term that is not a valid RDF 1.2 term". So a store refuses a transaction, by the data that it holds.

A subject or predicate in a triple term is written as a variable of its own, which is compared afterwards:
``{ ?z <q> <<( ?g1 <r> 1 )>> BIND(?g1 AS ?a) }``. Only variables are meant that another part of the pattern may bind to
a literal: objects, ends of paths, ``BIND``, ``VALUES``, columns of a ``SELECT``. Inside ``EXISTS``, which sees the
solution around it, a filter compares them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from txlog.sparql.rewrite.triple_reader import (
    FreshVariables,
    PathTriple,
    PropertyPath,
    TripleReader,
)
from txlog.sparql.tokens import Token, TokenCursor, UnsupportedPattern, significant_tokens, tokens

_OPENS: Final = "<<("
_GROUP_WORDS: Final = ("BIND", "GRAPH", "OPTIONAL", "UNION", "MINUS", "WHERE")
Term = tuple[str, str, str]


def guard_triple_terms(text: str) -> str:
    """One operation of an update, which parses, with such variables compared. Others stay as they are."""
    if _OPENS not in text:
        return text
    toks = significant_tokens(text)
    depth = 0
    for at, token in enumerate(toks):
        depth += {"{": 1, "}": -1}.get(token.text, 0) if token.kind == "MARK" else 0
        if not depth and token.kind == "WORD" and token.text.upper() == "WHERE":
            return _guard_pattern(text, toks, at)
    return text


def _guard_pattern(text: str, toks: Sequence[Token], where: int) -> str:
    try:
        scan = _PatternScan(text, toks)
        scan.read_group(where + 1)
        if not scan.is_at_risk:
            return text
        scan = _PatternScan(text, toks, scan.literals)
        scan.read_group(where + 1)
    except UnsupportedPattern:
        return text
    begin = toks[where + 1].start
    head = text[: toks[where].start]
    if len(toks) > 1 and where == 1:
        # DELETE WHERE: its one group is both template and pattern.
        head = f"{text[: toks[where].start]}{text[begin:]} "
    return f"{head}WHERE {scan.written(begin)}"


class _TermReader(TripleReader):
    """Keeps the parts of triple terms, and paths as they are written."""

    def __init__(self, text: str, toks: Sequence[Token], fresh: FreshVariables) -> None:
        super().__init__(toks, fresh)
        self._text = text
        self.terms: dict[str, Term] = {}

    def _verb(self, at: int) -> tuple[PropertyPath, int]:
        start = self._token_at(at).start
        path, at = super()._verb(at)
        last = self._token_at(at - 1)
        written = self._text[start : last.end]
        return PropertyPath("step" if path.kind == "step" else "other", written), at

    def _triple_term(self, at: int, found: list[PathTriple]) -> tuple[str, int]:
        parts = list[str]()
        while len(parts) < 3:
            if len(parts) == 1 and self._token_at(at).text == "a":
                parts.append("a")
                at += 1
                continue
            part, at = self._node(at, found)
            parts.append(part)
        term, at = f"<<( {' '.join(parts)} )>>", at + 1
        self.terms[term] = (parts[0], parts[1], parts[2])
        return term, at


class _PatternScan(TokenCursor):
    """One walk through a pattern. Without ``literals`` it finds the variables that may be bound to one; with them it
    writes the pattern."""

    def __init__(self, text: str, toks: Sequence[Token], literals: frozenset[str] | None = None) -> None:
        super().__init__(toks)
        self._text = text
        self._fresh = FreshVariables(toks)
        self._reader = _TermReader(text, toks, self._fresh)
        self._guarded = literals
        self._found: set[str] = set()
        self._in_terms: set[str] = set()
        """Variables that are the subject or the predicate of a triple term."""
        self._changes: list[tuple[int, int, str]] = []

    @property
    def literals(self) -> frozenset[str]:
        """Names of the variables that may be bound to a literal."""
        return frozenset(self._found)

    @property
    def is_at_risk(self) -> bool:
        """Whether one of them is a subject or a predicate in a triple term."""
        return not self._found.isdisjoint(self._in_terms)

    def written(self, begin: int) -> str:
        """The text from ``begin`` on, with the changes."""
        out = list[str]()
        for start, end, new in self._changes:
            out += (self._text[begin:start], new)
            begin = end
        return "".join([*out, self._text[begin:]])

    # -- groups: each method takes the index at which a construct begins, and returns the index after it

    def read_group(self, at: int, *, exists: bool = False) -> int:
        """A group in braces. ``exists``: of an ``EXISTS``, or inside one."""
        at += 1
        while (mark := self._mark_at(at)) != "}":
            word = self._word_at(at)
            if mark == "{":
                at = self.read_group(at, exists=exists)
            elif mark == ".":
                at += 1
            elif word == "FILTER":
                at = self._read_filter(at + 1)
            elif word == "VALUES":
                at = self._read_values(at)
            elif word == "SELECT":
                at = self._read_select(at, exists)
            elif word in _GROUP_WORDS:
                at += 2 if word == "GRAPH" else 1
                if word == "BIND":
                    at = self._read_parentheses(at)
            else:
                at = self._read_triples(at, exists)
        return at + 1

    def _read_filter(self, at: int) -> int:
        at = self._skip_to(at, "(", "{")
        return self._read_exists(at) if self._mark_at(at) == "{" else self._read_parentheses(at)

    def _read_exists(self, at: int) -> int:
        return self.read_group(at, exists=True)

    def _read_parentheses(self, at: int) -> int:
        """An expression; the variable behind its AS."""
        end = self._after_expression(at, self._read_exists)
        if self._word_at(end - 3) == "AS":
            self._found.add(self._token_at(end - 2).text[1:])
        return end

    def _read_values(self, at: int) -> int:
        while self._mark_at(at) != "}":
            token = self._token_at(at)
            if token.kind == "VARIABLE":
                self._found.add(token.text[1:])
            at = self._next(at)
        return at + 1

    def _read_select(self, at: int, exists: bool) -> int:
        """A SELECT up to the brace that closes its group."""
        while self._mark_at(at) != "}":
            if self._word_at(at) == "VALUES":
                at = self._read_values(at)
            elif self._mark_at(at) == "{":
                at = self.read_group(at, exists=exists)
            elif self._mark_at(at) == "(":
                at = self._read_parentheses(at)
            else:
                at = self._next(at)
        return at

    # -- triples

    def _read_triples(self, at: int, exists: bool) -> int:
        """What is said of one subject."""
        first = at
        triples, at = self._reader.same_subject(at)
        at += self._mark_at(at) == "."
        for subject, path, value in triples:
            # An object, and each end of a path, may be a literal.
            ends = (value,) if path.kind == "step" else (subject, value)
            for end in ends:
                self._note_end(end)
        if self._guarded is not None:
            last = self._token_at(at - 1)
            new = " ".join(self._written(triple, exists) for triple in triples)
            self._changes.append((self._token_at(first).start, last.end, new))
        return at

    def _note_end(self, term: str) -> None:
        if term[:1] in ("?", "$"):
            self._found.add(term[1:])
        elif term in self._reader.terms:
            subject, verb, value = self._reader.terms[term]
            self._in_terms.update(each[1:] for each in (subject, verb) if each[:1] in ("?", "$"))
            self._note_end(value)

    def _written(self, triple: PathTriple, exists: bool) -> str:
        subject, path, value = triple
        compared: list[tuple[str, str]] = []
        guarded = self._guard(value, compared)
        plain = f"{subject} {path.text} {guarded}"
        if not compared:
            return f"{plain} ."
        kept = {token.text[1:] for token in tokens(plain) if token.kind == "VARIABLE"}
        tests = list[str]()
        for mine, theirs in compared:
            if exists:
                tests.append(f"FILTER(!BOUND({theirs}) || sameTerm({mine}, {theirs}))")
            elif theirs[1:] in kept:
                tests.append(f"FILTER(sameTerm({mine}, {theirs}))")
            else:
                kept.add(theirs[1:])
                tests.append(f"BIND({mine} AS {theirs})")
        inside = f"{plain} {' '.join(tests)}"
        return f"{plain} . {' '.join(tests)}" if exists else f"{{ {inside} }}"

    def _guard(self, term: str, compared: list[tuple[str, str]]) -> str:
        """A term with variables of its own, where there is a risk; ``compared`` gets each with the one it replaces."""
        parts = self._reader.terms.get(term)
        if parts is None:
            return term
        names = list[str]()
        for part in parts[:2]:
            if part[:1] in ("?", "$") and part[1:] in (self._guarded or ()):
                names.append(self._fresh.draw())
                compared.append((names[-1], part))
            else:
                names.append(part)
        return f"<<( {' '.join(names)} {self._guard(parts[2], compared)} )>>"
