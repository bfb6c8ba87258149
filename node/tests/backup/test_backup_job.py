"""``python -m txlog.backup`` as a supervisor starts it; a stub stands for the masters."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from oxigraph_process import OxigraphProcess
from pen import CLUSTER, apply, filled_log, folder_target
from stub_master import StubMaster

from txlog.backup import BackupTarget, catalogue, check_backup
from txlog.config.process_config import BackupJobConfig, FolderConfig


class Job:
    def __init__(self, folder: Path, worker: OxigraphProcess) -> None:
        self.folder, self.worker = folder, worker
        self.target: BackupTarget = folder_target(folder / "backups")
        self.master = StubMaster("uk-1")
        place = {"epoch": 1, "index": 3, "hash": "00" * 16, "fence": 0}
        known = {"name": "uk-worker-1", "url": worker.url, "engine": "oxigraph", "position": place, "state": "Working"}
        self.master.workers = [{**known, "name": "uk-worker-0", "state": "Unreachable"}, known]

    def __call__(self, code: int = 0, **fields: Any) -> dict[str, Any]:
        config = BackupJobConfig(
            data_center="uk",
            masters=[self.master.url],
            target=FolderConfig(folder=self.folder / "backups"),
            **fields,
        )
        file = self.folder / "job.json"
        file.write_text(config.model_dump_json())
        command = [sys.executable, "-m", "txlog.backup", "--config", str(file)]
        found = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
        assert found.returncode == code, (found.stdout, found.stderr)
        told: dict[str, Any] = json.loads(found.stdout.splitlines()[-1])
        return told


@pytest.fixture
def job(tmp_path: Path, worker: OxigraphProcess) -> Iterator[Job]:
    apply(worker, filled_log(3))
    made = Job(tmp_path, worker)
    yield made
    made.master.close()


def test_one_backup_and_what_goes_for_it(job: Job) -> None:
    first = job(keep=1)
    assert (first["quads"], first["position"].split(":")[1], first["retired"]) == (30, "3", [])
    second = job(keep=1)
    assert second["retired"] == [first["name"]]
    (left,) = catalogue(job.target)
    assert left.name == second["name"]
    assert left.manifest is not None
    assert (left.manifest.why, left.manifest.cluster, left.manifest.worker) == ("schedule", CLUSTER, "uk-worker-1")


def test_a_duty_is_done_once_however_often_it_is_asked_for(job: Job) -> None:
    job.target.write("catalogue-uk-split-4-abc/part-00001.nq.zst", b"what a crash left")
    duty = {"why": "split", "name": "catalogue-uk-split-4-abc", "at": 3}
    made = job(**duty)
    assert made["name"] == "catalogue-uk-split-4-abc"
    apply(job.worker, filled_log(5))  # it has moved on: a second one at 3 could not be made
    assert job(**duty)["position"] == made["position"]
    (left,) = catalogue(job.target)
    assert left.held
    assert check_backup(job.target, left.name).why == "split"
    for _ in range(2):
        job(keep=1)
    assert {each.held for each in catalogue(job.target)} == {True, False}


def test_what_cannot_be_done_is_said_by_name(job: Job) -> None:
    assert job(1, why="split", name="x", at=2)["error"] == "WorkerMoved"
    assert job(1, why="split", name="x", at=4, wait_s=0.2)["error"] == "WorkerMoved"
    assert job(1, name="X")["error"] == "BadInput"
    job.master.workers = job.master.workers[:1]
    assert "no worker of this data centre works" in job(1)["message"]
    assert list(job.target.list_objects()) == []
    assert job.master.holds == {}
