"""A disk in memory with the faults of a real one; deterministic, for tests and the simulator.

It records each unsynced write. A sync that fails leaves its writes readable and gives them up, as a page cache does:
only when they are written again does another sync make them durable. :meth:`MemoryVfs.crash` asks a *chooser* for the
fate of each write: ``choose(what, options) -> 0..options-1``; option 0 is always the mildest (the write survived).
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

from txlog.journal.vfs import VfsFile

SECTOR = 512
"""A disk writes a sector whole or not at all."""

CrashChooser = Callable[[str, int], int]
WRITE_KEPT, WRITE_LOST, WRITE_TORN = 0, 1, 2

OperationHook = Callable[[str, str], None]
"""Called before each operation with its name (``create``, ``create_sparse``, ``pwrite``, ``fdatasync``, ``rename``,
``remove``, ``sync_folder``) and the file's; may raise ``OSError`` (a failing disk) or :class:`SimulatedCrash` (the
process ends there)."""


class SimulatedCrash(BaseException):
    """The simulated process ended at this operation. Not an ``Exception``: nothing in the product may catch it."""


class _Write(NamedTuple):
    """``old`` are the bytes that ``new`` replaced."""

    offset: int
    old: bytes
    new: bytes

    def part(self, start: int, stop: int) -> list[_Write]:
        """What of it lies between these offsets, if anything."""
        a, b = max(start, self.offset) - self.offset, min(stop, self.offset + len(self.new)) - self.offset
        return [_Write(self.offset + a, self.old[a:b], self.new[a:b])] if a < b else []


class _Inode:
    """``data`` is what a reader sees; ``unsynced`` are the writes since the last sync, with the bytes they replaced."""

    def __init__(self, name: str, size: int) -> None:
        self.name = name
        self.data = bytearray(size)
        self.unsynced: list[_Write] = []
        self.failed: list[_Write] = []
        """Writes whose sync failed: a reader sees them, and no later sync writes them."""

    def write(self, offset: int, new: bytes) -> None:
        end = offset + len(new)
        assert end <= len(self.data), "journal files never grow"
        self.unsynced.append(_Write(offset, bytes(self.data[offset:end]), new))
        self.data[offset:end] = new

    def sync(self) -> None:
        """A sync succeeds. What an earlier one failed to write is durable where it was written again, only there."""
        if self.failed:
            for offset, _, new in self.unsynced:
                apart = (0, offset), (offset + len(new), len(self.data))
                self.failed = [part for write in self.failed for span in apart for part in write.part(*span)]
        self.unsynced.clear()

    def fail_sync(self) -> None:
        """A sync fails: the system gives up these writes, and keeps their bytes in memory."""
        self.failed += self.unsynced
        self.unsynced.clear()

    def drop_cached(self, offset: int, choose: CrashChooser) -> None:
        """A reader sees what the disk has. Pages have the size of a sector here, as segments are small in tests."""
        if self.unsynced:
            return
        start = offset + -offset % SECTOR
        dropped = [part for write in self.failed for part in write.part(start, len(self.data))]
        self.failed = [part for write in self.failed for part in write.part(0, start)]
        self._lose(dropped, self.name, choose)

    def crash(self, name: str, choose: CrashChooser) -> None:
        self._lose([*self.failed, *self.unsynced], name, choose)
        self.failed.clear()
        self.unsynced.clear()

    def _lose(self, writes: list[_Write], name: str, choose: CrashChooser) -> None:
        for offset, old, _ in reversed(writes):
            self.data[offset : offset + len(old)] = old
        for offset, _, new in writes:
            self._survive(name, offset, new, choose)

    def _survive(self, name: str, offset: int, new: bytes, choose: CrashChooser) -> None:
        fate = choose(f"write {name} {offset} {len(new)}", 3)
        if fate == WRITE_KEPT:
            self.data[offset : offset + len(new)] = new
        elif fate == WRITE_TORN:
            for start, stop in _sectors(offset, offset + len(new)):
                if choose(f"sector {name} {start}", 2) == WRITE_KEPT:
                    self.data[start:stop] = new[start - offset : stop - offset]


def _sectors(start: int, stop: int) -> list[tuple[int, int]]:
    cuts = [start, *range((start // SECTOR + 1) * SECTOR, stop, SECTOR), stop]
    return list(pairwise(cuts))


class MemoryFile:
    """An open file of a :class:`MemoryVfs`."""

    def __init__(self, files: MemoryVfs, inode: _Inode) -> None:
        self._files, self._inode = files, inode

    def pread(self, offset: int, count: int) -> bytes:
        return bytes(self._inode.data[offset : offset + count])

    def pwrite(self, offset: int, data: bytes) -> None:
        self._files.record_operation("pwrite", self._inode.name, f"{offset} {len(data)}")
        self._inode.write(offset, bytes(data))

    def fdatasync(self) -> None:
        try:
            self._files.record_operation("fdatasync", self._inode.name)
        except OSError:
            self._inode.fail_sync()
            raise
        self._inode.sync()

    def drop_cached(self, offset: int) -> None:
        if self._files.drops_cached:
            self._inode.drop_cached(offset, self._files.choose_failed)

    def close(self) -> None:
        pass


class MemoryVfs:
    """See the module. ``capacity``: sum of the file sizes in bytes. ``hook``: a failing disk or an ending process.

    ``operations`` is the text of all operations, for tests that compare it; it is kept only when ``trace`` is true.
    """

    def __init__(self, capacity: int = 1 << 40, hook: OperationHook | None = None, *, trace: bool = False) -> None:
        self.capacity = capacity
        self.hook = hook
        self.drops_cached = True
        """Whether :meth:`MemoryFile.drop_cached` has an effect; some file systems ignore the advice."""
        self.choose_failed: CrashChooser = lambda what, options: WRITE_LOST
        """The fate of writes whose sync failed, where their pages are dropped. Otherwise a crash decides."""
        self.operations: list[str] = []
        self._trace = trace
        self._locked = False
        self._names: dict[str, _Inode] = {}
        self._durable: dict[str, _Inode] = {}
        self._unsynced: list[Callable[[dict[str, _Inode]], object]] = []

    def record_operation(self, operation: str, name: str, detail: str = "") -> None:
        """Every operation calls this first: it may fail, or be the last one of the process."""
        if self._trace:
            self.operations.append(f"{operation} {name} {detail}".rstrip())
        if self.hook is not None:
            self.hook(operation, name)

    # -- Files

    def lock(self) -> None:
        if self._locked:
            raise BlockingIOError(errno.EAGAIN, "locked")
        self._locked = True

    def list(self) -> list[str]:
        return sorted(self._names)

    def create(self, name: str, size: int, *, gently: bool = False) -> None:
        assert name not in self._names
        self.record_operation("create", name, str(size))
        if size > self.free_bytes():
            raise OSError(errno.ENOSPC, "no space left in memory", name)
        inode = _Inode(name, size)
        self._change(lambda names: names.__setitem__(name, inode))
        self.sync_folder()

    def create_sparse(self, name: str, size: int) -> None:
        assert name not in self._names
        self.record_operation("reserve", name, str(size))
        if size > self.free_bytes():
            raise OSError(errno.ENOSPC, "no space left in memory", name)
        inode = _Inode(name, size)
        self._change(lambda names: names.__setitem__(name, inode))

    def open(self, name: str) -> VfsFile:
        return MemoryFile(self, self._inode(name))

    def rename(self, old: str, new: str) -> None:
        self.record_operation("rename", old, new)
        self._inode(old).name = new
        self._change(lambda names: names.__setitem__(new, names.pop(old)))

    def remove(self, name: str) -> None:
        self.record_operation("remove", name)
        self._inode(name)
        self._change(lambda names: names.pop(name))

    def size(self, name: str) -> int:
        return len(self._inode(name).data)

    def free_bytes(self) -> int:
        return self.capacity - sum([len(inode.data) for inode in self._names.values()])

    def sync_folder(self) -> None:
        self.record_operation("sync_folder", ".")
        self._unsynced.clear()
        self._durable = dict(self._names)

    def close(self) -> None:
        self._locked = False

    # -- faults

    def crash(self, choose: CrashChooser) -> None:
        """The power fails: ``choose`` decides which unsynced writes survive. Folder changes survive in order."""
        survivors = choose("folder", len(self._unsynced) + 1) if self._unsynced else 0
        names = dict(self._durable)
        for change in self._unsynced[: len(self._unsynced) - survivors]:
            change(names)
        self._names, self._durable = names, dict(names)
        self._unsynced.clear()
        for name, inode in sorted(names.items()):
            inode.name = name
            inode.crash(name, choose)
        self._locked = False

    def kill(self) -> None:
        """The process ends, the machine does not: everything written survives, synced or not."""
        self._locked = False

    def flip_bit(self, name: str, offset: int, bit: int) -> None:
        """Flip one bit of a file at rest."""
        self._inode(name).data[offset] ^= 1 << bit

    def truncate(self, name: str, size: int) -> None:
        """The file loses its end."""
        inode = self._inode(name)
        inode.unsynced.clear()
        inode.failed.clear()
        del inode.data[size:]

    def erase(self, name: str) -> None:
        """The file is lost, with its name."""
        self._names.pop(name)
        self._durable.pop(name, None)

    def dump(self) -> dict[str, bytes]:
        """The files as a reader sees them."""
        return {name: bytes(inode.data) for name, inode in sorted(self._names.items())}

    @classmethod
    def load(cls, files: dict[str, bytes]) -> MemoryVfs:
        """A disk that contains these files, synced."""
        made = cls()
        for name, data in files.items():
            inode = _Inode(name, 0)
            inode.data += data
            made._names[name] = inode
        made._durable = dict(made._names)
        return made

    # -- inside

    def _inode(self, name: str) -> _Inode:
        if name not in self._names:
            raise FileNotFoundError(errno.ENOENT, "no such file", name)
        return self._names[name]

    def _change(self, change: Callable[[dict[str, _Inode]], object]) -> None:
        change(self._names)
        self._unsynced.append(change)
