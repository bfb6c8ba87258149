"""Reads the settled change sets of one site from its masters, in a thread, and values of keys on request."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final, TypeVar

from txlog.changesets.change_set import ChangeSet, decode_change_set
from txlog.client import FeedFollower, MasterClient, MasterUnreachable
from txlog.client.site_client import LogPosition, SiteClient
from txlog.model.errors import LogAhead, LogDiverged, LogGone, NoChangeSets, PeerFault, TxLogError, Unavailable
from txlog.model.stamp import PEER_STAMP_MAX
from txlog.sites.decisions import Value
from txlog.sites.key_values import KEYS_MAX
from txlog.sites.keys import KeyKind
from txlog.sites.peer_lines import check_lines, check_value
from txlog.sites.site_book import NeedsState, SiteEntry
from txlog.wire.change_feed import LARGE_KIND, FeedEvent, parse_feed_position

T = TypeVar("T")
QUEUED_MAX: Final = 2000
"""Entries that were read and not folded yet."""
QUEUED_BYTES_MAX: Final = 64 << 20
"""Of their change sets. One entry more may be queued, however large it is."""
HEARTBEAT_S: Final = 2
RETRY_S: Final = 1.0
POLL_S: Final = 0.1
_GONE: Final = (LogGone, LogDiverged)


class SiteLogReader:
    """The log of the site ``name`` after ``index`` (and ``value``, its hash there). ``open_master(url)``: a client of
    one of its masters."""

    def __init__(
        self, name: str, urls: Sequence[str], index: int, value: bytes, open_master: Callable[[str], MasterClient]
    ) -> None:
        self.name = name
        self._urls = list(urls)
        self._last = index
        self._events: queue.Queue[FeedEvent] = queue.Queue(QUEUED_MAX)
        self._queued_bytes = 0
        self._bytes_lock = threading.Lock()
        self._stopping = threading.Event()
        self._error: TxLogError | None = None
        self._follower = FeedFollower(
            self._urls,
            f"{index}:{value.hex()}" if value else str(index),
            settled=True,
            patience_s=RETRY_S,
            heartbeat_s=HEARTBEAT_S,
            change_sets=True,
            open_master=open_master,
        )
        self._thread = threading.Thread(target=self._run, name=f"log-of-{name}", daemon=True)
        self._thread.start()

    @property
    def error(self) -> TxLogError | None:
        """Why the log is not read now. A master that answers ends a passing one, with or without an entry."""
        error = self._error
        return None if self._follower.is_answering and not isinstance(error, NeedsState) else error

    def stop(self) -> None:
        """End the thread. It may wait for the next heartbeat of a master first, and is not waited for."""
        self._stopping.set()

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                for event in self._follower:
                    if event.event == "entry" and not self._put(event):
                        return
                    if event.event == "rewound":
                        raise LogDiverged(f"what {self.name} called final was reordered")
            except _GONE as gone:
                self._error = NeedsState(f"{self.name}: {gone}")
                return
            except TxLogError as passing:
                self._error = passing
                self._stopping.wait(RETRY_S)

    def _put(self, event: FeedEvent) -> bool:
        while not self._stopping.is_set():
            if self._queued_bytes >= QUEUED_BYTES_MAX:
                self._stopping.wait(POLL_S)
                continue
            try:
                self._events.put(event, timeout=POLL_S)
            except queue.Full:
                continue
            self._count(len(event.payload))
            return True
        return False

    def _count(self, size: int) -> None:
        with self._bytes_lock:
            self._queued_bytes += size

    def _get(self, wait_s: float) -> SiteEntry:
        event = self._events.get(timeout=wait_s) if wait_s else self._events.get_nowait()
        self._count(-len(event.payload))
        entry = read_entry(self.name, event, self._last + 1)
        self._last = entry.at
        return entry

    def take(self, wait_s: float) -> list[SiteEntry]:
        """The entries that were read, in order; waits for the first one. Raises :class:`NeedsState`, and
        :class:`PeerFault` for what is no next entry."""
        found: list[SiteEntry] = []
        try:
            found.append(self._get(wait_s))
            while len(found) < QUEUED_MAX:
                found.append(self._get(0.0))
        except queue.Empty:
            pass
        error = self.error
        if not found and isinstance(error, NeedsState):
            raise error
        if not found and not self._thread.is_alive():
            raise Unavailable("ReaderEnded", f"the log of {self.name} is not read any more; it is read again")
        return found


def read_entry(name: str, event: FeedEvent, index: int) -> SiteEntry:
    """The entry in an event. ``index``: of the next one. Raises :class:`PeerFault` for anything else."""
    try:
        change = ChangeSet()
        if event.kind == LARGE_KIND:
            change = ChangeSet(graphs=tuple(event.graphs) or ("",))
        elif event.kind == "quads":
            change = decode_change_set(event.payload.encode())
        at = parse_feed_position(event.id, "id")
    except (ValueError, TxLogError) as wrong:
        raise PeerFault(name, "Malformed", f"entry {event.index}: {wrong}") from None
    if at.hash is None or not at.index == event.index == index:
        raise PeerFault(name, "Malformed", f"entry {event.index} at {event.id[:80]} in place of entry {index}")
    if not 0 <= event.stamp <= PEER_STAMP_MAX:
        raise PeerFault(name, "Malformed", f"entry {event.index} has the stamp {event.stamp}")
    check_lines(name, (*change.deletes, *change.adds))
    return SiteEntry(event.index, at.hash, event.stamp, change)


class SiteMasters:
    """Asks the masters of one site: the one that answered last first."""

    def __init__(self, name: str, urls: Sequence[str], open_master: Callable[[str], SiteClient]) -> None:
        self.name = name
        self._masters = [open_master(url) for url in urls]
        self._current = 0

    def close(self) -> None:
        """Close the connections."""
        for each in self._masters:
            each.close()

    def ask(self, call: Callable[[SiteClient], T]) -> T:
        """What a master answers. Raises the error of the last one where none answers, or is far enough."""
        last: TxLogError | None = None
        for _ in self._masters:
            try:
                return call(self._masters[self._current])
            except (MasterUnreachable, Unavailable, LogAhead, NoChangeSets) as passed:
                last = passed
                self._current = (self._current + 1) % len(self._masters)
        assert last is not None
        raise last

    def _ask_values(self, position: LogPosition, kind: KeyKind, keys: Sequence[str]) -> list[list[str]]:
        return self.ask(lambda master: master.key_values(position, kind, keys))

    def values(self, position: LogPosition, kind: KeyKind, keys: Collection[bytes]) -> Mapping[bytes, Value]:
        """The values of keys after a settled entry. Raises :class:`NeedsState` where they are not known any more, and
        :class:`PeerFault` for lines that are none of a key."""
        found: dict[bytes, Value] = {}
        wanted = list(keys)
        for begin in range(0, len(wanted), KEYS_MAX):
            part = wanted[begin : begin + KEYS_MAX]
            texts = [key.decode() for key in part]
            try:
                values = self._ask_values(position, kind, texts)
            except _GONE as gone:
                raise NeedsState(f"{self.name}: {gone}") from None
            for key, value in zip(part, values, strict=True):
                lines = [line.encode() for line in value]
                check_value(self.name, key, lines, kind)
                found[key] = frozenset(lines)
        return found
