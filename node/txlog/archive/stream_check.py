"""What a target holds of an archive, by its own objects alone: nothing is asked of a master."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, NamedTuple

import msgspec

from txlog.archive.archive_errors import EntryRefused, FileDamaged
from txlog.archive.archived_effects import EffectFold
from txlog.archive.block_codec import ArchivedEntry
from txlog.archive.file_name import FileName, Node
from txlog.archive.path import StreamPaths, find_missing, find_paths
from txlog.archive.stream import StoredFile, Stream
from txlog.backup.backup_errors import OtherCluster, UnknownFormat
from txlog.model.ids import Txid
from txlog.model.synchronous_entry import SYNCHRONOUS_AND_DECISION

FAULTS = (FileDamaged, OtherCluster, UnknownFormat)


class StreamSummary(NamedTuple):
    """A stream by the names of its files. ``start``: None when ``stream.json`` is missing. ``gaps``: the places after
    which the log goes on although what is before was never archived. ``missing``: the places after which files begin
    although none leads there. ``losses``: see :meth:`Stream.record_lost`. ``newest``: when the last file was written,
    in seconds since 1970; 0 without one."""

    stream: Stream
    start: Node | None
    heads: list[Node]
    gaps: list[Node]
    missing: list[Node]
    losses: list[dict[str, Any]]
    files: int
    bytes: int
    newest: float

    @property
    def is_continuous(self) -> bool:
        """Whether files lead from the start to each other file, with no gap."""
        return self.start is not None and not self.gaps and not self.missing


class FileFault(NamedTuple):
    """``is_covered``: another file holds the same entries on a path."""

    name: FileName
    error: str
    message: str
    is_covered: bool


class StreamCheck(NamedTuple):
    """A stream after every file was read and proved. ``summary``: with the paths of the sound files alone. ``entries``:
    those on the paths to all heads, each counted once. ``undecided``: synchronous transactions that no decision before
    a head names."""

    summary: StreamSummary
    faults: list[FileFault]
    entries: int
    undecided: list[Txid]

    @property
    def is_sound(self) -> bool:
        """Whether the sound files lead from the start to everything that was archived."""
        return self.summary.is_continuous and all(fault.is_covered for fault in self.faults)


def summarise_stream(stream: Stream) -> StreamSummary:
    """Reads the listing and the small records. Raises what :meth:`Stream.read_start` raises."""
    return _summarise(stream, stream.list_files(), ())[0]


def check_stream(stream: Stream, on_file: Callable[[int, int], None] = lambda done, of: None) -> StreamCheck:
    """Reads and proves every file, one in memory at a time. ``on_file``: called after each one. Raises what
    :meth:`Stream.read_start` and the target raise."""
    stored = stream.list_files()
    small = {node for each in stored if not each.name.level for node in (each.name.start, each.name.end)}
    faults: dict[FileName, Exception] = {}
    inside: set[Node] = set()
    read: set[FileName] = set()
    synchronous: dict[FileName, list[ArchivedEntry]] = {}
    while unread := [each.name for each in stored if each.name not in read]:
        for name in unread:
            try:
                entries = stream.read_file(name).entries
            except FAULTS as fault:
                faults[name] = fault
            else:
                synchronous[name] = [
                    msgspec.structs.replace(entry, payload=b"")
                    for entry in entries
                    if entry.kind in SYNCHRONOUS_AND_DECISION
                ]
                if name.level:
                    inside |= small & {name.start, *(Node(entry.index, entry.hash) for entry in entries)}
            read.add(name)
            on_file(len(read), len(stored))
        listed = {each.name: each for each in stream.list_files()}
        if not all(each.name in listed for each in stored):
            # Deleted meanwhile: what they held is in compacted files, or below the window.
            stored = [each for name, each in listed.items() if name in read or name.level]
            faults = {name: fault for name, fault in faults.items() if name in listed}
    summary, paths = _summarise(stream, stored, tuple(faults), inside)
    known = inside | paths.reached.keys()
    found = [
        FileFault(name, type(fault).__name__, str(fault), name.end in known and name.start in known)
        for name, fault in faults.items()
    ]
    used = {name for head in summary.heads for name in paths.path_to(head)}
    undecided: set[Txid] = set()
    for head in summary.heads:
        path = paths.path_to(head)
        try:
            undecided.update(_undecided(entry for name in path for entry in synchronous[name]))
        except EntryRefused as fault:
            found.append(FileFault(path[-1], type(fault).__name__, str(fault), False))
    return StreamCheck(summary, found, sum(name.entries for name in used), sorted(undecided))


def _undecided(entries: Iterable[ArchivedEntry]) -> list[Txid]:
    fold = EffectFold()
    for entry in entries:
        fold.apply(entry)
    return [one.txid for one in fold.open]


def _summarise(
    stream: Stream, stored: Sequence[StoredFile], damaged: Sequence[FileName], inside: Collection[Node] = ()
) -> tuple[StreamSummary, StreamPaths]:
    """``inside``: places within compacted files. Small files that end or begin there hold nothing more than these."""
    starts = stream.read_starts()
    gaps = starts.gaps if starts is not None else []
    start = min(starts.begins) if starts is not None else None
    paths = find_paths((each.name for each in stored), starts.all if starts is not None else (), damaged)
    whole = {name.end for name in paths.reached.values() if name is not None and name.level}
    summary = StreamSummary(
        stream,
        start,
        [head for head in paths.heads if head not in inside or head in whole],
        gaps,
        [place for place in find_missing(paths) if place not in inside],
        stream.read_losses(),
        len(stored),
        sum(each.bytes for each in stored),
        max((each.modified for each in stored), default=0.0),
    )
    return summary, paths
