"""``txlog restore --to``: what it prints, and what it asks for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from archived_history import History
from log_pieces import START
from oxigraph_process import OxigraphProcess
from restored_store import store as store
from typer.testing import CliRunner

from txlog.archive.stream import Stream, StreamId
from txlog.backup.folder_target import FolderTarget
from txlog.cli.main import app


@pytest.fixture
def history(tmp_path: Path) -> History:
    return History(tmp_path / "target", 4, updates=False)


def run(history: History, *words: str) -> tuple[int, str]:
    target = ("--target", history.target.location, "--state", str(Path(history.target.location) / "none"))
    done = CliRunner().invoke(app, ["restore", *words, *target], env={"COLUMNS": "200"})
    return done.exit_code, done.output if done.exit_code == 0 else f"{done.output}{done.exception}"


def test_a_dry_run_names_base_files_and_the_transactions_at_the_border(history: History) -> None:
    made = history.back_up(history.final, 0)
    entry = history.final.entries[7]
    code, said = run(history, "--to", f"before:{entry.txid}", "--dry-run", "--json")
    found = json.loads(said)
    assert code == 0
    assert (found["position"]["index"], found["base"], found["entries"]) == (7, made.name, 7)
    assert found["firstOut"]["transaction"] == str(entry.txid)
    assert found["lastIn"]["transaction"] == str(history.final.entries[6].txid)
    assert 0 < found["files"] <= 7
    assert found["bytes"] > 0
    code, said = run(history, "--to", f"before:{entry.txid}", "--dry-run")
    assert code == 0
    for text in (made.name, str(entry.txid), "first out", "index 7"):
        assert text in said


def test_a_store_is_restored_to_the_end(history: History, store: OxigraphProcess) -> None:
    assert store.update("DROP ALL").ok
    history.back_up(history.final, 2)
    code, said = run(history, "--to", "latest", "--into", store.url)
    assert code == 0, said
    assert f"is at index {len(history.final.entries)}" in said.replace("\n", " ")
    assert store.quads() == sorted(history.final.replay(len(history.final.entries)))
    code, said = run(history, "--to", "latest", "--into", store.url)
    assert (code, "is restored into" in said or "is at index" in said) == (1, True), said


def test_backups_on_another_target(history: History, tmp_path: Path) -> None:
    elsewhere = History(tmp_path / "elsewhere", 4, updates=False)
    made = elsewhere.back_up(elsewhere.final, 0)
    code, said = run(history, "--to", "latest", "--dry-run", "--json")
    assert (code, "--backups" in said) == (1, True)
    code, said = run(history, "--to", "latest", "--dry-run", "--json", "--backups", elsewhere.target.location)
    assert (code, json.loads(said)["base"]) == (0, made.name)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("--to", "latest"), "expected --into URL"),
        (("--to", "latest", "--into", "uk-worker-1"), "expected the URL of an empty store"),
        (("--to", "yesterday", "--dry-run"), "no moment"),
        (("a-backup", "--to", "latest", "--dry-run"), "not both"),
        (("a-backup", "--into", "uk-worker-1", "--dry-run"), "--dry-run needs --to"),
        (("a-backup", "--into", "uk-worker-1", "--cluster", "00"), "--cluster needs --to"),
        (("a-backup",), "expected BACKUP --into WORKER"),
        (("--to", "latest", "--dry-run", "--data-center", "us"), "no such archive"),
        (("--to", "latest", "--dry-run", "--base", "none"), "no complete backup"),
    ],
)
def test_what_is_missing_is_named(history: History, words: tuple[str, ...], expected: str) -> None:
    code, said = run(history, *words)
    assert (code, expected in said) == (1, True), said


def test_one_of_several_archives_is_chosen(history: History) -> None:
    other = Stream(FolderTarget(Path(history.target.location)), StreamId(bytes(16), "us"))
    other.create(START)
    code, said = run(history, "--to", "latest", "--dry-run", "--base", "empty")
    assert (code, "--data-center and --cluster" in said) == (1, True), said
    code, said = run(history, "--to", "latest", "--dry-run", "--base", "empty", "--data-center", "uk", "--json")
    assert (code, json.loads(said)["position"]["index"]) == (0, len(history.final.entries))
