from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from txlog.config.schedule import parse_schedule


def at(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("text", "after", "due"),
    [
        ("0 2 * * *", "2026-03-01 01:59:59", "2026-03-01 02:00"),
        ("0 2 * * *", "2026-03-01 02:00:00", "2026-03-02 02:00"),
        ("*/15 * * * *", "2026-12-31 23:50", "2027-01-01 00:00"),
        ("5,35 8-10/2 * * *", "2026-03-01 08:36", "2026-03-01 10:05"),
        ("0 0 29 2 *", "2026-01-01 00:00", "2028-02-29 00:00"),
        ("0 0 29 2 *", "2096-03-01 00:00", "2104-02-29 00:00"),
        ("0 0 29 2 */7", "2026-01-01 00:00", "2032-02-29 00:00"),
        ("0 0 31 * *", "2026-03-31 00:00", "2026-05-31 00:00"),
        ("0 0 * * MON", "2026-03-01 00:00", "2026-03-02 00:00"),
        ("0 0 * * 7", "2026-03-02 00:00", "2026-03-08 00:00"),
        ("0 0 13 * FRI", "2026-03-01 00:00", "2026-03-06 00:00"),
        ("0 0 13 * FRI", "2026-03-07 00:00", "2026-03-13 00:00"),
        ("30 5 1 jan,JUL *", "2026-01-01 05:30", "2026-07-01 05:30"),
        ("@hourly", "2026-03-01 00:00", "2026-03-01 01:00"),
        ("@daily", "2026-03-01 00:00", "2026-03-02 00:00"),
        ("@weekly", "2026-03-02 00:00", "2026-03-08 00:00"),
        ("@monthly", "2026-03-02 00:00", "2026-04-01 00:00"),
        ("@yearly", "2026-03-02 00:00", "2027-01-01 00:00"),
        ("@every 90s", "2026-03-02 00:00:07", "2026-03-02 00:01:37"),
        ("@every 6h", "2026-03-02 00:00", "2026-03-02 06:00"),
    ],
)
def test_when_it_is_due(text: str, after: str, due: str) -> None:
    assert parse_schedule(text).next_after(at(after)) == at(due)


NONE = """nightly|@never|@every|@every 10|@every 500ms|@every 0|* * * *|* * * * * *|60 * * * *|* 24 * * *|* * 0 * *|
* * * 13 *|* * * * 8|5-1 * * * *|*/0 * * * *|a * * * *|1,,2 * * * *|- * * * *|0 0 30 2 *|0 0 31 4,6,9,11 *|
* * * * MONDAY|-1 * * * *|1-2-3 * * * *|*/x * * * *|0 0 L * *|0 0 LW * *|0 0 * * 5L|0 0 * * MON#2|"""


@pytest.mark.parametrize("text", NONE.replace("\n", "").split("|"))
def test_what_is_none(text: str) -> None:
    with pytest.raises(ValueError):
        parse_schedule(text)


@pytest.mark.parametrize(
    ("text", "field"),
    [("60 * * * *", "minute"), ("* 24 * * *", "hour"), ("0 0 31 4 *", "day-of-month"), ("* * * 13 *", "month")],
)
def test_the_wrong_field_is_named(text: str, field: str) -> None:
    with pytest.raises(ValueError, match=rf"^for the {field} a number from \d+ to \d+"):
        parse_schedule(text)


@given(
    st.sampled_from(["0 2 * * *", "*/7 3,9 * * *", "0 0 29 2 *", "1 1 31 * 1", "0 12 1-7 * 6", "59 23 31 12 *"]),
    st.integers(0, 4_102_444_800),
)
def test_what_is_due_is_meant_and_nothing_before_it_in_the_next_two_days(text: str, after: int) -> None:
    schedule = parse_schedule(text)
    due = schedule.next_after(after)
    assert due > after
    first = after // 60 * 60 + 60
    for minute in range(first, min(first + 2 * 86_400, int(due)), 60):
        assert schedule.next_after(minute - 1) == due
        if minute > first + 600:
            break
    assert schedule.next_after(due - 1) == due
