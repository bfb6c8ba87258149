"""Makes the content of a store the base of this cluster's log: what was there before its first entry."""

from __future__ import annotations

from txlog.backup.backup_errors import WorkerMoved
from txlog.backup.marker_change import change_marker
from txlog.backup.pinned_snapshot import SourceWorker
from txlog.model.entry import Position
from txlog.model.hashes import content_base
from txlog.workers.adapter import MarkerPosition


def adopt_store(source: SourceWorker, was: MarkerPosition | None, cluster: bytes, first: Position) -> MarkerPosition:
    """Returns the new marker, written in one transaction of the store; the data stays. It is at ``first``, the position
    before the first entry of this cluster's log, so that the log follows on the content. An adopted store keeps its
    marker. :class:`~txlog.backup.backup_errors.WorkerMoved` when the store is not where the person saw it
    (``was``)."""

    def following(found: MarkerPosition | None) -> MarkerPosition:
        if found is not None and found.cluster == cluster:
            return found
        if found is None or was is None or found._replace(fence=was.fence) != was:
            raise WorkerMoved(f"{source.name} is at {found}, not at {was} as was decided; look again")
        at = found.position
        base = content_base(found.cluster, found.base, at.index, at.hash)
        return MarkerPosition(first, found.fence + 1, (), cluster, base)

    return change_marker(source, following, "is being loaded: its content is not whole", "its content belongs to none")
