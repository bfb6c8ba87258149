"""``GET /metrics`` in Prometheus' text format: the metrics of the process, and those of its logs."""

from __future__ import annotations

import resource
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from aiohttp import web

from txlog.auth.tls import NO_TLS, TlsConfig
from txlog.http.router import Request, Response, Route
from txlog.server.admin.log_metrics import LogMetrics
from txlog.server.admin.metric_families import counters, gauge, gauges, join_families


class ProcessMetrics:
    """``GET /metrics``. ``logs``: the metrics of each log by the name of its repository. The series of several logs
    have the label ``repository``; those of a single one have no such label. ``peers`` describes the links. ``dropped``:
    messages of further logs that were not delivered, by number and reason; None where there are none."""

    def __init__(
        self,
        logs: Callable[[], Mapping[str, LogMetrics]],
        peers: Callable[[], dict[str, Any]],
        tls: TlsConfig = NO_TLS,
        dropped: Callable[[], Mapping[tuple[int, str], int]] | None = None,
    ) -> None:
        self._logs = logs
        self._describe_peers = peers
        self._tls = tls
        self._dropped = dropped
        self._started_at = time.monotonic()
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
        logs = self._logs()
        if len(logs) == 1:
            [only] = logs.values()
            yield from only.collect()
        else:
            yield from join_families("repository", {name: log.collect() for name, log in logs.items()})
        yield gauge("uptime_seconds", "since this process began", time.monotonic() - self._started_at)
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        yield gauge("resident_bytes_max", "most memory used", memory)
        yield from self._peer_metrics()
        yield from self._certificate_metrics()

    def _peer_metrics(self) -> Iterable[Any]:
        """Connections of the other masters."""
        described = self._describe_peers()
        by_reason: Counter[str] = Counter()
        for one in described["refused"]:
            by_reason[one["reason"]] += one["count"]
        refused = {(reason,): count for reason, count in sorted(by_reason.items())}
        yield counters("peers_refused", "connections refused, by reason", ["reason"], refused)
        connected = {(one["node"],): float(one["connected"]) for one in described["peers"]}
        yield gauges("peer_connected", "1 while this master's socket to it is open", ["peer"], connected)
        dropped = {(one["node"],): one["sent"]["dropped"] for one in described["peers"]}
        yield counters("peer_dropped", "messages forgotten because a queue was full", ["peer"], dropped)

        if self._dropped is not None:
            lost = {(str(number), reason): count for (number, reason), count in self._dropped().items()}
            text = "messages of further logs that were not delivered, by reason"
            yield counters("log_messages_dropped", text, ["log", "reason"], lost)

    def _certificate_metrics(self) -> Iterable[Any]:
        ends = {(to,): found.expires for to, found in self._tls._asdict().items() if found is not None}
        text = "when this master's own ends, since 1970"
        yield gauges("certificate_expires_seconds", text, ["shown_to"], ends)
