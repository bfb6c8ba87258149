"""Hashes of transactions and of the log, computed and checked (rules 3, 13, 17)."""

from __future__ import annotations

from itertools import pairwise

from txlog.model.entry import TransactionRun
from txlog.model.errors import Fatal
from txlog.model.hashes import HASH_BYTES, chain_next, content_hash
from txlog.model.ids import Txid
from txlog.protocol.log.incoming_queue import OriginQueue, QueuePrefix, merge_in_key_order
from txlog.protocol.log.log_index import LogIndex


def chain_hashes(value: bytes, leaves: list[bytes]) -> bytes:
    """The chain hashes after each of these entries, concatenated. ``value``: the one before them."""
    cells: list[bytes] = []
    for leaf in leaves:
        value = chain_next(value, leaf)
        cells.append(value)
    return b"".join(cells)


def checked_prefix(
    queues: list[OriginQueue], ranks: list[int], after: int, order: bytes, counts: dict[int, int]
) -> QueuePrefix:
    """The next entries after index ``after``, in a peer's order of slots. :class:`Fatal` when that is not the order of
    keys (rule 13)."""
    heads = {slot: iter(queues[slot].head_rows(count, ranks[slot])) for slot, count in counts.items()}
    rows = [next(heads[slot]) for slot in order]
    if any(later[:2] <= row[:2] for row, later in pairwise(rows)):
        raise Fatal("Forked", f"a peer's log behind {after} is not in the order of stamps")
    return QueuePrefix(order, [row[2] for row in rows], counts, rows[-1][0])


def check_contents(queue: OriginQueue, run: TransactionRun, known: int) -> None:
    """:class:`Fatal` when one of the first ``known`` items is persisted with another content (rule 3)."""
    for offset in range(max(0, queue.in_log + 1 - run.first_seq), known):
        item = run.items[offset]
        if content_hash(item.kind, item.key, item.payload) != queue.content(run.first_seq + offset):
            txid = Txid(queue.origin, run.first_seq + offset)
            raise Fatal("TwoContents", f"{txid} came with another content than it is held with here")


def content_hashes(run: TransactionRun, known: int, computed: dict[Txid, bytes]) -> list[bytes]:
    """Content hashes of the run's items after the first ``known`` ones; ``computed`` has those known in advance."""
    items = run.items[known:]
    if not computed:
        return [content_hash(item.kind, item.key, item.payload) for item in items]
    return [
        computed.get(Txid(run.origin, seq)) or content_hash(item.kind, item.key, item.payload)
        for seq, item in enumerate(items, run.first_seq + known)
    ]


def hash_if_closed(history: LogIndex, queues: list[OriginQueue], ranks: list[int], index: int) -> bytes | None:
    """The chain hash at ``index`` of the log followed by the queue in key order. None above all that, and below the log
    start."""
    beyond = index - history.length
    if beyond <= 0:
        return history.hash_at(index) if history.has_hash_at(index) else None
    counts = {slot: min(len(queue), beyond) for slot, queue in enumerate(queues) if len(queue)}
    prefix = merge_in_key_order(queues, ranks, counts) if sum(counts.values()) >= beyond else None
    return chain_hashes(history.hash, prefix.leaves[:beyond])[-HASH_BYTES:] if prefix is not None else None
