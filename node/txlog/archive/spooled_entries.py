"""Entries that a store has to execute in order, in a temporary file: once they are proved, nothing is read from the
target again."""

from __future__ import annotations

from collections.abc import Iterator
from tempfile import TemporaryFile
from types import TracebackType
from typing import Final, Self

import msgspec

from txlog.archive.block_codec import ArchivedEntry
from txlog.model.errors import Unavailable

BATCH_ENTRIES: Final = 500
BATCH_BYTES: Final = 1 << 16
"""Payload bytes in one request, as the pipeline sends them; a larger entry has its own request."""
_LENGTH_BYTES: Final = 4


class SpooledEntry(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """``txid``: for messages."""

    index: int
    txid: str
    kind: int
    payload: bytes


class SpooledEntries:
    """:meth:`add` in order, then :meth:`batches`."""

    def __init__(self) -> None:
        self._file = TemporaryFile(prefix="txlog-restore-")  # noqa: SIM115 - closed by the context
        self.entries = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._file.close()

    def add(self, entry: ArchivedEntry) -> None:
        """Stores what a store executes of it."""
        packed = msgspec.msgpack.encode(SpooledEntry(entry.index, str(entry.txid), entry.kind, entry.payload))
        try:
            self._file.write(len(packed).to_bytes(_LENGTH_BYTES, "little") + packed)
        except OSError as error:
            raise Unavailable(
                "DiskFull", f"cannot write a temporary file: {error.strerror}; set TMPDIR to a folder with room"
            ) from error
        self.entries += 1

    def batches(self) -> Iterator[list[SpooledEntry]]:
        """Entries for one request each, in order."""
        held: list[SpooledEntry] = []
        size = 0
        for entry in self._read():
            if held and (len(held) >= BATCH_ENTRIES or size + len(entry.payload) > BATCH_BYTES):
                yield held
                held, size = [], 0
            held.append(entry)
            size += len(entry.payload)
        if held:
            yield held

    def _read(self) -> Iterator[SpooledEntry]:
        self._file.seek(0)
        while length := self._file.read(_LENGTH_BYTES):
            packed = self._file.read(int.from_bytes(length, "little"))
            yield msgspec.msgpack.decode(packed, type=SpooledEntry)
