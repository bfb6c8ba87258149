"""The segments that a trimmed log no longer needs, and their removal (rule 19).

The record of the trim is durable first; then the segments are removed, the oldest first. Each removal is durable
before the next. So a crash always leaves an unbroken row of segments, with or without some that are no longer
needed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from txlog.journal import format as fmt
from txlog.journal.vfs import Vfs
from txlog.model.errors import JournalBroken
from txlog.model.ids import Origin
from txlog.model.records import LogStart


class SegmentStart(NamedTuple):
    """The state before the first record of a segment: entries in the log, last seq held of each origin."""

    segment: int
    log_end: int
    held: Mapping[Origin, int]

    def is_below(self, index: int, seqs: Mapping[Origin, int]) -> bool:
        """Whether everything before this segment is at or below a log start."""
        return self.log_end <= index and all(last <= seqs.get(origin, 0) for origin, last in self.held.items())


class SegmentSet:
    """The segments of a journal, oldest first, and those that a log start retains."""

    def __init__(self, starts: list[SegmentStart], first: int) -> None:
        self.first = first
        """The first segment that is needed; those before it are being removed."""
        self._starts = starts
        self._due: list[tuple[int, int]] = []

    def add(self, start: SegmentStart) -> None:
        """Register the journal's next segment."""
        self._starts.append(start)

    def first_retained_segment(self, index: int, seqs: Mapping[Origin, int]) -> int:
        """The first segment that a log with this log start needs."""
        needed = self.first
        for start in self._starts:
            if start.segment > needed and start.is_below(index, seqs):
                needed = start.segment
        return needed

    def count_below(self, first: int) -> int:
        """The number of segments before this one."""
        return sum(1 for start in self._starts if start.segment < first)

    def trim(self, record: int, first: int) -> None:
        """Segments before ``first`` may be removed once the record of this number is durable."""
        self.first = max(self.first, first)
        self._due.append((record, first))

    def pop_removable(self, synced: int) -> range:
        """The segments to remove now. The owner asks after every sync, so the usual empty answer is free."""
        if not self._due:
            return range(0)
        upto = 0
        while self._due and self._due[0][0] <= synced:
            upto = max(upto, self._due.pop(0)[1])
        gone = [start.segment for start in self._starts if start.segment < upto]
        self._starts = [start for start in self._starts if start.segment >= upto]
        return range(gone[0], gone[-1] + 1) if gone else range(0)


class SegmentRemoval:
    """The removal of segments. Call :meth:`run` once, on any thread, also beside a sync; then ``Journal.end_removal``
    on the owner's."""

    def __init__(self, files: Vfs, segments: range, on_error: Callable[[str], None]) -> None:
        self._files = files
        self.segments = segments
        self._on_error = on_error

    def run(self) -> None:
        """Raises :class:`JournalBroken` when the disk fails: its content is unknown then (rule 29)."""
        try:
            there = set(self._files.list())
            for number in self.segments:
                for name in (fmt.segment_name(number, "index"), fmt.segment_name(number)):
                    if name in there:
                        self._files.remove(name)
                        self._files.sync_folder()
        except OSError as error:
            text = (
                f"removing segments {self.segments[0]} to {self.segments[-1]} of a trimmed journal: {error}. Next: look"
                " at the disk, then start this process again; it goes on with it"
            )
            self._on_error(text)
            raise JournalBroken(text) from error


def seqs_at(log_start: LogStart) -> dict[Origin, int]:
    """The last seq of each origin at the log start."""
    return {Origin(node, birth): seq for node, birth, seq in log_start.seqs}
