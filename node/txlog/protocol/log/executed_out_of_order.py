"""What a worker executed that was truncated from the log and that it did not undo (``None``, protocol section 4).

A worker's path is the order up to its position. It is a part of an abandoned branch, which began on another one, and so
on down to the current log. After the last index that its path shares with the log, the worker has executed what those
parts name.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import NamedTuple

from txlog.model.entry import Span
from txlog.model.hashes import HASH_BYTES
from txlog.model.ids import Origin, Txid
from txlog.model.records import AbandonedBranch
from txlog.protocol.log.log_state import LogState


class BranchPosition(NamedTuple):
    """``shared_index``: the last index that the path shares with the log (``D``). ``spans``: what was executed beyond
    it, in any order; ``keys``: the idempotency keys among that, with their transactions."""

    shared_index: int
    spans: list[Span]
    keys: list[tuple[str, Txid]]


def find_branch_position(agreement: LogState, index: int, value: bytes) -> BranchPosition | None:
    """The path to this position. None when it leads through a branch that this master never had."""
    history = agreement.log_index
    spans: list[Span] = []
    keys: list[tuple[str, Txid]] = []
    while index and not (history.has_hash_at(index) and history.hash_at(index) == value):
        piece = _find_abandoned(agreement.abandoned_branches, index, value)
        if piece is None and spans and index < history.start:
            break  # the orders that were abandoned are all known: it was on the log, where that is trimmed now
        if piece is None:
            return None
        mine = _first_entries(piece.spans, index - piece.after)
        spans += mine
        keys += [(key, txid) for key, txid in piece.keys if _contains(mine, txid)]
        index, value = piece.after, piece.after_hash
    return BranchPosition(index, spans, keys)


def _find_abandoned(abandoned: list[AbandonedBranch], index: int, value: bytes) -> AbandonedBranch | None:
    for piece in reversed(abandoned):
        at = (index - piece.after - 1) * HASH_BYTES
        if at >= 0 and piece.hashes[at : at + HASH_BYTES] == value:
            return piece
    return None


def _first_entries(spans: list[Span], count: int) -> list[Span]:
    found: list[Span] = []
    for span in spans:
        if count <= 0:
            break
        found.append(Span(span.node, span.birth, span.first_seq, min(span.count, count)))
        count -= span.count
    return found


def _contains(spans: list[Span], txid: Txid) -> bool:
    return any((s.node, s.birth) == txid.origin and s.first_seq <= txid.seq < s.first_seq + s.count for s in spans)


class ExecutedElsewhere:
    """The entries of the current log that a worker that executed these paths has to skip."""

    def __init__(self, paths: list[BranchPosition]) -> None:
        self.executed_up_to = max((path.shared_index for path in paths), default=0)
        """All entries up to here were executed."""
        self._ranges: dict[Origin, list[tuple[int, int]]] = {}
        self._keys: dict[str, list[Txid]] = {}
        for path in paths:
            for span in path.spans:
                mine = self._ranges.setdefault(Origin(span.node, span.birth), [])
                mine.append((span.first_seq, span.first_seq + span.count - 1))
            for key, txid in path.keys:
                self._keys.setdefault(key, []).append(txid)
        for origin, ranges in self._ranges.items():
            self._ranges[origin] = _merge_ranges(sorted(ranges))

    def was_executed(self, index: int, origin: Origin, seq: int) -> bool:
        """Whether this entry was executed."""
        ranges = self._ranges.get(origin, [])
        at = bisect_right(ranges, (seq, 1 << 63)) - 1
        return index <= self.executed_up_to or (at >= 0 and ranges[at][0] <= seq <= ranges[at][1])

    def repeats_executed_key(self, agreement: LogState, txid: Txid, key: str, stamp: int) -> bool:
        """Whether an executed transaction had this key, and by the log one of it and this entry repeats the other.
        ``stamp``: the one from which the age of its key counts."""
        for done in self._keys.get(key, ()):
            at = agreement.log_index.index_of(done.origin, done.seq)
            if at:
                if agreement.noops.get(at) == txid:
                    return True
                continue
            queue = agreement.by_origin.get(done.origin)
            waits = queue is not None and queue.in_log < done.seq <= queue.held
            if queue is not None and waits and agreement.keys.is_repeat(stamp, queue.age_stamp(done.seq)):
                return True
        return False


def _merge_ranges(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for first, last in ranges:
        if found and first <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(found[-1][1], last))
        else:
            found.append((first, last))
    return found
