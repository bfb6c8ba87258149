"""The runs of the last records, as they came: peers and workers mostly ask for what has just arrived."""

from __future__ import annotations

from typing import Final

from txlog.model.entry import Run

ITEM_BYTES: Final = 200
"""What an item costs in memory beside its payload: the object, its stamp, the bytes object's head."""


class Recent:
    """At most ``bytes_max`` bytes of synced records, and every record that is not synced: those stand nowhere else."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._runs: dict[int, tuple[int, int, Run]] = {}

    def put(self, slot: int, number: int, run: Run, payload_bytes: int) -> None:
        """``slot``: the origin's in the index; ``number``: the record's."""
        size = payload_bytes + ITEM_BYTES * len(run.items)
        self._runs[slot << 64 | run.first_seq] = (number, size, run)
        self._bytes += size

    def get(self, slot: int, first_seq: int) -> Run | None:
        """The run of the record that begins with this seq."""
        found = self._runs.get(slot << 64 | first_seq)
        return found[2] if found else None

    def shrink(self, synced: int) -> None:
        """Forget the oldest records up to number ``synced`` until the rest fits."""
        while self._bytes > self._bytes_max and self._runs:
            key = next(iter(self._runs))
            number, size, _ = self._runs[key]
            if number > synced:
                return
            del self._runs[key]
            self._bytes -= size
