"""The timelines of a stream: one order of transactions each. Pure; bytes come through a :data:`FileReader`.

A timeline is the path to a head. It is *superseded* when another log has final entries behind the place where the two
parted: what is final never leaves the log, so the other branch never comes back. While a split lasts, neither side has
such entries. A head whose own final entries the other log lacks is not superseded: those were lost, and
a person decides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from txlog.archive.block_codec import ArchivedEntry
from txlog.archive.file_name import FileName, Node
from txlog.archive.path import StreamPaths
from txlog.model.ids import Origin
from txlog.model.view import Number

FileReader = Callable[[FileName], Sequence[ArchivedEntry]]
"""The entries of a file, proved."""


EarlierSkips = Mapping[Node, tuple[tuple[int, str], ...]]
NO_SKIPS: Final[EarlierSkips] = {}


class FileFacts(NamedTuple):
    """What the header of a file says (:mod:`txlog.archive.format`). ``skips``: index and skipped transaction.
    ``has_synchronous``: whether it has synchronous transactions or decisions."""

    name: FileName
    first_stamp: int
    last_stamp: int
    settled: int
    view: Number
    skips: tuple[tuple[int, str], ...]
    origins: frozenset[Origin]
    written: float
    has_synchronous: bool = False

    @property
    def view_text(self) -> str:
        """``epoch.ballot.coordinator``."""
        return ".".join(str(part) for part in self.view)


class ArchivedRange(NamedTuple):
    """Files without a gap between them. ``start``: the place before the first one."""

    start: Node
    files: tuple[FileFacts, ...]

    @property
    def end(self) -> Node:
        """The place of the last entry."""
        return self.files[-1].name.end if self.files else self.start

    def find_file(self, index: int) -> FileFacts | None:
        """The file that holds the entry at ``index``."""
        low, high = 0, len(self.files)
        while low < high:
            middle = (low + high) // 2
            low, high = (middle + 1, high) if self.files[middle].name.last < index else (low, middle)
        return self.files[low] if low < len(self.files) and self.files[low].name.first <= index else None

    def find_place(self, index: int, read: FileReader) -> Node | None:
        """The place at ``index``; None outside of the range."""
        if index == self.start.index:
            return self.start
        found = self.find_file(index)
        if found is None:
            return None
        name = found.name
        return name.end if index == name.last else Node(index, read(name)[index - name.first].hash)

    def find_entry(self, index: int, read: FileReader) -> ArchivedEntry | None:
        """The entry at ``index``; None outside of the range."""
        found = self.find_file(index)
        return read(found.name)[index - found.name.first] if found is not None else None


class Timeline(NamedTuple):
    """``ranges``: the oldest first; between two of them there is a gap. ``earlier``: the skips of files that were
    deleted, as far as they are in effect at its start."""

    ranges: tuple[ArchivedRange, ...]
    earlier: tuple[tuple[int, str], ...] = ()

    @property
    def head(self) -> Node:
        """The place of the last entry."""
        return self.ranges[-1].end

    @property
    def view_text(self) -> str:
        """The view of the last file; empty without a file."""
        files = self.ranges[-1].files
        return files[-1].view_text if files else ""

    @property
    def settled(self) -> int:
        """The highest index that any file names as final."""
        return max((file.settled for file in self.files()), default=0)

    def files(self) -> Iterator[FileFacts]:
        """The files of all ranges, in order."""
        for each in self.ranges:
            yield from each.files

    def skips(self) -> dict[str, int]:
        """Transaction to the index of the first entry that skips it."""
        found: dict[str, int] = {}
        for rows in (self.earlier, *(file.skips for file in self.files())):
            for index, txid in rows:
                found.setdefault(txid, index)
        return found

    def find_range(self, index: int) -> ArchivedRange | None:
        """The range that has the place ``index``, the newest first."""
        return next((each for each in self.ranges[::-1] if each.start.index <= index <= each.end.index), None)

    def find_place(self, index: int, read: FileReader) -> Node | None:
        """The place at ``index``; None in a gap and outside."""
        found = self.find_range(index)
        return found.find_place(index, read) if found is not None else None

    def has(self, node: Node, read: FileReader) -> bool:
        """Whether this place is on the timeline."""
        return self.find_place(node.index, read) == node


class Timelines(NamedTuple):
    """``current``: those that no other one continues. ``superseded``: the rest. Both with the highest head first."""

    current: list[Timeline]
    superseded: list[Timeline]


def make_timeline(
    paths: StreamPaths, head: Node, facts: Mapping[FileName, FileFacts], before: EarlierSkips = NO_SKIPS
) -> Timeline:
    """The timeline that ends at a reached place, with the ranges before its gaps. ``before``: as in
    :func:`find_timelines`."""
    ranges = [_make_range(paths, head, facts)]
    for earlier in paths.heads:  # the highest first
        start = ranges[-1].start
        if 0 < start.index >= earlier.index:
            found = _make_range(paths, earlier, facts)
            if Timeline((found,)).settled >= earlier.index:  # final, so every later log goes on from it
                ranges.append(found)
    return Timeline(tuple(ranges[::-1]), before.get(ranges[-1].start, ()))


def find_timelines(
    paths: StreamPaths, facts: Mapping[FileName, FileFacts], read: FileReader, before: EarlierSkips = NO_SKIPS
) -> Timelines:
    """All timelines of a stream. A head that is a part of another timeline is none of its own. ``before``: skips of
    deleted files, by the place after them."""
    every: list[Timeline] = []
    for head in paths.heads:
        found = make_timeline(paths, head, facts, before)
        if not any(other.has(head, read) for other in every):
            every.append(found)
    superseded = [one for one in every if any(_supersedes(other, one, read) for other in every if other is not one)]
    return Timelines([one for one in every if one not in superseded], superseded)


def _make_range(paths: StreamPaths, head: Node, facts: Mapping[FileName, FileFacts]) -> ArchivedRange:
    files = tuple(facts[name] for name in paths.path_to(head))
    return ArchivedRange(files[0].name.start if files else head, files)


def _supersedes(other: Timeline, one: Timeline, read: FileReader) -> bool:
    return other.settled > _common_index(one, other, read) >= one.settled


def _common_index(one: Timeline, other: Timeline, read: FileReader) -> int:
    """The highest index at which both are the same; -1 when they share no place."""
    low = max(one.ranges[0].start.index, other.ranges[0].start.index)
    high = min(one.head.index, other.head.index)
    if low > high or not _is_same(low, one, other, read):
        return -1
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if _is_same(middle, one, other, read) else (low, middle - 1)
    return low


def _is_same(index: int, one: Timeline, other: Timeline, read: FileReader) -> bool:
    found = one.find_place(index, read)
    return found is not None and found == other.find_place(index, read)
