"""Of one stream there are no two successors, unless one replaces the other by name."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from archiver_runs import folder

from txlog.archive.stream import StreamId
from txlog.backup.backup_errors import UnknownFormat
from txlog.backup.checked_json import encode_checked
from txlog.backup.folder_target import FolderTarget
from txlog.successor.recovery_claim import Claim, find_claim, take_claim
from txlog.successor.successor_errors import AlreadyRecovered

STREAM = StreamId(bytes(16), "uk")
MINE = Claim("mine", "latest", 7, "ab" * 16, "cd" * 16, "uk-1", "0" * 16)
OTHER = msgspec.structs.replace(MINE, token="other", successor="ef" * 16)


@pytest.fixture
def target(tmp_path: Path) -> FolderTarget:
    return FolderTarget(folder(tmp_path / "target"))


def test_the_first_one_counts(target: FolderTarget) -> None:
    assert find_claim(target, STREAM) is None
    taken = take_claim(target, STREAM, MINE)
    assert taken.at > 0
    assert take_claim(target, STREAM, MINE) == taken, "it broke off, and goes on with its own"
    with pytest.raises(AlreadyRecovered, match="--supersede 1"):
        take_claim(target, STREAM, OTHER)
    found = find_claim(target, STREAM)
    assert found is not None
    assert (found.number, found.claim) == (1, taken)


def test_one_replaces_the_other_by_its_number(target: FolderTarget) -> None:
    take_claim(target, STREAM, MINE)
    with pytest.raises(AlreadyRecovered):
        take_claim(target, STREAM, OTHER, supersede=2)
    assert take_claim(target, STREAM, OTHER, supersede=1).token == "other"
    with pytest.raises(AlreadyRecovered, match="--supersede 2"):
        take_claim(target, STREAM, MINE)


def test_of_two_at_once_one_has_it(target: FolderTarget, monkeypatch: pytest.MonkeyPatch) -> None:
    create = target.create

    def later(key: str, data: bytes) -> bool:
        monkeypatch.setattr(target, "create", create)
        take_claim(target, STREAM, OTHER)
        return create(key, data)

    monkeypatch.setattr(target, "create", later)
    with pytest.raises(AlreadyRecovered):
        take_claim(target, STREAM, MINE)


def test_an_answer_that_was_lost_is_no_other_claim(target: FolderTarget, monkeypatch: pytest.MonkeyPatch) -> None:
    create = target.create
    monkeypatch.setattr(target, "create", lambda key, data: create(key, data) and False)
    assert take_claim(target, STREAM, MINE).token == "mine"


def test_what_cannot_be_read_counts_as_taken(target: FolderTarget) -> None:
    key = f"{STREAM.folder}/recovery/0001.json"
    target.create(key, b"{}")
    with pytest.raises(AlreadyRecovered, match="damaged"):
        take_claim(target, STREAM, MINE)
    other = FolderTarget(folder(Path(target.location).parent / "later"))
    other.create(key, encode_checked({"format": 2}))
    with pytest.raises(UnknownFormat):
        find_claim(other, STREAM)
