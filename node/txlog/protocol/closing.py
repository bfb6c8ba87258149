"""How a view is closed before the next is opened (protocol section 3): a pure function of the reports (rule 25).

The base is the longest log among the members of the latest view, then everything that they hold in its queue, in key
order. Only then come the transactions of masters that were not in it, with new stamps above all.
"""

from __future__ import annotations

from typing import NamedTuple

from txlog.model.entry import Span
from txlog.model.hashes import HASH_BYTES, chain_leaf, chain_next, origin_tag
from txlog.model.ids import Origin
from txlog.model.records import Stamped
from txlog.model.view import NO_VIEW, Member, Number, View
from txlog.protocol.history import History
from txlog.wire.messages import Outline, Report

_ORIGINS_MAX = 255


class Unclosed(Exception):
    """These reports do not suffice; the text says what is missing. Another proposal may fare better."""


class Closed(NamedTuple):
    """The next view, and how the log of whoever computed it becomes its base: cut behind ``cut``, then ``spans`` with
    ``stamps``. ``waiting``: the new queue."""

    view: View
    cut: int
    spans: list[Span]
    stamps: list[int]
    waiting: list[Stamped]


class _Cell(NamedTuple):
    stamp: int
    content: bytes


_Cells = dict[Origin, dict[int, _Cell]]


def latest_view(outlines: list[Outline]) -> Number:
    """The view that is closed: the highest accepted one."""
    return max((one.view for one in outlines), default=NO_VIEW)


def outline(report: Report) -> Outline:
    """The part of a report that decides."""
    number = report.view.number if report.view is not None else NO_VIEW
    return Outline(report.node, report.birth, number, report.log, report.stable)


def close(number: Number, members: list[Member], reports: list[Report], own: History) -> Closed:
    """The view of this number, of these members, all of whom have sent one of these reports. ``own``: the log that
    the reports' ``shared`` places are in."""
    latest = latest_view([outline(report) for report in reports])
    inside = [r for r in reports if r.view is not None and r.view.number == latest]
    outside = [r for r in reports if r not in inside]
    closing = inside[0].view
    assert closing is not None
    longest = max(inside, key=lambda r: (r.log.index, r.node))
    cells = _gathered(inside)
    base = _Base(own, longest.shared.index)
    base.follow(longest.tail, cells)
    if base.hash != longest.log.hash:
        raise Unclosed(f"the log of {longest.node}, {longest.log.index} long, cannot be put together here")
    base.close(cells)
    floor = _highest(reports, base)
    waiting, floor_of_waiting = _waiting(_gathered(outside), base, floor)
    origins = _origins(own, members, base, waiting)
    epoch, ballot, coordinator = number
    view = View(
        epoch,
        ballot,
        coordinator,
        members,
        closing.cluster_id,
        base.length,
        base.hash,
        origins,
        [*closing.history, closing.number],
        floor,
    )
    assert floor_of_waiting >= floor
    return Closed(view, longest.shared.index, base.spans, base.stamps, waiting)


def _gathered(reports: list[Report]) -> _Cells:
    """Every transaction that one of them names in full, with the least of its stamps."""
    cells: _Cells = {}
    for report in reports:
        for pending in report.pending:
            mine = cells.setdefault(pending.origin, {})
            for offset, stamp in enumerate(pending.stamps):
                seq = pending.first_seq + offset
                before = mine.get(seq)
                if before is None or stamp < before.stamp:
                    mine[seq] = _Cell(stamp, pending.contents[offset * HASH_BYTES : (offset + 1) * HASH_BYTES])
    return cells


class _Base:
    """A log that is being put together behind the first ``cut`` entries of ``own``."""

    def __init__(self, own: History, cut: int) -> None:
        self.length = cut
        self.hash = own.hash_at(cut)
        self.spans: list[Span] = []
        self.stamps: list[int] = []
        self._own = own
        self._cut = cut
        self._last: dict[Origin, int] = {}
        self._tags: dict[Origin, bytes] = {}

    def last(self, origin: Origin) -> int:
        """The last seq of an origin in it."""
        if origin not in self._last:
            slot = self._own.slot(origin)
            self._last[origin] = self._own.seq_within(slot, self._cut) if slot is not None else 0
            self._tags[origin] = origin_tag(origin)
        return self._last[origin]

    def put(self, origin: Origin, seq: int, cell: _Cell) -> None:
        if seq != self.last(origin) + 1:
            raise Unclosed(f"{origin}.{seq} would follow {self.last(origin)}")
        self._last[origin] = seq
        self.hash = chain_next(self.hash, chain_leaf(cell.stamp, self._tags[origin], seq, cell.content))
        self.length += 1
        self.stamps.append(cell.stamp)
        before = self.spans[-1] if self.spans else None
        if before is not None and (before.node, before.birth) == origin:
            self.spans[-1] = Span(before.node, before.birth, before.first_seq, before.count + 1)
        else:
            self.spans.append(Span(origin.node, origin.birth, seq, 1))

    def follow(self, tail: list[Span], cells: _Cells) -> None:
        for span in tail:
            origin = Origin(span.node, span.birth)
            known = cells.get(origin, {})
            for seq in range(span.first_seq, span.first_seq + span.count):
                cell = known.get(seq)
                if cell is None:
                    raise Unclosed(f"nobody who reports names {origin}.{seq} in full")
                self.put(origin, seq, cell)

    def close(self, cells: _Cells) -> None:
        """Behind the log everything that is held and not in it, in key order."""
        rows = [
            (cell.stamp, origin, seq, cell)
            for origin, mine in cells.items()
            for seq, cell in mine.items()
            if seq > self.last(origin)
        ]
        for _, origin, seq, cell in sorted(rows):
            self.put(origin, seq, cell)


def _highest(reports: list[Report], base: _Base) -> int:
    stamps = [stamp for r in reports for pending in r.pending for stamp in pending.stamps[-1:]]
    return max([*(r.counter for r in reports), *stamps, *base.stamps], default=0)


def _waiting(cells: _Cells, base: _Base, floor: int) -> tuple[list[Stamped], int]:
    """What comes from outside, in the order of its old stamps, with new ones above ``floor``."""
    rows = [
        (cell.stamp, origin, seq)
        for origin, mine in cells.items()
        for seq, cell in mine.items()
        if seq > base.last(origin)
    ]
    found: dict[Origin, Stamped] = {}
    for _, origin, seq in sorted(rows):
        floor += 1
        if origin not in found:
            found[origin] = Stamped(origin.node, origin.birth, seq, [])
        several = found[origin]
        if seq != several.first_seq + len(several.stamps) or several.first_seq != base.last(origin) + 1:
            raise Unclosed(f"{origin}.{seq} stands behind a gap")
        several.stamps.append(floor)
    return [found[origin] for origin in sorted(found)], floor


def _origins(own: History, members: list[Member], base: _Base, waiting: list[Stamped]) -> list[tuple[str, int]]:
    origins = [(o.node, o.birth) for o in own.origins]
    named = [(m.node, m.birth) for m in members]
    named += [(one.node, one.birth) for one in base.spans] + [(one.node, one.birth) for one in waiting]
    for name in named:
        if name not in origins:
            origins.append(name)
    if len(origins) > _ORIGINS_MAX:
        raise Unclosed(f"{len(origins)} births of masters in one log; {_ORIGINS_MAX} are the most")
    return origins
