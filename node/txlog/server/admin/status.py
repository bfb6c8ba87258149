"""What people and supervisors ask: status, peers, transactions, health."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from txlog.model.errors import NotFound
from txlog.model.ids import parse_txid
from txlog.native import is_native
from txlog.runtime.asked import WAIT_S_MAX, level_of
from txlog.runtime.site import Site
from txlog.runtime.web import Request, Response, Route, json_answer, seconds_of, text_answer
from txlog.server.admin.duties import Duties
from txlog.server.admin.membership import Membership
from txlog.server.admin.trimming import Trimming

try:
    VERSION = version("txlog")
except PackageNotFoundError:
    VERSION = "0"


class Status:
    """``peers``: what the links show of themselves."""

    def __init__(
        self,
        site: Site,
        membership: Membership,
        duties: Duties,
        peers: Callable[[], dict[str, Any]],
        trimming: Trimming,
    ) -> None:
        self._site = site
        self._duties = duties
        self._membership = membership
        self._peers = peers
        self._trimming = trimming

    def routes(self) -> list[Route]:
        return [
            Route("GET", "/txlog/status", self.status),
            Route("GET", "/txlog/peers", self.peers),
            Route("GET", "/txlog/transactions/{txid}", self.transaction),
            Route("GET", "/health/live", self.live),
            Route("GET", "/health/ready", self.ready),
            Route("GET", "/health/startup", self.startup),
        ]

    async def status(self, request: Request, _: Mapping[str, str]) -> Response:
        site = self._site
        loop, core = site.loop, site.loop.core
        agreement = loop.agreement
        view = agreement.view if agreement is not None else None
        present = [site.config.node, *(p.node for p in core.peers if core.is_present(p))]
        queues = agreement.queues if agreement is not None else []
        return json_answer(
            {
                "node": site.config.node,
                "birth": f"{core.birth:016x}",
                "start": core.start,
                "version": VERSION,
                "native": is_native(),
                "state": site.state,
                "epoch": view.epoch if view is not None else 0,
                "view": self._membership.view(),
                "duties": [duty.view() for duty in self._duties.now()],
                "clusterId": view.cluster_id.hex() if view is not None else None,
                "log": _place(loop.log_position()),
                "trim": self._trimming.view(),
                "stable": _place(loop.stable_position()),
                "queue": {"transactions": sum(len(q) for q in queues), "bytes": sum(q.bytes for q in queues)},
                "counter": agreement.last_stamp if agreement is not None else 0,
                "members": [
                    {"node": m.node, "birth": f"{m.birth:016x}", "weight": m.weight, "dataCenter": m.data_center}
                    for m in (view.members if view is not None else [])
                ],
                "present": present if view is not None else [],
                "workers": site.registry.views(),
                "damage": [],
                "repository": site.config.repository,
                "dataCenter": site.config.data_center,
                "uptimeSeconds": round(time.monotonic() - site.began, 3),
            }
        )

    async def peers(self, request: Request, _: Mapping[str, str]) -> Response:
        """The links, what the core knows of each peer, and who hears whom."""
        told = self._peers() | self._membership.hearing()
        core, loop = self._site.loop.core, self._site.loop
        known = {p.node: p for p in core.peers}
        for peer in told["peers"]:
            one = known.get(peer["node"])
            claim = one.claim if one is not None else None
            peer |= self._membership.of_peer(peer["node"])
            peer["present"] = one is not None and core.is_present(one)
            peer["logIndex"] = claim.log_index if claim is not None else None
            peer["start"] = claim.start if claim is not None else None
            peer["full"] = claim.full if claim is not None else None
            peer["refused"] = str(one.fault) if one is not None and one.fault is not None else None
            peer["faultsByReason"] = {
                reason: count for (node, reason), count in loop.counts.peer_faults.items() if node == peer["node"]
            }
        return json_answer(told)

    async def transaction(self, request: Request, names: Mapping[str, str]) -> Response:
        txid = parse_txid(names["txid"])
        query = request.query
        seconds = seconds_of(query.get("wait"), "wait", 0.0, WAIT_S_MAX)
        level = self._site.config.durability
        if "durability" in query:
            level = level_of(query["durability"], "durability")
        transactions = self._site.transactions
        if seconds > 0:
            await transactions.reach(txid, level, seconds)
        outcome = transactions.outcome(txid)
        if outcome.level is None:
            raise NotFound(f"{txid} is not known at this master; another one may know it")
        return json_answer(outcome.view())

    async def live(self, request: Request, _: Mapping[str, str]) -> Response:
        return text_answer("live\n")

    async def ready(self, request: Request, _: Mapping[str, str]) -> Response:
        """Founded, admitted, whole and not closing: it takes work."""
        return _health(self._site.ready, self._site)

    async def startup(self, request: Request, _: Mapping[str, str]) -> Response:
        """It speaks with its peers; founding may have to wait for them."""
        return text_answer("started\n")


def _health(good: bool, site: Site) -> Response:
    state = "Closing" if site.closing else site.state
    return json_answer({"state": state}, 200 if good else 503, {} if good else {"Retry-After": "1"})


def _place(position: Any) -> dict[str, Any]:
    return {"epoch": position.epoch, "index": position.index, "hash": position.hash.hex()}
