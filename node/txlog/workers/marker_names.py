"""Encodes a worker's marker as the name of a graph; the same for every engine.

``urn:txlog:system:<index>:<hash>:<fence>:<epoch>`` is a marker without a cluster, as earlier versions wrote it. From
version 2 on the name begins with its version and ends with the cluster's id and the base content (``-``: none).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from txlog.model.entry import Position
from txlog.model.hashes import CLUSTER_ID_BYTES, HASH_BYTES
from txlog.workers.adapter import SYSTEM, LoadMarker, MarkerPosition, SystemGraphs, WorkerRefused

VERSION: Final = 2
"""Of the names that this program writes for markers with a cluster."""
TRIAL_NAME: Final = f"{SYSTEM}:trial"
"""A system graph that no store has: a trial ends by expecting it (:meth:`~txlog.workers.adapter.Adapter.apply`)."""
_HASH = f"[0-9a-f]{{{2 * HASH_BYTES}}}"
_ID = f"[0-9a-f]{{{2 * CLUSTER_ID_BYTES}}}"
_PATHS = rf"((?::u\d{{1,19}}-{_HASH})*)"
_PLACE = rf"(\d{{1,19}}):({_HASH}):(\d{{1,19}}):(\d{{1,19}})"
_MARKER = re.compile(rf"^{SYSTEM}:(?:{_PLACE}|v{VERSION}:{_PLACE}:({_ID}):(-|{_HASH})){_PATHS}$")
_LOADING = re.compile(rf"^{SYSTEM}:loading:{_PLACE}(?::from(:.*))?$")
_VERSIONED = re.compile(rf"^{SYSTEM}:(?:loading:.*:from:)?v(\d+):")


def marker_name(marker: MarkerPosition) -> str:
    """The name of the graph that encodes this marker: without a version where it carries no cluster."""
    epoch, index, chain = marker.position.epoch, marker.position.index, marker.position.hash
    paths = "".join(f":u{at}-{value.hex()}" for at, value in marker.unordered)
    place = f"{index}:{chain.hex()}:{marker.fence}:{epoch}"
    if not marker.cluster:
        return f"{SYSTEM}:{place}{paths}"
    return f"{SYSTEM}:v{VERSION}:{place}:{marker.cluster.hex()}:{marker.base.hex() or '-'}{paths}"


def parse_marker(name: str) -> MarkerPosition | None:
    """The inverse of :func:`marker_name`; None for any other graph."""
    found = _MARKER.match(name)
    if found is None:
        return None
    index, chain, fence, epoch = (found[at] if found[at] is not None else found[at + 4] for at in range(1, 5))
    paths = [path.split("-") for path in found[11].split(":u")[1:]]
    unordered = tuple((int(at), bytes.fromhex(value)) for at, value in paths)
    cluster, base = bytes.fromhex(found[9] or ""), bytes.fromhex((found[10] or "").strip("-"))
    return MarkerPosition(Position(int(epoch), int(index), bytes.fromhex(chain)), int(fence), unordered, cluster, base)


def loading_name(loading: LoadMarker) -> str:
    """The name of the graph that records a load which has begun and not ended."""
    epoch, index, chain = loading.position.epoch, loading.position.index, loading.position.hash
    since = "" if loading.since is None else ":from" + marker_name(loading.since).removeprefix(SYSTEM)
    return f"{SYSTEM}:loading:{index}:{chain.hex()}:{epoch}:{loading.token}{since}"


IN_FLIGHT_BIT: Final = 1 << 62
"""In the token of a load's mark: the body of a bulk load may have been ended, and may land for as long as the store's
process lives (:mod:`txlog.bulk.held_body`). Other loads have tokens below it."""


def may_land(loading: LoadMarker) -> bool:
    """Whether the body of a bulk load may still land in the worker with this mark."""
    return bool(loading.token & IN_FLIGHT_BIT)


def marker_or_load_name(state: MarkerPosition | LoadMarker) -> str:
    """The graph name of a marker or of a load."""
    return loading_name(state) if isinstance(state, LoadMarker) else marker_name(state)


def parse_loading(name: str) -> LoadMarker | None:
    """The inverse of :func:`loading_name`; None for any other graph."""
    found = _LOADING.match(name)
    if found is None:
        return None
    since = parse_marker(SYSTEM + found[5]) if found[5] else None
    if found[5] and since is None:
        return None
    return LoadMarker(Position(int(found[3]), int(found[1]), bytes.fromhex(found[2])), int(found[4]), since)


def system_graphs_from_names(names: Iterable[str]) -> SystemGraphs:
    """Parse the names of system graphs. A name that is neither a marker nor a load is a claim. Raises
    :class:`WorkerRefused` (``UnknownMarker``) for a marker of a version that this program does not know."""
    names = list(names)
    versions = [named[1] for name in names if (named := _VERSIONED.match(name)) is not None]
    unknown = next((version for version in versions if int(version) != VERSION), None)
    if unknown is not None:
        raise WorkerRefused(
            "UnknownMarker", f"its marker has version {unknown}, this program reads {VERSION}; use the newer TxLog"
        )
    markers = {name: marker for name in names if (marker := parse_marker(name)) is not None}
    by_place = sorted(markers.values(), key=lambda m: (m.position.index, m.fence))
    loading = {name: found for name in names if (found := parse_loading(name)) is not None}
    claims = frozenset(names).difference(markers, loading)
    return SystemGraphs(tuple(by_place), claims, tuple(sorted(loading.values())))
