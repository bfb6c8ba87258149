"""``/txlog/sites``: how far the links of this data centre are, as their processes report it, and whether they are
offline. A switch is an entry of the log that no worker executes: all masters know it, and it outlives each of them."""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from txlog.http.router import Request, Response, Route, json_response, read_json
from txlog.model.errors import BadInput, NotFound
from txlog.model.site_switch import (
    NO_SWITCH,
    SITE_NAME,
    SiteSwitch,
    StateOrder,
    SwitchOrigin,
    SwitchState,
    apply_site_switches,
    encode_site_switch,
    encode_state_order,
)
from txlog.runtime.master_context import MasterContext
from txlog.server.admin.site_reports import SiteReports
from txlog.server.admin.skipped_entry import append_skipped_entry
from txlog.sites.link_report import LinkReport

PATH: Final = "/txlog/sites"
_EXPECTED_REPORT: Final = 'expected {"site", "other", "state", ...}'
_EXPECTED: Final = 'expected {"offline": true}, {"offline": false}, {"takeState": true} or {"takeState": false}'
REPORT_BYTES_MAX: Final = 16 << 10
SWITCH_BYTES_MAX: Final = 4096


class SiteSwitchRequest(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    """A switch, or an order: one of the two is given. ``by_manifest``: the manifest has this value now, and had another
    one. ``take_state``: this cluster takes the state of the site, or no longer does."""

    offline: bool | None = None
    by_manifest: bool = False
    take_state: bool | None = None


class SiteLinkHandler:
    """Takes reports of links, and switches links. ``reports``: those that were taken."""

    def __init__(self, site: MasterContext, reports: SiteReports) -> None:
        self._context = site
        self._reports = reports

    def routes(self) -> list[Route]:
        """The paths of this handler."""
        return [
            Route("GET", PATH, self.get),
            Route("POST", PATH, self.report),
            Route("PATCH", f"{PATH}/{{name}}", self.change),
        ]

    async def report(self, request: Request, _: Mapping[str, str]) -> Response:
        """Takes the report of a link. Answers ``{"known"}``: how many links are known."""
        report = await read_json(request, LinkReport, _EXPECTED_REPORT, REPORT_BYTES_MAX)
        return json_response({"known": self._reports.take(report)})

    async def get(self, _request: Request, _: Mapping[str, str]) -> Response:
        """``{"links", "switches", "index"}``: the reports (:meth:`SiteReports.describe`), the last switch of each site
        that had one, and the last final entry of the log."""
        log = self._context.status.log_state
        switches = [
            {**_describe(name, state), "manifestOffline": state.manifest_offline}
            for name, state in sorted(self._switches().items())
        ]
        index = 0 if log is None else log.final_index
        return json_response({"links": self._reports.describe(), "switches": switches, "index": index})

    async def change(self, request: Request, parameters: Mapping[str, str]) -> Response:
        """Appends a switch, unless the last one of this site has the same value. The answer comes when it is stable;
        202 without ``index`` when it is not stable within the write time-out: it may become so."""
        name = parameters["name"]
        wanted = await read_json(request, SiteSwitchRequest, _EXPECTED, SWITCH_BYTES_MAX)
        if (wanted.offline is None) == (wanted.take_state is None) or (wanted.by_manifest and wanted.offline is None):
            raise BadInput(f"{_EXPECTED}: exactly one of the two")
        if re.fullmatch(SITE_NAME, name) is None:
            raise BadInput(f"{name[:80]!r} is no name of a site")
        linked = self._reports.other_sites()
        if not wanted.by_manifest and name not in linked:
            known = ", ".join(sorted(linked)) or "none"
            raise NotFound(f"no link from {name} was reported to this master; known: {known}")
        before = self._switches().get(name, NO_SWITCH)
        if wanted.take_state is not None:
            return await self._order(name, before, takes=wanted.take_state)
        assert wanted.offline is not None, "one of the two"
        if wanted.offline == (before.manifest_offline if wanted.by_manifest else before.is_offline):
            return json_response(_describe(name, before))
        origin = SwitchOrigin.MANIFEST if wanted.by_manifest else SwitchOrigin.OPERATOR
        switch = SiteSwitch(name, wanted.offline, origin)
        await append_skipped_entry(self._context, encode_site_switch(switch, secrets.token_hex(12)))
        found = self._switches().get(name, before)
        if found.at == before.at:
            return json_response({"site": name, "offline": wanted.offline, "index": None}, 202)
        self._context.log.info("SiteSwitched", site=name, offline=found.is_offline, index=found.at)
        return json_response(_describe(name, found))

    async def _order(self, name: str, before: SwitchState, *, takes: bool) -> Response:
        """Appends an order. To take the state once more is another order."""
        if not takes and not before.take_at:
            return json_response(_describe(name, before))
        order = StateOrder(name, takes)
        await append_skipped_entry(self._context, encode_state_order(order, secrets.token_hex(12)))
        found = self._switches().get(name, before)
        if found.take_at == before.take_at:
            return json_response({"site": name, "takeState": takes, "index": None}, 202)
        self._context.log.info("SiteStateOrdered", site=name, takes=takes, index=found.take_at)
        return json_response(_describe(name, found))

    def _switches(self) -> dict[str, SwitchState]:
        """By site, of stable switches."""
        log = self._context.status.log_state
        if log is None:
            return {}
        stable = self._context.durability.stable.value
        return apply_site_switches((index, key) for key, index in log.skips.items() if index <= stable)


def _describe(name: str, state: SwitchState) -> dict[str, Any]:
    return {"site": name, "offline": state.is_offline, "index": state.at, "takeAt": state.take_at}
