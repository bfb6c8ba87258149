"""The change log: the change sets of the log in files, in order, bounded in age.

One process writes it. A record survives a kill when :meth:`ChangeLog.flush` returns, and a loss of power when
:meth:`ChangeLog.sync` returns. After a crash the last file may end in a torn record, which is cut off. Any other bad
record is damage and is refused by name: what was on the disk is lost, and the store is made again.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from txlog.changesets.change_log_errors import ChangeLogDamaged, ChangesGone, UnknownChangeLog
from txlog.changesets.change_record import (
    HEAD_BYTES,
    BadHead,
    CapturedEntry,
    ChangeRecord,
    FileHead,
    RecordKind,
    decode_head,
    decode_record,
    encode_record,
    holds_record,
    next_chain,
)
from txlog.changesets.change_set import ChangeSet
from txlog.config.atomic_file import sync_folder, write_durably

FILE_BYTES: Final = 16 << 20
"""A file that is larger gets no further record."""
FILE_MS: Final = 3_600_000
"""Nor does one whose first record is older, in milliseconds: only whole files are removed."""
_SUFFIX: Final = ".changes"


class LogEnd(msgspec.Struct, frozen=True):
    """The last whole entry: its index and hash in the log, and the chain there."""

    index: int
    hash: bytes
    chain: bytes


class _LogFile(NamedTuple):
    path: Path
    head: FileHead


class ChangeLog:
    """The files in one folder. ``synced``: after a loss of power, the index up to which records were synced; what is
    bad above it is cut off with all that follows. None: only a torn record at the end is.

    ``parts``: the changes of operations of an entry that is not whole, from an earlier process. The owner takes them
    back and then calls :meth:`drop_parts`. ``is_large_begun``: an earlier process was at an entry with a large change:
    of the store only the last checkpoint is sure."""

    def __init__(
        self, folder: Path, file_bytes: int = FILE_BYTES, synced: int | None = None, file_ms: int = FILE_MS
    ) -> None:
        self._folder = folder
        self._synced = synced
        self._buffer = bytearray()
        self._file_bytes = file_bytes
        self._file_ms = file_ms
        self._files = [self._read_file(path) for path in sorted(folder.glob(f"*{_SUFFIX}"))]
        self._newest_ms: dict[Path, int] = {}
        self.parts: list[ChangeSet] = []
        self.is_large_begun = False
        if not self._files:
            raise FileNotFoundError(folder)
        self._open_last()

    @classmethod
    def create(cls, folder: Path, head: FileHead, file_bytes: int = FILE_BYTES) -> ChangeLog:
        """An empty log that begins after a position."""
        folder.mkdir(parents=True, exist_ok=True)
        _create_file(folder, head)
        return cls(folder, file_bytes)

    def close(self) -> None:
        """Write what was appended, and close the file."""
        self.flush()
        os.close(self._fd)

    def abandon(self) -> None:
        """Close the file without what was not written yet."""
        self._buffer.clear()
        os.close(self._fd)

    # -- opening

    def _read_file(self, path: Path) -> _LogFile:
        with path.open("rb") as file:
            data = file.read(HEAD_BYTES)
        try:
            return _LogFile(path, decode_head(data))
        except BadHead as wrong:
            error = UnknownChangeLog if wrong.is_unknown else ChangeLogDamaged
            raise error(f"{path}: {wrong}") from None

    def _open_last(self) -> None:
        """Find the end of the last file, and cut off a torn record."""
        last = self._files[-1]
        head = last.head
        self.end = LogEnd(head.index, head.hash, head.chain)
        self._whole = HEAD_BYTES
        self._first_ms: int | None = None
        offset = HEAD_BYTES
        for record, offset in self._scan(last, is_last=True):
            self._first_ms = record.at_ms if self._first_ms is None else self._first_ms
            if record.record is RecordKind.PART:
                self.parts.append(record.change_set)
            elif record.record is RecordKind.LARGE_BEGUN:
                self.is_large_begun = True
            else:
                self.parts.clear()
                self.is_large_begun = False
                self.end = LogEnd(record.entry.index, record.entry.hash, record.chain)
                self._whole = offset
        self._fd = os.open(last.path, os.O_RDWR)
        self._size = offset
        if os.fstat(self._fd).st_size > offset:
            os.ftruncate(self._fd, offset)
            os.fsync(self._fd)

    def _scan(self, file: _LogFile, *, is_last: bool) -> Iterator[tuple[ChangeRecord, int]]:
        """The records of a file, each with the offset behind it, up to a torn tail. Raises
        :class:`ChangeLogDamaged`."""
        data = file.path.read_bytes()
        at, index, chain = HEAD_BYTES, file.head.index, file.head.chain
        while at < len(data):
            found = decode_record(data, at)
            if found is None:
                is_unsynced = self._synced is not None and index >= self._synced
                if is_last and (is_unsynced or not holds_record(data, at + 1)):
                    return
                raise ChangeLogDamaged(f"{file.path}: the record at offset {at} is damaged; make the store again")
            record, at = found
            if record.record.is_entry:
                index += 1
                chain = next_chain(chain, record.entry, record.change)
                if record.entry.index != index or record.chain != chain:
                    raise ChangeLogDamaged(f"{file.path}: the record before offset {at} does not continue the chain")
            yield record, at

    # -- writing

    def append_part(self, entry: CapturedEntry, change: ChangeSet, at_ms: int) -> None:
        """Record the change of one operation of an entry."""
        self._write(ChangeRecord(RecordKind.PART, entry, change.encode(), self.end.chain, at_ms))

    def append(self, entry: CapturedEntry, change: ChangeSet, at_ms: int) -> None:
        """Record an entry, the next one of the log."""
        self._append_entry(RecordKind.ENTRY, entry, change.encode(), at_ms)

    def begin_large(self, entry: CapturedEntry, at_ms: int) -> None:
        """Record that the store changes by the entry that comes next, and that its change is not kept."""
        self._write(ChangeRecord(RecordKind.LARGE_BEGUN, entry, b"", self.end.chain, at_ms))

    def append_large(self, entry: CapturedEntry, kept: bytes, at_ms: int) -> None:
        """Record the entry of which the change is not kept. ``kept``: what
        :func:`~txlog.changesets.change_record.encode_large` says of it."""
        self._append_entry(RecordKind.LARGE, entry, kept, at_ms)

    def _append_entry(self, record: RecordKind, entry: CapturedEntry, payload: bytes, at_ms: int) -> None:
        assert entry.index == self.end.index + 1, (entry.index, self.end.index)
        chain = next_chain(self.end.chain, entry, payload)
        self._write(ChangeRecord(record, entry, payload, chain, at_ms))
        self._whole = self._size
        self.end = LogEnd(entry.index, entry.hash, chain)

    def _is_file_full(self, now_ms: int) -> bool:
        is_old = self._first_ms is not None and now_ms - self._first_ms >= self._file_ms
        return self._size > self._file_bytes or is_old

    def _write(self, record: ChangeRecord) -> None:
        if self._size == self._whole and self._is_file_full(record.at_ms):
            self._begin_file()  # never between the parts of an entry and the entry
        self._first_ms = record.at_ms if self._first_ms is None else self._first_ms
        data = encode_record(record)
        self._buffer += data
        self._size += len(data)

    def flush(self) -> None:
        """Everything that was appended is with the operating system, and survives a kill of this process."""
        at = self._size - len(self._buffer)
        while self._buffer:
            written = os.pwrite(self._fd, self._buffer, at)
            del self._buffer[:written]
            at += written

    def _begin_file(self) -> None:
        self.flush()
        os.fsync(self._fd)
        os.close(self._fd)
        path = _create_file(self._folder, FileHead(self.end.index, self.end.hash, self.end.chain))
        self._files.append(self._read_file(path))
        self._fd = os.open(path, os.O_RDWR)
        self._size = self._whole = HEAD_BYTES
        self._first_ms = None

    def sync(self) -> None:
        """Everything that was appended is on the disk."""
        self.flush()
        os.fdatasync(self._fd)

    def drop_parts(self) -> None:
        """Cut off the parts of an entry that is not whole."""
        self.parts.clear()
        self.is_large_begun = False
        self.flush()
        os.ftruncate(self._fd, self._whole)
        os.fsync(self._fd)
        self._size = self._whole

    def truncate(self, index: int) -> None:
        """Cut off the entries above an index, on the disk when this returns."""
        assert self.begin.index <= index <= self.end.index, (self.begin.index, index, self.end.index)
        self.close()
        while self._files[-1].head.index > index:
            self._files.pop().path.unlink()
        last = self._files[-1]
        offset, self.end = HEAD_BYTES, LogEnd(last.head.index, last.head.hash, last.head.chain)
        self._newest_ms.clear()
        self._first_ms = None
        for record, end in self._scan(last, is_last=True):
            if record.entry.index > index:
                break
            self._first_ms = record.at_ms if self._first_ms is None else self._first_ms
            if record.record.is_entry:
                offset, self.end = end, LogEnd(record.entry.index, record.entry.hash, record.chain)
        self._fd = os.open(last.path, os.O_RDWR)
        os.ftruncate(self._fd, offset)
        os.fsync(self._fd)
        sync_folder(self._folder)
        self.parts.clear()
        self.is_large_begun = False
        self._size = self._whole = offset

    def prune(self, below: int, before_ms: int) -> None:
        """Remove the oldest files: those of which all entries are at or below ``below`` and written before
        ``before_ms``."""
        while len(self._files) > 1 and self._files[1].head.index <= below and self._is_older(self._files[0], before_ms):
            path = self._files.pop(0).path
            self._newest_ms.pop(path, None)
            path.unlink()

    def would_prune(self, before_ms: int) -> bool:
        """Whether :meth:`prune` would remove a file if the store were complete above it."""
        return len(self._files) > 1 and self._is_older(self._files[0], before_ms)

    def _is_older(self, file: _LogFile, before_ms: int) -> bool:
        """Whether all records of a file that gets no more of them are older."""
        newest = self._newest_ms.get(file.path)
        if newest is None:
            newest = max((record.at_ms for record, _ in self._scan(file, is_last=False)), default=0)
            self._newest_ms[file.path] = newest
        return newest < before_ms

    # -- reading

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.path.stat().st_size for file in self._files)

    @property
    def begin(self) -> LogEnd:
        """The position before the first entry that is kept."""
        head = self._files[0].head
        return LogEnd(head.index, head.hash, head.chain)

    def entries(self, after: int) -> Iterator[ChangeRecord]:
        """The records of the entries above an index. Raises :class:`ChangesGone` where they are not kept, and
        :class:`ChangeLogDamaged`."""
        first = self.begin.index
        if after < first:
            raise ChangesGone(
                f"change sets are kept from index {first + 1} on, so none can be given from {after + 1} on"
            )
        self.flush()
        begin = max(0, bisect_right([file.head.index for file in self._files], after) - 1)
        for file in self._files[begin:]:
            for record, _ in self._scan(file, is_last=file is self._files[-1]):
                if record.record.is_entry and record.entry.index > after:
                    yield record


def _create_file(folder: Path, head: FileHead) -> Path:
    """A file with its head alone: it appears whole, or not at all."""
    path = folder / f"{head.index:020d}{_SUFFIX}"
    write_durably(path, head.encode())
    return path
