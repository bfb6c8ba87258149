"""Which branches must survive for what they decided about synchronous transactions (rule S12).

A COMMIT that was stable in a quorate view keeps its place and its effect. So a branch of the latest anchor that has a
decision which another branch lacks goes on, whatever the votes of the two are. All is pure.
"""

from __future__ import annotations

from collections.abc import Sequence

from txlog.model.entry import Span
from txlog.model.ids import Origin, Txid
from txlog.model.synchronous_entry import KIND_DECISION
from txlog.model.view import NO_VIEW, Number
from txlog.protocol.log.log_index import LogIndex
from txlog.protocol.views.branch_selection import ViewBranch
from txlog.protocol.views.log_merge import MergedLog, branch_log, transactions_known_to
from txlog.protocol.views.quorate_view import References
from txlog.wire.messages import ViewReport


class DecidedBranches:
    """``references``: the synchronous transactions and decisions that the reports name."""

    def __init__(self, own: LogIndex, reports: list[ViewReport], references: References) -> None:
        self._own = own
        self._reports = reports
        self._decisions = {txid for txid, one in references.items() if one.kind == KIND_DECISION}
        self._closed: dict[Number, MergedLog] = {}

    def leads(self, one: ViewBranch, others: Sequence[ViewBranch]) -> bool:
        """Whether this branch is of the latest anchor, which not all the others are of, and has, closed, a decision
        behind what all of them share."""
        if not self._decisions:
            return False
        number, theirs = _anchor_number(one), [_anchor_number(other) for other in others]
        if any(number < other for other in theirs) or all(number == other for other in theirs):
            return False
        closed = self._closed_log(one)
        shared = self._shared_length([closed, *(self._closed_log(other) for other in others)])
        return any(txid in self._decisions for txid in self._names_after(closed, shared))

    def _closed_log(self, branch: ViewBranch) -> MergedLog:
        """The log of the branch, followed by its queue."""
        if branch.number not in self._closed:
            cells = transactions_known_to(branch, self._reports)
            self._closed[branch.number] = branch_log(self._own, branch, cells)
        return self._closed[branch.number]

    def _shared_length(self, logs: list[MergedLog]) -> int:
        index, least = min(log.base_index for log in logs), min(log.length for log in logs)
        while index < least and len({self._hash_at(log, index + 1) for log in logs}) == 1:
            index += 1
        return index

    def _hash_at(self, log: MergedLog, index: int) -> bytes:
        return self._own.hash_at(index) if index <= log.base_index else log.hashes[index - log.base_index - 1]

    def _names_after(self, log: MergedLog, index: int) -> list[Txid]:
        """The transactions of the log after this index."""
        before = self._own.spans(min(index, log.base_index), log.base_index)
        behind = _names(log.spans)[max(0, index - log.base_index) :]
        return [*_names(before), *behind]


def _anchor_number(branch: ViewBranch) -> Number:
    return branch.view.anchor.number if branch.view.anchor is not None else NO_VIEW


def _names(spans: list[Span]) -> list[Txid]:
    return [Txid(Origin(s.node, s.birth), seq) for s in spans for seq in range(s.first_seq, s.first_seq + s.count)]
