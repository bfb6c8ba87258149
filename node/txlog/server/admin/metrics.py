"""``GET /metrics`` in Prometheus' text format. The handler formats plain numbers on request, so that counting is
free."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from aiohttp import web

from txlog.auth.tls import NO_TLS, TlsConfig
from txlog.http.router import Request, Response, Route
from txlog.runtime.master_context import MasterContext
from txlog.server.admin.log_retention import LogRetention
from txlog.server.admin.views import ViewHandler

_MASTER_STATES = (
    *("Founding", "Starting", "Learning", "Joined", "Suspected", "Isolated", "Rejoining", "Restoring"),
    *("Left", "Damaged", "DiskFull"),
)


class MetricsHandler:
    """``GET /metrics``: this master's metrics, and those it knows of its workers, log and view."""

    def __init__(
        self,
        site: MasterContext,
        membership: ViewHandler,
        peers: Callable[[], dict[str, Any]],
        trimming: LogRetention,
        tls: TlsConfig = NO_TLS,
    ) -> None:
        self._context = site
        self._view_handler = membership
        self._describe_peers = peers
        self._log_retention = trimming
        self._tls = tls
        self._registry: Any = None

    def routes(self) -> list[Route]:
        """The paths of this handler."""
        return [Route("GET", "/metrics", self.get)]

    async def get(self, request: Request, _: Mapping[str, str]) -> Response:
        """All metrics of this master as text."""
        from prometheus_client import (
            CollectorRegistry,
            generate_latest,
        )  # imported late: most masters on a laptop are never scraped

        if self._registry is None:
            self._registry = CollectorRegistry(auto_describe=False)
            self._registry.register(self)
        text = generate_latest(self._registry)
        return web.Response(body=text, headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"})

    def collect(self) -> Iterable[Any]:
        """The metric families of one scrape, as ``prometheus_client`` calls for them."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        site, loop = self._context, self._context.loop
        counts, agreement = loop.counts, loop.log_state

        def gauge(name: str, text: str, value: float) -> Any:
            return GaugeMetricFamily(f"txlog_{name}", text, value=value)

        def counter(name: str, text: str, value: float) -> Any:
            return CounterMetricFamily(f"txlog_{name}", text, value=value)

        yield gauge("log_index", "last index of the log", loop.log_index)
        yield gauge("stable_index", "last index that every member is known to hold", loop.stable.value)
        yield gauge("applied_index", "how far a worker of this data centre has executed the log", loop.applied.value)
        queues = agreement.queues if agreement is not None else []
        yield gauge("queue_transactions", "waiting for their order", sum(len(q) for q in queues))
        yield gauge("queue_bytes", "payload waiting for its order", sum(q.payload_bytes for q in queues))
        yield gauge("requests_in_flight", "write requests that wait for an answer", loop.in_flight)
        yield counter("transactions", "answered by this master, refused ones included", counts.transactions)
        yield counter("turns", "turns of the loop", counts.turns)
        yield counter("syncs", "group commits of the journal", counts.syncs)
        yield counter(
            "sync_seconds", "time from the beginning of a group commit to its being known", counts.sync_seconds
        )
        yield counter("received_messages", "from peers", counts.received_messages)
        yield counter("received_bytes", "from peers", counts.received_bytes)
        yield gauge("uptime_seconds", "since this process began", time.monotonic() - site.started_at)
        yield gauge("resident_bytes_max", "most memory used", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
        journal: Any = loop.executor.journal
        for name, text in (("bytes_used", "of the journal's files"), ("bytes_free", "left for new work")):
            if hasattr(journal, name):
                yield gauge(f"journal_{name}", text, getattr(journal, name))
        state = GaugeMetricFamily("txlog_state", "1 for the state that this master is in", labels=["state"])
        for name in _MASTER_STATES:
            state.add_metric([name], 1.0 if name == site.state else 0.0)
        yield state
        refused = CounterMetricFamily("txlog_refused", "transactions refused, by reason", labels=["reason"])
        for reason, count in sorted(counts.refused.items()):
            refused.add_metric([reason], count)
        yield refused
        faults = CounterMetricFamily(
            "txlog_peer_faults", "messages refused, by peer and reason", labels=["peer", "reason"]
        )
        for (peer, reason), count in sorted(counts.peer_faults.items()):
            faults.add_metric([peer, reason], count)
        yield faults
        told = self._describe_peers()
        strangers = CounterMetricFamily("txlog_peers_refused", "connections refused, by reason", labels=["reason"])
        by_reason: dict[str, int] = {}
        for one in told["refused"]:
            by_reason[one["reason"]] = by_reason.get(one["reason"], 0) + one["count"]
        for reason, count in sorted(by_reason.items()):
            strangers.add_metric([reason], count)
        yield strangers
        connected = GaugeMetricFamily(
            "txlog_peer_connected", "1 while this master's socket to it is open", labels=["peer"]
        )
        dropped = CounterMetricFamily(
            "txlog_peer_dropped", "messages forgotten because a queue was full", labels=["peer"]
        )
        for one in told["peers"]:
            connected.add_metric([one["node"]], float(one["connected"]))
            dropped.add_metric([one["node"]], one["sent"]["dropped"])
        yield connected
        yield dropped
        yield from self._view_metrics(gauge)
        yield from self._retention_metrics(gauge)
        ends = GaugeMetricFamily(
            "txlog_certificate_expires_seconds", "when this master's own ends, since 1970", labels=["shown_to"]
        )
        for shown_to, certificates in self._tls._asdict().items():
            if certificates is not None:
                ends.add_metric([shown_to], certificates.expires)
        yield ends
        yield from self._worker_metrics()

    def _worker_metrics(self) -> Iterable[Any]:
        """The position of each worker, and its faults and differences."""
        from prometheus_client.core import GaugeMetricFamily

        site = self._context
        behind = GaugeMetricFamily("txlog_worker_index", "the log index that a worker has reached", labels=["worker"])
        working = GaugeMetricFamily("txlog_worker_state", "1 for the state a worker is in", labels=["worker", "state"])
        for worker in site.registry.workers.values():
            behind.add_metric([worker.name], worker.index)
            working.add_metric([worker.name, worker.state], 1.0)
        yield behind
        yield working
        differs = GaugeMetricFamily(
            "txlog_worker_differs",
            "graphs in which a worker does not hold what others hold (-1: which, is not known), by whether it is known "
            "to be the wrong one",
            labels=["data_center", "worker", "wrong"],
        )
        everywhere = {site.config.data_center: site.registry.workers, **site.registry.remote_workers}
        for data_center, workers in everywhere.items():
            for worker in workers.values():
                finding = worker.divergence
                if finding is not None:
                    count = -1 if finding.graph_count is None else finding.graph_count
                    differs.add_metric([data_center, worker.name, str(finding.wrong).lower()], count)
        yield differs
        repair = GaugeMetricFamily(
            "txlog_worker_repair",
            "1: what becomes of a worker that differs (GivenUp, Undecided and ByHand need a person)",
            labels=["data_center", "worker", "state"],
        )
        site.registry.refresh_repairs()
        for data_center, workers in everywhere.items():
            for worker in workers.values():
                if worker.repair is not None and worker.repair.state != "Done":
                    repair.add_metric([data_center, worker.name, worker.repair.state], 1.0)
        yield repair

    def _retention_metrics(self, gauge: Callable[[str, str, float], Any]) -> Iterable[Any]:
        """How much of the log is kept, and what needs it."""
        from prometheus_client.core import GaugeMetricFamily

        trimming, agreement = self._log_retention, self._context.loop.log_state
        start = agreement.log_index.start if agreement is not None else 0
        yield gauge("log_kept_from", "the log is kept behind this index", start)
        yield gauge("journal_bytes_max", "what the journal may take", trimming.bytes_max)
        held = GaugeMetricFamily(
            "txlog_log_needed_from", "the log is needed behind this index, by whom", labels=["kind", "name"]
        )
        for one in trimming.decision.blockers:
            held.add_metric([one.kind, one.name], one.log_index)
        yield held

    def _view_metrics(self, gauge: Callable[[str, str, float], Any]) -> Iterable[Any]:
        """The view, the masters out of it, and which master receives messages from which."""
        from prometheus_client.core import GaugeMetricFamily

        views = self._context.loop.core.views
        epoch, ballot, _ = views.number
        members = views.accepted.members if views.accepted is not None else []
        yield gauge("view_epoch", "grows with each view that this master accepts", epoch)
        yield gauge("view_ballot", "proposals that this epoch took", ballot)
        yield gauge("view_installed", "1 while the latest view is installed", float(views.installed))
        yield gauge("view_members", "masters in the latest view", len(members))
        yield gauge(
            "view_held", "1 while a change of views is wanted and cannot begin", float(bool(views.blocked_reason))
        )
        out = GaugeMetricFamily(
            "txlog_member_out", "1 for each configured master out of the view", labels=["node", "why"]
        )
        for node, why in self._view_handler.departed_members().items():
            out.add_metric([node, why], 1.0)
        yield out
        hears = GaugeMetricFamily(
            "txlog_hears", "1 when messages arrive at `to` from `from`; absent when not known", labels=["from", "to"]
        )
        rows = self._view_handler.connectivity.rows()
        for to, row in rows.items():
            for sender in rows if row is not None else ():
                if sender != to:
                    hears.add_metric([sender, to], float(sender in (row or ())))
        yield hears
