"""What a master reports of its log when its view is stopped: one snapshot (rule 34)."""

from __future__ import annotations

from txlog.model.synchronous_entry import SYNCHRONOUS_AND_DECISION
from txlog.protocol.log.incoming_queue import OriginQueue
from txlog.protocol.log.log_state import LogState
from txlog.wire.messages import Checkpoint, QueuedTransactions
from txlog.wire.report_parts import PendingConfigChange, SynchronousReference


def build_checkpoints(agreement: LogState) -> list[Checkpoint]:
    """The log's end, and positions ever farther back. A report begins at the last one that its own log has too, or at
    its own log start, which no member is below."""
    history = agreement.log_index
    places = {0, history.start, agreement.stable, agreement.final_index}
    back = 0
    while back <= history.length:
        places.add(history.length - back)
        back = max(1, 2 * back)
    return [
        Checkpoint(index, history.hash_at(index))
        for index in sorted(places, reverse=True)
        if history.has_hash_at(index)
    ]


def last_shared(agreement: LogState, checkpoints: list[Checkpoint]) -> Checkpoint:
    """The last of the checkpoints that this log has too, or its log start."""
    history = agreement.log_index
    for one in sorted(checkpoints, key=lambda c: -c.index):
        if history.start <= one.index <= history.length and history.hash_at(one.index) == one.hash:
            return one
    return Checkpoint(history.start, history.log_start_hash)


def non_final_transactions(agreement: LogState) -> list[QueuedTransactions]:
    """All persisted transactions that may still leave the log, in it or not, by origin. Unstamped transactions are left
    out: they concern only this master."""
    found: list[QueuedTransactions] = []
    for slot, queue in enumerate(agreement.queues):
        first = agreement.log_index.seq_within(slot, agreement.final_index) + 1
        found += _queued_range(queue, first, min(queue.held, queue.limit))
    return found


def pending_configuration_changes(agreement: LogState, shared: int) -> list[PendingConfigChange]:
    """The persisted configuration changes, without those at or below index ``shared`` of the log."""
    found: list[PendingConfigChange] = []
    for txid, key in sorted(agreement.configurations.held.items()):
        queue = agreement.by_origin.get(txid.origin)
        in_log = queue is not None and txid.origin in agreement.slots and txid.seq <= queue.in_log
        if not in_log or agreement.log_index.index_of(txid.origin, txid.seq) > shared:
            found.append(PendingConfigChange(txid.origin.node, txid.origin.birth, txid.seq, key))
    return found


def synchronous_references(agreement: LogState, shared: int) -> list[SynchronousReference]:
    """The synchronous transactions and decisions that are persisted and may still change their place, without those at
    or below index ``shared`` of the log."""
    if agreement.view.anchor is None and agreement.synchronous.is_unused:
        return []
    found: list[SynchronousReference] = []
    for origin, queue in sorted(agreement.by_origin.items()):
        for seq, kind, key in queue.named():
            in_log = seq <= queue.in_log and origin in agreement.slots
            if kind in SYNCHRONOUS_AND_DECISION and (not in_log or agreement.log_index.index_of(origin, seq) > shared):
                found.append(SynchronousReference(origin.node, origin.birth, seq, kind, key))
    return found


def parked_transactions(agreement: LogState) -> list[QueuedTransactions]:
    """The persisted transactions of another branch."""
    found: list[QueuedTransactions] = []
    for _, queue in sorted(agreement.by_origin.items()):
        found += _queued_range(queue, max(queue.limit + 1, queue.first_kept), queue.held)
    return found


def _queued_range(queue: OriginQueue, first: int, last: int) -> list[QueuedTransactions]:
    if first > last:
        return []
    stamps, contents = queue.stamps(first, last), queue.contents(first, last)
    return [QueuedTransactions(queue.origin.node, queue.origin.birth, first, stamps, contents)]
