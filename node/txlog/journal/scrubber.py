"""Scrubbing: reads sealed segments again while the master works, to build their indexes and find latent corruption.

A start that has an index does not read the segment, so the scrubber must (rule 28). In every run of a master it reads
each sealed segment again, a chunk at a time, all of its checksums and the chain. Damage ends the process by name,
without that segment's index. The next start reads the segment, names what is missing, and fetches it.
"""

from __future__ import annotations

import errno
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final
from zlib import crc32

from txlog.journal import format as fmt
from txlog.journal.format import FramedRecord, SegmentHeader
from txlog.journal.segment_gc import SegmentSet
from txlog.journal.segment_index import IndexBuilder, SegmentIdentity, encode_index, index_name
from txlog.journal.segment_pool import SegmentPool
from txlog.journal.vfs import Vfs, VfsFile
from txlog.model.errors import JournalBroken, JournalDamaged

SCRUB_CHUNK_BYTES: Final = 128 << 10
"""Read in one run: a millisecond. Bytes that bypassed the page cache are read from the disk, and syncs wait for that
read. Compiled code also does not release the interpreter's lock between two records."""
RECORD_OVERHEAD_BYTES: Final = 1 << 10
"""Cost of a record in addition to its bytes: this process reads its head, only the checksum reads a tail."""
WINDOW_BYTES: Final = SCRUB_CHUNK_BYTES
INDEX_FREE_SEGMENTS: Final = 2
"""Free segments required to write an index; an optimisation must not use the disk reserve."""


class Scrubber:
    """Chooses the sealed segment that is read again next: first those without an index, then each one that this start
    has not read. One at a time, the same one until it is done. It belongs to the journal's owner.

    ``whole``: segments that this start read and found without damage; ``indexed``: segments that it did not read.
    """

    def __init__(
        self,
        files: Vfs,
        space: SegmentPool,
        segments: SegmentSet,
        whole: Sequence[int],
        indexed: Sequence[int],
        on_error: Callable[[str], None],
    ) -> None:
        self._files = files
        self._space = space
        self._segments = segments
        self._without_index = deque(whole)
        self._unread = deque(indexed)
        self._on_error = on_error
        self._task: ScrubTask | None = None
        self._is_running = False

    def add_sealed(self, segment: int) -> None:
        """This segment receives no more writes."""
        self._without_index.append(segment)

    def begin(self) -> ScrubTask | None:
        """The next task; None when all is done, or another one runs."""
        if self._is_running:
            return None
        if self._task is None:
            self._task = self._next()
        self._is_running = self._task is not None
        return self._task

    def _next(self) -> ScrubTask | None:
        is_new = bool(self._without_index)
        waiting = self._without_index if is_new else self._unread
        while waiting:
            number = waiting.popleft()
            if number >= self._segments.first:
                self._space.refresh()
                room = self._space.unclaimed_bytes >= INDEX_FREE_SEGMENTS * self._space.segment_bytes
                name = self._space.next_name()
                return ScrubTask(self._files, number, name, is_new=is_new, may_write=room, on_error=self._on_error)
        return None

    def end(self, task: ScrubTask) -> None:
        """The task's ``run`` has returned."""
        assert task is self._task
        self._is_running = False
        if task.done:
            self._task = None
            self._space.refresh()

    def close(self) -> None:
        """Stop scrubbing. A task that runs closes its file itself, or the process does."""
        if self._task is not None and not self._is_running:
            self._task.abandon()


class ScrubTask:
    """One segment. Call :meth:`run` on any thread, also beside a sync, then ``Journal.end_scrub`` on the owner's;
    repeat both until :attr:`done`. ``making``: the name under which the index is written. ``may_write``: there is room
    for it. ``is_new``: it has no index yet."""

    def __init__(
        self,
        files: Vfs,
        segment: int,
        making: str,
        *,
        is_new: bool,
        may_write: bool,
        on_error: Callable[[str], None],
    ) -> None:
        self._files = files
        self.segment = segment
        self._temporary_name = making
        self.is_new = is_new
        self._may_write = may_write
        self._on_error = on_error
        self._scan: _SegmentScan | None = None
        self.done = False

    def run(self) -> None:
        """Read the next chunk. :class:`JournalDamaged`: a record that was promised is bad now. :class:`JournalBroken`:
        the disk fails. Both end the process; a full disk is no error."""
        assert not self.done
        try:
            self._run()
        except OSError as error:
            text = (
                f"reading {fmt.segment_name(self.segment)} again: {error}. Next: look at the disk, then start this"
                " process again"
            )
            self._on_error(text)
            raise JournalBroken(text) from error

    def _run(self) -> None:
        try:
            reading = self._scan or _SegmentScan(self._files, self.segment)
        except FileNotFoundError:  # a trim has removed it meanwhile
            self.done = True
            return
        except _DamageFound as bad:
            raise self._damaged(bad) from None
        self._scan = reading
        try:
            ended = reading.read_piece()
        except _DamageFound as bad:
            reading.close()
            raise self._damaged(bad) from None
        except OSError:
            reading.close()
            raise
        if ended:
            reading.close()
            self._write(reading.encode_index_file())
            self.done = True

    def abandon(self) -> None:
        """Close the file: no caller continues this task."""
        if self._scan is not None:
            self._scan.close()

    def _damaged(self, bad: _DamageFound) -> JournalDamaged:
        """Remove the index, so that the next start reads this segment."""
        self._remove_if_present(index_name(self.segment))
        text = (
            f"reading {fmt.segment_name(self.segment)} again: {bad}; it was good when it was written. Another master"
            " that holds it can repair it. Next: start this master again; it will name the damage and fetch it"
        )
        return JournalDamaged(text)

    def _remove_if_present(self, name: str) -> None:
        if name in self._files.list():
            self._files.remove(name)
            self._files.sync_folder()

    def _write(self, data: bytes) -> None:
        """Write under a temporary name first: an index gets its name when it is durable."""
        names = self._files.list()
        name = index_name(self.segment)
        if fmt.segment_name(self.segment) not in names:
            return
        if name in names and self._is_current(name, data):
            return
        if not self._may_write:
            return
        try:
            self._files.create(self._temporary_name, len(data))
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                return
            raise
        file = self._files.open(self._temporary_name)
        try:
            file.pwrite(0, data)
            file.fdatasync()
        finally:
            file.close()
        self._remove_if_present(name)
        self._files.rename(self._temporary_name, name)
        self._files.sync_folder()

    def _is_current(self, name: str, data: bytes) -> bool:
        if self._files.size(name) != len(data):
            return False
        file = self._files.open(name)
        try:
            return file.pread(0, len(data)) == data
        finally:
            file.close()


class _DamageFound(Exception):
    """What is damaged, and where."""


@dataclass(slots=True)
class _PartialTail:
    """A record whose tail is being read: the rest is ``start``..``stop``."""

    record: FramedRecord
    tail_crc: int
    start: int
    stop: int
    crc: int = 0


class _SegmentScan:
    """The records of one segment up to the end that the next segment's header records."""

    def __init__(self, files: Vfs, segment: int) -> None:
        self._segment = segment
        header, following = _read_header(files, segment), _read_header(files, segment + 1)
        self._header, self._following = header, following
        self._number, self._chain, self._offset = header.first, header.chain, header.records_from
        self._seed = fmt.segment_seed(header.birth, segment)
        self._builder = IndexBuilder(header.state_header.held)
        self._window, self._window_from = b"", 0
        self._open: _PartialTail | None = None
        self._left = 0
        self._file: VfsFile = files.open(fmt.segment_name(segment))

    def close(self) -> None:
        self._file.close()

    def encode_index_file(self) -> bytes:
        """The index, when all is read."""
        header, following = self._header, self._following
        self._builder.finish()
        identity = SegmentIdentity(
            header.birth, self._segment, header.first, following.first, header.chain, following.chain
        )
        return encode_index(identity, self._builder.events, self._builder.hashes)

    def read_piece(self) -> bool:
        """Read one chunk; returns whether it was the last one."""
        self._left = SCRUB_CHUNK_BYTES
        while self._number < self._following.first:
            if self._left <= 0:
                return False
            self._check_next_record()
        if self._chain != self._following.chain:
            raise _DamageFound("its last record has another chain hash than the next segment's header")
        return True

    def _check_next_record(self) -> None:
        """Check the next record, or as much of it as fits into this chunk."""
        tail = self._open or self._read_head()
        self._open = tail if self._check_tail(tail) else None
        if self._open is not None:
            return
        record, at, builder = tail.record, self._offset, self._builder
        if tail.crc != tail.tail_crc:
            raise _DamageFound(f"record {self._number} at byte {at} cannot be read")
        chain = fmt.next_chain_hash(self._chain, record.front)
        fits = chain == record.chain
        if not fits or not builder.add(record.kind, record.flags, record.a, record.b, record.front, at):
            raise _DamageFound(f"record {self._number} at byte {at} does not continue the record before it")
        self._chain = chain
        self._number += 1
        self._offset = at + record.length

    def _read_head(self) -> _PartialTail:
        at = self._offset
        raw = self._read_bytes(at, fmt.HEAD_BYTES)
        if len(raw) < fmt.HEAD_BYTES:
            raise _DamageFound(f"it ends at byte {at}, before record {self._number}")
        fields = fmt.RECORD_HEAD.unpack(raw)
        head_bytes, tail_crc = fmt.HEAD_BYTES + fields[5] + fields[10], fields[9]
        record = fmt.read_record_head(self._read_bytes(at, head_bytes), 0, self._seed)
        if record is None or record.number != self._number:
            raise _DamageFound(f"record {self._number} at byte {at} cannot be read")
        self._left -= head_bytes + RECORD_OVERHEAD_BYTES
        return _PartialTail(record, tail_crc, at + head_bytes, at + record.length)

    def _check_tail(self, tail: _PartialTail) -> bool:
        """Continue its checksum; returns whether some of the tail is left for the next chunk."""
        while tail.start < tail.stop:
            if self._left <= 0:
                return True
            data = self._read_bytes(tail.start, min(tail.stop - tail.start, WINDOW_BYTES))
            if not data:
                raise _DamageFound(f"it ends at byte {tail.start}, in record {self._number}")
            tail.crc = crc32(data, tail.crc)
            tail.start += len(data)
            self._left -= len(data)
        return False

    def _read_bytes(self, offset: int, count: int) -> bytes:
        at = offset - self._window_from
        if at < 0 or at + count > len(self._window):
            self._window, self._window_from, at = self._file.pread(offset, max(count, WINDOW_BYTES)), offset, 0
        return self._window[at : at + count]


def _read_header(files: Vfs, segment: int) -> SegmentHeader:
    name = fmt.segment_name(segment)
    file = files.open(name)
    try:
        header = fmt.load_segment_header(lambda count: file.pread(0, count), segment)
    except fmt.UnknownSegmentFormat as wrong:
        raise _DamageFound(f"{name} has {wrong}") from None
    finally:
        file.close()
    if header is None:
        raise _DamageFound(f"no copy of the header of {name} can be read")
    return header
