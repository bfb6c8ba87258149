"""The raw bytes of a segment: where its records stop, and whether good ones follow after that."""

from __future__ import annotations

from collections.abc import Iterator

from txlog.journal import format as fmt
from txlog.journal.format import FramedRecord
from txlog.journal.recovery_table import EndOfRecords
from txlog.journal.vfs import ZEROS, Vfs


def read_prefix(files: Vfs, name: str, count: int) -> bytes:
    """At most ``count`` bytes of a file."""
    file = files.open(name)
    try:
        return file.pread(0, count)
    finally:
        file.close()


def read_whole(files: Vfs, name: str) -> bytes:
    """The whole file at its present length."""
    return read_prefix(files, name, files.size(name))


def classify_end(data: bytes, offset: int) -> EndOfRecords:
    """The kind of bytes where no good record is. Eight zeros prove that there was none: each record begins with a
    mark."""
    rest = len(data) - offset
    if rest >= 8 and not data[offset : offset + 8].strip(b"\0"):
        return EndOfRecords.ZEROS if _is_all_zeros(data, offset) else EndOfRecords.BROKEN
    return EndOfRecords.TOO_SHORT if rest < fmt.HEAD_BYTES else EndOfRecords.BROKEN


def _is_all_zeros(data: bytes, offset: int) -> bool:
    whole = (len(data) - offset) // len(ZEROS) * len(ZEROS)
    blocks = all(data.startswith(ZEROS, at) for at in range(offset, offset + whole, len(ZEROS)))
    return blocks and data.endswith(ZEROS[: len(data) - offset - whole])


def find_next_record(data: bytes, offset: int, seed: int, lowest: int) -> tuple[FramedRecord | None, int]:
    """The next good record with number ``lowest`` or above, and the highest ``synced`` of all such from there on.

    A copy of a record inside a payload is older than the record around it, so its number is lower."""
    first: FramedRecord | None = None
    promise = 0
    for record in iterate_valid_records(data, offset, seed, lowest):
        first = first or record
        promise = max(promise, record.synced)
    return first, promise


def iterate_valid_records(data: bytes, offset: int, seed: int, lowest: int = 0) -> Iterator[FramedRecord]:
    """Records that can be read from ``offset`` on, however far apart, with number ``lowest`` or above."""
    at = data.find(fmt.RECORD_MARK, offset)
    while at >= 0:
        record = fmt.read_record(data, at, seed) if at % 8 == 0 else None
        step = 1
        if record is not None and record.number >= lowest:
            yield record
            step = record.length
        at = data.find(fmt.RECORD_MARK, at + step)
