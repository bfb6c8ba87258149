"""The last report of each link of this data centre, and its metrics."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec

from txlog.model.errors import TooLarge
from txlog.server.admin.metric_families import counters, gauges
from txlog.sites.link_report import LinkReport

SILENT_AFTER_S: Final = 30.0
REPORT_EVERY_S: Final = 10.0
"""A report comes at least every 5 s. One that is older counts as time in which nothing was imported."""
LINKS_MAX: Final = 64
_SILENT: Final = "Silent"
_LABELS: Final = ["site", "other"]


class SiteReports:
    """The last report of each link. ``clock``: seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._known: dict[tuple[str, str], tuple[LinkReport, float]] = {}

    def take(self, report: LinkReport) -> int:
        """Keeps the last report of each link. Returns how many links are known. Raises :class:`TooLarge` for one link
        too many."""
        if (report.site, report.other) not in self._known and len(self._known) >= LINKS_MAX:
            raise TooLarge(f"{LINKS_MAX} links are known already")
        self._known[report.site, report.other] = (report, self._clock())
        return len(self._known)

    def other_sites(self) -> set[str]:
        """The sites from which links import here."""
        return {other for _, other in self._known}

    def describe(self) -> list[dict[str, Any]]:
        """Of each link its last report, and ``reportedSecondsAgo``. ``state`` is ``Silent`` where the last one is older
        than :data:`SILENT_AFTER_S` seconds. ``lagSeconds`` grows while none comes."""
        return [
            msgspec.to_builtins(report) | {"reportedSecondsAgo": round(ago_s, 1)} for report, ago_s in self._current()
        ]

    def collect(self) -> Iterable[Any]:
        """The metric families of the links; nothing where there is none."""
        known = [report for report, _ in self._current()]
        if not known:
            return
        of_link = {(each.site, each.other): each for each in known}
        text = "for how long the oldest change of the other site has waited, or it is not known that none waits"
        yield gauges("site_lag_seconds", text, _LABELS, {link: each.lag_seconds for link, each in of_link.items()})
        text = "of the other site's log that are not imported"
        yield gauges("site_lag_entries", text, _LABELS, {link: each.lag_entries for link, each in of_link.items()})
        states = {(*link, each.state): 1.0 for link, each in of_link.items()}
        yield gauges("site_state", "1 for the state that a link is in", [*_LABELS, "state"], states)
        text = "keys of which one write lost, since the link began"
        yield counters("site_conflicts", text, _LABELS, {link: each.conflicts for link, each in of_link.items()})
        text = "of links in the log, since the link began"
        yield counters("site_entries", text, _LABELS, {link: each.entries for link, each in of_link.items()})

    def _current(self) -> list[tuple[LinkReport, float]]:
        """Each report as it is now, and its age in seconds."""
        found: list[tuple[LinkReport, float]] = []
        for _, (report, at) in sorted(self._known.items()):
            ago_s = self._clock() - at
            if ago_s > REPORT_EVERY_S:
                report = msgspec.structs.replace(report, lag_seconds=round(report.lag_seconds + ago_s, 1))
            if ago_s > SILENT_AFTER_S:
                report = msgspec.structs.replace(report, state=_SILENT)
            found.append((report, ago_s))
        return found
