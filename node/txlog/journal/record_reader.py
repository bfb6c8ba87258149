"""Reads single transactions from segments: only the head of a record and the requested payloads."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from txlog.journal import format as fmt
from txlog.journal import record_bodies
from txlog.journal.format import FramedRecord, RecordBody
from txlog.journal.origin_index import RecordLocation
from txlog.journal.vfs import Vfs, VfsFile
from txlog.model.entry import RunItem
from txlog.model.hashes import content_hash

WINDOW_BYTES: Final = 1 << 18
"""Read at once: consecutive single transactions cost one call, not one each."""
OPEN_FILES_MAX: Final = 32
"""Segments kept open for reading; a process may open 1,024 files."""


class RecordUnreadable(Exception):
    """A record that was good before is bad now, or lies in a damaged part."""


class HeldRecordHead:
    """The front of a Held record, and the location of its payloads."""

    __slots__ = ("columns", "count", "first_seq", "offset", "segment", "tail_from")

    def __init__(self, place: RecordLocation, record: FramedRecord) -> None:
        self.segment = place.segment
        self.offset = place.offset
        self.first_seq = record.a
        self.count = record.b
        self.columns = record_bodies.decode_held(record.front, record.b, record.flags)
        self.tail_from = place.offset + record.tail_from

    @property
    def last_seq(self) -> int:
        """The seq of its last transaction."""
        return self.first_seq + self.count - 1


NO_HEAD: Final = HeldRecordHead(
    RecordLocation(1, 0, 0), FramedRecord(0, 0, fmt.HELD, 0, 0, 0, b"", 1, 0, b"", bytes(16), 0, 0)
)


class RecordReader:
    """Belongs to the journal's owner; no other thread reads."""

    def __init__(self, files: Vfs, birth: int) -> None:
        self._files = files
        self._birth = birth
        self._open: OrderedDict[int, VfsFile] = OrderedDict()
        self._window = (0, 0, b"")
        self.suspect_segments: set[int] = set()
        """Segments with an unreadable record. Their index files are removed: the next start reads the segments."""

    def read_head(self, place: RecordLocation) -> HeldRecordHead:
        """Raises :class:`RecordUnreadable` when there is no good Held record."""
        raw = self._read_bytes(place.segment, place.offset, fmt.HEAD_BYTES)
        if len(raw) < fmt.HEAD_BYTES:
            raise self._mark_suspect(place.segment, "the segment ends before it")
        fields = fmt.RECORD_HEAD.unpack(raw)
        vitals, front = fields[5], fields[10]
        raw = self._read_bytes(place.segment, place.offset, fmt.HEAD_BYTES + vitals + front)
        record = fmt.read_record_head(raw, 0, fmt.segment_seed(self._birth, place.segment))
        if record is None or record.kind != fmt.HELD:
            raise self._mark_suspect(place.segment, "its checksum is wrong")
        return HeldRecordHead(place, record)

    def read_body(self, place: RecordLocation) -> RecordBody:
        """A whole record of another kind than Held. Raises :class:`RecordUnreadable` when it is bad now."""
        raw = self._read_bytes(place.segment, place.offset, fmt.HEAD_BYTES)
        length = fmt.RECORD_HEAD.unpack(raw)[2] if len(raw) == fmt.HEAD_BYTES else 0
        raw = self._read_bytes(place.segment, place.offset, length)
        record = fmt.read_record(raw, 0, fmt.segment_seed(self._birth, place.segment))
        if record is None:
            raise self._mark_suspect(place.segment, "its checksum is wrong")
        return RecordBody(record.kind, record.flags, record.a, record.b, record.front, b"")

    def read_items(self, head: HeldRecordHead, first: int, count: int) -> list[RunItem]:
        """``count`` items of the record from its ``first``-th (0 = the first) on, each checked by its content hash."""
        sizes = head.columns.sizes
        start = head.tail_from + sum(sizes[:first])
        raw = self._read_bytes(head.segment, start, sum(sizes[first : first + count]))
        payloads, at = [], 0
        for size in sizes[first : first + count]:
            payloads.append(raw[at : at + size])
            at += size
        items = record_bodies.make_items(head.columns, first, payloads)
        for i, item in enumerate(items, first):
            if content_hash(item.kind, item.key, item.payload) != head.columns.content(i):
                raise self._mark_suspect(head.segment, f"the content of item {i + 1} has another hash")
        return items

    def _mark_suspect(self, segment: int, why: str) -> RecordUnreadable:
        self.suspect_segments.add(segment)
        name = fmt.segment_name(segment, "index")
        if name in self._files.list():
            self._files.remove(name)
            self._files.sync_folder()
        return RecordUnreadable(why)

    def invalidate(self, segment: int) -> None:
        """This segment was written to: bytes read ahead from it are outdated."""
        if self._window[0] == segment:
            self._window = (0, 0, b"")

    def close_below(self, segment: int) -> None:
        """Close these segments: they are about to be removed."""
        for number in [number for number in self._open if number < segment]:
            self._open.pop(number).close()
        if self._window[0] < segment:
            self._window = (0, 0, b"")

    def close(self) -> None:
        """Close all segments."""
        for file in self._open.values():
            file.close()
        self._open.clear()

    def _read_bytes(self, segment: int, offset: int, count: int) -> bytes:
        held, start, data = self._window
        if held != segment or offset < start or offset + count > start + len(data):
            data, start = self._open_segment(segment).pread(offset, max(count, WINDOW_BYTES)), offset
            self._window = (segment, start, data)
        return data[offset - start : offset - start + count]

    def _open_segment(self, segment: int) -> VfsFile:
        file = self._open.get(segment)
        if file is None:
            file = self._open[segment] = self._files.open(fmt.segment_name(segment))
            if len(self._open) > OPEN_FILES_MAX:
                self._open.popitem(last=False)[1].close()
        self._open.move_to_end(segment)
        return file
