"""Performs the duties of the data centres of one machine: split backups, restores, releases of backups, repairs.

:mod:`txlog.supervision.duties` decides which. Each is a process, ``python -m txlog.backup.duty``, one at a time in a
data centre. A new supervisor finds the same list at the masters, and finished duties are recognised as such. Only the
names of workers that are being restored are stored here. A half-loaded worker has no position, so its masters cannot
list that its restore must continue.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from txlog.config.process_config import DutyJobConfig
from txlog.local.child_process import run_job
from txlog.local.master_requests import request_master
from txlog.local.repository_plan import place_of
from txlog.local.state_folder import StateFolder
from txlog.model.errors import NotFound, TxLogError
from txlog.supervision.duties import (
    RELEASE_ARGUMENT,
    RETRY_DELAYS_S,
    DutyKind,
    DutyList,
    ListedDuty,
    duties_to_perform,
    masters_that_list,
    may_release_backups,
)
from txlog.supervision.job_output import failure_message, parse_job_output
from txlog.supervision.retry_delay import next_delay_s

log = logging.getLogger("txlog.local")

POLL_INTERVAL_S: Final = 1.0
REQUEST_TIMEOUT_S: Final = 2.0
HISTORY_MAX: Final = 200
"""Duties that are kept for the split report."""


class _Retry(NamedTuple):
    """When a failed job may start again (of the monotonic clock), and the delay that this was."""

    at: float = 0.0
    delay_s: float = 0.0


def duty_log_name(data_center: str) -> str:
    """Name of the log file of a data centre's duties."""
    return f"{data_center}-duties"


class DutyRunner:
    """Performs the duties of the data centres of one plan. ``plans``: by data centre; those of a further repository by
    its name for them, which has a dot (:func:`~txlog.local.repository_plan.duty_group`)."""

    def __init__(self, plans: Mapping[str, DutyJobConfig], state: StateFolder) -> None:
        self._plans = plans
        self._state = state
        self._saved: dict[str, Any] = {"restoring": [], "done": [], **state.read("duties.json", {})}
        self._retries: dict[tuple[str, str], _Retry] = {}
        self._released: set[str] = set()

    async def run(self) -> None:
        """Runs until it is cancelled; interrupts a running duty then, which the next supervisor starts again."""
        async with asyncio.TaskGroup() as group:
            for data_center in self._plans:
                group.create_task(self._poll_loop(data_center))

    def describe(self) -> list[dict[str, Any]]:
        """The finished duties, newest last. Those of a further repository name it."""
        return list(self._saved["done"])

    async def _poll_loop(self, data_center: str) -> None:
        while True:
            try:
                await self._poll(data_center)
            except OSError as error:
                log.error("a duty of %s cannot be started: %s", data_center, error)
            await asyncio.sleep(POLL_INTERVAL_S)

    async def _poll(self, data_center: str) -> None:
        masters = self._plans[data_center].masters
        lists = await self._fetch_lists(masters)
        for duty in duties_to_perform(list(lists.values()), self._unfinished(data_center)):
            await self._perform(data_center, duty, lists)
        if not may_release_backups(list(lists.values()), len(masters)):
            self._released.discard(data_center)
        elif data_center not in self._released:
            released = await self._run_job(data_center, RELEASE_ARGUMENT, "release", lists)
            self._released |= {data_center} if released is not None else set()

    def _unfinished(self, data_center: str) -> list[str]:
        """Workers whose restore has begun and not ended."""
        return [worker for dc, worker in self._saved["restoring"] if dc == data_center]

    async def _perform(self, data_center: str, duty: ListedDuty, lists: Mapping[str, DutyList]) -> None:
        kind, worker = DutyKind(duty["kind"]), duty["worker"]
        mark = [data_center, worker]
        if kind.may_leave_partial_state and mark not in self._saved["restoring"]:
            # Stored before the job starts: after a crash nothing else shows that the store is half loaded.
            self._state.write("duties.json", {**self._saved, "restoring": [*self._saved["restoring"], mark]})
            self._saved["restoring"].append(mark)
        result = await self._run_job(data_center, kind.job_argument(duty["id"], worker), duty["id"], lists)
        if result is None:
            return
        if kind.may_leave_partial_state:
            self._saved["restoring"].remove(mark)
        if kind.changed_something(result):
            self._record_done(data_center, duty, result)

    async def _run_job(
        self, data_center: str, argument: str, duty: str, lists: Mapping[str, DutyList]
    ) -> dict[str, Any] | None:
        """The result of the job; None when it failed, or failed so recently that the next attempt is not due."""
        retry = self._retries.get((data_center, argument), _Retry())
        if time.monotonic() < retry.at:
            return None
        config, log_name = self._state.duties(data_center), duty_log_name(data_center)
        code, output = await run_job(self._state, "txlog.backup.duty", config, log_name, argument)
        if code == 0:
            self._retries.pop((data_center, argument), None)
            return parse_job_output(output)
        delay_s = next_delay_s(retry.delay_s, RETRY_DELAYS_S)
        self._retries[data_center, argument] = _Retry(time.monotonic() + delay_s, delay_s)
        message = failure_message(output, f"its process ended with {code}")
        log.error("%s of %s failed, again in %g s: %s", duty, data_center, delay_s, message)
        for url in masters_that_list(lists, duty):
            await self._report_failure(url, duty, message)
        return None

    def _record_done(self, group: str, duty: ListedDuty, result: Mapping[str, Any]) -> None:
        facts = {**place_of(group), "duty": duty["id"], "kind": duty["kind"], "why": duty["why"], **result}
        self._saved["done"] = [*self._saved["done"], facts][-HISTORY_MAX:]
        self._save()
        log.info("%s of %s is done: %s", duty["id"], group, json.dumps(result))

    def _save(self) -> None:
        self._state.write("duties.json", self._saved)

    async def _fetch_lists(self, masters: Sequence[str]) -> dict[str, DutyList]:
        """By URL, the lists of the masters that answer."""
        found = await asyncio.gather(*(self._fetch_list(url) for url in masters))
        return {url: listed for url, listed in zip(masters, found, strict=True) if listed is not None}

    async def _fetch_list(self, url: str) -> DutyList | None:
        try:
            return await request_master(self._state, url, REQUEST_TIMEOUT_S, lambda m: m.duty_list())
        except TxLogError:
            return None

    async def _report_failure(self, url: str, duty: str, message: str) -> None:
        """A master that misses the report lists the duty again, without the message."""
        try:
            await request_master(self._state, url, REQUEST_TIMEOUT_S, lambda m: m.fail_duty(duty, message))
        except NotFound:
            return  # the duty is no longer open
        except TxLogError as wrong:
            log.warning("%s: %s missed the report: %s", duty, url, wrong)
