"""What the commands about splits tell and choose, without a cluster: progress, the scenarios, where backups go."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from e2e.scenarios.recovery_crashes import STEPS, crash_cases, find_victims
from e2e.scenarios.rejoin import ReaderThread
from e2e.scenarios.split_demo import SplitProgress
from e2e.soak.backup_target_faults import SoakBackupTargets
from txlog.config.process_config import DutyJobConfig, FolderConfig, S3Config
from txlog.local.state_folder import MasterLocation, StateFolder, Topology, WorkerLocation
from txlog.model.errors import Unavailable


def test_progress_tells_what_has_changed_and_nothing_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = [{"us": "us has to: restore us-worker-1", "w": "w stands at 1"}, {"w": "w stands at 1"}, {"w": "w at 2"}]
    told: list[str] = []
    progress = SplitProgress(SimpleNamespace(), told.append)  # type: ignore[arg-type]
    monkeypatch.setattr(progress, "current_lines", lambda: seen.pop(0))
    for _ in range(3):
        progress.report_changes()
    assert [line.split(" s  ")[1] for line in told] == ["us has to: restore us-worker-1", "w stands at 1", "w at 2"]


def topology() -> Topology:
    nodes = [("uk-1", "uk"), ("uk-2", "uk"), ("us-1", "us")]
    return Topology.model_construct(
        repository="r",
        data_centers=["uk", "us"],
        masters=[MasterLocation.model_construct(node=node, data_center=dc, url="http://x") for node, dc in nodes],
        workers=[WorkerLocation.model_construct(name=f"{dc}-worker-1", data_center=dc) for dc in ("uk", "us")],
    )


def test_a_kill_at_each_step_meets_everybody() -> None:
    cluster: Any = SimpleNamespace(topology=topology())
    found = find_victims(cluster)
    assert (found["coordinator"], found["member"], found["winner's member"]) == ("uk-1", "us-1", "uk-2")
    scenarios = crash_cases(list(found))
    assert len(set(scenarios)) == len(scenarios) == len(STEPS) * len(found) + 2
    assert {("replaying", role) for role in found} <= set(scenarios)


def test_a_reader_counts_what_failed_and_what_was_empty() -> None:
    answers: list[Any] = [[["a"]], Unavailable("NoWorker", "no worker here"), [], [["a"]]]
    reader: ReaderThread

    def ask() -> list[list[str]]:
        answer = answers.pop(0)
        if not answers:
            reader._over.set()
        if isinstance(answer, Exception):
            raise answer
        return list(answer)

    reader = ReaderThread(ask)
    reader.run()
    assert (len(reader.seconds), reader.failed) == (2, ["no worker here", "an answer without a row"])


@pytest.fixture
def arena(tmp_path: Path) -> Any:
    state = StateFolder(tmp_path / "state")
    state.prepare()
    folders = {side: FolderConfig(folder=state.split_backups(side)) for side in ("uk", "us")}
    for side, other in (("uk", "us"), ("us", "uk")):
        told = DutyJobConfig(data_center=side, masters=["http://x"], target=folders[side], others=[folders[other]])
        state.write_config(state.duties(side), told)
        state.split_backups(side).mkdir(parents=True)
    return SimpleNamespace(state=state, topology=topology())


def test_a_folder_of_backups_goes_away_and_comes_back_once(arena: Any) -> None:
    targets = SoakBackupTargets(arena)
    targets.write_configs()
    assert DutyJobConfig.model_validate_json(arena.state.duties("us").read_bytes()).target == FolderConfig(
        folder=arena.state.split_backups("us")
    )
    lose, bring_back = targets.break_and_restore("us", random.Random(1))
    lose()
    assert not arena.state.split_backups("us").exists()
    bring_back()
    bring_back()
    assert arena.state.split_backups("us").is_dir()


@pytest.mark.parametrize("seed", [1, 2, 3, 4])
def test_a_server_hangs_or_dies_and_comes_back_once(arena: Any, tmp_path: Path, seed: int) -> None:
    class Server:
        folder = tmp_path
        url = "http://127.0.0.1:9"

        def __init__(self) -> None:
            self.starts = 0
            self.start()

        def start(self) -> None:
            self.starts += 1
            self.process = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])

        def kill(self) -> None:
            self.process.kill()
            self.process.wait(30)

    server: Any = Server()
    targets = SoakBackupTargets(arena, "us", server)
    targets.write_configs()
    for side, place in (("us", "target"), ("uk", "others")):
        told = DutyJobConfig.model_validate_json(arena.state.duties(side).read_bytes())
        found = told.target if place == "target" else told.others[0]
        assert isinstance(found, S3Config)
        assert found.endpoint == server.url
    assert (targets.fault_name("us"), targets.fault_name("uk")) == (
        "S3 target unreachable",
        "backup target unreachable",
    )
    try:
        hangs = random.Random(seed).random() < 0.5
        lose, bring_back = targets.break_and_restore("us", random.Random(seed))
        lose()
        if hangs:
            os.waitid(os.P_PID, server.process.pid, os.WSTOPPED)  # returns once it stands still
        else:
            assert server.process.poll() == -signal.SIGKILL
        bring_back()
        bring_back()
        assert server.process.poll() is None
        assert server.starts == (1 if hangs else 2)
    finally:
        server.kill()
