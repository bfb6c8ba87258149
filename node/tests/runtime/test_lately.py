"""How far the best worker was a moment ago."""

from __future__ import annotations

from txlog.runtime.applied_history import READ_LAG_S, AppliedHistory


class Time:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_what_was_reached_a_moment_ago_is_not_asked_for_yet() -> None:
    time = Time()
    lately = AppliedHistory(time)
    assert lately.lower_bound() == 0
    lately.record(7)
    assert lately.lower_bound() == 0
    time.now += READ_LAG_S
    assert lately.lower_bound() == 7
    lately.record(9)
    lately.record(9)
    time.now += READ_LAG_S / 2
    lately.record(12)
    assert lately.lower_bound() == 7
    time.now += READ_LAG_S / 2
    assert lately.lower_bound() == 9
    time.now += 1000
    assert lately.lower_bound() == 12


def test_a_best_that_falls_counts_at_once() -> None:
    time = Time()
    lately = AppliedHistory(time)
    lately.record(50)
    time.now += READ_LAG_S
    lately.record(20)
    assert lately.lower_bound() == 20
    lately.record(50)
    assert lately.lower_bound() == 50  # half a second ago it was there
    time.now += READ_LAG_S / 2
    lately.record(60)
    time.now += READ_LAG_S
    assert lately.lower_bound() == 60


def test_a_flood_of_steps_is_a_few() -> None:
    time = Time()
    lately = AppliedHistory(time)
    for index in range(100_000):
        time.now += 0.0001
        lately.record(index)
    assert len(lately._steps) < 60
    assert 94_000 < lately.lower_bound() < 95_300
