"""Names of the objects of a cluster. Names make actions idempotent: they are derived, never random."""

from __future__ import annotations

import hashlib
import json
from typing import Any, Final

from txlog.config.cluster import TxLogCluster

GROUP: Final = "txlog.io"
LABEL_MAX: Final = 63
STATEFUL_SET_NAME_MAX: Final = 52
"""Longest name of a StatefulSet: its pods' labels append a hash of ten characters."""
EXECUTOR_NAME_MAX: Final = 38
"""Longest prefix of executor names. Spark appends a word and a number; it limits prefix and word to 47 characters."""
HASH_DIGITS: Final = 8


def bounded_name(name: str, most: int = LABEL_MAX) -> str:
    """The name, or its beginning and a hash of the whole if it is longer than ``most`` characters."""
    return name if len(name) <= most else f"{name[: most - HASH_DIGITS - 1].rstrip('-')}-{short_hash(name)}"


def short_hash(value: Any) -> str:
    """Eight hexadecimal digits of any value that JSON can represent."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:HASH_DIGITS]


class ObjectNames:
    """The names of one cluster's objects, in its namespace."""

    def __init__(self, cluster: TxLogCluster) -> None:
        self.cluster = cluster.metadata.name
        self.namespace = cluster.metadata.namespace
        self.data_center = cluster.data_center
        self.masters = bounded_name(self.cluster, STATEFUL_SET_NAME_MAX)
        """The StatefulSet; its pods are ``<name>-1``, ``<name>-2``, ..."""
        self.master_hosts = bounded_name(f"{self.cluster}-masters")
        """The headless Service."""
        self.clients = self.masters
        """The Service for clients."""
        self.workers = bounded_name(f"{self.cluster}-worker", STATEFUL_SET_NAME_MAX)
        self.worker_hosts = bounded_name(f"{self.cluster}-workers")
        self.pipeline = bounded_name(f"{self.cluster}-pipeline", LABEL_MAX - HASH_DIGITS - 1)
        self.executors = bounded_name(f"{self.cluster}-executor", EXECUTOR_NAME_MAX)
        """The prefix of the executors' names."""
        self.jobs = bounded_name(f"{self.cluster}-jobs")
        """The ConfigMap with the configuration of Jobs."""
        self.archiver = bounded_name(f"{self.cluster}-archiver", LABEL_MAX - HASH_DIGITS - 1)
        self.change_sets = bounded_name(f"{self.cluster}-changesets", STATEFUL_SET_NAME_MAX)
        """The StatefulSet, its headless Service and its ConfigMap."""
        self.recovery = bounded_name(f"{self.cluster}-recovery", LABEL_MAX - HASH_DIGITS - 1)
        self.closed = bounded_name(f"{self.cluster}-closed")
        """The NetworkPolicy of pods that accept no connections."""
        self.split_backups = bounded_name(f"{self.cluster}-split-backups")
        """The volume for split backups where the manifest names no target."""
        self.peer_token = f"{self.cluster}-peer-token"

    def master_pod(self, index: int) -> str:
        """The pod of the master with this number; the first is 1."""
        return f"{self.masters}-{index}"

    def worker_pod(self, index: int) -> str:
        """The pod of the worker with this number."""
        return f"{self.workers}-{index}"

    def master_host(self, index: int) -> str:
        """The host name that every pod of the Kubernetes cluster resolves, independent of the cluster's domain."""
        return f"{self.master_pod(index)}.{self.master_hosts}.{self.namespace}.svc"

    @property
    def change_sets_host(self) -> str:
        """The host name of the process that makes change sets, as for :meth:`master_host`."""
        return f"{self.change_sets}-0.{self.change_sets}.{self.namespace}.svc"

    def worker_host(self, index: int) -> str:
        """The host name of the worker with this number, as for :meth:`master_host`."""
        return f"{self.worker_pod(index)}.{self.worker_hosts}.{self.namespace}.svc"
