"""A supervisor repeats a backup under its name, while the process that it believes dead still writes."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from txlog.backup import folder_target
from txlog.backup.backup_errors import NameTaken, PartMissing, TargetUnreachable
from txlog.backup.backup_manifest import BackupManifest
from txlog.backup.backup_writer import BackupRequest, write_backup
from txlog.backup.catalogue import catalogue, delete_backup, delete_incomplete_backups
from txlog.backup.folder_target import FolderTarget
from txlog.backup.stored_object import StoredObject
from txlog.backup.verification import check_backup
from txlog.model.entry import Position

CLUSTER = "ab" * 16
LINES = [b"<urn:s:%d> <urn:p> <urn:o> .\n" % at for at in range(40)]


@pytest.fixture
def target(tmp_path: Path) -> FolderTarget:
    return FolderTarget(tmp_path)


def write(target: FolderTarget, pieces: Iterator[bytes]) -> BackupManifest:
    request = BackupRequest(CLUSTER, "uk", "schedule", name="daily", part_bytes=200)
    return write_backup(pieces, Position(1, 9, bytes(16)), "uk-worker-1", "oxigraph", target, request)


def with_a_step(step: Callable[[], object], at: int) -> Iterator[bytes]:
    for number, line in enumerate(LINES):
        if number == at:
            step()
        yield line


@pytest.mark.parametrize("at", [10, 39])
def test_a_late_writer_leaves_the_backup_of_the_other_one(target: FolderTarget, at: int) -> None:
    def take_over() -> None:
        delete_backup(target, "daily")  # as a job does that finds it unfinished
        write(target, iter(LINES))

    with pytest.raises((NameTaken, PartMissing)):
        write(target, with_a_step(take_over, at))
    assert check_backup(target, "daily").quads == len(LINES)


def test_a_late_writer_leaves_the_parts_of_one_that_is_not_finished(target: FolderTarget) -> None:
    keys = [f"daily/part-{at:05}.nq.zst" for at in range(1, 20)]

    def take_over() -> None:
        delete_backup(target, "daily")
        for key in keys:
            target.write(key, b"of the other one")

    with pytest.raises(NameTaken):
        write(target, with_a_step(take_over, 10))
    assert [each.key for each in target.list_objects("daily/")] == keys


def test_a_writer_that_fails_leaves_the_backup_that_another_one_finished(target: FolderTarget) -> None:
    def take_over_and_fail() -> None:
        delete_backup(target, "daily")
        write(target, iter(LINES))
        raise TargetUnreachable("the store of the late one is gone")

    with pytest.raises(TargetUnreachable):
        write(target, with_a_step(take_over_and_fail, 30))
    assert check_backup(target, "daily").quads == len(LINES)


def test_a_writer_that_fails_alone_leaves_nothing(target: FolderTarget) -> None:
    def fail() -> None:
        raise TargetUnreachable("it is gone")

    with pytest.raises(TargetUnreachable):
        write(target, with_a_step(fail, 30))
    assert catalogue(target) == []


def test_a_manifest_that_comes_back_changed_goes_with_its_parts(
    target: FolderTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = FolderTarget.read
    monkeypatch.setattr(
        FolderTarget, "read", lambda self, key, most: read(self, key, most) + b" " * key.endswith("manifest.json")
    )
    with pytest.raises(Exception, match="gives back another manifest"):
        write(target, iter(LINES))
    monkeypatch.undo()
    assert catalogue(target) == []


def test_a_listing_that_lacks_a_manifest_deletes_no_backup(
    target: FolderTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stores may list less than they have, for example while they repair themselves."""
    write(target, iter(LINES))
    target.write("leftover/part-00001.nq.zst", b"x")
    listed = FolderTarget.list_objects

    def list_less(self: FolderTarget, prefix: str = "") -> Iterator[StoredObject]:
        return (each for each in listed(self, prefix) if not each.key.endswith("manifest.json"))

    monkeypatch.setattr(FolderTarget, "list_objects", list_less)
    assert delete_incomplete_backups(target, older_s=0.0) == ["leftover"]
    monkeypatch.undo()
    assert check_backup(target, "daily").quads == len(LINES)


def test_an_object_whose_name_was_not_durable_is_made_so(target: FolderTarget, monkeypatch: pytest.MonkeyPatch) -> None:
    """What exists already is believed to be kept, so it must be: its writer may have died before."""
    sync = folder_target.sync_folder
    synced: list[str] = []

    def fail_below(folder: Path) -> None:
        synced.append(folder.name)
        if folder.name == "b":
            raise OSError(errno.EIO, "input/output error")
        sync(folder)

    monkeypatch.setattr(folder_target, "sync_folder", fail_below)
    for other in (target, FolderTarget(target._root)):
        synced.clear()
        with pytest.raises(TargetUnreachable):
            other.create("a/b/c", b"x")
        assert synced[-2:] == ["a", "b"], "its folders, too"
    monkeypatch.undo()
    assert target.create("a/b/c", b"x") is False
