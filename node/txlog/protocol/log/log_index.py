"""The agreed order as an index in memory: the transaction at each index, and the chain hash after every entry.

An entry takes 17 bytes: its origin's slot (1) and its chain hash (16). Each run of entries of one origin takes 16 more.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from typing import Final

from txlog.model.entry import Span
from txlog.model.hashes import HASH_BYTES, chain_start
from txlog.model.ids import Origin
from txlog.model.records import EMPTY_LOG_START, LogStart

_SLOTS_MAX: Final = 256
"""A slot is one byte. A view has one less: a learner that no view admits is one more."""
_MARK_INTERVAL: Final = 1024
"""Every so many entries the seqs reached are noted, so that no look-up counts from the beginning."""


class OriginRuns:
    """Where the transactions of one origin are stored in the log after the log start. They are counted from 0. Each run
    of neighbours is one row: the index of its first one, and how many of the origin precede it."""

    __slots__ = ("count", "first_indexes", "offset")

    def __init__(self) -> None:
        self.first_indexes = array("Q")
        self.offset = array("Q")
        self.count = 0

    def add(self, index: int, count: int) -> None:
        """Add ``count`` transactions from this index on, which is above all others."""
        rows = len(self.first_indexes)
        if not rows or self.first_indexes[rows - 1] + self.count - self.offset[rows - 1] != index:
            self.first_indexes.append(index)
            self.offset.append(self.count)
        self.count += count

    def drop_last(self, count: int) -> None:
        """Forget the last ``count`` transactions."""
        self.count -= count
        rows = bisect_left(self.offset, self.count)
        del self.first_indexes[rows:]
        del self.offset[rows:]

    def index_of(self, number: int) -> int:
        """The log index of the origin's transaction with this number, counted from 0."""
        row = bisect_right(self.offset, number) - 1
        return self.first_indexes[row] + number - self.offset[row]

    def count_within(self, index: int) -> int:
        """How many transactions are at or before this index."""
        row = bisect_right(self.first_indexes, index) - 1
        if row < 0:
            return 0
        end = self.offset[row + 1] if row + 1 < len(self.offset) else self.count
        return min(end, self.offset[row] + index - self.first_indexes[row] + 1)


class LogIndex:
    """Order and hashes of the log. ``length`` is the last index; index 0 is the empty log. An origin's seqs in the
    log run from 1 without a gap. Below ``start`` only the content of ``log_start`` is kept. Callers ask only for
    indexes that are 0, ``start`` or above."""

    def __init__(self, cluster_id: bytes, origins: list[Origin], log_start: LogStart = EMPTY_LOG_START) -> None:
        assert len(origins) <= _SLOTS_MAX, "an origin's slot is one byte"
        self.empty_log_hash = chain_start(cluster_id)
        self.origins = origins
        self._slots = {origin: slot for slot, origin in enumerate(origins)}
        self._order = bytearray()
        self._hashes = bytearray()
        self.log_start = log_start
        self.start = log_start.index
        self._last = self.log_start_hash
        self._seqs_at_start = [log_start.last_seq_of(*origin) for origin in origins]  # slot -> last seq there
        self._runs = [OriginRuns() for _ in origins]  # slot -> where the seqs after these are
        self._seqs_at_marks = [tuple(0 for _ in origins)]  # per mark: seqs in the log between the log start and it

    @property
    def log_start_hash(self) -> bytes:
        """Chain hash at ``start``."""
        return self.log_start.hash if self.log_start.index else self.empty_log_hash

    @property
    def served_from(self) -> int:
        """The lowest position whose later entries can be served; from the log start up to there, payloads are missing
        of synchronous transactions that take effect there (rule S13)."""
        return max(self.start, self.log_start.served_from)

    @property
    def length(self) -> int:
        """The last index of the log."""
        return self.start + len(self._order)

    def has_hash_at(self, index: int) -> bool:
        """Whether the hash at this index is known here."""
        return index == 0 or self.start <= index <= self.length

    def trim(self, log_start: LogStart) -> None:
        """Discard the entries up to ``log_start.index``."""
        assert self.hash_at(log_start.index) == log_start.hash, "the log start of another log"
        order, hashes = (
            bytes(self._order[log_start.index - self.start :]),
            self._hashes[self._hash_offset(log_start.index) :],
        )
        self._reset(log_start)
        self.append(order, bytes(hashes))

    def reset_to(self, log_start: LogStart) -> None:
        """Replace all that was known by another master's log start (a snapshot)."""
        self._reset(log_start)

    def _reset(self, log_start: LogStart) -> None:
        self.log_start, self.start = log_start, log_start.index
        self._last = self.log_start_hash
        self._order, self._hashes = bytearray(), bytearray()
        self._seqs_at_start = [log_start.last_seq_of(*origin) for origin in self.origins]
        self._runs = [OriginRuns() for _ in self.origins]
        self._seqs_at_marks = [tuple(0 for _ in self.origins)]

    def _hash_offset(self, index: int) -> int:
        """The offset at which the hashes after this index begin."""
        return (index - self.start) * HASH_BYTES

    @property
    def hash(self) -> bytes:
        """Chain hash after the last entry."""
        return self._last

    def hash_at(self, index: int) -> bytes:
        """Chain hash of the log truncated after ``index`` (0 ≤ index ≤ length)."""
        assert 0 <= index <= self.length, (index, self.length)
        if index == self.length:
            return self.hash
        if index == 0:
            return self.empty_log_hash
        if index == self.start:
            return self.log_start_hash
        assert index > self.start, f"index {index} was trimmed, the log is kept from {self.start} on"
        at = self._hash_offset(index)
        return bytes(self._hashes[at - HASH_BYTES : at])

    def append(self, order: bytes, hashes: bytes) -> None:
        """Append entries to the log: the slot of each, and the chain hash after each, concatenated."""
        assert len(hashes) == len(order) * HASH_BYTES
        done = 0
        while done < len(order):
            part = order[done : done + _MARK_INTERVAL - len(self._order) % _MARK_INTERVAL]
            self._append_part(part)
            done += len(part)
        if hashes:
            self._hashes += hashes
            self._last = hashes[-HASH_BYTES:]

    def load(self, order: bytearray, hashes: bytearray) -> None:
        """:meth:`append` a whole log to an empty index. The arguments are kept, not copied."""
        assert not self._order
        assert len(hashes) == len(order) * HASH_BYTES
        for at in range(0, len(order), _MARK_INTERVAL):
            self._append_part(bytes(order[at : at + _MARK_INTERVAL]))
        self._hashes = hashes
        self._last = bytes(hashes[-HASH_BYTES:]) if hashes else self._last

    def _append_part(self, order: bytes) -> None:
        index = self.length + 1
        at, end = 0, len(order)
        while at < end:
            slot, first = order[at], at
            at = end if not first and order.count(slot) == end else at + 1
            while at < end and order[at] == slot:
                at += 1
            self._runs[slot].add(index + first, at - first)
        self._order += order
        if len(self._order) % _MARK_INTERVAL == 0:
            self._seqs_at_marks.append(tuple([runs.count for runs in self._runs]))

    def truncate(self, index: int) -> list[int]:
        """Discard the entries after ``index``. Returns how many each slot had of them."""
        assert index >= self.start, f"cut behind {index}, the log is kept from {self.start} on"
        at = index - self.start
        gone = self._order[at:]
        counts = [gone.count(slot) for slot in range(len(self.origins))]
        del self._order[at:]
        del self._hashes[at * HASH_BYTES :]
        del self._seqs_at_marks[at // _MARK_INTERVAL + 1 :]
        self._last = bytes(self._hashes[-HASH_BYTES:]) if self._hashes else self.log_start_hash
        for runs, count in zip(self._runs, counts, strict=True):
            runs.drop_last(count)
        return counts

    def reassign_slots(self, origins: list[Origin]) -> None:
        """The same log, with ``origins`` in these slots; all that have an entry are among them."""
        assert len(origins) <= _SLOTS_MAX, "an origin's slot is one byte"
        if origins == self.origins:
            return
        slots = {origin: slot for slot, origin in enumerate(origins)}
        old = [slots.get(origin) for origin in self.origins]
        assert all(new is not None for new, runs in zip(old, self._runs, strict=True) if runs.count), (
            "an origin is gone"
        )
        assert all(new is not None for new, seq in zip(old, self._seqs_at_start, strict=True) if seq), (
            "an origin is gone"
        )
        table = bytes([slot if slot is not None else 0 for slot in old]).ljust(256, b"\0")
        self._order = self._order.translate(table)
        moved = [OriginRuns() for _ in origins]
        for new, runs in zip(old, self._runs, strict=True):
            if new is not None:
                moved[new] = runs
        self._runs = moved
        reached: list[tuple[int, ...]] = []
        for before in self._seqs_at_marks:
            row = [0] * len(origins)
            for new, seqs in zip(old, before, strict=True):
                if new is not None:
                    row[new] = seqs
            reached.append(tuple(row))
        self._seqs_at_marks = reached
        self._seqs_at_start = [self.log_start.last_seq_of(*origin) for origin in origins]
        self.origins = origins
        self._slots = slots

    def slot(self, origin: Origin) -> int | None:
        """The slot of an origin; None for an unknown one."""
        return self._slots.get(origin)

    def index_of(self, origin: Origin, seq: int) -> int:
        """The index of a transaction, 0 when it is not in the log."""
        slot = self._slots.get(origin)
        if slot is None:
            return 0
        at = seq - self._seqs_at_start[slot]
        return self._runs[slot].index_of(at - 1) if 1 <= at <= self._runs[slot].count else 0

    def is_trimmed(self, origin: Origin, seq: int) -> bool:
        """Whether a transaction was stored in the log below its log start."""
        slot = self._slots.get(origin)
        return slot is not None and 1 <= seq <= self._seqs_at_start[slot]

    def seq_within(self, slot: int, index: int) -> int:
        """The last seq of an origin at or before ``index``."""
        assert index >= self.start, f"index {index} was trimmed, the log is kept from {self.start} on"
        return self._seqs_at_start[slot] + self._runs[slot].count_within(index)

    def seqs_at(self, index: int) -> list[tuple[str, int, int]]:
        """Node, birth and last seq at or before ``index`` of each origin that has one there."""
        found = [(o.node, o.birth, self.seq_within(slot, index)) for slot, o in enumerate(self.origins)]
        return [one for one in found if one[2]]

    def order(self, after: int, upto: int) -> bytes:
        """The slots of the entries ``after + 1`` to ``upto``."""
        return bytes(self._order[max(0, after - self.start) : upto - self.start])

    def hashes(self, after: int, upto: int) -> bytes:
        """The chain hashes after the entries ``after + 1`` to ``upto``, concatenated."""
        return bytes(self._hashes[self._hash_offset(after) : self._hash_offset(upto)])

    def spans(self, after: int, upto: int) -> list[Span]:
        """The entries ``after + 1`` to ``upto`` as spans, neighbours of one origin together."""
        assert after >= self.start, f"index {after} was trimmed, the log is kept from {self.start} on"
        after, upto = after - self.start, upto - self.start
        mark = after // _MARK_INTERVAL
        order = bytes(self._order[after:upto])
        seqs_at_mark = self._seqs_at_marks[mark]
        reached = {
            slot: self._seqs_at_start[slot] + seqs_at_mark[slot] + self._order.count(slot, mark * _MARK_INTERVAL, after)
            for slot in set(order)
        }
        found: list[Span] = []
        at, end = 0, len(order)
        while at < end:
            slot, first = order[at], at
            while at < end and order[at] == slot:
                at += 1
            origin = self.origins[slot]
            found.append(Span(origin.node, origin.birth, reached[slot] + 1, at - first))
            reached[slot] += at - first
        return found
