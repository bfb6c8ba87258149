"""The base of the next view: the log of the branch that goes on, then everything that its members hold in its queue, in
key order (protocol section 4). Under ``Simple`` the branches are merged behind what they share, with the stamps that
they have.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from txlog.model.entry import Span
from txlog.model.hashes import HASH_BYTES, chain_leaf, chain_next, origin_tag
from txlog.model.ids import Origin
from txlog.protocol.branches import Branch, Name, Unclosed
from txlog.protocol.history import History
from txlog.wire.messages import QueuedTransactions, ViewReport


class Cell(NamedTuple):
    """A transaction as the chain hash has it: its stamp, and the hash of its content."""

    stamp: int
    content: bytes


Cells = dict[Origin, dict[int, Cell]]


class Base:
    """A log that is being put together behind the first ``cut`` entries of ``own``. ``highest``: of its stamps."""

    def __init__(self, own: History, cut: int) -> None:
        self.cut = cut
        self.length = cut
        self.hash = own.hash_at(cut)
        self.spans: list[Span] = []
        self.stamps: list[int] = []
        self.highest = 0
        self.hashes: list[bytes] = []
        self._own = own
        self._last: dict[Origin, int] = {}
        self._tags: dict[Origin, bytes] = {}

    def last(self, origin: Origin) -> int:
        """The last seq of an origin in it."""
        if origin not in self._last:
            slot = self._own.slot(origin)
            self._last[origin] = self._own.seq_within(slot, self.cut) if slot is not None else 0
            self._tags[origin] = origin_tag(origin)
        return self._last[origin]

    def put(self, origin: Origin, seq: int, cell: Cell) -> None:
        """The next entry. :class:`Unclosed` when it does not follow its predecessor."""
        if seq != self.last(origin) + 1:
            raise Unclosed(f"{origin}.{seq} would follow {self.last(origin)}")
        self._last[origin] = seq
        self.hash = chain_next(self.hash, chain_leaf(cell.stamp, self._tags[origin], seq, cell.content))
        self.hashes.append(self.hash)
        self.length += 1
        self.stamps.append(cell.stamp)
        self.highest = max(self.highest, cell.stamp)
        before = self.spans[-1] if self.spans else None
        if before is not None and (before.node, before.birth) == origin:
            self.spans[-1] = Span(before.node, before.birth, before.first_seq, before.count + 1)
        else:
            self.spans.append(Span(origin.node, origin.birth, seq, 1))

    def put_all(self, rows: Iterable[tuple[Origin, int]], cells: Cells) -> None:
        """These, in this order."""
        for origin, seq in rows:
            cell = cells.get(origin, {}).get(seq)
            if cell is None:
                raise Unclosed(f"nobody who reports names {origin}.{seq} in full")
            self.put(origin, seq, cell)

    def queue(self, cells: Cells, floor: int) -> list[Name]:
        """What these hold that is not in it, in key order. ``floor``: of their view, in whose queue the stamps of each
        origin grow from above it. Where they do not, that one and those behind it came from another branch: they were
        fetched there while this view was stopped, with the stamps that they have there."""
        rows: list[tuple[int, Origin, int]] = []
        for origin, mine in cells.items():
            last = mine.get(self.last(origin))
            before = max(floor, last.stamp) if last is not None else floor
            for seq in sorted(mine):
                if seq <= self.last(origin):
                    continue
                if mine[seq].stamp <= before:
                    break
                before = mine[seq].stamp
                rows.append((before, origin, seq))
        return [(origin, seq) for _, origin, seq in sorted(rows)]


def gathered(pieces: list[QueuedTransactions]) -> Cells:
    """Every transaction that one of them names in full, with the least of its stamps."""
    cells: Cells = {}
    for pending in pieces:
        mine = cells.setdefault(pending.origin, {})
        for offset, stamp in enumerate(pending.stamps):
            seq = pending.first_seq + offset
            before = mine.get(seq)
            if before is None or stamp < before.stamp:
                mine[seq] = Cell(stamp, pending.contents[offset * HASH_BYTES : (offset + 1) * HASH_BYTES])
    return cells


def told_of(branch: Branch, reports: list[ViewReport]) -> Cells:
    """What its members name. What is settled there they name no more: who has not heard so, in a view that it has grown
    from, holds that. The chain of the log tells whether it is the same."""
    cells = gathered([p for r in branch.reports for p in r.pending])
    missing = [(origin, seq) for origin, seq in branch.log if seq not in cells.get(origin, {})]
    if missing:
        before = [r for r in reports if r.view is not None and r.view.number in branch.view.history]
        older = gathered([p for r in before for p in r.pending])
        for origin, seq in missing:
            cell = older.get(origin, {}).get(seq)
            if cell is not None:
                cells.setdefault(origin, {})[seq] = cell
    return cells


def closed_base(own: History, branch: Branch, cells: Cells) -> Base:
    """The longest log of a branch, and its queue behind it."""
    base = Base(own, branch.shared)
    base.put_all(branch.log, cells)
    if branch.log and base.hash != branch.hashes[-1]:
        raise Unclosed(f"the log of view {branch.number}, {branch.length} long, cannot be put together here")
    base.put_all(base.queue(cells, branch.view.floor), cells)
    return base


def merged_base(own: History, forks: list[Branch], named: list[Cells]) -> Base:
    """Behind what all branches share, each transaction once, at its least stamp (``Simple``)."""
    closed = [closed_base(own, fork, cells) for fork, cells in zip(forks, named, strict=True)]
    cut = min(base.cut for base in closed)
    shortest = min(own.length, *(base.length for base in closed))
    while cut < shortest and all(_base_hash(base, cut + 1, own) == own.hash_at(cut + 1) for base in closed):
        cut += 1
    cells: Cells = {}
    names: set[Name] = set()
    for base, mine in zip(closed, named, strict=True):
        for origin, told in mine.items():
            known = cells.setdefault(origin, {})
            for seq, its in told.items():
                if seq <= base.last(origin):  # what it only holds for another branch counts there
                    known[seq] = min(its, known.get(seq, its))
        behind = _names(base.spans)[max(0, cut - base.cut) :]
        names |= {*_names(own.spans(min(cut, base.cut), base.cut)), *behind}
    merged = Base(own, cut)
    rows: list[tuple[int, Origin, int]] = []
    for origin, seq in names:
        cell = cells.get(origin, {}).get(seq)
        if cell is None:
            raise Unclosed(f"nobody who reports names {origin}.{seq} in full")
        rows.append((cell.stamp, origin, seq))
    merged.put_all([(origin, seq) for _, origin, seq in sorted(rows)], cells)
    return merged


def _base_hash(base: Base, index: int, own: History) -> bytes:
    return own.hash_at(index) if index <= base.cut else base.hashes[index - base.cut - 1]


def _names(spans: list[Span]) -> list[Name]:
    return [(Origin(s.node, s.birth), seq) for s in spans for seq in range(s.first_seq, s.first_seq + s.count)]
