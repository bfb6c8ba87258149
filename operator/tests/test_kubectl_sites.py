"""`kubectl txlog site`: how links are, their switches, and the order to take a state. The masters here are written
down."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from typer.testing import CliRunner

from kubectl_txlog import site_commands
from kubectl_txlog.master_access import MasterProxies, SiteAccess
from kubectl_txlog.options import ChosenCluster, NamedCluster
from kubectl_txlog.plugin import app
from txlog.model.errors import NotFound, TxLogError, Unavailable

LINK = {
    "site": "lon",
    "other": "nyc",
    "state": "Online",
    "cursor": 118,
    "lagEntries": 2,
    "lagSeconds": 1.4,
    "correctionsWaiting": 0,
    "conflicts": 3,
    "error": "",
    "offlineBy": "",
    "reportedSecondsAgo": 1.0,
}


class Masters:
    """In place of the API server. ``links``: by master, what it lists next, the last one again and again; an error in
    its place is raised. ``changes``: the answers to PATCH, by master."""

    def __init__(
        self, links: dict[str, Sequence[Any]], changes: dict[str, dict[str, Any] | TxLogError] | None = None
    ) -> None:
        self.links = {master: list(each) for master, each in links.items()}
        self.changes = changes or {}
        self.asked: list[tuple[str, dict[str, Any]]] = []

    def call(self, method: str, path: str, body: Any, _headers: object, _timeout_s: float) -> Any:
        master, _, rest = path.partition("/txlog/")
        if method == "PATCH":
            self.asked.append((master, body))
            answer: Any = self.changes[master]
            assert rest == "sites/nyc"
        else:
            assert (method, rest) == ("GET", "sites")
            listed = self.links[master]
            answer = listed.pop(0) if len(listed) > 1 else listed[0]
            answer = answer if isinstance(answer, TxLogError) else {"links": answer, "switches": [], "index": 7}
        if isinstance(answer, TxLogError):
            raise answer
        return answer


def chosen(kind: type[Any], server: Masters, *, as_json: bool = False) -> Any:
    found: Any = server
    cluster = {"metadata": {"name": "catalogue"}, "spec": {"dataCenter": "uk"}}
    access = MasterProxies([SiteAccess(found, "graphs", cluster, list(server.links), {})])

    class On(kind):  # type: ignore[misc]
        def masters(self) -> MasterProxies:
            return access

    return On(json=as_json)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(site_commands, "POLL_INTERVAL_S", 0.0)


def link(**more: Any) -> dict[str, Any]:
    return {**LINK, **more}


def test_the_newest_report_of_each_link_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    server = Masters(
        {"uk-1": [[link(cursor=9, reportedSecondsAgo=20.0)]], "uk-2": [[LINK]], "uk-3": [Unavailable("", "x")]}
    )
    site_commands.status(chosen(NamedCluster, server))
    shown = capsys.readouterr().out
    assert shown == (
        "lon from nyc: Online, imported 118, 2 behind, lag 1 s, 0 corrections wait, 3 conflicts, reported 1 s ago\n"
    )
    site_commands.status(chosen(NamedCluster, server, as_json=True))
    assert json.loads(capsys.readouterr().out) == [LINK]


@pytest.mark.parametrize(
    ("links", "code", "said"),
    [
        ([], 0, "no links"),
        ([link(state="Offline", offlineBy="nyc")], 1, "; taken offline by nyc"),
        ([link(state="Refused", error="the disk is full")], 1, "; the disk is full"),
        (
            [{key: LINK[key] for key in ("site", "other", "state", "cursor", "error", "reportedSecondsAgo")}],
            0,
            "? behind",
        ),
    ],
)
def test_a_link_that_does_not_import_is_an_exit_code(
    capsys: pytest.CaptureFixture[str], links: list[Any], code: int, said: str
) -> None:
    on = chosen(NamedCluster, Masters({"uk-1": [links]}))
    if code:
        with pytest.raises(SystemExit) as ended:
            site_commands.status(on)
        assert ended.value.code == code
    else:
        site_commands.status(on)
    assert said in capsys.readouterr().out


def test_without_an_answer_the_error_is_that_of_a_master() -> None:
    with pytest.raises(Unavailable, match="not there"):
        site_commands.status(chosen(NamedCluster, Masters({"uk-1": [Unavailable("NotReached", "not there")]})))


def test_a_switch_waits_until_the_link_has_followed(capsys: pytest.CaptureFixture[str]) -> None:
    going = link(state="GoingOffline", offlineBy="lon")
    server = Masters(
        {
            "uk-1": [[]],
            "uk-2": [[LINK], [going], Unavailable("", "away for a moment"), [link(state="Offline", offlineBy="lon")]],
        },
        {"uk-2": {"site": "nyc", "offline": True, "index": 118, "takeAt": 0}},
    )
    site_commands.offline("nyc", 30.0, on=chosen(ChosenCluster, server))
    assert capsys.readouterr().out == (
        "nyc is switched offline (entry 118); the link is Offline, taken offline by lon\n"
    )
    assert server.asked == [("uk-2", {"offline": True})], "a master without the link does not know the name"


def test_a_switch_goes_to_another_master_when_one_does_not_answer() -> None:
    server = Masters(
        {"uk-1": [[LINK]], "uk-2": [[LINK]]},
        {"uk-1": Unavailable("NotReached", "x"), "uk-2": {"site": "nyc", "offline": False, "index": 120, "takeAt": 0}},
    )
    site_commands.online("nyc", 0.0, on=chosen(ChosenCluster, server, as_json=True))
    assert [master for master, _ in server.asked] == ["uk-1", "uk-2"]


def test_a_link_that_has_not_followed_in_time_is_an_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    server = Masters({"uk-1": [[LINK]]}, {"uk-1": {"site": "nyc", "offline": True, "index": None}})
    with pytest.raises(SystemExit) as ended:
        site_commands.offline("nyc", 0.0, on=chosen(ChosenCluster, server))
    assert ended.value.code == 1
    assert "(not in the log yet); the link is Online" in capsys.readouterr().out


def test_a_name_without_a_link_is_refused_with_the_known_ones() -> None:
    server = Masters({"uk-1": [[LINK]]})
    with pytest.raises(NotFound, match="no link from par was reported to these masters; known: nyc"):
        site_commands.offline("par", 0.0, on=chosen(ChosenCluster, server))
    assert server.asked == []


def take(server: Masters, wait_s: float = 30.0, *, cancel: bool = False, as_json: bool = False) -> None:
    on = chosen(ChosenCluster, server, as_json=as_json)
    site_commands.take_state("nyc", cancel, True, wait_s, on=on)


def test_a_state_is_taken_when_the_link_is_online_with_it(capsys: pytest.CaptureFixture[str]) -> None:
    before, moving = link(anchor=3), link(state="Transferring", anchor=3, transferred=5, transferKeys=9)
    server = Masters(
        {"uk-1": [[before], [before], [moving], [link(anchor=121)]]},
        {"uk-1": {"site": "nyc", "offline": False, "index": 0, "takeAt": 120}},
    )
    take(server, as_json=True)
    found = json.loads(capsys.readouterr().out)
    assert (found["order"]["takeAt"], found["link"]["anchor"]) == (120, 121)
    assert server.asked == [("uk-1", {"takeState": True})]


def test_an_order_is_given_to_one_master_alone() -> None:
    """Its answer is lost, and it may be in the log. At another master it would be one more."""
    server = Masters({"uk-1": [[LINK]], "uk-2": [[LINK]]}, {"uk-1": Unavailable("NotReached", "no answer")})
    with pytest.raises(Unavailable, match="it may be ordered all the same: kubectl txlog site status"):
        take(server)
    assert [master for master, _ in server.asked] == ["uk-1"]


def test_an_order_that_is_not_stable_is_not_waited_for(capsys: pytest.CaptureFixture[str]) -> None:
    server = Masters({"uk-1": [[LINK]]}, {"uk-1": {"site": "nyc", "takeState": True, "index": None}})
    with pytest.raises(SystemExit) as ended:
        take(server, 3600.0)
    assert ended.value.code == 1
    assert "the order is not in the log yet" in capsys.readouterr().out


def test_an_order_is_taken_back_without_a_question(capsys: pytest.CaptureFixture[str]) -> None:
    server = Masters({"uk-1": [[LINK]]}, {"uk-1": {"site": "nyc", "offline": False, "index": 0, "takeAt": 0}})
    on = chosen(ChosenCluster, server)
    site_commands.take_state("nyc", True, False, 30.0, on=on)
    assert "is not taken any more" in capsys.readouterr().out
    assert server.asked == [("uk-1", {"takeState": False})]


def test_who_does_not_agree_changes_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", open("/dev/null"))  # noqa: SIM115 - closed with the process
    server = Masters({"uk-1": [[LINK]]})
    with pytest.raises(SystemExit) as ended:
        site_commands.take_state("nyc", on=chosen(ChosenCluster, server))
    assert ended.value.code == 1
    assert "nyc has not imported is lost" in capsys.readouterr().err
    assert server.asked == []


@pytest.mark.parametrize("command", ["status", "offline", "online", "take-state"])
def test_the_package_has_them(command: str) -> None:
    shown = CliRunner().invoke(app, ["site", command, "--help"], env={"COLUMNS": "200", "TERM": "dumb"})
    assert shown.exit_code == 0
    assert "--context" in shown.output
    assert (command == "status") != ("SITE" in shown.output)
