"""Scheduled backups and rehearsals of a local cluster. Each is a process, such as ``python -m txlog.backup``. One of
each kind runs at a time in a data centre, and beside it one for its further repositories.

A due one is skipped while the last one still runs, and when no supervisor runs.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from txlog.config.process_config import BackupJobConfig, RehearsalConfig
from txlog.config.schedule import Schedule, parse_schedule
from txlog.local.child_process import run_job
from txlog.local.process_plan import ScheduledPlan
from txlog.local.repository_plan import duty_group, place_of
from txlog.local.repository_records import read_repositories
from txlog.local.state_folder import StateFolder
from txlog.supervision.backup_schedule import plan_scheduled_backup
from txlog.supervision.job_output import parse_job_output

log = logging.getLogger("txlog.local")

SCHEDULE_CHECK_INTERVAL_S: Final = 30.0
"""Longest single wait: the clock may be set meanwhile."""


class ScheduledKind(NamedTuple):
    """What is done by a schedule. ``noun``: for names of files. ``program``: the module that does it once. ``config``:
    its configuration, by state folder and data centre."""

    noun: str
    program: str
    config: Callable[[StateFolder, str], Path]

    def log_name(self, data_center: str) -> str:
        """Name of the log file of a data centre."""
        return f"{data_center}-{self.noun}"

    @property
    def results_file(self) -> str:
        """Where the state folder has the results."""
        return f"{self.noun}s.json"


BACKUPS: Final = ScheduledKind("backup", "txlog.backup", StateFolder.backup)
REHEARSALS: Final = ScheduledKind("rehearsal", "txlog.rehearsal", StateFolder.rehearsal)


class ScheduledBackups:
    """The schedules of the data centres of one plan. ``plans``: by data centre; those of a further repository by its
    name for them, which has a dot (:func:`~txlog.local.repository_plan.duty_group`)."""

    def __init__(
        self,
        plans: Mapping[str, ScheduledPlan[BackupJobConfig] | ScheduledPlan[RehearsalConfig]],
        state: StateFolder,
        clock: Callable[[], float] = time.time,
        kind: ScheduledKind = BACKUPS,
    ) -> None:
        self._kind = kind
        self._schedules = {dc: parse_schedule(plan.schedule) for dc, plan in plans.items() if plan.schedule}
        self._texts = {dc: plan.schedule for dc, plan in plans.items()}
        self._state = state
        self._clock = clock
        self._turns = {name: asyncio.Lock() for name in map(_turn, plans)}
        self._results: dict[str, dict[str, Any]] = state.read(kind.results_file, {})

    async def run(self) -> None:
        """Runs until it is cancelled; interrupts a running one then."""
        async with asyncio.TaskGroup() as group:
            for data_center, schedule in self._schedules.items():
                group.create_task(self._run_schedule(data_center, schedule))

    def describe(self) -> list[dict[str, Any]]:
        """``last``: the output of the last one, with its exit code; ``next``: when one is due, in seconds since
        1970."""
        return [
            {**place_of(group), "schedule": text, **self._results.get(group, {})} | ({} if text else {"next": None})
            for group, text in self._texts.items()
            if not self._is_removed(group)
        ]

    async def _run_schedule(self, data_center: str, schedule: Schedule) -> None:
        due_at: float | None = None
        while not self._is_removed(data_center):
            step = plan_scheduled_backup(
                schedule.next_after, due_at, self._clock(), busy=False, is_interval=schedule.is_interval
            )
            if step.starts:
                async with self._turns[_turn(data_center)]:
                    await self._carry_out(data_center)
                due_at = None  # what came due meanwhile is skipped
                continue
            if step.next_at != due_at:
                self._record_result(data_center, next=step.next_at)
            due_at = step.next_at
            await asyncio.sleep(max(0.0, min(due_at - self._clock(), SCHEDULE_CHECK_INTERVAL_S)))

    def _is_removed(self, group: str) -> bool:
        """Whether the group is a further repository that was removed since the plan was made."""
        known = read_repositories(self._state).repositories
        return "." in group and group not in {duty_group(each.data_center, each.name) for each in known}

    async def _carry_out(self, data_center: str) -> None:
        try:
            config = self._kind.config(self._state, data_center)
            code, output = await run_job(self._state, self._kind.program, config, self._kind.log_name(data_center))
        except OSError as error:
            log.error("a %s of %s cannot be started: %s", self._kind.noun, data_center, error)
            return
        result = parse_job_output(output) or {"error": "Ended", "message": output}
        self._record_result(data_center, last={"exitCode": code, **result})
        if code:
            log.error("a scheduled %s of %s failed: %s", self._kind.noun, data_center, output)

    def _record_result(self, data_center: str, **facts: Any) -> None:
        self._results[data_center] = {**self._results.get(data_center, {}), **facts}
        try:
            self._state.write(self._kind.results_file, self._results)
        except OSError as error:  # such as a full disk; the schedule goes on, and the next result is written again
            log.error("what became of a %s of %s is not stored: %s", self._kind.noun, data_center, error)


def _turn(group: str) -> str:
    """Groups with the same one wait for each other: the further repositories of a data centre, so that many of them are
    no burden and no backup of the first one waits."""
    data_center, dot, _ = group.partition(".")
    return data_center + dot
