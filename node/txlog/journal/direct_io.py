"""Writes that bypass the kernel's page cache, to make small synced writes fast.

A group commit is a write and a flush. Through the page cache the write is a copy, a search for dirty pages, and a wait
for them. Directly to the device it is one request (docs/decisions/0012-past-the-page-cache.md). Direct writes must
begin and end at block boundaries. So the block in which a record begins is rewritten with its present content: the
page cache does the same.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
from typing import Final

BLOCK_BYTES: Final = 4096
BUFFER_BYTES: Final = 2 << 20
"""Written at once. Memory that was never used costs nothing. Each piece of a large write costs a wait for the
processor in addition to the wait for the disk."""
ZERO_CHECK_BYTES: Final = 256 << 10
"""Bytes after the end that are read at once: mostly they are all zeros."""
_ZEROS: Final = bytes(ZERO_CHECK_BYTES)
_O_DIRECT: Final[int] = getattr(os, "O_DIRECT", 0)


class DirectWriter:
    """Writes to an open file that has no other writer meanwhile. ``fd`` reads it, through the page cache. ``zeros``:
    this many bytes from its beginning are known to be zeros, and are not read to check that."""

    def __init__(self, fd: int, direct_fd: int, zeros: int = 0) -> None:
        self._fd = fd
        self._direct_fd = direct_fd
        self._buffer = memoryview(mmap.mmap(-1, BUFFER_BYTES))
        """Aligned to a page, as the device requires."""
        self._block_at = 0
        self._block = b""
        """The last block that was written; ``_block_at`` is its offset."""
        self._zeros_from, self._zeros_to = 0, zeros
        """Bytes between these offsets are zeros."""

    def pwrite(self, offset: int, data: bytes) -> None:
        """Write all of ``data`` to the device; it is durable after a flush of the device."""
        if not data:
            return
        end = offset + len(data)
        first, stop = offset - offset % BLOCK_BYTES, end + -end % BLOCK_BYTES
        buffer, filled, at = self._buffer, 0, first
        for part in (self._read_existing(first, offset), data, self._read_existing(end, stop)):
            view, taken = memoryview(part), 0
            while taken < len(view):
                if filled == BUFFER_BYTES:
                    self._write(at, filled)
                    at, filled = at + filled, 0
                count = min(BUFFER_BYTES - filled, len(view) - taken)
                buffer[filled : filled + count] = view[taken : taken + count]
                filled, taken = filled + count, taken + count
        self._write(at, filled)
        self._block_at, self._block = stop - BLOCK_BYTES, bytes(buffer[filled - BLOCK_BYTES : filled])
        if first < self._zeros_to and stop > self._zeros_from:
            self._zeros_from = stop

    def _read_existing(self, begin: int, end: int) -> bytes:
        """The present content of a part of one block."""
        if begin == end:
            return b""
        if self._block and self._block_at <= begin and end <= self._block_at + BLOCK_BYTES:
            return self._block[begin - self._block_at : end - self._block_at]
        if not (self._zeros_from <= begin and end <= self._zeros_to):
            there = os.pread(self._fd, end - begin, begin)
            if len(there) < end - begin:
                raise OSError(errno.EIO, "the file is shorter than it was")
            if not _is_zeros(there):
                return there
            found = os.pread(self._fd, ZERO_CHECK_BYTES, begin)
            if not _is_zeros(found):
                return there
            self._zeros_from, self._zeros_to = begin, begin + len(found)
        return bytes(end - begin)

    def _write(self, offset: int, count: int) -> None:
        """Write ``count`` bytes of the buffer, whole blocks."""
        done = 0
        while done < count:
            wrote = os.pwritev(self._direct_fd, [self._buffer[done:count]], offset + done)
            if wrote < BLOCK_BYTES:  # a second write fails with the reason: usually a full disk
                os.pwritev(self._direct_fd, [self._buffer[done : done + BLOCK_BYTES]], offset + done)
                raise OSError(errno.EIO, "the device took less than a block")
            done += wrote - wrote % BLOCK_BYTES

    def close(self) -> None:
        """Close the direct file descriptor."""
        os.close(self._direct_fd)


def _is_zeros(data: bytes) -> bool:
    """Compared, not stripped: stripping examines each byte separately, a millisecond for :data:`ZERO_CHECK_BYTES` of
    them."""
    return data == (_ZEROS if len(data) == ZERO_CHECK_BYTES else _ZEROS[: len(data)])


def open_direct_writer(fd: int, zeros: bool = False) -> DirectWriter | None:
    """A writer for the file of ``fd``, which contains nothing but ``zeros``. None where the system, the file system or
    the file's size does not allow direct writes."""
    size = os.fstat(fd).st_size
    if not _O_DIRECT or size % BLOCK_BYTES:
        return None
    with contextlib.suppress(OSError):
        return DirectWriter(
            fd, os.open(f"/proc/self/fd/{fd}", os.O_WRONLY | _O_DIRECT | os.O_CLOEXEC), size if zeros else 0
        )
    return None
