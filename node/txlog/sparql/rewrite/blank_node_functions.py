"""Functions that tell blank nodes from IRIs, for stores that hold a blank node as an IRI (``skolem_iris.py``).

A store finds an IRI where the client has a blank node, so its ``isBlank`` would be false and its ``STR`` would give a
name that the client never saw. The rewriter turns such calls into expressions that know the stored form:

================== ===============================================================================
``isBlank(E)``     true also for the IRI of a blank node
``isIRI``, isURI   false for it
``STR``, ``IRI``   an error for it, as for ``URI`` and the cast ``xsd:string``: a blank node has no text
``ORDER BY E``     one more key before it: blank nodes come before IRIs
``MIN``, ``MAX``   a blank node comes before any IRI, as in ``ORDER BY``
``GROUP_CONCAT``   an error for it
================== ===============================================================================

``DATATYPE``, ``LANG``, ``isLiteral``, ``isNumeric``, ``sameTerm``, ``=``, ``COUNT``, ``SAMPLE`` and string functions
give the same for an IRI and for a blank node. A text without the functions of the table is not scanned by token.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from txlog.model.errors import BadInput
from txlog.sparql.rewrite.total_order import skip_order_condition
from txlog.sparql.skolem_iris import SKOLEM_PREFIX
from txlog.sparql.terms import DEFAULT_PREFIXES, SYSTEM_GRAPHS
from txlog.sparql.tokens import Token, significant_tokens

GROWTH_CHARS: Final = 256 << 10
"""The most characters by which a text may grow: nested calls repeat their arguments."""

_XSD: Final = DEFAULT_PREFIXES["xsd"]
_STRING_CASTS: Final = ("xsd:string", f"<{_XSD}string>")
_MAY_CALL: Final = re.compile(
    r"\b(?:isblank|isiri|isuri|str|iri|uri|order|min|max|group_concat)\b|:string\b|#string\b", re.IGNORECASE
)
_TESTS: Final = ("ISBLANK", "ISIRI", "ISURI")
_TEXTS: Final = ("STR", "IRI", "URI")
_AGGREGATES: Final = ("MIN", "MAX", "GROUP_CONCAT")
_LOWEST_IRI: Final = "A:"
"""Comes before the IRIs that data has: IRIs are compared by their characters, and a scheme begins with a letter."""
_LITERAL_FUNCTIONS: Final = frozenset(
    word
    for line in (
        "STR LANG DATATYPE BOUND ABS CEIL FLOOR ROUND CONCAT STRLEN UCASE LCASE ENCODE_FOR_URI CONTAINS STRSTARTS",
        "STRENDS STRBEFORE STRAFTER YEAR MONTH DAY HOURS MINUTES SECONDS TIMEZONE TZ NOW STRUUID MD5 SHA1 SHA256",
        "SHA384 SHA512 STRLANG STRDT SAMETERM ISIRI ISURI ISBLANK ISLITERAL ISNUMERIC REGEX SUBSTR REPLACE",
        "LANGMATCHES RAND COUNT SUM AVG GROUP_CONCAT",
    )
    for word in line.split()
)
_DIRECTIONS: Final = ("ASC", "DESC")
_NEVER_STORED: Final = _LITERAL_FUNCTIONS | {"IRI", "URI", "UUID", "BNODE"}
"""No function of these gives the IRI of a blank node. (``BNODE`` makes a real one, which the stores know as such.)"""
_OPERATORS: Final = frozenset(("=", "!=", "<", ">", "<=", ">=", "&&", "||", "+", "-", "*", "/", "!"))
_BEFORE_CAST: Final = (_OPERATORS - {"!", "/"}) | {"(", ",", "FILTER", "BY", "HAVING"}
_GUARD_PATTERN: Final = '"^[A-Za-z][A-Za-z0-9+.-]*:"'
"""The first string in the guard that ``token_rewriter.py`` puts around the argument of ``IRI``."""
_BRACKETS: Final = {")": "(", "}": "{", "]": "["}


def tell_blank_nodes(text: str, *, ranked: bool = True) -> str:
    """The query or operation with these functions as the client means them. ``ranked``: with a further key in
    ``ORDER BY``; the keys of ``total_order.py`` rank by ``isIRI`` themselves. A text that does not parse is returned
    with its errors. Raises ``BadInput`` where nested calls would make it longer by :data:`GROWTH_CHARS`."""
    if not _MAY_CALL.search(text):
        return text
    toks = significant_tokens(text)
    if not toks:
        return text
    rewriter = _FunctionRewriter(text, toks, ranked)
    made = rewriter.rewrite(0, len(toks), 0, len(text))
    return made if rewriter.changed else text


def _stored(value: str) -> str:
    return f'isIRI({value})&&STRSTARTS(STR({value}),"{SKOLEM_PREFIX}")'


class _FunctionRewriter:
    def __init__(self, text: str, toks: Sequence[Token], ranked: bool) -> None:
        self._text, self._toks, self._ranked = text, toks, ranked
        self._ends = _matching_ends(toks)
        self._computed = self._literal_aliases()
        self.changed = False

    def rewrite(self, at: int, end: int, start: int, stop: int) -> str:
        """The text from ``start`` to ``stop``, in which the tokens ``at`` to ``end`` are."""
        pieces, last = list[str](), start
        toks = self._toks
        while at < end:
            token = toks[at]
            close = self._ends.get(at + 1, 0)
            if close and self._is_call(at) and not self._is_own_filter(close):
                write = self._write_aggregate if token.text.upper() in _AGGREGATES else self._write_call
                pieces += (self._text[last : token.start], write(at, close))
                at, last = close + 1, toks[close].end
                self._limit(pieces)
            elif self._ranked and token.word == "ORDER" and at + 1 < end and toks[at + 1].word == "BY":
                at += 2
                pieces.append(self._text[last : toks[at - 1].end])
                last = toks[at - 1].end
                while at < end and (after := skip_order_condition(toks, at)) > at:
                    stop_at = toks[after - 1].end
                    begin = at + (toks[at].word in _DIRECTIONS)
                    key = self.rewrite(begin, after, toks[begin].start, stop_at)
                    pieces += (self._rank(at, after, key), self._text[last : toks[begin].start], key)
                    at, last = after, stop_at
                    self._limit(pieces)
            else:
                at += 1
        return "".join([*pieces, self._text[last:stop]])

    def _limit(self, pieces: Sequence[str]) -> None:
        if sum(map(len, pieces)) > len(self._text) + GROWTH_CHARS:
            raise BadInput("MALFORMED QUERY: isBlank, isIRI, STR and IRI inside one another: BIND the inner ones first")

    def _is_call(self, at: int) -> bool:
        token = self._toks[at]
        if self._toks[at + 1].text != "(":
            return False
        if token.kind == "WORD":
            return token.text.upper() in (*_TESTS, *_TEXTS, *_AGGREGATES)
        before = self._toks[at - 1].text.upper() if at else ""
        return token.text in _STRING_CASTS and before in _BEFORE_CAST

    def _is_own_filter(self, close: int) -> bool:
        """Whether it is a filter of ours against system graphs: no blank node's name is one of theirs."""
        rest = self._toks[close + 1 : close + 3]
        return len(rest) == 2 and rest[0].text == "," and rest[1].text == f'"{SYSTEM_GRAPHS}"'

    def _is_guarded(self, at: int) -> bool:
        """Whether the argument at ``at`` is our own guard of ``IRI``, which asks for the argument's text first."""
        toks = self._toks
        return (
            toks[at].word in ("IRI", "URI")
            and toks[at + 2].word == "IF"
            and toks[at + 4].word == "REGEX"
            and any(token.text == _GUARD_PATTERN for token in toks[at + 4 : self._ends.get(at + 5, 0)])
        )

    def _write_aggregate(self, at: int, close: int) -> str:
        """An aggregate, from its name at ``at``. What engines do with an error in a group differs, so no member of a
        group becomes an error that would be none with blank nodes."""
        toks, text = self._toks, self._text
        begin = at + 2 + (toks[at + 2].word in ("DISTINCT", "ALL"))
        end, depth = begin, 0
        while end < close and (depth or toks[end].text != ";"):
            depth += (toks[end].text in _BRACKETS.values()) - (toks[end].text in _BRACKETS)
            end += 1
        if begin == end:
            return text[toks[at].start : toks[close].end]
        value = self.rewrite(begin, end, toks[begin].start, toks[end - 1].end)
        head, tail = text[toks[at].start : toks[begin].start], text[toks[end - 1].end : toks[close].end]
        if not self._may_be_blank(begin, end):
            return f"{head}{value}{tail}"
        self.changed = True
        if toks[at].word == "GROUP_CONCAT":
            tail = tail if end < close else f';SEPARATOR=" "{tail}'  # Virtuoso fails without one
            return f"{head}COALESCE(IF({_stored(value)},DATATYPE({value}),{value})){tail}"
        every = f"{head}{value}{tail}"
        if toks[at].word == "MIN":
            blanks = f"{head}IF({_stored(value)},{value},0){tail}"  # in Virtuoso, some strings come before IRIs
            return f"COALESCE(IF(isIRI({blanks}),{blanks},{every}))"
        others = f"{head}IF({_stored(value)},<{_LOWEST_IRI}>,{value}){tail}"
        return f'COALESCE(IF(isIRI({others})&&STR({others})="{_LOWEST_IRI}",{every},{others}))'

    def _write_call(self, at: int, close: int) -> str:
        inside = self.rewrite(at + 2, close, self._toks[at + 1].end, self._toks[close].start)
        name = self._toks[at].text
        if not self._may_be_blank(at + 2, close) or self._is_guarded(at):
            return f"{name}({inside})"
        self.changed = True
        word = name.upper()
        if word == "ISBLANK":
            return f"({name}({inside})||({_stored(inside)}))"
        if word in _TESTS:
            return f'({name}({inside})&&!STRSTARTS(STR({inside}),"{SKOLEM_PREFIX}"))'
        return f"COALESCE(IF({_stored(inside)},DATATYPE({inside}),{name}({inside})))"

    def _rank(self, at: int, end: int, key: str) -> str:
        """A condition before the one from ``at`` to ``end``, false for blank nodes; "" where it cannot be one. ``key``:
        its expression, rewritten."""
        direction = self._toks[at].word
        direction = direction if direction in _DIRECTIONS else ""
        if not self._may_be_blank(at + 1 if direction else at, end):
            return ""
        self.changed = True
        return f" {direction or 'ASC'}(!(isBlank({key})||({_stored(key)})))"

    def _may_be_blank(self, at: int, end: int) -> bool:
        """Whether the expression of these tokens may be the IRI of a blank node."""
        toks = self._toks
        while end - at > 1 and toks[at].text == "(" and self._ends.get(at) == end - 1:
            at, end = at + 1, end - 1
        if end <= at:
            return False
        first = toks[at]
        if end - at == 1:
            if first.kind == "VARIABLE":
                return first.text[1:] not in self._computed
            return first.kind == "IRI" and first.text.startswith(f"<{SKOLEM_PREFIX}")
        if first.word in ("EXISTS", "NOT"):
            return False
        if first.kind == "STRING" and (toks[at + 1].kind == "LANGUAGE" or toks[at + 1].text == "^^") and end - at < 4:
            return False
        if self._ends.get(at + 1) == end - 1:
            if first.kind == "WORD":
                return first.text.upper() not in _NEVER_STORED
            return not first.text.startswith(("xsd:", f"<{_XSD}"))
        depth = 0
        for token in toks[at:end]:
            depth += (token.text in _BRACKETS.values()) - (token.text in _BRACKETS)
            if not depth and token.kind == "MARK" and token.text in _OPERATORS:
                return False
        return True

    def _literal_aliases(self) -> frozenset[str]:
        """The variables that hold the value of a function that returns literals: ``(COUNT(?x) AS ?n)``. None that a
        group has, too: it may be another one there."""
        starts = {close: opened for opened, close in self._ends.items()}
        found = set[str]()
        for at, token in enumerate(self._toks[:-1]):
            if token.word != "AS" or self._toks[at + 1].kind != "VARIABLE" or at - 1 not in starts:
                continue
            function = starts[at - 1] - 1
            opened = self._toks[function - 1].text if function > 0 else ""
            if opened == "(" and self._toks[function].word in _LITERAL_FUNCTIONS:
                found.add(self._toks[at + 1].text[1:])
        depth = 0
        for token in self._toks:
            depth += (token.text == "{") - (token.text == "}")
            if depth and token.kind == "VARIABLE":
                found.discard(token.text[1:])
        return frozenset(found)


def _matching_ends(toks: Sequence[Token]) -> dict[int, int]:
    """The index of the bracket that closes each, by the index of the one that opens; empty where they do not match."""
    found, opened = dict[int, int](), list[int]()
    for at, token in enumerate(toks):
        if token.kind != "MARK":
            continue
        if token.text in _BRACKETS.values():
            opened.append(at)
        elif token.text in _BRACKETS:
            if not opened or toks[opened[-1]].text != _BRACKETS[token.text]:
                return {}
            found[opened.pop()] = at
    return found if not opened else {}
