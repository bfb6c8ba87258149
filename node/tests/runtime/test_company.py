"""Who is there to give way to."""

from __future__ import annotations

import asyncio

from txlog.runtime.interactive_load import ACTIVE_REQUESTS_MIN, WINDOW_S, InteractiveLoad


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_nobody_is_there_at_first() -> None:
    assert not InteractiveLoad(Clock()).is_active


def test_many_small_entries_within_a_while_are_company() -> None:
    company = InteractiveLoad(Clock())
    for _ in range(ACTIVE_REQUESTS_MIN - 1):
        company.note_entries(1)
    assert not company.is_active
    company.note_entries(1)
    assert company.is_active


def test_it_is_over_when_nobody_comes_any_more() -> None:
    clock = Clock()
    company = InteractiveLoad(clock)
    for _ in range(ACTIVE_REQUESTS_MIN):
        company.note_entries(1)
    clock.now += WINDOW_S
    assert not company.is_active


def test_few_now_and_then_are_none() -> None:
    clock = Clock()
    company = InteractiveLoad(clock)
    for _ in range(10 * ACTIVE_REQUESTS_MIN):
        company.note_entries(1)
        clock.now += WINDOW_S / (ACTIVE_REQUESTS_MIN - 1)
        assert not company.is_active


def test_large_entries_are_no_company_for_themselves() -> None:
    company = InteractiveLoad(Clock())
    for _ in range(10 * ACTIVE_REQUESTS_MIN):
        company.expect_large_entry()
        company.note_entries(1)
    assert not company.is_active
    for _ in range(ACTIVE_REQUESTS_MIN):
        company.expect_large_entry()
        company.note_entries(2)  # a small one came with it
    assert company.is_active


def test_several_large_ones_that_come_with_one_growth_of_the_log() -> None:
    company = InteractiveLoad(Clock())
    for _ in range(ACTIVE_REQUESTS_MIN):
        for _ in range(3):
            company.expect_large_entry()
        company.note_entries(3)
    assert not company.is_active


def test_many_that_come_at_once_are_company() -> None:
    company = InteractiveLoad(Clock())
    company.note_entries(100 * ACTIVE_REQUESTS_MIN)
    assert company.is_active


def test_requests_are_company_whatever_is_large() -> None:
    company = InteractiveLoad(Clock())
    for _ in range(ACTIVE_REQUESTS_MIN):
        company.expect_large_entry()
        company.note_request()
    assert company.is_active


def test_large_ones_that_never_come_hide_few() -> None:
    company = InteractiveLoad(Clock())
    for _ in range(1000):
        company.expect_large_entry()
    for _ in range(2 * ACTIVE_REQUESTS_MIN):
        company.note_entries(1)
    assert company.is_active


async def test_a_rest_is_one_turn_where_nobody_is() -> None:
    await asyncio.wait_for(InteractiveLoad(Clock()).throttle(3600.0), 10)
