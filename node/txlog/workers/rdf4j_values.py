"""``VALUES`` in updates of an RDF4J, which forgets what only a ``VALUES`` binds: it inserts nothing with that.
The fault: `INSERT .. WHERE with multiple VALUES clauses <https://github.com/eclipse-rdf4j/rdf4j/issues/4815>`_.

Its evaluation has a place for each variable that an expression or a pattern names, and drops other values. So a filter
names them, which is true whether they are bound or not.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from txlog.sparql.tokens import Edit, Token
from txlog.workers.pattern_scan import extend_pattern, find_where, rewrite_operations

_VALUES: Final = re.compile(r"\bvalues\b", re.IGNORECASE)


def name_values(text: str) -> str:
    """Rewrite an update of the log so that each operation names the variables of its ``VALUES``."""
    return rewrite_operations(text, _name_in_operation) if _VALUES.search(text) else text


def _name_in_operation(toks: Sequence[Token]) -> list[Edit]:
    names = dict.fromkeys(_variables_of_values(toks))
    if not names or find_where(toks) < 0:
        return []
    return extend_pattern(toks, " ".join(f"FILTER(BOUND({name})||!BOUND({name}))" for name in names))


def _variables_of_values(operation: Sequence[Token]) -> Iterator[str]:
    inside = False
    for token in operation:
        if token.kind == "WORD":
            inside = token.text.upper() == "VALUES"
        elif token.text == "{":
            inside = False
        elif inside and token.kind == "VARIABLE":
            yield token.text
