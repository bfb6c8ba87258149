"""The incoming queue: per origin what is held and not yet in the log, merged in key order on demand.

Within an origin stamps grow with seq (rule 13), so the queue's order ``(stamp, node id, birth, seq)`` is a merge
of the origins' own orders, and a transaction costs four list cells rather than an object.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import NamedTuple

from txlog.model.entry import origin_tag
from txlog.model.ids import Origin

_COMPACT_AT = 4096


class Piece(NamedTuple):
    """``length`` transactions of one origin, from ``first_seq`` on, that stand together at the queue's head."""

    origin_queue: OriginQueue
    first_seq: int
    length: int


class OriginQueue:
    """One origin's transactions. ``in_log``: last seq in the log; ``held``: last seq held (≥ in_log), all before
    it held or in the log too. The lists cover the seqs above ``in_log``; ``_head`` cells before it are dead."""

    def __init__(self, origin: Origin, in_log: int = 0) -> None:
        self.origin = origin
        self.tag = origin_tag(origin)
        self.in_log = in_log
        self.held = in_log
        self.bytes = 0
        self._head = 0
        self._stamps: list[int] = []
        self._contents: list[bytes] = []
        self._keys: list[str] = []
        self._kinds: list[int] = []  # kind | payload size << 8

    def __len__(self) -> int:
        return self.held - self.in_log

    def extend(self, stamps: list[int], contents: list[bytes], keys: list[str], kinds: list[int]) -> None:
        """Hold more, from ``held + 1`` on. Stamps grow strictly. ``kinds`` are ``kind | payload bytes << 8``."""
        self._stamps += stamps
        self._contents += contents
        self._keys += keys
        self._kinds += kinds
        self.held += len(stamps)
        self.bytes += sum(k >> 8 for k in kinds)

    @property
    def last_stamp(self) -> int:
        """The greatest stamp held and not in the log, else 0."""
        return self._stamps[-1] if self.held > self.in_log else 0

    @property
    def head_stamp(self) -> int:
        return self._stamps[self._head]

    def _at(self, seq: int) -> int:
        assert self.in_log < seq <= self.held, (self.origin, seq, self.in_log, self.held)
        return self._head + seq - self.in_log - 1

    def content(self, seq: int) -> bytes:
        return self._contents[self._at(seq)]

    def stamp(self, seq: int) -> int:
        return self._stamps[self._at(seq)]

    def size(self, seq: int) -> int:
        """Payload bytes."""
        return self._kinds[self._at(seq)] >> 8

    def rows(self, count: int, skip: int = 0) -> Iterator[tuple[int, bytes, str, int]]:
        """``(stamp, content, key, kind)`` of ``count`` transactions behind the first ``skip``."""
        a, b = self._head + skip, self._head + skip + count
        return zip(
            self._stamps[a:b], self._contents[a:b], self._keys[a:b], [k & 255 for k in self._kinds[a:b]], strict=True
        )

    def any_key(self, count: int) -> bool:
        """Whether one of the first ``count`` carries a key."""
        return any(self._keys[self._head : self._head + count])

    def seq_up_to(self, stamp: int) -> int:
        """The last seq whose stamp is at or below ``stamp``."""
        return self.in_log + bisect_right(self._stamps, stamp, self._head) - self._head

    def seq_below(self, stamp: int) -> int:
        """The last seq whose stamp is below ``stamp``."""
        return self.in_log + bisect_left(self._stamps, stamp, self._head) - self._head

    def take(self, count: int) -> None:
        """The first ``count`` have entered the log."""
        a = self._head
        self.bytes -= sum(k >> 8 for k in self._kinds[a : a + count])
        self._head += count
        self.in_log += count
        if self._head >= _COMPACT_AT and self._head * 2 >= len(self._stamps):
            for cells in (self._stamps, self._contents, self._keys, self._kinds):
                del cells[: self._head]
            self._head = 0


def merged(queues: list[OriginQueue], stamp_max: int, seq_max: dict[Origin, int]) -> list[Piece]:
    """The longest prefix of the queue with stamps up to ``stamp_max`` and seqs up to ``seq_max`` (rule 12).

    The queue is not changed. The prefix ends at the first transaction, in key order, that breaks either bound.
    """
    pieces: list[Piece] = []
    taken = {q.origin: 0 for q in queues}
    live = [q for q in queues if len(q)]
    while live:
        live.sort(key=lambda q: (q.stamp(q.in_log + 1 + taken[q.origin]), q.origin))
        best = live[0]
        first = best.in_log + 1 + taken[best.origin]
        last = min(best.held, best.seq_up_to(stamp_max))
        if len(live) > 1:
            other = live[1]
            stamp = other.stamp(other.in_log + 1 + taken[other.origin])
            before = best.seq_up_to(stamp) if best.origin < other.origin else best.seq_below(stamp)
            last = min(last, before)
        allowed = min(last, seq_max.get(best.origin, 0))
        if allowed >= first:
            pieces.append(Piece(best, first, allowed - first + 1))
            taken[best.origin] += allowed - first + 1
        if allowed < last or last < first:
            break
        if taken[best.origin] == len(best):
            live.remove(best)
    return pieces
