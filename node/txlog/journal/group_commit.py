"""One group commit: which bytes are written where, in which order, and after which fsync."""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from txlog.journal import format as fmt
from txlog.journal.segment_pool import SegmentPool, create_spare
from txlog.journal.vfs import Vfs, VfsFile
from txlog.model.errors import JournalBroken

SEPARATE_WRITE_BYTES: Final = 1 << 20
"""A payload of this size is written by itself."""


@dataclass(slots=True, eq=False)
class OpenSegment:
    """A segment that is written to. ``end``: the offset of the next record. ``header``: both copies, until they are on
    the disk. ``source``: the file that becomes this segment; ``must_create``: it does not exist yet.
    ``has_staged_payload``: it contains a payload; a start removes it if it has not become a segment. ``file`` belongs
    to the sync under way."""

    number: int
    size: int
    end: int
    seed: int
    header: bytes | None = None
    source: str = ""
    must_create: bool = False
    has_staged_payload: bool = False
    file: VfsFile | None = None

    @property
    def name(self) -> str:
        """The file name of this segment."""
        return fmt.segment_name(self.number)

    def close(self) -> None:
        """Close its file, if it is open."""
        if self.file is not None:
            self.file.close()
            self.file = None


@dataclass(slots=True)
class WriteExtent:
    """Consecutive bytes of one batch in one segment. After a payload that is already on the disk another extent
    begins."""

    segment: OpenSegment
    offset: int
    parts: list[bytes] = field(default_factory=list)


class GroupCommit:
    """A batch that is being written. Call :meth:`run` once, on any thread; then ``Journal.end_sync`` on the owner's."""

    def __init__(
        self,
        files: Vfs,
        space: SegmentPool,
        extents: list[WriteExtent],
        retired: list[OpenSegment],
        last: int,
        on_error: Callable[[str], None],
    ) -> None:
        self._files = files
        self._space = space
        self.extents = extents
        self.retired = retired
        """Segments that receive no more writes once this is done."""
        self.last = last
        """Number of the batch's last record."""
        self.done = False
        self._on_error = on_error

    def run(self) -> None:
        """Write and fsync. Raises :class:`JournalBroken` when the disk fails: nothing may be written any more (rule
        29)."""
        assert not self.done
        try:
            for extent, following in zip(self.extents, [*self.extents[1:], None], strict=True):
                self._write(extent, following is None or following.segment is not extent.segment)
        except OSError as error:
            text = (
                f"writing the journal up to record {self.last} at {extent.segment.name}: {error}. What is on the disk"
                " now is unknown, so this process must end. Next: look at the disk, then start again"
            )
            self._on_error(text)
            raise JournalBroken(text) from error
        self.done = True

    def _write(self, extent: WriteExtent, last: bool) -> None:
        """Everything before this segment is synced first: the header written here promises that. ``last``: the last
        extent of this batch."""
        segment = extent.segment
        if segment.header is not None:
            self._open(segment, segment.header)
        if segment.file is None:
            segment.file = self._files.open(segment.name)
        offset = extent.offset
        for data in _coalesce_parts(extent.parts):
            segment.file.pwrite(offset, data)
            offset += len(data)
        if last:
            segment.file.fdatasync()
            if segment.has_staged_payload:
                self._publish(segment, segment.source)

    def _open(self, segment: OpenSegment, header: bytes) -> None:
        """A segment with a staged payload is renamed once its records are durable, too: that saves a sync. A spare is
        renamed first. A crash would leave records in it, and the next start checks only its header."""
        source = self._create_file(segment.source, segment.size) if segment.must_create else segment.source
        segment.file, segment.header = self._files.open(source), None
        segment.file.pwrite(0, header)
        if not segment.has_staged_payload:
            segment.file.fdatasync()
            self._publish(segment, source)

    def _publish(self, segment: OpenSegment, source: str) -> None:
        segment.has_staged_payload = False
        self._files.rename(source, segment.name)
        self._files.sync_folder()

    def _create_file(self, name: str, size: int) -> str:
        """If the disk has filled up since this was planned, the reserve is used."""
        spare = create_spare(self._files, name, size)
        if spare is not None:
            return spare
        if size == self._space.segment_bytes and self._space.spares:
            return self._space.spares.popleft()
        raise OSError(errno.ENOSPC, "no space left, not even in the reserve")


def _coalesce_parts(parts: list[bytes]) -> list[bytes]:
    """Parts to write at once: all of them, except large payloads, which joining would copy."""
    if max(map(len, parts), default=0) < SEPARATE_WRITE_BYTES:
        return [b"".join(parts)] if parts else []
    found: list[bytes] = []
    small: list[bytes] = []
    for part in parts:
        if len(part) < SEPARATE_WRITE_BYTES:
            small.append(part)
            continue
        found += [b"".join(small), part]
        small.clear()
    return [data for data in (*found, b"".join(small)) if data]


class SparePreallocation:
    """Creates a spare, so that no sync has to wait for zeros. Call :meth:`run` once, on any thread, also beside a
    sync."""

    def __init__(self, files: Vfs, name: str, size: int, on_error: Callable[[str], None]) -> None:
        self._files, self._name, self._size = files, name, size
        self._on_error = on_error
        self.spare: str | None = None

    def run(self) -> None:
        """A full disk is no error: there is no new spare then. Raises :class:`JournalBroken` for everything else."""
        try:
            self.spare = create_spare(self._files, self._name, self._size, gently=True)
        except OSError as error:
            text = (
                f"making the next segment {self._name}: {error}. Next: look at the disk, then start this process again"
            )
            self._on_error(text)
            raise JournalBroken(text) from error
