"""Rewrites ``ORDER BY`` so that it cannot end the store's process.

Oxigraph 0.5 sorts by a comparison that is no total order for values of several kinds: 2 is before 10 as numbers, 10
before "1x" as text, "1x" before 2. Its sort sometimes detects that and ends the whole process. The same holds for keys
that are evaluated again at each comparison (``RAND()``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from txlog.sparql.tokens import Token, significant_tokens

_XSD: Final = "http://www.w3.org/2001/XMLSchema#"
_DIRECTIONS: Final = ("ASC", "DESC")
_CLAUSE_ENDS: Final = ("LIMIT", "OFFSET", "VALUES", "HAVING")
_NO_KEYS: Final = ("RAND", "UUID", "STRUUID", "BNODE", "ORDER")
"""A random function cannot be a key: any order is a valid result of it. Nor can a key that has its own ORDER BY (in
EXISTS, where that has no meaning)."""
_NUMBER: Final = "(isNumeric({0}) && {0} = {0})"
_TIME: Final = "COALESCE(YEAR({0}) = YEAR({0}), false)"
_KEYS: Final = (
    "COALESCE(IF(isLiteral({0}), 3, IF(isIRI({0}), 2, 1)), 0)",
    f"COALESCE({_NUMBER}, false)",
    f"COALESCE(IF({_NUMBER}, <{_XSD}double>({{0}}), 0), 0)",
    'COALESCE(STR(DATATYPE({0})), "")',
    'COALESCE(LANG({0}), "")',
    _TIME,
    'COALESCE(TZ({0}) != "", false)',
    f'COALESCE(IF({_NUMBER} || {_TIME}, "", STR({{0}})), "")',
    "{0}",
)
"""Each compares values of one kind only among those that are equal in the ones before: what is bound, IRI or literal;
numbers as doubles; by datatype and language; times with and without a zone; the rest by its text."""


def remove_order_by(update: str) -> str:
    """The update without any ``ORDER BY``. Only without ``LIMIT`` and ``OFFSET``: there an order has no meaning."""
    return _rewrite_order_by(update, ordered=False)


def make_order_total(text: str) -> str:
    """The text with a total order that agrees with SPARQL's order wherever SPARQL defines one. ``text``: a valid query
    or update with full IRIs."""
    return _rewrite_order_by(text, ordered=True)


def _rewrite_order_by(text: str, ordered: bool) -> str:
    if "ORDER" not in text.upper():
        return text
    toks = significant_tokens(text)
    made, done, at = list[str](), 0, 0
    while at + 1 < len(toks):
        if (toks[at].word, toks[at + 1].word) != ("ORDER", "BY"):
            at += 1
            continue
        made.append(text[done : toks[at].start])
        keys = list[str]()
        at += 2
        while at < len(toks) and (end := skip_order_condition(toks, at)) > at:
            keys += _sort_keys(text, toks[at:end]) if ordered else []
            at = end
        made.append(" ORDER BY " + " ".join(keys) + " " if keys else " ")
        done = toks[at].start if at < len(toks) else len(text)
    return "".join([*made, text[done:]])


def skip_order_condition(toks: Sequence[Token], at: int) -> int:
    """The index after the condition that begins at ``at``; ``at`` where none does."""
    kind, text, _ = toks[at]
    if kind == "VARIABLE":
        return at + 1
    if toks[at].word in _CLAUSE_ENDS or not (kind in ("WORD", "IRI", "PNAME") or text == "("):
        return at
    depth, end = 0, at
    while end < len(toks):
        change = {"(": 1, ")": -1}.get(toks[end].text, 0) if toks[end].kind == "MARK" else 0
        depth += change
        end += 1
        if change and depth <= 0:
            return end
    return at  # it does not parse


def _sort_keys(text: str, toks: Sequence[Token]) -> list[str]:
    direction = toks[0].word
    asked = toks[1:] if direction in _DIRECTIONS else toks
    if not asked or any(token.word in _NO_KEYS for token in asked):
        return []
    key = text[asked[0].start : asked[-1].end]
    return [f"{direction or 'ASC'}({each.format(key)})" for each in _KEYS]
