"""Payloads that are on the disk before their records (why: docs/decisions/0021).

A large one is written beside the syncs, in pieces, into a file that becomes the segment of its record: what is left to
write when the record gets its number is what stands in front. The file has no name that recovery reads until then.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from functools import partial
from typing import Final
from zlib import crc32

from txlog.journal import format as fmt
from txlog.journal.files import FILLED_AT_ONCE, ZEROS, File, Files
from txlog.model.errors import JournalBroken

FILES_MAX: Final = 8
"""Written or in the writing; the oldest goes when there is another one."""
FRONT_BYTES: Final = 4096
"""Left in front of a payload beside what header and head take when it is begun: they may grow until they are there."""
REST_BYTES: Final = 2 << 20
"""Behind it, for the records that follow."""
BLOCK: Final = 4096
"""The size of a file that may be written past the page cache is a multiple of it."""


class Laid:
    """A payload on its way to the disk, or there. ``at``: where in the file it begins. :meth:`write`, :meth:`finish`
    and :meth:`remove` on any thread, one at a time; the rest belongs to the journal's owner."""

    def __init__(
        self, files: Files, name: str, content: bytes, at: int, size: int, rest: int, on_error: Callable[[str], None]
    ) -> None:
        self._files = files
        self.name = name
        self.content = content
        self.at = at
        self.size = size
        self.file_bytes = -(-(at + fmt.padded(size) + rest) // BLOCK) * BLOCK
        self.crc = 0
        """Of the payload; certain when it is done."""
        self.done = False
        """All of it is durable, and zeros behind it."""
        self.gone = False
        """Nobody wants it, or the disk is full: what comes is not written."""
        self.claimed = True
        """Its room is taken, and the disk does not say so yet. The owner's."""
        self._on_error = on_error
        self._file: File | None = None
        self._made = False
        self._written = 0
        self._unsynced = 0

    def write(self, data: bytes) -> None:
        """The next piece. A full disk is no error: the payload is written with its record then, if at all.
        :class:`JournalBroken` for everything else."""
        assert self._written + len(data) <= self.size
        if not self.gone:
            self._try(partial(self._put_next, data))

    def finish(self) -> None:
        """All pieces are written: durable when this returns, unless the disk is full. Errors as with :meth:`write`."""
        if not self.gone:
            assert self._written == self.size
            assert not self.done
            self._try(self._finish)

    def _try(self, work: Callable[[], None]) -> None:
        try:
            work()
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                self.remove()
                return
            self._fail(f"writing a payload ahead of its record into {self.name}", error)

    def _put_next(self, data: bytes) -> None:
        self._put(self.at + self._written, data)
        self.crc = crc32(data, self.crc)
        self._written += len(data)

    def _put(self, offset: int, data: bytes) -> None:
        """A sync of the segment in use waits for what the disk has been given before it: so a little at a time."""
        if self._file is None:
            self._files.reserve(self.name, self.file_bytes)
            self._made = True
            self._file = self._files.open(self.name)
        self._file.pwrite(offset, data)
        self._unsynced += len(data)
        if self._unsynced >= FILLED_AT_ONCE:
            self._file.fdatasync()
            self._unsynced = 0

    def _finish(self) -> None:
        for start, stop in ((0, self.at), (self.at + self.size, self.file_bytes)):
            for offset in range(start, stop, len(ZEROS)):
                self._put(offset, ZEROS[: stop - offset])
        assert self._file is not None
        self._file.fdatasync()
        self._file.close()
        self._file = None
        self.done = True

    def remove(self) -> None:
        """It is not wanted any more. :class:`JournalBroken` when the disk refuses."""
        self.gone = True
        if self._file is not None:
            self._file.close()
            self._file = None
        if not self._made:
            return
        self._made = False
        try:
            self._files.remove(self.name)
        except OSError as error:
            self._fail(f"removing {self.name}, a payload that nobody wants", error)

    def _fail(self, what: str, error: OSError) -> None:
        text = f"{what}: {error}. Next: look at the disk, then start this process again"
        self._on_error(text)
        raise JournalBroken(text) from error


class Laying:
    """Those of a journal, by content hash, the oldest first."""

    def __init__(self) -> None:
        self._files: dict[bytes, Laid] = {}
        self._unwanted: list[Laid] = []

    @property
    def claimed(self) -> int:
        """Bytes of the disk that those in the writing take, as far as anybody knows."""
        return sum(laid.file_bytes for laid in self._files.values() if laid.claimed)

    def add(self, laid: Laid) -> Laid | None:
        """Which one goes for it."""
        self._files[laid.content] = laid
        return next(iter(self._files.values())) if len(self._files) > FILES_MAX else None

    def has(self, content: bytes) -> bool:
        return content in self._files

    def drop(self, laid: Laid) -> None:
        if self._files.get(laid.content) is laid:
            del self._files[laid.content]
            self._unwanted.append(laid)

    def take_unwanted(self) -> list[Laid]:
        """Whose :meth:`Laid.remove` is due."""
        unwanted, self._unwanted = self._unwanted, []
        return unwanted

    @property
    def any(self) -> bool:
        return bool(self._files)

    def ready(self, content: bytes, size: int) -> Laid | None:
        laid = self._files.get(content)
        return laid if laid is not None and laid.done and not laid.gone and laid.size == size else None

    def take(self, laid: Laid) -> None:
        """Its file is a segment from here on."""
        del self._files[laid.content]


def place_for(header_bytes: int, vitals_bytes: int, key: str, node: str, slack: int) -> int:
    """Where in its file the payload of one transaction goes: behind header, Seal and head of its record, with ``slack``
    bytes to spare. ``header_bytes``: both copies. A record begins at a multiple of 8, so this is as far from one as
    its front is long."""
    front = front_bytes(node, key)
    return fmt.padded(header_bytes + 2 * (fmt.HEAD_BYTES + vitals_bytes) + front + slack) + front % 8


def front_bytes(node: str, key: str) -> int:
    """Of a Held record of one transaction (the package's docstring)."""
    name = key.encode()
    return fmt.padded(1 + len(node.encode()) + 8) + 8 + 4 + 16 + 1 + (2 + len(name) if name else 0)
