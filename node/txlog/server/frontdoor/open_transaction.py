"""One transaction of RDF4J: what it has written and read so far, and how it ended."""

from __future__ import annotations

import asyncio
import time
from typing import Final, NamedTuple

from txlog.model.entry import KIND_QUADS
from txlog.model.errors import BadInput
from txlog.model.ids import Txid
from txlog.model.quads import decode_quads
from txlog.server.frontdoor.read_set import ReadCondition, ReadSet
from txlog.server.frontdoor.transaction_view import TransactionView, view_lost
from txlog.sparql import EvaluatedUpdate, TransactionBody
from txlog.workers.canonical_literals import canonical_lines, lines_with_lower_tags

ENDED_TRANSACTIONS_MAX: Final = 1000
"""Number of ended transactions whose outcome is remembered."""
_SNAPSHOT_LEVELS: Final = ("SNAPSHOT", "SERIALIZABLE")
"""These levels read one copy from their first read on. RDF4J's SNAPSHOT_READ needs a snapshot for each read only, which
a worker gives."""


class OpenTransaction:
    """``changes``: its writes, of ``size_bytes`` bytes. ``committing``: the commit was submitted and its outcome is not
    known yet, so only a commit under the same ``commit_key`` is allowed. ``read_set``: what it has read, for
    SERIALIZABLE only. ``net_lines``: the first ``netted_count`` changes as quads that are added or removed; None if
    quads cannot express them. ``as_written``: stores hold literals as they were sent."""

    def __init__(self, name: str, level: str, *, as_written: bool = False) -> None:
        self.name = name
        self.reads_snapshot = level in _SNAPSHOT_LEVELS
        self.read_set: ReadSet | None = ReadSet(as_written=as_written) if level == "SERIALIZABLE" else None
        self.changes: list[TransactionBody] = []
        self.size_bytes = 0
        self.last_used = time.monotonic()
        self.lock = asyncio.Lock()
        self.view: TransactionView | None = None
        self.net_lines: dict[bytes, bool] | None = {}
        self.netted_count = 0
        self.committing = False
        self.commit_key = ""
        self.synchronous: str | None = None
        """What its beginning asked for in ``transaction-setting__txlog.synchronous``."""
        self._as_written = as_written

    def update_net_lines(self) -> None:
        """Updates ``net_lines`` with the latest writes."""
        for part in self.changes[self.netted_count :]:
            self.netted_count += 1
            if part.kind != KIND_QUADS:
                self.net_lines = None  # from now on only a copy has the result
            if self.net_lines is not None:
                payload = (lines_with_lower_tags if self._as_written else canonical_lines)(part.payload)
                self.net_lines.update((line, adds) for adds, line in decode_quads(payload))


async def commit_condition(
    one: OpenTransaction, looked: ReadSet, view: TransactionView
) -> tuple[EvaluatedUpdate, ReadCondition]:
    """The writes as one update, and what must hold for the data before it: the transaction would read the same there.
    ``looked``: what it has read, in ``view``."""
    if not view.evaluator.is_usable:
        raise view_lost()
    update = await asyncio.to_thread(looked.conditional_update, one.changes)
    return update, await looked.condition(view, update.read_predicates)


class EndedTransaction(NamedTuple):
    """``how``: for people. ``txid``: of the entry of a commit; None for one that had written nothing."""

    how: str
    is_committed: bool = False
    txid: Txid | None = None


class TransactionOver(BadInput):
    """No transaction of this name is open at this master."""

    def __init__(self, name: str, ended: EndedTransaction) -> None:
        super().__init__(f"unable to find registered connection for transaction id '{name}': {ended.how}")
        self.ended = ended


class EndedTransactions:
    """How the latest transactions of this master ended."""

    def __init__(self) -> None:
        self._by_name: dict[str, EndedTransaction] = {}

    def add(self, name: str, ended: EndedTransaction) -> None:
        """Remembers one, and forgets the oldest one."""
        if len(self._by_name) >= ENDED_TRANSACTIONS_MAX:
            del self._by_name[next(iter(self._by_name))]
        self._by_name[name] = ended

    def error(self, name: str) -> TransactionOver:
        """The error for a transaction that is not open."""
        unknown = EndedTransaction("this master does not know it; it lives at the master that began it")
        return TransactionOver(name, self._by_name.get(name, unknown))
