"""What the system graphs of a worker say about it: where it is, or why nothing may be applied to it."""

from __future__ import annotations

from txlog.apply.session_errors import BatchLoading
from txlog.workers.adapter import MarkerPosition, SystemGraphs, WorkerDiverged, WorkerRefused


def is_overlapped(system: SystemGraphs) -> bool:
    """Whether two writers have overlapped: each left a record of its own, a marker or that of a load. One writer
    replaces the record that it found by another one, in one transaction."""
    return len(system.markers) + len(system.loading) > 1


def raise_if_overlapped(url: str, system: SystemGraphs) -> None:
    """:class:`~txlog.workers.adapter.WorkerDiverged` where two writers have overlapped."""
    if is_overlapped(system):
        named = [f"{m.position} fence {m.fence}" for m in system.markers]
        named += [f"a load up to index {each.position.index}" for each in system.loading]
        raise WorkerDiverged(
            f"{url} holds {len(named)} markers ({', '.join(named)}): two appliers have overlapped; "
            "rebuild this worker from another one"
        )


def find_marker(url: str, system: SystemGraphs) -> MarkerPosition | None:
    """The worker's marker; None without one. Raises while data is loaded into it."""
    for loading in system.loading:
        if loading.since is not None:
            raise BatchLoading(url, loading)
        raise WorkerRefused(
            "Loading",
            f"a data set is being loaded into {url}, up to index {loading.position.index}; "
            "wait, or begin that restore again if it broke off",
        )
    return system.markers[0] if system.markers else None


def refuse_foreign_data(url: str) -> WorkerRefused:
    """The error of a store that is not empty and has no marker."""
    return WorkerRefused(
        "ForeignStore",
        f"{url} holds data that TxLog did not write; register an empty store and upload the data through a master",
    )
