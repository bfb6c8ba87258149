"""``txlog archive list`` and ``check`` read a target alone; each planted fault is named."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from archiver_runs import folder
from log_pieces import CLUSTER, START, encoded, some
from typer.testing import CliRunner

from txlog.archive.block_codec import ArchivedEntry
from txlog.archive.file_name import Node
from txlog.archive.stream import Stream, StreamId
from txlog.backup.folder_target import FolderTarget
from txlog.cli.main import app


class Planted:
    """A stream of five files of three entries."""

    def __init__(self, path: Path) -> None:
        self.path = folder(path)
        self.stream = Stream(FolderTarget(path), StreamId(CLUSTER, "uk"))
        self.stream.create(START)
        self.ends = [START]
        for _ in range(5):
            self.add(self.ends[-1])

    def add(self, after: Node, count: int = 3, text: str = "a") -> Node:
        entries: list[ArchivedEntry] = some(count, after, text)
        name, data = encoded(entries, after.hash)
        self.stream.create_file(name, data)
        self.ends.append(name.end)
        return name.end

    @property
    def files(self) -> list[Path]:
        return sorted(self.path.rglob("*.txl"))

    def run(self, command: str, code: int = 0, *more: str) -> Any:
        found = CliRunner().invoke(app, ["archive", command, "--target", str(self.path), "--json", *more])
        assert found.exit_code == code, found.output
        return json.loads(found.stdout)


@pytest.fixture
def planted(tmp_path: Path) -> Planted:
    return Planted(tmp_path / "target")


def test_a_sound_stream(planted: Planted) -> None:
    (listed,) = planted.run("list")
    assert (listed["state"], listed["start"], listed["files"]) == ("Continuous", 0, 5)
    assert listed["heads"] == [str(planted.ends[-1])]
    (checked,) = planted.run("check")
    assert (checked["state"], checked["sound"], checked["entries"], checked["faults"]) == ("Continuous", True, 15, [])
    shown = CliRunner().invoke(app, ["archive", "list", "--target", str(planted.path)])
    assert "Continuous" in shown.output


def test_a_flipped_byte_is_found_by_check_alone(planted: Planted) -> None:
    path = planted.files[2]
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))
    assert planted.run("list")[0]["state"] == "Continuous"
    (checked,) = planted.run("check", 1)
    assert (checked["state"], checked["entries"]) == ("FileDamaged", 6)
    assert [(each["file"], each["error"], each["covered"]) for each in checked["faults"]] == [
        (path.name, "FileDamaged", False)
    ]


def test_damage_that_another_file_covers(planted: Planted) -> None:
    planted.files[2].write_bytes(b"nothing")
    name, data = encoded(some(3, planted.ends[2]), planted.ends[2].hash)
    planted.stream.create_file(name._replace(attempt=1), data)
    (checked,) = planted.run("check")
    assert (checked["sound"], checked["entries"]) == (True, 15)
    assert [each["covered"] for each in checked["faults"]] == [True]


def test_a_missing_file(planted: Planted) -> None:
    planted.files[2].unlink()
    for command, code in (("list", 0), ("check", 1)):
        (found,) = planted.run(command, code)
        assert (found["state"], found["missing"]) == ("FileMissing", [str(planted.ends[3])])


def test_the_last_file_that_is_cut_off(planted: Planted) -> None:
    planted.files[-1].write_bytes(planted.files[-1].read_bytes()[:-7])
    (checked,) = planted.run("check", 1)
    assert (checked["state"], checked["heads"]) == ("FileDamaged", [str(planted.ends[4])])


def test_a_file_under_the_name_of_another(planted: Planted) -> None:
    planted.files[1].write_bytes(planted.files[0].read_bytes())
    (checked,) = planted.run("check", 1)
    assert [each["error"] for each in checked["faults"]] == ["FileDamaged"]


def test_a_gap_and_a_loss_are_shown(planted: Planted) -> None:
    begin = Node(100, b"b" * 16)
    planted.stream.record_gap(planted.ends[-1], begin, "http://uk-1")
    planted.add(begin)
    (found,) = planted.run("check", 1)
    assert (found["state"], found["gaps"], found["entries"]) == ("Gap", [str(begin)], 18)
    planted.stream.record_lost(planted.ends[-1], START, 5, "http://uk-1")
    assert planted.run("list")[0]["losses"] == 1


def test_two_branches(planted: Planted) -> None:
    other = planted.add(planted.ends[3], 5, "b")
    (found,) = planted.run("check")
    assert found["heads"] == [str(planted.ends[5]), str(other)]
    assert (found["state"], found["entries"]) == ("Continuous", 20)


def test_a_damaged_stream_json_and_none_at_all(planted: Planted) -> None:
    path = planted.path / planted.stream.id.folder / "stream.json"
    path.write_bytes(path.read_bytes().replace(b'"uk"', b'"us"'))
    assert planted.run("list")[0]["state"] == "StreamTaken"
    assert planted.run("check", 1)[0]["state"] == "StreamTaken"
    path.unlink()
    assert planted.run("list")[0]["state"] == "NoStart"
    assert planted.run("check", 1)[0]["state"] == "NoStart"


def test_compacted_files(planted: Planted) -> None:
    for at, path in enumerate(planted.files):
        os.utime(path, (1_700_000_000 + 100 * at,) * 2)
    (done,) = planted.run("compact")
    assert (done["merged"], done["written"], done["deleted"]) == (3, 1, 0)
    (listed,) = planted.run("list")
    assert (listed["state"], listed["files"], listed["heads"]) == ("Continuous", 6, [str(planted.ends[-1])])
    planted.files[1].write_bytes(b"?")
    (checked,) = planted.run("check")
    assert [fault["covered"] for fault in checked["faults"]] == [True]
    assert (checked["sound"], checked["entries"]) == (True, 15)


def test_only_the_stream_that_was_named(planted: Planted) -> None:
    assert planted.run("list", 0, "--cluster", "cd" * 16) == []
    assert len(planted.run("list", 0, "--cluster", CLUSTER.hex(), "--data-center", "uk")) == 1
    found = CliRunner().invoke(app, ["archive", "check", "--target", str(planted.path), "--cluster", "cd" * 16])
    assert found.exit_code == 1
    assert "no such archive" in str(found.exception)
