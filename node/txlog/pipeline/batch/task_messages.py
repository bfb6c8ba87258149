"""What the driver tells its tasks, and what they tell each other. Values only; all of them travel by pickle."""

from __future__ import annotations

from typing import NamedTuple

from txlog.model.entry import Position
from txlog.model.errors import WorkerFault
from txlog.workers.adapter import LoadMarker


class LogRange(NamedTuple):
    """The entries behind ``after``, up to ``end``; both are positions of one log, so that whoever reads the pages
    between them knows that they are that log's."""

    after: Position
    end: Position

    @property
    def entries(self) -> int:
        return self.end.index - self.after.index


class LoadJob(NamedTuple):
    """One run of tasks. ``loading``: what the worker must say while they load. ``worker_was_empty``: the worker held
    nothing when the loading began, so nothing has to be taken out. ``repeats_load``: the load was begun by somebody who
    is gone."""

    masters: tuple[str, ...]
    worker: str
    url: str
    engine: str
    loading: LoadMarker
    buckets: int
    worker_was_empty: bool
    repeats_load: bool = False


class BucketPiece(NamedTuple):
    """What a stretch of the log does to the quads of one bucket. ``first``: the stretch's first index; stretches do
    not overlap. ``adds``: quads that are there behind it, ``deletes``: that are not, ``transient``: that are not, and
    came and went in it. N-Quads lines with a newline each, a quad in one of the three (in ``adds`` perhaps
    repeatedly)."""

    first: int
    adds: bytes = b""
    deletes: bytes = b""
    transient: bytes = b""


class UpdateIndexes(NamedTuple):
    """``indexes`` of updates in one range, which are no quads. Nothing at or above the first one of all ranges may be
    loaded, so every bucket hears of the first; of all of them bucket 0 alone, since there may be millions."""

    indexes: tuple[int, ...]


class TaskFault(NamedTuple):
    """Every bucket hears of it, and loads nothing. ``state``: as in a report (:class:`~txlog.apply.State`)."""

    state: str
    text: str


class BucketResult(NamedTuple):
    """What became of one bucket. ``update_indexes``: the updates that it heard of. ``began``: when its loading did, in
    seconds of its machine's clock since 1970; nothing but times that are shown hangs on it."""

    adds: int = 0
    deletes: int = 0
    update_indexes: tuple[int, ...] = ()
    fault: TaskFault | None = None
    began: float = 0.0


class LoadSuperseded(WorkerFault):
    """Somebody else has taken over this load, or has emptied the worker: theirs counts, this one ends."""
