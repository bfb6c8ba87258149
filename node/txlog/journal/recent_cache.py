"""The runs of the latest records, as appended: peers and workers mostly ask for what has just arrived."""

from __future__ import annotations

from collections import deque
from typing import Final

from txlog.model.entry import TransactionRun

ITEM_BYTES: Final = 200
"""Memory of an item in addition to its payload: the object, its stamp, the bytes object's head."""
EVICTIONS_MAX: Final = 64
"""Evictions at once, in addition to twice the number of new runs. After a large run thousands of small ones must go,
and that is too much for one turn."""


class RecentCache:
    """Some ``bytes_max`` bytes of synced records, and every unsynced record: those exist nowhere else."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._runs: dict[int, tuple[int, int, TransactionRun]] = {}
        self._oldest: deque[int] = deque()
        """The keys in order of arrival. (The first key of a dict is slow to find after many removals from its
        front.)"""
        self._came = 0

    def put(self, slot: int, number: int, run: TransactionRun, payload_bytes: int) -> None:
        """``slot``: the origin's in the index; ``number``: the record's."""
        size = payload_bytes + ITEM_BYTES * len(run.items)
        key = slot << 64 | run.first_seq
        before = self._runs.pop(key, None)
        if before is not None:
            self._bytes -= before[1]
            self._oldest.remove(key)
        self._runs[key] = (number, size, run)
        self._oldest.append(key)
        self._bytes += size
        self._came += 1

    def get(self, slot: int, first_seq: int) -> TransactionRun | None:
        """The run of the record that begins with this seq."""
        found = self._runs.get(slot << 64 | first_seq)
        return found[2] if found else None

    def shrink(self, synced: int) -> None:
        """Forget the oldest records up to number ``synced`` until the rest fits, or enough of them for now."""
        left, self._came = EVICTIONS_MAX + 2 * self._came, 0
        while self._bytes > self._bytes_max and self._oldest and left:
            number, size, _ = self._runs[self._oldest[0]]
            if number > synced:
                return
            del self._runs[self._oldest.popleft()]
            self._bytes -= size
            left -= 1
