"""Segments made ahead, and what may still be written: work stops at the reserve, the protocol's own records do not.

The owner's thread alone changes anything here. One spare is the reserve (rule 29); another is kept when the current
segment is half full, so that nobody waits for zeros.
"""

from __future__ import annotations

import errno
from collections import deque
from typing import Final

from txlog.journal import format as fmt
from txlog.journal.files import Files

RESERVE_SPARES: Final = 1
"""Kept for Added, Stable, Ceiling and the views: at 64 MiB, half a million of them. A view whose base has more than
three million entries that were not in this log is larger; where the disk is full it ends the process."""


class Space:
    """Spares by name, and the bytes of the disk that nobody has claimed. ``free`` is as last asked."""

    def __init__(self, files: Files, segment_bytes: int, spares: list[str], next_number: int) -> None:
        self.files = files
        self.segment_bytes = segment_bytes
        self.spares: deque[str] = deque(spares)
        self.claimed = 0
        """Bytes of segments that a batch will have to make."""
        self._next_number = next_number
        self.free = files.free()

    def refresh(self) -> None:
        self.free = self.files.free()

    @property
    def unclaimed(self) -> int:
        return self.free - self.claimed

    @property
    def reserve_kept(self) -> bool:
        return len(self.spares) >= RESERVE_SPARES or self.unclaimed >= self.segment_bytes

    def may_open_for_work(self, size: int) -> bool:
        """Whether a segment of this size can be had and the reserve stays."""
        if size == self.segment_bytes and len(self.spares) > RESERVE_SPARES:
            return True
        missing = 0 if len(self.spares) >= RESERVE_SPARES else self.segment_bytes
        return self.unclaimed >= size + missing

    def take(self, size: int, work: bool) -> str | None:
        """A spare for a segment of this size, or None: it must be made then, and its bytes are claimed."""
        kept = RESERVE_SPARES if work or self.unclaimed >= size else 0
        if size == self.segment_bytes and len(self.spares) > kept:
            return self.spares.popleft()
        self.claimed += size
        return None

    def new_name(self) -> str:
        """Of a file to be made."""
        self._next_number += 1
        return fmt.segment_name(self._next_number, "making")

    def wants_spare(self, half_full: bool) -> bool:
        return len(self.spares) < RESERVE_SPARES + half_full and self.unclaimed >= self.segment_bytes


def make_spare(files: Files, name: str, size: int, *, gently: bool = False) -> str | None:
    """A file of zeros under its spare's name, durable; None when the disk is full. Any thread."""
    try:
        files.create(name, size, gently=gently)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            return None
        raise
    spare = name.replace("making", "spare")
    files.rename(name, spare)
    files.sync_folder()
    return spare
