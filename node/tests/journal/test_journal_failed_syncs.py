"""A sync that fails leaves its writes readable, in memory or in the device's cache, and no later sync writes them (rule
29): what a start read, and so believes, survives a loss of power all the same."""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from journal_life import told
from journal_pen import Pen, open_journal
from test_journal_crashes import SEGMENT_BYTES, Follower, check_after, live, states

from txlog.journal import MemoryVfs, OsVfs, check_journal
from txlog.model.errors import JournalBroken

FATES = ["lost", "seed 0", "seed 1"]


def chooser(fate: str) -> Callable[[str, int], int]:
    """What a loss of power leaves of writes that no sync has confirmed."""
    rng = random.Random(fate)
    return lambda what, options: 1 if fate == "lost" and what.startswith("write") else rng.randrange(options)


def failing_from(count: int) -> Callable[[str, str], None]:
    """A disk whose syncs fail from the one with this number on (0: the first)."""
    left = count

    def hook(operation: str, name: str) -> None:
        nonlocal left
        if operation == "fdatasync":
            left -= 1
            if left < 0:
                raise OSError(errno.EIO, "the disk failed", name)

    return hook


def syncs_of_a_life() -> int:
    files = MemoryVfs(trace=True)
    live(files, Follower())
    return sum(line.startswith("fdatasync") for line in files.operations)


@pytest.mark.parametrize("drops", [True, False])
@pytest.mark.parametrize("fate", FATES)
def test_what_a_start_read_after_a_failed_sync_survives_a_loss_of_power(fate: str, drops: bool) -> None:
    for point in range(syncs_of_a_life()):
        files, follower = MemoryVfs(hook=failing_from(point)), Follower()
        files.drops_cached = drops
        with pytest.raises(JournalBroken):
            live(files, follower)
        files.hook = None
        files.kill()
        found = open_journal(files, segment_bytes=SEGMENT_BYTES)[1]
        possible = states()[follower.acknowledged : follower.appended + 1]
        assert told(found) in possible, "durable records are lost, or others were invented"
        files.crash(chooser(fate))
        again = open_journal(files, segment_bytes=SEGMENT_BYTES)[1]
        assert told(again) == told(found), "what a start believed is lost"
        assert again.start == found.start + 1
        files.kill()
        check_after(files, follower)


@pytest.mark.parametrize("drops", [True, False])
@pytest.mark.parametrize("fate", FATES)
def test_starts_whose_syncs_fail_change_nothing_of_that(fate: str, drops: bool) -> None:
    for point in range(syncs_of_a_life()):
        files, follower = MemoryVfs(hook=failing_from(point)), Follower()
        files.drops_cached = drops
        with pytest.raises(JournalBroken):
            live(files, follower)
        for failing in (0, 1, 0, 2):
            files.kill() if point % 2 else files.crash(chooser(fate))
            files.hook = failing_from(failing)
            try:
                open_journal(files, segment_bytes=SEGMENT_BYTES)
            except JournalBroken:
                files.hook = None
        files.hook = None
        files.kill()
        found = open_journal(files, segment_bytes=SEGMENT_BYTES)[1]
        files.crash(chooser(fate))
        check_after(files, follower)
        assert told(open_journal(files_of(files), segment_bytes=SEGMENT_BYTES)[1]) == told(found)


def files_of(files: MemoryVfs) -> MemoryVfs:
    return MemoryVfs.load(files.dump())


def torn_tail() -> tuple[MemoryVfs, Pen]:
    """A batch of three records, of which the power took the first one only."""
    files, pen = MemoryVfs(), Pen(600)
    journal, _ = open_journal(files, segment_bytes=1 << 14)
    journal.append(pen.held("a", 1))
    journal.sync()
    kept = Pen(600)
    kept.seqs = dict(pen.seqs)
    for _ in range(3):
        journal.append(pen.held("a", 1))
    sync = journal.begin_sync()
    assert sync is not None
    files.hook = failing_from(0)
    with pytest.raises(JournalBroken):
        sync.run()
    files.hook = None
    lost = iter([True, True])
    files.crash(lambda what, options: 2 if what.startswith("write") else int(next(lost, False)))
    return files, kept


def test_a_torn_tail_whose_zeros_were_not_synced_is_zeroed_again() -> None:
    files, pen = torn_tail()
    stale = check_journal(files).cut_bytes
    assert stale > 1024
    files.hook = failing_from(0)
    with pytest.raises(JournalBroken):
        open_journal(files, segment_bytes=1 << 14)
    files.hook = None
    files.kill()
    assert 0 < check_journal(files).cut_bytes <= stale, "the next start does not read the disk"
    journal, found = open_journal(files, segment_bytes=1 << 14)
    files.crash(lambda what, options: options - 1 if what == "folder" else 1)
    assert check_journal(files).cut_bytes == 0
    assert {meta.node: len(meta.stamps) for meta in found.queued} == {"a": pen.seqs["a"]}
    journal.close()


def writes(files: MemoryVfs) -> list[str]:
    return [line for line in files.operations if line.startswith("pwrite")]


def test_a_start_writes_the_last_batch_again_and_no_more() -> None:
    files, pen = MemoryVfs(trace=True), Pen()
    journal, _ = open_journal(files)
    for _ in range(5):
        journal.append(pen.held("a", 1))
        journal.append(pen.held("b", 2))
        journal.sync()
    last = writes(files)[-1]
    files.kill()
    files.operations.clear()
    journal, _ = open_journal(files)
    again, *started = writes(files)
    assert again == last
    assert len(started) == 1
    assert journal.seal()
    seals = files.operations[-1]
    files.kill()
    files.operations.clear()
    open_journal(files)
    assert writes(files)[0] == seals


# The folder on a real disk


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The folders that were synced."""
    found: list[Path] = []
    real = os.fsync

    def fsync(fd: int) -> None:
        found.append(Path(os.readlink(f"/proc/self/fd/{fd}")))
        real(fd)

    monkeypatch.setattr(os, "fsync", fsync)
    return found


def test_the_names_of_new_folders_are_durable_before_they_are_used(tmp_path: Path, synced: list[Path]) -> None:
    folder = tmp_path / "of-a-site" / "of-a-master" / "journal"
    files = OsVfs(folder)
    assert {tmp_path, folder.parent, folder.parent.parent} <= set(synced)
    synced.clear()
    OsVfs(folder)  # created by a process that ended then, perhaps before its sync
    assert folder.parent in synced
    files.create("segment", 4096)
    synced.clear()
    OsVfs(folder)
    assert synced == []


def test_a_folder_above_that_may_not_be_opened_was_there_before(
    tmp_path: Path, synced: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.open

    def refusing(path: Path, flags: int, *more: int) -> int:
        if Path(path) == tmp_path:
            raise PermissionError(errno.EACCES, "not yours", str(path))
        return real(path, flags, *more)

    monkeypatch.setattr(os, "open", refusing)
    OsVfs(tmp_path / "site" / "journal")
    assert tmp_path / "site" in synced
    assert tmp_path not in synced


@pytest.mark.parametrize("size", [1 << 20, (1 << 20) + 1])
def test_what_is_dropped_from_memory_is_read_from_the_disk(tmp_path: Path, size: int) -> None:
    files = OsVfs(tmp_path / "journal")
    files.create("segment", size)
    file = files.open("segment")
    file.pwrite(5000, b"synced")
    file.fdatasync()
    file.pwrite(9000, b"not synced")
    file.drop_cached(0)
    assert file.pread(5000, 6) == b"synced"
    assert file.pread(9000, 10) == b"not synced"
    file.close()
