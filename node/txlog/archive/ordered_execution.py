"""Entries in the order of the log, executed by a store that is being loaded: updates depend on what is there."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from txlog.archive.archive_errors import EntryRefused
from txlog.archive.spooled_entries import SpooledEntry
from txlog.backup.backup_errors import LoadingLost
from txlog.backup.dataset_load import LOCK_TIMEOUT_S, RestoreTarget
from txlog.backup.worker_lock import WorkerLock
from txlog.workers.adapter import (
    ApplyResult,
    LoadMarker,
    LockAction,
    StoreOperation,
    UnexpectedAnswer,
    Unreachable,
    WorkerResponse,
)

EXECUTION_S: Final = 120.0
"""Seconds in which the store has to answer a request, and one more for each :data:`BYTES_PER_S` of payload."""
BYTES_PER_S: Final = 1 << 19


class OrderedExecution:
    """``loading``: the mark in the store, which each request replaces by the next one: so a request without an answer
    was either executed or not, and is never executed twice."""

    def __init__(self, into: RestoreTarget, loading: LoadMarker) -> None:
        self._into = into
        self.loading = loading
        self._token: int | None = None
        self._is_confirmed = False

    def run(self, batches: Iterable[Sequence[SpooledEntry]]) -> int:
        """Executes the batches under the appliers' lock. Returns the number of entries.

        :class:`EntryRefused` for an entry that the store refuses alone; :class:`LoadingLost`; the store's errors."""
        done = 0
        adapter, transport = self._into.adapter, self._into.transport
        if not adapter.capabilities.serial_updates:
            self._token = WorkerLock(self._into, time.monotonic() + LOCK_TIMEOUT_S).claim()
        try:
            for batch in batches:
                self._execute(batch)
                done += len(batch)
        finally:
            if self._token is not None:
                transport.send(adapter.release_claim(self._token))
        return done

    def _execute(self, batch: Sequence[SpooledEntry]) -> None:
        refused = self._send(batch)
        if refused is None:
            return
        if len(batch) > 1:  # one of them is refused; those before it are executed
            for entry in batch:
                self._execute([entry])
            return
        raise EntryRefused(
            f"{self._into.name} refuses the transaction {batch[0].txid} at index {batch[0].index}: "
            f"{refused.text[:300]}; restore to a moment before it: --to before:{batch[0].txid}"
        )

    def _send(self, batch: Sequence[SpooledEntry]) -> WorkerResponse | None:
        """None, or the answer that refuses an operation."""
        adapter, transport = self._into.adapter, self._into.transport
        new = self.loading._replace(token=secrets.randbits(62))
        lock = LockAction.NONE
        if self._token is not None:
            lock = LockAction.KEEP if self._is_confirmed else LockAction.CONFIRM
        operations = [StoreOperation(entry.kind, entry.payload) for entry in batch]
        request = adapter.apply(operations, self.loading, new, lock=lock, token=self._token or 0)
        seconds = EXECUTION_S + sum(len(entry.payload) for entry in batch) / BYTES_PER_S
        try:
            answer = transport.send(replace(request, timeout_s=seconds))
        except Unreachable:
            if not adapter.parse_is_at(transport.send(adapter.is_loading(new))):
                raise
        else:
            verdict = adapter.parse_apply_result(answer)
            if verdict is ApplyResult.REFUSED:
                return answer
            if verdict is not ApplyResult.APPLIED:
                raise LoadingLost(f"another process writes to {self._into.name} meanwhile; this restore ends")
        self.loading, self._is_confirmed = new, True
        return None

    def keep_graphs(self, graphs: Sequence[bytes]) -> None:
        """Creates graphs (in brackets) that exist without quads, where the engine keeps such graphs."""
        adapter, transport = self._into.adapter, self._into.transport
        if graphs and adapter.capabilities.keeps_empty_graphs:
            answer = transport.send(adapter.delete_quads((), graphs))
            if not answer.ok:
                raise UnexpectedAnswer("creating graphs", answer)
