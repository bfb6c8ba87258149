"""Inspects a journal from outside: ``txlog journal check|show DIR``. Read-only: nothing is raised or truncated."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from txlog.journal import format as fmt
from txlog.journal import record_bodies
from txlog.journal.format import FramedRecord
from txlog.journal.recovered_state import find_damage
from txlog.journal.scan import scan_journal
from txlog.journal.vfs import OsVfs, Vfs
from txlog.model.errors import JournalDamaged
from txlog.model.records import Damage
from txlog.model.view import NO_VIEW, Number


@dataclass(frozen=True)
class JournalReport:
    """``ok``: this journal will open without damage. ``refused``: why it will not open at all, or empty. ``accepted``,
    ``installed``, ``promised``, ``left``: numbers of views, empty without one. ``log_start``: the log start,
    ``first_segment``: the first segment of the retained log."""

    origin: str = ""
    start: int = 0
    records: int = 0
    log_end: int = 0
    log_hash: str = ""
    stable: int = 0
    log_start: int = 0
    first_segment: int = 1
    ceiling: int = 0
    accepted: str = ""
    installed: str = ""
    promised: str = ""
    left: str = ""
    held: dict[str, int] = field(default_factory=dict)
    cut_bytes: int = 0
    damage: list[Damage] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    refused: str = ""

    @property
    def ok(self) -> bool:
        """Whether this journal will open without damage."""
        return not (self.refused or self.damage)


def check_journal(folder: Path | str | Vfs) -> JournalReport:
    """Reads every record and payload. A journal in use may be checked: then its last batch may look torn."""
    if isinstance(folder, (str, Path)) and not Path(folder).is_dir():
        return JournalReport(notes=["no journal: the folder is missing"])
    files = _open_read_only(folder)
    try:
        found = scan_journal(files, 0, by_index=False)
    except JournalDamaged as error:
        return JournalReport(refused=str(error))
    if found is None:
        return JournalReport(notes=["no journal: the folder holds no segment"])
    state = found.state
    return JournalReport(
        origin=str(found.own),
        start=state.start,
        records=found.number - 1,
        log_end=state.log_end,
        log_hash=state.log_hash.hex(),
        stable=state.stable,
        log_start=found.log_start.index,
        first_segment=found.first_segment or 1,
        ceiling=state.ceiling,
        accepted=_format_view_number(state.accepted),
        installed=_format_view_number(state.installed),
        promised=_format_view_number(state.promised),
        left=_format_view_number(state.left),
        held={str(origin): last for origin, last in state.held.items()},
        cut_bytes=found.stale_bytes.stop - found.stale_bytes.start if found.stale_bytes else 0,
        damage=find_damage(found),
        notes=found.notes,
    )


def _format_view_number(number: Number) -> str:
    return "" if number == NO_VIEW else str(number)


def dump_journal(folder: Path | str | Vfs) -> Iterator[str]:
    """A line for each segment and each record that can be read, in order; broken places are named."""
    files = _open_read_only(folder)
    birth: int | None = None
    for name in files.list():
        parsed = fmt.parse_name(name)
        if parsed is None or parsed[0] != "segment":
            yield f"{name}: {files.size(name)} bytes" if parsed else f"{name}: not a file of the journal"
            continue
        file = files.open(name)
        data = file.pread(0, files.size(name))
        file.close()
        try:
            header = fmt.read_segment_header(data, parsed[1])
        except fmt.UnknownSegmentFormat as error:
            yield f"{name}: {error}"
            continue
        if header is None:
            yield f"{name}: its header cannot be read"
        else:
            birth = header.birth
            whose = f"{header.state_header.own}, from record {header.first}"
            yield f"{name}: {whose}, {header.size} bytes, {header.copies} header copies"
        if birth is not None:
            start = header.records_from if header else 0
            yield from _describe_records(data, start, fmt.segment_seed(birth, parsed[1]))


def _describe_records(data: bytes, offset: int, seed: int) -> Iterator[str]:
    while (at := data.find(fmt.RECORD_MARK, offset)) >= 0:
        record = fmt.read_record(data, at, seed) if at % 8 == 0 else None
        if record is None:
            offset = at + 1
            continue
        if at > offset:
            yield f"  {offset:>9}  ...       {at - offset} bytes that are no record"
        yield f"  {at:>9}  {record.number:>8}  {fmt.KIND_NAMES[record.kind]} {_describe(record)}".rstrip()
        offset = at + record.length
    rest = len(data[offset:].rstrip(b"\0"))
    if rest:
        yield f"  {offset:>9}  ...       {rest} bytes that are no record"


def _describe(record: FramedRecord) -> str:
    repair = " repair" if record.flags & fmt.FLAG_REPAIR else ""
    match record.kind:
        case fmt.HELD:
            return f"{record_bodies.parse_origin(record.front)} {record.a}..{record.a + record.b - 1}{repair}"
        case fmt.ADDED:
            added = record_bodies.decode_added(record.front)
            spans = " ".join(f"{s.node}.{s.birth:016x}:{s.first_seq}+{s.count}" for s in added.spans)
            return f"{record.a}..{record.a + record.b - 1} stable {added.stable} {spans}{repair}"
        case fmt.STARTED | fmt.STABLE | fmt.CEILING:
            return str(record.a)
        case fmt.VIEW_ACCEPTED:
            return _describe_accepted(record) + repair
        case fmt.VIEW_INSTALLED:
            return f"{record_bodies.decode_view_number(record.front)} stable {record.a}"
        case fmt.PROMISED | fmt.LEFT:
            return str(record_bodies.decode_view_number(record.front))
        case fmt.TRIMMED:
            log_start = record_bodies.decode_trimmed(record.front)
            keys = f"{log_start.key_parts} parts of keys" if log_start.key_parts else f"{len(log_start.keys)} keys"
            kept = f"{keys}, {len(log_start.skips)} skips"
            at = f"at {log_start.index} {log_start.hash.hex()}"
            return f"{at}, change {record.b}, segments from {record.a}, {kept}{repair}"
        case fmt.KEY_ROWS:
            part = record_bodies.decode_key_part(record.front)
            return f"part {record.a} of the table of keys, {len(part.rows)} bytes"
        case fmt.ORDERS:
            orders = record_bodies.decode_orders(record.front)
            without = ", ".join(f"{node}.{birth:016x} start {start}" for node, birth, start in orders.excluded_members)
            members = ", ".join(orders.bootstrap_members)
            return f"begin with: {members or 'no order'}; go on without: {without or 'no order'}"
        case fmt.REPAIRED:
            return str(record_bodies.decode_repaired(record.front))
        case _:
            return f"up to {record.synced}"


def _describe_accepted(record: FramedRecord) -> str:
    accepted = record_bodies.decode_accepted(record.front)
    number = str(accepted.view.number)
    if not record.b:
        return number
    spans = "".join(f" {s.node}.{s.birth:016x}:{s.first_seq}+{s.count}" for s in accepted.spans)
    stamps = "".join(f" {s.node}.{s.birth:016x}:{s.first_seq}+{len(s.stamps) // 8}" for s in accepted.stamped)
    return f"{number} change {record.b}: truncated after {record.a}, log{spans or ' ends'}, stamps{stamps or ' stay'}"


def _open_read_only(folder: Path | str | Vfs) -> Vfs:
    return OsVfs(folder, read_only=True) if isinstance(folder, (str, Path)) else folder
