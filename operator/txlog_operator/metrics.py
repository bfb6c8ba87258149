"""Metrics of the operator itself, for Prometheus."""

from __future__ import annotations

import time

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from txlog.config.cluster_status import ClusterStatus
from txlog_operator.hibernation import HIBERNATION_STATES
from txlog_operator.kube_client import HTTP_FORBIDDEN

STATUS_WORDS = ("True", "False", "Unknown")


class OperatorMetrics:
    """The metrics, in a registry of their own, so that a test may have several."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        names = ["namespace", "name"]
        self._reconciles = Histogram(
            "txlog_operator_reconcile_seconds",
            "How long a turn of a cluster took",
            [*names, "result"],
            registry=self.registry,
            buckets=(0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30),
        )
        self._last_reconcile = Gauge(
            "txlog_operator_reconcile_last_success_timestamp_seconds",
            "When the last turn of a cluster ended well, or its first one failed",
            names,
            registry=self.registry,
        )
        self._conditions = Gauge(
            "txlog_cluster_condition",
            "1 for the status that a condition has",
            [*names, "type", "status"],
            registry=self.registry,
        )
        self._applied = Gauge(
            "txlog_cluster_applied_index", "What every worker has executed", names, registry=self.registry
        )
        self._hibernated = Gauge(
            "txlog_cluster_hibernated",
            "1 while spec.hibernated keeps a cluster without pods",
            names,
            registry=self.registry,
        )
        self.leader = Gauge(
            "txlog_operator_leader",
            "1 in the operator that acts, 0 in a standby",
            registry=self.registry,
        )
        self.forbidden = Counter(
            "txlog_operator_forbidden_total", "Requests that the API server refused (403)", registry=self.registry
        )
        self._requests = Counter(
            "txlog_operator_requests_total",
            "Requests to the API server, by method and status (0: no answer)",
            ["method", "code"],
            registry=self.registry,
        )
        self._known: set[tuple[str, str]] = set()
        self.last_reconcile_at = time.monotonic()
        """When the last reconcile ended, whatever its result."""

    def observe_request(self, method: str, code: int) -> None:
        """Counts one request to the API server."""
        self._requests.labels(method, str(code)).inc()
        if code == HTTP_FORBIDDEN:
            self.forbidden.inc()

    def observe_reconcile(self, namespace: str, name: str, seconds: float, result: str) -> None:
        """Records one reconcile, its duration in seconds and its result."""
        self.last_reconcile_at = time.monotonic()
        self._reconciles.labels(namespace, name, result).observe(seconds)
        first = (namespace, name) not in self._known
        self._known.add((namespace, name))
        if result == "done" or first:  # without a series, no alert tells of turns that have failed since the start
            self._last_reconcile.labels(namespace, name).set_to_current_time()

    def observe_status(self, namespace: str, name: str, status: ClusterStatus) -> None:
        """Records the status of a cluster."""
        for each in status.conditions:
            for word in STATUS_WORDS:
                self._conditions.labels(namespace, name, each.type, word).set(each.status == word)
        self._hibernated.labels(namespace, name).set(status.state in HIBERNATION_STATES)
        if status.applied is not None:
            self._applied.labels(namespace, name).set(status.applied)

    def forget(self, namespace: str, name: str) -> None:
        """Removes the series of a deleted cluster."""
        self._known.discard((namespace, name))
        for metric in (self._reconciles, self._last_reconcile, self._applied, self._hibernated, self._conditions):
            metric.remove_by_labels({"namespace": namespace, "name": name})
