"""``POST /txlog/changesets``: the process that makes the change sets of this data centre says how far it is. Masters
pass reports on to one another, and each measures the delay itself, so it also grows while that process is dead."""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final

import msgspec

from txlog.http.router import Request, Response, Route, json_response, read_body
from txlog.model.decode_errors import DECODE_ERRORS
from txlog.model.errors import BadInput
from txlog.model.hashes import HASH_BYTES
from txlog.runtime.master_context import MasterContext
from txlog.runtime.watermark import Watermark
from txlog.server.admin.archive_reports import is_on_log
from txlog.server.admin.report_notices import ReportNotices
from txlog.server.admin.stable_delay import StableDelay
from txlog.wire.archive_report import ArchivePlace
from txlog.wire.change_set_report import ChangeSetReport, ChangeSetState

TOPIC: Final = "changesets"
BODY_MAX: Final = 8 << 10
INTERVAL_S: Final = 1.0
NOTICE_DELAY_S: Final = 0.2
"""Other data centres need the reports for their status and for skips only."""
SILENT_AFTER_S: Final = 30.0
"""A report comes every 5 s, also when there is nothing to do."""
BEHIND_AFTER_S: Final = 30.0
_EXPECTED_BODY: Final = '{"executed": {"index": N, "hash": "32 hexadecimal digits"}, "state": "Following", ...}'


class ChangeSetNotice(msgspec.Struct):
    """The notice between masters: the last report that the sender received itself, and its age in seconds."""

    data_center: str
    age_s: float
    report: ChangeSetReport


class ChangeSetStatus(msgspec.Struct, frozen=True, rename="camel"):
    """The change sets of one data centre. ``state``: as reported, or ``Unknown`` before the first report, ``Silent``
    when one is overdue, ``Behind``. ``executed``: the last entry that is on this log. ``kept_from``: change sets are
    kept above this index. ``delay_seconds``: the age of the oldest stable entry without a change set; None until a
    report came, or is overdue. ``reported_at``: seconds since 1970."""

    data_center: str
    state: str
    executed: ArchivePlace | None
    kept_from: int
    entries_behind: int
    delay_seconds: float | None
    bytes: int
    rebuilds: int
    reported_at: float | None
    error: str


class _KnownChangeSets:
    """Those of one data centre. ``received_at``: monotonic seconds of the last report, None before the first."""

    def __init__(self) -> None:
        self.received_at: float | None = None
        self.report: ChangeSetReport | None = None

    def take(self, report: ChangeSetReport, received_at: float) -> None:
        if self.received_at is None or received_at > self.received_at:
            self.received_at, self.report = received_at, report


class ChangeSetReports:
    """The reports about change sets. ``send(peer, message)`` sends a message to another master."""

    def __init__(self, site: MasterContext, send: Callable[[str, bytes], None]) -> None:
        self._context = site
        self._began_at = time.monotonic()
        self._delay = StableDelay(site)
        self._known: dict[str, _KnownChangeSets] = {}
        self._received: tuple[ChangeSetReport, float] | None = None
        self._notices = ReportNotices(site, send, TOPIC, INTERVAL_S, NOTICE_DELAY_S, self._next_notice)
        self.captured = Watermark()
        """The last entry of this log that has a change set in this data centre."""
        if site.config.change_sets is not None:
            self._known[site.config.data_center] = _KnownChangeSets()

    def routes(self) -> list[Route]:
        """The paths of this handler."""
        return [Route("POST", "/txlog/changesets", self.report)]

    def tasks(self) -> dict[str, Coroutine[Any, Any, None]]:
        """The tasks that run until the process ends, by name."""
        return {"change-set-notices": self._notices.run()}

    async def report(self, request: Request, _: Mapping[str, str]) -> Response:
        """Takes the report about this data centre's change sets. Answers ``{"index"}``: the last entry that is on this
        log."""
        try:
            report = msgspec.json.decode(await read_body(request, BODY_MAX), type=ChangeSetReport)
            place = report.executed
            size = len(bytes.fromhex(place.hash)) if place is not None else HASH_BYTES
        except DECODE_ERRORS as wrong:
            raise BadInput(f"{_EXPECTED_BODY}: {wrong}") from None
        if size != HASH_BYTES or (place is not None and place.index < 0) or report.begin < 0:
            raise BadInput(f"a place that no log has: expected {_EXPECTED_BODY}")
        self._received = (report, time.monotonic())
        self._known.setdefault(self._context.config.data_center, _KnownChangeSets()).take(*self._received)
        self._move_watermark()
        self._notices.send_soon()
        return json_response({"index": self.captured.value})

    # Notices

    def on_notice(self, topic: str, body: bytes) -> None:
        """Handles a notice from another master."""
        if topic != TOPIC:
            return
        try:
            notice = msgspec.json.decode(body, type=ChangeSetNotice)
        except DECODE_ERRORS:
            return  # a newer version sent it
        if not self._notices.is_for_cluster(notice.data_center):
            return
        known = self._known.setdefault(notice.data_center, _KnownChangeSets())
        known.take(notice.report, time.monotonic() - max(0.0, notice.age_s))
        self._move_watermark()

    def _next_notice(self) -> ChangeSetNotice | None:
        self._delay.note()
        self._move_watermark()
        if self._received is None:
            return None
        report, at = self._received
        return ChangeSetNotice(self._context.config.data_center, time.monotonic() - at, report)

    def _move_watermark(self) -> None:
        """A store that has not gone back yet after a rejoin is at no entry of this log."""
        known = self._known.get(self._context.config.data_center)
        place = self._executed(known) if known is not None else None
        index = min(place.index, self._context.durability.stable.value) if place is not None else 0
        if index != self.captured.value:
            self.captured.move_to(index)

    def _executed(self, known: _KnownChangeSets) -> ArchivePlace | None:
        """The place of the store, where it is on this log. Below the log's start there is no hash to compare."""
        place = known.report.executed if known.report is not None else None
        agreement = self._context.status.log_state
        if place is None or agreement is None:
            return None
        return place if place.index < agreement.log_index.start or is_on_log(agreement, place) else None

    # What others ask

    def has_executed(self, index: int) -> bool:
        """Whether a store of any data centre may have executed the entry at this index."""
        reports = (known.report for known in self._known.values())
        return any(each is not None and each.executed is not None and each.executed.index >= index for each in reports)

    def describe(self) -> list[dict[str, Any]] | None:
        """The section ``changeSets`` of the status; None in a cluster without change sets."""
        found: list[dict[str, Any]] = msgspec.to_builtins(self.statuses())
        return found or None

    def statuses(self) -> list[ChangeSetStatus]:
        """Of every data centre of which this master expects change sets, or has a report."""
        return [self._status_of(name, known) for name, known in sorted(self._known.items())]

    def _status_of(self, data_center: str, known: _KnownChangeSets) -> ChangeSetStatus:
        now = time.monotonic()
        silent_s = now - (self._began_at if known.received_at is None else known.received_at)
        executed = self._executed(known)
        index = executed.index if executed is not None else 0
        delay_s = None
        if known.received_at is not None or silent_s > SILENT_AFTER_S:
            delay_s = round(self._delay.age_above(index), 3)
        report = known.report
        state = report.state if report is not None else "Unknown"
        if silent_s > SILENT_AFTER_S:
            state = "Silent"
        elif state == ChangeSetState.FOLLOWING and delay_s is not None and delay_s > BEHIND_AFTER_S:
            state = "Behind"
        return ChangeSetStatus(
            data_center=data_center,
            state=state,
            executed=executed,
            kept_from=report.begin if report is not None else 0,
            entries_behind=max(0, self._context.durability.stable.value - index),
            delay_seconds=delay_s,
            bytes=report.bytes if report is not None else 0,
            rebuilds=report.rebuilds if report is not None else 0,
            reported_at=None if known.received_at is None else round(time.time() - silent_s, 3),
            error=report.error if report is not None else "",
        )
