"""``POST /txlog/rehearsals``: the result of a rehearsed recovery of this data centre. Masters exchange the reports and
keep them in a file beside their journal, so that an alert on the age of the last good one outlives a restart."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Coroutine
from typing import Any, Final

import msgspec

from txlog.http.router import Request, Response, Route, json_response, read_json
from txlog.model.decode_errors import DECODE_ERRORS
from txlog.model.errors import BadInput
from txlog.runtime.master_context import MasterContext
from txlog.server.admin.kept_file import keep
from txlog.server.admin.report_notices import ReportNotices
from txlog.wire.rehearsal_report import RehearsalReport

TOPIC: Final = "rehearsals"
FILE: Final = "rehearsals.json"
BODY_MAX: Final = 64 << 10
INTERVAL_S: Final = 10.0
_AHEAD_S: Final = 300.0
"""How far the clock of a rehearsal may be ahead of this master's."""
_EXPECTED_BODY: Final = '{"at": SECONDS, "ok": true, ...}'


class KnownRehearsals(msgspec.Struct):
    """Of one data centre. ``expected_since``: when a master was first configured with rehearsals, in seconds since
    1970; 0 where none are. ``due_at``: when the last good one is too old; None where none are expected."""

    data_center: str
    last: RehearsalReport | None = None
    good: RehearsalReport | None = None
    expected_since: float = 0.0
    due_at: float | None = None

    def take(self, report: RehearsalReport) -> bool:
        """Whether it is newer than what is known."""
        is_last = self.last is None or report.at > self.last.at
        is_good = report.ok and (self.good is None or report.at > self.good.at)
        if is_last:
            self.last = report
        if is_good:
            self.good = report
        return is_last or is_good


class RehearsalReports:
    """The reports of rehearsals. ``send(peer, message)`` sends a message to another master."""

    def __init__(self, site: MasterContext, send: Callable[[str, bytes], None]) -> None:
        self._context = site
        self._notices = ReportNotices(site, send, TOPIC, INTERVAL_S, 0.0, self._next_notice)
        self._path = site.config.journal_folder / FILE
        self._known = {one.data_center: one for one in self._read()}
        archive = site.config.archive
        max_age_ms = archive.rehearsal_max_age_ms if archive is not None else None
        self._max_age_s = max_age_ms / 1000 if max_age_ms is not None else None
        self._expect()

    def routes(self) -> list[Route]:
        """The paths of this handler."""
        return [Route("POST", "/txlog/rehearsals", self.report)]

    def tasks(self) -> dict[str, Coroutine[Any, Any, None]]:
        """The tasks that run until the process ends, by name."""
        return {"rehearsal-notices": self._notices.run()}

    async def report(self, request: Request, _: object) -> Response:
        """Takes the report of a rehearsal of this data centre. Answers ``{"known"}``, how many good ones of all data
        centres are known."""
        report = await read_json(request, RehearsalReport, _EXPECTED_BODY, BODY_MAX)
        if not math.isfinite(report.at) or not 0 < report.at <= time.time() + _AHEAD_S:
            raise BadInput(f"at is {report.at}: expected seconds since 1970, and no later than now: check the clocks")
        if self._own.take(report):
            self._expect()
            self._write()
            self._notices.send_soon()
        if not report.ok:
            self._context.log.warning("RehearsalFailed", error=report.error, phase=report.phase, message=report.message)
        return json_response({"known": sum(one.good is not None for one in self._known.values())})

    def on_notice(self, peer: str, topic: str, body: bytes) -> None:
        """Handles a notice from another master."""
        if topic != TOPIC:
            return
        try:
            notice = msgspec.json.decode(body, type=KnownRehearsals)
        except DECODE_ERRORS:
            return  # a newer version sent it
        name = notice.data_center
        if not self._notices.is_for_cluster(name):
            return
        known = self._known.setdefault(name, KnownRehearsals(name))
        changed = [known.take(report) for report in (notice.last, notice.good) if report is not None]
        if name != self._context.config.data_center:
            known.due_at = notice.due_at
        else:
            self._expect()
        if any(changed):
            self._write()

    def _next_notice(self) -> KnownRehearsals | None:
        return self._known.get(self._context.config.data_center)

    # Shown

    def known(self) -> list[KnownRehearsals]:
        """Of every data centre that rehearses, or is to."""
        return [one for _, one in sorted(self._known.items())]

    def describe(self) -> list[dict[str, Any]]:
        """``rehearsals`` of the section ``archive`` in the status: the last report of each data centre, with
        ``lastGoodAt`` and ``dueAt``, seconds since 1970 or None."""
        return [
            {
                "dataCenter": one.data_center,
                "lastGoodAt": one.good.at if one.good is not None else None,
                "dueAt": one.due_at,
                "last": msgspec.to_builtins(one.last),
            }
            for one in self.known()
        ]

    @property
    def _own(self) -> KnownRehearsals:
        name = self._context.config.data_center
        return self._known.setdefault(name, KnownRehearsals(name))

    def _expect(self) -> None:
        """When the next good one is due: counted from the last good one, else since any was expected here."""
        if self._max_age_s is None:
            return
        own = self._own
        if not own.expected_since:
            own.expected_since = time.time()
            self._write()
        own.due_at = max(own.expected_since, own.good.at if own.good is not None else 0.0) + self._max_age_s

    # The file

    def _read(self) -> list[KnownRehearsals]:
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=list[KnownRehearsals])
        except (OSError, *DECODE_ERRORS):
            return []  # the next report, or another master, says it again

    def _write(self) -> None:
        keep(self._path, msgspec.json.encode(self.known()), self._context.log, "RehearsalsNotKept")
