"""Computes due times: five fields as in cron, ``@daily`` and similar, or ``@every 6h``. Times are UTC.

As in cron, when both the day of the month and the day of the week are restricted, either of them is enough.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from cronsim import CronSim, CronSimError

from txlog.config.units import parse_duration

_ALIASES: Final = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
}
_FIELDS: Final = {
    "minute": "a number from 0 to 59",
    "hour": "a number from 0 to 23",
    "day-of-month": "a number from 1 to 31 that one of its months has",
    "month": "a number from 1 to 12 or a name",
    "day-of-week": "a number from 0 to 7 or a name",
}
"""cronsim's names of the fields, with what each may contain. It also reads a sixth field, seconds."""
_NON_POSIX: Final = re.compile(r"\S+ \S+ (?:(?P<day>\S*L)|\S+ \S+ \S*[L#])")
"""What cronsim reads and this format does not have: ``L``, the last day; ``#``, which weekday of the month."""
EVERY_MIN_MS: Final = 1000


@dataclass(frozen=True)
class Schedule:
    """Either ``every_s``, an interval in seconds, or ``cron``, five fields."""

    every_s: float | None = None
    cron: str = ""

    @property
    def is_interval(self) -> bool:
        """Whether it names no times but a pause between two."""
        return self.every_s is not None

    def next_after(self, at: float) -> float:
        """The first due time after ``at``, in seconds since 1970."""
        if self.every_s is not None:
            return at + self.every_s
        return next(CronSim(self.cron, datetime.fromtimestamp(at, UTC))).timestamp()


def parse_schedule(text: str) -> Schedule:
    """``ValueError`` contains what is expected instead."""
    if text.startswith("@every "):
        every = parse_duration(text.removeprefix("@every "))
        if every < EVERY_MIN_MS:
            raise ValueError("@every with a duration of at least 1s, such as @every 6h")
        return Schedule(every_s=every / 1000)
    fields = _ALIASES.get(text, text).upper().split()
    if len(fields) != len(_FIELDS):
        raise ValueError('five fields as in cron, such as "0 2 * * *", or @daily, or @every 6h')
    cron = " ".join(fields)
    try:
        if found := _NON_POSIX.match(cron):
            raise CronSimError("Bad day-of-month" if found["day"] else "Bad day-of-week")
        CronSim(cron, datetime.now(UTC))
    except CronSimError as error:
        values = dict(zip(_FIELDS, fields, strict=True))
        name = str(error).removeprefix("Bad ")
        raise ValueError(f"for the {name} {_FIELDS[name]}, not {values[name]}") from None
    return Schedule(cron=cron)


def validate_schedule(text: str) -> str:
    """The text itself; raises as :func:`parse_schedule`."""
    parse_schedule(text)
    return text
