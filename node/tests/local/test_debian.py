"""Programs of Debian packages, unpacked and not installed."""

from __future__ import annotations

import shutil
import stat
from pathlib import Path

import pytest

from txlog.local.engines.deb_packages import library_path, unpack_packages
from txlog.local.local_errors import CannotRun


def tools(folder: Path, download: str) -> None:
    """An ``apt-get`` that does what ``download`` says, and a ``dpkg`` that unpacks a file with the word ``program``."""
    folder.mkdir()
    for name, text in (("apt-get", download), ("dpkg", 'mkdir -p "$3/usr/bin" && cp "$2" "$3/usr/bin/program"')):
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(stat.S_IRWXU)
    for name in ("sh", "mkdir", "cp", "echo"):
        found = shutil.which(name)
        assert found is not None
        (folder / name).symlink_to(found)


def test_it_is_fetched_once_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tools(tmp_path / "bin", f'echo "$@" >> {tmp_path}/asked; echo hello > one.deb')
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    for _ in range(2):
        root = unpack_packages("thing", ("one", "two"), "usr/bin/program", tmp_path / "cache")
        assert (root / "usr/bin/program").read_text() == "hello\n"
    assert (tmp_path / "asked").read_text() == "download one two\n"
    assert sorted(path.name for path in (tmp_path / "cache").iterdir()) == ["thing"], "nothing else is left behind"
    (root / "usr/lib/x86_64-linux-gnu").mkdir(parents=True)
    assert library_path(root) == str(root / "usr/lib/x86_64-linux-gnu")


@pytest.mark.parametrize(
    ("download", "said"),
    [
        ("echo no such package >&2; exit 100", "thing could not be fetched from Debian: no such package"),
        ("exit 0", "usr/bin/program is in none of Debian's packages one"),
    ],
)
def test_what_goes_wrong_is_said(download: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tools(tmp_path / "bin", download)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    with pytest.raises(CannotRun, match=said):
        unpack_packages("thing", ("one",), "usr/bin/program", tmp_path / "cache")
    assert not list((tmp_path / "cache").iterdir())


def test_without_apt_it_is_for_somebody_else_to_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CannotRun, match="there is no apt-get here; name it as external"):
        unpack_packages("thing", ("one",), "usr/bin/program", tmp_path / "cache")


def test_a_folder_that_is_something_else_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tools(tmp_path / "bin", "echo hello > one.deb")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    (tmp_path / "cache" / "thing" / "mine").mkdir(parents=True)
    with pytest.raises(CannotRun, match="holds no usr/bin/program; remove it"):
        unpack_packages("thing", ("one",), "usr/bin/program", tmp_path / "cache")
    assert (tmp_path / "cache" / "thing" / "mine").exists()
