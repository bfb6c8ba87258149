"""The base of the next view: the log of the surviving branch, then all transactions in its members' queues, in key
order (protocol section 4). Under ``Simple`` the branches are merged after the entries that they share, with the stamps
that their transactions have.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from txlog.model.entry import Span
from txlog.model.hashes import HASH_BYTES, chain_leaf, chain_next, origin_tag
from txlog.model.ids import Origin
from txlog.protocol.log.log_index import LogIndex
from txlog.protocol.views.branch_selection import InsufficientReports, TransactionName, ViewBranch
from txlog.wire.messages import QueuedTransactions, ViewReport


class TransactionRef(NamedTuple):
    """A transaction as the chain hash includes it: its stamp, and the hash of its content."""

    stamp: int
    content: bytes


TransactionRefs = dict[Origin, dict[int, TransactionRef]]


class MergedLog:
    """A log that is built after the first ``base_index`` entries of ``own``. ``highest``: the highest of its
    stamps."""

    def __init__(self, own: LogIndex, cut: int) -> None:
        self.base_index = cut
        self.length = cut
        self.hash = own.hash_at(cut)
        self.spans: list[Span] = []
        self.stamps: list[int] = []
        self.highest = 0
        self.hashes: list[bytes] = []
        self._own = own
        self._last: dict[Origin, int] = {}
        self._tags: dict[Origin, bytes] = {}

    def last_seq(self, origin: Origin) -> int:
        """The last seq of an origin in this log."""
        if origin not in self._last:
            slot = self._own.slot(origin)
            self._last[origin] = self._own.seq_within(slot, self.base_index) if slot is not None else 0
            self._tags[origin] = origin_tag(origin)
        return self._last[origin]

    def append(self, origin: Origin, seq: int, cell: TransactionRef) -> None:
        """Append the next entry. :class:`InsufficientReports` when it does not follow its predecessor."""
        if seq != self.last_seq(origin) + 1:
            raise InsufficientReports(f"{origin}.{seq} would follow {self.last_seq(origin)}")
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

    def append_all(self, rows: Iterable[tuple[Origin, int]], cells: TransactionRefs) -> None:
        """Append these entries, in this order."""
        for origin, seq in rows:
            cell = cells.get(origin, {}).get(seq)
            if cell is None:
                raise InsufficientReports(f"no report names {origin}.{seq} in full")
            self.append(origin, seq, cell)

    def queued_in_key_order(self, cells: TransactionRefs, floor: int) -> list[TransactionName]:
        """The transactions in ``cells`` that are not in this log, in key order. ``floor``: that of their view, in whose
        queue the stamps of each origin grow from above it. A transaction that breaks this, and those after it, came
        from another branch. They were fetched while this view was stopped, with the stamps that they have there."""
        rows: list[tuple[int, Origin, int]] = []
        for origin, mine in cells.items():
            last = mine.get(self.last_seq(origin))
            before = max(floor, last.stamp) if last is not None else floor
            for seq in sorted(mine):
                if seq <= self.last_seq(origin):
                    continue
                if mine[seq].stamp <= before:
                    break
                before = mine[seq].stamp
                rows.append((before, origin, seq))
        return [(origin, seq) for _, origin, seq in sorted(rows)]


def collect_transactions(pieces: list[QueuedTransactions]) -> TransactionRefs:
    """Every transaction that one of the pieces names in full, with the least of its stamps."""
    cells: TransactionRefs = {}
    for pending in pieces:
        mine = cells.setdefault(pending.origin, {})
        for offset, stamp in enumerate(pending.stamps):
            seq = pending.first_seq + offset
            before = mine.get(seq)
            if before is None or stamp < before.stamp:
                mine[seq] = TransactionRef(stamp, pending.contents[offset * HASH_BYTES : (offset + 1) * HASH_BYTES])
    return cells


def transactions_known_to(branch: ViewBranch, reports: list[ViewReport]) -> TransactionRefs:
    """The transactions that members of the branch name. They do not name what is final there. A member of an ancestor
    view that does not know that it is final has persisted it and names it. The chain of the log shows whether it is
    the same."""
    cells = collect_transactions([p for r in branch.reports for p in r.pending])
    missing = [(origin, seq) for origin, seq in branch.log if seq not in cells.get(origin, {})]
    if missing:
        before = [r for r in reports if r.view is not None and branch.view.descends_from(r.view.number)]
        older = collect_transactions([p for r in before for p in r.pending])
        for origin, seq in missing:
            cell = older.get(origin, {}).get(seq)
            if cell is not None:
                cells.setdefault(origin, {})[seq] = cell
    return cells


def branch_log(own: LogIndex, branch: ViewBranch, cells: TransactionRefs) -> MergedLog:
    """The longest log of a branch, followed by its queue."""
    base = MergedLog(own, branch.shared)
    base.append_all(branch.log, cells)
    if branch.log and base.hash != branch.hashes[-1]:
        raise InsufficientReports(f"the log of view {branch.number}, {branch.length} long, cannot be put together here")
    base.append_all(base.queued_in_key_order(cells, branch.view.floor), cells)
    return base


def merge_branches(own: LogIndex, forks: list[ViewBranch], named: list[TransactionRefs]) -> MergedLog:
    """Each transaction once, at its least stamp, after the entries that all branches share (``Simple``)."""
    closed = [branch_log(own, fork, cells) for fork, cells in zip(forks, named, strict=True)]
    cut = min(base.base_index for base in closed)
    shortest = min(own.length, *(base.length for base in closed))
    while cut < shortest and all(_hash_at(base, cut + 1, own) == own.hash_at(cut + 1) for base in closed):
        cut += 1
    cells: TransactionRefs = {}
    names: set[TransactionName] = set()
    for base, mine in zip(closed, named, strict=True):
        for origin, contents in mine.items():
            known = cells.setdefault(origin, {})
            for seq, its in contents.items():
                if seq <= base.last_seq(origin):  # what it only holds for another branch counts there
                    known[seq] = min(its, known.get(seq, its))
        behind = _transaction_names(base.spans)[max(0, cut - base.base_index) :]
        names |= {*_transaction_names(own.spans(min(cut, base.base_index), base.base_index)), *behind}
    merged = MergedLog(own, cut)
    rows: list[tuple[int, Origin, int]] = []
    for origin, seq in names:
        cell = cells.get(origin, {}).get(seq)
        if cell is None:
            raise InsufficientReports(f"no report names {origin}.{seq} in full")
        rows.append((cell.stamp, origin, seq))
    merged.append_all([(origin, seq) for _, origin, seq in sorted(rows)], cells)
    return merged


def _hash_at(base: MergedLog, index: int, own: LogIndex) -> bytes:
    return own.hash_at(index) if index <= base.base_index else base.hashes[index - base.base_index - 1]


def _transaction_names(spans: list[Span]) -> list[TransactionName]:
    return [(Origin(s.node, s.birth), seq) for s in spans for seq in range(s.first_seq, s.first_seq + s.count)]
