"""Who is there to give way to."""

from __future__ import annotations

import asyncio

from txlog.runtime.company import MANY, WITHIN_S, Company


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_nobody_is_there_at_first() -> None:
    assert not Company(Clock()).here


def test_many_small_entries_within_a_while_are_company() -> None:
    company = Company(Clock())
    for _ in range(MANY - 1):
        company.entries(1)
    assert not company.here
    company.entries(1)
    assert company.here


def test_it_is_over_when_nobody_comes_any_more() -> None:
    clock = Clock()
    company = Company(clock)
    for _ in range(MANY):
        company.entries(1)
    clock.now += WITHIN_S
    assert not company.here


def test_few_now_and_then_are_none() -> None:
    clock = Clock()
    company = Company(clock)
    for _ in range(10 * MANY):
        company.entries(1)
        clock.now += WITHIN_S / (MANY - 1)
        assert not company.here


def test_large_entries_are_no_company_for_themselves() -> None:
    company = Company(Clock())
    for _ in range(10 * MANY):
        company.large()
        company.entries(1)
    assert not company.here
    for _ in range(MANY):
        company.large()
        company.entries(2)  # a small one came with it
    assert company.here


def test_several_large_ones_that_come_with_one_growth_of_the_log() -> None:
    company = Company(Clock())
    for _ in range(MANY):
        for _ in range(3):
            company.large()
        company.entries(3)
    assert not company.here


def test_many_that_come_at_once_are_company() -> None:
    company = Company(Clock())
    company.entries(100 * MANY)
    assert company.here


def test_requests_are_company_whatever_is_large() -> None:
    company = Company(Clock())
    for _ in range(MANY):
        company.large()
        company.request()
    assert company.here


def test_large_ones_that_never_come_hide_few() -> None:
    company = Company(Clock())
    for _ in range(1000):
        company.large()
    for _ in range(2 * MANY):
        company.entries(1)
    assert company.here


async def test_a_rest_is_one_turn_where_nobody_is() -> None:
    await asyncio.wait_for(Company(Clock()).rest(3600.0), 10)
