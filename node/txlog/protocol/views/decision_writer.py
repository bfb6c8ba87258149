"""Writes COMMIT and ROLLBACK (rules S6, S8): the origin at once; for other origins each member after its rank, so that
one decision is mostly enough. Two that name the same transaction do no harm: the first one in the log counts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from txlog.model.hashes import content_hash
from txlog.model.ids import Txid
from txlog.model.synchronous_entry import DECIDED_MAX, KIND_DECISION, DecisionKind, decide, encode_decision
from txlog.model.view import NO_VIEW
from txlog.protocol.events import Submission
from txlog.protocol.log.log_state import LogState
from txlog.protocol.replication.replication_state import ReplicationState
from txlog.protocol.views.undecided import UndecidedTransactions, list_undecided
from txlog.protocol.views.view_state import FOREVER_MS

COMMIT_BYTES_MAX: Final = 1 << 20
"""Payload bytes that one COMMIT lets take effect at once; a larger transaction is committed alone."""
DECISIONS_A_TURN: Final = 4
DECISION_DELAY_MS: Final = 10
"""How long decisions that no request awaits are held back for this master's next transactions, whose sync and posts
they then share."""
DECISION_GATHER_MS: Final = 5
"""How long they let such transactions pass, so that one decision is of several."""
FOREIGN_INTERVAL_MS: Final = 20
"""Between two looks at the transactions of other origins, which those mostly decide themselves."""
_NEVER_JUDGED: Final = (-1, -1, -1, False)


class DueDecisions(NamedTuple):
    """``submissions``: this master's own transactions. ``wake_ms``: when to ask again, in ``mono`` milliseconds."""

    submissions: list[Submission]
    wake_ms: int


class DecisionWriter:
    """Remembers since when each transaction of another origin may be decided, and what it has judged. ``are_awaited``:
    a request waits for the place of a decision in the log, so that none is held back."""

    def __init__(self, undecided: UndecidedTransactions) -> None:
        self._undecided = undecided
        self._view = NO_VIEW
        self._since_ms: dict[Txid, int] = {}
        self._judged: tuple[int, int, int, bool] = _NEVER_JUDGED
        self._wake_ms = FOREVER_MS
        self._foreign_ms = 0
        """When to look at other origins again, in ``mono`` milliseconds."""
        self._held_back: tuple[int, int] | None = None
        """Since when decisions are held back, in ``mono`` milliseconds, and this master's last seq at the last look."""
        self.are_awaited = True

    def due(self, state: ReplicationState) -> DueDecisions:
        """The decisions that this master writes now. Only in a quorate view at work."""
        log = state.log
        if self._undecided.quorate_anchor is None or state.local.disk_full or log.synchronous.is_empty:
            self._since_ms.clear()
            self._judged, self._held_back = _NEVER_JUDGED, None
            return DueDecisions([], FOREVER_MS)
        known = (state.schedule.version, log.synchronous.version, log.own.held, self.are_awaited)
        if known == self._judged and state.now_ms < self._wake_ms and self._view == log.view.number:
            return DueDecisions([], self._wake_ms)
        self._judged = known
        now_ms = state.now_ms
        if self._view != log.view.number:
            self._view, self._foreign_ms = log.view.number, now_ms
            self._since_ms.clear()
        are_all_judged = now_ms >= self._foreign_ms
        undecided = self._undecided
        found = undecided.judge(state, list_undecided(log)) if are_all_judged else undecided.judge_own(state)
        if are_all_judged:
            self._foreign_ms = now_ms + FOREIGN_INTERVAL_MS
            self._since_ms = {
                txid: self._since_ms.get(txid, now_ms)
                for txid in (*found.certain, *found.doomed)
                if txid.origin != log.own.origin
            }
        wait_ms = (1 + self._rank(state)) * state.local.settings.round_timeout_ms
        late = {txid for txid, since_ms in self._since_ms.items() if now_ms - since_ms >= wait_ms}
        submissions = [
            *_decisions(DecisionKind.COMMIT, self._mine(found.certain, log, late), log),
            *_decisions(DecisionKind.ROLLBACK, self._mine(found.doomed, log, late), log),
        ][:DECISIONS_A_TURN]
        waiting = [since_ms + wait_ms for txid, since_ms in self._since_ms.items() if txid not in late]
        self._wake_ms = min(waiting, default=FOREVER_MS)
        if not are_all_judged:
            self._wake_ms = min(self._wake_ms, self._foreign_ms)
        held_until_ms = self._held_until(now_ms, log.own.held) if submissions else 0
        if held_until_ms > now_ms:
            self._wake_ms = min(self._wake_ms, held_until_ms)
            return DueDecisions([], self._wake_ms)
        self._held_back = None
        return DueDecisions(submissions, self._wake_ms)

    def _held_until(self, now_ms: int, own_held: int) -> int:
        """Until when the decisions that are found now wait; not later than now: they do not wait. With the next own
        transaction they go earlier, but for the first :data:`DECISION_GATHER_MS`."""
        if self.are_awaited:
            return 0
        since_ms, held = self._held_back or (now_ms, own_held)
        self._held_back = since_ms, own_held
        has_company = own_held != held and now_ms - since_ms >= DECISION_GATHER_MS
        return now_ms if has_company else since_ms + DECISION_DELAY_MS

    @staticmethod
    def _rank(state: ReplicationState) -> int:
        """The place of this master among the members of its view."""
        return next((at for at, m in enumerate(state.log.view.members) if m.node == state.local.node), 0)

    @staticmethod
    def _mine(names: Iterable[Txid], log: LogState, late: set[Txid]) -> list[Txid]:
        return [txid for txid in names if txid.origin == log.own.origin or txid in late]


def _decisions(verdict: DecisionKind, names: list[Txid], log: LogState) -> list[Submission]:
    """As few as the limits of one decision allow."""
    found: list[Submission] = []
    batch: list[Txid] = []
    size = 0
    for txid in names:
        more = _payload_bytes(txid, log) if verdict is DecisionKind.COMMIT else 0
        if batch and (len(batch) == DECIDED_MAX or size + more > COMMIT_BYTES_MAX):
            found.append(_submission(verdict, batch))
            batch, size = [], 0
        batch.append(txid)
        size += more
    return [*found, _submission(verdict, batch)] if batch else found


def _payload_bytes(txid: Txid, log: LogState) -> int:
    queue = log.by_origin[txid.origin]
    return queue.size(txid.seq) if queue.first_kept <= txid.seq <= queue.held else 0


def _submission(verdict: DecisionKind, names: list[Txid]) -> Submission:
    key = encode_decision(decide(verdict, names))
    return Submission(KIND_DECISION, key, b"", content_hash(KIND_DECISION, key, b""))
