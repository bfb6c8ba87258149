"""SPARQL for a copy that keeps literals in the form in which they were sent (:mod:`.literal_forms`).

Oxigraph stores ``01`` as ``1``. So such a copy holds ``01`` under a datatype that Oxigraph does not know, and
:class:`FormRewriter` writes a query or an update for it:

- A constant in a pattern, a template or ``VALUES`` gets that datatype, too.
- An expression compares and computes with values, so each of its terms goes through the function :data:`VALUE`. The
  arguments of ``STR``, ``sameTerm``, ``COUNT`` and the like are terms, and stay. ``COALESCE`` and the branches of
  ``IF`` give a term, which an expression around them takes as a value.
- ``DATATYPE`` becomes the function :data:`DATATYPE`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, NamedTuple

from txlog.sparql.terms import DEFAULT_PREFIXES
from txlog.sparql.tokens import Edit, Token, apply_edits, significant_tokens, tokens

VALUE: Final = "urn:txlog:value"
"""The function that gives a literal its own datatype again."""
DATATYPE: Final = "urn:txlog:datatype"
"""The function that gives the datatype of a literal as it was sent."""
_TERM_ARGUMENTS: Final = (
    *("STR", "SAMETERM", "BOUND", "COUNT", "SAMPLE", "GROUP_CONCAT", "DATATYPE", "COALESCE"),
    *("ISIRI", "ISURI", "ISBLANK", "ISLITERAL", "ISTRIPLE"),
)
"""Functions that take terms as they are: the form counts, or only the kind of the term."""
_TERM_RESULTS: Final = ("COALESCE", "IF", "SAMPLE")
_OPENS_EXPRESSION: Final = ("FILTER", "BIND", "HAVING", "ASC", "DESC", "BY", "IN", "SELECT", "DISTINCT", "REDUCED")
_EXPRESSION_CLAUSES: Final = ("SELECT", "GROUP", "ORDER", "HAVING")
"""Clauses in which a bracket or a call outside patterns is an expression."""
_CALLS: Final = ("WORD", "IRI", "PNAME")
_XSD: Final = DEFAULT_PREFIXES["xsd"]
_SIMPLE: Final = re.compile(r"""[^"'\\\r\n]*""")


class _Frame(NamedTuple):
    """An open bracket. ``call``: the name of the function whose arguments it holds, in capitals. ``closing``: what its
    end is followed by. ``commas``: those of the call so far. ``modifier``: the clause that it interrupts."""

    mark: str
    is_expression: bool = False
    call: str = ""
    closing: str = ""
    commas: int = 0
    modifier: str = ""


class FormRewriter:
    """One text. ``encode``: the form in which the copy holds a literal (value and datatype, in N-Triples); None for one
    that it holds as it is. :attr:`has_constants`: whether a constant was encoded."""

    def __init__(self, text: str, encode: Callable[[str, str], str | None]) -> None:
        self._text = text
        self._encode = encode
        self._tokens = significant_tokens(text)
        self._prefixes = self._read_prefixes()
        self._edits: list[Edit] = []
        self._frames: list[_Frame] = []
        self._modifier = ""
        self.has_constants = False

    def rewrite(self) -> str:
        """The text for the copy."""
        for at, token in enumerate(self._tokens):
            self._take(at, token)
        return apply_edits(self._text, self._edits)

    def _read_prefixes(self) -> dict[str, str]:
        toks = self._tokens
        return {
            name.text: iri.text[1:-1]
            for word, name, iri in zip(toks, toks[1:], toks[2:], strict=False)
            if word.kind == "WORD" and word.text.upper() == "PREFIX" and name.kind == "PNAME" and iri.kind == "IRI"
        }

    def _take(self, at: int, token: Token) -> None:
        if token.kind == "MARK":
            self._take_mark(at, token)
        elif token.kind == "WORD":
            self._take_word(at, token)
        elif token.kind == "VARIABLE":
            if self._takes_value(at):
                self._wrap(token.start, token.end)
        elif token.kind in ("STRING", "NUMBER") and not self._is_computed():
            self._take_constant(at, token)

    def _take_word(self, at: int, token: Token) -> None:
        word = token.text.upper()
        if self._frame.is_expression:
            return
        if word == "BY":
            self._modifier = self._word(at - 1)
        elif word in ("SELECT", "HAVING", "VALUES", "LIMIT", "OFFSET", "WHERE", "FROM"):
            self._modifier = word

    def _take_mark(self, at: int, token: Token) -> None:
        mark = token.text
        if mark in ("{", "["):
            self._frames.append(_Frame(mark, modifier=self._modifier))
            self._modifier = ""
        elif mark == "(":
            self._frames.append(self._opened(at, token))
        elif mark in ("}", ")", "]") and self._frames:
            frame = self._frames.pop()
            if frame.closing:
                self._edits.append((token.start + 1, token.start + 1, frame.closing))
            if mark != ")":
                self._modifier = frame.modifier
        elif mark == "," and self._frames:
            self._frames[-1] = self._frame._replace(commas=self._frame.commas + 1)

    def _opened(self, at: int, token: Token) -> _Frame:
        before, word = self._at(at - 1), self._word(at - 1)
        inside = self._frame.is_expression
        called = before.kind in _CALLS and word not in (*_OPENS_EXPRESSION, "NOT", "AS")
        if called and not inside:
            # A call that is a condition by itself: FILTER regex(...), HAVING and ORDER BY are followed by it, too.
            called = self._word(at - 2) in _OPENS_EXPRESSION or (bool(self._modifier) and self._modifier != "VALUES")
        if not called:
            return _Frame("(", inside or word in _OPENS_EXPRESSION or self._modifier in _EXPRESSION_CLAUSES)
        name = word or before.text
        if before.kind != "WORD" and self._iri(before) == f"{_XSD}string":
            name = "STR"  # the cast gives the same
        closing = ""
        if name == "DATATYPE":
            self._edits.append((before.start, before.end, f"<{DATATYPE}>"))
        elif name in _TERM_RESULTS and self._takes_value(at - 1, last=self._closing_bracket(at)):
            self._edits.append((before.start, before.start, f"<{VALUE}>("))
            closing = ")"
        return _Frame("(", True, name, closing)

    def _closing_bracket(self, at: int) -> int:
        depth = 0
        for number in range(at, len(self._tokens)):
            depth += {"(": 1, ")": -1}.get(self._tokens[number].text, 0)
            if not depth:
                return number
        return len(self._tokens) - 1

    def _is_computed(self) -> bool:
        """Whether a constant here is a value of an expression."""
        frame = self._frame
        return frame.is_expression and frame.call != "SAMETERM"

    def _takes_value(self, at: int, last: int | None = None) -> bool:
        """Whether the expression takes the value of the term from token ``at`` to ``last``, not the term itself."""
        frame = self._frame
        if not frame.is_expression:
            return self._modifier == "ORDER" and frame.mark != "("
        after = at if last is None else last
        if self._word(at - 1) == "AS" or (self._word(after + 1) == "AS" and self._at(at - 1).text == "("):
            return False  # a name, or the whole of what gets a name
        if frame.call == "IF":
            return frame.commas == 0 or not self._is_whole_argument(at, last)
        return frame.call not in _TERM_ARGUMENTS or not self._is_whole_argument(at, last)

    def _is_whole_argument(self, at: int, last: int | None) -> bool:
        before, after = self._at(at - 1), self._at((at if last is None else last) + 1)
        return (before.text in ("(", ",") or before.text.upper() == "DISTINCT") and after.text in (")", ",", ";")

    def _wrap(self, start: int, stop: int) -> None:
        self._edits.append((start, start, f"<{VALUE}>("))
        self._edits.append((stop, stop, ")"))

    def _take_constant(self, at: int, token: Token) -> None:
        if self._word(at - 1) in ("LIMIT", "OFFSET"):
            return
        start, stop = token.start, token.end
        if token.kind == "NUMBER":
            value = token.text
            sign = self._at(at - 1)
            if sign.text in ("-", "+") and sign.start + 1 == start:
                start, value = sign.start, sign.text + value
            kind = "double" if "e" in value.lower() else "decimal" if "." in value else "integer"
            datatype = _XSD + kind
        else:
            value, kind_token = token.text.strip(token.text[0]), self._at(at + 2)
            if self._at(at + 1).text != "^^" or not _SIMPLE.fullmatch(value):
                return
            datatype, stop = self._iri(kind_token), kind_token.end
        if encoded := self._encode(value, datatype):
            self.has_constants = True
            self._edits.append((start, stop, encoded))

    def _iri(self, token: Token) -> str:
        if token.kind == "IRI":
            return token.text[1:-1]
        prefix, _, local = token.text.partition(":")
        return self._prefixes.get(f"{prefix}:", DEFAULT_PREFIXES.get(prefix, "")) + local

    @property
    def _frame(self) -> _Frame:
        return self._frames[-1] if self._frames else _NO_FRAME

    def _at(self, at: int) -> Token:
        return self._tokens[at] if 0 <= at < len(self._tokens) else _NO_TOKEN

    def _word(self, at: int) -> str:
        return self._at(at).word


_NO_FRAME: Final = _Frame("")
_NO_TOKEN: Final = Token("END", "", -1)


def may_compute(text: str) -> bool:
    """Whether an update may write a value that it computes, so that its form is that of the engine."""
    return any(token.kind == "WORD" and token.text.upper() in ("AS", "BIND") for token in tokens(text))
