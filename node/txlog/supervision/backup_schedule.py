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
    next_after: Callable[[float], float], due_at: float | None, now: float, *, busy: bool, is_interval: bool = False
) -> ScheduleStep:
    """The next step of one schedule. ``next_after``: the first time of the schedule after a time. ``due_at``: when the
    next backup is due, None before the first step; one that the schedule does not name is of a former schedule, and
    does not count. ``busy``: the last one still runs. ``is_interval``: the schedule names no times but a pause; then
    ``due_at`` stays, since every look would move it into the future, and no backup would ever start."""
    if due_at is None:
        return ScheduleStep(starts=False, skipped=False, next_at=next_after(now))
    if now < due_at:
        latest = next_after(now)
        stays = is_interval and due_at <= latest
        return ScheduleStep(starts=False, skipped=False, next_at=due_at if stays else latest)
    return ScheduleStep(starts=not busy, skipped=busy, next_at=next_after(now))
