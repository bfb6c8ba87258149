"""Reifiers of SPARQL 1.2 in the templates and patterns of updates, written in full.

=================== ==========================================================
``<< s p o ~ r >>`` ``r``, and ``r rdf:reifies <<( s p o )>>`` before it
``s p o ~ r``       ``s p o``, and the same before it
``s p o {| q z |}`` ``s p o``, and the same with ``r q z`` before it
=================== ==========================================================

A reifier without a name is a blank node. In the template of an ``INSERT`` each solution has another one, so such an
update is evaluated once, as with any blank node there. Data (``INSERT DATA``) is read by a parser of TriG.

Source: SPARQL 1.2 Query Language, section 4.3; RDF 1.2 Turtle, section 2.10.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from typing import Final, NamedTuple

from txlog.model.errors import BadInput
from txlog.sparql.tokens import TokenCursor, UnsupportedPattern, line_column, significant_tokens

GROWTH_CHARS: Final = 1 << 20
"""The most characters by which a text may grow: each reifier repeats its triple."""
DEPTH_MAX: Final = 64
"""Groups and terms inside one another. A deeper text stays as it is; the rewriter refuses it."""
_MAY_HOLD: Final = re.compile(r"<<(?!\()|\{\||~")
_MARKS: Final = frozenset(("<<", "{|", "~"))
_PLACE: Final = re.compile(r"error at (\d+):(\d+)")
_REIFIES: Final = "<http://www.w3.org/1999/02/22-rdf-syntax-ns#reifies>"
_NAMES: Final = ("VARIABLE", "IRI", "PNAME")
_SIMPLE_TERMS: Final = (*_NAMES, "BLANK", "NUMBER")
_CLOSES: Final = {"{": "}", "(": ")", "<<(": ")>>"}


class ExpandedUpdate(NamedTuple):
    """An update with its reifiers written in full."""

    text: str
    source: str
    pieces: tuple[tuple[int, int, bool], ...] = ()
    """Of each piece: its offset in ``text``, that of its origin in ``source``, and whether it is a copy."""

    def at_source(self, error: BadInput) -> BadInput:
        """The error with the place in ``source`` for one in ``text``."""
        found = _PLACE.search(str(error))
        if not self.pieces or found is None or type(error) is not BadInput:
            return error
        lines = self.text.split("\n")[: int(found[1]) - 1]
        at = sum(len(line) + 1 for line in lines) + int(found[2]) - 1
        made, origin, is_copy = self.pieces[bisect_right(self.pieces, at, key=lambda piece: piece[0]) - 1]
        place = line_column(self.source, origin + (at - made if is_copy else 0))
        return BadInput(str(error).replace(found[0], f"error at {place}", 1))


def expand_reifiers(text: str) -> ExpandedUpdate:
    """The update with its reifiers written in full. A text that does not parse stays: the parser after this one tells
    its errors. Raises ``BadInput`` where it would grow by :data:`GROWTH_CHARS`."""
    if not _MAY_HOLD.search(text):
        return ExpandedUpdate(text, text)
    try:
        return _Expander(text).expand()
    except UnsupportedPattern:
        return ExpandedUpdate(text, text)


class _Expander(TokenCursor):
    def __init__(self, text: str) -> None:
        toks = significant_tokens(text)
        super().__init__(toks)
        self._text = text
        self._at = 0
        self._depth = 0
        self._added = 0
        """The characters of the triples for reifiers and for what has no name."""
        self._written = list[str]()
        self._length = 0
        self._pieces = list[tuple[int, int, bool]]()
        self._copied = 0
        """The offset up to which the text is written."""
        self._label_count = 0
        self._label_prefix = "_:reifier"
        while any(token.kind == "BLANK" and token.text.startswith(self._label_prefix) for token in toks):
            self._label_prefix += "x"

    def expand(self) -> ExpandedUpdate:
        while self._at < len(self._toks):
            if self._word() in ("INSERT", "DELETE") and self._word_at(self._at + 1) == "DATA":
                self._at += 2
                self._skip_balanced("{")
            elif self._mark() == "{":
                self._read_group()
            else:
                self._at += 1
        self._write(self._text[self._copied :], self._copied, is_copy=True)
        return ExpandedUpdate("".join(self._written), self._text, tuple(self._pieces))

    def _write(self, made: str, origin: int, *, is_copy: bool) -> None:
        self._pieces.append((self._length, origin, is_copy))
        self._written.append(made)
        self._length += len(made)

    def _add(self, extras: list[str], triple: str) -> None:
        extras.append(triple)
        self._added += len(triple)
        if self._added > len(self._text) + GROWTH_CHARS:
            raise BadInput("MALFORMED QUERY: reifiers repeat too much; name the triples with shorter terms")

    # -- groups

    def _read_group(self) -> None:
        self._enter()
        self._expect("{")
        while self._mark() != "}":
            self._read_element()
        self._at += 1
        self._depth -= 1

    def _read_element(self) -> None:
        mark, word = self._mark(), self._word()
        if mark == "{":
            self._read_group()
        elif mark == ".":
            self._at += 1
        elif word == "FILTER":
            self._at += 1
            self._read_constraint()
        elif word in ("BIND", "GRAPH", "OPTIONAL", "UNION", "MINUS", "WHERE"):
            self._at += 2 if word == "GRAPH" else 1
            if word == "BIND":
                self._read_parentheses()
        elif word == "VALUES":
            self._at = self._skip_to(self._at, "{")
            self._skip_balanced("{")
        elif word == "SELECT":
            self._read_select()
        else:
            self._read_statement()

    def _read_select(self) -> None:
        while self._mark() != "{":
            self._read_parentheses() if self._mark() == "(" else self._advance()
        self._read_group()
        while self._mark() != "}":
            if self._mark() == "(":
                self._read_parentheses()
            elif self._mark() == "{":
                self._skip_balanced("{")
            else:
                self._advance()

    def _read_constraint(self) -> None:
        if self._word() == "NOT":
            self._at += 1
        if self._word() == "EXISTS":
            self._at += 1
            self._read_group()
            return
        if self._mark() != "(":
            self._advance()
        self._read_parentheses()

    def _read_parentheses(self) -> None:
        """An expression in parentheses."""
        if self._mark() != "(":
            raise UnsupportedPattern
        self._at = self._after_expression(self._at, self._read_exists)

    def _read_exists(self, at: int) -> int:
        self._at = at
        self._read_group()
        return self._at

    # -- statements

    def _read_statement(self) -> None:
        """A subject with what is said of it. With a reifier in it, it is written again, after the triples that the
        reifiers stand for."""
        first, extras = self._at, list[str]()
        anonymous = self._mark() in ("<<", "[")
        subject = self._term(extras)
        main = [] if anonymous else [subject]
        if self._begins_verb():
            main = [f"{subject} {self._properties(subject, extras)}"]
        read = self._toks[first : self._at]
        if not any(token.kind == "MARK" and token.text in _MARKS for token in read):
            return
        begin, end = read[0].start, read[-1].end
        self._write(self._text[self._copied : begin], self._copied, is_copy=True)
        self._write(" . ".join([*extras, *main]), begin, is_copy=False)
        self._copied = end

    def _properties(self, subject: str, extras: list[str]) -> str:
        parts = list[str]()
        while True:
            first = self._at
            verb = self._verb()
            objects = [self._object(subject, verb, self._at == first + 1, extras)]
            while self._mark() == ",":
                self._at += 1
                objects.append(self._object(subject, verb, self._at == first + 1, extras))
            parts.append(f"{verb} {' , '.join(objects)}")
            again = self._mark() == ";"
            while self._mark() == ";":
                self._at += 1
            if not again or not self._begins_verb():
                return " ; ".join(parts)

    def _object(self, subject: str, verb: str, is_simple: bool, extras: list[str]) -> str:
        """An object, with its annotations."""
        value = self._term(extras)
        reifier = ""
        while self._mark() in ("~", "{|"):
            if not is_simple or subject.startswith("(") or value.startswith("("):
                raise UnsupportedPattern
            named = self._mark() == "~"
            self._at += 1
            if named or not reifier:
                reifier = self._reifier() if named else self._label()
                self._add(extras, f"{reifier} {_REIFIES} <<( {subject} {verb} {value} )>>")
            if not named:
                self._enter()
                self._add(extras, f"{reifier} {self._properties(reifier, extras)}")
                self._expect("|}")
                self._depth -= 1
                reifier = ""
        return value

    def _begins_verb(self) -> bool:
        token = self._token_at(self._at)
        return token.kind in _NAMES or token.text == "a" or self._mark() in ("^", "!", "(")

    def _verb(self) -> str:
        """A verb or a property path, as it is in the text."""
        first = self._token_at(self._at).start
        while True:
            while self._mark() in ("^", "!"):
                self._at += 1
            if self._mark() == "(":
                self._skip_balanced("(")
            elif self._token_at(self._at).kind in _NAMES or self._token_at(self._at).text == "a":
                self._at += 1
            else:
                raise UnsupportedPattern
            while self._mark() in ("*", "+", "?"):
                self._at += 1
            if self._mark() not in ("/", "|"):
                break
            self._at += 1
        last = self._token_at(self._at - 1)
        return self._text[first : last.end]

    def _term(self, extras: list[str]) -> str:
        self._enter()
        made = self._term_inside(extras)
        self._depth -= 1
        return made

    def _term_inside(self, extras: list[str]) -> str:
        token, mark, first = self._token_at(self._at), self._mark(), self._at
        if mark == "<<":
            return self._reified(extras)
        if mark == "<<(":
            self._skip_balanced("<<(")
        elif mark == "[":
            self._at += 1
            label = self._label()
            if self._mark() != "]":
                self._add(extras, f"{label} {self._properties(label, extras)}")
            self._expect("]")
            return label
        elif mark == "(":
            self._at += 1
            items = list[str]()
            while self._mark() != ")":
                items.append(self._term(extras))
            self._at += 1
            return f"( {' '.join(items)} )"
        elif mark in ("+", "-") and self._token_at(self._at + 1).kind == "NUMBER":
            self._at += 2
        elif token.kind == "STRING":
            self._at += 1
            if self._token_at(self._at).kind == "LANGUAGE":
                self._at += 1
            elif self._mark() == "^^":
                self._at += 2
        elif token.kind in _SIMPLE_TERMS or self._word() in ("TRUE", "FALSE"):
            self._at += 1
        else:
            raise UnsupportedPattern
        last = self._token_at(self._at - 1)
        return self._text[self._token_at(first).start : last.end]

    def _reified(self, extras: list[str]) -> str:
        self._at += 1
        subject = self._member(extras)
        if self._token_at(self._at).kind not in _NAMES and self._token_at(self._at).text != "a":
            raise UnsupportedPattern
        verb = self._token_at(self._at).text
        self._at += 1
        value = self._member(extras)
        named = self._mark() == "~"
        self._at += named
        reifier = self._reifier() if named else self._label()
        self._expect(">>")
        self._add(extras, f"{reifier} {_REIFIES} <<( {subject} {verb} {value} )>>")
        return reifier

    def _member(self, extras: list[str]) -> str:
        """The subject or the object of a reified triple, which is no list and has no properties."""
        if self._mark() == "(" or (self._mark() == "[" and self._mark_at(self._at + 1) != "]"):
            raise UnsupportedPattern
        return self._term(extras)

    def _reifier(self) -> str:
        """The name after ``~``, or one for a blank node."""
        token = self._token_at(self._at)
        if token.kind in (*_NAMES, "BLANK"):
            self._at += 1
            return token.text
        if self._mark() == "[":
            self._at += 1
            self._expect("]")
        return self._label()

    def _label(self) -> str:
        self._label_count += 1
        return f"{self._label_prefix}{self._label_count}"

    # -- the place in the text

    def _mark(self) -> str:
        return self._mark_at(self._at)

    def _word(self) -> str:
        return self._word_at(self._at)

    def _advance(self) -> None:
        self._at = self._next(self._at)

    def _expect(self, mark: str) -> None:
        if self._mark() != mark:
            raise UnsupportedPattern
        self._at += 1

    def _enter(self) -> None:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise UnsupportedPattern

    def _skip_balanced(self, opened: str) -> None:
        if self._mark() != opened:
            raise UnsupportedPattern
        self._at = self._after_bracket(self._at, opened, _CLOSES[opened])
