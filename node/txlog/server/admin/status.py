"""What people and supervisors query of a log: status, peers, transactions."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from txlog.http.router import Request, Response, Route, json_response, seconds_parameter
from txlog.http.write_options import WAIT_S_MAX, parse_durability
from txlog.model.errors import NotFound
from txlog.model.ids import parse_txid
from txlog.native import is_native
from txlog.protocol.views.decisions import SynchronousAnswer
from txlog.runtime.master_context import MasterContext
from txlog.runtime.transaction_status import TransactionOutcome
from txlog.server.admin.archive_reports import ArchiveReports
from txlog.server.admin.duties import DutyHandler
from txlog.server.admin.log_retention import LogRetention
from txlog.server.admin.synchronous_view import describe_undecided, find_decision
from txlog.server.admin.views import ViewHandler
from txlog.server.admin.worker_repairs import WorkerRepairs

try:
    VERSION = version("txlog")
except PackageNotFoundError:
    VERSION = "0"


class StatusHandler:
    """``/txlog/status``, ``/txlog/peers`` and ``/txlog/transactions/{id}``. ``peers`` describes the links,
    ``change_sets`` how far those of each data centre are."""

    def __init__(
        self,
        site: MasterContext,
        membership: ViewHandler,
        duties: DutyHandler,
        repairs: WorkerRepairs,
        peers: Callable[[], dict[str, Any]],
        trimming: LogRetention,
        archive: ArchiveReports,
        change_sets: Callable[[], list[dict[str, Any]] | None],
    ) -> None:
        self._context = site
        self._duty_handler = duties
        self._repairs = repairs
        self._view_handler = membership
        self._describe_peers = peers
        self._log_retention = trimming
        self._archive = archive
        self._describe_change_sets = change_sets

    def routes(self) -> list[Route]:
        """The paths of this handler."""
        return [
            Route("GET", "/txlog/status", self.status),
            Route("GET", "/txlog/peers", self.peers),
            Route("GET", "/txlog/transactions/{txid}", self.transaction),
        ]

    async def status(self, request: Request, _: Mapping[str, str]) -> Response:
        """The status of this master."""
        site = self._context
        status, durability = site.status, site.durability
        agreement = status.log_state
        view = agreement.view if agreement is not None else None
        present = [site.config.node, *status.present_peers]
        queues = agreement.queues if agreement is not None else []
        return json_response(
            {
                "node": site.config.node,
                "birth": f"{status.birth:016x}",
                "start": status.start,
                "version": VERSION,
                "native": is_native(),
                "state": site.state,
                "epoch": view.epoch if view is not None else 0,
                "view": self._view_handler.describe(),
                "duties": [duty.to_dict() for duty in self._duty_handler.open_duties()],
                "clusterId": view.cluster_id.hex() if view is not None else None,
                "log": _position_to_dict(durability.log_position()),
                "trim": self._log_retention.describe(),
                "archive": self._archive.describe(),
                "changeSets": self._describe_change_sets(),
                "stable": _position_to_dict(durability.stable_position()),
                "queue": {"transactions": sum(len(q) for q in queues), "bytes": sum(q.payload_bytes for q in queues)},
                "counter": agreement.last_stamp if agreement is not None else 0,
                "members": [
                    {"node": m.node, "birth": f"{m.birth:016x}", "weight": m.weight, "dataCenter": m.data_center}
                    for m in (view.members if view is not None else [])
                ],
                "present": present if view is not None else [],
                "workers": self._repairs.describe_workers(),
                "applied": durability.applied.value,
                "damage": [],
                "repository": site.repository,
                "dataCenter": site.config.data_center,
                "uptimeSeconds": round(time.monotonic() - site.started_at, 3),
            }
        )

    async def peers(self, request: Request, _: Mapping[str, str]) -> Response:
        """The links, the core's state of each peer, and which master receives messages from which."""
        described = self._describe_peers() | self._view_handler.reachability()
        status, counts = self._context.status, self._context.loop.counts
        for peer in described["peers"]:
            one = status.peer(peer["node"])
            claim = one.replica_state if one is not None else None
            peer |= self._view_handler.describe_peer(peer["node"])
            peer["present"] = status.is_present(peer["node"])
            peer["logIndex"] = claim.log_index if claim is not None else None
            peer["start"] = claim.start if claim is not None else None
            peer["full"] = claim.full if claim is not None else None
            peer["refused"] = str(one.fault) if one is not None and one.fault is not None else None
            peer["faultsByReason"] = {
                reason: count for (node, reason), count in counts.peer_faults.items() if node == peer["node"]
            }
        return json_response(described)

    async def transaction(self, request: Request, names: Mapping[str, str]) -> Response:
        """The outcome of one transaction."""
        txid = parse_txid(names["txid"])
        query = request.query
        seconds = seconds_parameter(query.get("wait"), "wait", 0.0, WAIT_S_MAX)
        level = self._context.config.durability
        if "durability" in query:
            level = parse_durability(query["durability"], "durability")
        transactions = self._context.transactions
        transactions.check_level(level)
        if seconds > 0:
            await transactions.wait_for_level(txid, level, seconds)
        outcome = transactions.outcome(txid, level)
        if outcome.level is None:
            raise NotFound(f"{txid} is not known at this master; another one may know it")
        return json_response(self._with_quorum(outcome))

    def _with_quorum(self, outcome: TransactionOutcome) -> dict[str, Any]:
        """The outcome. That of a synchronous transaction names its decision, or its quorum and the members that hold
        it."""
        shown, status = outcome.to_dict(), self._context.status
        if outcome.synchronous is None or status.log_state is None:
            return shown
        decision = find_decision(status.log_state, outcome.txid)
        shown["synchronous"]["decision"] = None if decision is None else str(decision)
        if outcome.synchronous is SynchronousAnswer.PENDING:
            found = status.synchronous_status  # its cost grows with what is undecided
            waiting = [one for one in found.undecided if one.transaction.txid == outcome.txid] if found else []
            for one in waiting:
                shown["synchronous"] |= describe_undecided(one) | {"state": SynchronousAnswer.PENDING.value}
        return shown


def _position_to_dict(position: Any) -> dict[str, Any]:
    return {"epoch": position.epoch, "index": position.index, "hash": position.hash.hex()}
