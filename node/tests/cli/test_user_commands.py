"""``txlog user``: the file of users as an administrator writes it."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest
from typer.testing import CliRunner

from txlog.auth import Rights, Role, UserDatabase, parse_users_file
from txlog.cli.main import app
from txlog.local.state_folder import StateFolder


def run(*words: str, stdin: str | None = None) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["user", *words], input=stdin)
    return done.exit_code, done.output + (str(done.exception) if done.exception is not None else "")


def test_users_come_and_go(tmp_path: Path) -> None:
    state = ("--state", str(tmp_path / "state"))
    file = StateFolder(tmp_path / "state").secret("users") / "users"
    code, said = run("add", "ann", "--role", "admin", "--password-stdin", *state, stdin="correct horse\n")
    assert (code, "ann is admin" in said) == (0, True), said
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    code, token = run("add", "loader", "--role", "writer", "--token", *state)
    assert code == 0, token
    users = UserDatabase(parse_users_file(file.read_text(), "users"))
    assert users.authenticate_token(token.strip()) == ("loader", Rights(Role.WRITER))
    assert users.authenticate_password("ann", b"correct horse") == ("ann", Rights(Role.ADMIN))
    assert "correct horse" not in file.read_text()
    assert token.strip() not in file.read_text()
    found = json.loads(run("list", "--json", *state)[1])
    assert found == [
        {"name": "ann", "role": "admin", "passwords": 1, "tokens": 0},
        {"name": "loader", "role": "writer", "passwords": 0, "tokens": 1},
    ]
    assert run("remove", "ann", *state)[0] == 0
    assert [user["name"] for user in json.loads(run("list", "--json", *state)[1])] == ["loader"]
    assert run("remove", "ann", *state)[0] == 1


def test_what_is_wrong_changes_nothing(tmp_path: Path) -> None:
    file = tmp_path / "users"
    given = ("--file", str(file))
    for words, said in (
        (("add", "ann", "--role", "owner", "--token"), "expected reader, writer or admin"),
        (("add", "a:b", "--role", "reader", "--token"), "a name of letters"),
        (("add", "txlog", "--role", "admin", "--token"), "other than txlog"),
        (("add", "ann", "--role", "admin", "--password-stdin"), "at least 8 characters"),
        (("add", "ann", "--role", "admin", "--password-stdin", "--token"), "either"),
    ):
        code, found = run(*words, *given, stdin="short\n")
        assert (code, said in found) == (1, True), (words, found)
    assert not file.exists()


def test_a_role_for_named_repositories_is_a_preview(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = ("--file", str(tmp_path / "users"))
    code, said = run("add", "ann", "--role", "reader:stock", "--token", *given)
    assert (code, "is a preview" in said) == (1, True), said
    monkeypatch.setenv("TXLOG_PREVIEWS", "repositories")
    for role, wrong in (("reader:", "the name of a repository"), ("reader:a,reader:a", "once"), ("x:a", "reader,")):
        code, said = run("add", "ann", "--role", role, "--token", *given)
        assert (code, wrong in said) == (1, True), (role, said)
    assert not (tmp_path / "users").exists()
    assert run("add", "ann", "--role", "reader,writer:stock", "--token", *given)[0] == 0
    monkeypatch.delenv("TXLOG_PREVIEWS")
    [found] = json.loads(run("list", "--json", *given)[1])
    assert (found["name"], found["role"]) == ("ann", "reader,writer:stock")
    assert run("remove", "ann", *given)[0] == 0
