"""What a target holds of an archive, by its own objects alone: nothing is asked of a master."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from txlog.archive.archive_errors import FileDamaged
from txlog.archive.file_name import FileName, Node
from txlog.archive.path import StreamPaths, find_missing, find_paths
from txlog.archive.stream import StoredFile, Stream
from txlog.backup.backup_errors import OtherCluster, UnknownFormat

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
    those on the paths to all heads, each counted once."""

    summary: StreamSummary
    faults: list[FileFault]
    entries: int

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
    faults: dict[FileName, Exception] = {}
    for done, each in enumerate(stored, 1):
        try:
            stream.read_file(each.name)
        except FAULTS as fault:
            faults[each.name] = fault
        on_file(done, len(stored))
    summary, paths = _summarise(stream, stored, tuple(faults))
    found = [
        FileFault(name, type(fault).__name__, str(fault), name.end in paths.reached and name.start in paths.reached)
        for name, fault in faults.items()
    ]
    used = {name for head in paths.heads for name in paths.path_to(head)}
    return StreamCheck(summary, found, sum(name.entries for name in used))


def _summarise(
    stream: Stream, stored: Sequence[StoredFile], damaged: Sequence[FileName]
) -> tuple[StreamSummary, StreamPaths]:
    start, gaps = stream.read_start(), stream.read_gaps()
    starts = [*([start] if start is not None else []), *gaps]
    paths = find_paths((each.name for each in stored), starts, damaged)
    summary = StreamSummary(
        stream,
        start,
        paths.heads,
        gaps,
        find_missing(paths),
        stream.read_losses(),
        len(stored),
        sum(each.bytes for each in stored),
        max((each.modified for each in stored), default=0.0),
    )
    return summary, paths
