"""The slow, obvious twin of the journal: records in a list. For tests of the core that have no interest in disks."""

from __future__ import annotations

from array import array
from collections.abc import Iterator

import msgspec

from txlog.model.entry import CONTROL_KINDS, RunItem, Span, TransactionRun
from txlog.model.hashes import HASH_BYTES
from txlog.model.ids import Origin, Txid
from txlog.model.records import (
    AbandonedBranch,
    CounterCeiling,
    LogAppended,
    OperatorOverrides,
    QueuedMetadata,
    Record,
    RecoveredKeyEntry,
    RecoveredState,
    StableAdvanced,
    TransactionsPersisted,
    ViewAccepted,
    ViewInstalled,
    ViewLeft,
    ViewPromised,
)


class ReferenceSync:
    """The write of ``count`` records."""

    def __init__(self, journal: ReferenceJournal, count: int) -> None:
        self._journal = journal
        self.count = count

    def run(self) -> None:
        """Everything up to ``count`` records is durable from here on."""
        self._journal.durable = max(self._journal.durable, self.count)


class ReferenceJournal:
    """``records[:durable]`` survive a crash; ``birth`` and ``start`` are durable at once."""

    def __init__(self, node: str, birth: int) -> None:
        self.node = node
        self.birth = birth
        self.start = 0
        self.records: list[Record] = []
        self.durable = 0
        self.full = False
        self._taken = 0
        self._items: dict[Origin, list[RunItem]] = {}

    def open(self) -> RecoveredState:
        """Read it all again, as a new start of the process does."""
        self.start += 1
        self._taken = self.durable = len(self.records)
        self._items = {}
        for record in self.records:
            self._remember(record)
        return recovered_state(self.node, self.birth, self.start, self.records)

    def crash(self, kept: int) -> None:
        """Lose what was not durable but its first ``kept`` records, which may have reached the disk."""
        del self.records[self.durable + kept :]

    def _remember(self, record: Record) -> None:
        if isinstance(record, TransactionsPersisted):
            items = self._items.setdefault(record.run.origin, [])
            assert record.run.first_seq == len(items) + 1, (record.run.origin, record.run.first_seq, len(items))
            items += record.run.items
        elif isinstance(record, ViewAccepted):
            for origin, seq, stamp in _reassigned_stamps(record):
                items = self._items[origin]
                items[seq - 1] = msgspec.structs.replace(items[seq - 1], stamp=stamp)

    # What the executor needs

    @property
    def dirty(self) -> bool:
        """Whether something was appended that no sync has taken."""
        return len(self.records) > self._taken

    def has_room_for(self, length: int) -> bool:
        """False when clients are refused."""
        return not self.full

    def append(self, record: Record) -> None:
        """Behind all others; not durable yet."""
        self.records.append(record)
        self._remember(record)

    def begin_sync(self) -> ReferenceSync | None:
        """Take what was appended."""
        if not self.dirty:
            return None
        self._taken = len(self.records)
        return ReferenceSync(self, self._taken)

    def end_sync(self, sync: object) -> None:
        """Nothing to tidy up here."""

    def segments_freed_by(self, log_start_index: int, seqs: dict[Origin, int], key_bytes: int = 0) -> int:
        """It has no files to free, so it is never trimmed."""
        return 0

    def read(self, node: str, birth: int, first_seq: int, count_max: int, bytes_max: int) -> TransactionRun:
        """At least one transaction, at most ``count_max`` and, behind the first, ``bytes_max`` bytes of payload."""
        found: list[RunItem] = []
        for item in self._items[Origin(node, birth)][first_seq - 1 : first_seq - 1 + count_max]:
            if found and bytes_max < len(item.payload):
                break
            bytes_max -= len(item.payload)
            found.append(item)
        assert found, (node, first_seq)
        return TransactionRun(node, birth, first_seq, found)


def _reassigned_stamps(record: ViewAccepted) -> Iterator[tuple[Origin, int, int]]:
    for stamped in record.reassigned:
        for seq, stamp in enumerate(stamped.stamps, stamped.first_seq):
            yield Origin(stamped.node, stamped.birth), seq, stamp


def recovered_state(node: str, birth: int, start: int, records: list[Record]) -> RecoveredState:
    """What a journal with these records tells of itself."""
    found = RecoveredState(node, birth, start, not records, None, None, 0, 0, [], bytearray(), 0, [], [], [])
    items: dict[Origin, list[tuple[RunItem, bytes]]] = {}
    for record in records:
        match record:
            case TransactionsPersisted():
                cells = record.contents
                rows = items.setdefault(record.run.origin, [])
                for at, item in enumerate(record.run.items):
                    rows.append((item, cells[at * HASH_BYTES : (at + 1) * HASH_BYTES]))
            case LogAppended():
                found.log_spans += record.spans
                found.log_hashes += record.hashes
                found.stable = record.stable
            case StableAdvanced():
                found.stable = record.index
            case CounterCeiling():
                found.ceiling = max(found.ceiling, record.stamp)
            case ViewPromised():
                found.promised = max(found.promised, (record.epoch, record.ballot, record.coordinator))
            case ViewAccepted():
                _apply_view_accepted(found, record, items)
                for origin, seq, stamp in _reassigned_stamps(record):
                    item, content = items[origin][seq - 1]
                    items[origin][seq - 1] = (msgspec.structs.replace(item, stamp=stamp), content)
            case ViewInstalled():
                assert found.accepted is not None
                found.installed = found.accepted
                found.stable = found.accepted.base_index
                found.overrides = found.overrides.remaining_after(found.accepted, True)
            case ViewLeft():
                found.left = (record.epoch, record.ballot, record.coordinator)
            case OperatorOverrides():
                found.overrides = record
    _fill_log(found, items)
    _fill_queue(found, items)
    return found


def _apply_view_accepted(
    found: RecoveredState, record: ViewAccepted, items: dict[Origin, list[tuple[RunItem, bytes]]]
) -> None:
    found.accepted, found.installed = record.view, None
    found.accepted_number = record.view.number
    found.promised = max(found.promised, record.view.number)
    found.overrides = found.overrides.remaining_after(record.view, False)
    kept = first_entries(found.log_spans, record.cut)
    if record.view.keeps_abandoned and len(found.log_hashes) > HASH_BYTES * record.cut:
        found.abandoned_branches.append(_abandoned_branch(found, record.cut, items))
    found.log_spans = [*kept, *record.spans]
    del found.log_hashes[HASH_BYTES * record.cut :]
    found.log_hashes += record.hashes
    found.stable = min(found.stable, record.cut)


def _abandoned_branch(
    found: RecoveredState, cut: int, items: dict[Origin, list[tuple[RunItem, bytes]]]
) -> AbandonedBranch:
    names = [Txid(Origin(s.node, s.birth), s.first_seq + i) for s in found.log_spans for i in range(s.count)]
    gone = names[cut:]
    held = [(txid, items[txid.origin][txid.seq - 1][0]) for txid in gone]
    return AbandonedBranch(
        cut,
        bytes(found.log_hashes[HASH_BYTES * (cut - 1) : HASH_BYTES * cut]) if cut else b"",
        [Span(txid.origin.node, txid.origin.birth, txid.seq, 1) for txid in gone],
        bytes(found.log_hashes[HASH_BYTES * cut :]),
        [(item.key, txid) for txid, item in held if item.key and item.kind not in CONTROL_KINDS],
    )


def first_entries(spans: list[Span], count: int) -> list[Span]:
    """The order of the first ``count`` entries of a log."""
    kept: list[Span] = []
    for span in spans:
        taken = min(count, span.count)
        if taken:
            kept.append(Span(span.node, span.birth, span.first_seq, taken))
        count -= taken
    return kept


def _fill_log(found: RecoveredState, items: dict[Origin, list[tuple[RunItem, bytes]]]) -> None:
    index = 1
    for span in found.log_spans:
        origin = Origin(span.node, span.birth)
        for seq in range(span.first_seq, span.first_seq + span.count):
            item, content = items[origin][seq - 1]
            if item.key:
                one = Span(origin.node, origin.birth, seq, 1)
                stamps = item.stamp, content, one, item.first_stamp
                found.keys.append(RecoveredKeyEntry(index, item.kind, item.key, *stamps))
            found.log_stamp = item.stamp
            index += 1


def _fill_queue(found: RecoveredState, items: dict[Origin, list[tuple[RunItem, bytes]]]) -> None:
    view = found.accepted
    end = view.final_index(found.stable, found.installed is not None) if view is not None else found.stable
    settled = {Origin(s.node, s.birth): s.first_seq + s.count - 1 for s in first_entries(found.log_spans, end)}
    for origin, rows in items.items():
        first = settled.get(origin, 0) + 1
        waiting = rows[first - 1 :]
        if waiting:
            found.queued.append(
                QueuedMetadata(
                    origin.node,
                    origin.birth,
                    first,
                    array("Q", [item.stamp for item, _ in waiting]),
                    [item.key for item, _ in waiting],
                    array("Q", [item.kind | len(item.payload) << 8 for item, _ in waiting]),
                    bytearray(b"".join([content for _, content in waiting])),
                    array("Q", [i.first_stamp for i, _ in waiting] if any(i.first_stamp for i, _ in waiting) else []),
                )
            )
