"""Records that are merged into the one before: a round costs one record, not one for each request."""

from __future__ import annotations

from txlog.model.entry import TransactionRun
from txlog.model.records import LogAppended, Record, StableAdvanced, TransactionsPersisted


def record_persisted(records: list[Record], run: TransactionRun, hashes: bytes) -> None:
    """Record that the run is persisted: in the last record, if that has the same origin's transactions before it."""
    before = records[-1] if records else None
    if isinstance(before, TransactionsPersisted) and before.run.origin == run.origin:
        joined = TransactionRun(run.node, run.birth, before.run.first_seq, before.run.items + run.items)
        records[-1] = TransactionsPersisted(joined, before.contents + hashes)
    else:
        records.append(TransactionsPersisted(run, hashes))


def record_stable(records: list[Record], index: int) -> None:
    """Write the stable index into the record of the appends when there is one, so that a round costs one record."""
    last = records[-1] if records else None
    if isinstance(last, LogAppended):
        records[-1] = LogAppended(last.first_index, last.spans, last.hashes, index)
    else:
        records.append(StableAdvanced(index))
