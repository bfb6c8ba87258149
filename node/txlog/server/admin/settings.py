"""The preferences of this master, and their change at run time: ``GET`` and ``PATCH /txlog/settings``.

A time-out concerns one master only; it can change at any moment. The split recovery is fixed for each view by all its
members. It can therefore change only in a ``Joined`` view, which is then installed again with the same members.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from txlog.config import live_settings
from txlog.config.live_settings import EffectiveSettings
from txlog.config.preferences import KEYS, Preferences, format_preferences, property_name, read_changes
from txlog.config.process_config import NodeConfig
from txlog.http.router import Request, Response, Route, json_response, read_json
from txlog.model.errors import BadInput, Conflict, Unavailable
from txlog.protocol.events import ProtocolSettings
from txlog.runtime.master_context import MasterContext
from txlog.server.admin.views import format_view_number

BODY_MAX = 16 << 10
_EXPECTED_BODY = 'expected {"maxPeerLag": "30s", ...}; null for what the manifest says'


class SettingsHandler:
    """``settings_of(configuration)`` returns the part of a configuration that the core receives."""

    def __init__(
        self, site: MasterContext, found: EffectiveSettings, settings_of: Callable[[NodeConfig], ProtocolSettings]
    ) -> None:
        self._context = site
        self._live = found
        self._core_settings = settings_of
        self._lock = asyncio.Lock()
        if found.superseded:
            site.log.info("LiveSettingsDropped", keys=found.superseded, why="the manifest says something else now")

    @property
    def preferences(self) -> Preferences:
        """The preferences in force at this master."""
        return self._live.preferences

    def routes(self) -> list[Route]:
        """The paths of this handler."""
        return [Route("GET", "/txlog/settings", self.get), Route("PATCH", "/txlog/settings", self.patch)]

    async def get(self, request: Request, _: Mapping[str, str]) -> Response:
        """See :meth:`describe`."""
        return json_response(self.describe())

    async def patch(self, request: Request, _: Mapping[str, str]) -> Response:
        """Changes some settings durably; with ``?check=true`` it only checks them. Answers as ``GET`` does, with
        ``with_changes``. 400 for an unknown setting, a wrong value, or a value that does not fit the others. 409 while
        the split recovery cannot be changed."""
        asked = request.query.get("check", "false")
        if asked not in ("true", "false"):
            raise BadInput(f"check={asked[:20]}: expected true or false")
        wanted = await read_json(request, object, _EXPECTED_BODY, BODY_MAX)
        if not isinstance(wanted, dict):
            raise BadInput(_EXPECTED_BODY)
        return json_response(await self.change(read_changes(wanted), check=asked == "true"))

    async def change(self, changes: dict[str, Any], *, check: bool = False) -> dict[str, Any]:
        """See :meth:`patch`; ``changes`` is in the form that :func:`read_changes` returns."""
        async with self._lock:
            new = live_settings.with_changes(self._context.config, self._live, changes, round(time.time(), 3))
            before, after = format_preferences(self._live.preferences), format_preferences(new.preferences)
            different = [key for key in KEYS if before[key] != after[key]]
            if "splitRecovery" in different:
                self._check_recovery_change(new.preferences.split_recovery)
            if not check and (different or new.settings != self._live.settings):
                await self._save_and_apply(new)
                self._context.log.info("SettingsChanged", **{key: after[key] for key in different})
        return {"changed": different, **self.describe()}

    def _check_recovery_change(self, wanted: str) -> None:
        """Refuses the change unless the view is whole: the view relies on its split recovery, so no member may be
        partitioned or about to leave. A cluster that has rules for graphs would pass over ``None``."""
        now = self._context.status.configuration
        if wanted == "None" and now is not None and now.graphs:
            what = "graphs with a quorum need workers that go back to one order"
            raise Conflict(
                f"splitRecovery cannot be None: {what}; first: txlog configuration --graphs with an empty list"
            )
        if wanted == "None" and self._context.config.change_sets is not None:
            what = "change sets are what the log says, and workers would execute something else"
            raise Conflict(f"splitRecovery cannot be None: {what}; first: spec.changeSets.enabled: false")
        state = self._context.state
        if state != "Joined":
            who = f"{self._context.config.node} is {state}"
            raise Conflict(f"splitRecovery cannot be changed now: {who}; wait until every master is Joined")
        unordered = self._context.registry.known.unordered()
        if unordered and self._live.preferences.split_recovery == "None":
            what = f"{', '.join(unordered)} executed in another order than the log's"
            raise Conflict(f"splitRecovery cannot be changed now: {what}; first: txlog worker rebuild NAME")

    async def _save_and_apply(self, new: EffectiveSettings) -> None:
        config = self._context.config
        try:
            await asyncio.to_thread(live_settings.save_settings, config, new)
        except (OSError, BadInput) as wrong:
            why = wrong.strerror if isinstance(wrong, OSError) else wrong
            raise Unavailable("NotKept", f"{live_settings.settings_path(config)}: {why}; nothing was changed") from None
        self._live = new
        loop = self._context.loop
        settings = self._core_settings(live_settings.with_preferences(config, new.preferences))
        loop.adopt(replace(settings, synchronous=loop.status.settings.synchronous))

    def describe(self) -> dict[str, Any]:
        """``{"node", "dataCenter", "state", "view": {"number", "splitRecovery", "prefers", "renewing"}, "settings":
        [{"key", "property", "value", "source": "manifest"|"live"|"properties"|"default", "manifest", "since"}]}``. The
        last two sources exist only at a master without a manifest; its ``manifest`` is TxLog's default.
        ``view.splitRecovery`` is the one in force: the safest that the members of the view prefer. ``renewing``: that
        view does not yet contain this master's current preference."""
        site = self._context
        manifest, now = live_settings.manifest_values(site.config), format_preferences(self._live.preferences)
        sources = ("live", "manifest") if site.config.properties_file is None else ("properties", "default")
        settings = []
        for key in KEYS:
            mine = self._live.settings.get(key)
            settings.append(
                {
                    "key": key,
                    "property": property_name(key),
                    "value": now[key],
                    "source": sources[mine is None],
                    "manifest": manifest[key],
                    "since": mine.at if mine is not None else None,
                }
            )
        view = site.status.view
        return {
            "node": site.config.node,
            "dataCenter": site.config.data_center,
            "state": site.state,
            "view": {
                "number": format_view_number(view.number),
                "splitRecovery": view.strategy,
                "prefers": {m.node: view.preferred_by(m.node) for m in view.members},
                "renewing": view.preferred_by(site.config.node) != now["splitRecovery"],
            }
            if view is not None
            else None,
            "settings": settings,
        }
