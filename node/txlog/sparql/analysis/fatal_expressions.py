"""Expressions at which an engine ends the whole request, instead of the error that SPARQL defines.

Which value a store meets first depends on the order of its quads. An ``EXISTS`` ends at the first match, so one store
would refuse a transaction that others execute. Such an update is evaluated once. What an adapter writes otherwise for
its engine is not here.

The tests have the experiments: ``node/tests/workers/test_fatal_expressions.py``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from typing import Final

from txlog.sparql.analysis.expressions import OperatorUse, Slice, call_of, find_expressions, parts_of
from txlog.sparql.tokens import significant_tokens

JENA: Final = "fuseki"
RDF4J: Final = "rdf4j"
_MAY_BE_FATAL: Final = re.compile(
    r"\b(?:hours|minutes|seconds|timezone|tz|langmatches|regex|replace|strlang|abs|substr|filter|bind|having|select)\b",
    re.IGNORECASE,
)
_CONSTANTS: Final = ("STRING", "NUMBER")
_GIVE_ANY_TERM: Final = frozenset(
    (
        *("", "IF", "COALESCE", "IRI", "URI", "BNODE", "DATATYPE", "SUBJECT", "PREDICATE", "OBJECT", "TRIPLE"),
        *("MIN", "MAX", "SAMPLE"),
    )
)
"""Calls whose value may be something else than a literal."""
_GIVE_ANY_LITERAL: Final = _GIVE_ANY_TERM | {"STRDT"}
"""Calls whose value may be a literal whose text is none of its datatype."""
_AGGREGATES: Final = ("COUNT", "SUM", "MIN", "MAX", "AVG", "SAMPLE", "GROUP_CONCAT")
_ARITHMETIC: Final = ("+", "-", "*", "/")
_ESCAPE: Final = r"\\[.\\()\[\]{}?*+|^$/dDwWsS-]"
_SET: Final = r"\[\^?(?:[^\\\[\]&^-]|[0-9A-Za-z]-[0-9A-Za-z])+-?\]"
_PLAIN_PATTERN: Final = re.compile(rf"(?:[^\\\[\](){{}}]|{_ESCAPE}|{_SET}|[()]|)*+")
_PLAIN_FLAGS: Final = re.compile("[smix]*")
_GROUP: Final = re.compile(r"\$([0-9])")


def find_fatal_expression(update: str, engines: Collection[str]) -> str:
    """The first expression of a normalised update at which a store of these engines may end the request, for people; ""
    when there is none. ``engines``: of :data:`JENA` and :data:`RDF4J`."""
    if not engines or not _MAY_BE_FATAL.search(update):
        return ""
    toks = significant_tokens(update)
    pending = list(find_expressions(toks))
    while pending:
        expression = pending.pop()
        parts = parts_of(expression)
        if RDF4J in engines:
            for operator in parts.operators:
                if _is_fatal_operator(operator):
                    beside = "beside a constant" if operator.sign in ("&&", "||") else "between constants"
                    return f"the operator {operator.sign} {beside}"
        for operand in parts.operands:
            call = call_of(operand)
            if call is None:
                continue
            for engine in engines:
                why = _RULES[engine].get(call.name)
                if why is not None and (found := why(call.arguments)):
                    return f"{call.name} with {found}"
            pending += call.arguments
    return ""


# -- operators


def _is_fatal_operator(operator: OperatorUse) -> bool:
    """RDF4J evaluates what has no variable before the request begins, and an error there ends it. So does a conjunction
    or disjunction that it shortens inside COALESCE or IN."""
    constant = _is_constant(operator.left), _is_constant(operator.right)
    if operator.sign in ("&&", "||"):
        return any(constant)
    if not all(constant):
        return False
    if not operator.left:
        return operator.right[0].kind != "NUMBER" or len(operator.right) > 1
    numbers = _is_number(operator.left) and _is_number(operator.right)
    if operator.sign in _ARITHMETIC or numbers:
        return not numbers or operator.sign == "/"
    shape = _shape(operator.left)
    return shape != _shape(operator.right) or (shape == ["IRI"] and operator.sign not in ("=", "!="))


def _is_constant(operand: Slice) -> bool:
    return not any(
        token.kind == "VARIABLE" or token.text in ("{", "*") or token.text.upper() in _AGGREGATES for token in operand
    )


def _is_number(operand: Slice) -> bool:
    return bool(operand) and all(token.kind == "NUMBER" for token in operand)


def _shape(operand: Slice) -> list[str]:
    """Of a literal: its datatype. Of anything but a term: nothing that equals another."""
    if len(operand) == 1 and operand[0].kind == "IRI":
        return ["IRI"]
    if not operand or operand[0].kind != "STRING" or len(operand) not in (1, 3):
        return [f"at {token.start}" for token in operand]
    return [token.text for token in operand[1:]]


# -- calls

Rule = Callable[[Sequence[Slice]], str]
"""What is wrong with the arguments of a call, for people; "" for nothing."""


def _gives(argument: Slice, others: Collection[str]) -> bool:
    """Whether the value of an argument is visible by its outermost form: a constant literal, an operator, or a call
    that is none of ``others``."""
    if not argument:
        return False
    if parts_of(argument).operators:
        return True
    if argument[0].kind in _CONSTANTS or argument[0].text in ("true", "false"):
        return True
    call = call_of(argument)
    if call is not None and call.name == "" and len(call.arguments) == 1:
        return _gives(call.arguments[0], others)
    return call is not None and call.name not in others


def _at(arguments: Sequence[Slice], place: int) -> Slice:
    return arguments[place] if place < len(arguments) else ()


def _is_variable(argument: Slice) -> bool:
    return len(argument) == 1 and argument[0].kind == "VARIABLE"


def _time(arguments: Sequence[Slice]) -> str:
    """The adapter gives a variable its error."""
    argument = _at(arguments, 0)
    return "" if _is_variable(argument) or _gives(argument, _GIVE_ANY_TERM) else "what may be no literal"


def _number_at(*places: int) -> Rule:
    def rule(arguments: Sequence[Slice]) -> str:
        wrong = any(
            not (_gives(arguments[at], _GIVE_ANY_LITERAL) and "^^" not in [each.text for each in arguments[at][1:2]])
            for at in places
            if at < len(arguments)
        )
        return "what may be no number" if wrong else ""

    return rule


def _text(argument: Slice) -> str | None:
    """The text of a constant string without escapes; None for anything else."""
    if len(argument) != 1 or argument[0].kind != "STRING":
        return None
    quoted = argument[0].text
    marks = 3 if quoted[:3] in ('"""', "'''") else 1
    text = quoted[marks:-marks]
    return re.sub(r"\\(.)", lambda found: {"t": "\t", "n": "\n", "r": "\r"}.get(found[1], found[1]), text)


def _groups(pattern: str | None) -> int | None:
    """The number of groups of a pattern that every engine knows; None for another one."""
    if pattern is None or not _PLAIN_PATTERN.fullmatch(pattern) or "(?" in pattern:
        return None
    try:
        return re.compile(pattern).groups
    except re.error:
        return None


def _regex(arguments: Sequence[Slice]) -> str:
    if _groups(_text(_at(arguments, 1))) is None:
        return "a pattern that may be none"
    return _wrong_flags(arguments[2:])


def _replace(arguments: Sequence[Slice]) -> str:
    groups, replacement = _groups(_text(_at(arguments, 1))), _text(_at(arguments, 2))
    if groups is None:
        return "a pattern that may be none"
    if replacement is None or "\\" in replacement or replacement.count("$") != len(_GROUP.findall(replacement)):
        return "a replacement that may be none"
    if any(int(group) > groups for group in _GROUP.findall(replacement)):
        return "a replacement that may be none"
    return _wrong_flags(arguments[3:])


def _wrong_flags(rest: Sequence[Slice]) -> str:
    if not rest:
        return ""
    flags = _text(rest[0])
    return "" if flags is not None and _PLAIN_FLAGS.fullmatch(flags) else "flags that may be none"


def _tag(arguments: Sequence[Slice]) -> str:
    call = call_of(_at(arguments, 1))
    known = _text(_at(arguments, 1)) is not None or (call is not None and call.name in ("STR", "LANG"))
    return "" if known else "what may be no language tag"


def _constant_arguments(arguments: Sequence[Slice]) -> str:
    if all(_is_constant(argument) for argument in arguments) and not all(
        len(argument) == 1 and argument[0].kind == "STRING" for argument in arguments
    ):
        return "constants"
    return ""


def _each(*rules: Rule) -> Rule:
    return lambda arguments: next((found for rule in rules if (found := rule(arguments))), "")


_RULES: Final[dict[str, dict[str, Rule]]] = {
    JENA: {
        **dict.fromkeys(("HOURS", "MINUTES", "SECONDS", "TIMEZONE", "TZ"), _time),
        "REGEX": _regex,
        "REPLACE": _replace,
        "STRLANG": _tag,
    },
    RDF4J: {
        "ABS": _number_at(0),
        "SUBSTR": _number_at(1, 2),
        "REGEX": _each(_regex, _constant_arguments),
        "REPLACE": _replace,
        "LANGMATCHES": _constant_arguments,
    },
}
