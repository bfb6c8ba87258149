"""What `txlog up` does about schedules, with the real job; here its masters are not there, or never answer."""

from __future__ import annotations

import asyncio
import itertools
import signal
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

import psutil
import pytest

from txlog.config.process_config import BackupJobConfig, FolderConfig, RehearsalConfig
from txlog.local import scheduled_backups
from txlog.local.process_plan import ScheduledPlan
from txlog.local.repository_records import LocalRepository, RepositoryRecords, write_repositories
from txlog.local.scheduled_backups import BACKUPS, REHEARSALS, ScheduledBackups
from txlog.local.state_folder import StateFolder

DEADLINE = 60.0


def backups(state: StateFolder, master: str, schedule: str | None) -> ScheduledBackups:
    config = BackupJobConfig(data_center="uk", masters=[master], target=FolderConfig(folder=state.root))
    state.write_config(state.backup("uk"), config)
    return ScheduledBackups({"uk": ScheduledPlan(config, schedule)}, state)


async def eventually(true: Callable[[], object]) -> None:
    end = time.monotonic() + DEADLINE
    while not true():
        assert time.monotonic() < end, "not in time"
        await asyncio.sleep(0.02)


def reported(made: ScheduledBackups) -> dict[str, Any]:
    (found,) = made.describe()
    return found


async def test_one_that_fails_is_named_and_the_next_is_tried(state: StateFolder) -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))  # no process listens
        made = backups(state, f"http://127.0.0.1:{held.getsockname()[1]}", "@every 1s")
        before = time.time()
        running = asyncio.create_task(made.run())
        await eventually(lambda: reported(made).get("next"))
        assert before < reported(made)["next"] < time.time() + 1.1
        await eventually(lambda: "last" in reported(made))
        assert reported(made)["last"]["exitCode"] == 1
        assert reported(made)["last"]["error"] == "MasterUnreachable"
        log = state.log(BACKUPS.log_name("uk"))
        await eventually(lambda: len(log.read_text().splitlines()) >= 2)
        running.cancel()
        await asyncio.wait([running])
        assert running.cancelled()
    assert backups(state, "http://127.0.0.1:9", None).describe()[0]["last"]["exitCode"] == 1


async def test_an_interval_longer_than_a_look_comes_to_its_end(
    state: StateFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock is looked at every 30 s: each look once moved the next backup into the future."""
    monkeypatch.setattr(scheduled_backups, "SCHEDULE_CHECK_INTERVAL_S", 0.01)
    made = backups(state, "http://127.0.0.1:9", "@every 10m")
    looks = itertools.count(0.0, 60.0)
    monkeypatch.setattr(made, "_clock", lambda: next(looks))
    running = asyncio.create_task(made.run())
    await eventually(lambda: "last" in reported(made))
    running.cancel()
    await asyncio.wait([running])


@pytest.fixture(params=["heard", "ignored"])
def interrupts(request: pytest.FixtureRequest) -> Iterator[None]:
    """A shell that starts a process in the background has it ignore SIGINT, and that is inherited."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN if request.param == "ignored" else signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interrupts")
async def test_one_that_runs_is_ended_with_the_supervisor(state: StateFolder) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # takes connections and never answers
        made = backups(state, f"http://127.0.0.1:{silent.getsockname()[1]}", "@every 1s")
        running = asyncio.create_task(made.run())
        me = psutil.Process()

        def jobs() -> list[psutil.Process]:
            return [child for child in me.children() if "txlog.backup" in child.cmdline()]

        await eventually(jobs)
        silent.settimeout(DEADLINE)
        connection, _ = await asyncio.to_thread(silent.accept)  # it is at work
        running.cancel()
        await asyncio.wait([running])
        assert running.cancelled()
        assert jobs() == []
        connection.close()
    assert '"error": "Interrupted"' in state.log(BACKUPS.log_name("uk")).read_text()


async def test_without_a_schedule_nothing_is_done(state: StateFolder) -> None:
    made = backups(state, "http://127.0.0.1:9", None)
    await asyncio.wait_for(made.run(), DEADLINE)
    assert reported(made) == {"dataCenter": "uk", "schedule": None, "next": None}


async def test_rehearsals_are_done_and_kept_apart_from_backups(state: StateFolder) -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))  # no process listens
        url = f"http://127.0.0.1:{held.getsockname()[1]}"
        target = FolderConfig(folder=state.root)
        config = RehearsalConfig(data_center="uk", masters=[url], target=target)
        state.write_config(state.rehearsal("uk"), config)
        made = ScheduledBackups({"uk": ScheduledPlan(config, "@every 1s")}, state, kind=REHEARSALS)
        running = asyncio.create_task(made.run())
        await eventually(lambda: "last" in reported(made))
        running.cancel()
        await asyncio.wait([running])
    last = reported(made)["last"]
    assert (last["exitCode"], last["ok"], last["phase"]) == (1, False, "live")
    assert last["error"] in ("MasterUnreachable", "Unavailable")
    assert "did not take the report" in str(last["problems"])
    assert state.read("backups.json", {}) == {}
    assert state.log("uk-rehearsal").exists()
    kept = ScheduledBackups({"uk": ScheduledPlan(config, None)}, state, kind=REHEARSALS).describe()[0]
    assert (kept["last"]["exitCode"], kept["next"]) == (1, None)


async def test_backups_of_a_repository_end_with_it_and_one_runs_at_a_time(
    state: StateFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups = ("uk", "uk.stock", "uk.orders", "uk.gone", "us")
    records = RepositoryRecords(
        was_used=True,
        repositories=[
            LocalRepository(name=name, data_center="uk", stores=[], number=2) for name in ("Stock", "orders")
        ],
    )
    write_repositories(state, records)
    config = BackupJobConfig(data_center="uk", masters=["http://127.0.0.1:9"], target=FolderConfig(folder=state.root))
    made = ScheduledBackups(dict.fromkeys(groups, ScheduledPlan(config, "@every 1s")), state)
    assert [(each["dataCenter"], each.get("repository")) for each in made.describe()] == [
        ("uk", None),
        ("uk", "stock"),
        ("uk", "orders"),
        ("us", None),
    ], "what was removed since has no backups"
    running: set[str] = set()
    most: set[frozenset[str]] = set()
    done: list[str] = []

    async def carry_out(group: str) -> None:
        running.add(group)
        most.add(frozenset(running))
        if "." in group:  # it lasts until the others are due as well
            count = done.count("uk")
            await eventually(lambda: done.count("uk") > count)
        running.discard(group)
        done.append(group)

    monkeypatch.setattr(made, "_carry_out", carry_out)
    task = asyncio.create_task(made.run())
    await eventually(lambda: {done.count(group) >= 2 for group in groups if group != "uk.gone"} == {True})
    assert "uk.gone" not in done
    assert not [each for each in most if {"uk.orders", "uk.stock"} <= each], "they take turns"
    write_repositories(state, records.without(("uk", "Stock")))
    count = done.count("uk")
    await eventually(lambda: done.count("uk") >= count + 2)
    stock, uk = done.count("uk.stock"), done.count("uk")
    await eventually(lambda: done.count("uk") >= uk + 2)
    assert done.count("uk.stock") == stock
    task.cancel()
    await asyncio.wait([task])
