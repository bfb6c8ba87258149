import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from stub_master import StubMaster
from typer.testing import CliRunner, Result

from txlog.cli.cluster_commands import is_ready
from txlog.cli.main import app, main

EXAMPLE = Path(__file__).parents[3] / "examples" / "two-data-centres"
WORKER = {
    "name": "uk-worker-1",
    "url": "http://127.0.0.1:1",
    "engine": "oxigraph",
    "position": {"epoch": 1, "index": 7, "hash": "00" * 16, "fence": 0},
    "state": "Working",
    "error": None,
    "hold": None,
    "reportedAt": None,
}


@pytest.fixture
def master() -> Iterator[StubMaster]:
    master = StubMaster()
    master.workers = [dict(WORKER)]
    yield master
    master.close()


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def said(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *arguments: str) -> tuple[object, str]:
    """As a shell sees it: exit code and standard error."""
    monkeypatch.setattr("sys.argv", ["txlog", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    return ended.value.code, capsys.readouterr().err.replace("\n", " ")


@pytest.mark.parametrize(
    "command",
    [
        ["status"],
        ["peers"],
        ["log"],
        ["verify"],
        ["worker", "list"],
        ["link", "list"],
        ["link", "cut", "uk", "us"],
        ["link", "heal"],
        ["down"],
        ["skip", "uk-1.00c0ffee00c0ffee.1", "--yes"],
        ["load", "x.nt"],
    ],
)
def test_where_nothing_runs_it_says_how_to_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    code, text = said(capsys, monkeypatch, *command, "--state", str(tmp_path / "none"))
    assert code == 1
    assert "no cluster runs with the state folder" in text
    assert "txlog up" in text
    assert "Traceback" not in text


def test_up_names_what_is_wrong_with_manifests(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "uk.yaml").write_text((EXAMPLE / "uk.yaml").read_text().replace("masters: 2", "masters: none"))
    code, text = said(capsys, monkeypatch, "up", "-f", str(tmp_path), "--state", str(tmp_path / "state"))
    assert code == 1
    assert 'spec.peers[0].masters: is "none"; expected a whole number' in text.replace("  ", " ")
    assert not (tmp_path / "state").exists()


def test_a_delay_needs_a_unit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code, text = said(capsys, monkeypatch, "link", "delay", "uk", "us", "50", "--state", str(tmp_path))
    assert code == 1
    assert "50: expected a duration" in text


def test_questions_to_a_master(master: StubMaster) -> None:
    for command in (["status"], ["peers"], ["worker", "list"]):
        people = run(*command, "--master", master.url)
        assert people.exit_code == 0, people.output
        assert "uk-1" in people.stdout or "uk-worker-1" in people.stdout
        machines = run(*command, "--master", master.url, "--json")
        assert json.loads(machines.stdout)
    told = json.loads(run("status", "--master", master.url, "--json").stdout)
    assert told["supervisor"] is None
    assert told["masters"][0]["status"]["node"] == "uk-1"
    (worker,) = json.loads(run("worker", "list", "--master", master.url, "--json").stdout)
    assert worker["dataCenter"] == "uk"


def test_status_has_the_open_duties_and_what_holds_the_log_back(master: StubMaster) -> None:
    duty = {"id": "1", "kind": "restore", "why": "Diverged", "worker": "uk-worker-1", "error": "TargetUnreachable"}
    trim = {"keptFrom": 0, "heldBackBy": []}
    master.more["/txlog/status"] = {**master.status(), "duties": [duty], "trim": trim}
    people = run("status", "--master", master.url).stdout
    assert "restore    uk           uk-worker-1  Diverged  TargetUnreachable" in people
    (seen,) = json.loads(run("status", "--master", master.url, "--json").stdout)["masters"]
    assert (seen["status"]["duties"], seen["status"]["trim"]) == ([duty], trim)


def test_a_journal_folder_must_be_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code, text = said(capsys, monkeypatch, "journal", "check", str(tmp_path / "none"))
    assert code == 1
    assert "no such folder" in text


def test_a_txid_is_checked_before_anything_is_asked(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code, text = said(capsys, monkeypatch, "skip", "nonsense", "--yes")
    assert code == 1
    assert "not a transaction id" in text


def test_a_pipeline_is_ready_when_it_has_told_of_every_worker_since_it_was_started(master: StubMaster) -> None:
    pipeline = {"role": "pipeline", "url": "", "since": 1000.0}
    dead = "http://127.0.0.1:1"
    assert not is_ready(pipeline, [dead, master.url])
    master.workers = [{**WORKER, "reportedAt": 1001.0}, {**WORKER, "name": "uk-worker-2", "reportedAt": 999.0}]
    assert not is_ready(pipeline, [dead, master.url])
    master.workers[1]["reportedAt"] = 1002.0
    assert is_ready(pipeline, [dead, master.url])
    assert not is_ready(pipeline, [dead])


def test_a_refusal_that_the_guide_lists_comes_with_its_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of backups, by which people look it up; a wrong use of the command says what is wrong with it."""
    code, text = said(capsys, monkeypatch, "backup", "delete", "none", "--target", str(tmp_path))
    assert (code, text.split(" ")[0]) == (1, "NoSuchBackup:"), text
    gone = str(tmp_path / "not-mounted")
    code, text = said(capsys, monkeypatch, "backup", "list", "--target", gone)
    assert (code, text.split(" ")[0]) == (1, "TargetUnreachable:"), text
    code, text = said(capsys, monkeypatch, "backup", "delete", "--target", str(tmp_path))
    assert (code, text.split(":")[0]) == (1, "txlog backup delete"), text


def test_rules_of_graphs_are_all_removed_only_on_purpose(tmp_path: Path) -> None:
    """Without rules, no graph waits for a quorum any more."""
    file, master = tmp_path / "graphs.yaml", ("--master", "http://127.0.0.1:1")
    file.write_text("")
    assert "it holds nothing" in str(run("configuration", "--graphs", str(file), "--yes", *master).exception)
    file.write_text("[]")
    asked = run("configuration", "--graphs", str(file), *master)
    assert (asked.exit_code, "All rules go" in asked.output) == (1, True), asked.output
    sure = run("configuration", "--graphs", str(file), "--yes", *master)
    assert "All rules go" not in sure.output
    assert "127.0.0.1:1" in str(sure.exception), "it was sent"
