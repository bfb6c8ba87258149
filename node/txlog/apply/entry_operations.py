"""What entries of the log make a store execute, and which operation of several the store refuses."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from txlog.apply.session_errors import BulkLoadDue
from txlog.model.bulk_entry import find_bulk_load
from txlog.model.entry import LogEntry
from txlog.model.entry_effects import find_effects
from txlog.model.ids import Txid
from txlog.workers.adapter import StoreOperation, WorkerResponse

TryPrefix = Callable[[Sequence[StoreOperation]], WorkerResponse | None]
"""Has the store execute operations and roll all of them back. None: it accepts them; otherwise its refusal."""


def is_noop(entry: LogEntry) -> bool:
    """Whether a worker only moves its position over this entry."""
    return not find_effects(entry)


def find_operations(entries: Iterable[LogEntry]) -> list[StoreOperation]:
    """The operations of these entries, in order."""
    return [StoreOperation(effect.kind, effect.payload) for entry in entries for effect in find_effects(entry)]


def find_batch_end(entries: Sequence[LogEntry], at: int, transactions_max: int, bytes_max: int) -> int:
    """Behind the last of the entries from ``at`` on that make one request: at least one, no more bytes than these but
    for one large entry, and none that is a bulk load but for the first one."""
    end, size, last = at, 0, min(len(entries), at + transactions_max)
    while end < last:
        size += len(entries[end].payload)
        if end > at and (size > bytes_max or find_bulk_load(entries[end]) is not None):
            break
        end += 1
    return end


def stop_at_bulk_load(entry: LogEntry) -> None:
    """:class:`BulkLoadDue` for an entry that no request executes."""
    if find_bulk_load(entry) is not None:
        raise BulkLoadDue(entry)


def executed_txid(entry: LogEntry, at: int) -> Txid:
    """The transaction of the operation ``at`` of an entry."""
    return find_effects(entry)[at].txid


def find_refused(
    operations: Sequence[StoreOperation], refusal: WorkerResponse, try_prefix: TryPrefix
) -> tuple[int, WorkerResponse]:
    """The first operation that the store refuses, and its answer, where it refuses all of them together with
    ``refusal``. Longer and shorter prefixes are tried, each of them rolled back."""
    accepted, refused = 0, len(operations)
    while refused - accepted > 1:
        middle = (accepted + refused) // 2
        answer = try_prefix(operations[:middle])
        if answer is None:
            accepted = middle
        else:
            refused, refusal = middle, answer
    return accepted, refusal
