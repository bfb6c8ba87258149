"""Writes past the page cache leave what writes through it would."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from txlog.journal import direct_io
from txlog.journal import vfs as files_module
from txlog.journal.direct_io import BLOCK_BYTES, BUFFER_BYTES, ZERO_CHECK_BYTES, DirectWriter
from txlog.journal.vfs import OsFile, OsVfs

SIZE = 64 * BLOCK_BYTES


def of_size(folder: Path, size: int) -> Path:
    path = folder / "file"
    path.write_bytes(bytes(size))
    return path


def is_direct(file: OsFile) -> bool:
    file.pwrite(0, b"")
    return file._writer is not None


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with RealFileOf(of_size(tmp_path, SIZE)) as file:
        if not is_direct(file):
            pytest.skip("the file system of the tests' folder has no direct writes")
    return tmp_path


class RealFileOf:
    """Closed in any case."""

    def __init__(self, path: Path) -> None:
        self.file = OsFile(path)

    def __enter__(self) -> OsFile:
        return self.file

    def __exit__(self, *_: object) -> None:
        self.file.close()


ANYWHERE = st.tuples(st.integers(0, SIZE - 1), st.integers(1, 3 * BLOCK_BYTES), st.booleans())


@given(
    writes=st.lists(ANYWHERE, max_size=12),
    row=st.lists(st.integers(1, 2 * BLOCK_BYTES), max_size=12),
    fresh=st.booleans(),
)
@settings(max_examples=150, deadline=None)
def test_what_is_written_is_there_and_nothing_else(
    tmp_path_factory: pytest.TempPathFactory, writes: list[tuple[int, int, bool]], row: list[int], fresh: bool
) -> None:
    """``row``: one behind the other, as a journal does; ``writes``: anywhere, also over what is there. Now and then the
    file is opened anew, and it is read through the page cache by somebody else."""
    path = of_size(tmp_path_factory.mktemp("direct"), SIZE)
    expected = bytearray(SIZE)
    if not fresh:
        expected[:] = os.urandom(SIZE)
        path.write_bytes(expected)
    file, reader = OsFile(path, zeros=fresh), OsFile(path, os.O_RDONLY)
    end, steps = BLOCK_BYTES + 7, []
    for length in row:
        steps.append((end, length, False))
        end += length
    for n, (offset, length, again) in enumerate(steps + writes):
        data = bytes([1 + n % 255]) * min(length, SIZE - offset)
        file.pwrite(offset, data)
        expected[offset : offset + len(data)] = data
        assert reader.pread(0, SIZE) == expected
        if again:
            file.close()
            file = OsFile(path)
    file.fdatasync()
    assert file.pread(0, SIZE) == expected
    assert path.stat().st_size == SIZE
    file.close()
    reader.close()


def test_more_than_its_buffer(folder: Path) -> None:
    data = os.urandom(3 * BUFFER_BYTES + 12345)
    path = of_size(folder, 4 * BUFFER_BYTES)
    with RealFileOf(path) as file:
        file.pwrite(100, data)
        assert is_direct(file)
    assert path.read_bytes() == bytes(100) + data + bytes(BUFFER_BYTES - 12345 - 100)


def test_it_stays_the_same_file_when_its_name_changes(folder: Path) -> None:
    with RealFileOf(of_size(folder, SIZE)) as file:
        (folder / "file").rename(folder / "other")
        file.pwrite(5, b"x")
        assert is_direct(file)
    assert (folder / "other").read_bytes()[:8] == b"\0\0\0\0\0x\0\0"


@pytest.mark.parametrize("why", ["odd size", "no such flag", "refused"])
def test_where_it_is_not_possible_the_page_cache_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    path = of_size(tmp_path, SIZE + (why == "odd size"))
    real = os.open

    def refusing(path: str, flags: int, *more: int) -> int:
        if flags & os.O_DIRECT:
            raise OSError(errno.EINVAL, "not here")
        return real(path, flags, *more)

    if why == "no such flag":
        monkeypatch.setattr(direct_io, "_O_DIRECT", 0)
    if why == "refused":
        monkeypatch.setattr(os, "open", refusing)
    with RealFileOf(path) as file:
        file.pwrite(SIZE - 3, b"end")
        assert not is_direct(file)
        file.fdatasync()
    assert path.read_bytes()[SIZE - 4 :] == b"\0end" + bytes(why == "odd size")


def test_a_device_that_takes_less_is_asked_for_the_rest(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.pwritev
    data = os.urandom(5 * BLOCK_BYTES)
    with RealFileOf(of_size(folder, SIZE)) as file:
        is_direct(file)
        monkeypatch.setattr(os, "pwritev", lambda fd, views, at: real(fd, [views[0][:BLOCK_BYTES]], at))
        file.pwrite(3, data)
        monkeypatch.setattr(os, "pwritev", lambda fd, views, at: 0)
        with pytest.raises(OSError, match="less than a block"):
            file.pwrite(3, data)
    assert (folder / "file").read_bytes()[3 : 3 + len(data)] == data


def test_a_file_that_became_shorter_is_named(folder: Path) -> None:
    path = of_size(folder, SIZE)
    with RealFileOf(path) as file:
        is_direct(file)
        os.truncate(path, 0)
        with pytest.raises(OSError, match="shorter"):
            file.pwrite(7, b"x")


def test_behind_what_is_no_zeros_only_a_block_is_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A head in front of a payload that is there: the payload is not read for it."""
    path = of_size(folder, 1 << 20)
    path.write_bytes(bytes(BLOCK_BYTES) + b"p" * ((1 << 20) - BLOCK_BYTES))
    real, read = os.pread, []

    def counted(fd: int, count: int, at: int) -> bytes:
        read.append(count)
        return real(fd, count, at)

    with RealFileOf(path) as file:
        is_direct(file)
        monkeypatch.setattr(os, "pread", counted)
        file.pwrite(BLOCK_BYTES - 100, b"h" * 200)
        monkeypatch.undo()
    assert sum(read) <= 2 * BLOCK_BYTES + ZERO_CHECK_BYTES
    assert path.read_bytes()[BLOCK_BYTES - 101 : BLOCK_BYTES + 101] == b"\0" + b"h" * 200 + b"p"


def test_in_a_file_that_was_just_made_nothing_is_looked_for(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its zeros went past the page cache, so a look would wait for the disk."""
    files = OsVfs(folder / "made")
    files.create("making", 1 << 20)
    files.rename("making", "spare")
    read: list[int] = []
    real = os.pread

    def counted(fd: int, count: int, at: int) -> bytes:
        read.append(count)
        return real(fd, count, at)

    file = files.open("spare")
    with monkeypatch.context() as patch:
        patch.setattr(os, "pread", counted)
        file.pwrite(5, b"header")
        for at in range(BLOCK_BYTES, 10 * BLOCK_BYTES, 1000):
            file.pwrite(at, b"r" * 1000)
        assert read == []
    file.close()
    again = files.open("spare")  # somebody has written to it
    with monkeypatch.context() as patch:
        patch.setattr(os, "pread", counted)
        again.pwrite(0, b"other")
    assert again.pread(0, 12) == b"otherheader\0"
    again.close()
    assert read


@pytest.mark.parametrize("gently", [False, True])
@pytest.mark.parametrize("past", [False, True])
def test_zeros_are_zeros_however_they_are_written(
    folder: Path, monkeypatch: pytest.MonkeyPatch, gently: bool, past: bool
) -> None:
    if not past:
        monkeypatch.setattr(direct_io, "_O_DIRECT", 0)
    monkeypatch.setattr(files_module, "YIELD_S", 0.0)
    files = OsVfs(folder / "made")
    size = 5 * (1 << 20) + 3 * BLOCK_BYTES
    files.create("zeros", size, gently=gently)
    assert (folder / "made" / "zeros").read_bytes() == bytes(size)
    assert (folder / "made" / "zeros").stat().st_blocks * 512 >= size, "they have their room"


@pytest.mark.parametrize("gently", [False, True])
def test_a_disk_that_fills_up_among_the_zeros_leaves_nothing_behind(
    folder: Path, monkeypatch: pytest.MonkeyPatch, gently: bool
) -> None:
    real, left = os.pwritev, [3]

    def filling(fd: int, views: list[memoryview], at: int) -> int:
        """As the system does it: the last write is short, the next one fails."""
        left[0] -= 1
        if left[0] > 0:
            return real(fd, views, at)
        if left[0] == 0:
            return 512
        raise OSError(errno.ENOSPC, "no space left on device")

    files = OsVfs(folder / "made", bytes_max=8 << 20)
    monkeypatch.setattr(files_module, "YIELD_S", 0.0)
    monkeypatch.setattr(os, "pwritev", filling)
    with pytest.raises(OSError) as caught:
        files.create("zeros", 4 << 20, gently=gently)
    assert caught.value.errno == errno.ENOSPC
    assert (files.list(), files.free_bytes()) == ([], 8 << 20)


def test_an_error_of_the_device_is_an_error(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: object) -> int:
        raise OSError(errno.EIO, "the disk is gone")

    with RealFileOf(of_size(folder, SIZE)) as file:
        is_direct(file)
        monkeypatch.setattr(os, "pwritev", failing)
        with pytest.raises(OSError, match="gone"):
            file.pwrite(7, b"x")


def test_behind_a_row_nothing_is_read_twice(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a group commit costs is one request: what lies behind is looked at twice, a block and a piece, for each
    piece that is filled."""
    path = of_size(folder, 8 << 20)
    fd = os.open(path, os.O_RDWR)
    writer = DirectWriter(fd, os.open(path, os.O_WRONLY | os.O_DIRECT))
    reads, real = [], os.pread

    def counted(fd: int, count: int, at: int) -> bytes:
        reads.append(at)
        return real(fd, count, at)

    monkeypatch.setattr(os, "pread", counted)
    at = 4096
    while at < 3 << 20:
        writer.pwrite(at, b"r" * 700)
        at += 700
    assert len(reads) <= 2 * (3 << 20) // ZERO_CHECK_BYTES + 4
    writer.close()
    os.close(fd)
