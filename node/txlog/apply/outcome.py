"""What an application to one worker came to."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from txlog.model.ids import Txid
from txlog.workers.adapter import MarkerPosition


class WorkerState(StrEnum):
    """The words of a worker's report (docs/reference/http-api.md)."""

    WORKING = "Working"
    """It is where it was asked to be, or on its way there."""
    UNREACHABLE = "Unreachable"
    """It gave no answer. The next application goes on where it stands."""
    BLOCKED = "Blocked"
    """It refuses a transaction, alone. It stays there until the transaction is skipped by the log."""
    DIVERGED = "Diverged"
    """It is on another branch than the log, or holds two markers: a duty to go back, or rebuild it."""
    AHEAD = "Ahead"
    """It is above the stable index of the master asked: decided when that master's log is there."""
    NEEDS_RESTORE = "NeedsRestore"
    """The log no longer holds what follows: copy another worker, or restore a backup."""
    LOADING = "Loading"
    """A batch brings it up to the log (:mod:`txlog.pipeline.batch`). It holds no prefix of the log: nobody reads it."""
    REFUSED = "Refused"
    """It must not be written to: foreign data, or not what it was registered as."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """The first transaction that fails alone: where it is in the log, and the worker's own words."""

    index: int
    txid: Txid
    status: int
    body: str


@dataclass(frozen=True, slots=True)
class ForeignLock:
    """A lock that another applier has on the worker, or that an unanswered request of ours left there. Hand it to the
    next :func:`~txlog.apply.apply_up_to`: who never hands it on never takes a worker over from an applier that died.

    ``seen``: what stood there, to tell whether its owner is alive. ``since``: when that was first seen, by this
    process' clock. ``is_ours``: left by a request of ours; the same transport knows when that is over, so that there is
    neither a reason to wait longer nor to take over earlier."""

    seen: frozenset[str]
    since: float
    is_ours: bool = False


@dataclass(frozen=True, slots=True)
class ApplyOutcome:
    """``position``: where the worker stands, None when that is not known (unreachable, refused) or it is empty.
    ``applied``: entries that this call moved it over. ``requests``: how many were sent to the worker."""

    position: MarkerPosition | None
    state: WorkerState
    error: str | None = None
    refused: Refusal | None = None
    applied: int = 0
    requests: int = 0
    foreign_lock: ForeignLock | None = None
