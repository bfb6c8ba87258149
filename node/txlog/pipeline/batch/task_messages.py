"""Messages between the driver and its tasks, and between tasks. Values only; pickle transports all of them."""

from __future__ import annotations

from typing import NamedTuple

from txlog.model.entry import Position
from txlog.model.errors import WorkerFault
from txlog.workers.adapter import LoadMarker


class LogRange(NamedTuple):
    """The entries after ``after``, up to ``end``. Both are positions of one log, so that a reader can verify that the
    pages between them belong to that log."""

    after: Position
    end: Position

    @property
    def entries(self) -> int:
        """Number of entries in the range."""
        return self.end.index - self.after.index


class LoadJob(NamedTuple):
    """One run of tasks. ``loading``: the mark that the worker must have while they load. ``worker_was_empty``: the
    worker held nothing when the load began, so no quad must be deleted. ``repeats_load``: a process that is gone began
    the load."""

    masters: tuple[str, ...]
    worker: str
    url: str
    engine: str
    loading: LoadMarker
    buckets: int
    worker_was_empty: bool
    repeats_load: bool = False


class BucketPiece(NamedTuple):
    """The effect of a run of the log on the quads of one bucket. ``first``: the run's first index; runs do not overlap.
    ``adds``: quads that exist after it. ``deletes``: quads that do not. ``transient``: quads that do not, but were
    added and deleted in it. N-Quads lines with a newline each; a quad is in one of the three (in ``adds`` perhaps
    repeatedly)."""

    first: int
    adds: bytes = b""
    deletes: bytes = b""
    transient: bytes = b""


class UpdateIndexes(NamedTuple):
    """``indexes`` of updates in one range, which are no quads. Quads at or above the first one of all ranges must not
    be loaded, so every bucket receives the first. Only bucket 0 receives all of them, since there may be millions.
    ``before``: the position before the first one, on the log that was read; masters may have another one by now."""

    indexes: tuple[int, ...]
    before: Position


class TaskFault(NamedTuple):
    """Every bucket receives it, and loads nothing. ``state``: as in a report (:class:`~txlog.apply.State`)."""

    state: str
    text: str


class BucketResult(NamedTuple):
    """The result of one bucket. ``update_indexes``: the updates that it received. ``before``: the position before the
    first of them. ``began``: when its load began, in seconds since 1970 by its machine's clock; only used for displayed
    times."""

    adds: int = 0
    deletes: int = 0
    update_indexes: tuple[int, ...] = ()
    fault: TaskFault | None = None
    began: float = 0.0
    before: Position | None = None


class LoadSuperseded(WorkerFault):
    """Another process has taken over this load, or has emptied the worker. Its load counts; this one ends."""
