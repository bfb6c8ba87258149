"""Reads a stream for a restore: paths, headers and files, each proved. A damaged file is passed over where another one
holds the same entries."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from txlog.archive.archive_errors import FileDamaged, FileMissing, NoArchive
from txlog.archive.block_codec import ArchivedEntry
from txlog.archive.file_name import FileName, Node
from txlog.archive.format import HAS_SYNCHRONOUS, FileHeader
from txlog.archive.path import StreamPaths, find_missing, find_paths
from txlog.archive.stream import Stream
from txlog.archive.timeline import NO_SKIPS, EarlierSkips, FileFacts, Timelines, find_timelines
from txlog.backup.backup_errors import ObjectMissing, OtherCluster, UnknownFormat
from txlog.model.errors import TxLogError
from txlog.model.ids import Origin

T = TypeVar("T")
HELD_FILES: Final = 4
"""Files in memory at a time: 16 MiB of entries each, before they are objects."""
HEADERS_AT_ONCE: Final = 8
_FAULTS: Final = (FileDamaged, OtherCluster, UnknownFormat)


class StreamReader:
    """One stream, as it was listed first. Not thread-safe."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        starts = stream.read_starts()
        if starts is None:
            raise NoArchive(f"{stream.location}: stream.json is missing; see txlog archive check")
        self.starts = starts.all
        """Where paths may begin."""
        self.skips_fault: TxLogError | None = None
        """Why it is not known what deleted files skipped, and which namespaces they set. Restores do without."""
        self._skips: EarlierSkips = NO_SKIPS
        try:
            self._skips = stream.read_skips(starts)
        except FileDamaged as fault:
            self.skips_fault = fault
        self.sizes: dict[FileName, int] = {}
        self._list_files()
        self.damaged: dict[FileName, TxLogError] = {}
        self._facts: dict[FileName, FileFacts] = {}
        self._held: OrderedDict[FileName, list[ArchivedEntry]] = OrderedDict()

    def read(self, name: FileName) -> Sequence[ArchivedEntry]:
        """The entries of a file. A damaged one is noted in :attr:`damaged`."""
        found = self._held.get(name)
        if found is None:
            found = self._held[name] = self._note(name, lambda: self.stream.read_file(name).entries)
            if len(self._held) > HELD_FILES:
                self._held.popitem(last=False)
        self._held.move_to_end(name)
        return found

    def with_sound_files(self, work: Callable[[], T]) -> T:
        """The result of ``work``, which is repeated without each file that proves damaged meanwhile."""
        while True:
            known = len(self.damaged)
            try:
                return work()
            except _FAULTS:
                if len(self.damaged) == known:
                    raise

    def find_timelines(self, end: Node | None = None) -> Timelines:
        """The timelines of the stream. ``end``: only the one that ends there; then nothing else has to be there.

        :class:`FileDamaged` or :class:`FileMissing` when sound files do not lead to each end."""
        every = self._find_paths(())
        if end is None:
            missing = [place for place in find_missing(every) if not self._is_known_after(place, every)]
            if missing:
                raise FileMissing(
                    f"{self.stream.location}: the files before {missing[0]} are missing, and may hold what skips a "
                    f"transaction; fetch them from another copy, or end before them: --timeline {every.heads[0]}"
                )
            heads = every.heads
        elif end in every.reached:
            heads = [end]
        else:
            raise FileMissing(f"{self.stream.location}: no files lead to {end}; see txlog archive check")
        paths = self._find_paths(self.damaged)
        for head in heads:
            if head not in paths.reached:
                self._raise_damaged(every, head)
        paths = paths._replace(heads=heads)
        names = {name for head in heads for name in paths.path_to(head)}
        self._read_headers(sorted(names))
        return find_timelines(paths, self._facts, self.read, self._skips)

    def _is_known_after(self, place: Node, paths: StreamPaths) -> bool:
        """Whether the files that begin at a place hold nothing more than the paths: each ends inside a file of these.
        An archiver that was stopped for long may have written them."""
        ends = find_paths(paths.unreached, [place]).heads
        return all(end in paths.reached or self._is_inside(end, paths) for end in ends)

    def _is_inside(self, place: Node, paths: StreamPaths) -> bool:
        """The chain proves it: with the same hash, everything before is the same."""
        return any(
            self.read(name)[place.index - name.first].hash == place.hash
            for name in paths.reached.values()
            if name is not None and name.first <= place.index < name.last and name not in self.damaged
        )

    def _find_paths(self, damaged: Collection[FileName]) -> StreamPaths:
        """A gap is a start only where files do not lead over it."""
        starts: list[Node] = []
        paths = find_paths(self.sizes, starts, damaged)
        for start in sorted(self.starts):
            if start not in paths.reached:
                starts.append(start)
                paths = find_paths(self.sizes, starts, damaged)
        return paths

    def _raise_damaged(self, every: StreamPaths, head: Node) -> None:
        for name in every.path_to(head):
            if name in self.damaged:
                raise FileDamaged(
                    f"{self.damaged[name]}; no other file holds its entries: fetch it from another copy, or end "
                    f"before it: --timeline {name.start}"
                ) from self.damaged[name]
        raise FileDamaged(f"{self.stream.location}: damaged files lead to {head}; see txlog archive check")

    def _read_headers(self, names: Sequence[FileName]) -> None:
        unread = [name for name in names if name not in self._facts]
        pool = ThreadPoolExecutor(HEADERS_AT_ONCE)
        try:
            coming = [(name, pool.submit(self.stream.read_header, name)) for name in unread]
            for name, future in coming:
                self._facts[name] = _to_facts(self._note(name, future.result))
        finally:
            # A target that is gone takes half a minute to say so, for each of thousands.
            pool.shutdown(cancel_futures=True)

    def _note(self, name: FileName, read: Callable[[], T]) -> T:
        try:
            return read()
        except _FAULTS as fault:
            self.damaged[name] = fault
            self._list_files()
            raise
        except ObjectMissing as gone:
            self.damaged[name] = FileDamaged(f"{name} is not in {self.stream.location} any more")
            self._list_files()
            raise self.damaged[name] from gone

    def _list_files(self) -> None:
        """Once more after each fault: the file may be in a compacted one since the listing before."""
        self.sizes |= {each.name: each.bytes for each in self.stream.list_files()}


def _to_facts(header: FileHeader) -> FileFacts:
    meta = header.meta
    return FileFacts(
        header.name,
        header.first_stamp,
        header.last_stamp,
        header.settled,
        meta.view,
        tuple((index, txid) for index, txid in meta.skips),
        frozenset(Origin(node, birth) for node, birth in meta.origins),
        meta.written,
        bool(header.flags & HAS_SYNCHRONOUS),
    )
