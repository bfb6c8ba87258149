"""Reads the settled change sets of one site from its masters, in a thread, and values of keys on request."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final, TypeVar

from txlog.changesets.change_set import ChangeSet, decode_change_set
from txlog.client import FeedFollower, MasterClient, MasterUnreachable
from txlog.client.site_client import SiteClient
from txlog.model.errors import LogAhead, LogDiverged, LogGone, NoChangeSets, PeerFault, TxLogError, Unavailable
from txlog.sites.decisions import Value
from txlog.sites.key_values import KEYS_MAX
from txlog.sites.keys import KeyKind
from txlog.sites.site_book import NeedsState, SiteEntry
from txlog.wire.change_feed import LARGE_KIND, FeedEvent, parse_feed_position

T = TypeVar("T")
QUEUED_MAX: Final = 2000
"""Entries that were read and not folded yet."""
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
        self.error: TxLogError | None = None
        self._urls = list(urls)
        self._start = f"{index}:{value.hex()}" if index else "0"
        self._open_master = open_master
        self._events: queue.Queue[FeedEvent] = queue.Queue(QUEUED_MAX)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"log-of-{name}", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread. It may wait for the next heartbeat of a master first, and is not waited for."""
        self._stopping.set()

    def _run(self) -> None:
        follower = FeedFollower(
            self._urls,
            self._start,
            settled=True,
            patience_s=RETRY_S,
            heartbeat_s=HEARTBEAT_S,
            change_sets=True,
            open_master=self._open_master,
        )
        while not self._stopping.is_set():
            try:
                for event in follower:
                    self.error = None
                    if event.event == "entry" and not self._put(event):
                        return
                    if event.event == "rewound":
                        raise LogDiverged(f"what {self.name} called final was reordered")
            except _GONE as gone:
                self.error = NeedsState(f"{self.name}: {gone}")
                return
            except TxLogError as passing:
                self.error = passing
                self._stopping.wait(RETRY_S)

    def _put(self, event: FeedEvent) -> bool:
        while not self._stopping.is_set():
            try:
                self._events.put(event, timeout=POLL_S)
            except queue.Full:
                continue
            return True
        return False

    def take(self, wait_s: float) -> list[SiteEntry]:
        """The entries that were read, in order; waits for the first one. Raises :class:`NeedsState`."""
        found: list[SiteEntry] = []
        try:
            found.append(
                _entry_of(self.name, self._events.get(timeout=wait_s) if wait_s else self._events.get_nowait())
            )
            while len(found) < QUEUED_MAX:
                found.append(_entry_of(self.name, self._events.get_nowait()))
        except queue.Empty:
            pass
        if not found and isinstance(self.error, NeedsState):
            raise self.error
        if not found and not self._thread.is_alive():
            raise Unavailable("ReaderEnded", f"the log of {self.name} is not read any more; it is read again")
        return found


def _entry_of(name: str, event: FeedEvent) -> SiteEntry:
    try:
        change = ChangeSet()
        if event.kind == LARGE_KIND:
            change = ChangeSet(graphs=tuple(event.graphs) or ("",))
        elif event.kind == "quads":
            change = decode_change_set(event.payload.encode())
        value = parse_feed_position(event.id, "id").hash
    except (ValueError, TxLogError) as wrong:
        raise PeerFault(name, "Malformed", f"entry {event.index}: {wrong}") from None
    assert value is not None, "an id of a feed has a hash"
    return SiteEntry(event.index, value, event.stamp, change)


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

    def values(self, index: int, kind: KeyKind, keys: Collection[bytes]) -> Mapping[bytes, Value]:
        """The values of keys after a settled entry. Raises :class:`NeedsState` where they are not known any more."""
        found: dict[bytes, Value] = {}
        wanted = list(keys)
        for begin in range(0, len(wanted), KEYS_MAX):
            part = wanted[begin : begin + KEYS_MAX]
            texts = [key.decode() for key in part]
            try:
                values = self.ask(lambda master, texts=texts: master.key_values(index, kind, texts))  # type: ignore[misc]
            except _GONE as gone:
                raise NeedsState(f"{self.name}: {gone}") from None
            for key, lines in zip(part, values, strict=True):
                found[key] = frozenset(line.encode() for line in lines)
        return found
