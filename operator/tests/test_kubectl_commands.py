"""The declared commands of ``kubectl txlog``: groups of options, and both command lines."""

import base64
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer
from typer.testing import CliRunner

from kubectl_txlog import master_commands, site_commands, store_commands
from kubectl_txlog.command_line import Argument, Command, Group, Option, Tree, declared, run_arguments
from kubectl_txlog.master_access import _token
from kubectl_txlog.plugin import app
from kubectl_txlog.typer_commands import add_commands
from txlog.model.errors import BadInput, Unavailable

SEEN: list[object] = []


@dataclass(frozen=True)
class Inner:
    place: Annotated[str | None, Option("where", ("-p", "--place"))] = None


@dataclass(frozen=True)
class Shared:
    inner: Inner = Inner()
    loud: Annotated[bool, Option("how")] = False


def act(
    what: Annotated[list[str], Argument("which", "WHAT")],
    count: Annotated[int, Option("how often", min=1)] = 1,
    *,
    shared: Shared,
) -> None:
    """Act."""
    SEEN.append((what, count, shared))


COMMANDS: Tree = {"act": act, "other": Group("Others.", {"act": act})}


@pytest.mark.parametrize(
    ("words", "seen"),
    [
        (["act", "a"], (["a"], 1, Shared())),
        (["act", "a", "b", "-p", "here", "--loud"], (["a", "b"], 1, Shared(Inner("here"), True))),
        (["other", "act", "--count", "3", "a"], (["a"], 3, Shared())),
    ],
)
def test_both_command_lines_fill_groups_of_options(words: list[str], seen: object) -> None:
    """The same words give the same values with argparse, which the one file has, and with typer."""
    SEEN.clear()
    run_arguments("program", "About.", COMMANDS, words)
    typed = typer.Typer()
    add_commands(typed, COMMANDS)
    assert CliRunner().invoke(typed, words).exit_code == 0
    assert [seen, seen] == SEEN


def commands_of(tree: Tree) -> list[Command]:
    found = [each for each in tree.values() if not isinstance(each, Group)]
    return [
        *found,
        *(inner for each in tree.values() if isinstance(each, Group) for inner in commands_of(each.commands)),
    ]


def test_every_command_has_the_common_options_once() -> None:
    commands = commands_of({**store_commands.COMMANDS, **master_commands.COMMANDS, **site_commands.COMMANDS})
    assert len(commands) == 20
    for command in commands:
        names = [each.name for each in declared(command)]
        assert {"namespace", "context", "kubeconfig", "json"} <= set(names), command.__name__
        assert len(names) == len(set(names))
        assert ("name" in names) != ("cluster" in names) or command is master_commands.create_point


def test_the_package_has_what_the_one_file_lacks() -> None:
    shown = CliRunner().invoke(app, ["--help"]).output
    assert all(f" {word} " in shown for word in ("peers", "split-report", "verify", "repair", "top", "adopt-votes"))
    usage = CliRunner().invoke(app, ["repair"])
    assert usage.exit_code == 2
    shown = CliRunner().invoke(app, ["repair", "--help"], env={"COLUMNS": "200", "TERM": "dumb"}).output
    assert all(word in shown for word in ("--source", "--graph", "--all", "--rebuild", "--cluster", "--context"))


@pytest.mark.parametrize("content", [b"", b" \n", b"two words", b"a\nb", "zażółć".encode(), b"\xff\xfe"])
def test_a_file_that_holds_no_token_is_named(content: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No header can have it; the error does not show it."""
    file = tmp_path / "token"
    monkeypatch.setenv("TXLOG_TOKEN_FILE", str(file))
    security = {"users": {"secretRef": {"name": "people"}}}
    server: Any = None
    file.write_bytes(b"  good\n")
    assert _token(server, "graphs", "catalogue", security) == "good"
    file.write_bytes(content)
    with pytest.raises(BadInput) as refused:
        _token(server, "graphs", "catalogue", security)
    assert str(refused.value) == f"TXLOG_TOKEN_FILE: {file}: expected a token, a line of ASCII without spaces"


def test_a_secret_that_holds_no_token_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TXLOG_TOKEN_FILE", raising=False)

    class Server:
        def call(self, *_: object) -> dict[str, Any]:
            return {"data": {"own-token": base64.b64encode("zażółć".encode()).decode()}}

    server: Any = Server()
    with pytest.raises(BadInput, match="own-token of the Secret people: expected a token"):
        _token(server, "graphs", "catalogue", {"users": {"secretRef": {"name": "people"}}})


class Restarting:
    """An API server that does not answer for a moment, while a restore goes on."""

    def __init__(self, *answers: dict[str, Any]) -> None:
        self.answers = list(answers)

    def read(self, *_: str) -> dict[str, Any]:
        answer = self.answers.pop(0)
        if not answer:
            raise Unavailable("NotReached", "not reached")
        return answer


def test_a_moment_without_an_api_server_ends_no_wait(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(store_commands, "POLL_INTERVAL_S", 0.0)
    done = {"status": {"state": "Done", "backup": "b-7"}}
    site: Any = Restarting({"status": {"state": "Running"}}, {}, {}, done)
    store_commands._await_job(site, "txlogrestores", "back", 60.0, False)
    assert "txlogrestores/back is Done: b-7" in capsys.readouterr().out
    silent: Any = Restarting({}, {})
    with pytest.raises(Unavailable, match="not reached"):
        store_commands._await_job(silent, "txlogrestores", "back", -1.0, False)
