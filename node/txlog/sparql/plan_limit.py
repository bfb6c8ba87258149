"""Bounds what a store has to plan for one query, or for one operation of an update.

A planner orders the parts of a join: triple patterns, the steps of paths, OPTIONAL groups. Oxigraph's time grows with
the third power of their number, nothing ends it, and some thousand parts overflow the stack of the store's process. The
parts of one join are counted together, however its groups nest; a triple pattern without variables takes no time and
counts for the whole operation only. Of the branches of a UNION the largest counts. MINUS,
EXISTS and SELECT are planned by themselves; a SELECT is one part of the join around it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from txlog.sparql.tokens import Token, malformed_query

JOIN_PARTS_MAX: Final = 100
"""Triple patterns, steps of paths and OPTIONAL groups of one join. Oxigraph 0.5 plans 100 in half a second."""
PATTERNS_MAX: Final = 1000
"""The same for all joins of one operation together."""

_FREE: Final = frozenset(("VARIABLE", "BLANK"))
_BEFORE_TRIPLE: Final = frozenset(("{", "}", ".", ";", ",", "["))
_TEMPLATES: Final = ("INSERT", "DELETE", "CONSTRUCT")
_SEPARATE: Final = ("MINUS", "EXISTS")
_CLAUSES: Final = ("SELECT", "BY", "HAVING", "LIMIT", "OFFSET")


@dataclass(slots=True)
class _Frame:
    """An open bracket. ``kind``: ``group``, ``terms`` (a list, a path or a blank node), or ``other`` (an expression,
    data, a template)."""

    kind: str
    word: str = ""
    """The keyword before a group, in capitals."""
    parts: int = 0
    branch_parts: int = 0
    """Parts of the largest branch of the UNION whose branches are being read."""
    is_separate: bool = False
    is_free: bool = False
    """Whether every pattern here has a variable: that of its graph."""
    free_subject: bool = False
    free_verb: bool = False
    is_counted: bool = True
    """Whether the pattern that is being read counts for the join already; the two before: whether the patterns behind
    its ``;`` and ``,`` have a variable, too."""

    def begin_pattern(self, before: str) -> None:
        """A pattern begins behind this mark."""
        if before == ",":
            self.is_counted = self.is_free or self.free_subject or self.free_verb
            return
        if before != ";":
            self.free_subject = before == "["
        self.free_verb = False
        self.is_counted = self.is_free or self.free_subject


def check_plan(source: str, toks: Sequence[Token]) -> None:
    """Raise ``BadInput`` for a query, or one operation of an update, with more parts than the bounds. ``toks``: its
    tokens, without spaces and comments; ``source``: the text of which they are."""
    if len(toks) > JOIN_PARTS_MAX:  # a part has a token of its own
        _PlanCounter(source, toks).run()


def may_exceed_plan(text: str) -> bool:
    """Whether a text may have more parts than :data:`JOIN_PARTS_MAX`, without a look at its tokens. False is certain:
    a part begins after a mark, except in lists, and has two characters at least."""
    if len(text) <= 2 * JOIN_PARTS_MAX:
        return False
    return "(" in text or sum(map(text.count, "./|;,{}[^!")) >= JOIN_PARTS_MAX


class _PlanCounter:
    def __init__(self, source: str, toks: Sequence[Token]) -> None:
        self._source = source
        self._toks = toks
        self._stack = [_Frame("other")]
        self._total = 0
        self._in_clause = False
        self._in_values = False
        self._ends_expression = False
        """Whether the token before is the bracket that closes an expression."""

    def run(self) -> None:
        before = Token("END", "", 0)
        for at, token in enumerate(self._toks):
            kind, text = token.kind, token.text
            frame, ended = self._stack[-1], self._ends_expression
            self._ends_expression = False
            if kind == "WORD" and text not in ("a", "true", "false"):
                self._read_word(text.upper())
            elif kind == "MARK" and text in ("{", "(", "["):
                self._open(at, token, before, ended)
            elif kind == "MARK" and text in ("}", ")", "]"):
                self._close(text)
            elif self._is_part(frame, token, before, ended):
                self._begin(frame, token, before)
            else:
                self._continue(frame, token)
            before = token

    @staticmethod
    def _is_part(frame: _Frame, token: Token, before: Token, ended: bool) -> bool:
        """Whether a token that is no keyword and no bracket begins a part of the join."""
        is_first = ended or (before.kind == "MARK" and before.text in _BEFORE_TRIPLE)
        if token.kind == "MARK":
            return frame.kind == "group" and (token.text in ("/", "|") or (is_first and token.text in ("^", "!")))
        return frame.kind == "terms" or (frame.kind == "group" and is_first)

    def _read_word(self, word: str) -> None:
        if word.startswith("SELECT"):
            self._stack[-1].is_separate = self._stack[-1].kind == "group"
        if word.startswith(_CLAUSES):
            self._in_clause = True
        elif word == "VALUES":
            self._in_values = True
        elif word == "WHERE":
            self._in_clause = False

    def _open(self, at: int, token: Token, before: Token, ended: bool) -> None:
        frame = self._stack[-1]
        word = before.word
        if token.text == "{":
            if at > 1 and self._toks[at - 2].text.upper() == "GRAPH":
                word = "GRAPH"
            self._in_clause = False
            group = self._group(word)
            group.is_free = frame.is_free or (word == "GRAPH" and before.kind in _FREE)
            self._stack.append(group)
            return
        starts = ended or (before.kind == "MARK" and before.text in _BEFORE_TRIPLE)
        if frame.kind == "group" and starts:
            frame.begin_pattern(before.text if before.kind == "MARK" else "")
            frame.free_subject = frame.free_verb = frame.is_counted = True
            self._add(token)
        elif not self._is_expression(at, before):
            self._continue(frame, token)
        if token.text == "[":
            # A list of predicates and objects is read as a group is: its separators begin triples.
            kind = frame.kind if frame.kind in ("group", "other") else "group"
            self._stack.append(_Frame(kind, "[", is_free=True))
            return
        is_list = frame.kind == "terms" or (frame.kind == "group" and not self._is_expression(at, before))
        self._stack.append(_Frame("terms" if is_list else "other"))

    def _group(self, word: str) -> _Frame:
        if self._in_values:
            self._in_values = False
            return _Frame("other", "VALUES")
        if word in _TEMPLATES or (self._stack[-1].kind == "other" and self._stack[-1].word in _TEMPLATES):
            return _Frame("other", word or self._stack[-1].word)
        return _Frame("group", word, is_separate=word in _SEPARATE)

    def _is_expression(self, at: int, before: Token) -> bool:
        if self._in_clause or (before.kind == "WORD" and before.text != "a"):
            return True
        # `FILTER xsd:boolean(?x)`: a function, and no predicate.
        called = before.kind in ("IRI", "PNAME") and at > 1
        return called and self._toks[at - 2].text.upper() == "FILTER"

    def _close(self, text: str) -> None:
        if len(self._stack) == 1:
            return  # the parser says what is wrong
        frame = self._stack.pop()
        self._ends_expression = text == ")" and frame.kind == "other"
        around = self._stack[-1]
        if frame.kind != "group" and frame.kind != "terms":
            return
        parts = int(frame.word not in _SEPARATE) if frame.is_separate else frame.parts + (frame.word == "OPTIONAL")
        if frame.word == "UNION":
            parts, around.branch_parts = max(0, parts - around.branch_parts), max(parts, around.branch_parts)
        elif text == "}":
            around.branch_parts = parts
        around.parts += parts
        self._check(around, self._toks[-1])

    def _begin(self, frame: _Frame, token: Token, before: Token) -> None:
        if frame.kind != "group" or token.kind == "MARK":
            frame.is_counted = True
            self._add(token)
            return
        mark = before.text if before.kind == "MARK" else ""
        frame.begin_pattern(mark)
        if mark not in (",", ";") and token.kind in _FREE:
            frame.free_subject = True
        elif token.kind in _FREE:
            frame.free_verb = True
        if token.kind in _FREE:
            frame.is_counted = True
        self._add(token, int(frame.is_counted))

    def _continue(self, frame: _Frame, token: Token) -> None:
        """A token within a pattern: a variable, or the mark of a path, makes it count."""
        is_free = token.kind in _FREE or (token.kind == "MARK" and token.text not in (".", ";", ","))
        if frame.kind == "group" and is_free:
            frame.free_verb = True
            if not frame.is_counted:
                frame.is_counted = True
                frame.parts += 1
                self._check(frame, token)

    def _add(self, token: Token, parts: int = 1) -> None:
        self._total += 1
        self._stack[-1].parts += parts
        self._check(self._stack[-1], token)
        if self._total > PATTERNS_MAX:
            raise malformed_query(
                self._source,
                token.start,
                f"more than {PATTERNS_MAX} triple patterns and steps of paths in one operation; send several",
            )

    def _check(self, frame: _Frame, token: Token) -> None:
        if frame.parts > JOIN_PARTS_MAX:
            raise malformed_query(
                self._source,
                token.start,
                f"more than {JOIN_PARTS_MAX} triple patterns, steps of paths and OPTIONALs joined to one another; "
                "send several operations",
            )
