"""``python -m txlog.archive`` and archivers that are killed: nothing is missing, whenever that is."""

from __future__ import annotations

import asyncio
import json
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from apart import insert
from archiver_at_a_step import ArchiverVictims
from archiver_runs import cluster_id, entries_to, folder, log_of, paths_of, stable, stream_of, told
from master_cluster import Cluster, until

from e2e.lib.seaweedfs import ACCESS, SECRET, SeaweedProcess
from txlog.archive.file_name import Node
from txlog.archive.path import find_paths
from txlog.backup.folder_target import FolderTarget
from txlog.backup.target import BackupTarget, open_target
from txlog.config.process_config import S3Config

NEVER = 1_000_000


@pytest.fixture
def victims() -> Iterator[ArchiverVictims]:
    made = ArchiverVictims()
    yield made
    made.end()


async def test_an_archiver_that_is_killed_before_any_step_leaves_no_hole(
    clusters: Callable[..., Cluster], victims: ArchiverVictims, tmp_path: Path
) -> None:
    cluster = clusters(1)
    await cluster.start()
    for what in range(3):
        await cluster.write(0, insert(what))
    place = await stable(cluster, 0, 3)
    expected, identity = await log_of(cluster), await cluster_id(cluster)
    killed_before: set[str] = set()
    number = 0
    while True:
        number += 1
        target = FolderTarget(folder(tmp_path / f"target-{number}"))

        def run(at: int, number: int = number) -> Any:
            return victims.run(at, tmp_path / f"target-{number}", place.index, cluster.url(0))

        taken = await asyncio.to_thread(run, number)
        stream = stream_of(target, identity)
        if stream.read_start() is not None:
            found = paths_of(stream)
            assert found.unreached == []
            assert told(entries_to(stream, found.heads[0])) == expected[: found.heads[0].index]
        if not taken.killed:
            break
        killed_before.add(taken.steps[-1])
        taken = await asyncio.to_thread(run, NEVER)
        assert not taken.killed
        assert told(entries_to(stream, place)) == expected
        assert paths_of(stream).unreached == []
    assert killed_before >= {"create", "read", "list_nested", "log_page", "status", "branch", "fsync", "link", "unlink"}
    assert number > 20


class Process:
    """Never without a ``with``."""

    def __init__(self, path: Path, config: dict[str, Any]) -> None:
        (path / "archiver.json").write_text(json.dumps(config))
        self._command = [sys.executable, "-m", "txlog.archive", "--config", str(path / "archiver.json")]
        self.log = path / "archiver.log"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(self._command, stdout=subprocess.PIPE, stderr=log)

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process is not None and self.process.poll() is None:
            self.end(signal.SIGKILL)

    def end(self, how: int) -> int:
        assert self.process is not None
        self.process.send_signal(how)
        return self.process.wait(60)

    async def terminate(self) -> int:
        """In a thread: it reads the masters once more, and they answer on this loop."""
        return await asyncio.to_thread(self.end, signal.SIGTERM)


@pytest.fixture
def s3(seaweed: SeaweedProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> S3Config:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    return S3Config(bucket="backups", prefix=tmp_path.name, endpoint=seaweed.url)


async def written(target: BackupTarget, identity: bytes, place: Node) -> bool:
    """By the names of the files."""

    def look() -> bool:
        stream = stream_of(target, identity)
        start = stream.read_start()
        if start is None:
            return False
        return find_paths([each.name for each in stream.list_files()], [start]).heads[0].index >= place.index

    return await asyncio.to_thread(look)


async def test_the_process_on_s3_killed_again_and_again_under_load(
    clusters: Callable[..., Cluster], seaweed: SeaweedProcess, s3: S3Config, tmp_path: Path
) -> None:
    """Also the store ends, and comes back."""
    cluster = clusters(2)
    await cluster.start()
    target, identity = open_target(s3), await cluster_id(cluster)
    config = {
        "data_center": "uk",
        "masters": [cluster.url(0), cluster.url(1)],
        "target": s3.model_dump(mode="json"),
        "max_delay_ms": 100,
        "file_bytes": 2000,
    }
    is_over = False

    async def load() -> int:
        count = 0
        while not is_over:
            await cluster.write(count % 2, insert(count))
            count += 1
            await asyncio.sleep(0.02)
        return count

    writing = asyncio.create_task(load())
    chance = random.Random(5)
    with Process(tmp_path, config) as process:
        try:
            for turn in range(4):
                process.start()
                if turn == 2:
                    await asyncio.to_thread(seaweed.kill)
                    await until(lambda: "ArchiveTargetFailed" in process.log.read_text())
                    await asyncio.to_thread(seaweed.start)
                before = await stable(cluster)
                await until(lambda before=before: written(target, identity, before))
                await asyncio.sleep(chance.random() / 5)
                assert process.end(signal.SIGKILL) == -signal.SIGKILL
        finally:
            is_over = True
            count = await writing
        starts = process.log.read_text().count("ArchiverStarted")
        process.start()
        place = await stable(cluster, 0, count)
        await until(lambda: written(target, identity, place))
        # All may have been written before: until it says so, it does not know what SIGTERM asks for.
        await until(lambda: process.log.read_text().count("ArchiverStarted") > starts)
        assert await process.terminate() == 0
    stream = stream_of(target, identity)
    found = await asyncio.to_thread(entries_to, stream, place)
    assert told(found) == await log_of(cluster)
    assert paths_of(stream).unreached == []


async def test_sigterm_archives_what_was_read(clusters: Callable[..., Cluster], tmp_path: Path) -> None:
    cluster = clusters(1)
    await cluster.start()
    target = FolderTarget(folder(tmp_path / "target"))
    config = {
        "data_center": "uk",
        "masters": [cluster.url(0)],
        "target": {"folder": str(tmp_path / "target")},
        "max_delay_ms": 3_600_000,
    }
    for what in range(3):
        await cluster.write(0, insert(what))
    place = await stable(cluster, 0, 3)
    with Process(tmp_path, config) as process:
        process.start()
        await until(lambda: '"waiting":3' in process.log.read_text())
        assert await process.terminate() == 0
    assert await written(target, await cluster_id(cluster), place)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ("nothing", "cannot be read"),
        ("{}", "data_center"),
        (
            '{"data_center": "uk", "masters": ["http://127.0.0.1:1"], "target": {"folder": "/"}, "maxDelay": 5}',
            "maxDelay",
        ),
        ('{"data_center": "../uk", "masters": ["http://127.0.0.1:1"], "target": {"folder": "/"}}', "data_center"),
    ],
)
def test_a_wrong_configuration_is_named(tmp_path: Path, config: str, message: str) -> None:
    path = tmp_path / "archiver.json"
    if config != "nothing":
        path.write_text(config)
    command = [sys.executable, "-m", "txlog.archive", "--config", str(path)]
    found = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert found.returncode == 1
    answer = json.loads(found.stdout.splitlines()[-1])
    assert answer["error"] == "BadInput"
    assert message in answer["message"]
    assert "Traceback" not in found.stderr
