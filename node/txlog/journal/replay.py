"""Replays the records of a journal: its state, the transactions held, the order of the log, and the views.

It reads no files; :mod:`txlog.journal.scan` does.
"""

from __future__ import annotations

from typing import Final, NamedTuple, NoReturn

import msgspec

from txlog.journal import format as fmt
from txlog.journal import record_bodies
from txlog.journal.log_order import LogOrder, RepairedSpan, slice_spans
from txlog.journal.origin_index import JournalIndex, OriginIndex, RecordLocation
from txlog.journal.record_structs import ViewAcceptedPrologue
from txlog.journal.state_header import StateHeader
from txlog.model.entry import Span
from txlog.model.errors import JournalDamaged
from txlog.model.hashes import HASH_BYTES, NO_HASH
from txlog.model.ids import Origin
from txlog.model.records import EMPTY_LOG_START, LogStart
from txlog.model.view import NO_VIEW, Number, View

START_EMPTY: Final = (
    "set this folder aside and start with an empty one: the master learns the log from a master that has it; where "
    "none has it, it waits for txlog bootstrap (docs/how-to/replace-a-disk.md)"
)
"""What to do with a journal that cannot be repaired; the end of a message."""


class KeyedTransaction(NamedTuple):
    """A held transaction with a key (a skip's key is the txid it names)."""

    kind: int
    key: str
    stamp: int
    content: bytes
    first_stamp: int = 0


class DamagedRecords(NamedTuple):
    """Records ``first``..``last`` cannot be read (none when only a header is bad). ``log_from``..``log_to`` are the
    log indexes whose order is lost, ``end_hash`` the chain hash after them, and ``spans`` the transactions lost."""

    first: int
    last: int
    segment: int
    where: str
    case_letter: str
    log_from: int
    log_to: int
    end_hash: bytes
    spans: list[Span]


class RepairedRecords(NamedTuple):
    """Records ``first``..``last`` that a repair has replaced."""

    first: int
    last: int
    segment: int

    def covers(self, bad: DamagedRecords) -> bool:
        """Whether this repair covers all of that damage; damage of a header is compared by segment."""
        if bad.last < bad.first:
            return bad.segment == self.segment
        return self.first <= bad.first and bad.last <= self.last


class JournalReplay:
    """The state of the journal of ``own`` after the records replayed so far."""

    def __init__(self, own: Origin) -> None:
        self.own = own
        self.state = StateHeader(own)
        self.number = 1
        """Number of the next record."""
        self.index = JournalIndex()
        self.index.get_or_create(own)
        self.order = LogOrder()
        self.abandoned: list[tuple[int, bytes, list[Span], bytes]] = []
        """As :class:`txlog.model.records.AbandonedBranch`, without keys."""
        self.views: dict[Number, View] = {}
        self.copies: dict[tuple[Number, int], list[RecordLocation]] = {}
        """Locations of the good copies of each accepted view, by view number and number of the change it makes (0:
        none). Copies of a log start are stored under no view."""
        self.log_start: LogStart = EMPTY_LOG_START
        self._key_parts: dict[int, bytes] = {}
        self._key_parts_row = -1
        """The parts of the latest table of keys by number, and which row of parts they are."""
        self.first_segment = 0
        """The first segment that is still needed after the last trim."""
        self.keyed: dict[Origin, dict[int, KeyedTransaction]] = {}
        self.damaged: list[DamagedRecords] = []
        self.repaired: list[RepairedRecords] = []
        self.refilled_spans: list[Span] = []

    # -- records

    def _replay_held(self, flags: int, a: int, b: int, front: bytes, segment: int, offset: int) -> None:
        origin = record_bodies.parse_origin(front)
        held = self.index.get_or_create(origin)
        if flags & fmt.FLAG_REPAIR:
            held.replace_damaged(a, segment, offset)
            self.refilled_spans.append(Span(origin.node, origin.birth, a, b))
        elif a == held.last + 1:
            held.last = a + b - 1
            held.add(a, segment, offset)
        else:
            self._refuse(f"record {self.number} or later holds {origin} from {a} on, after {held.last}", "X")
        if flags & fmt.FLAG_KEYED:
            self._index_keys(held, a, record_bodies.decode_held(front, b, flags))

    def _index_keys(self, held: OriginIndex, first: int, columns: record_bodies.HeldPrologue) -> None:
        named = self.keyed.setdefault(held.origin, {})
        for i, key in enumerate(columns.keys):
            if key:
                stamps = columns.stamps[i], columns.content(i), columns.first_stamps[i] if columns.first_stamps else 0
                named[first + i] = KeyedTransaction(columns.kinds[i], key, *stamps)

    def _replay_other(self, kind: int, flags: int, a: int, b: int, front: bytes, place: RecordLocation) -> None:
        state = self.state
        match kind:
            case fmt.ADDED:
                self._replay_added(flags, a, front)
            case fmt.STABLE:
                state.set_stable(a)
            case fmt.CEILING:
                state.set_ceiling(a)
            case fmt.STARTED:
                state.set_start(a)
            case fmt.VIEW_ACCEPTED:
                self._replay_view_accepted(flags, a, b, front, place)
            case fmt.VIEW_INSTALLED:
                state.set_installed(record_bodies.decode_view_number(front), a)
            case fmt.PROMISED:
                state.set_promised(record_bodies.decode_view_number(front))
            case fmt.LEFT:
                state.set_left(record_bodies.decode_view_number(front))
            case fmt.ORDERS:
                state.set_overrides(record_bodies.decode_orders(front))
            case fmt.KEY_ROWS:
                self._replay_key_rows(a, b, front)
            case fmt.TRIMMED:
                self._replay_trimmed(flags, a, b, front, place)
            case fmt.REPAIRED:
                self.repaired.append(RepairedRecords(*record_bodies.decode_repaired(front)))

    def _replay_added(self, flags: int, first_index: int, front: bytes) -> None:
        added = record_bodies.decode_added(front)
        if flags & fmt.FLAG_REPAIR:
            self.order.repaired_spans.append(RepairedSpan(first_index, added.spans, added.hashes))
            return
        if first_index != self.order.end + 1:
            self._refuse(f"the log ends at {self.order.end}, and a record adds {first_index}", "X")
        self.order.add(added.spans, added.hashes)
        self.state.set_log(self.order.end, added.hashes[-16:] or self.state.log_hash, added.stable)

    def _replay_view_accepted(self, flags: int, cut: int, change: int, front: bytes, place: RecordLocation) -> None:
        """The second copy, and a copy that a repair wrote, change nothing."""
        accepted = record_bodies.decode_accepted(front)
        view, state = accepted.view, self.state
        self._remember_views(view)
        self.copies.setdefault((view.number, change), []).append(place)
        if flags & fmt.FLAG_REPAIR:
            return
        state.set_accepted(view)
        if change == state.changes + 1:
            if cut > self.order.end:
                self._refuse(f"the log ends at {self.order.end}, and a view cuts it at {cut}", "X")
            self._apply_view_change(cut, accepted)
            state.set_change(view, cut, accepted.hashes)
        elif change > state.changes:
            self._refuse(f"a view changes the log as number {change} after {state.changes}", "X")

    def _replay_key_rows(self, number: int, row: int, front: bytes) -> None:
        """A part of a table of keys; the second copy changes nothing. A row of parts that no trim followed is
        forgotten."""
        if row != self._key_parts_row:
            self._key_parts, self._key_parts_row = {}, row
        self._key_parts[number] = front

    def _with_key_table(self, log_start: LogStart) -> LogStart:
        """The log start with the table of keys that precedes its record, as far as that is there: a later trim may have
        removed the parts of an earlier one."""
        fronts = [self._key_parts[number] for number in range(log_start.key_parts) if number in self._key_parts]
        self._key_parts = {}
        parts = [record_bodies.decode_key_part(front) for front in fronts]
        return msgspec.structs.replace(log_start, key_table=parts) if parts else log_start

    def require_key_table(self) -> None:
        """Refuse a journal whose log start lacks a part of its table of keys."""
        lost = self.log_start.key_parts - len(self.log_start.key_table)
        if lost:
            self._refuse(f"{lost} parts of the table of keys have no copy that can be read", "V")

    def _replay_trimmed(self, flags: int, first_segment: int, change: int, front: bytes, place: RecordLocation) -> None:
        """As with a view, the second copy changes nothing."""
        self.copies.setdefault((NO_VIEW, change), []).append(place)
        if flags & fmt.FLAG_REPAIR or change <= self.state.changes:
            return
        if change != self.state.changes + 1:
            self._refuse(f"the log is trimmed as change {change} after {self.state.changes}", "X")
        log_start = self._with_key_table(record_bodies.decode_trimmed(front))
        self.sync_state_header()
        self._apply_trim(first_segment, log_start)
        self.state.set_log_start(log_start)

    def _apply_trim(self, first_segment: int, log_start: LogStart) -> None:
        order = self.order
        if log_start.index > order.end:
            order.begin(log_start.index, log_start.hash)
        elif log_start.index >= order.start:  # else a later trim has removed the files that this one left
            order.trim(log_start.index, log_start.hash)
        for node, birth, seq in log_start.seqs:
            self.index.get_or_create(Origin(node, birth)).trim(seq, first_segment)
        self.log_start, self.first_segment = log_start, first_segment
        self.abandoned.clear()  # the log start lists them

    def _remember_views(self, *views: View | None) -> None:
        for view in views:
            if view is not None:
                self.views[view.number] = view

    # -- the order

    def _apply_view_change(self, cut: int, front: ViewAcceptedPrologue) -> None:
        """Truncate the log at ``cut``, continue it with the view's order, and reassign stamps. If ``cut`` lies in a
        damaged part, the hash there is unknown but the hash of the next entry is known. That entry is then counted as
        damaged, too."""
        order, view = self.order, front.view
        self._remember_views(view)
        if cut > order.end:
            self._add_missing_span(cut, NO_HASH)
        self._keep_abandoned_branch(cut, view)
        order.truncate(cut)
        spans, hashes, damaged_to = front.spans, front.hashes, cut
        if order.end_is_unknown and hashes:
            order.add_missing_span(1, hashes[:HASH_BYTES])
            spans, hashes = slice_spans(spans, 1, len(hashes)), hashes[HASH_BYTES:]
            damaged_to = cut + 1
        elif order.end_is_unknown:
            order.set_end_hash(view.base_hash)
        for at, bad in enumerate(self.damaged):
            inside = bad.log_from <= cut <= bad.log_to
            self.damaged[at] = bad._replace(log_to=damaged_to if inside else min(bad.log_to, cut))
        order.add(spans, hashes)
        for stamped in front.stamped:
            origin = Origin(stamped.node, stamped.birth)
            self.index.get_or_create(origin).restamps.set_range(
                stamped.first_seq, record_bodies.decode_stamps(stamped.stamps)
            )

    def _keep_abandoned_branch(self, cut: int, view: View) -> None:
        if cut >= self.order.end or not view.keeps_abandoned:
            return
        found = self.order.entries_after(cut)
        if found is not None:
            self.abandoned.append((cut, self.order.hash_at(cut) if cut else b"", *found))

    def _add_missing_span(self, log_to: int, end_hash: bytes) -> None:
        """The order up to this index was stored in the most recently recorded damage."""
        first, bad = self.order.end + 1, self.damaged[-1]
        if log_to >= first:
            self.order.add_missing_span(log_to - first + 1, end_hash)
            log_from = bad.log_from if bad.log_from <= bad.log_to else first
            self.damaged[-1] = bad._replace(log_from=log_from, log_to=log_to)

    # -- state header and copies

    def sync_state_header(self) -> None:
        """Copy the last seqs from the index to the state header: the loop over the records updates only the index."""
        for held in self.index.all():
            if self.state.held.get(held.origin, 0) != held.last:
                self.state.set_held(held.origin, held.last)

    def unpaired_copies(self) -> list[RecordLocation]:
        """Changes, and the view in force, of which only one copy is left: one more flipped bit would lose it."""
        kept = self._retained_copies()
        trims = [change for number, change in kept if number == NO_VIEW]
        needed = [
            places
            for (number, change), places in kept.items()
            if (change == max(trims) if number == NO_VIEW else change or number == self.state.accepted)
        ]
        return [places[0] for places in needed if len(places) == 1]

    def view_without_copy(self) -> View | None:
        """The view in force if only segment headers contain it."""
        copied = {number for number, _ in self._retained_copies()}
        return None if self.state.accepted in copied else self.view(self.state.accepted)

    def _retained_copies(self) -> dict[tuple[Number, int], list[RecordLocation]]:
        """Copies in segments that the last trim retained. The other segments, if they still exist, are removed before
        the next write."""
        first = self.first_segment
        kept = {key: [place for place in places if place.segment >= first] for key, places in self.copies.items()}
        return {key: places for key, places in kept.items() if places}

    def view(self, number: Number) -> View | None:
        """The accepted view of this number; None for no view or an unknown number."""
        return None if number == NO_VIEW else self.views.get(number)

    def _refuse(self, what: str, letter: str) -> NoReturn:
        raise JournalDamaged(
            f"recovering the journal of {self.own}: {what} (case {letter}). The lost records may have been"
            " promises and own transactions, so no other master can repair it. Next: bring the file back, or "
            + START_EMPTY
        )
