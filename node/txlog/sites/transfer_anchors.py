"""The anchors of a state transfer at one site: when they are written, and where a table begins with them."""

from __future__ import annotations

from txlog.config.process_config import SiteLinkConfig
from txlog.model.errors import TxLogError
from txlog.sites.decisions import Plan
from txlog.sites.link_record import StepKind
from txlog.sites.link_report import LinkState
from txlog.sites.link_switches import LinkSwitches
from txlog.sites.log_reader import SiteMasters
from txlog.sites.site_book import NeedsState, SiteBook
from txlog.sites.stored_record import StoredRecord, read_stored_record
from txlog.sites.transfer_steps import anchor_start, base_of_record, is_reset_due, last_anchor, plan_reset, plan_take
from txlog.sites.version_table import VersionTable
from txlog.telemetry.event_log import EventLog


class TransferAnchors:
    """Of the link of ``config``. ``here``: the masters of this site. ``switches``: as they were polled last."""

    def __init__(self, config: SiteLinkConfig, here: SiteMasters, switches: LinkSwitches, log: EventLog) -> None:
        self._config = config
        self._here = here
        self._switches = switches
        self._log = log

    def _stored(self) -> StoredRecord:
        config = self._config
        return self._here.ask(lambda master: read_stored_record(master, config.repository, config.other.name))

    def _is_ordered(self, mine: SiteBook, stored: StoredRecord) -> bool:
        """Whether a person has ordered a transfer that has not begun. The order is final, so a ``take`` that follows it
        is decided after it."""
        begun = max(mine.anchor, last_anchor(stored.record))
        return begun < self._switches.take_at <= self._switches.index_here

    def place(self, table: VersionTable) -> None:
        """Let a new table begin with the last anchors, where there are some."""
        record = self._stored().record if table.is_new else None
        start = anchor_start(record)
        if record is None or not start:
            return
        table.mine.await_anchor(start)
        table.theirs.await_anchor(record.seen if record.step is StepKind.TAKE else max(0, self._switches.anchor - 1))
        table.save()

    def await_transfer(self, table: VersionTable) -> bool:
        """Let both books begin again with the anchors that a transfer makes; False where none is under way."""
        switches = self._switches
        if self._is_ordered(table.mine, self._stored()):
            start = switches.index
        elif switches.taken_at:
            start = switches.taken_at - 1
        else:
            return False
        self._log.info("LinkAwaitsState", site=self._config.other.name, taken=switches.taken_at)
        table.mine.await_anchor(switches.index_here)
        table.theirs.await_anchor(start)
        table.save()
        return True

    def plan(self, mine: SiteBook, theirs: SiteBook) -> Plan | None:
        """The beginning of a transfer, where this site is to begin it, or to answer it. Both logs are read."""
        is_ordered = self._switches.take_at > 0
        is_answer = is_reset_due(mine, theirs) and not mine.needs and not (mine.is_taking and is_ordered)
        if not is_answer and self._switches.take_at <= mine.anchor:
            return None
        stored = self._stored()
        base = base_of_record(stored.name, stored.record, mine.index)
        if is_answer:
            return plan_reset(mine, base, theirs.anchor)
        return plan_take(mine, base, theirs.index) if self._is_ordered(mine, stored) else None

    def state(self, mine: SiteBook, theirs: SiteBook) -> tuple[LinkState, TxLogError | None]:
        """``Online`` where there is no transfer."""
        is_ordered = self._switches.take_at > (0 if mine.is_taking else mine.anchor)
        if mine.is_taking and theirs.is_taking and is_ordered:
            return LinkState.NEEDS_STATE, NeedsState(
                f"{mine.site} and {mine.other} each take the state of the other one: take one order back with "
                "txlog site take-state --cancel"
            )
        if theirs.is_taking:
            return LinkState.TRANSFERRING, None
        if mine.awaits_anchor or theirs.awaits_anchor or mine.is_taking:
            if is_ordered or self._switches.taken_at:
                return LinkState.TRANSFERRING, None
            return LinkState.NEEDS_STATE, NeedsState(
                f"txlog site take-state {mine.other} copies the state of {mine.other}"
            )
        return LinkState.ONLINE, None
