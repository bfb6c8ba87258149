"""How many votes must hold a synchronous transaction before it may take effect.

An expression is terms joined with ``&``, and all of them must hold:

========= ==================================================================================================
N/2+1     more than half of all votes
N-1       all votes but one
all       all votes; ``N`` is read as well
4         that many votes
D/2+1     of more than half of the data centres, more than half of the votes there
D         of each data centre, more than half of the votes there
========= ==================================================================================================

N counts votes, D the data centres that have votes. Each term asks for more than half of all votes at least, so any two
quorums of one electorate share a master. A number above N is N.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from enum import StrEnum
from functools import lru_cache
from typing import TYPE_CHECKING, Final

import msgspec

from txlog.model.errors import BadInput

if TYPE_CHECKING:
    from txlog.model.configuration import Master

GRAMMAR: Final = "N/2+1, N-1, all, a number from 1 on, D/2+1 or D, joined with &"
CACHED_QUORUMS_MAX: Final = 256
"""A cluster has a few quorums, and each synchronous transaction names one."""
VOTES_MAX: Final = 64_000
"""64 masters of weight 1000: no number above it means anything else."""
_NUMBER = re.compile(r"[1-9][0-9]{0,17}")


class QuorumForm(StrEnum):
    """The form of a term, as it is written; ``votes`` is a number."""

    MAJORITY = "N/2+1"
    ALL_BUT_ONE = "N-1"
    VOTES = "votes"
    ALL = "all"
    MOST_CENTERS = "D/2+1"
    EACH_CENTER = "D"


_BY_TEXT: Final = {form.value: form for form in QuorumForm if form is not QuorumForm.VOTES} | {"N": QuorumForm.ALL}
_ORDER: Final = list(QuorumForm)


class QuorumTerm(msgspec.Struct, frozen=True):
    """One term. ``votes``: of the form ``votes`` alone."""

    form: QuorumForm
    votes: int = 0


class Quorum(msgspec.Struct, frozen=True):
    """Terms that must all hold, each form once, in the order of :class:`QuorumForm`."""

    terms: tuple[QuorumTerm, ...]


class QuorumNeeds(msgspec.Struct, frozen=True):
    """A quorum of one electorate. ``votes`` of ``total``, more than half of them. ``asked``: the number that was asked
    for, where it is not what is needed. ``centers``: so many data centres, each with more than half of its votes; 0:
    they do not matter."""

    votes: int
    total: int
    asked: int | None = None
    centers: int = 0


MAJORITY: Final = Quorum((QuorumTerm(QuorumForm.MAJORITY),))
ALL: Final = Quorum((QuorumTerm(QuorumForm.ALL),))


def parse_quorum(text: str) -> Quorum:
    """An expression. :class:`BadInput` shows the grammar."""
    return join_quorums([Quorum((_parse_term(part.strip(), text),)) for part in text.split("&")])


def _parse_term(part: str, text: str) -> QuorumTerm:
    form = _BY_TEXT.get(part)
    if form is not None:
        return QuorumTerm(form)
    if _NUMBER.fullmatch(part):
        return QuorumTerm(QuorumForm.VOTES, min(int(part), VOTES_MAX))
    raise BadInput(f"{text[:80]!r} is no quorum: expected {GRAMMAR}")


@lru_cache(CACHED_QUORUMS_MAX)
def format_quorum(quorum: Quorum) -> str:
    """The expression without spaces; :func:`parse_quorum` reads it."""
    return "&".join(str(term.votes) if term.form is QuorumForm.VOTES else term.form.value for term in quorum.terms)


def join_quorums(quorums: Iterable[Quorum]) -> Quorum:
    """The quorum that asks for all of these. Of numbers the greatest counts; ``N/2+1`` is part of every other term."""
    votes: dict[QuorumForm, int] = {}
    for quorum in quorums:
        for term in quorum.terms:
            votes[term.form] = max(term.votes, votes.get(term.form, 0))
    if len(votes) > 1:
        votes.pop(QuorumForm.MAJORITY, None)
    return Quorum(tuple(QuorumTerm(form, votes[form]) for form in sorted(votes, key=_ORDER.index)))


def implies_quorum(strong: Quorum, weak: Quorum) -> bool:
    """Whether masters that meet ``strong`` meet ``weak`` as well, in every electorate."""
    return all(any(_implies_term(one, wanted) for one in strong.terms) for wanted in weak.terms)


def _implies_term(strong: QuorumTerm, weak: QuorumTerm) -> bool:
    if strong.form is weak.form:
        return strong.votes >= weak.votes
    is_implied = weak.form is QuorumForm.MAJORITY or strong.form is QuorumForm.ALL
    return is_implied or (strong.form, weak.form) == (QuorumForm.EACH_CENTER, QuorumForm.MOST_CENTERS)


def compute_needs(quorum: Quorum, electorate: Sequence[Master]) -> QuorumNeeds:
    """What the quorum asks for in this electorate. Nothing meets the needs of one without votes (``total`` 0)."""
    total = sum(master.weight for master in electorate)
    majority = total // 2 + 1
    votes, asked, centers = majority, None, 0
    center_count = len({master.data_center for master in electorate if master.weight})
    for term in quorum.terms:
        if term.form is QuorumForm.ALL_BUT_ONE:
            votes = max(votes, total - 1)
        elif term.form is QuorumForm.ALL:
            votes = max(votes, total)
        elif term.form is QuorumForm.VOTES:
            asked = term.votes
            votes = max(votes, min(term.votes, total))
        elif term.form is QuorumForm.MOST_CENTERS:
            centers = max(centers, center_count // 2 + 1)
        elif term.form is QuorumForm.EACH_CENTER:
            centers = center_count
    return QuorumNeeds(votes, total, None if asked == votes else asked, min(centers, center_count))


def count_votes(electorate: Sequence[Master], holders: Collection[str]) -> int:
    """The votes of these nodes."""
    return sum(master.weight for master in electorate if master.node in holders)


def meets_needs(needs: QuorumNeeds, electorate: Sequence[Master], holders: Collection[str]) -> bool:
    """Whether these nodes are a quorum of the electorate that the needs were computed for."""
    if count_votes(electorate, holders) < needs.votes:
        return False
    return needs.centers <= _count_centers(electorate, holders)


def _count_centers(electorate: Sequence[Master], holders: Collection[str]) -> int:
    """The data centres of which these nodes have more than half of the votes."""
    votes: dict[str, int] = {}
    for master in electorate:
        held = master.weight if master.node in holders else 0
        votes[master.data_center] = votes.get(master.data_center, 0) + 2 * held - master.weight
    return sum(balance > 0 for balance in votes.values())


def find_half_of_votes(electorate: Sequence[Master]) -> Master | None:
    """A master with half of the votes, or more, where three or more have votes. Its lost disk would take the quorum."""
    total = sum(master.weight for master in electorate)
    if sum(master.weight > 0 for master in electorate) < 3:
        return None
    return next((master for master in electorate if 2 * master.weight >= total), None)
