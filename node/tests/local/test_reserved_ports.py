"""The list of ports that the state folders of one user share, in a folder where everyone may make files."""

from __future__ import annotations

from pathlib import Path

import pytest

from txlog.local.local_errors import CannotRun
from txlog.local.ports import choose_ports
from txlog.local.state_folder import StateFolder


def folder(place: Path, name: str) -> StateFolder:
    state = StateFolder(place / name)
    state.prepare()
    return state


def test_two_folders_get_different_ports(tmp_path: Path) -> None:
    first = choose_ports(folder(tmp_path, "a"), ["uk-1", "uk-2"], tmp_path / "ports.json")
    second = choose_ports(folder(tmp_path, "b"), ["uk-1", "uk-2"], tmp_path / "ports.json")
    assert len({*first.values(), *second.values()}) == 4
    assert choose_ports(folder(tmp_path, "a"), ["uk-1", "uk-2"], tmp_path / "ports.json") == first


def test_a_link_that_another_user_has_laid_there_is_not_followed(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("not to be overwritten")
    (tmp_path / "ports.json").symlink_to(precious)
    with pytest.raises(CannotRun, match="it is not this user's list of ports: remove it"):
        choose_ports(folder(tmp_path, "a"), ["uk-1"], tmp_path / "ports.json")
    assert precious.read_text() == "not to be overwritten"


@pytest.mark.parametrize("content", ["", "no JSON", "[]", '{"7301": "/nowhere"}', '{"no port": "a"}'])
def test_a_list_that_is_damaged_or_of_folders_that_are_gone_reserves_nothing(
    tmp_path: Path, content: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ports.json").write_text(content)
    folder(tmp_path, "a").write("ports.json", {})
    assert choose_ports(folder(tmp_path, "a"), ["uk-1"], tmp_path / "ports.json")
