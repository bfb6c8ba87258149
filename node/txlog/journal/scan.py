"""Reading a whole journal, once, in order. Changes nothing on the disk; :mod:`txlog.journal.recovery` decides.

One ``pread`` for a segment; then a loop over its records that makes no object for an entry. Where a good index stands
beside a segment that another follows, it is read instead (:mod:`txlog.journal.sealed`).
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from hashlib import blake2b
from typing import NamedTuple, NoReturn
from zlib import crc32

from txlog.journal import bodies
from txlog.journal import format as fmt
from txlog.journal.files import ZEROS, Files
from txlog.journal.format import Framed, SegmentHeader
from txlog.journal.fronts import AcceptedFront
from txlog.journal.index import Index, OriginIndex, Place
from txlog.journal.order import Fill, LogOrder, slice_spans
from txlog.journal.recovery import Case, Decision, End, Seen, decide
from txlog.journal.sealed import Block, Identity, SealedIndex, Single, decode_index, index_name
from txlog.journal.vitals import Vitals, missing_spans
from txlog.model.entry import Span
from txlog.model.errors import JournalDamaged
from txlog.model.hashes import HASH_BYTES, NO_HASH
from txlog.model.ids import Origin
from txlog.model.records import NO_FOOT, Foot
from txlog.model.view import NO_VIEW, Number, View

_FRONT_FROM = fmt.HEAD_BYTES - fmt.CRC_FROM


class Named(NamedTuple):
    """A held transaction with a key (a skip's key is the txid it names)."""

    kind: int
    key: str
    stamp: int
    content: bytes


class Bad(NamedTuple):
    """Records ``first``..``last`` cannot be read (none when only a header is bad); what stood before and after."""

    first: int
    last: int
    segment: int
    where: str
    letter: str
    log_from: int
    log_to: int
    end_hash: bytes
    spans: list[Span]


class Repaired(NamedTuple):
    first: int
    last: int
    segment: int

    def covers(self, bad: Bad) -> bool:
        if bad.last < bad.first:
            return bad.segment == self.segment
        return self.first <= bad.first and bad.last <= self.last


class Cut(NamedTuple):
    """Bytes ``start``..``stop`` of a segment are no records and must be zeroed."""

    segment: int
    start: int
    stop: int


class Tail(NamedTuple):
    """Where the next record goes. ``size`` is ``end`` where nothing more may go into that segment."""

    segment: int
    end: int
    size: int
    first: int


class Piece(NamedTuple):
    """A segment that is there. ``first``, ``chain``, ``vitals``: before its first (good) record."""

    number: int
    header: SegmentHeader | None
    records_from: int
    size: int
    first: int
    chain: bytes | None
    vitals: Vitals


class Scan:
    """What was read. Filled by :func:`scan`."""

    def __init__(self, files: Files, own: Origin, indexes: frozenset[int] = frozenset()) -> None:
        self.files = files
        self.own = own
        self._indexes = indexes
        """Of which segments there is one that may be used."""
        self.indexed: list[int] = []
        """The segments that were not read, since their index told everything."""
        self.whole: list[int] = []
        """Those that were read, in which nothing is damaged."""
        self.state = Vitals(own)
        self.number = 1
        """Of the next record."""
        self.chain: bytes | None = fmt.EMPTY_CHAIN
        """Before the next record; None behind damage."""
        self.index = Index()
        self.index.at(own)
        self.order = LogOrder()
        self.abandoned: list[tuple[int, bytes, list[Span], bytes]] = []
        """As :class:`txlog.model.records.Abandoned`, without keys."""
        self.views: dict[Number, View] = {}
        self.copies: dict[tuple[Number, int], list[Place]] = {}
        """Where the good copies of each accepted view stand, by the number of what it changes besides (0: nothing);
        those of a foot under no view."""
        self.foot: Foot = NO_FOOT
        self.first_segment = 0
        """The first that is needed since the log was trimmed there."""
        self.pieces: list[Piece] = []
        self.named: dict[Origin, dict[int, Named]] = {}
        self.bad: list[Bad] = []
        self.repaired: list[Repaired] = []
        self.refills: list[Span] = []
        self.notes: list[str] = []
        self.cases: list[str] = []
        self.cut: Cut | None = None
        self.tail = Tail(0, 0, 0, 1)
        self.last_synced = 0
        """The last record known to be synced."""

    # -- segments

    def read(self, pieces: list[Piece], broken: list[int], *, trimmed: bool = False) -> None:
        """``trimmed``: what stood before the first segment is gone for good."""
        self.pieces = pieces
        if trimmed:
            self._begin_at(pieces[0])
        self._leave(Seen(End.SPENT, False, True, pieces[0].first > self.number, True), pieces[0], "the first segments")
        for at, piece in enumerate(pieces):
            following = pieces[at + 1] if at + 1 < len(pieces) else None
            if following is not None and self._by_index(piece, following):
                self.indexed.append(piece.number)
                continue
            bad = len(self.bad)
            self._segment(piece, following)
            if following is not None and len(self.bad) == bad:
                self.whole.append(piece.number)
        if broken and broken[-1] > pieces[-1].number:
            name = fmt.segment_name(broken[-1])
            self._refuse(f"nothing in the last segment, {name}, can be read", "R")
        self.settle()
        self.order.close()

    def _begin_at(self, piece: Piece) -> None:
        """In the middle of a life: the segments before were trimmed away."""
        self.state = piece.vitals.copy()
        self.number, self.chain = piece.first, piece.chain
        for origin, last in self.state.held.items():
            self.index.at(origin).last = last
        self.order.begin(self.state.log_end, self.state.log_hash)

    @property
    def is_whole(self) -> bool:
        """Whether everything that a trim has left is there."""
        first = self.pieces[0]
        return first.first == 1 or (0 < first.number <= self.first_segment and self.order.start == self.foot.index)

    def _segment(self, piece: Piece, following: Piece | None) -> None:
        name = fmt.segment_name(piece.number)
        self._enter(piece, name)
        data = _read_all(self.files, name)[: piece.size]
        seed = fmt.segment_seed(self.own.birth, piece.number)
        offset = piece.records_from
        while True:
            offset = self._stretch(data, offset, seed, piece.number)
            end = _end(data, offset)
            later, promise = (None, 0) if end is End.ZEROS else _look_ahead(data, offset, seed, self.number + 1)
            known = max(promise, following.first - 1 if following else 0)
            whole = len(data) >= piece.size
            seen = Seen(end, later is not None, following is not None, known >= self.number, whole)
            case = self._leave(seen, following, f"{name} at byte {offset}", later)
            if case.decision is not Decision.DAMAGE_RESUME:
                break
            assert later is not None
            offset = later.offset
        self._close(case, piece, data, offset)

    # -- segments that need not be read

    def _by_index(self, piece: Piece, following: Piece) -> bool:
        """Take what the segment's index tells in place of its records, if it is this very segment's: between these
        records, with these chain hashes, as its header and the next one's say."""
        header, behind = piece.header, following.header
        if piece.number not in self._indexes or header is None or behind is None:
            return False
        name = fmt.segment_name(piece.number)
        if (self.number, self.chain) != (header.first, header.chain) or self.files.size(name) < header.size:
            return False
        found = decode_index(_read_all(self.files, index_name(piece.number)))
        wanted = Identity(self.own.birth, piece.number, header.first, behind.first, header.chain, behind.chain)
        if found is None or found.identity != wanted:
            self.notes.append(f"{index_name(piece.number)} cannot be used; the segment was read")
            return False
        self._enter(piece, name)
        try:
            self._replay(found, piece.number)
        except JournalDamaged as wrong:
            raise IndexContradicts(piece.number, str(wrong)) from None
        self._check(piece.number, behind.vitals)
        self.number, self.chain, self.state = behind.first, behind.chain, behind.vitals.copy()
        self.last_synced = self.number - 1
        return True

    def _replay(self, found: SealedIndex, segment: int) -> None:
        at = 0
        for event in found.events:
            if isinstance(event, Single):
                self._single(event, segment)
                continue
            count = HASH_BYTES * sum([span.count for span in event.spans])
            self._block(event, found.hashes[at : at + count], segment)
            at += count

    def _single(self, event: Single, segment: int) -> None:
        if event.kind == fmt.HELD:
            self._held(event.flags, event.a, event.b, event.front, segment, event.offset)
        else:
            place = Place(event.a, segment, event.offset)
            self._other(event.kind, event.flags, event.a, event.b, event.front, place)

    def _block(self, block: Block, hashes: memoryview, segment: int) -> None:
        for rows in block.origins:
            held = self.index.at(Origin(rows.node, rows.birth))
            firsts, offsets = array("Q", rows.firsts), array("I", rows.offsets)
            if firsts[0] != held.last + 1:
                self._refuse(f"{held.origin} goes on at {firsts[0]} behind {held.last}", "X")
            held.extend(firsts, segment, offsets, rows.last)
            for first in rows.named:
                held.note_named(first)
        for row in block.named:
            named = self.named.setdefault(Origin(row.node, row.birth), {})
            named[row.seq] = Named(row.kind, row.key, row.stamp, row.content)
        if block.spans:
            self.order.add(block.spans, hashes)
            self.state.set_log(self.order.end, bytes(hashes[-HASH_BYTES:]), self.state.stable)

    def _check(self, segment: int, end: Vitals) -> None:
        """What an index told leads to what the next segment's header found."""
        self.settle()
        state = self.state
        views = (state.changes, state.accepted, state.installed, state.promised, state.left)
        same = views == (end.changes, end.accepted, end.installed, end.promised, end.left)
        same = same and self.order.end == state.log_end == end.log_end and state.log_hash == end.log_hash
        if not same or state.held != end.held:
            raise IndexContradicts(segment, f"it leads to entry {state.log_end}, and the segment to {end.log_end}")

    def _enter(self, piece: Piece, name: str) -> None:
        header = piece.header
        if header is None:
            self._damage(Bad(self.number, self.number - 1, piece.number, f"the header of {name}", "G", 1, 0, b"", []))
            return
        if header.copies < 2:
            self.notes.append(f"{name}: one of the two header copies is broken; nothing is lost")
        self._know(header.accepted, header.installed)
        self.settle()
        if header.chain != self.chain or header.vitals.encoded != self.state.encoded:
            self._refuse(f"{name} does not continue the segment before it", "X")

    def _close(self, case: Case, piece: Piece, data: bytes, offset: int) -> None:
        if case.decision is Decision.CUT:
            self.cut = Cut(piece.number, offset, len(data.rstrip(b"\0")))
        elif case.letter == "E":
            self.notes.append(f"{fmt.segment_name(piece.number)} at byte {offset}: dirt behind the last record")
        size = piece.size if len(data) >= piece.size else offset
        self.tail = Tail(piece.number, offset, size, piece.first)

    # -- where the records stop

    def _leave(self, seen: Seen, following: Piece | None, where: str, later: Framed | None = None) -> Case:
        case = decide(seen)
        self.cases.append(case.letter)
        if case.decision is Decision.REFUSE:
            self._refuse(f"{where}: record {self.number} cannot be read ({seen.end.value})", case.letter)
        if case.decision is Decision.DAMAGE_RESUME:
            assert later is not None
            self._jump(later.number, None, Vitals.parse(later.vitals), where, case.letter)
        elif case.decision is Decision.DAMAGE_NEXT:
            assert following is not None
            self._jump(following.first, following.chain, following.vitals, where, case.letter)
        return case

    def _jump(self, number: int, chain: bytes | None, after: Vitals, where: str, letter: str) -> None:
        """The records up to ``number`` are lost; the vitals behind them tell what they did."""
        self.settle()
        before, self.state = self.state, after.copy()
        spans = missing_spans(before, after)
        text = f"records {self.number} to {number - 1}: {where}"
        end = self.order.end
        self._damage(Bad(self.number, number - 1, 0, text, letter, end + 1, end, after.log_hash, spans))
        for origin, last in after.held.items():
            self.index.at(origin).last = last
        for change in range(before.changes + 1, after.changes + 1):
            found = self._find_change(change, where)
            if isinstance(found, Framed):
                self._trim(found.a, bodies.decode_trimmed(found.front))
            else:
                self._change(*found)
        self._hole(after.log_end, after.log_hash)
        if self.order.end != after.log_end:
            self._refuse(f"{where}: the log ends at {self.order.end}, and behind it at {after.log_end}", "X")
        self.number, self.chain = number, chain

    def _hole(self, log_to: int, end_hash: bytes) -> None:
        """The order up to this index stood in the damage that was named last."""
        first, bad = self.order.end + 1, self.bad[-1]
        if log_to >= first:
            self.order.add_hole(log_to - first + 1, end_hash)
            log_from = bad.log_from if bad.log_from <= bad.log_to else first
            self.bad[-1] = bad._replace(log_from=log_from, log_to=log_to)

    def _find_change(self, change: int, where: str) -> tuple[int, AcceptedFront] | Framed:
        """A good copy of it, wherever it stands: mostly right behind the one that is lost."""
        for piece in self.pieces:
            data = _read_all(self.files, fmt.segment_name(piece.number))[: piece.size]
            for record in _good_records(data, 0, fmt.segment_seed(self.own.birth, piece.number)):
                if record.kind == fmt.VIEW_ACCEPTED and record.b == change:
                    return record.a, bodies.decode_accepted(record.front)
                if record.kind == fmt.TRIMMED and record.b == change:
                    return record
        raise JournalDamaged(
            f"recovering the journal of {self.own}: {where}: both copies of the accepted view or trim that changed the"
            f" order of the log or its stamps as number {change} cannot be read (case V). No other master"
            " knows what this one has accepted, so none can repair it. Next: bring the file back, or set this folder"
            " aside and start with an empty one: the master then joins as a learner"
        )

    def _change(self, cut: int, front: AcceptedFront) -> None:
        """The log is cut and goes on otherwise, and transactions have new stamps. Where the cut lies in a damaged part,
        nobody knows the hash there but the entry behind it does: it is counted as damaged, too."""
        order, view = self.order, front.view
        self._know(view)
        if cut > order.end:
            self._hole(cut, NO_HASH)
        self._abandon(cut, view)
        order.cut(cut)
        spans, hashes, damaged_to = front.spans, front.hashes, cut
        if order.end_is_unknown and hashes:
            order.add_hole(1, hashes[:HASH_BYTES])
            spans, hashes = slice_spans(spans, 1, len(hashes)), hashes[HASH_BYTES:]
            damaged_to = cut + 1
        elif order.end_is_unknown:
            order.set_end_hash(view.base_hash)
        for at, bad in enumerate(self.bad):
            inside = bad.log_from <= cut <= bad.log_to
            self.bad[at] = bad._replace(log_to=damaged_to if inside else min(bad.log_to, cut))
        order.add(spans, hashes)
        for stamped in front.stamped:
            origin = Origin(stamped.node, stamped.birth)
            self.index.at(origin).stamps.put(stamped.first_seq, bodies.decode_stamps(stamped.stamps))

    def _abandon(self, cut: int, view: View) -> None:
        if cut >= self.order.end or not view.keeps_abandoned:
            return
        found = self.order.behind(cut)
        if found is not None:
            self.abandoned.append((cut, self.order.hash_at(cut) if cut else b"", *found))

    def _damage(self, bad: Bad) -> None:
        self.bad.append(bad)

    def _refuse(self, what: str, letter: str) -> NoReturn:
        raise JournalDamaged(
            f"recovering the journal of {self.own}: {what} (case {letter}). What stood there may have been"
            " promises and own transactions, so no other master can repair it. Next: bring the file back, or set this"
            " folder aside and start with an empty one: the master then joins as a learner"
        )

    # -- records

    def _stretch(self, data: bytes, offset: int, seed: int, segment: int) -> int:
        """Good records from here on; returns the offset behind the last one."""
        unpack, size = fmt.RECORD_HEAD.unpack_from, len(data)
        number, chain, by_data = self.number, self.chain, self.index.by_data
        while offset + fmt.HEAD_BYTES <= size:
            mark, crc, length, kind, flags, vitals, n, synced, recorded, tail_crc, front_bytes, a, b, tail = unpack(
                data, offset
            )
            front_end = offset + fmt.HEAD_BYTES + vitals + front_bytes
            stop = offset + length
            covered = data[offset + fmt.CRC_FROM : front_end]
            if (
                n != number
                or mark != fmt.RECORD_MARK
                or stop > size
                or length != (front_end - offset + tail + 7) & ~7
                or crc32(covered, seed) != crc
                or crc32(data[front_end:stop]) != tail_crc
            ):
                break
            front = covered[vitals + _FRONT_FROM :]
            if chain is not None and blake2b(chain + front, digest_size=16).digest() != recorded:
                break
            chain = recorded
            if kind == fmt.HELD:
                held = by_data.get(front[: (front[0] + 16) & ~7])
                if held is not None and a == held.last + 1 and not flags:
                    held.last = a + b - 1
                    held.add(a, segment, offset)
                else:
                    self._held(flags, a, b, front, segment, offset)
            else:
                self._other(kind, flags, a, b, front, Place(a, segment, offset))
            number += 1
            self.last_synced = synced
            offset = stop
        self.number, self.chain = number, chain
        return offset

    def _held(self, flags: int, a: int, b: int, front: bytes, segment: int, offset: int) -> None:
        origin = bodies.parse_origin(front)
        held = self.index.at(origin)
        if flags & fmt.FLAG_REPAIR:
            held.refill(a, segment, offset)
            self.refills.append(Span(origin.node, origin.birth, a, b))
        elif a == held.last + 1:
            held.last = a + b - 1
            held.add(a, segment, offset)
        else:
            self._refuse(f"record {self.number} or later holds {origin} from {a} on, behind {held.last}", "X")
        if flags & fmt.FLAG_NAMED:
            held.note_named(a)
            self._name(held, a, bodies.decode_held(front, b, flags))

    def _name(self, held: OriginIndex, first: int, columns: bodies.HeldFront) -> None:
        named = self.named.setdefault(held.origin, {})
        for i, key in enumerate(columns.keys):
            if key:
                named[first + i] = Named(columns.kinds[i], key, columns.stamps[i], columns.content(i))

    def _other(self, kind: int, flags: int, a: int, b: int, front: bytes, place: Place) -> None:
        state = self.state
        match kind:
            case fmt.ADDED:
                self._added(flags, a, front)
            case fmt.STABLE:
                state.set_stable(a)
            case fmt.CEILING:
                state.set_ceiling(a)
            case fmt.STARTED:
                state.set_start(a)
            case fmt.VIEW_ACCEPTED:
                self._accepted(flags, a, b, front, place)
            case fmt.VIEW_INSTALLED:
                state.set_installed(bodies.decode_number(front), a)
            case fmt.PROMISED:
                state.set_promised(bodies.decode_number(front))
            case fmt.LEFT:
                state.set_left(bodies.decode_number(front))
            case fmt.TRIMMED:
                self._trimmed(flags, a, b, front, place)
            case fmt.REPAIRED:
                self.repaired.append(Repaired(*bodies.decode_repaired(front)))

    def _added(self, flags: int, first_index: int, front: bytes) -> None:
        added = bodies.decode_added(front)
        if flags & fmt.FLAG_REPAIR:
            self.order.fills.append(Fill(first_index, added.spans, added.hashes))
            return
        if first_index != self.order.end + 1:
            self._refuse(f"the log ends at {self.order.end}, and a record adds {first_index}", "X")
        self.order.add(added.spans, added.hashes)
        self.state.set_log(self.order.end, added.hashes[-16:] or self.state.log_hash, added.stable)

    def _accepted(self, flags: int, cut: int, change: int, front: bytes, place: Place) -> None:
        """The second copy, and the one that a repair has made, change nothing."""
        accepted = bodies.decode_accepted(front)
        view, state = accepted.view, self.state
        self._know(view)
        self.copies.setdefault((view.number, change), []).append(place)
        if flags & fmt.FLAG_REPAIR:
            return
        state.set_accepted(view)
        if change == state.changes + 1:
            if cut > self.order.end:
                self._refuse(f"the log ends at {self.order.end}, and a view cuts it at {cut}", "X")
            self._change(cut, accepted)
            state.set_change(view, cut, accepted.hashes)
        elif change > state.changes:
            self._refuse(f"a view changes the log as number {change} behind {state.changes}", "X")

    def _trimmed(self, flags: int, first_segment: int, change: int, front: bytes, place: Place) -> None:
        """As with a view, the second copy changes nothing."""
        self.copies.setdefault((NO_VIEW, change), []).append(place)
        if flags & fmt.FLAG_REPAIR or change <= self.state.changes:
            return
        if change != self.state.changes + 1:
            self._refuse(f"the log is trimmed as change {change} behind {self.state.changes}", "X")
        foot = bodies.decode_trimmed(front)
        self.settle()
        self._trim(first_segment, foot)
        self.state.set_foot(foot)

    def _trim(self, first_segment: int, foot: Foot) -> None:
        order = self.order
        if foot.index > order.end:
            order.begin(foot.index, foot.hash)
        elif foot.index >= order.start:  # else a later trim has removed the files that this one left
            order.trim(foot.index, foot.hash)
        for node, birth, seq in foot.seqs:
            self.index.at(Origin(node, birth)).trim(seq, first_segment)
        self.foot, self.first_segment = foot, first_segment
        self.abandoned.clear()  # the foot has them

    def _know(self, *views: View | None) -> None:
        for view in views:
            if view is not None:
                self.views[view.number] = view

    def settle(self) -> None:
        """The loop over the records keeps what is held in the index only; now the vitals have it too."""
        for held in self.index.all():
            if self.state.held.get(held.origin, 0) != held.last:
                self.state.set_held(held.origin, held.last)

    def lone_copies(self) -> list[Place]:
        """Of the changes, and of the view in force: what one more flipped bit would cost."""
        kept = self._kept_copies()
        feet = [change for number, change in kept if number == NO_VIEW]
        needed = [
            places
            for (number, change), places in kept.items()
            if (change == max(feet) if number == NO_VIEW else change or number == self.state.accepted)
        ]
        return [places[0] for places in needed if len(places) == 1]

    def uncopied(self) -> View | None:
        """The view in force where only headers tell it."""
        copied = {number for number, _ in self._kept_copies()}
        return None if self.state.accepted in copied else self.view(self.state.accepted)

    def _kept_copies(self) -> dict[tuple[Number, int], list[Place]]:
        """Those in segments that a trim has not left: the others go before anything is written, if they are there."""
        first = self.first_segment
        kept = {key: [place for place in places if place.segment >= first] for key, places in self.copies.items()}
        return {key: places for key, places in kept.items() if places}

    def view(self, number: Number) -> View | None:
        return None if number == NO_VIEW else self.views.get(number)


class IndexContradicts(Exception):
    """An index that was whole and of this segment tells what cannot be: our own mistake, so the segment is read."""

    def __init__(self, segment: int, why: str) -> None:
        super().__init__(f"{index_name(segment)} contradicts the headers: {why}; the segment was read")
        self.segment = segment


def scan(files: Files, segment_bytes: int, *, by_index: bool = True) -> Scan | None:
    """Everything that the folder tells, or None for a folder without a journal. ``by_index``: segments that have an
    index are not read.

    Raises :class:`JournalDamaged` for what no other master can repair, and for a format that is not known."""
    parsed = [one for name in files.list() if (one := fmt.parse_name(name)) is not None]
    numbers = [number for kind, number in parsed if kind == "segment"]
    if not numbers:
        return None
    indexes = frozenset(number for kind, number in parsed if kind == "index" and by_index)
    notes: list[str] = []
    while True:
        try:
            found = _scan(files, numbers, indexes, segment_bytes)
        except IndexContradicts as wrong:
            notes.append(str(wrong))
            indexes -= {wrong.segment}
        else:
            found.notes += notes
            return found


def _scan(files: Files, numbers: list[int], indexes: frozenset[int], segment_bytes: int) -> Scan:
    headers = {number: _header(files, number) for number in numbers}
    first = next((header for header in headers.values() if header is not None), None)
    if first is None:
        raise JournalDamaged(
            f"opening the journal: no header of {len(numbers)} segments can be read, so who this master is cannot be"
            " known; no other master can repair it. Next: bring the files back, or start empty, as a learner"
        )
    own = first.vitals.own
    pieces = [_piece(files, number, headers[number], own, segment_bytes) for number in numbers]
    there = [piece for piece in pieces if piece is not None]
    broken = [number for number, piece in zip(numbers, pieces, strict=True) if piece is None]
    found = Scan(files, own, indexes)
    notes = [f"{fmt.segment_name(number)}: nothing in it can be read" for number in broken]
    found.notes += notes
    found.read(there, broken, trimmed=there[0].first > 1)
    if not found.is_whole:
        foot, found = found.foot, Scan(files, own, indexes)
        if foot.index:
            raise JournalDamaged(
                f"opening the journal of {own}: {fmt.segment_name(there[0].number)} is the first that is there, and the"
                f" log, trimmed at {foot.index}, needs earlier ones (case T). Next: bring them back, or set this folder"
                " aside and start with an empty one: the master then joins as a learner"
            )
        found.notes += notes
        found.read(there, broken)
    return found


def _header(files: Files, number: int) -> SegmentHeader | None:
    name = fmt.segment_name(number)
    try:
        return fmt.read_segment_header(_read(files, name, fmt.HEADERS_MAX), number)
    except fmt.UnknownFormat as refused:
        raise JournalDamaged(
            f"opening the journal: {name} has UnknownFormat: {refused}. Next: start the newer program, which wrote it"
        ) from None


def _piece(files: Files, number: int, header: SegmentHeader | None, own: Origin, segment_bytes: int) -> Piece | None:
    if header is not None:
        return Piece(number, header, header.records_from, header.size, header.first, header.chain, header.vitals)
    data = _read_all(files, fmt.segment_name(number))
    later, _ = _look_ahead(data, 0, fmt.segment_seed(own.birth, number), 1)
    if later is None:
        return None
    size = max(len(data), segment_bytes)
    return Piece(number, None, later.offset, size, later.number, None, Vitals.parse(later.vitals))


def _read(files: Files, name: str, count: int) -> bytes:
    file = files.open(name)
    try:
        return file.pread(0, count)
    finally:
        file.close()


def _read_all(files: Files, name: str) -> bytes:
    return _read(files, name, files.size(name))


def _end(data: bytes, offset: int) -> End:
    """Eight zeros prove that no record stood there: every record begins with a mark."""
    rest = len(data) - offset
    if rest >= 8 and not data[offset : offset + 8].strip(b"\0"):
        return End.ZEROS if _only_zeros(data, offset) else End.BROKEN
    return End.SPENT if rest < fmt.HEAD_BYTES else End.BROKEN


def _only_zeros(data: bytes, offset: int) -> bool:
    whole = (len(data) - offset) // len(ZEROS) * len(ZEROS)
    blocks = all(data.startswith(ZEROS, at) for at in range(offset, offset + whole, len(ZEROS)))
    return blocks and data.endswith(ZEROS[: len(data) - offset - whole])


def _look_ahead(data: bytes, offset: int, seed: int, lowest: int) -> tuple[Framed | None, int]:
    """The next good record with number ``lowest`` or above, and the highest ``synced`` of all such from there on.

    A copy of a record inside a payload is older than the record around it, so its number is lower."""
    first: Framed | None = None
    promise = 0
    for record in _good_records(data, offset, seed, lowest):
        first = first or record
        promise = max(promise, record.synced)
    return first, promise


def _good_records(data: bytes, offset: int, seed: int, lowest: int = 0) -> Iterator[Framed]:
    at = data.find(fmt.RECORD_MARK, offset)
    while at >= 0:
        record = fmt.read_record(data, at, seed) if at % 8 == 0 else None
        step = 1
        if record is not None and record.number >= lowest:
            yield record
            step = record.length
        at = data.find(fmt.RECORD_MARK, at + step)
