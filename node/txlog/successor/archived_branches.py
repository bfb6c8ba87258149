"""What the archives of a lost cluster hold beside the place from which its successor goes on: ends of other branches,
and what came after the place."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from txlog.archive.block_codec import ArchivedEntry
from txlog.archive.file_name import FileName, Node
from txlog.archive.stream import Stream
from txlog.archive.stream_reader import StreamReader
from txlog.archive.timeline import Timelines
from txlog.model.ids import Origin, Txid
from txlog.successor.rescue_plan import RescueCandidate
from txlog.successor.rescued_keys import OnStep


class _ArchivedCandidate(NamedTuple):
    candidate: RescueCandidate
    reader: StreamReader
    file: FileName
    place: int


class ArchivedBranches:
    """``place``: where the new cluster goes on. Every stream is read and proved first."""

    def __init__(self, streams: Iterable[Stream], place: Node, on_step: OnStep) -> None:
        self._found: dict[Txid, _ArchivedCandidate] = {}
        self._skipped: set[str] = set()
        for stream in streams:
            reader = StreamReader(stream)
            reader.with_sound_files(lambda reader=reader: self._read(reader, place, on_step))  # type: ignore[misc]

    def _read(self, reader: StreamReader, place: Node, on_step: OnStep) -> None:
        timelines = reader.find_timelines()
        files = list(_files_beside(timelines, place, reader))
        for done, name in enumerate(files, 1):
            for entry in reader.read(name):
                self._found.setdefault(entry.txid, _ArchivedCandidate(_to_candidate(entry), reader, name, entry.index))
            on_step("reading other branches", done, len(files))
        for timeline in (*timelines.current, *timelines.superseded):
            self._skipped.update(timeline.skips())

    def highest(self) -> dict[Origin, int]:
        """The last seq of each origin."""
        found: dict[Origin, int] = {}
        for txid in self._found:
            found[txid.origin] = max(txid.seq, found.get(txid.origin, 0))
        return found

    def skipped(self) -> set[str]:
        """The transactions that any branch skips."""
        return self._skipped

    def candidates(self, known: Mapping[Origin, int]) -> list[RescueCandidate]:
        """What is beyond ``known``, the last seq of each origin that the new cluster has; in the order of the log of
        each branch."""
        return [each.candidate for txid, each in self._found.items() if txid.seq > known.get(txid.origin, 0)]

    def payload(self, txid: Txid) -> bytes:
        """The payload of a candidate."""
        found = self._found[txid]
        return found.reader.read(found.file)[found.place - found.file.first].payload

    def close(self) -> None:
        """Nothing is open."""


def _files_beside(timelines: Timelines, place: Node, reader: StreamReader) -> Iterator[FileName]:
    """The files of all timelines, without those that lead to the place."""
    every = [*timelines.current, *timelines.superseded]
    kept = {
        file.name
        for timeline in every
        if timeline.has(place, reader.read)
        for file in timeline.files()
        if file.name.last <= place.index
    }
    yield from dict.fromkeys(file.name for each in every for file in each.files() if file.name not in kept)


def _to_candidate(entry: ArchivedEntry) -> RescueCandidate:
    return RescueCandidate(entry.txid, entry.kind, entry.key, len(entry.payload))
