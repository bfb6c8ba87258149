"""Encodes a worker's marker as the name of a graph; the same for every engine."""

from __future__ import annotations

import re
from collections.abc import Iterable

from txlog.model.entry import Position
from txlog.model.hashes import HASH_BYTES
from txlog.workers.adapter import SYSTEM, LoadMarker, MarkerPosition, SystemGraphs

_HASH = f"[0-9a-f]{{{2 * HASH_BYTES}}}"
_PATHS = rf"((?::u\d{{1,19}}-{_HASH})*)"
_PLACE = rf"(\d{{1,19}}):({_HASH}):(\d{{1,19}}):(\d{{1,19}})"
_MARKER = re.compile(rf"^{SYSTEM}:{_PLACE}{_PATHS}$")
_LOADING = re.compile(rf"^{SYSTEM}:loading:{_PLACE}(?::from(:{_PLACE}{_PATHS}))?$")


def marker_name(marker: MarkerPosition) -> str:
    """The name of the graph that encodes this marker."""
    epoch, index, chain = marker.position.epoch, marker.position.index, marker.position.hash
    paths = "".join(f":u{at}-{value.hex()}" for at, value in marker.unordered)
    return f"{SYSTEM}:{index}:{chain.hex()}:{marker.fence}:{epoch}{paths}"


def parse_marker(name: str) -> MarkerPosition | None:
    """The inverse of :func:`marker_name`; None for any other graph."""
    found = _MARKER.match(name)
    if found is None:
        return None
    paths = [path.split("-") for path in found[5].split(":u")[1:]]
    unordered = tuple((int(at), bytes.fromhex(value)) for at, value in paths)
    return MarkerPosition(Position(int(found[4]), int(found[1]), bytes.fromhex(found[2])), int(found[3]), unordered)


def loading_name(loading: LoadMarker) -> str:
    """The name of the graph that records a load which has begun and not ended."""
    epoch, index, chain = loading.position.epoch, loading.position.index, loading.position.hash
    since = "" if loading.since is None else ":from" + marker_name(loading.since).removeprefix(SYSTEM)
    return f"{SYSTEM}:loading:{index}:{chain.hex()}:{epoch}:{loading.token}{since}"


def marker_or_load_name(state: MarkerPosition | LoadMarker) -> str:
    """The graph name of a marker or of a load."""
    return loading_name(state) if isinstance(state, LoadMarker) else marker_name(state)


def parse_loading(name: str) -> LoadMarker | None:
    """The inverse of :func:`loading_name`; None for any other graph."""
    found = _LOADING.match(name)
    if found is None:
        return None
    since = parse_marker(SYSTEM + found[5]) if found[5] else None
    return LoadMarker(Position(int(found[3]), int(found[1]), bytes.fromhex(found[2])), int(found[4]), since)


def system_graphs_from_names(names: Iterable[str]) -> SystemGraphs:
    """Parse the names of system graphs. A name that is neither a marker nor a load is a claim."""
    names = list(names)
    markers = {name: marker for name in names if (marker := parse_marker(name)) is not None}
    by_place = sorted(markers.values(), key=lambda m: (m.position.index, m.fence))
    loading = {name: found for name in names if (found := parse_loading(name)) is not None}
    claims = frozenset(names).difference(markers, loading)
    return SystemGraphs(tuple(by_place), claims, tuple(sorted(loading.values())))
