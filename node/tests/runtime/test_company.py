"""Who is there to give way to."""

from __future__ import annotations

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
        company.note()
    assert not company.here
    company.note()
    assert company.here


def test_it_is_over_when_nobody_comes_any_more() -> None:
    clock = Clock()
    company = Company(clock)
    for _ in range(MANY):
        company.note()
    clock.now += WITHIN_S
    assert not company.here


def test_few_now_and_then_are_none() -> None:
    clock = Clock()
    company = Company(clock)
    for _ in range(10 * MANY):
        company.note()
        clock.now += WITHIN_S / (MANY - 1)
        assert not company.here


def test_large_entries_are_no_company_for_themselves() -> None:
    company = Company(Clock())
    for _ in range(10 * MANY):
        company.large()
        company.note(1)
    assert not company.here
    for _ in range(MANY):
        company.large()
        company.note(2)  # a small one came with it
    assert company.here


def test_several_large_ones_that_come_with_one_growth_of_the_log() -> None:
    company = Company(Clock())
    for _ in range(3 * MANY):
        company.large()
    for _ in range(MANY):
        company.note(3)
    assert not company.here
