"""Brings a capture store up to the log of the masters, and back where a rejoin gave its branch up.

An entry is executed when a worker has executed it, so what all workers refuse and the log then skips is never captured.
In a cluster without workers no store can refuse.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

import msgspec

from txlog.changesets.capture_store import CaptureStore, LogStep
from txlog.changesets.change_log import LogEnd
from txlog.changesets.change_record import CapturedEntry
from txlog.changesets.change_set import ChangeSet
from txlog.changesets.operations import EntryRefused
from txlog.client.responses import StatusResponse
from txlog.model.entry import KIND_SKIP
from txlog.model.entry_effects import encode_effects
from txlog.model.errors import BadInput, LogAhead, LogDiverged, TxLogError
from txlog.model.ids import parse_txid
from txlog.model.synchronous_entry import KIND_DECISION
from txlog.wire.log_page import LogPage, PageEntry

PAGE_BYTES: Final = 1 << 20
_WORKING: Final = "Working"


class LogMaster(Protocol):
    """What the follower asks of a master; :class:`~txlog.client.MasterClient` is one."""

    def status(self) -> StatusResponse: ...

    def log_page(
        self,
        after: int,
        at_hash: bytes | None = None,
        upto: int | None = None,
        max_bytes: int | None = None,
        unordered: Sequence[tuple[int, bytes]] = (),
        *,
        keys: bool = False,
    ) -> LogPage: ...


class CapturedEntrySkipped(TxLogError):
    """The log skips an entry that the capture store has executed: the store is made again, as workers are."""


class CapturedChange(NamedTuple):
    """An entry that was executed, and its change set."""

    entry: CapturedEntry
    change: ChangeSet


class FollowedStep(NamedTuple):
    """One step. ``left``: the end of the branch that the store left, None where it went on. ``changes``: what it
    executed then. ``settled``: the final index, 0 where it was not asked. ``stable``: the master's stable index."""

    left: LogEnd | None
    changes: list[CapturedChange]
    settled: int = 0
    stable: int = 0


def follow_step(
    store: CaptureStore, master: LogMaster, upto: int | None = None, *, settled: bool = False
) -> FollowedStep:
    """Execute the next page of the log; no changes where the store is as far as it may be. ``upto``: not beyond this
    index; ``settled``: only final entries, which no rejoin moves. Raises the errors of the master, :class:`LogAhead`
    where it is behind the store, :class:`LogDiverged` where no kept position of the store is on its log, and
    :class:`EntryRefused` where the store cannot execute the next entry."""
    status = master.status()
    if _has_left(store, status):
        return _go_back(store, master)
    end = store.end
    target = min(executable_index(status), status.stable.index if upto is None else upto)
    try:
        # Asked also where nothing can follow: only the master knows whether this position is still on its log.
        page = master.log_page(end.index, end.hash, max(target, end.index), PAGE_BYTES, keys=True)
    except LogDiverged:
        return _go_back(store, master)
    limit = min(page.settled, target) if settled else target
    steps = [_log_step(each) for each in page.entries if each.index <= limit]
    _refuse_captured_skips(store, steps)
    try:
        done = store.apply(steps)
    except EntryRefused:
        # Those before it count; the next step meets it alone.
        done = [record.change_set for record in store.entries(end.index)] if store.end.index > end.index else []
        if not done:
            raise
    changes = [CapturedChange(step.entry, change) for step, change in zip(steps, done, strict=False)]
    return FollowedStep(None, changes, page.settled, status.stable.index)


def executable_index(status: StatusResponse) -> int:
    """The index up to which a worker of the data centre has executed the log; the stable index where there are no
    workers. Masters prove that a worker is on their log; those of an earlier version only say which ones work."""
    if not status.workers:
        return status.stable.index
    if status.applied is not None:
        return min(status.applied, status.stable.index)
    at = [each.position.index for each in status.workers if each.position is not None and each.state == _WORKING]
    return min(max(at, default=0), status.stable.index)


def _refuse_captured_skips(store: CaptureStore, steps: Sequence[LogStep]) -> None:
    """An entry that is skipped before the store executes it is a no-op when it comes. One that the store has executed
    has changed it, and perhaps left as a change set."""
    wanted = {txid for step in steps if step.entry.kind == KIND_SKIP and (txid := _skipped_txid(step.entry.key))}
    if not wanted:
        return
    wanted -= {step.entry.txid for step in steps if step.entry.noop}
    for record in store.entries(store.begin.index):
        if record.entry.txid in wanted:
            wanted.discard(record.entry.txid)
            if not record.entry.noop:
                raise CapturedEntrySkipped(f"the log skips {record.entry.txid}, which the capture store has executed")
    if wanted and store.begin.index:
        raise CapturedEntrySkipped(f"the log skips {min(wanted)}, which the first data of the store may contain")


def _skipped_txid(key: str) -> str:
    """The transaction that an entry of kind skip names; empty for a change of prefixes or a restore point."""
    try:
        return str(parse_txid(key))
    except BadInput:
        return ""


def captured_entry(entry: PageEntry) -> CapturedEntry:
    """What the log says of an entry, without its payload."""
    return CapturedEntry(entry.index, entry.hash, str(entry.txid), entry.stamp, entry.kind, entry.noop, entry.key)


def _log_step(entry: PageEntry) -> LogStep:
    """The entry to execute. Synchronous transactions that take effect here are one step, at any kind of entry."""
    found = captured_entry(entry)
    if not entry.effects:
        return LogStep(found, entry.payload)
    return LogStep(msgspec.structs.replace(found, kind=KIND_DECISION), encode_effects(entry.effects))


def _has_left(store: CaptureStore, status: StatusResponse) -> bool:
    """Whether the master's log is shorter, and another one. A master that only lags has the store's own hash."""
    stable = status.stable
    if not store.begin.index < stable.index < store.end.index:
        return False
    record = next(iter(store.entries(stable.index - 1)))
    return record.entry.hash != bytes.fromhex(stable.hash)


def _go_back(store: CaptureStore, master: LogMaster) -> FollowedStep:
    """Undo to the last kept position that is on the log of the master."""
    hashes = {record.entry.index: record.entry.hash for record in store.entries(store.begin.index)}
    hashes[store.begin.index] = store.begin.hash
    kept = range(store.begin.index, store.end.index + 1)
    low = store.begin.index - 1 + bisect_left(kept, True, key=lambda at: not _is_on_log(master, at, hashes[at]))
    if low < store.begin.index:
        raise LogDiverged(
            f"no position that the capture store keeps, from index {store.begin.index} on, is on this log: it is of "
            "another cluster, or keeps no change sets from where the branches part; begin with an empty folder"
        )
    left = store.end
    if low == left.index:
        return FollowedStep(None, [])
    store.undo_to(low)
    return FollowedStep(left, [])


def _is_on_log(master: LogMaster, index: int, value: bytes) -> bool:
    try:
        master.log_page(index, value, index)
    except (LogDiverged, LogAhead):
        return False
    return True
