"""Updates that a master evaluates: what each changes, and what it reads (C9)."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from e2e.model.certification.values import (
    Change,
    LeftOut,
    Pattern,
    State,
)


class UpdateForm(StrEnum):
    """What an update does."""

    INCREMENT = "inc"
    """Replaces the values of one subject and predicate by the greatest one, plus 1."""
    TAKE = "take"
    """Takes any quad with a predicate away and gives its subject another one."""
    UNLESS = "none"
    """Adds a quad unless there is one with another predicate."""
    IF_THERE = "is"
    """Adds a quad if a certain one is there."""
    SUM = "sum"
    """Replaces a value by the sum of the values with another predicate."""


class EvaluatedForm(NamedTuple):
    """An update. ``other``: its second predicate. ``value``: the constant of ``IF_THERE``."""

    form: UpdateForm
    subject: int
    predicate: int
    other: int
    value: int

    def change(self, state: State, draw: int) -> Change:
        """What it deletes and adds on this state. ``draw``: what it picks by chance."""
        subject, predicate, other = self.subject, self.predicate, self.other
        match self.form:
            case UpdateForm.INCREMENT:
                found = [quad for quad in state if quad[:2] == (subject, predicate)]
                top = max((value for _, _, value in found), default=0)
                return _written(found), ((subject, predicate, str(top + 1)),)
            case UpdateForm.TAKE:
                free = sorted(quad for quad in state if quad[1] == predicate)
                if not free:
                    return (), ()
                taken = free[draw % len(free)]
                return _written([taken]), ((taken[0], other, str(draw % 9)),)
            case UpdateForm.UNLESS:
                if any(quad[1] == other for quad in state):
                    return (), ()
                return (), ((subject, predicate, str(draw % 9)),)
            case UpdateForm.IF_THERE:
                is_there = (subject, predicate, self.value) in state
                return (), ((subject, other, str(draw % 9)),) if is_there else ()
            case UpdateForm.SUM:
                before = [quad for quad in state if quad[:2] == (subject, other)]
                total = sum(value for _, name, value in state if name == predicate) % 50
                return _written(before), ((subject, other, str(total)),)

    def reads(self, left_out: frozenset[LeftOut]) -> tuple[Pattern, ...]:
        """C4: a superset of all that the change depends on."""
        match self.form:
            case UpdateForm.INCREMENT:
                return ((self.subject, self.predicate, None),)
            case UpdateForm.TAKE:
                return ((None, self.predicate, None),)
            case UpdateForm.UNLESS:
                return () if LeftOut.READ_PART in left_out else ((None, self.other, None),)
            case UpdateForm.IF_THERE:
                value = str(self.value) if LeftOut.LEXICAL in left_out else None
                return ((self.subject, self.predicate, value),)
            case UpdateForm.SUM:
                return ((None, self.predicate, None), (self.subject, self.other, None))


def _written(quads: list[tuple[int, int, int]]) -> tuple[tuple[int, int, str], ...]:
    return tuple((subject, predicate, str(value)) for subject, predicate, value in quads)


def join_changes(first: Change, second: Change) -> Change:
    """Two changes of one state as one: what both together add is not deleted."""
    adds = first[1] + second[1]
    return tuple(quad for quad in first[0] + second[0] if quad not in adds), adds
