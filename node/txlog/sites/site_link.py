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

import msgspec

from txlog.client.credentials import Credentials
from txlog.client.site_client import LogPosition, SiteClient
from txlog.config.process_config import SiteLinkConfig
from txlog.model.errors import (
    BadInput,
    Conflict,
    Forbidden,
    PeerFault,
    TooLarge,
    TxLogError,
    Unauthorized,
    Unavailable,
)
from txlog.model.stamp import stamp_ms
from txlog.sites.batches import Batch, cut_batch
from txlog.sites.decisions import Plan, Value, finish_plan, plan_seal, plan_step
from txlog.sites.keys import SITES_GRAPH, KeyKind
from txlog.sites.link_agreement import is_agreed
from txlog.sites.link_errors import KeysDiffer, NamesDiffer, OtherLink
from txlog.sites.link_lag import LagMeter, SourceState
from txlog.sites.link_record import RecordNotRead, ValueAt, encode_record
from txlog.sites.link_report import LinkReport, LinkState
from txlog.sites.link_seal import LinkSeal
from txlog.sites.link_switches import LinkSwitches
from txlog.sites.link_update import build_update
from txlog.sites.log_reader import SiteLogReader, SiteMasters
from txlog.sites.site_book import NeedsState, SiteBook, SiteEntry
from txlog.sites.state_copy import CopiedSite
from txlog.sites.state_transfer import StateTransfer
from txlog.sites.submitted_entry import EntryOutcome, SubmittedEntry, VoidEntries
from txlog.sites.transfer_anchors import TransferAnchors
from txlog.sites.transfer_steps import is_torn
from txlog.sites.version_table import LinkIdentity, UnknownVersionTable, VersionTable
from txlog.telemetry.event_log import EventLog

RETRY_S: Final = 1.0
NEEDS_STATE_RETRY_S: Final = 3.0
"""A person may order a transfer, here or at the other site."""
STOPPED_RETRY_S: Final = 15.0
"""After an error that needs a person."""
POLL_S: Final = 0.05
REPORT_S: Final = 0.5
WRITE_WAIT_S: Final = 10.0
COUNT_WAIT_S: Final = 30.0
"""For an entry of this link to be read back; then it is decided again."""
VOID_PAUSE_S: Final = 2.0
"""After an entry without effect."""
_STATES: Final[dict[type[TxLogError], LinkState]] = {
    NeedsState: LinkState.NEEDS_STATE,
    RecordNotRead: LinkState.REFUSED,
    OtherLink: LinkState.OTHER_CLUSTER,
    NamesDiffer: LinkState.NAMES_DIFFER,
    KeysDiffer: LinkState.KEYS_DIFFER,
    UnknownVersionTable: LinkState.REFUSED,
    PeerFault: LinkState.REFUSED,
    BadInput: LinkState.REFUSED,
    Unauthorized: LinkState.REFUSED,
    Forbidden: LinkState.REFUSED,
    Conflict: LinkState.REFUSED,
    TooLarge: LinkState.REFUSED,
}
_RETRY_S: Final = {LinkState.UNREACHABLE: RETRY_S, LinkState.NEEDS_STATE: NEEDS_STATE_RETRY_S}


def state_of(error: TxLogError) -> LinkState:
    """The state of a link that cannot go on for this reason. What passes by itself is ``Unreachable``."""
    return next((state for kind, state in _STATES.items() if isinstance(error, kind)), LinkState.UNREACHABLE)


class SiteLink:
    """The link of ``config``. ``publish(report)`` is called when something has changed."""

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
        self._switches = LinkSwitches(self._here, self._there, config.offline, clock)
        self._anchors = TransferAnchors(config, self._here, self._switches, log)
        self._seal: LinkSeal | None = None
        self._is_offline = False
        self._lag = LagMeter(now_ms())
        self._source = SourceState(0, None, 0, False)
        self._keys_max = config.keys_max
        self._imported_at = self._reported_at = clock() - 1e6
        self._written: SubmittedEntry | None = None
        self._voids = VoidEntries()
        self._pause_until = 0.0
        self._is_agreed = False
        self._planned_keys = 0
        self._identity: LinkIdentity | None = None
        self._transfer = StateTransfer(config.folder, self._kind)
        self.report = LinkReport(config.site, config.other.name, LinkState.STARTING, key=config.key)

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
            if self._is_still_offline():
                return RETRY_S
            identity = self._identity = self._read_identity()
            if self.report.cluster != identity.cluster or self.report.other_cluster != identity.other_cluster:
                self._report(LinkState.STARTING)  # the other site compares these
            self._is_agreed = is_agreed(identity, self._there.ask(SiteClient.site_links))
            table = VersionTable(self.table_path, identity)
            try:
                self._anchors.place(table)
                self._link(table, stop)
            except NeedsState:
                if not self._anchors.await_transfer(table):
                    raise
                self._written = None
            finally:
                self._transfer.close()
                table.close()
        except (OSError, sqlite3.Error) as broken:
            self._log.warning_rate_limited("LinkFailed", type(broken).__name__, error=str(broken))
            self._report(LinkState.REFUSED, error=broken)
            return STOPPED_RETRY_S
        except TxLogError as why:
            state = state_of(why)
            if state is LinkState.UNREACHABLE:
                self._log.warning_rate_limited("LinkWaits", why.name, error=str(why))
            else:
                self._log.warning_rate_limited("LinkStopped", why.name, state=state, error=str(why))
            self._report(state, error=why)
            return _RETRY_S.get(state, STOPPED_RETRY_S)
        return RETRY_S

    def _is_still_offline(self) -> bool:
        """Whether there is nothing to do but to wait until the link is online. Then no log is read. Raises
        :class:`Unavailable` where it is not known."""
        self._switches.poll()
        if not self._switches.is_known:
            raise Unavailable("SwitchesUnknown", "a site does not answer whether this link is offline")
        self._is_offline = self._is_offline and bool(self._switches.offline_by)
        if self._is_offline:
            unread = max(0, self._switches.index - self.report.read)
            self._source = self._source._replace(unread=unread, is_answering=self._switches.is_answering)
            self._send(msgspec.structs.replace(self.report, state=LinkState.OFFLINE, error=""))
        return self._is_offline

    def _is_sealed(self, mine: SiteBook) -> bool:
        """Whether the link was taken offline, and nothing that it has written takes effect any more."""
        if not self._switches.offline_by:
            self._seal = None
            return False
        if self._seal is None:
            self._seal = LinkSeal(self._here.ask(SiteClient.status).stable.index)
            self._written = None  # It is not written again; the seal makes it void.
            self._transfer.close()
        return self._seal.is_closed(mine)

    def _read_identity(self) -> LinkIdentity:
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
        try:
            while not stop.is_set():
                self._switches.poll(asks_there=other.error is None)
                self._read(table, own, other)
                if is_torn(mine, theirs):
                    raise NeedsState(f"{theirs.site} has begun again after its state was taken: take it once more")
                self._is_offline = self._is_sealed(mine)
                self._report_progress(mine, theirs, own, other)
                if self._is_offline:
                    self._log.info("LinkOffline", site=config.other.name, by=self._switches.offline_by)
                    return
                if self._may_write(mine):
                    self._advance(mine, theirs)
        finally:
            own.stop()
            other.stop()

    def _read(self, table: VersionTable, own: SiteLogReader, other: SiteLogReader) -> None:
        """Fold what was read of both logs. Waits a moment where there is nothing. Where too many changes of the other
        site wait, those that were read are imported first."""
        entries = own.take(0.0)
        wait_s = 0.0 if entries else POLL_S
        if self._is_full(table.theirs) and self._can_cut(table):
            others: list[SiteEntry] = []
            time.sleep(wait_s)
        else:
            others = other.take(wait_s)
        for book, found in ((table.mine, entries), (table.theirs, others)):
            for entry in found:
                book.apply(entry)
        if entries or others:
            table.save()
        for book in (table.mine, table.theirs):
            if self._is_full(book) and not self._can_cut(table):
                raise NeedsState(f"more than {self._config.rows_max} changes of {book.site} wait for the other site")

    @staticmethod
    def _can_cut(table: VersionTable) -> bool:
        return cut_batch(table.theirs, table.mine.cursor, 1) is not None

    def _is_full(self, book: SiteBook) -> bool:
        return book.row_count > self._config.rows_max

    def _may_write(self, mine: SiteBook) -> bool:
        """Whether the next entry may be written now: the last one is not open, and the other site lists this one."""
        now = self._clock()
        if self._written is not None:
            record = self._written.expected if mine.awaits_anchor else mine.record
            outcome = self._written.outcome(record, mine.index, now)
            if outcome is EntryOutcome.OPEN:
                return False
            if outcome is not EntryOutcome.UNSEEN:
                self._transfer.settle(outcome, is_own=mine.record == self._written.made)
            if outcome is EntryOutcome.VOID and not mine.awaits_anchor:
                self._pause_until = now + VOID_PAUSE_S * self._voids.add(mine.touched)
            if outcome is not EntryOutcome.UNSEEN:
                self._written = None
        if now < self._pause_until or self._voids.is_blocked(mine.touched):
            return False
        if not self._is_agreed and mine.link_index == 0:
            # Before the first entry both manifests have to agree: what was imported by other names stays.
            self._pause_until = now + RETRY_S
            assert self._identity is not None
            self._is_agreed = is_agreed(self._identity, self._there.ask(SiteClient.site_links))
        return self._is_agreed or mine.link_index > 0

    def _advance(self, mine: SiteBook, theirs: SiteBook) -> None:
        """Write the next entry of the link, if there is one. One that was not read back is written once more as it was,
        under the same key: so a split of this site does not collect many of them."""
        try:
            written = self._written or self._compose(mine, theirs)
            if written is None:
                return
            self._written = written
            written.until = 0.0  # without an answer it is written again at once: the key makes that harmless
            repository, text, key = self._config.repository, written.text, written.key
            result = self._here.ask(lambda master: master.write_entry(repository, text, key, WRITE_WAIT_S))
        except TooLarge:
            self._written = None
            self._transfer.settle(None, is_own=False)
            self._split(theirs.site)
            return
        except (BadInput, Conflict):
            self._written = None  # it was not taken
            raise
        written.index = result.position.index if result.position is not None else None
        written.until = self._clock() + COUNT_WAIT_S

    def _compose(self, mine: SiteBook, theirs: SiteBook) -> SubmittedEntry | None:
        plan = plan_seal(mine) if self._seal is not None else self._next_plan(mine, theirs)
        if plan is None:
            return None
        self._planned_keys = len(plan.record.keys)
        entry = finish_plan(plan, mine.site, lambda at, keys: self._values(mine, theirs, at, keys))
        nonce = secrets.token_hex(8)
        made = encode_record(plan.record, nonce).name
        return SubmittedEntry(build_update(entry, nonce).encode(), f"site-{mine.other}-{nonce}", plan.expected, made)

    def _next_plan(self, mine: SiteBook, theirs: SiteBook) -> Plan | None:
        switches = self._switches
        if mine.index >= switches.index_here and theirs.index >= switches.index:
            anchor = self._anchors.plan(mine, theirs)
            if anchor is not None:
                return anchor
        if mine.awaits_anchor or theirs.awaits_anchor:
            return None
        if not mine.is_taking:
            return plan_step(mine, self._next_batch(mine, theirs), self._keys_max)
        if mine.needs or mine.record is None:
            return plan_step(mine, None, self._keys_max)
        if not switches.take_at:
            return None
        return self._transfer.next_plan(mine, theirs, *self._copied_sites(mine, theirs), self._keys_max)

    def _copied_sites(self, mine: SiteBook, theirs: SiteBook) -> tuple[CopiedSite, CopiedSite]:
        config, known = self._config, self._identity
        assert known is not None
        return (
            CopiedSite(mine.site, known.cluster, mine.anchor, lambda: [SiteClient(url) for url in config.masters]),
            CopiedSite(
                theirs.site,
                known.other_cluster,
                theirs.anchor,
                lambda: [self._open_other(url) for url in config.other.masters],
            ),
        )

    def _next_batch(self, mine: SiteBook, theirs: SiteBook) -> Batch | None:
        if (self._clock() - self._imported_at) * 1000 < self._config.lag_ms:
            return None
        batch = cut_batch(theirs, mine.cursor, self._keys_max)
        if batch is None:
            return None
        ahead_ms = stamp_ms(batch.clock) - self._now_ms()
        if ahead_ms > self._config.max_clock_skew_ms:
            self._log.warning_rate_limited("LinkClockSkew", batch.site, aheadMs=ahead_ms)
            self._report(LinkState.CLOCK_SKEW)
            return None
        self._imported_at = self._clock()
        return batch

    def _split(self, source: str) -> None:
        """The masters refuse an entry or values of this size: try with fewer keys."""
        if self._keys_max == 1:
            raise NeedsState(f"one entry of {source} is larger than a transaction may be here")
        self._keys_max = max(1, min(self._keys_max, self._planned_keys) // 2)

    def _values(self, mine: SiteBook, theirs: SiteBook, at: ValueAt, keys: Collection[bytes]) -> Mapping[bytes, Value]:
        assert self._identity is not None
        if at.site == self._config.site:
            masters, book, cluster = self._here, mine, self._identity.cluster
        else:
            copied = self._transfer.values(at, keys) if mine.is_taking else None
            if copied is not None:
                return copied
            masters, book, cluster = self._there, theirs, self._identity.other_cluster
        value = book.hash.hex() if at.at == book.index else ""
        return masters.values(LogPosition(cluster, at.at, value), self._kind, keys)

    # -- reports

    def _report_progress(self, mine: SiteBook, theirs: SiteBook, own: SiteLogReader, other: SiteLogReader) -> None:
        if self._clock() - self._reported_at < REPORT_S and not self._is_offline:
            return
        self._reported_at = self._clock()
        state, error = self._state_now(mine, theirs, own.error or other.error)
        if state is LinkState.ONLINE and self.report.state == LinkState.CLOCK_SKEW and self._has_work(mine, theirs):
            return
        waiting = theirs.local_entries(mine.cursor)
        self._source = SourceState(
            waiting.number,
            None if waiting.oldest is None else stamp_ms(waiting.oldest),
            max(0, self._switches.index - theirs.index),
            other.error is None and self._switches.is_answering,
        )
        report = LinkReport(
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
            ignored=mine.ignored,
            taken_at=mine.anchor if mine.is_taking else 0,
            anchor=mine.anchor,
            transferred=self._transfer.done,
            transfer_keys=self._transfer.keys,
        )
        self._send(report)

    def _state_now(
        self, mine: SiteBook, theirs: SiteBook, failed: TxLogError | None
    ) -> tuple[LinkState, TxLogError | None]:
        if self._seal is not None:
            return (LinkState.OFFLINE, None) if self._is_offline else (LinkState.GOING_OFFLINE, failed)
        if failed is not None:
            return state_of(failed), failed
        if self._voids.is_blocked(mine.touched):
            why = RecordNotRead(
                f"entries of this link have no effect: the graph {SITES_GRAPH} holds what the link did not write; "
                f"after DROP GRAPH <{SITES_GRAPH}> the link begins its record again"
            )
            return LinkState.REFUSED, why
        if not self._is_agreed and mine.link_index == 0:
            return LinkState.STARTING, Unavailable(
                "NotListed", f"{mine.other} does not report its link from {mine.site} yet"
            )
        return self._anchors.state(mine, theirs)

    def _send(self, report: LinkReport) -> None:
        """Report it, with the lag, and with what the other site compares."""
        known, lag = self._identity, self._lag.measure(self._source, self._now_ms())
        report = msgspec.structs.replace(
            report,
            lag_entries=lag.entries,
            lag_seconds=round(lag.seconds, 1),
            offline_by=self._switches.offline_by,
        )
        if known is not None:
            report = msgspec.structs.replace(report, cluster=known.cluster, other_cluster=known.other_cluster)
        self.report = msgspec.structs.replace(report, key=self._config.key)
        self._publish(self.report)

    @staticmethod
    def _has_work(mine: SiteBook, theirs: SiteBook) -> bool:
        return any(True for _ in theirs.changed_keys(mine.cursor))

    def _report(self, state: LinkState, error: Exception | None = None) -> None:
        """A state in which nothing is imported: the figures are the last ones."""
        text = "" if error is None else f"{type(error).__name__}: {error}"[:500]
        self._source = self._source._replace(is_answering=False)
        self._send(msgspec.structs.replace(self.report, state=state, error=text))
