"""The order of the log while a journal is read: spans and hashes, missing spans and their repairs."""

from __future__ import annotations

from typing import Final, NamedTuple

from txlog.model.entry import Span
from txlog.model.hashes import HASH_BYTES

HOLE: Final = ""
"""The node of a span that represents entries whose order cannot be read."""


class RepairedSpan(NamedTuple):
    """A repaired part of the order."""

    first_index: int
    spans: list[Span]
    hashes: bytes

    @property
    def last_index(self) -> int:
        """The log index of its last entry."""
        return self.first_index + len(self.hashes) // HASH_BYTES - 1


class LogOrder:
    """``spans`` and ``hashes`` as in :class:`txlog.model.records.RecoveredState`; adjacent spans are merged as they
    come. ``start``: entries before the first known one, ``hash_before`` the chain hash there (a log that was
    trimmed)."""

    def __init__(self) -> None:
        self.start = 0
        self.hash_before = b""
        self.spans: list[Span] = []
        self.hashes = bytearray()
        self.repaired_spans: list[RepairedSpan] = []

    @property
    def end(self) -> int:
        """The index of the last entry."""
        return self.start + len(self.hashes) // HASH_BYTES

    def begin(self, index: int, value: bytes) -> None:
        """Start at a trimmed log: of the first ``index`` entries only the chain hash after them is known."""
        self.start, self.hash_before = index, value
        self.spans, self.hashes = [], bytearray()
        self.repaired_spans.clear()

    def trim(self, index: int, value: bytes) -> None:
        """Forget the first ``index`` entries (at least those that are not known), missing spans among them."""
        self.apply_repairs()
        kept = slice_spans(self.spans, index - self.start, self.end - index)
        hashes = self.hashes[HASH_BYTES * (index - self.start) :]
        self.begin(index, value)
        self.spans, self.hashes = kept, hashes

    def add(self, spans: list[Span], hashes: bytes | memoryview) -> None:
        """Append entries with their chain hashes."""
        self.hashes += hashes
        for span in spans:
            self._append_span(span)

    def add_missing_span(self, count: int, end_hash: bytes) -> None:
        """Append ``count`` entries whose order is unknown; ``end_hash`` is the chain hash after them."""
        self._append_span(Span(HOLE, 0, self.end + 1, count))
        self.hashes += bytes(HASH_BYTES * (count - 1)) + end_hash

    def entries_after(self, index: int) -> tuple[list[Span], bytes] | None:
        """The entries after ``index`` and their hashes; None if a missing span is among them."""
        self.apply_repairs()
        if index < self.start:
            return None
        spans = slice_spans(self.spans, index - self.start, self.end - index)
        if any(span.node == HOLE for span in spans):
            return None
        return spans, bytes(self.hashes[HASH_BYTES * (index - self.start) :])

    def hash_at(self, index: int) -> bytes:
        """The chain hash after entry ``index``; zeros where it is unknown."""
        return bytes(self._hash(index))

    def truncate(self, index: int) -> None:
        """Remove the entries after ``index``; repairs read so far are put in place first."""
        self.apply_repairs()
        if index < self.start:  # below the log start, which a later record sets
            self.begin(index, b"")
            return
        surplus = self.end - index
        del self.hashes[HASH_BYTES * (index - self.start) :]
        while surplus > 0:
            last = self.spans.pop()
            if last.count > surplus:
                self.spans.append(Span(last.node, last.birth, last.first_seq, last.count - surplus))
            surplus -= last.count

    @property
    def end_is_unknown(self) -> bool:
        """Whether the log ends within a missing span, so that its hash there is unknown."""
        return bool(self.spans) and self.spans[-1].node == HOLE and not any(self.hashes[-HASH_BYTES:])

    def set_end_hash(self, value: bytes) -> None:
        """Set the chain hash after the last entry."""
        self.hashes[-HASH_BYTES:] = value

    def _append_span(self, span: Span) -> None:
        last = self.spans[-1] if self.spans else None
        if last is not None and _is_contiguous(last, span):
            self.spans[-1] = Span(last.node, last.birth, last.first_seq, last.count + span.count)
        else:
            self.spans.append(span)

    def apply_repairs(self) -> None:
        """Put every repaired part in its place."""
        if not self.repaired_spans:
            return
        spans, self.spans = self.spans, []
        index = self.start + 1
        for span in spans:
            for piece in self._fill_hole(index, span) if span.node == HOLE else (span,):
                self._append_span(piece)
            index += span.count
        self.repaired_spans.clear()

    def _fill_hole(self, index: int, hole: Span) -> list[Span]:
        """A missing span from ``index`` on, in order, with its repairs. If the hash at the end of the rest is unknown,
        the first entry after it proves the order. So that entry stays missing, too."""
        pieces: list[Span] = []
        end = index + hole.count - 1
        for fill in sorted(self.repaired_spans, key=_first_index):
            first, last = max(index, fill.first_index), min(end, fill.last_index)
            if first <= last:
                if first > index and not any(self._hash(first - 1)):
                    at = HASH_BYTES * (first - fill.first_index)
                    self._put_hashes(first, fill.hashes[at : at + HASH_BYTES])
                    first += 1
                if first > index:
                    pieces.append(Span(HOLE, 0, index, first - index))
                pieces += slice_spans(fill.spans, first - fill.first_index, last - first + 1)
                hashes = fill.hashes[
                    HASH_BYTES * (first - fill.first_index) : HASH_BYTES * (last + 1 - fill.first_index)
                ]
                self._put_hashes(first, hashes)
                index = last + 1
        if index <= end:
            pieces.append(Span(HOLE, 0, index, end - index + 1))
        return pieces

    def _put_hashes(self, first: int, hashes: bytes) -> None:
        at = HASH_BYTES * (first - 1 - self.start)
        self.hashes[at : at + len(hashes)] = hashes

    def _hash(self, index: int) -> bytearray:
        if index == self.start:
            return bytearray(self.hash_before)
        return self.hashes[HASH_BYTES * (index - 1 - self.start) : HASH_BYTES * (index - self.start)]

    def missing_ranges(self) -> list[tuple[int, int]]:
        """First and last index of each missing part of the order."""
        found, index = [], self.start + 1
        for span in self.spans:
            if span.node == HOLE:
                found.append((index, index + span.count - 1))
            index += span.count
        return found


def _first_index(fill: RepairedSpan) -> int:
    return fill.first_index


def _is_contiguous(last: Span, span: Span) -> bool:
    return last.birth == span.birth and last.node == span.node and last.first_seq + last.count == span.first_seq


def slice_spans(spans: list[Span], skip: int, count: int) -> list[Span]:
    """``count`` entries of an order after its first ``skip``."""
    found: list[Span] = []
    for span in spans:
        first, stop = min(skip, span.count), min(skip + count, span.count)
        if stop > first:
            found.append(Span(span.node, span.birth, span.first_seq + first, stop - first))
            count -= stop - first
        skip -= first
    return found


def subtract_spans(spans: list[Span], held: list[Span]) -> list[Span]:
    """The parts of ``spans`` that no span of ``held`` covers."""
    for other in held:
        spans = [piece for span in spans for piece in _subtract_span(span, other)]
    return spans


def _subtract_span(span: Span, other: Span) -> list[Span]:
    stop, other_stop = span.first_seq + span.count, other.first_seq + other.count
    other_origin = (span.node, span.birth) != (other.node, other.birth)
    if other_origin or other_stop <= span.first_seq or other.first_seq >= stop:
        return [span]
    ends = ((span.first_seq, other.first_seq), (other_stop, stop))
    return [Span(span.node, span.birth, a, b - a) for a, b in ends if b > a]
