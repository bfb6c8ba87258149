"""A disk that is full for a while ends no task of `txlog up`; afterwards everything goes on."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from test_scheduled_backups import backups
from test_supervisor import (
    MASTER,
    SLEEPER,
    eventually,
    pid_of,
    plan_of,
    program,
    real_plan,
    running,
    spawn,
    told,
)

from txlog.config.process_config import DutyJobConfig, FolderConfig
from txlog.local import log_files, state_folder, supervisor_main
from txlog.local.duty_runner import DutyRunner
from txlog.local.local_errors import CannotRun
from txlog.local.process_identity import identity_of, is_alive
from txlog.local.process_plan import ProcessPlan
from txlog.local.process_spec import ProcessSpec
from txlog.local.state_folder import StateFolder
from txlog.local.supervisor_client import SupervisorClient
from txlog.supervision.duties import DutyList


class Disk:
    """While it is full, no file of the state folder is written."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.is_full = False
        self.refused = 0
        for module, name in ((state_folder, "write_atomically"), (log_files.shutil, "copyfile")):
            monkeypatch.setattr(module, name, self._guarded(getattr(module, name)))

    def _guarded(self, write: Any) -> Any:
        def guarded(*args: Any, **more: Any) -> Any:
            if self.is_full:
                self.refused += 1
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return write(*args, **more)

        return guarded


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


async def test_a_store_that_dies_meanwhile_is_started_again(state: StateFolder, disk: Disk) -> None:
    async with running(plan_of(state, program("a", SLEEPER)), state) as supervisor:
        await eventually(lambda: told(supervisor, "a")["state"] == "Running")
        disk.is_full = True
        for count in (1, 2):
            os.kill(pid_of(supervisor, "a"), signal.SIGKILL)
            await eventually(lambda c=count: told(supervisor, "a")["restarts"] == c and told(supervisor, "a")["pid"])
        disk.is_full = False
        os.kill(pid_of(supervisor, "a"), signal.SIGKILL)
        await eventually(lambda: told(supervisor, "a")["restarts"] == 3 and told(supervisor, "a")["pid"])
        await eventually(lambda: state.read("processes.json")["a"]["pid"] == pid_of(supervisor, "a"))


async def test_a_master_that_dies_meanwhile_comes_back_when_there_is_room(
    state: StateFolder, disk: Disk, tmp_path: Path
) -> None:
    """It starts with what was last seen of it, or not yet. What is seen meanwhile is stored later."""
    plan = real_plan(state)
    (tmp_path / "master.py").write_text(MASTER)
    command = (sys.executable, str(tmp_path / "master.py"), "--config", str(state.master("uk-1") / "config.json"))
    url = f"http://127.0.0.1:{plan.master_configs['uk-1'].port}"
    master = ProcessSpec(name="uk-1", role="master", data_center="uk", command=command, url=url)
    async with running(ProcessPlan(plan.topology, (master,), (), plan.master_configs, {}), state) as supervisor:
        await eventually(lambda: state.read("seen.json", {}).get("uk-1", {}).get("start") == 1)
        disk.is_full = True
        os.kill(pid_of(supervisor, "uk-1"), signal.SIGKILL)
        await eventually(lambda: told(supervisor, "uk-1")["exitCode"] == 127)
        disk.is_full = False
        await eventually(lambda: state.read("seen.json")["uk-1"]["start"] == 2)
        disk.is_full, refused = True, disk.refused
        state.write_config = lambda *_: None  # type: ignore[method-assign]
        os.kill(pid_of(supervisor, "uk-1"), signal.SIGKILL)
        await eventually(lambda: disk.refused > refused + 1)
        del state.write_config
        disk.is_full = False
        os.kill(pid_of(supervisor, "uk-1"), signal.SIGKILL)
        await eventually(lambda: state.read("seen.json")["uk-1"]["start"] >= 3)


async def test_logs_are_moved_again(state: StateFolder, disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_files.rotate_log, "__defaults__", (100,))
    async with running(plan_of(state, program("a", SLEEPER)), state) as supervisor:
        await eventually(lambda: told(supervisor, "a")["state"] == "Running")
        disk.is_full, refused = True, disk.refused
        state.log("a").write_bytes(b"x" * 101)
        await eventually(lambda: disk.refused > refused)
        disk.is_full = False
        await eventually(lambda: state.log("a").stat().st_size == 0)


async def test_schedules_go_on(state: StateFolder, disk: Disk) -> None:
    made = backups(state, "http://127.0.0.1:9", "@every 1s")
    disk.is_full = True
    task = asyncio.create_task(made.run())
    await eventually(lambda: disk.refused >= 2)
    disk.is_full = False
    await eventually(lambda: "last" in state.read("backups.json", {}).get("uk", {}))
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()


async def test_no_restore_starts_that_a_crash_would_forget(
    state: StateFolder, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = DutyJobConfig(data_center="uk", masters=["http://127.0.0.1:9"], target=FolderConfig(folder=state.root))
    runner = DutyRunner({"uk": config}, state)
    stored_at_start: list[Any] = []

    async def run_job(*_: Any) -> None:
        stored_at_start.append(state.read("duties.json", {}).get("restoring"))

    monkeypatch.setattr(runner, "_run_job", run_job)
    duty = {"id": "restore-w-1-7", "kind": "restore", "why": "another branch", "worker": "w-1"}
    disk.is_full = True
    for _ in range(2):
        with pytest.raises(OSError, match="No space"):
            await runner._perform("uk", duty, {"url": DutyList([duty])})
    assert stored_at_start == []
    disk.is_full = False
    await runner._perform("uk", duty, {"url": DutyList([duty])})
    assert stored_at_start == [[["uk", "w-1"]]]


async def test_a_command_that_needs_room_says_so(state: StateFolder, disk: Disk) -> None:
    async with running(plan_of(state, program("a", SLEEPER)), state) as supervisor:

        async def refused(_: str) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        supervisor.stop, stop = refused, supervisor.stop  # type: ignore[method-assign]
        with pytest.raises(CannotRun, match="No space left"):
            await asyncio.to_thread(SupervisorClient(state).stop, "a")
        supervisor.stop = stop  # type: ignore[method-assign]


async def test_leftovers_end_before_ports_are_chosen(state: StateFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    """A port that one of them holds would count as taken, and its process would get another one."""
    left = spawn(SLEEPER, start_new_session=True)
    try:
        mark = identity_of(left.pid)
        assert mark is not None
        state.write("processes.json", {"uk-1": mark.model_dump()})

        def plan_for(*_: object) -> ProcessPlan:
            assert not is_alive(mark)
            raise CannotRun("far enough")

        monkeypatch.setattr(supervisor_main, "plan_for", plan_for)
        with pytest.raises(CannotRun, match="far enough"):
            await supervisor_main.supervise([], state)
    finally:
        left.kill()
        left.wait()
