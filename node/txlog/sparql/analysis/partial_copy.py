"""Updates and queries on a copy that holds the quads with some predicates, and no others.

What a query sees there is what it sees on all data, if it names no other predicate. An update does there what it does
on all data, as far as these predicates go, if it names them alone, or if it decides of each quad by itself: data,
``CLEAR`` and its like, ``DELETE WHERE`` with one pattern. One that names others alone does nothing there. Whatever is
neither (:class:`UnknownPredicates`) has to be seen on all data.
"""

from __future__ import annotations

from collections.abc import Iterable, Set
from typing import Final, NamedTuple

from txlog.sparql.analysis.predicates import UnknownPredicates, is_single_pattern_delete, predicates_of
from txlog.sparql.tokens import tokens_by_operation
from txlog.sparql.update_effect import PREDICATES_MAX

_GRAPH_MANAGEMENT: Final = ("CLEAR", "DROP", "CREATE", "COPY", "MOVE", "ADD")


class AnalysedOperation(NamedTuple):
    """One operation. ``predicates``: of all quads that it may read or write, None for any; empty: it decides of each
    quad by itself."""

    text: str
    predicates: frozenset[str] | None


def split_operations(update: str) -> list[AnalysedOperation]:
    """The operations of a normalised update, as the log carries it."""
    texts = [update[toks[0].start : toks[-1].end] for toks in tokens_by_operation(update)]
    return [AnalysedOperation(text, _operation_predicates(text)) for text in texts]


def _operation_predicates(operation: str) -> frozenset[str] | None:
    words = operation.split(None, 2)
    first = words[0].upper()
    if first in _GRAPH_MANAGEMENT or (len(words) > 1 and words[1].upper().startswith("DATA")):
        return frozenset()
    if is_single_pattern_delete(operation):
        return frozenset()
    try:
        return predicates_of(operation)
    except UnknownPredicates:
        return None


def restrict_to_predicates(update: str, held: Set[str]) -> list[str]:
    """The operations to carry out on a copy that holds these predicates. :class:`UnknownPredicates` when its quads
    would not be those of a copy of all."""
    texts: list[str] = []
    for text, predicates in split_operations(update):
        if predicates is None or (not predicates <= held and predicates & held):
            raise UnknownPredicates
        if predicates <= held:
            texts.append(text)
    return texts


def required_predicates(updates: Iterable[str], wanted: Set[str]) -> frozenset[str] | None:
    """The predicates that a copy must hold so that ``wanted`` are correct in it after these updates. None: the copy
    needs all data."""
    steps = [step.predicates for update in updates for step in split_operations(update)]
    found = frozenset(wanted)
    if None in steps:
        return None
    while True:
        more = found.union(*(each for each in steps if each and each & found))
        if more == found:
            return found if len(found) <= PREDICATES_MAX else None
        found = more
