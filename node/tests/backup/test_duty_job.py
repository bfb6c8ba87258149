"""``python -m txlog.backup.duty`` where no master answers: nothing is taken for done."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest
from stub_master import StubMaster

from txlog.backup.duty import main
from txlog.config.process_config import DutyJobConfig, FolderConfig

WAYS = [["--backup", "uk-1:1:2"], ["--unorder", "uk-worker-1"], ["--restore", "uk-worker-1"], ["--release"]]


@pytest.fixture
def nobody() -> str:
    """Where nothing listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{taken.getsockname()[1]}"


def config(folder: Path, *masters: str) -> Path:
    file = folder / "duty.json"
    target = FolderConfig(folder=folder / "backups")
    made = DutyJobConfig(data_center="uk", masters=list(masters), target=target, others=[], elsewhere=[])
    file.write_text(made.model_dump_json())
    return file


@pytest.mark.parametrize("way", WAYS)
def test_masters_that_are_silent_have_not_said_that_it_is_done(
    tmp_path: Path, nobody: str, way: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--config", str(config(tmp_path, nobody, nobody)), *way]) == 1
    told = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert told["error"] == ("Unavailable" if "--restore" in way else "MasterUnreachable")
    assert nobody in told["message"]


@pytest.mark.parametrize("way", WAYS[:2])
def test_one_that_answers_is_enough(
    tmp_path: Path, nobody: str, way: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    master = StubMaster("uk-2")
    try:
        assert main(["--config", str(config(tmp_path, nobody, master.url)), *way]) == 0
    finally:
        master.close()
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["already"] is True
