"""The records of a trim: the table of keys in parts, then the log start. Each is written twice, since only this journal
records them."""

from __future__ import annotations

import msgspec

from txlog.journal import record_bodies
from txlog.journal.origin_index import JournalIndex
from txlog.journal.segment_gc import SegmentSet, seqs_at
from txlog.journal.write_buffer import WriteBuffer
from txlog.model.records import KeyTableWritten, LogTrimmed


class TrimRecords:
    """Appends these records to the buffer. The parts of a table come in order, also over many turns of the owner; other
    records may come between them."""

    def __init__(self, buffer: WriteBuffer, segments: SegmentSet, index: JournalIndex) -> None:
        self._buffer = buffer
        self._segments = segments
        self._index = index
        self._row = 0
        """The number of the first record of this row of parts."""
        self._first_segment = 0
        """The segment with the first part."""

    def append_key_rows(self, record: KeyTableWritten) -> None:
        """Append a part; the one with number 0 begins a new row."""
        if not record.number:
            self._row = self._buffer.number
        body = record_bodies.encode_key_rows(record, self._row)
        segment, _ = self._buffer.append(body)
        if not record.number:
            self._first_segment = segment.number
        self._buffer.append(body)

    def append_trimmed(self, record: LogTrimmed) -> None:
        """Append the log start. One with a table of keys, from another master, brings the table's parts with it."""
        log_start = record.log_start
        if log_start.key_table:
            for number, part in enumerate(log_start.key_table):
                self.append_key_rows(KeyTableWritten(number, part))
            log_start = msgspec.structs.replace(log_start, key_table=[], key_parts=len(log_start.key_table))
        state, seqs = self._buffer.state_header, seqs_at(log_start)
        first = self._segments.first_retained_segment(log_start.index, seqs)
        if log_start.key_parts:
            first = max(self._segments.first, min(first, self._first_segment))
        body = record_bodies.encode_trimmed(log_start, first, state.changes + 1)
        self._buffer.append(body)
        for origin, seq in seqs.items():
            self._index.get_or_create(origin).trim(seq, first)
        state.set_log_start(log_start)
        self._buffer.append(body)
        self._segments.trim(self._buffer.number - 1, first)
