"""Reads the change log of a running capture store, from any thread.

The owner only appends, removes old files, and cuts the log after a rejoin. A reader opens the files for each page.
What it reads while the owner cuts the log fails a checksum or the chain, and the page ends before it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from threading import Lock
from typing import Final

import msgspec

from txlog.changesets.change_log_errors import ChangesGone
from txlog.changesets.change_record import (
    HEAD_BYTES,
    BadHead,
    ChangeRecord,
    FileHead,
    decode_head,
    decode_record,
    next_chain,
)
from txlog.model.errors import LogAhead, LogDiverged, Unavailable

PIECE_BYTES: Final = 1 << 20
"""Bytes that are read at a time; a larger record is read whole."""
CURSORS_MAX: Final = 256
"""Places that are remembered, so that the next page of a follower does not read a file from its beginning."""


class _Cursor(msgspec.Struct, frozen=True):
    """A place in a file: after the record of the entry with this index and hash, which begins at ``record_at``, or
    after the head (0)."""

    path: Path
    record_at: int
    offset: int
    index: int
    hash: bytes
    chain: bytes


class ChangeLogReader:
    """The change log in ``folder``."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._cursors: OrderedDict[tuple[int, bytes], _Cursor] = OrderedDict()
        self._lock = Lock()

    def begin(self) -> FileHead:
        """The position before the first entry that is kept. Raises :class:`Unavailable` without a change log."""
        for _, head in self._heads():
            return head
        raise Unavailable("ChangeSetsLoading", "there is no change log yet; ask again")

    def read(self, after: int, at_hash: bytes | None, upto: int, bytes_max: int) -> tuple[bytes, list[ChangeRecord]]:
        """The hash of the log at ``after``, and the records of the entries above it: none above ``upto``, and no more
        than ``bytes_max`` of change sets, but at least one. ``at_hash``: the hash that the caller knows there.

        Raises :class:`ChangesGone` where they are not kept, :class:`LogAhead` above the end, :class:`LogDiverged` for
        another hash, and :class:`Unavailable` while the log is being cut."""
        start = self._find(after, at_hash)
        records: list[ChangeRecord] = []
        size = 0
        for record in self._records(start):
            if record.entry.index > upto or (records and size + len(record.change) > bytes_max):
                break
            records.append(record)
            size += len(record.change)
            if size >= bytes_max:
                break
        return start.hash, records

    def _find(self, after: int, at_hash: bytes | None) -> _Cursor:
        """The place after an entry."""
        known = None if at_hash is None else self._cursors.get((after, at_hash))
        if known is not None and self._is_sound(known):
            return known
        found: _Cursor | None = None
        for path, head in self._heads():
            if head.index > after:
                break
            found = _at_head(path, head)
        if found is None:
            raise ChangesGone(
                f"change sets are kept from index {self.begin().index + 1} on, so none can be given from {after + 1} on"
            )
        for cursor, _ in self._scan(found) if found.index < after else ():
            found = cursor
            if cursor.index == after:
                break
        if found.index < after:
            raise LogAhead(f"index {after} is above {found.index}, where the change sets end; ask again later")
        if at_hash not in (None, found.hash):
            raise LogDiverged(f"at index {after} the hash of the change log is {found.hash.hex()}")
        return found

    def _is_sound(self, cursor: _Cursor) -> bool:
        """Whether the file still has this record there. After a cut it may not."""
        for _, end, record in self._raw(cursor.path, cursor.record_at):
            return end == cursor.offset and record.chain == cursor.chain
        return False

    def _records(self, start: _Cursor) -> Iterator[ChangeRecord]:
        """The records behind a place, through all files."""
        at: _Cursor | None = start
        while at is not None:
            for cursor, record in self._scan(at):
                at = cursor
                self._remember(cursor)
                yield record
            at = self._next_file(at)

    def _next_file(self, at: _Cursor) -> _Cursor | None:
        for path, head in self._heads():
            if path.name > at.path.name:
                is_next = (head.index, head.hash, head.chain) == (at.index, at.hash, at.chain)
                return _at_head(path, head) if is_next else None
        return None

    def _remember(self, cursor: _Cursor) -> None:
        with self._lock:
            self._cursors[cursor.index, cursor.hash] = cursor
            self._cursors.move_to_end((cursor.index, cursor.hash))
            while len(self._cursors) > CURSORS_MAX:
                self._cursors.popitem(last=False)

    def _scan(self, start: _Cursor) -> Iterator[tuple[_Cursor, ChangeRecord]]:
        """The records of entries behind a place in its file, each with the place behind it. Ends before the first one
        that is not whole, or does not continue the chain."""
        index, chain = start.index, start.chain
        for begin, end, record in self._raw(start.path, start.offset):
            if not record.record.is_entry:
                continue
            index, chain = index + 1, next_chain(chain, record.entry, record.change)
            if record.entry.index != index or record.chain != chain:
                return
            yield _Cursor(start.path, begin, end, index, record.entry.hash, chain), record

    def _raw(self, path: Path, offset: int) -> Iterator[tuple[int, int, ChangeRecord]]:
        """All whole records of a file from an offset on, each with its begin and its end."""
        data, base, at = b"", offset, 0
        try:
            file = path.open("rb")
        except FileNotFoundError:
            return
        with file:
            file.seek(offset)
            piece = PIECE_BYTES
            while True:
                found = decode_record(data, at)
                if found is None:
                    more = file.read(piece)
                    if not more:
                        return
                    data, base, at = data[at:] + more, base + at, 0
                    piece = min(2 * piece, 64 * PIECE_BYTES)
                    continue
                record, end = found
                yield base + at, base + end, record
                at = end

    def _heads(self) -> list[tuple[Path, FileHead]]:
        found: list[tuple[Path, FileHead]] = []
        for path in sorted(self._folder.glob("*.changes")):
            try:
                with path.open("rb") as file:
                    found.append((path, decode_head(file.read(HEAD_BYTES))))
            except (FileNotFoundError, BadHead):
                continue  # it was removed meanwhile, or is damaged: the owner says so at its next start
        return found


def _at_head(path: Path, head: FileHead) -> _Cursor:
    return _Cursor(path, 0, HEAD_BYTES, head.index, head.hash, head.chain)
