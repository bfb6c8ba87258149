"""Performs the duties of the data centres of one machine: split backups, restores, releases of backups, repairs.

The masters list the open duties (``GET /txlog/duties``). Each is a process, ``python -m txlog.backup.duty``, one at
a time in a data centre. A new supervisor finds the same list, and finished duties are recognised as such. Only the
names of workers that are being restored are stored here. A half loaded worker has no position, so its masters cannot
list that its restore must continue.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

import aiohttp

from txlog.config.process_config import DutyJobConfig
from txlog.local.child_process import ChildProcess
from txlog.local.http_session import open_session as session_of
from txlog.local.log_files import last_lines, parse_job_output
from txlog.local.state_folder import StateFolder
from txlog.model.duty import merge_repair_duties, merge_restore_duties

log = logging.getLogger("txlog.local")

POLL_INTERVAL_S: Final = 1.0
RETRY_DELAYS_S: Final = (1.0, 15.0)
"""Between two attempts of a failed duty: at first, and at most."""
INTERRUPT_TIMEOUT_S: Final = 5.0
HISTORY_MAX: Final = 200
"""Duties that are kept for the split report."""


def duty_log_name(data_center: str) -> str:
    """Name of the log file of a data centre's duties."""
    return f"{data_center}-duties"


class DutyRunner:
    """Performs the duties of the data centres of one plan."""

    def __init__(self, plans: Mapping[str, DutyJobConfig], state: StateFolder) -> None:
        self._plans = plans
        self._state = state
        self._saved: dict[str, Any] = {"restoring": [], "done": [], **state.read("duties.json", {})}
        self._retry_at: dict[str, tuple[float, float]] = {}
        self._released: set[str] = set()

    async def run(self) -> None:
        """Runs until it is cancelled; interrupts a running duty then, which the next supervisor starts again."""
        async with (
            session_of(self._state, 2.0) as session,
            asyncio.TaskGroup() as all_,
        ):
            for data_center in self._plans:
                all_.create_task(self._poll_loop(data_center, session))

    def describe(self) -> list[dict[str, Any]]:
        """The finished duties, newest last."""
        return list(self._saved["done"])

    async def _poll_loop(self, data_center: str, session: aiohttp.ClientSession) -> None:
        while True:
            try:
                await self._poll(data_center, session)
            except OSError as error:
                log.error("a duty of %s cannot be started: %s", data_center, error)
            await asyncio.sleep(POLL_INTERVAL_S)

    async def _poll(self, data_center: str, session: aiohttp.ClientSession) -> None:
        masters = self._plans[data_center].masters
        answers = [each for each in [await _fetch_duties(session, url) for url in masters] if each is not None]
        duties = {duty["id"]: duty for answer in answers for duty in answer["duties"]}
        for duty in duties.values():
            if duty["kind"] == "backup":
                await self._back_up(data_center, duty, masters, session)
        for duty in duties.values():
            if duty["kind"] == "unorder":
                await self._skip_ahead(data_center, duty, masters, session)
        wanted = merge_restore_duties(answers)
        half = [name for dc, name in self._saved["restoring"] if dc == data_center and answers]
        for name in dict.fromkeys([*wanted, *half]):
            await self._restore(data_center, name, wanted.get(name), masters, session)
        for name, duty in ({} if wanted or half else merge_repair_duties(answers)).items():
            await self._repair(data_center, name, duty, masters, session)
        joined = len(answers) == len(masters) and all(a["state"] == "Joined" and not a["duties"] for a in answers)
        if not joined:
            self._released.discard(data_center)
        elif (
            data_center not in self._released and await self._run_duty(data_center, "release", "--release") is not None
        ):
            self._released.add(data_center)

    async def _back_up(
        self, data_center: str, duty: dict[str, Any], masters: Sequence[str], session: aiohttp.ClientSession
    ) -> None:
        told = await self._run_duty(data_center, duty["id"], f"--backup={duty['id']}", duty, masters, session)
        if told is not None and "index" in told:
            self._record_done(data_center, duty, told)

    async def _skip_ahead(
        self, data_center: str, duty: dict[str, Any], masters: Sequence[str], session: aiohttp.ClientSession
    ) -> None:
        told = await self._run_duty(data_center, duty["id"], f"--unorder={duty['worker']}", duty, masters, session)
        if told is not None and not told.get("already"):
            self._record_done(data_center, duty, told)

    async def _repair(
        self,
        data_center: str,
        name: str,
        duty: dict[str, Any],
        masters: Sequence[str],
        session: aiohttp.ClientSession,
    ) -> None:
        told = await self._run_duty(data_center, duty["id"], f"--repair={name}", duty, masters, session)
        if told is not None and told.get("graphCount"):
            self._record_done(data_center, duty, told)

    async def _restore(
        self,
        data_center: str,
        name: str,
        duty: dict[str, Any] | None,
        masters: Sequence[str],
        session: aiohttp.ClientSession,
    ) -> None:
        mark = [data_center, name]
        if mark not in self._saved["restoring"]:
            self._saved["restoring"].append(mark)
            self._save()
        duty = duty or {"id": f"restore-{name}", "kind": "restore", "why": "it was left half loaded", "worker": name}
        told = await self._run_duty(data_center, f"restore-{name}", f"--restore={name}", duty, masters, session)
        if told is None:
            return
        self._saved["restoring"].remove(mark)
        self._record_done(data_center, duty, told)

    async def _run_duty(
        self,
        data_center: str,
        name: str,
        way: str,
        duty: dict[str, Any] | None = None,
        masters: Sequence[str] = (),
        session: aiohttp.ClientSession | None = None,
    ) -> dict[str, Any] | None:
        """The result of the process; None when it failed, or failed so recently that the next attempt is not due."""
        due, pause = self._retry_at.get(name, (0.0, 0.0))
        if time.monotonic() < due:
            return None
        code = await self._run_process(data_center, way)
        said = last_lines(self._state.log(duty_log_name(data_center)), 1)
        told = parse_job_output(said)
        if code == 0:
            self._retry_at.pop(name, None)
            return told
        pause = min(RETRY_DELAYS_S[1], max(RETRY_DELAYS_S[0], 2 * pause))
        self._retry_at[name] = (time.monotonic() + pause, pause)
        message = f"{told['error']}: {told['message']}" if "message" in told else " ".join(said)
        log.error("%s of %s failed, again in %g s: %s", name, data_center, pause, message)
        if duty is not None and session is not None:
            await _report_duty(session, masters, duty["id"], {"state": "failed", "message": message})
        return None

    async def _run_process(self, data_center: str, way: str) -> int:
        command = (sys.executable, "-m", "txlog.backup.duty", "--config", str(self._state.duties(data_center)), way)
        child = ChildProcess(command, self._state.own_environment, self._state.log(duty_log_name(data_center)))
        return await child.wait_or_interrupt(INTERRUPT_TIMEOUT_S)

    def _record_done(self, data_center: str, duty: dict[str, Any], told: dict[str, Any]) -> None:
        facts = {"dataCenter": data_center, "duty": duty["id"], "kind": duty["kind"], "why": duty["why"], **told}
        self._saved["done"] = [*self._saved["done"], facts][-HISTORY_MAX:]
        self._save()
        log.info("%s of %s is done: %s", duty["id"], data_center, json.dumps(told))

    def _save(self) -> None:
        self._state.write("duties.json", self._saved)


async def _fetch_duties(session: aiohttp.ClientSession, url: str) -> dict[str, Any] | None:
    try:
        async with session.get(f"{url}/txlog/duties") as answer:
            found = await answer.json()
            return found if answer.status == 200 else None
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError):
        return None


async def _report_duty(session: aiohttp.ClientSession, masters: Sequence[str], duty: str, body: dict[str, Any]) -> None:
    """Reports to each reachable master; one that misses it lists the duty again."""
    for url in masters:
        try:
            async with session.post(f"{url}/txlog/duties/{duty}", json=body) as answer:
                if answer.status not in (200, 404):
                    log.warning("%s: %s answered %d: %s", duty, url, answer.status, await answer.text())
        except (aiohttp.ClientError, TimeoutError, OSError) as wrong:
            log.warning("%s: %s is not told: %r", duty, url, wrong)
