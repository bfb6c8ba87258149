"""How far the best worker was a moment ago."""

from __future__ import annotations

from txlog.runtime.lately import LAG_S, Lately


class Time:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_what_was_reached_a_moment_ago_is_not_asked_for_yet() -> None:
    time = Time()
    lately = Lately(time)
    assert lately.least() == 0
    lately.note(7)
    assert lately.least() == 0
    time.now += LAG_S
    assert lately.least() == 7
    lately.note(9)
    lately.note(9)
    time.now += LAG_S / 2
    lately.note(12)
    assert lately.least() == 7
    time.now += LAG_S / 2
    assert lately.least() == 9
    time.now += 1000
    assert lately.least() == 12


def test_a_best_that_falls_counts_at_once() -> None:
    time = Time()
    lately = Lately(time)
    lately.note(50)
    time.now += LAG_S
    lately.note(20)
    assert lately.least() == 20
    lately.note(50)
    assert lately.least() == 50  # half a second ago it was there
    time.now += LAG_S / 2
    lately.note(60)
    time.now += LAG_S
    assert lately.least() == 60


def test_a_flood_of_steps_is_a_few() -> None:
    time = Time()
    lately = Lately(time)
    for index in range(100_000):
        time.now += 0.0001
        lately.note(index)
    assert len(lately._steps) < 60
    assert 94_000 < lately.least() < 95_300
