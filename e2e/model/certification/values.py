"""Quads and patterns, entries of the log, the base of an effect, and the names of the mutants."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

SUBJECTS: Final = 5
PREDICATES: Final = 3
WINDOW: Final = 30
"""Entries between what was read and its effect, at most (C7). Short, so that runs exceed it."""

StoredQuad = tuple[int, int, int]
"""Subject, predicate, value, as a store holds it."""
WrittenQuad = tuple[int, int, str]
"""The same as clients and masters write it. Values ``1`` and ``01`` are one stored quad."""
Pattern = tuple[int | None, int | None, str | None]
"""A part of a read set. None: any."""
State = frozenset[StoredQuad]
EntryId = tuple[int, int]
"""The master that wrote an entry, and its place among the entries of that master, from 1 on."""
Vector = tuple[int, ...]
"""By master, the last entry of it."""
EntryKey = tuple[object, ...]
Change = tuple[tuple[WrittenQuad, ...], tuple[WrittenQuad, ...]]
"""What is deleted, and what is added."""


class RuleBroken(Exception):
    """A run did what no rule may allow."""


class RejoinMode(StrEnum):
    """How a rejoin merges logs: the winner's branch first, or all by stamp."""

    SMART = "smart"
    SIMPLE = "simple"


class LeftOut(StrEnum):
    """A mutant: the rules without one of their parts."""

    MARKER_LATE = "marker_late"
    """C1: the position is read after the data."""
    ONE_MARKER = "one_marker"
    """C1: only the position before the data is compared with the chain."""
    INDEX_ONLY = "index_only"
    """C2: a base is an index, without hash and vector."""
    HASH_ONLY = "hash_only"
    """C2: a base of another branch is refused."""
    MISSING_OK = "missing_ok"
    """C2: what the reader had seen may be absent."""
    COVERED_OK = "covered_ok"
    """C2: what the reader had seen never refuses."""
    TEXT_COVERED = "text_covered"
    """C2: text that the reader had seen does the same in its new place."""
    FALLEN_OK = "fallen_ok"
    """C2: what the reader had seen may be refused here."""
    RISEN_OK = "risen_ok"
    """C2: what the reader had seen refused may count here."""
    ORDER_OK = "order_ok"
    """C2: what the reader had seen may be in another order here."""
    KEY_BEHIND = "key_behind"
    """C2: an entry with the same key counts only in front of what was seen, and not behind it."""
    FROM_UNSEEN = "from_unseen"
    """C2: a base of another branch is judged from the first unseen entry on, and not from its final index."""
    FROM_FIRST = "from_first"
    """C2: age counts from the first entry that the reader had not seen."""
    ACTUAL_OFF = "actual_off"
    """C2: entries that were refused wrote nothing for a base of another branch, either."""
    DECLARED = "declared"
    """C2: on the chain, entries that were refused count as writes, too. Safe, but refuses too much."""
    NO_TEXT = "no_text"
    """C2, C5: text writes nothing."""
    LEXICAL = "lexical"
    """C4: constants of a read set are compared as they are written."""
    READ_PART = "read_part"
    """C4, C9: the read set lacks the patterns of a negation."""
    KEY_FIRST = "key_first"
    """C6: a refused entry takes its key."""
    KEY_TRY = "key_try"
    """C6: each try of a request has a key of its own."""
    TRIM_SHORT = "trim_short"
    """C7: the log start may be directly at the final index, and not a window before it."""
    TRIM_MOVED = "trim_moved"
    """C7: the log start may be inside what a rejoin moved."""
    FOOT_BARE = "foot_bare"
    """C7: the log start carries no verdicts."""
    NO_EXTEND = "no_extend"
    """C11: the second read of a transaction moves its base without a look at what came between."""


class ModelRefusal(StrEnum):
    """Why an entry changes nothing."""

    NONE = ""
    KEY = "key"
    """An earlier entry has its key."""
    OLD = "old"
    """Too many entries since what was read."""
    MISSING = "missing"
    """Something that was seen is not before it in this log."""
    OTHER = "other"
    """An unseen entry wrote what was read."""
    TEXT = "text"
    """A text that was seen may do something else here."""
    FALLEN = "fallen"
    """An entry that was seen is refused here."""
    RISEN = "risen"
    """An entry that was seen may count here, and not where it was seen."""
    ORDER = "order"
    """Entries that were seen are in another order here."""
    BASE = "base"
    """Only under ``hash_only``: the base is of another branch."""


class ModelBase(NamedTuple):
    """C1: the state that was read. ``log_index``, ``hash``, ``vector``: the log at the marker before the first query.
    ``final``: its final index then. ``index_after``, ``hash_after``: the marker after the last query."""

    log_index: int
    hash: int
    vector: Vector
    final: int
    index_after: int
    hash_after: int


class TextUpdate(NamedTuple):
    """SPARQL text that each worker computes in its place: values under one predicate go to another one, plus 1.
    ``subject`` None: of all subjects."""

    subject: int | None
    source: int
    target: int

    @property
    def written(self) -> Pattern:
        """What it may write."""
        return (self.subject, self.target, None)

    def apply(self, state: State) -> State:
        """The state after it."""
        found = {quad for quad in state if quad[1] == self.source and self.subject in (None, quad[0])}
        replaced = {quad for quad in state if quad[1] == self.target and self.subject in (None, quad[0])}
        return (state - replaced) | {(subject, self.target, (value + 1) % 9) for subject, _, value in found}


@dataclass(frozen=True, slots=True, eq=False)
class LogEntryOfModel:
    """A transaction: plain quads, a text, or an effect. Only an effect has ``base``, ``reads``, ``request`` and
    ``evaluate``, which gives its change on another state, with the same draws."""

    deletes: tuple[WrittenQuad, ...] = ()
    adds: tuple[WrittenQuad, ...] = ()
    key: EntryKey | None = None
    text: TextUpdate | None = None
    base: ModelBase | None = None
    reads: tuple[Pattern, ...] = ()
    request: int = 0
    evaluate: Callable[[State], Change] | None = None

    @property
    def quads(self) -> tuple[WrittenQuad, ...]:
        """All that it deletes and adds."""
        return self.deletes + self.adds

    def touches(self, reads: tuple[Pattern, ...], left_out: frozenset[LeftOut] = frozenset()) -> bool:
        """Whether its declared writes meet a read set (C4, C5)."""
        lexical = LeftOut.LEXICAL in left_out
        if any(fits(pattern, quad, lexical=lexical) for quad in self.quads for pattern in reads):
            return True
        if self.text is None or LeftOut.NO_TEXT in left_out:
            return False
        return any(meets(self.text.written, pattern) for pattern in reads)


def stored(quad: WrittenQuad) -> StoredQuad:
    """The quad as a store holds it."""
    return (quad[0], quad[1], int(quad[2]))


def store_change(state: State, deletes: tuple[WrittenQuad, ...], adds: tuple[WrittenQuad, ...]) -> State:
    """The state after deletes, then adds."""
    return (state - {stored(quad) for quad in deletes}) | {stored(quad) for quad in adds}


def fits(pattern: Pattern, quad: WrittenQuad, *, lexical: bool) -> bool:
    """C4: whether a quad is one that the pattern reads. Values are literals, so all of them fit."""
    subject, predicate, value = pattern
    if subject not in (None, quad[0]) or predicate not in (None, quad[1]):
        return False
    return not lexical or value in (None, quad[2])


def meets(one: Pattern, other: Pattern) -> bool:
    """Whether some quad fits both patterns."""
    return all(mine is None or its is None or mine == its for mine, its in zip(one[:2], other[:2], strict=True))
