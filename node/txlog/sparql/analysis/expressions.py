"""The expressions of an operation, by token: enough of their structure to judge operands and arguments.

Source: SPARQL 1.1 Query Language, section 19.8 (productions 110 to 128).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from txlog.sparql.tokens import Token

Slice = Sequence[Token]
_OPENS: Final = ("(", "{", "[")
_CLOSES: Final = (")", "}", "]")
_LEVELS: Final = {
    "||": 1,
    "&&": 2,
    "IN": 3,
    **dict.fromkeys(("=", "!=", "<", ">", "<=", ">="), 3),
    "+": 4,
    "-": 4,
    "*": 5,
    "/": 5,
}
"""How tightly operators bind."""
_SIGNS: Final = ("!", "+", "-")
_KEYWORDS: Final = ("FILTER", "BIND", "HAVING")


class FunctionCall(NamedTuple):
    """A call: ``name`` in capitals for a word, an IRI as it is; "" for plain parentheses."""

    name: str
    arguments: tuple[Slice, ...]


class OperatorUse(NamedTuple):
    """An operator with its operands; ``left`` is empty for a sign or a negation."""

    sign: str
    left: Slice
    right: Slice


class ExpressionParts(NamedTuple):
    """What an expression is made of at its own level. ``operands``: its primary expressions without their signs."""

    operators: tuple[OperatorUse, ...]
    operands: tuple[Slice, ...]


def find_expressions(toks: Slice) -> Iterator[Slice]:
    """The outermost expressions of FILTER, BIND, HAVING, of the columns of a SELECT and of GROUP BY; those inside the
    groups of an EXISTS come, too."""
    columns = False
    for at, token in enumerate(toks):
        word = token.word
        if word in ("SELECT", "BY"):
            columns = True
        elif columns and (token.text in ("{", "}") or word in ("WHERE", "HAVING", "ORDER", "VALUES")):
            columns = False
        if word in _KEYWORDS:
            yield _primary(toks, at + 1)
        elif columns and token.text == "(":
            yield _primary(toks, at)


def _primary(toks: Slice, at: int) -> Slice:
    """The primary expression that begins at ``at``, without signs before it."""
    end, first = at, toks[at] if at < len(toks) else None
    if first is not None and first.kind in ("WORD", "IRI", "PNAME") and first.text.upper() != "IN":
        end += 2 if first.text.upper() == "NOT" else 1
    if end < len(toks) and toks[end].text in _OPENS:
        return toks[at : _closing(toks, end) + 1]
    return toks[at : at + 1]


def _closing(toks: Slice, at: int) -> int:
    depth = 0
    for index in range(at, len(toks)):
        depth += (toks[index].text in _OPENS) - (toks[index].text in _CLOSES)
        if not depth:
            return index
    return len(toks) - 1


def call_of(operand: Slice) -> FunctionCall | None:
    """An operand as a call; None for a term, and for EXISTS."""
    opening = next((at for at, token in enumerate(operand) if token.text in _OPENS), None)
    if opening is None or operand[opening].text != "(" or opening > 1:
        return None
    name = operand[0].text if opening else ""
    inside = operand[opening + 1 : -1]
    if inside and inside[0].kind == "WORD" and inside[0].text.upper() == "DISTINCT":
        inside = inside[1:]
    return FunctionCall(name if name.startswith("<") else name.upper(), tuple(_split(inside)))


def _split(inside: Slice) -> Iterator[Slice]:
    """The arguments between commas, without ``AS ?name`` and the separator of GROUP_CONCAT."""
    begin = at = 0
    while at <= len(inside):
        token = inside[at] if at < len(inside) else None
        if token is not None and token.text in _OPENS:
            at = _closing(inside, at)
        elif token is None or token.text in (",", ";") or (token.kind == "WORD" and token.text.upper() == "AS"):
            if at > begin:
                yield inside[begin:at]
            begin = at + 1
            if token is not None and token.text != ",":
                return
        at += 1


def parts_of(expression: Slice) -> ExpressionParts:
    """The operators and operands of an expression at its own level."""
    operands: list[Slice] = []
    signs: list[OperatorUse] = []
    binary: list[str] = []
    at = 0
    while at < len(expression):
        begin = at
        while at < len(expression) and expression[at].kind == "MARK" and expression[at].text in _SIGNS:
            at += 1
        end = _end_of_operand(expression, at)
        operand = expression[at:end]
        signs += [OperatorUse(token.text, (), operand) for token in expression[begin:at]]
        operands.append(operand)
        at = end
        if at < len(expression):
            word = expression[at].text.upper()
            at += word == "NOT"
            binary.append("IN" if word in ("NOT", "IN") else word)
            at += 1
    return ExpressionParts((*signs, *_pair(binary, operands)), tuple(operands))


def _end_of_operand(expression: Slice, at: int) -> int:
    primary = _primary(expression, at)
    end = at + max(1, len(primary))
    if primary and primary[0].kind == "STRING" and end < len(expression):
        if expression[end].kind == "LANGUAGE":
            return end + 1
        if expression[end].text == "^^":
            return min(end + 2, len(expression))
    return end


def _pair(binary: Sequence[str], operands: Sequence[Slice]) -> Iterator[OperatorUse]:
    """Each operator with all that binds tighter on both sides."""
    for number, sign in enumerate(binary):
        if sign not in _LEVELS:
            continue  # inside a triple term
        level, left, right = _LEVELS[sign], number, number + 1
        while left and _LEVELS.get(binary[left - 1], 0) >= level:
            left -= 1
        while right < len(binary) and _LEVELS.get(binary[right], 0) > level:
            right += 1
        before = [token for operand in operands[left : number + 1] for token in operand]
        after = [token for operand in operands[number + 1 : right + 1] for token in operand]
        yield OperatorUse(sign, before, after)
