"""``txlog up --from-archive``: what it shows before it changes anything, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from archived_history import History
from typer.testing import CliRunner

from txlog.cli.main import app
from txlog.journal import Journal, OsVfs
from txlog.successor.recovery_claim import find_claim

MANIFEST = """\
apiVersion: txlog.io/v1alpha1
kind: TxLogCluster
metadata: {name: demo}
spec:
  dataCenter: uk
  peers:
    - {name: uk, masters: 2, address: "uk-{index}.example.net"}
"""


@pytest.fixture
def history(tmp_path: Path) -> History:
    (tmp_path / "uk.yaml").write_text(MANIFEST)
    return History(tmp_path / "target", 4, updates=False)


def up(history: History, *words: str) -> tuple[int, str]:
    folder = Path(history.target.location).parent
    known = ("-f", str(folder / "uk.yaml"), "--state", str(folder / "state"), "--wait", "0")
    done = CliRunner().invoke(app, ["up", *known, *words], env={"COLUMNS": "200"})
    return done.exit_code, done.output if done.exit_code == 0 else f"{done.output}{done.exception}"


def test_a_dry_run_names_what_is_kept_and_writes_nothing(history: History) -> None:
    place = history.final.entries[history.common - 1]
    words = ("--to", f"position:{place.index}:{place.hash.hex()}", "--base", "empty", "--dry-run")
    code, said = up(history, "--from-archive", history.target.location, "--json", *words)
    assert code == 0, said
    found = json.loads(said)
    assert found["position"]["index"] == history.common
    assert found["lostTransactions"] > 0
    assert found["lost"]
    assert len(found["keptUpTo"]) == 1
    code, said = up(history, "--from-archive", history.target.location, *words)
    assert code == 0, said
    for text in ("kept up to", "idempotency keys", f"index {history.common}", "none: empty stores"):
        assert text in said
    assert find_claim(history.target, history.stream.id) is None
    assert not (Path(history.target.location).parent / "state" / "masters").exists()


def test_stores_that_nothing_fills_are_known_before_the_claim(history: History) -> None:
    code, said = up(history, "--from-archive", history.target.location, "--detach")
    assert code == 1
    assert "--base empty" in said
    assert find_claim(history.target, history.stream.id) is None


def test_a_journal_that_lives_is_named(history: History) -> None:
    folder = Path(history.target.location).parent / "state"
    words = ("--from-archive", history.target.location, "--base", "empty")
    up(history, *words, "--dry-run")  # makes the state folder
    journal = folder / "masters" / "uk-2" / "journal"
    journal.mkdir(parents=True)
    Journal.open(OsVfs(journal), node="uk-2", draw_birth=lambda: 7, segment_bytes=1 << 20)[0].close()
    code, said = up(history, *words, "--detach")
    assert code == 1
    assert "--without uk-2" in said.replace("\n", " ")
    assert find_claim(history.target, history.stream.id) is None


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--to", "latest"), "--to needs --from-archive"),
        (("--as", "copy"), "--as needs --from-archive"),
        (("--supersede", "2"), "--supersede needs --from-archive"),
        (("--from-archive", "TARGET", "--as", "twin"), "successor or copy"),
        (("--from-archive", "TARGET", "--to", "yesterday"), "is no moment"),
        (("--from-archive", "TARGET", "--cluster", "ab"), "holds no such archive"),
        (("--from-archive", "/nowhere/at/all"), "/nowhere/at/all"),
        (("--from-archive", "ftp://there"), "a folder or s3://"),
    ],
)
def test_bad_words_are_refused_before_anything_is_written(history: History, words: tuple[str, ...], why: str) -> None:
    given = [history.target.location if word == "TARGET" else word for word in words]
    code, said = up(history, *given, "--base", "empty") if "--from-archive" in words else up(history, *given)
    assert code != 0
    assert why in said.replace("\n", " "), said
    assert find_claim(history.target, history.stream.id) is None
