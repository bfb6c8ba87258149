"""Makes one file of many small ones, and deletes those an hour later.

Everything that is read is proved. A compacted file is read back when it was written, and again before anything that it
replaces is deleted. Each step can be repeated after a kill at any point; two compactors at once cannot hurt each other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

import msgspec

from txlog.archive.archive_errors import FileDamaged
from txlog.archive.block_codec import ArchivedEntry
from txlog.archive.compaction_plan import (
    CompactionLimits,
    compacted_runs,
    covered_files,
    plan_deletions,
    plan_merges,
)
from txlog.archive.file_name import FileName, Node
from txlog.archive.format import (
    AFTER_GAP,
    COMPACTED,
    FACT_BYTES_MAX,
    ArchiveFile,
    EncodedFile,
    encode_file,
    fact_bytes,
)
from txlog.archive.path import StreamPaths, find_paths
from txlog.archive.stream import StoredFile, Stream
from txlog.backup.backup_errors import OtherCluster, UnknownFormat
from txlog.telemetry.event_log import EventLog

LEVEL: Final = 9
"""zstd level of compacted files."""
PLAIN_BYTES: Final = 16 << 20
"""A compacted file ends before it has more, as a shipped one does: a reader holds one in memory."""
ATTEMPTS_MAX: Final = 1000
_FAULTS: Final = (FileDamaged, OtherCluster, UnknownFormat)


class CompactionResult(NamedTuple):
    """``merged``: the small files that are in a compacted one now. ``written``: the compacted ones. ``deleted``: small
    files that are gone."""

    merged: list[FileName]
    written: list[FileName]
    deleted: list[FileName]


class Compactor:
    """:meth:`run` looks at the whole stream once. Raises the errors of the target; the next run then goes on."""

    def __init__(self, stream: Stream, log: EventLog, limits: CompactionLimits | None = None) -> None:
        self._stream = stream
        self._log = log
        self._limits = limits or CompactionLimits()
        self._damaged: set[FileName] = set()

    def run(self) -> CompactionResult:
        """Merges what is due, then deletes what is replaced."""
        result = CompactionResult([], [], [])
        known = self._stream.read_starts()
        if known is None:
            return result
        starts, stored = known.all, self._stream.list_files(known)
        self._damaged.clear()  # a fault of one read is not one of the file
        while True:
            known_damaged = len(self._damaged)
            self._merge_all(starts, stored, result)
            if len(self._damaged) == known_damaged:
                break
            stored = self._stream.list_files(known)
        self._delete_all(starts, stored, result)
        if any(result):
            counts = {name: len(files) for name, files in result._asdict().items()}
            self._log.info("ArchiveCompacted", **counts)
        return result

    # -- merges

    def _merge_all(self, starts: Sequence[Node], stored: Sequence[StoredFile], result: CompactionResult) -> None:
        paths = self._find_paths([each.name for each in stored], starts)
        modified = {each.name: each.modified for each in stored}
        sizes = {each.name: each.bytes for each in stored}
        for group in plan_merges(paths, modified, self._read_final(paths), self._limits, sizes):
            try:
                for files in _split_runs(map(self._read, group)):
                    result.written.append(self._write(files))
            except _FAULTS as fault:
                self._log.error("ArchiveFileDamaged", error=str(fault))
                continue
            result.merged.extend(group)

    def _find_paths(self, names: Sequence[FileName], starts: Sequence[Node]) -> StreamPaths:
        """What follows a damaged file is compacted all the same."""
        return find_paths(names, {*starts, *(name.end for name in self._damaged)}, self._damaged)

    def _read_final(self, paths: StreamPaths) -> dict[Node, int]:
        """By head: the final index when its last file was written."""
        found: dict[Node, int] = {}
        for head in paths.heads:
            name = paths.reached[head]
            if name is not None:
                with suppress(*_FAULTS):
                    found[head] = self._stream.read_header(name).settled
        return found

    def _read(self, name: FileName) -> ArchiveFile:
        try:
            return self._stream.read_file(name)
        except _FAULTS:
            self._damaged.add(name)
            raise

    def _write(self, files: Sequence[ArchiveFile]) -> FileName:
        """Writes one compacted file and reads it back: every field of every entry is what the small files hold."""
        entries = [entry for file in files for entry in file.entries]
        made = _encode(files, entries)
        name = made.name
        while name.attempt <= ATTEMPTS_MAX:
            self._stream.create_file(name, made.data)
            try:
                found = self._stream.read_file(name)
            except FileDamaged as fault:
                self._log.error("ArchiveFileDamaged", file=str(name), error=str(fault))
                name = name._replace(attempt=name.attempt + 1)
                continue
            if found.entries == entries:
                return name
            name = name._replace(attempt=name.attempt + 1)
        raise FileDamaged(f"{self._stream.location}: every object that is created there is damaged at once")

    # -- deletions

    def _delete_all(self, starts: Sequence[Node], stored: Sequence[StoredFile], result: CompactionResult) -> None:
        """By the listing from before the merges: what was written since is too young to replace anything."""
        names = [each.name for each in stored]
        paths = self._find_paths(names, starts)
        modified = {each.name: each.modified for each in stored}
        covered: set[FileName] = set()
        inside: set[Node] = set()
        for run in compacted_runs(paths, modified, self._limits.grace_s):
            small = [name for name in names if not name.level and _overlaps(name, run)]
            wanted = {node for name in small for node in (name.start, name.end)}
            for nodes in self._read_places(run, small, wanted):
                inside |= nodes
                covered.update(covered_files(small, nodes))
        gone = plan_deletions(names, starts, covered, inside)
        self._stream.delete_files(gone)
        result.deleted.extend(gone)

    def _read_places(
        self, run: Sequence[FileName], small: Sequence[FileName], wanted: set[Node]
    ) -> Iterator[set[Node]]:
        """Which of the wanted places are in a run, from its files, which are read again. A damaged file, and one that
        no small file needs, ends a part of the run."""
        nodes: set[Node] = set()
        span = (min(each.first for each in small), max(each.last for each in small)) if small else (1, 0)
        for name in run:
            if name.last < span[0] or name.first > span[1]:
                continue
            entries = self._read_again(name) if any(_overlaps(each, (name,)) for each in small) else None
            if entries is None:
                if nodes:
                    yield nodes
                nodes = set()
                continue
            nodes |= wanted & {name.start, *(Node(entry.index, entry.hash) for entry in entries)}
        if nodes:
            yield nodes

    def _read_again(self, name: FileName) -> list[ArchivedEntry] | None:
        try:
            return self._read(name).entries
        except _FAULTS as fault:
            self._log.error("ArchiveFileDamaged", file=str(name), error=str(fault))
            return None


def _overlaps(name: FileName, run: Sequence[FileName]) -> bool:
    return name.first <= run[-1].last and run[0].first <= name.last


def _split_runs(files: Iterator[ArchiveFile]) -> Iterator[list[ArchiveFile]]:
    """Files of one view that become one file. The view of a file counts for all of its entries."""
    run: list[ArchiveFile] = []
    plain = facts = 0
    for file in files:
        more = sum(entry.plain_bytes for entry in file.entries)
        more_facts = sum(map(fact_bytes, file.entries))
        is_full = plain + more > PLAIN_BYTES or facts + more_facts > FACT_BYTES_MAX
        if run and (is_full or file.header.meta.view != run[-1].header.meta.view):
            yield run
            run, plain, facts = [], 0, 0
        run.append(file)
        plain += more
        facts += more_facts
    if run:
        yield run


def _encode(files: Sequence[ArchiveFile], entries: Sequence[ArchivedEntry]) -> EncodedFile:
    first, last = files[0].header, files[-1].header
    histories = [file.header.meta.history for file in files if file.header.meta.history is not None]
    return encode_file(
        entries,
        first.name.before,
        msgspec.structs.replace(last.meta, history=histories[-1] if histories else None),
        settled=max(file.header.settled for file in files),
        writer=last.writer,
        flags=COMPACTED | (first.flags & AFTER_GAP),
        level=LEVEL,
    )
