"""What a start settles on the disk, before anything relies on what was read."""

from __future__ import annotations

from txlog.journal import format as fmt
from txlog.journal.batch import Segment
from txlog.journal.files import ZEROS, File, Files
from txlog.journal.scan import Scan, Tail
from txlog.journal.space import Space
from txlog.journal.trim import Removal


def tail_segment(tail: Tail, birth: int) -> Segment:
    return Segment(tail.segment, tail.size, tail.end, fmt.segment_seed(birth, tail.segment))


def settle_tail(files: Files, found: Scan) -> None:
    """Stale bytes are zeroed, and what an earlier process wrote without a
    sync, or renamed without one, is made durable."""
    files.sync_folder()
    if found.tail.segment == 0:
        return
    file = files.open(fmt.segment_name(found.tail.segment))
    if found.cut is not None:
        _zero(file, found.cut.start, found.cut.stop)
    file.fdatasync()
    file.close()


def finish_trim(files: Files, found: Scan) -> None:
    """A crash came between a trim and the removal of what it left."""
    gone = [piece.number for piece in found.pieces if piece.number < found.first_segment]
    if gone:
        Removal(files, range(gone[0], gone[-1] + 1), _ignored).run()
        found.pieces = [piece for piece in found.pieces if piece.number >= found.first_segment]


def _ignored(text: str) -> None:
    """The error itself is raised."""


def _zero(file: File, start: int, stop: int) -> None:
    for offset in range(start, stop, len(ZEROS)):
        file.pwrite(offset, ZEROS[: stop - offset])


def clean_up(files: Files, segment_bytes: int) -> Space:
    """Half-made spares go, and indexes without a segment; whole spares are zeros again, should one carry a header that
    was never needed."""
    spares, highest = [], 0
    names = files.list()
    for name in names:
        kind, number = fmt.parse_name(name) or ("", 0)
        highest = max(highest, number)
        lone = kind == "index" and fmt.segment_name(number) not in names
        if kind == "making" or lone or (kind == "spare" and files.size(name) != segment_bytes):
            files.remove(name)
        elif kind == "spare":
            _blank(files, name)
            spares.append(name)
    return Space(files, segment_bytes, spares, highest)


def _blank(files: Files, name: str) -> None:
    file = files.open(name)
    used = len(file.pread(0, fmt.HEADERS_MAX).rstrip(b"\0"))
    if used:
        _zero(file, 0, used)
        file.fdatasync()
    file.close()
