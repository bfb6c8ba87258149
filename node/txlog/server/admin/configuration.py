"""The configuration of the cluster: this process shows it, changes it by entries of the log, and follows it (rule
20)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import msgspec

from txlog.config.cluster_properties_writer import write_masters
from txlog.config.durability_specs import to_rule_spec
from txlog.config.units import format_duration, parse_duration
from txlog.http.router import Request, Response, Route, json_response, read_json
from txlog.model.configuration import CHANGE_CHARACTERS_MAX, LEAVING, MEMBER, MUTED, Configuration, Master
from txlog.model.durability import Durability
from txlog.model.errors import (
    BadInput,
    Conflict,
    Fatal,
    NoQuorumLeft,
    NotAllHere,
    NotFound,
    Refused,
    Unavailable,
)
from txlog.model.synchronous import GraphRule, check_rules, parse_rule
from txlog.runtime.master_context import MasterContext
from txlog.server.admin.quorum_loss import find_quorum_loss
from txlog.wire.protocol_level import LEVEL_SYNCHRONOUS

POLL_S: Final = 0.1
"""Poll interval for the configuration in force. The core has no event for it, and it changes a few times a year."""
BODY_MAX: Final = 16 << 10
OPTIONS_BODY_MAX: Final = 256 << 10
"""Of options, which may have 64 rules with IRIs of 500 characters, each as an escape of JSON."""
_EXPECTED_MASTER = 'expected {"node": "uk-3", "dataCenter": "uk", "weight": 1, "urls": ["http://host:7300"]}'
_EXPECTED_CHANGE = 'expected {"weight": 2} or {"muted": true}'
_EXPECTED_OPTIONS = (
    'expected {"splitMode": "Continue" or "Majority", "keyRetention": "24h", "graphs": [{"match": "http://…/*"}]}'
)
RETENTION_MS_MIN: Final = 1000
MODES: Final = ("Continue", "Majority")


class AddMasterRequest(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    """A new master; ``urls``: where other masters reach it."""

    node: str
    data_center: str
    weight: int = 1
    urls: list[str] = []


class ChangeMasterRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Changes of one master; None leaves the value."""

    weight: int | None = None
    muted: bool | None = None


class GraphRuleRequest(msgspec.Struct, forbid_unknown_fields=True):
    """A rule about graphs, as in a manifest."""

    match: str
    quorum: str = "N/2+1"
    timeout: str = "30s"

    def parse(self) -> GraphRule:
        """The rule. :class:`BadInput` names the part that is wrong."""
        try:
            timeout_ms = parse_duration(self.timeout)
        except ValueError as wrong:
            raise BadInput(f"{self.match[:80]}: timeout: {wrong}") from None
        return parse_rule(self.match, self.quorum, timeout_ms)


class ClusterOptionsRequest(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    """Changes of the cluster's options; None leaves the value."""

    split_mode: str | None = None
    key_retention: str | None = None
    graphs: list[GraphRuleRequest] | None = None


class ConfigurationHandler:
    """``/txlog/configuration`` and ``/txlog/peers``. When a configuration takes effect, the handler calls
    ``follow(configuration)`` and updates a ``cluster.properties`` file."""

    def __init__(self, site: MasterContext, follow: Callable[[Configuration], None]) -> None:
        self._context = site
        self._on_change = follow
        self._last_seen: Configuration | None = None

    def routes(self) -> list[Route]:
        """The paths of this handler."""
        return [
            Route("GET", "/txlog/configuration", self.get),
            Route("PATCH", "/txlog/configuration", self.patch),
            Route("POST", "/txlog/peers", self.add),
            Route("PATCH", "/txlog/peers/{node}", self.change),
            Route("DELETE", "/txlog/peers/{node}", self.remove),
        ]

    def tasks(self) -> dict[str, Any]:
        """The tasks that run until the process ends, by name."""
        return {"configuration": self._watch_configuration()}

    async def _watch_configuration(self) -> None:
        loop, status = self._context.loop, self._context.status
        while True:
            now = status.configuration
            if now is not None and now is not self._last_seen:
                self._last_seen = now
                self._context.log.info("Configuration", **_to_dict(now))
                self._on_change(now)
                if now.graphs and not status.settings.synchronous:
                    loop.adopt(replace(status.settings, synchronous=True))
                await self._write_properties(now)
            if status.is_removed and loop.has_left:
                node = self._context.config.node
                what = f"{node} was taken out of the cluster for good, all that it had is in the log"
                loop.end(Fatal("Removed", what))
            await asyncio.sleep(POLL_S)

    async def _write_properties(self, now: Configuration) -> None:
        config = self._context.config
        if config.properties_file is None:
            return
        arguments = (config.properties_file, config.node, self._context.repository, now)
        try:
            if await asyncio.to_thread(write_masters, *arguments):
                self._context.log.info("PropertiesWritten", file=str(config.properties_file))
        except (OSError, BadInput) as wrong:
            self._context.log.error("PropertiesNotWritten", file=str(config.properties_file), message=str(wrong))

    # The configuration in force

    async def get(self, request: Request, _: Mapping[str, str]) -> Response:
        """See :meth:`describe`; 409 before the cluster is bootstrapped."""
        return json_response(self.describe())

    def describe(self) -> dict[str, Any]:
        """``{"version", "splitMode", "keyRetention", "masters": [{"node", "dataCenter", "weight", "role", "urls",
        "inView"}], "removed": [NODE...], "graphs": [{"match", "quorum", "timeout"}], "pending": TXID|null}``: the
        configuration at the stable end of this master's log."""
        status = self._context.status
        view = status.view
        found = _to_dict(self._current())
        for one in found["masters"]:
            one["inView"] = view is not None and view.member(one["node"]) is not None
        pending = status.pending_change
        return {**found, "pending": str(pending) if pending is not None else None}

    def _check_masters_may_change(self) -> None:
        """:class:`Conflict` while other logs of the cluster have the same masters: none follows this one yet."""
        if self._context.fixed_masters():
            raise Conflict("a cluster with several repositories keeps its masters: no log follows another one's change")

    def _current(self) -> Configuration:
        now = self._context.status.configuration
        if now is None:
            raise Conflict("the cluster is not founded yet, or this master has not joined it: nothing is in force here")
        return now

    # Changes

    async def patch(self, request: Request, _: Mapping[str, str]) -> Response:
        """Changes ``splitMode``, ``keyRetention`` and ``graphs`` of the whole cluster."""
        options = await read_json(request, ClusterOptionsRequest, _EXPECTED_OPTIONS, OPTIONS_BODY_MAX)
        now = self._current()
        majority, retention_ms = now.majority, now.key_retention_ms
        if options.split_mode is not None:
            if options.split_mode not in MODES:
                raise BadInput(f"splitMode {options.split_mode[:20]!r}: one of {', '.join(MODES)}")
            majority = options.split_mode == "Majority"
        if options.key_retention is not None:
            try:
                retention_ms = parse_duration(options.key_retention)
            except ValueError as wrong:
                raise BadInput(f"keyRetention: {wrong}") from None
            if retention_ms < RETENTION_MS_MIN:
                raise BadInput(f"a keyRetention of {options.key_retention[:20]}: a second at least")
        wanted = msgspec.structs.replace(now, majority=majority, key_retention_ms=retention_ms)
        if options.graphs is not None:
            wanted = msgspec.structs.replace(wanted, graphs=self._checked_rules(options.graphs, now))
        return await self._submit_change(
            wanted, "graphs" if options.graphs is not None else "splitMode or keyRetention"
        )

    @property
    def _workers_go_back(self) -> bool:
        """Whether neither the view nor this master asks for a split recovery that leaves workers out of order."""
        status = self._context.status
        return "None" not in (status.settings.strategy, status.view.strategy if status.view is not None else "")

    def _checked_rules(self, given: Sequence[GraphRuleRequest], now: Configuration) -> list[GraphRule]:
        """The rules. They change only where every configured master takes part: another side of a split would go on
        without them. :class:`BadInput`, :class:`Conflict`."""
        rules = [rule.parse() for rule in given]
        status = self._context.status
        check_rules(rules, now.masters, workers_go_back=self._workers_go_back)
        view = status.view
        out = [m.node for m in now.masters if view is None or view.member(m.node) is None]
        if out:
            raise NotAllHere(f"graphs change while every configured master is in the view; {', '.join(out)} is not")
        older = status.older_masters(LEVEL_SYNCHRONOUS)
        if older:
            raise Unavailable("NotSpoken", f"the program of {', '.join(older)} knows no such rules; update it", 10)
        return rules

    async def add(self, request: Request, _: Mapping[str, str]) -> Response:
        """Adds a new master. It joins once its process runs, reaches the others and has caught up."""
        added = await read_json(request, AddMasterRequest, _EXPECTED_MASTER, BODY_MAX)
        return await self.add_master(Master(added.node, added.data_center, added.weight, MEMBER, added.urls))

    async def add_master(self, new: Master) -> Response:
        """See :meth:`add`."""
        self._check_masters_may_change()
        now = self._current()
        if now.master(new.node) is not None:
            raise Conflict(f"{new.node} is a master of this cluster already")
        removed = [node for node in now.removed if node != new.node]
        wanted = msgspec.structs.replace(now, masters=[*now.masters, new], removed=removed)
        return await self._submit_change(wanted, f"add {new.node}")

    async def change(self, request: Request, names: Mapping[str, str]) -> Response:
        """Changes the weight of a master, mutes it, or ends its muting."""
        change = await read_json(request, ChangeMasterRequest, _EXPECTED_CHANGE, BODY_MAX)
        return await self.change_master(names["node"], change)

    async def mute(self, node: str, muted: bool) -> Response:
        """See :meth:`change`."""
        return await self.change_master(node, ChangeMasterRequest(muted=muted))

    async def change_master(self, node: str, change: ChangeMasterRequest) -> Response:
        """See :meth:`change`."""
        self._check_masters_may_change()
        master = self._master(node)
        if change.muted is not None:
            if master.role == LEAVING:
                raise Conflict(f"{master.node} is being taken out")
            master = msgspec.structs.replace(master, role=MUTED if change.muted else MEMBER)
        if change.weight is not None:
            master = msgspec.structs.replace(master, weight=change.weight)
        return await self._submit_change(self._replacing_master(master), f"alter {master.node}")

    async def remove(self, request: Request, names: Mapping[str, str]) -> Response:
        """Removes a master for ever. The master accepts no more work, replicates what it has, then ends with
        ``Removed``. A master that is not in the view cannot do that. ``?lost=true`` states that it is gone, with the
        transactions that only it had."""
        return await self.remove_master(names["node"], lost=request.query.get("lost", "false") == "true")

    async def remove_master(self, node: str, *, lost: bool) -> Response:
        """See :meth:`remove`."""
        self._check_masters_may_change()
        master = self._master(node)
        now, view = self._current(), self._context.status.view
        in_view = view is not None and view.member(master.node) is not None
        if not lost:
            if not in_view:
                raise Conflict(
                    f"{master.node} is not in the view, so it cannot bring in what only it has; start it, or say "
                    "that it is lost (lost=true, --lost)"
                )
            leaving = msgspec.structs.replace(master, role=LEAVING)
            return await self._submit_change(self._replacing_master(leaving), f"remove {master.node}")
        if in_view:
            raise Conflict(f"{master.node} is in the view; without lost=true it brings in what it has first")
        rest = [m for m in now.masters if m.node != master.node]
        wanted = msgspec.structs.replace(now, masters=rest, removed=[*now.removed, master.node])
        return await self._submit_change(wanted, f"{master.node} is lost")

    def _keep_quorum(self, wanted: Configuration) -> None:
        """:class:`NoQuorumLeft` where rules for graphs are set, and no later view could decide about them."""
        now, view = self._current(), self._context.status.view
        if not now.graphs or view is None or view.anchor is None or not view.is_quorate:
            return
        problem = find_quorum_loss(view.anchor, [member.node for member in view.members], now, wanted)
        if problem:
            raise NoQuorumLeft(problem)

    def _master(self, node: str) -> Master:
        now = self._current()
        found = now.master(node)
        if found is None:
            there = ", ".join(m.node for m in now.masters)
            raise NotFound(f"no master {node[:80]!r} in this cluster; there are {there}")
        return found

    def _replacing_master(self, master: Master) -> Configuration:
        now = self._current()
        masters = [master if m.node == master.node else m for m in now.masters]
        return msgspec.structs.replace(now, masters=masters)

    async def _submit_change(self, wanted: Configuration, why: str) -> Response:
        """Answers 200 once the change is in effect, 202 while the change waits for its place in the log. Only one
        change can be open: another gets 409 ``ChangePending``."""
        site = self._context
        self._keep_quorum(wanted)
        submission = site.status.prepare_change(wanted, why)
        size = len(submission.key)
        if size > CHANGE_CHARACTERS_MAX:
            raise BadInput(f"this configuration takes {size} characters, at most {CHANGE_CHARACTERS_MAX}: shorten it")
        write = site.loop.write([submission], Durability.SYNCED)
        reached = await site.durability.wait_for(write.reached, site.config.write_timeout_s)
        answer = write.answers[0] if write.answers else None
        if isinstance(answer, Refused):
            raise answer
        if answer is None:
            raise Unavailable("Starting", "this master did not take it in time; look at what is in force and ask again")
        self._context.log.info("ConfigurationChanged", txid=str(answer.txid), why=why)
        agreement = site.status.log_state
        if agreement is not None and answer.txid in agreement.configurations.noops.values():
            raise Conflict("another change came first, or the view it was made in is no more: look, and ask again")
        return json_response({"txid": str(answer.txid), **self.describe()}, 200 if reached else 202)


def _to_dict(now: Configuration) -> dict[str, Any]:
    return {
        "version": now.version,
        "splitMode": MODES[now.majority],
        "keyRetention": format_duration(now.key_retention_ms),
        "masters": [
            {"node": m.node, "dataCenter": m.data_center, "weight": m.weight, "role": m.role, "urls": m.urls}
            for m in now.masters
        ],
        "removed": list(now.removed),
        "graphs": [to_rule_spec(rule) for rule in now.graphs],
    }
