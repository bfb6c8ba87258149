"""What the masters of the model exchange: entries, anchors, views, reports. All are immutable."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

Number = tuple[int, int]
"""Of a view: a counter, and the master that proposed it. The greater one is the later one."""
Weights = tuple[int, ...]
"""Votes by master. An electorate is such a tuple."""


class ModelViolation(Exception):
    """A run did what no rule may allow."""


class Mode(StrEnum):
    """How a rejoin merges logs: by votes, by stamps; or no side but the larger one works."""

    SMART = "smart"
    SIMPLE = "simple"
    MAJORITY = "majority"


class Missing(StrEnum):
    """A mutant: the rules without one of their parts."""

    ANY_VIEW = "any_view"
    """S4, S6: the members of a view are counted, and not the electorate."""
    FRESH = "fresh"
    """S4: a master whose disk was lost counts at once."""
    ELECT_NOW = "elect_now"
    """S4: the electorate is the configuration at the end of the base, whatever the anchor says."""
    NOT_JOINTLY = "not_jointly"
    """S4: the electorates under which a view was counted are forgotten before it is seen installed."""
    WEAK = "weak"
    """S3: half of the votes is a quorum."""
    NO_ANCHOR = "no_anchor"
    """S5: a view that is not quorate forgets what the anchor knew."""
    WINNERS_ANCHOR = "winners_anchor"
    """S5: the anchor is that of the winning branch, and not the highest one."""
    FAST_PATH = "fast_path"
    """S7: in a quorate view a synchronous transaction takes effect at its own place."""
    LOCAL_TIMEOUT = "local_timeout"
    """S8: its origin rolls a late transaction back by itself."""
    LATE_TIMEOUT = "late_timeout"
    """S8: a quorate view rolls back whatever is late."""
    ABSENT = "absent"
    """S8: masters that do not report count as not holding a transaction."""
    UNDOOMED = "undoomed"
    """S8: only the first member of a view knows what the view doomed."""
    REDOOM = "redoom"
    """S9: every quorate view dooms without looking at the anchor."""
    SYNCED_ANYWHERE = "synced_anywhere"
    """S10: `synced` is answered in any view."""
    ENTRY_KEY = "entry_key"
    """S11: a key is taken where the entry is, and not where the effect is."""
    VOTES = "votes"
    """S12: votes alone choose the branch that goes on."""
    TRIM = "trim"
    """S13: the log is trimmed as far as readers need it, whatever is open there."""
    FOOT_BARE = "foot_bare"
    """S13: the log start does not carry what is open there."""
    FOOT_EARLY = "foot_early"
    """S13: the log start does not carry decisions that precede what they name."""
    SERVE_EARLY = "serve_early"
    """S13: readers are served from the log start on."""
    FOOT_FORGETS = "foot_forgets"
    """S13: the log start does not carry what was rolled back."""


class TransactionKind(StrEnum):
    """What a transaction is."""

    ORDINARY = "ordinary"
    SYNCHRONOUS = "synchronous"
    DECISION = "decision"
    WEIGHTS = "weights"


class DecisionVerdict(StrEnum):
    """What a decision says, and what a fold knows of a synchronous transaction."""

    COMMIT = "commit"
    ROLLBACK = "rollback"
    REPEATED = "repeated"
    """Only under ``entry_key``: an earlier entry has its key."""


@dataclass(frozen=True, slots=True, eq=False)
class ModelTransaction:
    """One transaction. ``due``: the step from which it is late. ``names``: what a decision decides. ``weights``,
    ``version``, ``decided_in``: a change of weights, the version that it follows, the view in which it was written."""

    txid: str
    origin: int
    birth: int
    kind: TransactionKind
    needs_all: bool = False
    due: int = 0
    key: int | None = None
    verdict: DecisionVerdict = DecisionVerdict.COMMIT
    names: frozenset[str] = frozenset()
    weights: Weights = ()
    version: int = 0
    decided_in: Number = (0, 0)


class ModelEntry(NamedTuple):
    """A transaction with its stamp. Entries are ordered by stamp, then by id."""

    stamp: int
    txid: str
    transaction: ModelTransaction


@dataclass(frozen=True, slots=True, eq=False)
class ModelAnchor:
    """S5: what every view carries of the latest quorate one. ``under``: the electorates under which it was counted
    itself, until a closing has seen it installed (S4). ``known``: synchronous transactions in its base and queue."""

    number: Number
    births: dict[int, int]
    electorate: Weights
    under: tuple[Weights, ...]
    known: frozenset[str]
    doomed: frozenset[str]


@dataclass(frozen=True, slots=True, eq=False)
class ModelView:
    """A view as its members accept it. ``history``: the numbers of the views that it continues, and its own; empty for
    a master without a view. ``counted_after``: the anchor under which it was counted."""

    number: Number
    members: tuple[int, ...]
    quorate: bool = False
    anchor: ModelAnchor | None = None
    history: tuple[Number, ...] = ()
    material: frozenset[str] = frozenset()
    counted_after: Number = (-1, 0)


@dataclass(frozen=True, slots=True, eq=False)
class MasterReport:
    """What a master promises a coordinator: its view, log and queue. ``has_voted``: its birth counts (S4)."""

    master: int
    birth: int
    view: ModelView
    log: tuple[ModelEntry, ...]
    queue: tuple[ModelEntry, ...]
    counter: int
    installed: bool
    is_learner: bool
    has_voted: bool
    ids: frozenset[str] = field(default_factory=frozenset)


def votes_of(electorate: Weights, masters: set[int] | list[int] | tuple[int, ...]) -> int:
    """The votes of some masters, each counted once."""
    return sum(electorate[master] for master in set(masters))


def is_majority(electorate: Weights, masters: set[int] | list[int] | tuple[int, ...]) -> bool:
    """Whether the masters have more than half of all votes."""
    return 2 * votes_of(electorate, masters) > sum(electorate)
