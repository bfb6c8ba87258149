"""Computes due times: five fields as in cron, ``@daily`` and similar, or ``@every 6h``. Times are UTC.

As in cron, when both the day of the month and the day of the week are restricted, either of them is enough.
"""

from __future__ import annotations

from calendar import monthrange
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from txlog.config.units import parse_duration

_ALIASES: Final = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
}
_MONTHS: Final = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_DAYS: Final = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
_FIELDS: Final = (("minute", 0, 59), ("hour", 0, 23), ("day of the month", 1, 31), ("month", 1, 12), ("weekday", 0, 7))
EVERY_MIN_MS: Final = 1000
_SEARCH_YEARS: Final = 8
"""The longest gap between two leap days (1896 to 1904)."""


@dataclass(frozen=True)
class Schedule:
    """``every_s``: an interval in seconds, with the other fields empty; otherwise the matching minutes, hours, …."""

    every_s: float | None
    minutes: frozenset[int] = frozenset()
    hours: frozenset[int] = frozenset()
    days: frozenset[int] = frozenset()
    months: frozenset[int] = frozenset()
    weekdays: frozenset[int] = frozenset()
    either_day: bool = False
    """Both kinds of day are restricted."""

    def next_after(self, at: float) -> float:
        """The first due time after ``at``, in seconds since 1970."""
        if self.every_s is not None:
            return at + self.every_s
        moment = datetime.fromtimestamp(at, UTC).replace(second=0, microsecond=0) + timedelta(minutes=1)
        last = moment.year + _SEARCH_YEARS
        while moment.year <= last:
            if moment.month not in self.months:
                days = monthrange(moment.year, moment.month)[1]
                moment = moment.replace(day=1, hour=0, minute=0) + timedelta(days=days)
            elif not self._is_day(moment):
                moment = moment.replace(hour=0, minute=0) + timedelta(days=1)
            elif moment.hour not in self.hours:
                moment = moment.replace(minute=0) + timedelta(hours=1)
            elif moment.minute not in self.minutes:
                moment += timedelta(minutes=1)
            else:
                return moment.timestamp()
        raise AssertionError(self)  # parse_schedule refuses a schedule that is never due

    def _is_day(self, moment: datetime) -> bool:
        of_month, of_week = moment.day in self.days, moment.isoweekday() % 7 in self.weekdays
        return of_month or of_week if self.either_day else of_month and of_week


def parse_schedule(text: str) -> Schedule:
    """``ValueError`` contains what is expected instead."""
    if text.startswith("@every "):
        every = parse_duration(text.removeprefix("@every "))
        if every < EVERY_MIN_MS:
            raise ValueError("@every with a duration of at least 1s, such as @every 6h")
        return Schedule(every / 1000)
    fields = _ALIASES.get(text, text).split()
    if len(fields) != len(_FIELDS):
        raise ValueError('five fields as in cron, such as "0 2 * * *", or @daily, or @every 6h')
    minutes, hours, days, months, weekdays = (
        _parse_field(field, *bounds) for field, bounds in zip(fields, _FIELDS, strict=True)
    )
    either = not fields[2].startswith("*") and not fields[4].startswith("*")
    if not either and not any(day <= monthrange(2000, month)[1] for day in days for month in months):
        raise ValueError("a day that one of its months has")
    return Schedule(None, minutes, hours, days, months, frozenset(day % 7 for day in weekdays), either)


def _parse_field(field: str, what: str, least: int, most: int) -> frozenset[int]:
    found: set[int] = set()
    for piece in field.split(","):
        span, _, step = piece.partition("/")
        if "/" in piece and not (step.isdecimal() and int(step) > 0):
            raise ValueError(f"for the {what} a step such as */5, not {piece}")
        if span == "*":
            low, high = least, most
        else:
            first, dash, end = span.partition("-")
            low = _parse_number(first, what, least, most)
            high = _parse_number(end, what, least, most) if dash else (most if "/" in piece else low)
        if low > high:
            raise ValueError(f"for the {what} a range that rises, not {piece}")
        found.update(range(low, high + 1, int(step or 1)))
    return frozenset(found)


def _parse_number(text: str, what: str, least: int, most: int) -> int:
    names = {"month": _MONTHS, "weekday": _DAYS}.get(what, ())
    if text.upper() in names:
        return names.index(text.upper()) + (what == "month")
    if not (text.isascii() and text.isdecimal() and least <= int(text) <= most):
        raise ValueError(f"for the {what} a number from {least} to {most}, not {text or 'nothing'}")
    return int(text)
