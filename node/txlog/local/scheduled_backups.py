"""Scheduled backups of a local cluster. Each is a process, ``python -m txlog.backup``, one at a time in a data centre.

A due backup is skipped while the last one still runs, and when no supervisor runs.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from txlog.config.schedule import Schedule, parse_schedule
from txlog.local.child_process import ChildProcess
from txlog.local.log_files import last_lines
from txlog.local.process_plan import BackupPlan
from txlog.local.state_folder import StateFolder
from txlog.supervision.backup_schedule import plan_scheduled_backup
from txlog.supervision.job_output import parse_job_output

log = logging.getLogger("txlog.local")

SCHEDULE_CHECK_INTERVAL_S: Final = 30.0
"""Longest single wait: the clock may be set meanwhile."""
INTERRUPT_TIMEOUT_S: Final = 5.0
"""How long an interrupted backup may take to delete its unfinished files."""


def backup_log_name(data_center: str) -> str:
    """Name of the log file of a data centre's backups."""
    return f"{data_center}-backup"


class ScheduledBackups:
    """The schedules of the data centres of one plan."""

    def __init__(
        self, plans: Mapping[str, BackupPlan], state: StateFolder, clock: Callable[[], float] = time.time
    ) -> None:
        self._schedules = {dc: parse_schedule(plan.schedule) for dc, plan in plans.items() if plan.schedule}
        self._texts = {dc: plan.schedule for dc, plan in plans.items()}
        self._state = state
        self._clock = clock
        self._results: dict[str, dict[str, Any]] = state.read("backups.json", {})

    async def run(self) -> None:
        """Runs until it is cancelled; interrupts a running backup then."""
        async with asyncio.TaskGroup() as group:
            for data_center, schedule in self._schedules.items():
                group.create_task(self._run_schedule(data_center, schedule))

    def describe(self) -> list[dict[str, Any]]:
        """``last``: the output of the last one, with its exit code; ``next``: when one is due, in seconds since
        1970."""
        return [
            {"dataCenter": dc, "schedule": text, **self._results.get(dc, {})} | ({} if text else {"next": None})
            for dc, text in self._texts.items()
        ]

    async def _run_schedule(self, data_center: str, schedule: Schedule) -> None:
        due_at: float | None = None
        while True:
            step = plan_scheduled_backup(schedule.next_after, due_at, self._clock(), busy=False)
            if step.starts:
                await self._back_up(data_center)
                due_at = None  # what came due meanwhile is skipped
                continue
            if step.next_at != due_at:
                self._record_result(data_center, next=step.next_at)
            due_at = step.next_at
            await asyncio.sleep(max(0.0, min(due_at - self._clock(), SCHEDULE_CHECK_INTERVAL_S)))

    async def _back_up(self, data_center: str) -> None:
        try:
            code = await self._run_process(data_center)
        except OSError as error:
            log.error("a backup of %s cannot be started: %s", data_center, error)
            return
        output = "\n".join(last_lines(self._state.log(backup_log_name(data_center)), 1))
        result = parse_job_output(output) or {"error": "Ended", "message": output}
        self._record_result(data_center, last={"exitCode": code, **result})
        if code:
            log.error("a scheduled backup of %s failed: %s", data_center, output)

    async def _run_process(self, data_center: str) -> int:
        command = (sys.executable, "-m", "txlog.backup", "--config", str(self._state.backup(data_center)))
        child = ChildProcess(command, self._state.own_environment, self._state.log(backup_log_name(data_center)))
        return await child.wait_or_interrupt(INTERRUPT_TIMEOUT_S)

    def _record_result(self, data_center: str, **facts: Any) -> None:
        self._results[data_center] = {**self._results.get(data_center, {}), **facts}
        self._state.write("backups.json", self._results)
