"""Both kinds of files do the same; the one in memory forgets what a power cut would take."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from txlog.journal import MemoryVfs, OsVfs, SimulatedCrash, Vfs


@pytest.fixture(params=["memory", "real"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[int], Vfs]:
    if request.param == "memory":
        return lambda limit: MemoryVfs(limit)
    return lambda limit: OsVfs(tmp_path / "folder", bytes_max=limit)


def test_a_folder_of_files(make: Callable[[int], Vfs]) -> None:
    files = make(10_000)
    files.lock()
    files.create("b", 1000)
    files.create("a", 3000)
    assert files.list() == ["a", "b"]
    assert (files.size("a"), files.size("b"), files.free_bytes()) == (3000, 1000, 6000)
    file = files.open("b")
    assert file.pread(0, 2000) == bytes(1000)
    file.pwrite(10, b"hello")
    file.fdatasync()
    files.rename("b", "c")
    files.sync_folder()
    assert file.pread(8, 9) == b"\0\0hello\0\0"
    assert file.pread(998, 10) == b"\0\0"
    file.close()
    files.remove("a")
    files.sync_folder()
    assert (files.list(), files.free_bytes()) == (["c"], 9000)
    with pytest.raises(FileNotFoundError):
        files.size("a")
    files.close()


def test_a_full_disk_leaves_nothing_behind(make: Callable[[int], Vfs]) -> None:
    files = make(1000)
    with pytest.raises(OSError) as caught:
        files.create("big", 1001)
    assert caught.value.errno == errno.ENOSPC
    assert files.list() == []
    files.create("exact", 1000)
    assert files.free_bytes() == 0


def test_a_lock_is_exclusive_and_given_back(make: Callable[[int], Vfs]) -> None:
    files = make(1000)
    files.lock()
    with pytest.raises(BlockingIOError):
        files.lock()
    files.close()
    files.lock()
    files.close()


def chooser(**fates: int) -> Callable[[str, int], int]:
    return lambda what, options: fates.get(what.split()[0], 0)


def written() -> MemoryVfs:
    files = MemoryVfs()
    files.create("f", 2048)
    file = files.open("f")
    file.pwrite(0, b"a" * 600)
    file.fdatasync()
    file.pwrite(500, b"b" * 700)
    file.pwrite(0, b"c" * 4)
    return files


@pytest.mark.parametrize(
    ("fates", "left"),
    [
        ({}, b"c" * 4 + b"a" * 496 + b"b" * 700),
        ({"write": 1}, b"a" * 600),
        ({"write": 2}, b"c" * 4 + b"a" * 496 + b"b" * 700),
        ({"write": 2, "sector": 1}, b"a" * 600),
    ],
)
def test_a_crash_takes_unsynced_writes_as_it_is_told(fates: dict[str, int], left: bytes) -> None:
    files = written()
    files.crash(chooser(**fates))
    assert files.open("f").pread(0, 2048).rstrip(b"\0") == left


def test_a_torn_write_is_torn_at_sectors() -> None:
    files = written()
    files.crash(
        lambda what, options: 2 if "write f 500" in what else int("sector f 512" in what or "write f 0" in what)
    )
    assert files.open("f").pread(0, 2048).rstrip(b"\0") == b"a" * 500 + b"b" * 12 + b"a" * 88 + bytes(424) + b"b" * 176


def test_synced_bytes_survive_any_crash() -> None:
    files = written()
    files.open("f").fdatasync()
    files.crash(lambda what, options: options - 1)
    assert files.open("f").pread(0, 4) == b"cccc"


@pytest.mark.parametrize(("lost", "names"), [(0, ["g", "new"]), (1, ["f", "g"]), (2, ["f", "old"])])
def test_a_crash_takes_folder_changes_from_the_end(lost: int, names: list[str]) -> None:
    files = MemoryVfs()
    files.create("f", 1)
    files.create("old", 1)
    files.rename("old", "g")
    files.rename("f", "new")
    files.crash(chooser(folder=lost))
    assert files.list() == names


def test_a_kill_takes_nothing() -> None:
    files = written()
    before = files.dump()
    files.kill()
    assert files.dump() == before


def test_a_hook_may_fail_or_end_any_operation() -> None:
    files = MemoryVfs(trace=True)
    files.create("f", 10)

    def end(operation: str, name: str) -> None:
        if operation == "pwrite":
            raise SimulatedCrash

    files.hook = end
    with pytest.raises(SimulatedCrash):
        files.open("f").pwrite(0, b"x")
    assert files.operations == ["create f 10", "sync_folder .", "pwrite f 0 1"]
    assert files.open("f").pread(0, 1) == b"\0"


def test_harm_at_rest() -> None:
    files = MemoryVfs.load({"f": b"\x01\x02\x03"})
    files.flip_bit("f", 1, 7)
    files.truncate("f", 2)
    assert files.dump() == {"f": b"\x01\x82"}
    files.erase("f")
    files.crash(chooser())
    assert files.list() == []
