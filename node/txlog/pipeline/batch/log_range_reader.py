"""Reads a range of the log where it is needed: from pages of a master to pieces for each bucket."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from txlog.apply import WorkerState
from txlog.client import FailoverClient
from txlog.config.units import AS_WRITTEN
from txlog.model.entry import KIND_UPDATE, Position
from txlog.model.entry_effects import find_effects, skips_effect
from txlog.model.errors import LogAhead, LogDiverged, LogNeedsRestore, TxLogError
from txlog.pipeline.batch.net_effect import split_into_buckets
from txlog.pipeline.batch.task_messages import BucketPiece, LoadJob, LogRange, TaskFault, UpdateIndexes
from txlog.wire.log_page import LogPage

PAGE_BYTES = 4 << 20
"""Bytes of the log in one page. A task has three pages in memory: one in transfer, one in processing, one as pieces."""
MASTER_TIMEOUT_S = 15.0
"""Time-out for a page of that size from a busy master."""
NO_PAGE_TIMEOUT_S = 30.0
"""How long the job waits for any master to serve a page before it fails; nothing has been loaded then."""

BucketMessage = tuple[int, BucketPiece | UpdateIndexes | TaskFault]
"""Bucket number and message."""


class BranchMasters:
    """The masters of a data centre, some of which may be on another branch, or behind. Pages come from the first one
    that has the position ``end``, and so all before it. For one thread."""

    def __init__(self, urls: Sequence[str], end: Position) -> None:
        self._masters = [FailoverClient([url], MASTER_TIMEOUT_S) for url in urls]
        self._end = end
        self._proved: FailoverClient | None = None
        """The master that gave the last page."""

    def close(self) -> None:
        """Close all connections."""
        for master in self._masters:
            master.close()

    def log_page(
        self, after: int, at_hash: bytes | None = None, upto: int | None = None, max_bytes: int | None = None
    ) -> LogPage:
        """As :meth:`~txlog.client.MasterClient.log_page`. :class:`LogDiverged` and :class:`LogNeedsRestore` are raised
        where all masters say so: any other error hides whether one has the position."""
        final: TxLogError | None = None
        transient: TxLogError | None = None
        for master in sorted(self._masters, key=lambda each: each is not self._proved):
            try:
                if master is not self._proved:
                    master.log_page(self._end.index, self._end.hash, self._end.index)
                page = master.log_page(after, at_hash, upto, max_bytes)
            except (LogDiverged, LogNeedsRestore) as off:
                final = final or off
            except TxLogError as not_now:
                transient = not_now
            else:
                self._proved = master
                return page
            self._proved = None
        found = transient or final
        assert found is not None, "at least one master"
        raise found


def read_ranges(job: LoadJob, ranges: list[LogRange], masters: BranchMasters | None = None) -> Iterator[BucketMessage]:
    """Pieces of all ``ranges``. An update ends the pieces, since no quad after it may be loaded with those before it.
    The buckets receive the indexes of updates (:class:`UpdateIndexes`), and any error that makes reading impossible."""
    # Tasks begin at different masters, so that no master serves the whole log alone.
    mine = sum(each.entries for each in ranges)
    turn = ranges[0].after.index // max(1, mine) % len(job.masters)
    urls = job.masters[turn:] + job.masters[:turn]
    source = masters or BranchMasters(urls, ranges[-1].end)
    updates = _FoundUpdates()
    try:
        for each in ranges:
            yield from _read_range(job, each, source, updates)
    except (LogDiverged, LogAhead, LogNeedsRestore) as off:
        state = {LogDiverged: WorkerState.DIVERGED, LogAhead: WorkerState.AHEAD}.get(
            type(off), WorkerState.NEEDS_RESTORE
        )
        yield from ((bucket, TaskFault(state, str(off))) for bucket in range(job.buckets))
    except TxLogError as unreachable:
        fault = TaskFault(WorkerState.LOADING, f"no log from any master: {unreachable}")
        yield from ((bucket, fault) for bucket in range(job.buckets))
    if updates.before is not None:
        yield 0, UpdateIndexes(tuple(updates.indexes), updates.before)
        first = UpdateIndexes((updates.indexes[0],), updates.before)
        yield from ((bucket, first) for bucket in range(1, job.buckets))


class _FoundUpdates:
    """The updates that one task has met. ``before``: the position before the first of them; None before that."""

    def __init__(self) -> None:
        self.indexes: list[int] = []
        self.before: Position | None = None

    def add(self, index: int, before: Position) -> None:
        self.indexes.append(index)
        self.before = self.before or before


def _read_range(
    job: LoadJob, wanted: LogRange, source: BranchMasters, updates: _FoundUpdates
) -> Iterator[BucketMessage]:
    with ThreadPoolExecutor(1) as ahead:  # fetch the next page while this one is processed
        at = wanted.after
        coming: Future[LogPage] | None = ahead.submit(_fetch_page, source, at, wanted.end)
        while coming is not None:
            page = coming.result()
            entries = page.log_entries()
            previous = at
            at = Position(page.stable.epoch, entries[-1].index, entries[-1].hash)
            coming = ahead.submit(_fetch_page, source, at, wanted.end) if at.index < wanted.end.index else None
            payloads: list[bytes] = []
            for entry in entries:
                if job.repeats_load and skips_effect(entry):
                    # The process that began this load may have read and loaded the entry before it was skipped.
                    raise LogDiverged(
                        f"a transaction of the entry {entry.txid} at index {entry.index} was skipped, and a load that "
                        "broke off may have executed it: rebuild this worker (txlog worker rebuild)"
                    )
                effects = find_effects(entry)
                if any(effect.kind == KIND_UPDATE for effect in effects):
                    updates.add(entry.index, previous)
                elif updates.before is None:
                    payloads += [effect.payload for effect in effects]
                previous = Position(page.stable.epoch, entry.index, entry.hash)
            yield from split_into_buckets(entries[0].index, payloads, job.buckets, as_written=job.engine == AS_WRITTEN)
    if at.hash != wanted.end.hash:
        raise LogDiverged(f"at index {at.index} this log's hash is {at.hash.hex()}, not {wanted.end.hash.hex()}")


def _fetch_page(source: BranchMasters, after: Position, end: Position) -> LogPage:
    """At least one entry, from a master that has the range."""

    def ask() -> LogPage | None:
        page = source.log_page(after.index, after.hash if after.index else None, end.index, PAGE_BYTES)
        return page if page.entries else None

    return with_retries(ask, f"no master has the log from index {after.index} to {end.index} yet")


def with_retries(ask: Callable[[], LogPage | None], what: str) -> LogPage:
    """The first page that any master serves within :data:`NO_PAGE_TIMEOUT_S`; masters come and go."""
    until, pause_s = time.monotonic() + NO_PAGE_TIMEOUT_S, 0.1
    while True:
        try:
            page = ask()
            if page is not None:
                return page
            missing: TxLogError = LogAhead(what)
        except (LogDiverged, LogNeedsRestore):
            raise
        except TxLogError as not_now:
            missing = not_now
        if time.monotonic() > until:
            raise missing
        time.sleep(pause_s)
        pause_s = min(1.0, pause_s * 2)
