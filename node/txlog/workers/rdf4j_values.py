"""``VALUES`` in updates of an RDF4J, which forgets what only a ``VALUES`` binds: it inserts nothing with that.
The fault: `INSERT .. WHERE with multiple VALUES clauses <https://github.com/eclipse-rdf4j/rdf4j/issues/4815>`_.

Its evaluation has a place for each variable that an expression or a pattern names, and drops other values. So a filter
names them, which is true whether they are bound or not.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from txlog.sparql.tokens import Token, tokens_by_operation

_VALUES: Final = re.compile(r"\bvalues\b", re.IGNORECASE)


def name_values(text: str) -> str:
    """Rewrite an update of the log so that each operation names the variables of its ``VALUES``."""
    if not _VALUES.search(text):
        return text
    pieces, last = list[str](), 0
    for operation in tokens_by_operation(text):
        names = dict.fromkeys(_variables_of_values(operation))
        if names and operation[-1].text == "}":
            begin, end = _first_of_group(operation), operation[-1].start
            # Beside a filter, a SELECT needs a group of its own.
            opens, closes = ("{ ", "} ") if begin.text.upper() == "SELECT" else ("", "")
            pieces += (text[last : begin.start], opens, text[begin.start : end], closes)
            pieces += (*(f" FILTER(BOUND({name})||!BOUND({name}))" for name in names), " ")
            last = end
    return "".join([*pieces, text[last:]])


def _first_of_group(operation: Sequence[Token]) -> Token:
    """The token behind the brace that the last token closes."""
    depth, at = 1, len(operation) - 1
    while depth and at:
        at -= 1
        depth += (operation[at].text == "}") - (operation[at].text == "{")
    return operation[at + 1]


def _variables_of_values(operation: Sequence[Token]) -> Iterator[str]:
    inside = False
    for token in operation:
        if token.kind == "WORD":
            inside = token.text.upper() == "VALUES"
        elif token.text == "{":
            inside = False
        elif inside and token.kind == "VARIABLE":
            yield token.text
