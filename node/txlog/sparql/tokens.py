"""SPARQL's tokens, by one compiled regular expression.

Every character belongs to exactly one token, so the concatenated texts of the tokens are the input. Text that no rule
matches is of kind ``ERROR``: one character, all the rest after a quote that nothing closes, or all of a word that is
too long or begins beyond ASCII. So, and because the groups are possessive, the time is linear.

Every possessive group ends with an empty alternative, here and everywhere in the project. Before Python 3.11.5 the last
iteration of a group, the one that fails, could leave the match position moved on (CPython's gh-106052). An alternative
that matches nothing resets it.

Source: SPARQL 1.1 Query Language, section 19.8 (productions 139 to 173). TxLog differs in two points. A sign is a token
of its own (the grammar distinguishes ``?a-1`` and ``-1``). A code point escape outside strings and IRIs is an
``ERROR``: workers disagree about it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from txlog.model.errors import BadInput

_BASE = (
    "A-Za-z\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u02ff\u0370-\u037d\u037f-\u1fff\u200c-\u200d\u2070-\u218f"
    "\u2c00-\u2fef\u3001-\ud7ff\uf900-\ufdcf\ufdf0-\ufffd\U00010000-\U000effff"
)
_U = _BASE + "_"
_CHARS = _U + "0-9\u00b7\u0300-\u036f\u203f-\u2040\\-"
_LOCAL = rf"(?:[{_CHARS}:]|%[0-9A-Fa-f]{{2}}|\\[_~.\-!$&'()*+,;=/?#@%])"
PREFIX_DOTS_MAX: Final = 16
"""Runs of dots inside a prefix: the search for a colon scans words with dots between them at most so often."""
WORD_MAX: Final = 255
"""Characters of a word that is no prefix. Longer words do not exist in SPARQL, and the scanner would search each part
of them (``a-a-a``) for a colon."""
_DOTS_INSIDE = r"\.++(?={})"

SPACE = r"[ \t\r\n]++"
COMMENT = r"\#[^\r\n]*+"
IRI = r"""<(?:[^<>"{}|^`\\\x00-\x20]++|\\u[0-9A-Fa-f]{4}|\\U[0-9A-Fa-f]{8}|)*+>"""
STRING = (
    r'"""(?:[^"\\]++|\\.|"(?!"")|)*+"""'
    r"|'''(?:[^'\\]++|\\.|'(?!'')|)*+'''"
    r'|"(?!"")(?:[^"\\\r\n]++|\\.|)*+"|""(?!")'
    r"|'(?!'')(?:[^'\\\r\n]++|\\.|)*+'|''(?!')"
)
BLANK = rf"_:[{_U}0-9](?:[{_CHARS}]|{_DOTS_INSIDE.format(f'[{_CHARS}]')}|)*+"
_PREFIX = rf"(?:[{_BASE}][{_CHARS}]*+(?:{_DOTS_INSIDE.format(f'[{_CHARS}]')}[{_CHARS}]++|){{0,{PREFIX_DOTS_MAX}}}+|)?+:"
PNAME = (
    rf"{_PREFIX}(?:(?!-|\u00b7|[\u0300-\u036f\u203f-\u2040]){_LOCAL}(?:{_LOCAL}|{_DOTS_INSIDE.format(_LOCAL)}|)*+|)?+"
)
VARIABLE = rf"[?$][{_U}0-9](?:(?!-)[{_CHARS}]|)*+"
LANGUAGE = r"@[A-Za-z]++(?:-++[A-Za-z0-9]++|)*+"
NUMBER = r"(?:[0-9]++\.[0-9]*+|\.?[0-9]++)[eE][+-]?[0-9]++|[0-9]*+\.[0-9]++|[0-9]++"
WORD = rf"(?![{_CHARS}]{{{WORD_MAX + 1}}})[A-Za-z][A-Za-z0-9_]*+"
MARK = r"\^\^|&&|\|\||!=|<=|>=|\{\||\|\}|<<\(?|\)?>>|[{}()\[\];,.*/|^?+\-!=<>~]"

_RULES: Final = (
    ("SPACE", SPACE),
    ("IRI", IRI),
    ("VARIABLE", VARIABLE),
    ("BLANK", BLANK),
    ("PNAME", PNAME),
    ("WORD", WORD),
    ("STRING", STRING),
    ("NUMBER", NUMBER),
    ("MARK", MARK),
    ("LANGUAGE", LANGUAGE),
    ("COMMENT", COMMENT),
    ("ERROR", rf"""["'].*+|[{_BASE}][{_CHARS}]*+|."""),
)
_TRIVIA: Final = ("SPACE", "COMMENT")
TOKEN: Final = re.compile("|".join(f"(?P<{name}>{rule})" for name, rule in _RULES), re.DOTALL)


class Token(NamedTuple):
    """A token. ``start`` is its offset in the scanned text, in characters."""

    kind: str
    text: str
    start: int

    @property
    def end(self) -> int:
        """The offset after it."""
        return self.start + len(self.text)

    @property
    def word(self) -> str:
        """The word in capitals; empty for a token that is no word."""
        return self.text.upper() if self.kind == "WORD" else ""


def tokens(text: str) -> list[Token]:
    """All tokens of ``text``, comments and spaces too. Never fails; see kind ``ERROR``."""
    make = Token._make
    return [make((m.lastgroup or "", m[0], m.start())) for m in TOKEN.finditer(text)]


def significant_tokens(text: str) -> list[Token]:
    """The tokens of ``text`` without comments and spaces."""
    make = Token._make
    return [make((m.lastgroup or "", m[0], m.start())) for m in TOKEN.finditer(text) if m.lastgroup not in _TRIVIA]


def tokens_by_operation(update: str) -> Iterator[list[Token]]:
    """The significant tokens of each operation of an update. A long update is never a list of tokens at once."""
    operation: list[Token] = []
    depth = 0
    for match in TOKEN.finditer(update):
        kind = match.lastgroup or ""
        if kind in _TRIVIA:
            continue
        if kind == "MARK":
            depth += {"{": 1, "}": -1}.get(match[0], 0)
            if match[0] == ";" and not depth:
                if operation:
                    yield operation
                operation = []
                continue
        operation.append(Token(kind, match[0], match.start()))
    if operation:
        yield operation


END: Final = Token("END", "", -1)


class UnsupportedPattern(Exception):
    """A text of which the reader does not know the form, or that plain SPARQL cannot express."""


class TokenCursor:
    """Access to significant tokens by index; an index after the last token gives ``end``."""

    def __init__(self, toks: Sequence[Token], end: Token = END) -> None:
        self._toks = toks
        self._end = end

    def _token_at(self, at: int) -> Token:
        return self._toks[at] if at < len(self._toks) else self._end

    def _word_at(self, at: int) -> str:
        """The word at an index, in capitals; empty for a token that is no word."""
        return self._token_at(at).word

    def _mark_at(self, at: int) -> str:
        token = self._token_at(at)
        return token.text if token.kind == "MARK" else ""

    def _next(self, at: int) -> int:
        """The index after a token. Raises :class:`UnsupportedPattern` after the last one, as the next two do."""
        if self._token_at(at) is self._end:
            raise UnsupportedPattern("the end")
        return at + 1

    def _skip_to(self, at: int, *marks: str) -> int:
        """The index of the first of these marks."""
        while self._mark_at(at) not in marks:
            at = self._next(at)
        return at

    def _after_bracket(self, at: int, opens: str = "{", closes: str = "}") -> int:
        """The index after the bracket that closes the one at ``at``."""
        depth = 0
        while True:
            depth += (self._mark_at(at) == opens) - (self._mark_at(at) == closes)
            at = self._next(at)
            if not depth:
                return at

    def _after_expression(self, at: int, read_group: Callable[[int], int]) -> int:
        """The index after the parenthesis that closes the one at ``at``. ``read_group``: gives the index after a group,
        which is one of EXISTS."""
        depth = 0
        while True:
            mark = self._mark_at(at)
            if mark == "{":
                at = read_group(at)
                continue
            depth += _PARENTHESES.get(mark, 0)
            at = self._next(at)
            if not depth:
                return at

    def _rewrite_expression(
        self, text: str, at: int, rewrite_group: Callable[[int], tuple[str, int]]
    ) -> tuple[str, int]:
        """The part of ``text`` in parentheses at ``at``, and the index after it. ``rewrite_group``: gives the new text
        of a group, which is one of EXISTS, and the index after it."""
        parts, copied = list[str](), self._token_at(at).start

        def read_group(begin: int) -> int:
            nonlocal copied
            new, end = rewrite_group(begin)
            parts.extend((text[copied : self._token_at(begin).start], new))
            copied = self._token_at(end - 1).end
            return end

        at = self._after_expression(at, read_group)
        return "".join([*parts, text[copied : self._token_at(at - 1).end]]), at


_PARENTHESES: Final = {"(": 1, "<<(": 1, ")": -1, ")>>": -1}


def word_at(toks: Sequence[Token], at: int) -> str:
    """The word at an index, in capitals; empty for a token that is no word, and after the last one."""
    return toks[at].word if at < len(toks) else ""


def closing_index(toks: Sequence[Token], at: int, opens: str = "{", closes: str = "}") -> int:
    """The index of the bracket that closes the one at ``at``; that after the last token where nothing does."""
    depth = 0
    for index in range(at, len(toks)):
        if toks[index].kind == "MARK":
            depth += (toks[index].text == opens) - (toks[index].text == closes)
        if not depth:
            return index
    return len(toks)


Edit = tuple[int, int, str]
"""Start offset, end offset, and the replacement text."""


def apply_edits(text: str, edits: Iterable[Edit], begin: int = 0, end: int | None = None) -> str:
    """The part of the text from ``begin`` to ``end``, edited. Edits do not overlap; edits at one offset keep their
    order."""
    pieces, last = list[str](), begin
    for start, stop, instead in sorted(edits, key=lambda edit: edit[:2]):
        pieces += (text[last:start], instead)
        last = stop
    return "".join([*pieces, text[last:end]])


def line_column(text: str, offset: int) -> str:
    """``line:column`` of an offset, both from 1, columns counted in characters."""
    return f"{text.count(chr(10), 0, offset) + 1}:{offset - text.rfind(chr(10), 0, offset)}"


def malformed_query(text: str, offset: int, why: str) -> BadInput:
    """RDF4J's error for a text that is no SPARQL, with line and column."""
    return BadInput(f"MALFORMED QUERY: error at {line_column(text, offset)}: {why}")


def bad_token_error(text: str, token: Token) -> BadInput:
    """The error for a token of kind ``ERROR``."""
    found = token.text[0]
    if found == "\\":
        why = "a backslash stands outside strings and IRIs; write the character itself"
    elif found in "\"'":
        why = "a string is opened and not closed"
    elif found.isspace() or not found.isprintable():
        why = f"U+{ord(found):04X} is no space of SPARQL; use a plain space"
    elif len(token.text) > WORD_MAX:
        why = f"a word of {len(token.text)} characters that is no prefixed name"
    else:
        why = f"unexpected {found}"
    return malformed_query(text, token.start, why)
