"""The checkers find what they are there to find."""

from __future__ import annotations

import pytest

from e2e.lib.checks import check_counters, check_log, check_worker
from e2e.lib.history import ClientOperation, LoggedOperation, WriteOutcome

ACK, UNKNOWN, REFUSED = WriteOutcome.ACKNOWLEDGED, WriteOutcome.UNKNOWN, WriteOutcome.REFUSED


def op(
    name: str, outcome: WriteOutcome = ACK, began: float = 0.0, ended: float = 1.0, level: str = "synced"
) -> ClientOperation:
    return ClientOperation(name, began, ended, outcome, level if outcome is ACK else "")


def log(*names: str) -> list[LoggedOperation]:
    return [LoggedOperation(at, name, f"uk-1.0000000000000001.{at}") for at, name in enumerate(names, 1)]


def test_what_is_as_it_was_told_is_clean() -> None:
    verdict = check_log([op("a"), op("b", UNKNOWN), op("c", UNKNOWN), op("d", REFUSED)], log("a", "b"))
    assert verdict.is_clean
    assert (verdict.acknowledged, verdict.unknown) == (1, 2)


@pytest.mark.parametrize("outcome", [ACK, UNKNOWN])
def test_twice_is_doubled_whatever_was_told(outcome: WriteOutcome) -> None:
    assert check_log([op("a", outcome)], log("a", "a")).doubled == ["a 2 times"]


def test_acknowledged_and_not_there_is_lost() -> None:
    assert check_log([op("a"), op("b")], log("b")).lost == ["a (synced )"]
    assert check_worker([op("a"), op("b")], ["b"]).lost == ["a (synced )"]


def test_refused_or_never_sent_and_there_is_foreign() -> None:
    verdict = check_log([op("a", REFUSED)], log("a", "z"))
    assert verdict.foreign == ["a was refused", "z was never sent"]


def test_real_time_order_binds_only_what_was_acknowledged_as_agreed_before() -> None:
    first = op("first", began=0, ended=1)
    then = op("then", began=2, ended=3)
    assert check_log([first, then], log("first", "then")).is_clean
    assert len(check_log([first, then], log("then", "first")).disordered) == 1
    together = op("together", began=0.5, ended=3)
    assert check_log([first, together], log("together", "first")).is_clean
    only_accepted = op("first", began=0, ended=1, level="accepted")
    assert check_log([only_accepted, then], log("then", "first")).is_clean


def test_counters_show_what_was_executed_twice_or_not_at_all() -> None:
    assert check_counters({"x": 3, "y": 2}, {"x": 3, "y": 2}) == []
    assert len(check_counters({"x": 3, "y": 2}, {"x": 4})) == 2
