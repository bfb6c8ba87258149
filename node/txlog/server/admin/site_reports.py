"""``/txlog/sites``: how far the links of this data centre are, as their processes report it to its masters."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from txlog.http.router import Request, Response, Route, json_response, read_body
from txlog.model.decode_errors import DECODE_ERRORS
from txlog.model.errors import BadInput, TooLarge
from txlog.sites.link_report import LinkReport

PATH: Final = "/txlog/sites"
BODY_MAX: Final = 16 << 10
SILENT_AFTER_S: Final = 30.0
LINKS_MAX: Final = 64
_SILENT: Final = "Silent"


class SiteReports:
    """The last report of each link. ``clock``: seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._known: dict[tuple[str, str], tuple[LinkReport, float]] = {}

    def routes(self) -> list[Route]:
        """The paths of this handler."""
        return [Route("GET", PATH, self.get), Route("POST", PATH, self.report)]

    async def report(self, request: Request, _: Mapping[str, str]) -> Response:
        """Takes the report of a link. Answers ``{"known"}``: how many links are known."""
        try:
            report = msgspec.json.decode(await read_body(request, BODY_MAX), type=LinkReport)
        except DECODE_ERRORS as wrong:
            raise BadInput(f'expected {{"site", "other", "state", ...}}: {wrong}') from None
        self.take(report)
        return json_response({"known": len(self._known)})

    def take(self, report: LinkReport) -> None:
        """Keeps the last report of each link. Raises :class:`TooLarge` for one link too many."""
        if (report.site, report.other) not in self._known and len(self._known) >= LINKS_MAX:
            raise TooLarge(f"{LINKS_MAX} links are known already")
        self._known[report.site, report.other] = (report, self._clock())

    async def get(self, _request: Request, _: Mapping[str, str]) -> Response:
        """``{"links"}``: of each, its last report, and ``reportedSecondsAgo``. ``state`` is ``Silent`` where the last
        one is older than :data:`SILENT_AFTER_S` seconds."""
        return json_response({"links": self.describe()})

    def describe(self) -> list[dict[str, Any]]:
        """The links of the answer to :meth:`get`."""
        return [self._describe(*each) for _, each in sorted(self._known.items())]

    def _describe(self, report: LinkReport, at: float) -> dict[str, Any]:
        found: dict[str, Any] = msgspec.to_builtins(report)
        ago_s = self._clock() - at
        if ago_s > SILENT_AFTER_S:
            found["state"] = _SILENT
        return found | {"reportedSecondsAgo": round(ago_s, 1)}
