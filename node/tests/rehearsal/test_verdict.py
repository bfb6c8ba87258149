"""A rehearsal is good only by a comparison at one place of the log."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from txlog.archive.file_name import Node
from txlog.rehearsal.phase_clock import PhaseClock
from txlog.rehearsal.verdict import (
    Comparison,
    MeasuredTimes,
    PlacedDigest,
    RehearsalBounds,
    compare_digests,
    find_fault,
    measure_times,
)
from txlog.workers.digest import Digest

HERE, ELSEWHERE = Node(7, b"h" * 16), Node(7, b"e" * 16)
QUICK = MeasuredTimes(0.0, 0.0, 0.0)
GRAPHS = st.dictionaries(st.sampled_from(["", "urn:a", "urn:b"]), st.tuples(st.integers(1, 3), st.integers(0, 3)))


def held(graphs: dict[str, tuple[int, int]], place: Node = HERE) -> PlacedDigest:
    return PlacedDigest(place, Digest(sum(n for n, _ in graphs.values()), 0, graphs))


@given(GRAPHS, GRAPHS, st.booleans())
def test_only_equal_graphs_at_one_place_are_good(one: dict, other: dict, same_place: bool) -> None:  # type: ignore[type-arg]
    compared = compare_digests(held(one), held(other, HERE if same_place else ELSEWHERE))
    fault = find_fault(compared, QUICK, RehearsalBounds())
    assert (fault is None) == (same_place and one == other and bool(one))


def test_names_of_faults() -> None:
    assert type(find_fault(Comparison(0, ()), QUICK, RehearsalBounds())).__name__ == "NothingCompared"
    differs = find_fault(Comparison(2, ("", "urn:a")), QUICK, RehearsalBounds())
    assert "2 of 2 graphs differ" in str(differs)
    assert "the default graph, urn:a" in str(differs)
    sound = Comparison(1, ())
    times = MeasuredTimes(rpo_s=3.0, rto_writes_s=4.0, rto_reads_s=50.0)
    assert find_fault(sound, times, RehearsalBounds(3.0, 50.0)) is None
    assert type(find_fault(sound, times, RehearsalBounds(2.9, 50.0))).__name__ == "RpoExceeded"
    assert type(find_fault(sound, times, RehearsalBounds(3.0, 49.9))).__name__ == "RtoExceeded"


def test_what_counts_as_recovery_time() -> None:
    """Reading the live worker, starting the throw-away store and comparing are no part of a recovery."""
    phases = {"live": 1, "find": 2, "claim": 4, "found": 8, "prepare": 16, "base": 32, "files": 64, "load": 128}
    assert measure_times(0.5, {**phases, "compare": 256}) == MeasuredTimes(0.5, 14, 238)


def test_phases_add_up() -> None:
    now = 0.0
    clock = PhaseClock(clock=lambda: now)
    for name, seconds in (("base", 2.0), ("files", 3.0), ("base", 5.0), ("base", 1.0)):
        clock.begin(name)
        now += seconds
    clock.end()
    assert (clock.seconds, clock.current) == ({"base": 8.0, "files": 3.0}, "base")
