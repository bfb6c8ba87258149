"""Judges whether a store is of this cluster: what may be rebuilt by itself, and what waits for a person."""

from __future__ import annotations

from txlog.runtime.worker_state import WorkerMarker

OTHER_CLUSTER = "OtherCluster"
UNKNOWN_POSITION = "UnknownPosition"


def store_refusal(name: str, position: WorkerMarker | None, cluster: str, is_proved: bool) -> str | None:
    """Why a store must neither be written nor emptied until a person decides; None for a store of this cluster.

    ``cluster``: the id of this master's cluster, empty while it has none. ``is_proved``: this master's log, or a branch
    that it abandoned, has the position. Only a marker without a cluster needs that: a marker with this cluster's id was
    written from a log of this cluster."""
    if position is None or not cluster or position.cluster == cluster:
        return None
    if position.cluster:
        why = f"{OTHER_CLUSTER}: it holds the data of the cluster {position.cluster} up to index {position.index}"
    elif not is_proved:
        why = f"{UNKNOWN_POSITION}: it is at index {position.index}, hash {position.hash}, which no log here ever had"
    else:
        return None
    what = f"keep it: txlog worker adopt {name}; delete it: txlog worker rebuild {name} --discard"
    return f"{why}, this cluster is {cluster}; {what}"
