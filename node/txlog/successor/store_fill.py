"""Fills the worker stores of a new cluster: a restore to the place where its log begins, marked as the new cluster's.

It runs while the masters take writes. A pipeline leaves an empty store alone, because the log does not begin at its
position, and one that is being loaded, because of its mark. From the marker on it follows the log.
"""

from __future__ import annotations

from txlog.archive.moment_restore import MomentRequest, MomentRestored, restore_to_moment
from txlog.archive.stream_reader import StreamReader
from txlog.archive.window_retention import hold_stream
from txlog.backup.dataset_load import RestoreTarget
from txlog.backup.pinned_snapshot import read_system_graphs
from txlog.backup.progress import ProgressCallback, no_progress


def is_filled(into: RestoreTarget, cluster: bytes) -> bool:
    """Whether the store is at a position of the new cluster already."""
    markers = read_system_graphs(into.adapter, into.transport).markers
    return any(marker.cluster == cluster for marker in markers)


def fill_store(
    reader: StreamReader,
    restore: MomentRequest,
    into: RestoreTarget,
    cluster: bytes,
    on_progress: ProgressCallback = no_progress,
) -> MomentRestored | None:
    """None for a store that is filled already. ``restore``: the place where the log of ``cluster`` begins. An
    interrupted fill is begun again.

    Raises what :func:`~txlog.archive.moment_restore.restore_to_moment` raises, also for a store that holds the data of
    another cluster: nothing of it is deleted."""
    if is_filled(into, cluster):
        return None
    loading = read_system_graphs(into.adapter, into.transport).loading
    again = any(each.position.index == restore.moment.index for each in loading)
    with hold_stream(reader.stream):
        return restore_to_moment(reader, restore, into, again=again, on_progress=on_progress, cluster=cluster)
