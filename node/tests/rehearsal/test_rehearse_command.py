"""``txlog rehearse`` and the process that a schedule starts: the report is on the target, and at the master."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from rehearsed_cluster import Rehearsed, insert
from typer.testing import CliRunner, Result

from txlog.archive.stream import find_streams
from txlog.cli.main import app
from txlog.config.process_config import FolderConfig, RehearsalConfig


async def command(rehearsed: Rehearsed, *words: str) -> Result:
    given = ["rehearse", "--master", rehearsed.cluster.url(0), "--target", rehearsed.target.location, *words]
    return await asyncio.to_thread(CliRunner().invoke, app, given)


async def prepare(rehearsed: Rehearsed) -> None:
    await rehearsed.archive(insert("a"), insert("bb"))
    await rehearsed.back_up()
    await rehearsed.archive(insert("ccc"), insert("dddd"))


def config(rehearsed: Rehearsed, folder: Path) -> Path:
    target = FolderConfig(folder=Path(rehearsed.target.location))
    made = RehearsalConfig(data_center="uk", masters=[rehearsed.cluster.url(0)], target=target, scratch_folder=folder)
    path = folder / "rehearsal.json"
    path.write_text(made.model_dump_json())
    return path


async def shown(rehearsed: Rehearsed) -> Any:
    return (await rehearsed.cluster.get(0, "/txlog/status"))["archive"]["rehearsals"][0]


async def test_a_good_one_is_reported(rehearsed: Rehearsed) -> None:
    await prepare(rehearsed)
    done = await command(rehearsed, "--json", "--max-rpo", "1m", "--max-rto", "1h")
    assert done.exit_code == 0, (done.output, done.exception)
    found = json.loads(done.stdout)
    assert (found["ok"], found["graphs"], found["differing"], found["problems"]) == (True, 2, 0, [])
    assert (found["level"], "start" in found["phases"]) == ("cluster", True)
    (stream,) = find_streams(rehearsed.target)
    (stored,) = stream.read_records("rehearsal")
    assert (stored["ok"], stored["index"], stored["at"]) == (True, 4, found["at"])
    assert (await shown(rehearsed))["lastGoodAt"] == found["at"]
    done = await command(rehearsed)
    assert done.exit_code == 0
    assert "good: 2 graphs, 4 quads compared with w-1 at index 4" in done.stdout


async def test_a_failed_one_ends_with_1(rehearsed: Rehearsed) -> None:
    await rehearsed.archive(insert("a"))
    done = await command(rehearsed)
    assert done.exit_code == 1
    assert "NoBase in the phase" in done.stdout
    assert (await shown(rehearsed))["last"]["error"] == "NoBase"
    assert (await shown(rehearsed))["lastGoodAt"] is None


async def test_planted_faults_are_shown_and_reported_to_nobody(rehearsed: Rehearsed) -> None:
    await prepare(rehearsed)
    done = await command(rehearsed, "--planted", "--json")
    found = json.loads(done.stdout)
    assert (done.exit_code, found["ok"], found["named"], found["of"]) == (0, True, 12, 12)
    (stream,) = find_streams(rehearsed.target)
    assert list(stream.read_records("rehearsal")) == []
    assert (await rehearsed.cluster.get(0, "/txlog/status"))["archive"] is None


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["--data-center", "us"], "there are uk"),
        (["--max-rpo", "soon"], "--max-rpo soon"),
        (["--level", "all"], "expected data or cluster"),
        (["--max-rto", "1parsec"], "--max-rto 1parsec"),
        (["--backups", "ftp://x"], "expected a folder or s3://"),
    ],
)
async def test_bad_options(rehearsed: Rehearsed, words: list[str], error: str) -> None:
    done = await command(rehearsed, *words)
    assert done.exit_code == 1
    assert error in str(done.exception)


async def test_without_a_target(rehearsed: Rehearsed) -> None:
    given = ["rehearse", "--master", rehearsed.cluster.url(0)]
    done = await asyncio.to_thread(CliRunner().invoke, app, given)
    assert "has no spec.archive" in str(done.exception)


async def test_the_process_of_a_schedule(rehearsed: Rehearsed, tmp_path: Path) -> None:
    await prepare(rehearsed)
    place = tmp_path / "place"
    place.mkdir()
    path = config(rehearsed, place)
    program = [sys.executable, "-m", "txlog.rehearsal", "--config", str(path), "--answer", str(tmp_path / "answer")]
    process = await asyncio.create_subprocess_exec(*program, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    output, log = await process.communicate()
    assert (process.returncode, output) == (0, b""), log
    *phases, last = (json.loads(line) for line in log.splitlines())
    assert [line["phase"] for line in phases][:3] == ["live", "find", "claim"]
    assert last["result"] == json.loads((tmp_path / "answer").read_text())
    assert last["result"]["ok"]
    assert [each.name for each in place.iterdir()] == ["rehearsal.json"]


async def test_one_that_is_ended_leaves_nothing(rehearsed: Rehearsed, tmp_path: Path) -> None:
    await rehearsed.archive(insert("a"))
    await rehearsed.back_up()
    await rehearsed.write(insert("late"))  # never archived, so it waits
    path = config(rehearsed, tmp_path)
    program = [sys.executable, "-m", "txlog.rehearsal", "--config", str(path)]
    process = await asyncio.create_subprocess_exec(*program, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert json.loads(await process.stdout.readline()) == {"phase": "live"}
    os.kill(process.pid, signal.SIGTERM)
    output, _ = await process.communicate()
    assert (process.returncode, json.loads(output.splitlines()[-1])["error"]) == (130, "Interrupted")
    assert not [name for name in os.listdir(tmp_path) if name.startswith("txlog-rehearsal-")]


@pytest.mark.parametrize(
    ("text", "named"), [("{", "Invalid JSON"), ("{}", "data_center"), ('{"data_center": "UK!"}', "data_center")]
)
def test_bad_configurations(tmp_path: Path, text: str, named: str) -> None:
    path = tmp_path / "config.json"
    path.write_text(text)
    done = subprocess.run(
        [sys.executable, "-m", "txlog.rehearsal", "--config", str(path)], capture_output=True, text=True, check=False
    )
    found = json.loads(done.stdout.splitlines()[-1])
    assert (done.returncode, found["ok"], found["error"]) == (1, False, "BadInput")
    assert named in found["message"]
