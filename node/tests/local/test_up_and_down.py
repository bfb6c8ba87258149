"""`txlog up --detach` and `txlog down` as people use them, with the real programs."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from typer.testing import CliRunner, Result

from txlog.cli import cluster_commands
from txlog.cli.main import app
from txlog.local import process_identity
from txlog.local.local_errors import CannotRun
from txlog.local.process_identity import ProcessIdentity
from txlog.local.state_folder import StateFolder

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(400)]
EXAMPLE = Path(__file__).parents[3] / "examples" / "two-data-centres"
DEADLINE = 60.0


class Cluster:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "txlog.cli.main", *arguments, "--state", str(self.folder)]
        return subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)

    def here(self, *arguments: str) -> Result:
        """A command in this process: the start of another costs more than most commands."""
        with patch.dict(os.environ):  # a command with --state sets the file of the token, for its own process
            return CliRunner().invoke(app, [*arguments, "--state", str(self.folder)])

    def json(self, *arguments: str) -> Any:
        found = self.here(*arguments, "--json")
        assert found.exit_code == 0, (found.output, found.exception)
        return json.loads(found.stdout)

    def up(self, wait: str) -> Any:
        """In another process, as people do: its end may not end the cluster."""
        found = self("up", "-f", str(EXAMPLE), "--detach", "--wait", wait, "--json")
        assert found.returncode == 0, found.stderr
        return json.loads(found.stdout)

    def marks(self) -> dict[str, ProcessIdentity]:
        told = json.loads((self.folder / "processes.json").read_text())
        return {name: ProcessIdentity.model_validate(mark) for name, mark in told.items()}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path / "state")
    yield cluster
    cluster.here("down", "--purge")


def eventually(true: Callable[[], object]) -> None:
    end = time.monotonic() + DEADLINE
    while not true():
        assert time.monotonic() < end, "not in time"
        time.sleep(0.05)


def up(cluster: Cluster, wait: str = "0") -> Any:
    return cluster.up(wait)


def test_up_runs_everything_once_and_down_leaves_nothing(cluster: Cluster) -> None:
    told = up(cluster)
    assert [p["name"] for p in told["processes"]] == [
        "uk-worker-1",
        "uk-worker-2",
        "us-worker-1",
        "links",
        "uk-1",
        "uk-2",
        "us-1",
        "uk-pipeline",
        "us-pipeline",
    ]
    again = cluster("up", "-f", str(EXAMPLE), "--detach")
    assert again.returncode == 1
    assert "already runs" in again.stderr
    eventually(lambda: len(cluster.marks()) == 9)
    marks = cluster.marks()
    assert cluster.json("link", "cut", "uk", "us", "--one-way") == {"directions": 2}
    assert sum(row["cut"] for row in cluster.json("link", "list")) == 2
    ports = {p["name"]: p["url"] for p in told["processes"]}

    assert cluster.json("down") == {"ended": True, "purged": False}
    assert not any(process_identity.is_alive(mark) for mark in marks.values())
    assert cluster.json("down")["ended"] is False

    told = up(cluster)
    assert {p["name"]: p["url"] for p in told["processes"]} == ports
    assert cluster.json("down", "--purge") == {"ended": True, "purged": True}
    assert not cluster.folder.exists()


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's part in it is Linux's")
def test_a_killed_supervisor_takes_its_children_along_and_up_starts_anew(cluster: Cluster) -> None:
    pid = up(cluster)["pid"]
    eventually(lambda: len(cluster.marks()) == 9)
    marks = cluster.marks()
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: not any(process_identity.is_alive(mark) for mark in marks.values()))
    assert cluster("status").returncode == 1
    assert up(cluster)["pid"] != pid


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's part in it is Linux's")
def test_a_supervisor_that_dies_while_up_waits_is_named(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    os.kill(up(cluster)["pid"], signal.SIGKILL)
    state = StateFolder(cluster.folder)
    eventually(lambda: not state.is_locked)
    monkeypatch.setattr(cluster_commands, "start_daemon", lambda paths, folder: None)  # it answered, then it died
    monkeypatch.setattr(cluster_commands, "use_credentials", lambda folder: None)  # it changes the environment
    told = CliRunner().invoke(app, ["up", "-f", str(EXAMPLE), "--detach", "--state", str(cluster.folder)])
    assert isinstance(told.exception, CannotRun)
    assert "the supervisor ended while its processes started" in str(told.exception)
    assert str(state.log("supervisor")) in str(told.exception)


@pytest.mark.long
def test_what_is_loaded_during_a_cut_is_the_same_everywhere_after_it(cluster: Cluster, tmp_path: Path) -> None:
    up(cluster, "120")
    file = tmp_path / "a.nt"
    file.write_text("".join(f'<http://e/s{n}> <http://e/p> "{n}" .\n' for n in range(2000)))
    (loaded,) = cluster.json("load", str(file), "--batch", "100")
    assert loaded["transactions"] == 20
    cluster.json("link", "cut", "uk", "us")
    file.write_text(file.read_text().replace("/p>", "/q>"))
    cluster.json("load", str(file), "--batch", "100", "--durability", "accepted")
    cluster.json("link", "heal")
    cluster.json("load", str(file), "--batch", "100", "--durability", "synced")  # repeats nothing, waits for all
    found = cluster.json("verify", "--wait", "150")
    assert found["equal"] is True
    assert [worker["quads"] for worker in found["workers"]] == [4000] * 3


def test_ctrl_c_ends_a_cluster_in_the_foreground(cluster: Cluster) -> None:
    command = [sys.executable, "-m", "txlog.cli.main", "up", "-f", str(EXAMPLE), "--state", str(cluster.folder)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    eventually(lambda: (cluster.folder / "processes.json").exists() and len(cluster.marks()) == 9)
    marks = cluster.marks()
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=DEADLINE)
    assert process.returncode == 0, said
    assert "Traceback" not in said
    assert not any(process_identity.is_alive(mark) for mark in marks.values())
