"""Preallocated segments and free space: work stops at the reserve, the protocol's own records do not.

Only the owner's thread changes anything here. One spare is the reserve (rule 29). Another is kept when the current
segment is half full, so that no sync waits for zeros.
"""

from __future__ import annotations

import errno
from collections import deque
from typing import Final

from txlog.journal import format as fmt
from txlog.journal.vfs import Vfs

RESERVE_SPARES: Final = 1
"""Kept for Added, Stable, Ceiling and the views: at 64 MiB, half a million of them. A view whose base has more than
three million entries that were not in this log is larger; on a full disk it ends the process."""


class SegmentPool:
    """Spares by name, and the unclaimed bytes of the disk. ``free_bytes`` is the disk's latest answer."""

    def __init__(self, files: Vfs, segment_bytes: int, spares: list[str], next_number: int) -> None:
        self.files = files
        self.segment_bytes = segment_bytes
        self.spares: deque[str] = deque(spares)
        self.claimed_bytes = 0
        """Bytes of segments that a batch will have to create."""
        self._next_number = next_number
        self.free_bytes = files.free_bytes()

    def refresh(self) -> None:
        """Query the free bytes of the disk."""
        self.free_bytes = self.files.free_bytes()

    @property
    def unclaimed_bytes(self) -> int:
        """Free bytes of the disk that no batch or payload has claimed."""
        return self.free_bytes - self.claimed_bytes

    @property
    def has_reserve(self) -> bool:
        """Whether the reserve exists: as a spare, or as free space for one segment."""
        return len(self.spares) >= RESERVE_SPARES or self.unclaimed_bytes >= self.segment_bytes

    def can_open_segment(self, size: int) -> bool:
        """Whether a segment of this size is available and the reserve remains."""
        if size == self.segment_bytes and len(self.spares) > RESERVE_SPARES:
            return True
        missing = 0 if len(self.spares) >= RESERVE_SPARES else self.segment_bytes
        return self.unclaimed_bytes >= size + missing

    def acquire(self, size: int, work: bool) -> str | None:
        """A spare for a segment of this size, or None: the caller must create it then, and its bytes are claimed."""
        kept = RESERVE_SPARES if work or self.unclaimed_bytes >= size else 0
        if size == self.segment_bytes and len(self.spares) > kept:
            return self.spares.popleft()
        self.claimed_bytes += size
        return None

    def next_name(self) -> str:
        """The name of the next file to create."""
        self._next_number += 1
        return fmt.segment_name(self._next_number, "making")

    def needs_spare_segment(self, half_full: bool) -> bool:
        """Whether a spare is missing and there is room for it. ``half_full``: the current segment is, so one more is
        kept."""
        return len(self.spares) < RESERVE_SPARES + half_full and self.unclaimed_bytes >= self.segment_bytes


def create_spare(files: Vfs, name: str, size: int, *, gently: bool = False) -> str | None:
    """Create a file of zeros under a spare's name, durable; None when the disk is full. Any thread."""
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
