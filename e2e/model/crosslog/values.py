"""What the logs of the model contain: entries, views, cuts. All are immutable."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

SYSTEM_LOG: Final = 0
"""Its number in the model. Repositories have the numbers behind it."""
NO_PLACE: Final = -1
"""The place of a decision that no log has: an outcome by presumption, or by a mutant's own judgement."""


class CrosslogViolation(Exception):
    """A run did what no rule may allow."""


class LogStrategy(StrEnum):
    """How a log survives a split: only the larger side goes on; or all do, and a rejoin merges by votes or stamps."""

    MAJORITY = "majority"
    SMART = "smart"
    SIMPLE = "simple"


class MissingPart(StrEnum):
    """A mutant: the rules without one of their parts."""

    OWN_CLOCKS = "own_clocks"
    """R6: each log of a master has a clock of its own."""
    NO_QUORUM = "no_quorum"
    """R11: a commit is decided when its coordinator alone holds the prepares."""
    LOG = "log"
    """R12: the decision is an entry of the first participant's log."""
    LOGQ = "logq"
    """R12: the same, written and believed only in a view with a majority."""
    PENDING_D = "pending_d"
    """R12: a decision counts while it still waits for its place."""
    LAST_D = "last_d"
    """R12: a later decision replaces the first one."""
    OWN_ABORT = "own_abort"
    """R13: who waits too long writes the outcome *abort* without a decision."""
    NO_PREPARE = "no_prepare"
    """R14: an outcome is written into a log that lacks the prepare."""
    FORGET_EARLY = "forget_early"
    """R16: a commit is forgotten before all its outcomes are final."""
    FORGET_BLANK = "forget_blank"
    """R16: what was forgotten may be decided again."""
    NO_PRESUME = "no_presume"
    """R16: a prepare that comes after its abort was forgotten is not aborted."""
    PASS_UNDECIDED = "pass_undecided"
    """R16: a watermark passes a transaction of which no decision is stable here."""
    PASS_UNKNOWN = "pass_unknown"
    """R16: a watermark passes what is not in the first participant's log here."""
    EARLY = "early"
    """R19: the stamp of a cut does not wait for the outcomes of earlier decisions."""
    LOG_END = "log_end"
    """R19: a cut takes each log as long as it is, and not up to the stamp."""
    NO_GATE = "no_gate"
    """R20: outcomes of later decisions are not held back while a cut has no stamp."""
    NO_RECHECK = "no_recheck"
    """R21: a cut counts without a second look."""
    UNSETTLED = "unsettled"
    """R22: every cut is called consistent."""
    YOUNG_VIEW = "young_view"
    """R22: a cut is called consistent although a view is younger than its stamp."""


@dataclass(frozen=True, slots=True)
class ModelPrepare:
    """The part of a transaction in one repository. It has no effect before its outcome."""

    gid: int


@dataclass(frozen=True, slots=True)
class ModelDecide:
    """In the system log: whether a transaction commits."""

    gid: int
    commits: bool


@dataclass(frozen=True, slots=True)
class ModelOutcome:
    """In a participant: the decision and its place in the system log. The effect is at the first one."""

    gid: int
    commits: bool
    place: int


@dataclass(frozen=True, slots=True)
class ModelFinished:
    """In the system log: the decision about a transaction is forgotten."""

    gid: int


class EntryOrigin(NamedTuple):
    """A master that says entries in one log. ``birth``: how often its disk was lost."""

    log: int
    master: int
    birth: int


class EntryName(NamedTuple):
    """The id of an entry as the code will have it: origins count what they say. A transaction over several logs has the
    name of the PREPARE in its first participant."""

    origin: EntryOrigin
    sequence: int


@dataclass(frozen=True, slots=True)
class ModelWatermark:
    """In the system log: the decisions about what an origin began up to this sequence are forgotten."""

    origin: EntryOrigin
    sequence: int


@dataclass(frozen=True, slots=True)
class ModelCutStart:
    """In the system log: commits decided before it are in the cut, later ones are not."""

    cut: int


@dataclass(frozen=True, slots=True)
class ModelCutAt:
    """In the system log: the cut has what has this stamp or a lower one."""

    cut: int
    stamp: int


@dataclass(frozen=True, slots=True)
class ModelCutFinish:
    """In the system log: where the cut is in each repository; without a vector it is void."""

    cut: int
    vector: CutVector | None


@dataclass(frozen=True, slots=True)
class ModelWrite:
    """An ordinary transaction of one repository."""


ModelContent = (
    ModelPrepare
    | ModelDecide
    | ModelOutcome
    | ModelFinished
    | ModelWatermark
    | ModelCutStart
    | ModelCutAt
    | ModelCutFinish
    | ModelWrite
)
OfTransaction = ModelPrepare | ModelDecide | ModelOutcome | ModelFinished


class CrosslogEntry(NamedTuple):
    """A content with its stamp and id. Entries are ordered by stamp, then by master. ``uid``: short for the name."""

    stamp: int
    master: int
    uid: int
    content: ModelContent
    name: EntryName


@dataclass(frozen=True, slots=True, eq=False)
class CutVector:
    """The entries of each repository that are in a cut. ``is_consistent``: none of them ever moves."""

    prefixes: dict[int, tuple[CrosslogEntry, ...]]
    is_consistent: bool


class PlacedVerdict(NamedTuple):
    """A decision or outcome that counts, and its index in its log."""

    place: int
    commits: bool


@dataclass(frozen=True, slots=True, eq=False)
class LogView:
    """A view of one log. ``history``: the numbers of the views that it continues."""

    number: int
    members: frozenset[int]
    history: frozenset[int]
