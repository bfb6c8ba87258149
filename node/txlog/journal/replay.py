"""What the records of a journal did, told one after another: the state, what is held, the log's order, the views.

Knows no files; :mod:`txlog.journal.scan` reads them.
"""

from __future__ import annotations

from typing import NamedTuple, NoReturn

from txlog.journal import bodies
from txlog.journal import format as fmt
from txlog.journal.fronts import AcceptedFront
from txlog.journal.index import Index, OriginIndex, Place
from txlog.journal.order import Fill, LogOrder, slice_spans
from txlog.journal.vitals import Vitals
from txlog.model.entry import Span
from txlog.model.errors import JournalDamaged
from txlog.model.hashes import HASH_BYTES, NO_HASH
from txlog.model.ids import Origin
from txlog.model.records import NO_FOOT, Foot
from txlog.model.view import NO_VIEW, Number, View


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


class Replay:
    """Where the journal of ``own`` stands behind the records that were told so far."""

    def __init__(self, own: Origin) -> None:
        self.own = own
        self.state = Vitals(own)
        self.number = 1
        """Of the next record."""
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
        self.named: dict[Origin, dict[int, Named]] = {}
        self.bad: list[Bad] = []
        self.repaired: list[Repaired] = []
        self.refills: list[Span] = []

    # -- records

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
            case fmt.ORDERS:
                state.set_orders(bodies.decode_orders(front))
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

    # -- the order

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

    def _hole(self, log_to: int, end_hash: bytes) -> None:
        """The order up to this index stood in the damage that was named last."""
        first, bad = self.order.end + 1, self.bad[-1]
        if log_to >= first:
            self.order.add_hole(log_to - first + 1, end_hash)
            log_from = bad.log_from if bad.log_from <= bad.log_to else first
            self.bad[-1] = bad._replace(log_from=log_from, log_to=log_to)

    # -- what was told

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

    def _refuse(self, what: str, letter: str) -> NoReturn:
        raise JournalDamaged(
            f"recovering the journal of {self.own}: {what} (case {letter}). What stood there may have been"
            " promises and own transactions, so no other master can repair it. Next: bring the file back, or set this"
            " folder aside and start with an empty one: the master then joins as a learner"
        )
