"""Disk clean-up of a start, before any code relies on what was read."""

from __future__ import annotations

from txlog.journal import format as fmt
from txlog.journal.group_commit import OpenSegment
from txlog.journal.scan import JournalScan, JournalTail
from txlog.journal.segment_gc import SegmentRemoval
from txlog.journal.segment_pool import SegmentPool
from txlog.journal.vfs import ZEROS, Vfs, VfsFile


def open_tail_segment(tail: JournalTail, birth: int) -> OpenSegment:
    """The segment that the journal's next record goes into."""
    return OpenSegment(tail.segment, tail.size, tail.end, fmt.segment_seed(birth, tail.segment))


def settle_tail(files: Vfs, found: JournalScan) -> None:
    """Make durable what was read, and zero stale bytes, before anything relies on either.

    A sync of the last records may have failed. They are readable all the same, from memory or from the device's cache,
    and a sync alone would succeed without writing them. So they are written again, and the sync of that write counts.
    All records before them are proven to be synced, by what was written after them.
    """
    files.sync_folder()
    if found.tail.segment == 0:
        return
    file = files.open(fmt.segment_name(found.tail.segment))
    if found.unproven is not None:
        file.pwrite(found.unproven.offset, found.unproven.content)
        found.unproven = None
    if found.stale_bytes is not None:
        _zero(file, found.stale_bytes.start, found.stale_bytes.stop)
    else:
        file.fdatasync()
    file.close()


def finish_trim(files: Vfs, found: JournalScan) -> None:
    """Finish a removal that a crash interrupted after its trim."""
    gone = [piece.number for piece in found.segments if piece.number < found.first_segment]
    if gone:
        SegmentRemoval(files, range(gone[0], gone[-1] + 1), _ignore_error).run()
        found.segments = [piece for piece in found.segments if piece.number >= found.first_segment]


def _ignore_error(text: str) -> None:
    """The error itself is raised."""


def _zero(file: VfsFile, start: int, stop: int) -> None:
    """Write zeros and sync the file. If that fails, the next start reads the disk, not zeros that only memory has."""
    for offset in range(start, stop, len(ZEROS)):
        file.pwrite(offset, ZEROS[: stop - offset])
    try:
        file.fdatasync()
    except OSError:
        file.drop_cached(start)
        raise


def clean_up_files(files: Vfs, segment_bytes: int) -> SegmentPool:
    """Remove half-made spares and indexes without a segment. Zero whole spares again, since one may contain a header
    that was never needed."""
    spares, highest = [], 0
    names = files.list()
    for name in names:
        kind, number = fmt.parse_name(name) or ("", 0)
        highest = max(highest, number)
        lone = kind == "index" and fmt.segment_name(number) not in names
        if kind == "making" or lone or (kind == "spare" and files.size(name) != segment_bytes):
            files.remove(name)
        elif kind == "spare":
            _zero_file(files, name)
            spares.append(name)
    return SegmentPool(files, segment_bytes, spares, highest)


def _zero_file(files: Vfs, name: str) -> None:
    file = files.open(name)
    used = len(file.pread(0, fmt.HEADERS_MAX).rstrip(b"\0"))
    if used:
        _zero(file, 0, used)
    file.close()
