"""The names of markers: those of earlier versions, those with a cluster, and none of a version that is not known."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from txlog.model.entry import Position
from txlog.workers.adapter import EMPTY_MARKER, LoadMarker, MarkerPosition, WorkerRefused
from txlog.workers.marker_names import (
    loading_name,
    marker_name,
    parse_loading,
    parse_marker,
    system_graphs_from_names,
)

NUMBERS = st.integers(0, 10**18)
HASHES = st.binary(min_size=16, max_size=16)
POSITIONS = st.builds(Position, NUMBERS, NUMBERS, HASHES)
UNORDERED = st.lists(st.tuples(NUMBERS, HASHES), max_size=3).map(tuple)
MARKERS = st.one_of(
    st.builds(MarkerPosition, POSITIONS, NUMBERS, UNORDERED, st.just(b""), st.just(b"")),
    st.builds(MarkerPosition, POSITIONS, NUMBERS, UNORDERED, HASHES, st.one_of(st.just(b""), HASHES)),
)


@given(MARKERS)
def test_a_marker_is_read_as_it_was_written(marker: MarkerPosition) -> None:
    assert parse_marker(marker_name(marker)) == marker
    assert system_graphs_from_names([marker_name(marker)]).markers == (marker,)
    loading = LoadMarker(marker.position, 5, marker)
    assert parse_loading(loading_name(loading)) == loading
    assert system_graphs_from_names([loading_name(loading)]).loading == (loading,)


def test_a_marker_of_an_earlier_version_keeps_its_name() -> None:
    name = f"urn:txlog:system:7:{'ab' * 16}:3:2:u5-{'cd' * 16}"
    marker = parse_marker(name)
    assert marker == MarkerPosition(Position(2, 7, b"\xab" * 16), 3, ((5, b"\xcd" * 16),))
    assert marker_name(marker) == name
    assert marker_name(EMPTY_MARKER) == f"urn:txlog:system:0:{'00' * 16}:0:0"


@pytest.mark.parametrize("name", ["urn:txlog:system:v3:what:ever", "urn:txlog:system:loading:1:from:v3:x"])
def test_a_marker_of_a_later_version_is_refused_by_name(name: str) -> None:
    assert parse_marker(name) is None
    with pytest.raises(WorkerRefused, match="UnknownMarker: its marker has version 3"):
        system_graphs_from_names(["urn:txlog:system:lock:00", name])
