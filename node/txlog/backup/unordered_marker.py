"""Moves a worker that is off the log's chain to the chain, without a change of its data (``splitRecovery: None``)."""

from __future__ import annotations

from txlog.backup.backup_errors import WorkerMoved
from txlog.backup.marker_change import change_marker
from txlog.backup.pinned_snapshot import SourceWorker
from txlog.model.entry import Position
from txlog.workers.adapter import MarkerPosition


def mark_unordered(source: SourceWorker, was: MarkerPosition | None, to: Position) -> MarkerPosition:
    """Returns the new marker, written in one transaction of the store: position ``to``, a raised fence, and the
    abandoned position among the earlier ones. :class:`~txlog.backup.backup_errors.WorkerMoved` when the worker is not
    at its last reported position (``was``): then another target may be right."""

    def following(found: MarkerPosition | None) -> MarkerPosition:
        if found is None or was is None or found._replace(fence=was.fence) != was:
            raise WorkerMoved(f"{source.name} is at {found}, not at {was} as was reported; looked at again")
        place = (found.position.index, found.position.hash)
        return found._replace(position=to, fence=found.fence + 1, unordered=(*found.unordered, place))

    return change_marker(source, following, "is being restored; it is on the log afterwards", "rebuild it")
