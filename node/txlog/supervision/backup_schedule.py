"""Decides when a scheduled backup starts. One of a data centre runs at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class ScheduleStep:
    """``starts``: a backup starts now. ``skipped``: one was due, and the last one still ran. ``next_at``: when the next
    one is due, in seconds since 1970."""

    starts: bool
    skipped: bool
    next_at: float


def plan_scheduled_backup(
    next_after: Callable[[float], float], due_at: float | None, now: float, *, busy: bool
) -> ScheduleStep:
    """The next step of one schedule. ``next_after``: the first time of the schedule after a time. ``due_at``: when the
    next backup is due, None before the first step; one that the schedule does not name is of a former schedule, and
    does not count. ``busy``: the last one still runs."""
    if due_at is None:
        return ScheduleStep(starts=False, skipped=False, next_at=next_after(now))
    if now < due_at:
        return ScheduleStep(starts=False, skipped=False, next_at=next_after(now))
    return ScheduleStep(starts=not busy, skipped=busy, next_at=next_after(now))
