"""The link from another site: reads both logs, keeps their books, and writes what is missing here.

One thread runs :meth:`SiteLink.run`. Whatever ends in between is done again: the version table says up to where both
logs were read, and an entry counts only after the record before it.
"""

from __future__ import annotations

import secrets
import sqlite3
import threading
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Final

from txlog.client.credentials import Credentials
from txlog.client.site_client import SiteClient
from txlog.config.process_config import SiteLinkConfig
from txlog.model.errors import TooLarge, TxLogError, Unavailable
from txlog.model.stamp import stamp_ms
from txlog.sites.batches import Batch, cut_batch
from txlog.sites.decisions import Plan, Value, finish_plan, plan_step
from txlog.sites.keys import KeyKind
from txlog.sites.link_record import RecordNotRead, ValueAt
from txlog.sites.link_report import LinkReport, LinkState
from txlog.sites.link_update import build_update
from txlog.sites.log_reader import SiteLogReader, SiteMasters
from txlog.sites.site_book import NeedsState, SiteBook
from txlog.sites.version_table import LinkIdentity, OtherLink, UnknownVersionTable, VersionTable
from txlog.telemetry.event_log import EventLog

RETRY_S: Final = 1.0
STOPPED_RETRY_S: Final = 15.0
"""After an error that needs a person."""
POLL_S: Final = 0.05
REPORT_S: Final = 0.5
WRITE_WAIT_S: Final = 10.0
COUNT_WAIT_S: Final = 30.0
"""For an entry of this link to be read back; then it is decided again."""
_STATES: Final[dict[type[TxLogError], LinkState]] = {
    NeedsState: LinkState.NEEDS_STATE,
    RecordNotRead: LinkState.REFUSED,
    OtherLink: LinkState.OTHER_CLUSTER,
    UnknownVersionTable: LinkState.REFUSED,
}


class SiteLink:
    """The link of ``config``. ``publish(report)`` is called when it has something new to say."""

    def __init__(
        self,
        config: SiteLinkConfig,
        log: EventLog,
        publish: Callable[[LinkReport], None] = lambda _: None,
        clock: Callable[[], float] = time.monotonic,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._config = config
        self._kind = KeyKind(config.key)
        self._log = log
        self._publish = publish
        self._clock = clock
        self._now_ms = now_ms
        token = config.other.token_file
        remote = Credentials(token)
        self._open_other: Callable[[str], SiteClient] = lambda url: SiteClient(url, credentials=remote)
        self._here = SiteMasters(config.site, config.masters, SiteClient)
        self._there = SiteMasters(config.other.name, config.other.masters, self._open_other)
        self._keys_max = config.keys_max
        self._imported_at = self._reported_at = clock() - 1e6
        self.report = LinkReport(config.site, config.other.name, LinkState.STARTING)

    @property
    def table_path(self) -> Path:
        """The file of the version table."""
        return self._config.folder / "versions.sqlite"

    def run(self, stop: threading.Event) -> None:
        """Works until ``stop`` is set."""
        try:
            while not stop.is_set():
                wait_s = self._attempt(stop)
                stop.wait(wait_s)
        finally:
            self._here.close()
            self._there.close()

    def _attempt(self, stop: threading.Event) -> float:
        """Links until something is in the way. Returns the seconds to wait."""
        try:
            table = VersionTable(self.table_path, self._identity())
            try:
                self._link(table, stop)
            finally:
                table.close()
        except tuple(_STATES) as stopped:
            state = next(state for kind, state in _STATES.items() if isinstance(stopped, kind))
            self._log.warning_rate_limited("LinkStopped", stopped.name, state=state, error=str(stopped))
            self._tell(state, error=stopped)
            return STOPPED_RETRY_S
        except (OSError, sqlite3.Error) as broken:
            self._log.warning_rate_limited("LinkFailed", type(broken).__name__, error=str(broken))
            self._tell(LinkState.REFUSED, error=broken)
            return STOPPED_RETRY_S
        except TxLogError as passing:
            self._log.warning_rate_limited("LinkWaits", passing.name, error=str(passing))
            self._tell(LinkState.UNREACHABLE, error=passing)
        return RETRY_S

    def _identity(self) -> LinkIdentity:
        """Which link this is: the ids of the clusters show whether one was founded again."""
        config = self._config
        here = self._here.ask(SiteClient.status).cluster_id
        there = self._there.ask(SiteClient.status).cluster_id
        if not here or not there:
            raise Unavailable("NotBootstrapped", "a cluster of this link is not bootstrapped yet")
        if here == there:
            raise OtherLink(f"{config.site} and {config.other.name} are one cluster")
        return LinkIdentity(config.site, config.other.name, here, there, config.key)

    def _link(self, table: VersionTable, stop: threading.Event) -> None:
        config, mine, theirs = self._config, table.mine, table.theirs
        own = SiteLogReader(config.site, config.masters, mine.index, mine.hash, SiteClient)
        other = SiteLogReader(config.other.name, config.other.masters, theirs.index, theirs.hash, self._open_other)
        self._log.info("LinkBegins", site=config.other.name, index=theirs.index, cursor=mine.cursor, new=table.is_new)
        waiting: _Submitted | None = None
        try:
            while not stop.is_set():
                self._read(table, own, other)
                self._tell_progress(mine, theirs, own, other)
                if waiting is not None and waiting.is_open(mine, self._clock()):
                    continue
                waiting = self._advance(mine, theirs)
        finally:
            own.stop()
            other.stop()

    def _read(self, table: VersionTable, own: SiteLogReader, other: SiteLogReader) -> None:
        """Fold what was read of both logs. Waits a moment where there is nothing."""
        entries = own.take(0.0)
        others = other.take(0.0 if entries else POLL_S)
        for book, found in ((table.mine, entries), (table.theirs, others)):
            for entry in found:
                book.apply(entry)
            if book.row_count > self._config.rows_max:
                raise NeedsState(f"more than {self._config.rows_max} changes of {book.site} wait for the other site")
        if entries or others:
            table.save()

    def _advance(self, mine: SiteBook, theirs: SiteBook) -> _Submitted | None:
        """Write the next entry of the link; None where there is nothing to write yet."""
        batch = self._next_batch(mine, theirs)
        plan = plan_step(mine, batch, self._keys_max)
        if plan is None:
            return None
        entry = finish_plan(plan, mine.site, self._values)
        nonce = secrets.token_hex(8)
        text = build_update(entry, nonce).encode()
        try:
            written = self._here.ask(
                lambda master: master.write_entry(
                    self._config.repository, text, f"site-{mine.other}-{nonce}", WRITE_WAIT_S
                )
            )
        except TooLarge:
            self._split(plan)
            return None
        index = written.position.index if written.position is not None else None
        return _Submitted(plan.expected, index, self._clock() + COUNT_WAIT_S)

    def _next_batch(self, mine: SiteBook, theirs: SiteBook) -> Batch | None:
        if (self._clock() - self._imported_at) * 1000 < self._config.lag_ms:
            return None
        batch = cut_batch(theirs, mine.cursor, self._keys_max)
        if batch is None:
            return None
        ahead_ms = stamp_ms(batch.clock) - self._now_ms()
        if ahead_ms > self._config.max_clock_skew_ms:
            self._log.warning_rate_limited("LinkClockSkew", batch.site, aheadMs=ahead_ms)
            self._tell(LinkState.CLOCK_SKEW)
            return None
        self._imported_at = self._clock()
        return batch

    def _split(self, plan: Plan) -> None:
        """The masters refuse an entry of this size: try with fewer keys."""
        if self._keys_max == 1:
            raise NeedsState(f"one entry of {plan.site} is larger than a transaction may be here")
        self._keys_max = max(1, min(self._keys_max, len(plan.keys)) // 2)

    def _values(self, at: ValueAt, keys: Collection[bytes]) -> Mapping[bytes, Value]:
        masters = self._here if at.site == self._config.site else self._there
        return masters.values(at.at, self._kind, keys)

    # -- reports

    def _tell_progress(self, mine: SiteBook, theirs: SiteBook, own: SiteLogReader, other: SiteLogReader) -> None:
        if self._clock() - self._reported_at < REPORT_S:
            return
        self._reported_at = self._clock()
        error = own.error or other.error
        state = LinkState.ONLINE if error is None else LinkState.UNREACHABLE
        if error is None and self.report.state == LinkState.CLOCK_SKEW and self._has_work(mine, theirs):
            return
        self.report = LinkReport(
            mine.site,
            mine.other,
            state,
            cursor=mine.cursor,
            read=theirs.index,
            own_read=mine.index,
            keys_waiting=sum(len(keys) for _, keys in theirs.changed_keys(mine.cursor)),
            corrections_waiting=len(mine.needs),
            entries=mine.number,
            conflicts=mine.conflicts,
            error="" if error is None else f"{error.name}: {error}"[:500],
        )
        self._publish(self.report)

    @staticmethod
    def _has_work(mine: SiteBook, theirs: SiteBook) -> bool:
        return any(True for _ in theirs.changed_keys(mine.cursor))

    def _tell(self, state: LinkState, error: Exception | None = None) -> None:
        text = "" if error is None else f"{type(error).__name__}: {error}"[:500]
        self.report = LinkReport(self._config.site, self._config.other.name, state, error=text)
        self._publish(self.report)


class _Submitted:
    """An entry that was written: open until it was read back. ``index``: its place in the log, None: not known."""

    def __init__(self, expected: bytes | None, index: int | None, until: float) -> None:
        self._expected = expected
        self._index = index
        self._until = until

    def is_open(self, mine: SiteBook, now: float) -> bool:
        """Whether it may still take effect."""
        is_read = self._index is not None and mine.index >= self._index
        return mine.record == self._expected and not is_read and now < self._until
