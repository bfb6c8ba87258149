"""One round of applying the log to a worker: what it gets of the rounds before, and what it reports."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from txlog.apply import Suspect
from txlog.client import JsonMarker, WorkerReport
from txlog.workers.adapter import MarkerPosition


class WorkerCache(NamedTuple):
    """What one application to a worker leaves for the next, in any process. All fields may be wrong: a wrong marker
    costs a request. ``probed``: this store passed the probe and has been available ever since. ``suspect``: entries
    that the worker may not survive; forgotten, they cost it two more failures. ``loaded``: the bulk load that came in
    last; forgotten, it is sent ahead once more for nothing."""

    probed: bool = False
    marker: MarkerPosition | None = None
    suspect: Suspect | None = None
    loaded: str = ""


EMPTY_CACHE = WorkerCache()


class ApplyRound(NamedTuple):
    """``healthy``: the next round could start at once. ``awaits``: a request of this process got no answer in time, and
    only this process' connection will show its end. ``keeps``: this process holds the body of a bulk load open, which
    is of use to it alone."""

    report: WorkerReport
    cache: WorkerCache
    healthy: bool
    awaits: bool = False
    keeps: bool = False


class Applier(Protocol):
    """Brings one worker towards ``upto`` for about ``budget_s``; never raises for an error of the worker or of a
    master."""

    def __call__(self, upto: int, budget_s: float, known: WorkerCache) -> ApplyRound: ...


def to_worker_position(marker: MarkerPosition) -> JsonMarker:
    """The position in the form of a report."""
    at = marker.position
    paths = [f"{index}:{value.hex()}" for index, value in marker.unordered]
    return JsonMarker(at.epoch, at.index, at.hash.hex(), marker.fence, paths, marker.cluster.hex(), marker.base.hex())


def to_marker(position: JsonMarker) -> MarkerPosition:
    """The inverse of :func:`to_worker_position`."""
    cluster, base = bytes.fromhex(position.cluster), bytes.fromhex(position.base)
    return MarkerPosition(position.position, position.fence, position.unordered_positions, cluster, base)
