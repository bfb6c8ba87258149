"""Recovers a journal at start: reads its segments, cleans up the folder, and rebuilds the state of the master."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from txlog.journal.record_reader import RecordReader, RecordUnreadable
from txlog.journal.recovered_state import rebuild_state
from txlog.journal.scan import JournalScan, scan_journal
from txlog.journal.segment_pool import SegmentPool
from txlog.journal.startup_cleanup import clean_up_files, finish_trim, settle_tail
from txlog.journal.vfs import Vfs
from txlog.model.errors import JournalDamaged
from txlog.model.ids import Origin
from txlog.model.records import RecoveredState


class RecoveredJournal(NamedTuple):
    """``found``: what the segments contain. ``reader``: open on them. ``state``: for the master, with the start number
    of the earlier process. ``space``: the spare segments of the folder."""

    found: JournalScan
    reader: RecordReader
    state: RecoveredState
    space: SegmentPool


def recover(files: Vfs, node: str, draw_birth: Callable[[], int], segment_bytes: int) -> RecoveredJournal:
    """Recover the journal of ``node`` from a locked folder. An empty folder becomes a journal of incarnation
    ``draw_birth()``. Segments created later have ``segment_bytes`` bytes.

    :class:`JournalDamaged`: the folder belongs to another node, or damage cannot be repaired from other masters."""
    found = scan_journal(files, segment_bytes)
    if found is None:
        found = JournalScan(files, Origin(node, draw_birth()))
    if found.own.node != node:
        raise JournalDamaged(
            f"opening the journal of {node}: this folder is the journal of {found.own}. Next: correct the node id"
            " or the folder; nothing was changed"
        )
    space = clean_up_files(files, segment_bytes)
    settle_tail(files, found)
    finish_trim(files, found)
    reader = RecordReader(files, found.own.birth)
    recovered: RecoveredState | None = None
    try:
        recovered = rebuild_state(found, reader)
    except RecordUnreadable as error:
        if reader.suspect_segments.isdisjoint(found.indexed_segments):
            raise JournalDamaged(f"opening the journal of {node}: {error}. Next: start again") from None
    if recovered is None or not reader.suspect_segments.isdisjoint(found.indexed_segments):
        reader.close()  # the index of a damaged segment is removed now: the next scan reads the segment itself
        return recover(files, node, draw_birth, segment_bytes)
    space.refresh()
    return RecoveredJournal(found, reader, recovered, space)
