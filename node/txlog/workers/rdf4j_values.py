"""``VALUES`` in updates of an RDF4J, which forgets what only a ``VALUES`` binds: it inserts nothing with that.
The fault: `INSERT .. WHERE with multiple VALUES clauses <https://github.com/eclipse-rdf4j/rdf4j/issues/4815>`_.

Its evaluation has a place for each variable that an expression or a pattern names, and drops other values. So a filter
names them, which is true whether they are bound or not.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from txlog.sparql.tokens import Edit, Token, apply_edits, tokens_by_operation
from txlog.workers.pattern_scan import extend_pattern, find_where

_VALUES: Final = re.compile(r"\bvalues\b", re.IGNORECASE)


def name_values(text: str) -> str:
    """Rewrite an update of the log so that each operation names the variables of its ``VALUES``."""
    if not _VALUES.search(text):
        return text
    edits = list[Edit]()
    for toks in tokens_by_operation(text):
        names = dict.fromkeys(_variables_of_values(toks))
        if names and find_where(toks) >= 0:
            edits += extend_pattern(toks, " ".join(f"FILTER(BOUND({name})||!BOUND({name}))" for name in names))
    return apply_edits(text, edits)


def _variables_of_values(operation: Sequence[Token]) -> Iterator[str]:
    inside = False
    for token in operation:
        if token.kind == "WORD":
            inside = token.text.upper() == "VALUES"
        elif token.text == "{":
            inside = False
        elif inside and token.kind == "VARIABLE":
            yield token.text
