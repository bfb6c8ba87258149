"""``txlog watch --updates quads``: the log as what each entry really deleted and added, from a capture store.

The command has a capture store of its own in a folder of this machine. A new one begins where the log begins, or with a
copy of a worker where the log is trimmed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Final

from txlog.capture.first_data import copy_worker, log_has_all, log_start
from txlog.changesets import CapturedEntry, CaptureStore, ChangeSet, follow_step
from txlog.changesets.change_log import LogEnd
from txlog.cli.cli_cluster import CliCluster
from txlog.client import MasterClient, MasterUnreachable
from txlog.model.errors import LogAhead, LogDiverged, NotFound, Unavailable
from txlog.wire.change_feed import FeedEvent, FeedPosition, format_feed_position, parse_feed_position
from txlog.wire.change_page import PageChange, change_event
from txlog.wire.log_page import LogPage

POLL_S: Final = 0.2
"""Between two questions to the masters while nothing arrives."""
PRUNE_STEPS: Final = 100


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

    def read_page(after: int, value: bytes) -> LogPage:
        return cluster.ask_first(lambda client: client.log_page(after, value, 1, 1))

    if CaptureStore.exists(folder) or log_has_all(status, read_page):
        return CaptureStore(folder, log_start(status))
    folder.mkdir(parents=True, exist_ok=True)
    missing: NotFound | None = None
    for data_center in cluster.data_centers:
        with ExitStack() as closing:
            masters = cluster.open_masters(data_center, closing)[1]
            try:
                first = closing.enter_context(copy_worker(masters, folder))
            except NotFound as none:
                missing = none
                continue
            return CaptureStore(folder, first.position, first.quads)
    assert missing is not None, "a cluster has a data centre"
    raise missing


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
            yield entry_event(record.entry, record.change_set, previous, self._settled_index)
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
            events.append(entry_event(entry, change, previous, self._settled_index))
            previous = entry.hash
        return events


def _position_at(store: CaptureStore, index: int) -> LogEnd:
    """The position after an entry of which the change set is kept, or before the first of them."""
    for place in (store.begin, store.end):
        if place.index == index:
            return place
    record = next(iter(store.entries(index - 1)))
    return LogEnd(index, record.entry.hash, record.chain)


def entry_event(entry: CapturedEntry, change: ChangeSet, previous: bytes, settled_index: int) -> FeedEvent:
    """The event of an entry, as masters send it. ``previous``: the chain hash before it."""
    graphs = list(change.graphs)
    payload = b"" if graphs else change.encode()
    shown = PageChange(
        entry.index, entry.hash, entry.txid, entry.stamp, entry.kind, entry.noop, entry.key, payload, graphs
    )
    return change_event(shown, previous, settled=entry.index <= settled_index)
