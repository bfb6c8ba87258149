"""``txlog watch --updates quads``: the log as what each entry really deleted and added, from a capture store.

The command has a capture store of its own in a folder of this machine. A new one begins where the log begins, or with a
copy of a worker where the log is trimmed.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Final

from txlog.backup.backup_job import list_workers
from txlog.backup.pinned_snapshot import choose_most_advanced
from txlog.changesets import CapturedEntry, CaptureStore, ChangeSet, follow_step
from txlog.changesets.change_log import LogEnd
from txlog.cli.cli_cluster import CliCluster
from txlog.cli.worker_access import open_source_worker
from txlog.client import MasterClient, MasterUnreachable, StatusResponse
from txlog.evaluation.dataset_copy import DatasetCopy, load_copy
from txlog.model.entry import KIND_QUADS, KIND_UPDATE, Position
from txlog.model.errors import Conflict, LogAhead, LogDiverged, LogNeedsRestore, NotFound, Unavailable
from txlog.model.hashes import chain_start
from txlog.model.namespaces import decode_namespace_change
from txlog.model.synchronous_entry import KIND_DECISION
from txlog.wire.change_feed import (
    NAMESPACE_KIND,
    FeedEvent,
    FeedPosition,
    format_feed_position,
    parse_feed_position,
)
from txlog.wire.log_page import KIND_NAMES

ENGINE: Final = "oxigraph"
POLL_S: Final = 0.2
"""Between two questions to the masters while nothing arrives."""
PRUNE_STEPS: Final = 100
_EFFECTS: Final = (KIND_UPDATE, KIND_QUADS, KIND_DECISION)


def watch_changes(
    cluster: CliCluster, folder: Path, start: str, until: int | None, *, settled: bool, keep_ms: int
) -> Iterator[FeedEvent]:
    """The events after ``start`` (``now``, or a position), as :class:`~txlog.client.FeedFollower` yields them, except
    that each entry of data and each update is its change set, of kind ``quads``. Ends at the index
    ``until``; None: never. ``keep_ms``: milliseconds that change sets are kept in the folder."""
    store = _open_store(cluster, folder)
    try:
        source = _ChangeSource(store, cluster, settled)
        begin = source.catch_up(until) if start == "now" else source.find(parse_feed_position(start, "from"), until)
        yield FeedEvent(event="position", id=format_feed_position(begin.index, begin.hash))
        yield from source.kept_events(begin, until)
        for number in count(1):
            if until is not None and store.end.index >= until:
                return
            yield from source.next_events(until)
            if number % PRUNE_STEPS == 0:
                store.prune(keep_ms)
    finally:
        store.close()


def _open_store(cluster: CliCluster, folder: Path) -> CaptureStore:
    """The store of an earlier run; else one that begins where the log begins, or with a copy of a worker."""
    status = cluster.ask_first(MasterClient.status)
    start = Position(0, 0, chain_start(bytes.fromhex(status.cluster_id or "")))
    if CaptureStore.exists(folder) or _log_has_all(cluster, status, start):
        return CaptureStore(folder, start)
    copy = copy_worker(cluster)
    return CaptureStore(folder, copy.position, copy.store)


def _log_has_all(cluster: CliCluster, status: StatusResponse, start: Position) -> bool:
    """Whether the log makes the data from nothing: it is not trimmed, and no store was adopted with its content."""
    if any(worker.position is not None and worker.position.base for worker in status.workers):
        return False
    try:
        cluster.ask_first(lambda client: client.log_page(0, start.hash, 1, 1))
    except LogNeedsRestore:
        return False
    return True


def copy_worker(cluster: CliCluster) -> DatasetCopy:
    """The data of the most advanced Oxigraph at one position of the log. Raises :class:`NotFound` where none works, and
    :class:`Conflict` where one is at no position of the log."""
    for data_center in cluster.data_centers:
        with ExitStack() as closing:
            masters = cluster.open_masters(data_center, closing)[1]
            found = choose_most_advanced([w for w in list_workers(masters) if w.engine in ("", ENGINE)])
            if found is None:
                continue
            source = open_source_worker(found, masters, closing)
            rows = closing.enter_context(tempfile.TemporaryFile())
            answer = closing.enter_context(source.transport.stream(source.adapter.dump()))
            if answer.status != 200:
                raise Conflict(f"the worker {found.name} answered {answer.status} when its data was read")
            for chunk in answer.chunks:
                rows.write(chunk)
            rows.seek(0)
            copy, position = load_copy(source.adapter, rows)
            if position is None:
                raise Conflict(f"the worker {found.name} is at no position of the log; try again")
            return copy
    raise NotFound(
        "the log does not hold all data, and no working worker is an Oxigraph: there is no data to begin with"
    )


class _ChangeSource:
    """A capture store with the masters that it follows."""

    def __init__(
        self, store: CaptureStore, cluster: CliCluster, settled: bool, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._store = store
        self._cluster = cluster
        self._settled = settled
        self._settled_index = 0
        self._has_answered = False
        self._sleep = sleep

    def catch_up(self, until: int | None) -> LogEnd:
        """Execute what there is, without events. Returns where that ends."""
        while self._step(until):
            pass
        return self._store.end

    def find(self, place: FeedPosition, until: int | None) -> LogEnd:
        """The position that a user names. Raises :class:`LogAhead` where the log is not as far,
        :class:`LogDiverged` where it has another entry there, and :class:`~txlog.changesets.ChangesGone`."""
        while self._step(until) and self._store.end.index < place.index:
            pass
        if self._store.end.index < place.index:
            raise LogAhead(f"the log ends at index {self._store.end.index}, before {place.index}")
        found = _position_at(self._store, place.index)
        if place.hash not in (None, found.hash):
            raise LogDiverged(f"the log has another entry at index {place.index}: a rejoin gave that branch up")
        return found

    def kept_events(self, begin: LogEnd, until: int | None) -> Iterator[FeedEvent]:
        """The events of what the store has executed already."""
        previous = begin.hash
        for record in self._store.entries(begin.index) if begin.index < self._store.end.index else ():
            if until is not None and record.entry.index > until:
                return
            yield change_event(record.entry, record.change_set, previous, self._settled_index)
            previous = record.entry.hash

    def next_events(self, until: int | None) -> Iterator[FeedEvent]:
        """The events of one step; after a step without any it pauses."""
        events = self._step(until)
        yield from events
        if not events:
            self._sleep(POLL_S)

    def _step(self, until: int | None) -> list[FeedEvent]:
        store, previous = self._store, self._store.end.hash
        try:
            step = self._cluster.ask_first(lambda client: follow_step(store, client, until, settled=self._settled))
        except (LogAhead, MasterUnreachable, Unavailable):
            if not self._has_answered:
                raise
            return []  # masters restart, and one may be behind the one that answered before
        self._has_answered = True
        self._settled_index = max(self._settled_index, step.settled)
        if step.left is not None:
            place = format_feed_position(store.end.index, store.end.hash)
            return [
                FeedEvent(event="rewound", id=place, previous=format_feed_position(step.left.index, step.left.hash))
            ]
        events: list[FeedEvent] = []
        for entry, change in step.changes:
            events.append(change_event(entry, change, previous, self._settled_index))
            previous = entry.hash
        return events


def _position_at(store: CaptureStore, index: int) -> LogEnd:
    """The position after an entry of which the change set is kept, or before the first of them."""
    for place in (store.begin, store.end):
        if place.index == index:
            return place
    record = next(iter(store.entries(index - 1)))
    return LogEnd(index, record.entry.hash, record.chain)


def change_event(entry: CapturedEntry, change: ChangeSet, previous: bytes, settled_index: int) -> FeedEvent:
    """The event of an entry: data and updates alike as quads that it deleted and added. ``previous``: the chain hash
    before it."""
    kind = KIND_NAMES.get(entry.kind, str(entry.kind))
    if entry.kind in _EFFECTS:
        kind = KIND_NAMES[KIND_QUADS]
    elif kind == "skip" and decode_namespace_change(entry.key) is not None:
        kind = NAMESPACE_KIND
    return FeedEvent(
        event="entry",
        id=format_feed_position(entry.index, entry.hash),
        previous=format_feed_position(entry.index - 1, previous),
        index=entry.index,
        txid=entry.txid,
        stamp=entry.stamp,
        kind=kind,
        noop=entry.noop,
        key=entry.key if entry.kind not in _EFFECTS else "",
        settled=entry.index <= settled_index,
        payload=change.encode().decode(),
    )
