"""Locations of held transactions: three numbers per record, no object per entry (about 16 bytes a record)."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right

from txlog.journal.record_bodies import encode_origin
from txlog.journal.restamps import Restamps
from txlog.model.entry import RunItem
from txlog.model.ids import Origin


class RecordLocation:
    """The location of the record that should hold a transaction: its first seq, segment number, offset in bytes."""

    __slots__ = ("first_seq", "offset", "segment")

    def __init__(self, first_seq: int, segment: int, offset: int) -> None:
        self.first_seq = first_seq
        self.segment = segment
        self.offset = offset


class OriginIndex:
    """The records of one origin, sorted by first seq. ``last``: the last seq held, damaged or not. ``restamps``:
    stamps assigned since, which no Held record contains. ``trimmed``: nothing up to this seq is retained."""

    __slots__ = (
        "encoded_origin",
        "first_seqs",
        "last",
        "offsets",
        "origin",
        "restamps",
        "segments",
        "slot",
        "trimmed",
    )

    def __init__(self, origin: Origin, slot: int) -> None:
        self.origin = origin
        self.slot = slot
        self.encoded_origin = encode_origin(origin)
        self.last = 0
        self.trimmed = 0
        self.first_seqs = array("Q")
        self.segments = array("I")
        self.offsets = array("I")
        self.restamps = Restamps()

    def add(self, first_seq: int, segment: int, offset: int) -> None:
        """Add a record after the last one; ``offset`` in bytes, a multiple of 8."""
        self.first_seqs.append(first_seq)
        self.segments.append(segment)
        self.offsets.append(offset >> 3)

    def extend(self, firsts: array[int], segment: int, offsets: array[int], last: int) -> None:
        """Add records of one segment together, after the last one. ``offsets`` in units of 8 bytes."""
        self.first_seqs.extend(firsts)
        self.segments.extend(array("I", [segment]) * len(firsts))
        self.offsets.extend(offsets)
        self.last = last

    def replace_damaged(self, first_seq: int, segment: int, offset: int) -> None:
        """A repaired record replaces the damaged one."""
        at = bisect_left(self.first_seqs, first_seq)
        self.first_seqs.insert(at, first_seq)
        self.segments.insert(at, segment)
        self.offsets.insert(at, offset >> 3)

    def trim(self, seq: int, segment: int) -> None:
        """Forget the transactions up to ``seq`` and the records below that segment, up to the first one that is not:
        one behind a repaired record is forgotten later, and no reader asks for it."""
        self.trimmed = max(self.trimmed, seq)
        self.last = max(self.last, seq)
        self.restamps.forget_up_to(seq)
        gone = next((at for at, number in enumerate(self.segments) if number >= segment), len(self.segments))
        if gone:
            del self.first_seqs[:gone]
            del self.segments[:gone]
            del self.offsets[:gone]

    def locate(self, seq: int) -> RecordLocation | None:
        """The last record that begins at or below ``seq``; it holds ``seq`` unless that was lost."""
        at = bisect_right(self.first_seqs, seq) - 1
        return None if at < 0 else RecordLocation(self.first_seqs[at], self.segments[at], self.offsets[at] << 3)


def apply_restamps(held: OriginIndex, seq: int, items: list[RunItem]) -> list[RunItem]:
    """The items from ``seq`` on with their present stamps."""
    copied = items
    for first, stamps in held.restamps.ranges(seq, seq + len(items)):
        copied = list(items) if copied is items else copied
        for at, stamp in enumerate(stamps, first - seq):
            old = items[at]
            copied[at] = RunItem(stamp, old.kind, old.key, old.payload, old.first_stamp)
    return copied


class JournalIndex:
    """All origins. ``by_encoded_origin``: keyed by the first bytes of a Held record."""

    def __init__(self) -> None:
        self.by_encoded_origin: dict[bytes, OriginIndex] = {}
        self._by_origin: dict[tuple[str, int], OriginIndex] = {}

    def get(self, node: str, birth: int) -> OriginIndex | None:
        """The index of this origin, or None."""
        return self._by_origin.get((node, birth))

    def get_or_create(self, origin: Origin) -> OriginIndex:
        """The index of this origin, created when it is new."""
        found = self._by_origin.get(origin)
        if found is None:
            found = self._by_origin[origin] = OriginIndex(origin, len(self._by_origin))
            self.by_encoded_origin[found.encoded_origin] = found
        return found

    def all(self) -> list[OriginIndex]:
        """The indexes of all origins."""
        return list(self._by_origin.values())
