"""The one way to the disk: the file operations that a journal needs, and their implementation on a real disk.

No module of this package opens a file except through :class:`Vfs`. :class:`txlog.journal.memory_vfs.MemoryVfs` is the
other implementation: it distinguishes synced from unsynced bytes, and can crash, tear, flip, fail and be full.

Every method raises ``OSError`` and nothing else; only :mod:`txlog.journal.journal` converts it to a typed error.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import time
from pathlib import Path
from threading import Lock
from typing import Protocol

from txlog.journal.direct_io import BLOCK_BYTES, DirectWriter, open_direct_writer

ZEROS = bytes(1 << 20)
FILL_CHUNK_BYTES = 4 << 20
"""Zeros written to the disk between two syncs. Beside 64 MiB at once the p99 of a small write and its sync was 20 to
42 ms. Beside 4 MiB it was 12 to 19 ms, beside nothing 14 to 18 ms."""
THROTTLED_CHUNK_BYTES = 256 << 10
YIELD_S = 0.002
"""Pause after each chunk of zeros that no write waits for: 64 MiB take half a second. Past the page cache they cost a
third of the processor, and leave little that a sync has to wait for."""


class VfsFile(Protocol):
    """An open file. It stays valid when the file is renamed."""

    def pread(self, offset: int, count: int) -> bytes:
        """At most ``count`` bytes; fewer only where the file ends."""

    def pwrite(self, offset: int, data: bytes) -> None:
        """All of ``data``; durable after :meth:`fdatasync`."""

    def fdatasync(self) -> None:
        """What was written to this file survives a power cut. An error is never followed by a retry (rule 29): what
        it should have written stays readable, counts as written, and no later call writes it."""

    def drop_cached(self, offset: int) -> None:
        """Reads from ``offset`` on come from the disk again, as far as the system can drop what it has in memory: whole
        pages that wait for no sync. Never fails."""

    def close(self) -> None:
        """Release the descriptor, without a sync. The object must not be used afterwards."""


class Vfs(Protocol):
    """The files of one folder, by plain name."""

    def lock(self) -> None:
        """Lock the folder for this process until :meth:`close`. Raises ``BlockingIOError`` when another process holds
        the lock."""

    def list(self) -> list[str]:
        """Names in alphabetical order."""

    def create(self, name: str, size: int, *, gently: bool = False) -> None:
        """A new file of ``size`` zeros, durable with its name. ``ENOSPC`` leaves nothing behind. ``gently``: no caller
        waits for it, so other writes use the disk in between."""

    def create_sparse(self, name: str, size: int) -> None:
        """A new file that reads as ``size`` zeros and takes room only as it is written: each write may find the disk
        full. Neither it nor its name is durable."""

    def open(self, name: str) -> VfsFile:
        """Open an existing file for reads and writes. ``FileNotFoundError`` when it is missing."""

    def rename(self, old: str, new: str) -> None:
        """Durable after :meth:`sync_folder`."""

    def remove(self, name: str) -> None:
        """Remove a file. Durable after :meth:`sync_folder`."""

    def size(self, name: str) -> int:
        """Bytes of a file, holes included. ``FileNotFoundError`` when it is missing."""

    def free_bytes(self) -> int:
        """Bytes that may still be created."""

    def sync_folder(self) -> None:
        """Make all names durable: files that were created, renamed and removed before."""

    def close(self) -> None:
        """Release the folder's lock. Open files stay open."""


class OsFile:
    """A file descriptor, and where possible one that writes past the page cache (``direct``)."""

    def __init__(self, path: Path, flags: int = os.O_RDWR, *, direct: bool = True, zeros: bool = False) -> None:
        """``zeros``: the file contains only zeros, and has no other writer."""
        self._fd = os.open(path, flags | os.O_CLOEXEC, 0o640)
        self._writer: DirectWriter | None = None
        self._may_be_direct = direct
        self._zeros = zeros

    def pread(self, offset: int, count: int) -> bytes:
        data = os.pread(self._fd, count, offset)
        while len(data) < count:
            more = os.pread(self._fd, count - len(data), offset + len(data))
            if not more:
                break
            data += more
        return data

    def pwrite(self, offset: int, data: bytes) -> None:
        if self._may_be_direct and self._writer is None:
            self._writer = open_direct_writer(self._fd, self._zeros)
            self._may_be_direct = self._writer is not None
        if self._writer is not None:
            self._writer.pwrite(offset, data)
            return
        done = os.pwrite(self._fd, data, offset)
        while done < len(data):
            done += os.pwrite(self._fd, memoryview(data)[done:], offset + done)

    @property
    def uses_direct_io(self) -> bool:
        """Whether writes bypassed the page cache, as far as the file system honours the flag that it accepts."""
        return self._writer is not None

    def fdatasync(self) -> None:
        os.fdatasync(self._fd)

    def drop_cached(self, offset: int) -> None:
        if hasattr(os, "posix_fadvise"):
            with contextlib.suppress(OSError):
                os.posix_fadvise(self._fd, offset, 0, os.POSIX_FADV_DONTNEED)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
        os.close(self._fd)


class OsVfs:
    """A folder on a disk. ``bytes_max`` bounds the sum of the file sizes (a quota, and full disks in tests).

    ``read_only``: nothing is created or locked, to inspect a folder that may belong to a running process.
    """

    LOCK = "lock"

    def __init__(self, folder: Path | str, bytes_max: int | None = None, *, read_only: bool = False) -> None:
        self._folder = Path(folder)
        self._bytes_max = bytes_max
        self._read_only = read_only
        self._lock_fd = -1
        if not read_only:
            self._folder.mkdir(parents=True, exist_ok=True)
            if not self.list():
                _sync_names_above(self._folder)
        self._fresh: set[str] = set()
        """Files of zeros that were created here and not opened since."""
        self._bytes = 0 if read_only else sum(self.size(name) for name in self.list())
        self._quota_lock = Lock()
        """A sync and a preallocation may count at the same time."""

    def lock(self) -> None:
        if self._lock_fd >= 0:
            raise BlockingIOError(errno.EAGAIN, "locked by this very process", str(self._folder))
        fd = os.open(self._folder / self.LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(fd)
            raise
        self._lock_fd = fd

    def list(self) -> list[str]:
        return sorted(path.name for path in self._folder.iterdir() if path.is_file() and path.name != self.LOCK)

    def create(self, name: str, size: int, *, gently: bool = False) -> None:
        self._charge_quota(size, name)
        path = self._folder / name
        try:
            self._fill(path, size, gently)
        except OSError:
            path.unlink(missing_ok=True)
            self._charge_quota(-size, name)
            raise
        self.sync_folder()
        self._fresh.add(name)

    def _charge_quota(self, size: int, name: str) -> None:
        with self._quota_lock:
            if size > self._quota():
                raise OSError(errno.ENOSPC, "quota of the journal reached", name)
            self._bytes += size

    @staticmethod
    def _fill(path: Path, size: int, gently: bool) -> None:
        """Zeros are written, not reserved: an overwrite then changes no metadata (1.4 to 1.6 times as fast). They are
        written in small chunks: a sync of the segment in use waits for earlier writes to the disk."""
        file = OsFile(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, direct=size % BLOCK_BYTES == 0)
        piece = THROTTLED_CHUNK_BYTES if gently else len(ZEROS)
        unsynced = 0
        try:
            for offset in range(0, size, piece):
                file.pwrite(offset, ZEROS[: min(piece, size - offset)])
                unsynced += piece
                if unsynced >= (len(ZEROS) if gently and not file.uses_direct_io else FILL_CHUNK_BYTES):
                    file.fdatasync()
                    unsynced = 0
                if gently:
                    time.sleep(YIELD_S)
            file.fdatasync()
        finally:
            file.close()

    def create_sparse(self, name: str, size: int) -> None:
        self._charge_quota(size, name)
        path = self._folder / name
        try:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o640)
            try:
                os.ftruncate(fd, size)
            finally:
                os.close(fd)
        except OSError:
            path.unlink(missing_ok=True)
            self._charge_quota(-size, name)
            raise

    def open(self, name: str) -> VfsFile:
        fresh = name in self._fresh
        self._fresh.discard(name)
        return OsFile(self._folder / name, os.O_RDONLY if self._read_only else os.O_RDWR, zeros=fresh)

    def rename(self, old: str, new: str) -> None:
        (self._folder / old).rename(self._folder / new)
        if old in self._fresh:
            self._fresh.discard(old)
            self._fresh.add(new)

    def remove(self, name: str) -> None:
        size = self.size(name)
        (self._folder / name).unlink()
        self._fresh.discard(name)
        self._charge_quota(-size, name)

    def size(self, name: str) -> int:
        return (self._folder / name).stat().st_size

    def free_bytes(self) -> int:
        disk = os.statvfs(self._folder)
        return max(0, min(disk.f_bavail * disk.f_frsize, self._quota()))

    def _quota(self) -> int:
        return (1 << 62) if self._bytes_max is None else self._bytes_max - self._bytes

    def sync_folder(self) -> None:
        _sync_folder(self._folder)

    def close(self) -> None:
        if self._lock_fd >= 0:
            os.close(self._lock_fd)
            self._lock_fd = -1


def _sync_names_above(folder: Path) -> None:
    """Make the name of a new folder durable, and those of the folders above it on the same disk: an earlier process may
    have created them and ended before this. A folder that this process may not open existed before any journal."""
    folder = folder.resolve()
    device = folder.stat().st_dev
    for above in folder.parents:
        if above.stat().st_dev != device:
            break
        with contextlib.suppress(PermissionError):
            _sync_folder(above)


def _sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
