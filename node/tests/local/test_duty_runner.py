"""What `txlog up` does about the duties of a master, with the real job."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from scripted_master import ScriptedMaster, scripted_master

from txlog.config.process_config import DutyJobConfig, FolderConfig
from txlog.local.duty_runner import DutyRunner
from txlog.local.state_folder import StateFolder

DEADLINE = 60.0
DUTIES = ("GET", "/txlog/duties")
UNORDER = {"id": "unorder-w-1-7-abababab", "kind": "unorder", "why": "another branch", "worker": "w-1"}


@pytest.fixture
def master() -> Iterator[ScriptedMaster]:
    with scripted_master() as master:
        yield master


@asynccontextmanager
async def running(state: StateFolder, master: ScriptedMaster) -> AsyncIterator[DutyRunner]:
    config = DutyJobConfig(data_center="uk", masters=[master.url], target=FolderConfig(folder=state.root / "backups"))
    state.write_config(state.duties("uk"), config)
    runner = DutyRunner({"uk": config}, state)
    task = asyncio.create_task(runner.run())
    try:
        yield runner
    finally:
        task.cancel()
        await asyncio.wait([task])


async def eventually(true: Callable[[], object]) -> None:
    end = time.monotonic() + DEADLINE
    while not true():
        assert time.monotonic() < end, "not in time"
        await asyncio.sleep(0.02)


async def test_a_duty_that_fails_is_reported_and_tried_again_until_the_master_lists_it_no_more(
    state: StateFolder, master: ScriptedMaster
) -> None:
    path = ("POST", f"/txlog/duties/{UNORDER['id']}")
    master.answers |= {DUTIES: (200, {"duties": [UNORDER], "state": "Joined"}), path: (200, {"open": True})}

    def reports() -> list[dict[str, Any]]:
        return [json.loads(body) for method, at, body in list(master.asked) if (method, at) == path]

    async with running(state, master) as runner:
        await eventually(lambda: len(reports()) >= 2)  # its workers are not found
        assert {report["state"] for report in reports()} == {"failed"}
        assert reports()[0]["message"].startswith("NotFound: ")
        master.answers["GET", "/txlog/workers"] = (200, {"workers": []})
        log = state.log("uk-duties")
        await eventually(lambda: '"already": true' in log.read_text())
        master.answers[DUTIES] = (200, {"duties": [], "state": "Joined"})
        await eventually(lambda: any(at == "/txlog/status" for _, at, _ in list(master.asked)))  # the release asks
        assert runner.describe() == [], "there was nothing to move"


async def test_a_restore_that_has_begun_continues_with_the_next_supervisor(
    state: StateFolder, master: ScriptedMaster
) -> None:
    restore = {"id": "restore-w-1-7-abababab", "kind": "restore", "why": "another branch", "worker": "w-1"}
    master.answers[DUTIES] = (200, {"duties": [restore], "state": "Joined"})
    async with running(state, master):
        await eventually(lambda: state.read("duties.json", {}).get("restoring") == [["uk", "w-1"]])
    master.answers[DUTIES] = (200, {"duties": [], "state": "Joined"})
    master.answers["GET", "/txlog/workers"] = (200, {"workers": []})
    state.log("uk-duties").unlink(missing_ok=True)
    async with running(state, master):
        await eventually(lambda: state.log("uk-duties").exists() and "w-1" in state.log("uk-duties").read_text())
    assert state.read("duties.json")["restoring"] == [["uk", "w-1"]], "it is not done"


async def test_an_unfinished_restore_of_a_worker_that_was_removed_does_not_keep_the_split_backups(
    state: StateFolder, master: ScriptedMaster
) -> None:
    state.write("duties.json", {"restoring": [["uk", "w-removed"]]})
    master.answers[DUTIES] = (200, {"duties": [], "state": "Joined"})
    master.answers["GET", "/txlog/workers"] = (200, {"workers": [{"name": "w-1"}]})
    async with running(state, master):
        log = state.log("uk-duties")
        await eventually(lambda: log.exists() and "no worker is called w-removed" in log.read_text())
        async with asyncio.timeout(DEADLINE):
            while not any(at == "/txlog/status" for _, at, _ in list(master.asked)):  # noqa: ASYNC110 - the release asks
                await asyncio.sleep(0.02)


def test_a_finished_duty_of_a_further_repository_names_it(state: StateFolder) -> None:
    runner = DutyRunner({}, state)
    for group in ("uk", "uk.stock"):
        runner._record_done(group, {"id": "b-1", "kind": "backup", "why": "", "worker": ""}, {})
    found = [(each["dataCenter"], each.get("repository")) for each in DutyRunner({}, state).describe()]
    assert found == [("uk", None), ("uk", "stock")], "a split report is about the first repository"
