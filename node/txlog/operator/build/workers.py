"""The stores that TxLog runs: one StatefulSet of Oxigraph. Pure."""

from __future__ import annotations

from typing import Final

from txlog.config.cluster import TxLogCluster
from txlog.operator.build.common import (
    DATA,
    TMP,
    WORKER_PORT,
    Around,
    Object,
    claim,
    container,
    labels,
    made,
    pod_spec,
    resources_of,
    selector,
)
from txlog.operator.names import Names

COMPONENT: Final = "worker"


def stateful_set(cluster: TxLogCluster, around: Around) -> Object:
    names, workers = Names(cluster), cluster.spec.workers
    probe = {"httpGet": {"path": "/", "port": "http"}}
    store = container(
        cluster,
        around,
        COMPONENT,
        # The adapter refuses a store with --union-default-graph.
        ["oxigraph", "serve", "-l", str(DATA / "store"), "-b", f"0.0.0.0:{WORKER_PORT}"],
        ports=[{"name": "http", "containerPort": WORKER_PORT}],
        resources=resources_of(workers.resources),
        startupProbe={**probe, "periodSeconds": 1, "failureThreshold": 600},
        readinessProbe={**probe, "periodSeconds": 2, "timeoutSeconds": 5, "failureThreshold": 3},
        livenessProbe={**probe, "periodSeconds": 10, "timeoutSeconds": 10, "failureThreshold": 6},
        volumeMounts=[{"name": "store", "mountPath": str(DATA)}, TMP],
    )
    # As the first process of a container it would not hear SIGTERM.
    pod = pod_spec([store], [], terminationGracePeriodSeconds=30, shareProcessNamespace=True)
    spec: Object = {
        "replicas": workers.replicas,
        "serviceName": names.worker_hosts,
        "ordinals": {"start": 1},
        "podManagementPolicy": "Parallel",
        "updateStrategy": {"type": "RollingUpdate"},
        # A store is made again from the log; one that comes back later must not bring old data.
        "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Retain", "whenScaled": "Delete"},
        "selector": {"matchLabels": selector(cluster, COMPONENT)},
        "template": {"metadata": {"labels": labels(cluster, COMPONENT)}, "spec": pod},
        "volumeClaimTemplates": [claim("store", workers.storage.size, workers.storage.storage_class_name)],
    }
    return made(cluster, around, "apps/v1", "StatefulSet", names.workers, COMPONENT, spec=spec)


def service(cluster: TxLogCluster, around: Around) -> Object:
    """Names only: masters and the pipeline speak with each store."""
    spec = {
        "clusterIP": "None",
        "publishNotReadyAddresses": True,
        "selector": selector(cluster, COMPONENT),
        "ports": [{"name": "http", "port": WORKER_PORT, "targetPort": "http"}],
    }
    return made(cluster, around, "v1", "Service", Names(cluster).worker_hosts, COMPONENT, spec=spec)


def disruption_budget(cluster: TxLogCluster, around: Around) -> Object:
    spec = {"maxUnavailable": 1, "selector": {"matchLabels": selector(cluster, COMPONENT)}}
    return made(cluster, around, "policy/v1", "PodDisruptionBudget", Names(cluster).worker_hosts, COMPONENT, spec=spec)
