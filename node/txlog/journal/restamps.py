"""Stamps that accepted views reassigned to transactions after these were held."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator


class Restamps:
    """Of one origin: ranges that neither overlap nor touch, sorted by seq; 8 bytes a stamp, no object per entry."""

    __slots__ = ("_columns", "_firsts", "_stops")

    def __init__(self) -> None:
        self._firsts = array("Q")
        self._stops = array("Q")
        self._columns: list[array[int]] = []

    def __bool__(self) -> bool:
        return bool(self._columns)

    def set_range(self, first_seq: int, stamps: array[int]) -> None:
        """Set these stamps; they replace earlier ones of the same transactions."""
        if not stamps:
            return
        stop = first_seq + len(stamps)
        low, high = bisect_left(self._stops, first_seq), bisect_right(self._firsts, stop)
        merged, first = array("Q", stamps), first_seq
        if low < high:
            before, after = self._columns[low], self._columns[high - 1]
            kept = max(0, stop - self._firsts[high - 1])
            if self._firsts[low] < first_seq:
                first = self._firsts[low]
                merged = before[: first_seq - first] + merged
            merged += after[kept:]
        self._firsts[low:high] = array("Q", [first])
        self._stops[low:high] = array("Q", [first + len(merged)])
        self._columns[low:high] = [merged]

    def forget_up_to(self, upto: int) -> None:
        """No caller asks for seqs up to this one any more. A range that reaches beyond stays whole."""
        gone = bisect_right(self._stops, upto + 1)
        del self._firsts[:gone], self._stops[:gone], self._columns[:gone]

    def get(self, seq: int, held: int) -> int:
        """The stamp of a transaction that was persisted with the stamp ``held``."""
        at = bisect_right(self._firsts, seq) - 1
        return self._columns[at][seq - self._firsts[at]] if at >= 0 and seq < self._stops[at] else held

    def ranges(self, first: int, stop: int) -> Iterator[tuple[int, array[int]]]:
        """The reassigned stamps of seqs ``first``..``stop - 1``: first seq and stamps of each range."""
        at = bisect_right(self._stops, first)
        while at < len(self._firsts) and self._firsts[at] < stop:
            start, end = max(first, self._firsts[at]), min(stop, self._stops[at])
            yield start, self._columns[at][start - self._firsts[at] : end - self._firsts[at]]
            at += 1
