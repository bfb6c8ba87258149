"""Client transactions: recognised as repeats, or given a txid and a stamp (rules 3, 4, 16)."""

from __future__ import annotations

from txlog.model.entry import KIND_CONFIG, RunItem
from txlog.model.errors import KeyTaken, Refused, Unavailable
from txlog.model.ids import Txid
from txlog.protocol.events import ClockReading, Submission, SubmissionAccepted
from txlog.protocol.log.log_state import LogState
from txlog.protocol.replication.replication_state import ReplicationState


class SubmissionHandler:
    """Takes what the core lets in."""

    def __init__(self, state: ReplicationState) -> None:
        self.state = state

    def submit(
        self, batch: list[Submission], refusals: list[Refused | None], stopped: bool, now: ClockReading
    ) -> list[SubmissionAccepted | Refused]:
        """Give txids and stamps to transactions, in order; answer ``i`` is that of transaction ``i``. ``refusals``: why
        the core refuses a transaction, else None. ``stopped``: no view is in force, so the transactions get their
        stamps from the next one."""
        state, log = self.state, self.state.log
        if not stopped:
            state.raise_counter(now)
        answers: list[SubmissionAccepted | Refused] = []
        items: list[RunItem] = []
        contents: list[bytes] = []
        stamp = log.last_stamp
        seq = log.last_own_seq
        fresh: dict[str, SubmissionAccepted] = {}
        for one, refusal in zip(batch, refusals, strict=True):
            if refusal is not None:
                answers.append(refusal)
                continue
            before = _find_repeat(log, one, stamp, fresh)
            if before is not None:
                answers.append(before)
                continue
            stamp += 1
            seq += 1
            items.append(RunItem(0 if stopped else stamp, one.kind, one.key, one.payload))
            contents.append(one.content)
            answer = SubmissionAccepted(Txid(log.own.origin, seq), repeat=False)
            if one.key and one.kind != KIND_CONFIG:
                fresh[one.key] = answer
            answers.append(answer)
        if items and stopped:
            log.persist_unstamped(items, contents)
        elif items:
            log.persist_own(items, contents)
            state.schedule.on_own_transactions(now.mono)
        return answers

    def queue_full_error(self, count: int) -> Refused | None:
        """Why ``count`` more transactions do not fit the queue; None when they do."""
        log, limits = self.state.log, self.state.local.settings
        waiting = sum(len(q) for q in log.queues) + len(log.unstamped)
        if waiting + count > limits.queue_transactions_max:
            return Unavailable("QueueFull", f"{waiting} transactions wait for their order; a member may be silent")
        if sum(q.payload_bytes for q in log.queues) > limits.queue_bytes_max:
            return Unavailable("QueueFull", "too many bytes wait for their order; a member may be silent")
        return None


def _find_repeat(
    log: LogState, one: Submission, stamp: int, fresh: dict[str, SubmissionAccepted]
) -> SubmissionAccepted | Refused | None:
    if not one.key or one.kind == KIND_CONFIG:
        return None
    if one.key in fresh:
        return SubmissionAccepted(fresh[one.key].txid, repeat=True)
    first = log.keys.find_first_use(one.key, stamp)
    if first is None:
        return None
    if first.content != one.content:
        return KeyTaken(f"Idempotency-Key {one.key[:80]!r} came with another body before, as {first.txid}")
    return SubmissionAccepted(first.txid, repeat=True)
