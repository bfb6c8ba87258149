"""The outcome of one application of the log to a worker."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from txlog.apply.suspect import Suspect
from txlog.model.entry import LogEntry
from txlog.model.ids import Txid
from txlog.workers.adapter import LoadMarker, MarkerPosition


class WorkerState(StrEnum):
    """The states in a worker's report (docs/reference/http-api.md)."""

    WORKING = "Working"
    """The worker is at the requested index, or on its way there."""
    UNREACHABLE = "Unreachable"
    """The worker gave no answer. The next application continues at the worker's position."""
    BLOCKED = "Blocked"
    """The worker refuses a transaction that is sent alone, or does not survive it. It stays there until the log skips
    the transaction. Without a ``refused``: it executes no updates at all."""
    DIVERGED = "Diverged"
    """The worker is on another branch than the log (duty ``restore``), or holds two markers (rebuild it)."""
    AHEAD = "Ahead"
    """The worker is above the stable index of the answering master: decided once that master's log is there."""
    NEEDS_RESTORE = "NeedsRestore"
    """The log is trimmed above the worker's position: copy another worker, or restore a backup."""
    LOADING = "Loading"
    """A batch load runs (:mod:`txlog.pipeline.batch`). The data is no prefix of the log: masters send it no query."""
    REFUSED = "Refused"
    """The worker must not be written to: it holds foreign data, or is not what it was registered as."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """The first transaction that fails alone: its index in the log, its id, and the worker's HTTP status and body.
    ``status`` is None where the worker gives no answer, but ends or stalls; ``body`` says which."""

    index: int
    txid: Txid
    status: int | None
    body: str


@dataclass(frozen=True, slots=True)
class ForeignLock:
    """A lock that another applier has on the worker, or that an unanswered request of this process left there. Pass it
    to the next :func:`~txlog.apply.apply_up_to`: otherwise a worker is never taken over from an applier that died.

    ``seen``: the claims and markers that were there; a change shows that the owner is alive. ``since``: when they were
    first seen, by this process' clock (seconds). ``is_ours``: a request of this process left the lock. The same
    transport knows when that request is over, so that the applier neither waits longer nor takes over earlier."""

    seen: frozenset[str]
    since: float
    is_ours: bool = False


@dataclass(frozen=True, slots=True)
class ApplyOutcome:
    """The outcome of one :func:`~txlog.apply.apply_up_to`. ``position``: the worker's marker; None when it is not known
    (unreachable, refused) or the worker is empty. ``applied``: the number of entries that this call applied.
    ``requests``: the number of requests that it sent to the worker."""

    position: MarkerPosition | None
    state: WorkerState
    error: str | None = None
    refused: Refusal | None = None
    applied: int = 0
    requests: int = 0
    foreign_lock: ForeignLock | None = None
    suspect: Suspect | None = None
    """The entries that the worker does not survive, or that it may not. Pass it to the next call."""
    bulk: LogEntry | None = None
    """The bulk load that is next, right after ``position``."""
    loading: LoadMarker | None = None
    """Of ``LOADING``: the mark in the worker."""
