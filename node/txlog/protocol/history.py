"""The agreed order as an index in memory: who stands where, and the chain hash behind every entry.

16 bytes of hash an entry, and about 26 bytes for each *span* (neighbours of one origin with neighbouring seqs).
"""

from __future__ import annotations

from array import array
from bisect import bisect_right

from txlog.model.entry import HASH_BYTES, Span, chain_start
from txlog.model.ids import Origin


class History:
    """Order and hashes of the log. ``length`` is the last index; index 0 is the empty log."""

    def __init__(self, cluster_id: bytes) -> None:
        self.start_hash = chain_start(cluster_id)
        self.origins: list[Origin] = []
        self._slots: dict[Origin, int] = {}
        self._hashes = bytearray()
        self._first_index = array("Q")
        self._slot = array("H")
        self._first_seq = array("Q")
        self._of_origin: list[tuple[array[int], array[int]]] = []  # per origin: first seqs, span numbers
        self.length = 0

    @property
    def hash(self) -> bytes:
        return self.hash_at(self.length)

    def hash_at(self, index: int) -> bytes:
        """Chain hash of the log cut behind ``index`` (0 ≤ index ≤ length)."""
        assert 0 <= index <= self.length, (index, self.length)
        if index == 0:
            return self.start_hash
        return bytes(self._hashes[(index - 1) * HASH_BYTES : index * HASH_BYTES])

    def append(self, origin: Origin, first_seq: int, hashes: bytes) -> None:
        """Put ``len(hashes) / 16`` consecutive transactions of one origin behind the log."""
        count = len(hashes) // HASH_BYTES
        slot = self._slots.get(origin)
        if slot is None:
            slot = self._slots[origin] = len(self.origins)
            self.origins.append(origin)
            self._of_origin.append((array("Q"), array("Q")))
        last = len(self._slot) - 1
        joined = (
            last >= 0
            and self._slot[last] == slot
            and self._first_seq[last] + (self.length + 1 - self._first_index[last]) == first_seq
        )
        if not joined:
            seqs, spans = self._of_origin[slot]
            seqs.append(first_seq)
            spans.append(len(self._slot))
            self._first_index.append(self.length + 1)
            self._slot.append(slot)
            self._first_seq.append(first_seq)
        self._hashes += hashes
        self.length += count

    def index_of(self, origin: Origin, seq: int) -> int:
        """The index of a transaction, 0 when it is not in the log."""
        slot = self._slots.get(origin)
        if slot is None:
            return 0
        seqs, spans = self._of_origin[slot]
        at = bisect_right(seqs, seq) - 1
        if at < 0:
            return 0
        span = spans[at]
        offset = seq - seqs[at]
        return self._first_index[span] + offset if offset < self._count(span) else 0

    def spans(self, after: int, upto: int, most: int = 1 << 62) -> list[Span]:
        """The order of the entries ``after + 1`` to ``upto``, at most ``most`` spans of it."""
        found: list[Span] = []
        number = bisect_right(self._first_index, after + 1) - 1 if after < upto else 0
        index = after + 1
        while index <= upto and len(found) < most:
            begin = self._first_index[number]
            count = min(begin + self._count(number), upto + 1) - index
            origin = self.origins[self._slot[number]]
            found.append(Span(origin.node, origin.birth, self._first_seq[number] + index - begin, count))
            index += count
            number += 1
        return found

    def _count(self, span: int) -> int:
        after = self._first_index[span + 1] if span + 1 < len(self._slot) else self.length + 1
        return after - self._first_index[span]
