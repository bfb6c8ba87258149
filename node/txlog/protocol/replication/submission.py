"""Client transactions: recognised as repeats, or given a txid and a stamp (rules 3, 4, 16)."""

from __future__ import annotations

from typing import NamedTuple

from txlog.model.entry import KIND_SKIP, RunItem
from txlog.model.errors import KeyTaken, Refused, Unavailable
from txlog.model.ids import Txid
from txlog.model.synchronous_entry import KINDS_WITH_OWN_KEYS, idempotency_key_of
from txlog.protocol.events import ClockReading, Submission, SubmissionAccepted
from txlog.protocol.log.log_state import LogState
from txlog.protocol.replication.replication_state import ReplicationState


class SubmissionTerms(NamedTuple):
    """``stopped``: no view is in force, so the transactions get their stamps from the next one. ``marks_first_stamps``:
    keyed transactions get a first stamp, which every configured master keeps. ``keys_refused``: why no transaction with
    a new key is taken; None when it is."""

    stopped: bool
    marks_first_stamps: bool
    keys_refused: Unavailable | None


def key_taken(key: str, txid: Txid) -> KeyTaken:
    """The error for a key that came with another body before."""
    return KeyTaken(f"Idempotency-Key {key[:80]!r} came with another body before, as {txid}")


class SubmissionHandler:
    """Takes what the core lets in."""

    def __init__(self, state: ReplicationState) -> None:
        self.state = state

    def submit(
        self, batch: list[Submission], refusals: list[Refused | None], terms: SubmissionTerms, now: ClockReading
    ) -> list[SubmissionAccepted | Refused]:
        """Give txids and stamps to transactions, in order; answer ``i`` is that of transaction ``i``. ``refusals``: why
        the core refuses a transaction, else None."""
        state, log = self.state, self.state.log
        answers: list[SubmissionAccepted | Refused] = []
        items: list[RunItem] = []
        contents: list[bytes] = []
        stamp = log.last_stamp
        seq = log.last_own_seq
        fresh: dict[str, tuple[Txid, bytes]] = {}
        for one, refusal in zip(batch, refusals, strict=True):
            if refusal is not None:
                answers.append(refusal)
                continue
            before = _find_repeat(log, one, stamp, fresh)
            if before is not None:
                answers.append(before)
                continue
            is_keyed = bool(one.key) and bool(_idempotency_key(one))
            if is_keyed and terms.keys_refused is not None:
                answers.append(terms.keys_refused)
                continue
            stamp += 1
            seq += 1
            first_stamp = stamp if is_keyed and terms.marks_first_stamps else 0
            items.append(RunItem(0 if terms.stopped else stamp, one.kind, one.key, one.payload, first_stamp))
            contents.append(one.content)
            answer = SubmissionAccepted(Txid(log.own.origin, seq), repeat=False)
            if key := _repeatable_key(one):
                fresh[key] = answer.txid, one.content
            answers.append(answer)
        if items and terms.stopped:
            log.persist_unstamped(items, contents)
        elif items:
            log.persist_own(items, contents)
            state.schedule.on_own_transactions(now.mono)
        return answers

    def queue_full_error(self, count: int) -> Refused | None:
        """Why ``count`` more transactions do not fit the queue; None when they do."""
        log, limits = self.state.log, self.state.local.settings
        waiting = log.open.waiting + len(log.unstamped)
        if waiting + count > limits.queue_transactions_max:
            return Unavailable("QueueFull", f"{waiting} transactions wait for their order; a member may be silent")
        if log.open.payload_bytes > limits.queue_bytes_max:
            return Unavailable("QueueFull", "too many bytes wait for their order; a member may be silent")
        return None


def _find_repeat(
    log: LogState, one: Submission, stamp: int, fresh: dict[str, tuple[Txid, bytes]]
) -> SubmissionAccepted | Refused | None:
    key = _repeatable_key(one)
    if not key:
        return None
    if key in fresh:
        txid, content = fresh[key]
    else:
        first = log.keys.find_first_use(key, stamp)
        if first is None:
            return None
        txid, content = first.txid, first.content
    if not one.content.startswith(content):
        return key_taken(key, txid)
    return SubmissionAccepted(txid, repeat=True)


def _repeatable_key(one: Submission) -> str:
    """The key under which a submission repeats an earlier one; empty for one that repeats none."""
    if not one.key:
        return ""
    return one.key if one.kind == KIND_SKIP else _idempotency_key(one)


def _idempotency_key(one: Submission) -> str:
    """The client's key. The usual kinds are recognised here: this runs for each transaction, compiled."""
    return one.key if one.kind not in KINDS_WITH_OWN_KEYS else idempotency_key_of(one.kind, one.key)
