"""Which idempotency keys stand for a transaction in a new cluster already, however long ago: masters forget a key after
``keyRetention``, the log does not."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final, Protocol

from txlog.archive.file_name import Node
from txlog.archive.stream import Stream
from txlog.archive.stream_reader import StreamReader
from txlog.archive.timeline import FileReader, Timeline
from txlog.client import MasterUnreachable
from txlog.model.errors import LogNeedsRestore, TxLogError, Unavailable
from txlog.model.synchronous_entry import idempotency_key_of
from txlog.successor.successor_errors import KeysUncertain
from txlog.wire.log_page import LogPage

PAGE_BYTES: Final = 4 << 20
OnStep = Callable[[str, int, int | None], None]
"""Called with a word for people, what is done, and of how much."""


class KeyedPages(Protocol):
    """A master, as far as its log is read: :class:`~txlog.client.MasterClient`."""

    def log_page(
        self,
        after: int,
        at_hash: bytes | None = None,
        upto: int | None = None,
        max_bytes: int | None = None,
        *,
        keys: bool = False,
    ) -> LogPage: ...


class UsedKeys:
    """The uses of the keys in ``wanted``. ``found``: key to transaction; the first one counts."""

    def __init__(self, wanted: Collection[str], on_step: OnStep) -> None:
        self._wanted = wanted
        self._on_step = on_step
        self.found: dict[str, str] = {}

    def read_archived(self, streams: Iterable[Stream], place: Node) -> None:
        """What the lost cluster had up to ``place``. One of the streams has it: the claim was made from it."""
        for stream in streams:
            reader = StreamReader(stream)

            def read(reader: StreamReader = reader) -> bool:
                found = _find_timeline(reader, place)
                if found is not None:
                    self._read_files(found, reader.read, 0, place.index)
                return found is not None

            if reader.with_sound_files(read):
                return
        raise KeysUncertain(f"no archive of the lost cluster has {place} any more, so its keys cannot be compared")

    def read_new(self, masters: Sequence[KeyedPages], streams: Iterable[Stream], place: Node) -> None:
        """What the new cluster has after ``place``: from its masters, and from its own archive where they trimmed the
        log."""
        try:
            self._read_pages(masters, place)
        except LogNeedsRestore as trimmed:
            self._read_pages(masters, self._read_own_archive(streams, place, trimmed))

    def _read_own_archive(self, streams: Iterable[Stream], place: Node, trimmed: TxLogError) -> Node:
        for stream in streams:
            reader = StreamReader(stream)

            def read(reader: StreamReader = reader) -> Node | None:
                found = _find_timeline(reader, place)
                if found is None:
                    return None
                self._read_files(found, reader.read, place.index, found.head.index)
                return found.head

            end = reader.with_sound_files(read)
            if end is not None:
                return end
        raise KeysUncertain(
            f"the masters have trimmed the log after {place}, and no archive of this cluster is on the target: it is "
            f"not known what was given again already ({trimmed})"
        )

    def _read_files(self, timeline: Timeline, read: FileReader, after: int, upto: int) -> None:
        files = [each for each in timeline.files() if each.name.last > after and each.name.first <= upto]
        for done, file in enumerate(files, 1):
            for entry in read(file.name):
                if after < entry.index <= upto and not entry.is_noop:
                    self._use(entry.kind, entry.key, str(entry.txid))
            self._on_step("reading the archive's keys", done, len(files))

    def _read_pages(self, masters: Sequence[KeyedPages], place: Node) -> None:
        at = place
        while True:
            page = _read_page(masters, at)
            for entry in page.entries:
                if not entry.noop:
                    self._use(entry.kind, entry.key, str(entry.txid))
            if not page.entries:
                return
            at = Node(page.entries[-1].index, page.entries[-1].hash)
            self._on_step("reading the log's keys", at.index - place.index, page.stable_index - place.index)
            if at.index >= page.stable_index:
                return

    def _use(self, kind: int, key: str, txid: str) -> None:
        client_key = idempotency_key_of(kind, key)
        if client_key in self._wanted:
            self.found.setdefault(client_key, txid)


def _find_timeline(reader: StreamReader, place: Node) -> Timeline | None:
    timelines = reader.find_timelines()
    every = [*timelines.current, *timelines.superseded]
    return next((each for each in every if each.has(place, reader.read)), None)


def _read_page(masters: Sequence[KeyedPages], at: Node) -> LogPage:
    last: TxLogError | None = None
    for master in masters:
        try:
            return master.log_page(at.index, at.hash, max_bytes=PAGE_BYTES, keys=True)
        except (MasterUnreachable, Unavailable) as error:
            last = error
    raise Unavailable("NoMaster", f"no master gives its log: {last}; see txlog status")
