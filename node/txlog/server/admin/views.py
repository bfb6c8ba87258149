"""The view of this master: its members, the departed masters with the reasons, and the connectivity between masters.
Also accepts proofs that a process is gone, and the operator's overrides."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from txlog.http.router import Request, Response, Route, json_response, read_json
from txlog.model.errors import BadInput, Conflict, NotFound
from txlog.model.ids import Origin
from txlog.model.view import NO_VIEW, Number
from txlog.runtime.connectivity_matrix import TOPIC, ConnectivityMatrix, diagnose
from txlog.runtime.master_context import MasterContext
from txlog.wire import messages as wire

NOTICE_INTERVAL_S = 1.0
BODY_MAX = 4096
DEPARTURE_TEXTS = {
    "left": "it was stopped in order; it comes back when its process starts",
    "down": "its supervisor has proved that its process ended; it comes back when it starts",
    "lost": "it came back without its journal, with a new birth; it catches up and is taken in",
    "silent": "no master reached it for its term; it may have continued alone, and is rejoined when it answers",
    "ordered": "the operator let it go; what only it had is missing until it comes back",
    "unknown": "this master's process did not see it go; ask another master",
}
_BIRTH_PATTERN = re.compile(r"[0-9a-f]{16}")
_EXPECTED_MEMBERS = 'expected {"members": ["node", ...]}, the masters that begin the cluster, optionally "forget": true'
_EXPECTED_WITHOUT = 'expected {"without": ["node", ...]}, members of the view that are gone for good'
_DOWN_EXAMPLE = '{"birth": "16 hexadecimal digits", "start": N}, as /txlog/status of that master showed them'


class DownReport(msgspec.Struct, forbid_unknown_fields=True):
    """The process of that incarnation (hexadecimal) and start does not run any more."""

    birth: str
    start: int


class BootstrapRequest(msgspec.Struct, forbid_unknown_fields=True):
    """The masters with which an operator bootstraps the cluster. ``forget``: also if one of them lost the journal of an
    earlier cluster, whose log is then forgotten."""

    members: list[str]
    forget: bool = False


class ForceViewRequest(msgspec.Struct, forbid_unknown_fields=True):
    """The members that the forced view may lack."""

    without: list[str]


class ViewHandler:
    """The paths of views and peers. ``send(peer, message)`` sends a message to another master."""

    def __init__(self, site: MasterContext, send: Callable[[str, bytes], None]) -> None:
        self._context = site
        self._loop = site.loop
        self._send = send
        self._status = site.status
        self.connectivity = ConnectivityMatrix(
            site.config.node, lambda: self._nodes, site.status.start, site.status.live_peers
        )

    @property
    def _nodes(self) -> list[str]:
        return [node for node, _ in self._context.masters]

    def routes(self) -> list[Route]:
        """The paths of this handler."""
        return [
            Route("POST", "/txlog/members/{node}/down", self.report_down),
            Route("POST", "/txlog/views", self.force_view),
            Route("POST", "/txlog/found", self.bootstrap),
        ]

    def tasks(self) -> dict[str, Any]:
        """The tasks that run until the process ends, by name."""
        return {"hears-notices": self._send_notices()}

    def on_notice(self, peer: str, topic: str, body: bytes) -> None:
        """Handles a notice from another master."""
        if topic == TOPIC:
            self.connectivity.on_notice(body)

    async def _send_notices(self) -> None:
        while True:
            message = wire.encode(wire.Notice(TOPIC, self.connectivity.encode_notice()))
            for peer in self._context.other_nodes:
                self._send(peer, message)
            await asyncio.sleep(NOTICE_INTERVAL_S)

    # Proofs

    async def report_down(self, request: Request, names: Mapping[str, str]) -> Response:
        """``POST /txlog/members/{node}/down``: the caller certifies that this process of the member is gone, and has
        waited for its end. Answers ``{"node", "inView"}``: whether the member is still in this master's view. That
        changes soon after."""
        node = names["node"]
        self._check_name(node)
        report = await read_json(request, DownReport, _DOWN_EXAMPLE, BODY_MAX)
        if not _BIRTH_PATTERN.fullmatch(report.birth) or report.start < 1:
            raise BadInput(f"birth {report.birth[:40]!r}, start {report.start}: expected {_DOWN_EXAMPLE}")
        if node == self._context.config.node:
            raise Conflict(f"{node} answers you itself: it is not down; ask another master")
        birth = int(report.birth, 16)
        self._context.proved_down(node, birth, report.start)  # a proof that is stale here may count for a further log
        view = self._status.view
        member = view.member(node) if view is not None else None
        if member is not None and member.birth != birth:
            raise Conflict(
                f"{node} is in the view with birth {member.birth:016x}: a proof about birth {report.birth} is stale"
            )
        if member is not None:
            self._loop.prove_down(node, birth, report.start)
            self._context.log.info("ProvedDown", peer=node, birth=report.birth, start=report.start)
        else:
            self._loop.departures.record_proof(node)
        return json_response({"node": node, "inView": self.is_in_view(Origin(node, birth))})

    # Overrides

    async def bootstrap(self, request: Request, _: Mapping[str, str]) -> Response:
        """``POST /txlog/found``, sent to the first of the masters that it names. These masters bootstrap the cluster,
        because not all configured masters can answer; the others join when they arrive. 202: the override is durable,
        and the bootstrap follows soon after. 409 without ``"forget": true`` where a master lost its journal."""
        order = await read_json(request, BootstrapRequest, _EXPECTED_MEMBERS, BODY_MAX)
        members = order.members
        self._check_names(members, _EXPECTED_MEMBERS)
        self._loop.bootstrap(members, order.forget)
        await self._loop.wait_durable()
        self._context.log.info("FoundingOrdered", members=members, forget=order.forget)
        return json_response({"members": members}, 202)

    def _check_names(self, nodes: list[str], expected: str) -> None:
        if not nodes or len(set(nodes)) != len(nodes):
            raise BadInput(f"{expected}, each once; got {nodes}")
        for node in nodes:
            self._check_name(node)

    def _check_name(self, node: str) -> None:
        if node not in self._nodes:
            raise NotFound(f"no master {node[:80]!r} is configured here; there are {', '.join(self._nodes)}")

    async def force_view(self, request: Request, _: Mapping[str, str]) -> Response:
        """``POST /txlog/views``: the operator removes members from the view that no proof shows to be down, or without
        which there is no majority. Answers ``{"view", "mayMiss"}``: the view that is left, and up to which sequence
        number this master knows and holds each removed member's transactions. The override is then durable. The next
        view follows soon after, even if this master ends before; otherwise ``/txlog/status`` reports the reason."""
        without = (await read_json(request, ForceViewRequest, _EXPECTED_WITHOUT, BODY_MAX)).without
        self._check_names(without, _EXPECTED_WITHOUT)
        left = format_view_number(self._status.view_number)
        missing = [self._possibly_lost(node) for node in without]
        self._loop.force_view(without)
        await self._loop.wait_durable()
        self._context.log.info("ViewForced", view=left, without=without, mayMiss=missing)
        return json_response({"view": left, "mayMiss": missing}, 202)

    def _possibly_lost(self, node: str) -> dict[str, Any]:
        """The sequence numbers up to which this master knows and holds the transactions that the node accepted."""
        peer, agreement = self._status.peer(node), self._status.log_state
        queue = agreement.by_origin.get(peer.origin) if agreement is not None and peer is not None else None
        heard = peer.replica_state.own_seq if peer is not None and peer.replica_state is not None else None
        return {"node": node, "heardUpTo": heard, "heldUpTo": queue.held if queue is not None else None}

    def is_in_view(self, origin: Origin) -> bool:
        """Whether the latest view, installed or not, has this member."""
        view = self._status.view
        return view is not None and view.has_member(origin)

    # Reported state

    def describe(self) -> dict[str, Any]:
        """For ``/txlog/status``: the view, its state, and the masters that are out of it."""
        status = self._status
        newer, proposed, view = status.newer_view, status.proposed_view, status.view
        return {
            "number": format_view_number(status.view_number),
            "installed": status.is_view_installed,
            "stopped": status.is_view_stopped,
            "promised": format_view_number(status.promised_view),
            "ahead": format_view_number(newer.number) if newer is not None else None,
            "changing": format_view_number(proposed) if proposed is not None else None,
            "holding": status.lost_journal or status.view_blocked_reason,
            "splitMode": status.split_mode,
            "splitRecovery": view.strategy if view is not None else None,
            "splitBackupAt": status.split_backup_index,
            "out": [
                {"node": node, "why": why, "text": DEPARTURE_TEXTS[why]}
                for node, why in self._loop.departures.departed_members().items()
            ],
        }

    def describe_peer(self, node: str) -> dict[str, Any]:
        """For ``/txlog/peers``: whether a peer is in the view, and whether messages reach it."""
        status, view = self._status, self._status.view
        return {
            "inView": view is not None and view.member(node) is not None,
            "why": self._loop.departures.departed_members().get(node),
            "heard": status.is_alive(node),
            "bothWays": status.is_bidirectional(node),
            "reachable": status.is_reachable(node),
        }

    def reachability(self) -> dict[str, Any]:
        """For ``/txlog/peers``: the connectivity matrix, and the findings of its diagnosis."""
        rows = self.connectivity.rows()
        return {
            "hears": {node: sorted(row) if row is not None else None for node, row in rows.items()},
            "findings": [finding.to_dict() for finding in diagnose(rows)],
        }


def format_view_number(number: Number) -> str | None:
    """``epoch.ballot.coordinator``; None for no view."""
    return None if number == NO_VIEW else ".".join(str(part) for part in number)
