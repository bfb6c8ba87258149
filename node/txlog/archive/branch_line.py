"""Entries of one branch of the log that are read and not yet archived, and when they are due. Pure."""

from __future__ import annotations

from collections import deque
from typing import Final

from txlog.archive.block_codec import ArchivedEntry
from txlog.archive.file_name import Node
from txlog.archive.format import FACT_BYTES_MAX, fact_bytes
from txlog.model.view import NO_VIEW, Number

ENTRIES_MAX: Final = 100_000
"""Entries of one file: some 50 MB of memory while they wait."""
HASHES_KEPT: Final = 20_000
"""The chain hashes of the last entries, for masters that are a little behind."""
_PUTS_KEPT: Final = 100


class PutTimes:
    """How long the last writes to the target took."""

    def __init__(self) -> None:
        self._seconds: deque[float] = deque(maxlen=_PUTS_KEPT)

    def add(self, seconds: float) -> None:
        """One more write."""
        self._seconds.append(seconds)

    @property
    def p99(self) -> float:
        """The 99th percentile, in seconds; 0 before the first write."""
        ordered = sorted(self._seconds)
        return ordered[-1 - len(ordered) // 100] if ordered else 0.0


class BranchLine:
    """Archived up to ``base``, read up to ``end``. ``read_at``: when the first waiting entry was read, by the caller's
    clock. ``after_gap``: what precedes ``base`` is not in the stream. ``view``, ``settled``: as the last page had them.
    ``sure_at``: when ``base`` was certainly the end of a file, by the caller's clock."""

    def __init__(self, base: Node, *, after_gap: bool = False) -> None:
        self.base = base
        self.after_gap = after_gap
        self.entries: list[ArchivedEntry] = []
        self.plain_bytes = self.fact_bytes = 0
        self._hashes: deque[bytes] = deque([base.hash], HASHES_KEPT)
        self.read_at = self.sure_at = 0.0
        self.view: Number = NO_VIEW
        self.settled = 0

    @property
    def end(self) -> Node:
        """The place of the last entry that was read."""
        return Node(self.entries[-1].index, self.entries[-1].hash) if self.entries else self.base

    def hash_at(self, index: int) -> bytes | None:
        """The chain hash at an index at or below :attr:`end`; None for one that is no longer kept."""
        back = self.end.index - index
        return self._hashes[-1 - back] if 0 <= back < len(self._hashes) else None

    def add(self, entries: list[ArchivedEntry], view: Number, settled: int, now: float) -> None:
        """Entries that follow :attr:`end`, of a page of this view."""
        if entries and not self.entries:
            self.read_at = now
        self.entries += entries
        self._hashes.extend(entry.hash for entry in entries)
        self.plain_bytes += sum(entry.plain_bytes for entry in entries)
        self.fact_bytes += sum(map(fact_bytes, entries))
        self.view, self.settled = view, settled

    def is_full(self, file_bytes: int) -> bool:
        """Whether the waiting entries fill a file."""
        is_large = self.plain_bytes >= file_bytes or self.fact_bytes >= FACT_BYTES_MAX
        return is_large or len(self.entries) >= ENTRIES_MAX

    def is_due(self, now: float, max_delay_s: float, put_s: float, file_bytes: int) -> bool:
        """Whether a file must be written now, when a write takes ``put_s``: so that no entry waits for longer than
        ``max_delay_s``."""
        if not self.entries:
            return False
        return self.is_full(file_bytes) or now - self.read_at + put_s >= max_delay_s

    def take_file(self, file_bytes: int) -> list[ArchivedEntry]:
        """The entries of the next file: the longest prefix within ``file_bytes`` and the bounds of a header, at least
        one."""
        size = facts = 0
        for at, entry in enumerate(self.entries):
            size += entry.plain_bytes
            facts += fact_bytes(entry)
            if at and (size > file_bytes or facts > FACT_BYTES_MAX or at >= ENTRIES_MAX):
                return self.entries[:at]
        return list(self.entries)

    def archived(self, count: int, now: float) -> None:
        """The first ``count`` waiting entries are on the target."""
        last = self.entries[count - 1]
        self.plain_bytes -= sum(entry.plain_bytes for entry in self.entries[:count])
        self.fact_bytes -= sum(map(fact_bytes, self.entries[:count]))
        del self.entries[:count]
        self.base, self.after_gap, self.read_at = Node(last.index, last.hash), False, now
