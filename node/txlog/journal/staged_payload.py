"""A payload that is on the disk before its record (why: docs/decisions/0021; matching: ``payload_stage``).

A large payload is written beside the syncs, in chunks, into a file that becomes the segment of its record. When the
record gets its number, only the bytes before the payload are left to write. Until then the file has no name that
recovery reads.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from functools import partial
from typing import Final
from zlib import crc32

from txlog.journal import format as fmt
from txlog.journal.vfs import ZEROS, Vfs, VfsFile
from txlog.model.errors import JournalBroken

SYNC_CHUNK_BYTES: Final = 512 << 10
"""Small, since a sync of the segment in use waits for earlier writes to the disk."""
BLOCK_BYTES: Final = 4096
"""The size of a file that may be written past the page cache is a multiple of it."""


class StagedPayload:
    """A payload that is being written, or is on the disk. ``offset``: its first byte in the file. Call :meth:`write`,
    :meth:`finish` and :meth:`remove` on any thread, one at a time; the rest belongs to the journal's owner."""

    def __init__(
        self, files: Vfs, name: str, content: bytes, at: int, size: int, rest: int, on_error: Callable[[str], None]
    ) -> None:
        self._files = files
        self.name = name
        self.content = content
        self.offset = at
        self.size = size
        self.file_bytes = -(-(at + fmt.align_to_8(size) + rest) // BLOCK_BYTES) * BLOCK_BYTES
        self.crc = 0
        """Of the payload; final when it is durable."""
        self.is_durable = False
        """Whether all of it is durable, with zeros after it."""
        self.discarded = False
        """It is not needed, or the disk is full: later chunks are not written."""
        self.claims_space = True
        """Its space is claimed, and the disk's free space does not show that yet. The owner's."""
        self._on_error = on_error
        self._file: VfsFile | None = None
        self._created = False
        self._written = 0
        self._unsynced = 0

    def write(self, data: bytes) -> None:
        """Write the next chunk. A full disk is no error: the payload is written with its record then, if at all.
        Raises :class:`JournalBroken` for everything else."""
        assert self._written + len(data) <= self.size
        if not self.discarded:
            self._unless_disk_full(partial(self._write_next, data))

    def finish(self) -> None:
        """All chunks are written: make them durable, unless the disk is full. Errors as with :meth:`write`."""
        if not self.discarded:
            assert self._written == self.size
            assert not self.is_durable
            self._unless_disk_full(self._finish)

    def _unless_disk_full(self, work: Callable[[], None]) -> None:
        try:
            work()
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                self.remove()
                return
            self._fail(f"writing a payload ahead of its record into {self.name}", error)

    def _write_next(self, data: bytes) -> None:
        self._write_at(self.offset + self._written, data)
        self.crc = crc32(data, self.crc)
        self._written += len(data)

    def _write_at(self, offset: int, data: bytes) -> None:
        if self._file is None:
            self._files.create_sparse(self.name, self.file_bytes)
            self._created = True
            self._file = self._files.open(self.name)
        self._file.pwrite(offset, data)
        self._unsynced += len(data)
        if self._unsynced >= SYNC_CHUNK_BYTES:
            self._file.fdatasync()
            self._unsynced = 0

    def _finish(self) -> None:
        for start, stop in ((0, self.offset), (self.offset + self.size, self.file_bytes)):
            for offset in range(start, stop, len(ZEROS)):
                self._write_at(offset, ZEROS[: stop - offset])
        assert self._file is not None
        self._file.fdatasync()
        self._file.close()
        self._file = None
        self.is_durable = True

    def remove(self) -> None:
        """Remove the file: it is not needed any more. Raises :class:`JournalBroken` when the disk fails."""
        self.discarded = True
        if self._file is not None:
            self._file.close()
            self._file = None
        if not self._created:
            return
        self._created = False
        try:
            self._files.remove(self.name)
        except OSError as error:
            self._fail(f"removing {self.name}, a payload that is not needed", error)

    def _fail(self, what: str, error: OSError) -> None:
        text = f"{what}: {error}. Next: look at the disk, then start this process again"
        self._on_error(text)
        raise JournalBroken(text) from error
