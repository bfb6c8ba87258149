"""The stores that TxLog runs: one StatefulSet of Oxigraph. Pure."""

from __future__ import annotations

from typing import Final

from txlog.config.cluster import TxLogCluster
from txlog_operator.object_names import ObjectNames
from txlog_operator.specs.common import (
    DATA_FOLDER,
    TMP_MOUNT,
    WORKER_PORT,
    BuildContext,
    KubeObject,
    build_object,
    container,
    listen_host,
    pod_spec,
    resource_requirements,
    selector,
    spread_over_nodes,
    volume_claim,
)
from txlog_operator.specs.pod_template import build_pod_template

COMPONENT: Final = "worker"
CLAIM: Final = "store"
"""The volume claim of each store."""
REQUESTS: Final = {"cpu": "100m", "memory": "256Mi", "ephemeral-storage": "64Mi"}
"""Of each store, where the manifest names none."""


def stateful_set(cluster: TxLogCluster, around: BuildContext) -> KubeObject:
    """The StatefulSet of the stores."""
    names, workers = ObjectNames(cluster), cluster.spec.workers
    size = around.volume_sizes.get(COMPONENT, workers.storage.size)
    probe = {"httpGet": {"path": "/", "port": "http"}}
    store = container(
        cluster,
        around,
        COMPONENT,
        # The adapter refuses a store with --union-default-graph.
        ["oxigraph", "serve", "-l", str(DATA_FOLDER / "store"), "-b", f"{_listen_address(around)}:{WORKER_PORT}"],
        ports=[{"name": "http", "containerPort": WORKER_PORT}],
        resources=resource_requirements(workers.resources, REQUESTS),
        startupProbe={**probe, "periodSeconds": 1, "failureThreshold": 600},
        readinessProbe={**probe, "periodSeconds": 2, "timeoutSeconds": 5, "failureThreshold": 3},
        livenessProbe={**probe, "periodSeconds": 10, "timeoutSeconds": 10, "failureThreshold": 6},
        volumeMounts=[{"name": CLAIM, "mountPath": str(DATA_FOLDER)}, TMP_MOUNT],
    )
    # As process 1 of a container it would ignore SIGTERM.
    pod = pod_spec(
        around,
        [store],
        [],
        terminationGracePeriodSeconds=30,
        shareProcessNamespace=True,
        topologySpreadConstraints=spread_over_nodes(cluster, COMPONENT),
    )
    spec: KubeObject = {
        "replicas": 0 if around.hibernated else workers.replicas,
        "serviceName": names.worker_hosts,
        "ordinals": {"start": 1},
        "podManagementPolicy": "Parallel",
        # The operator restarts them one by one, never during a split, a backup or a restore.
        "updateStrategy": {"type": "OnDelete"},
        # Who scales it by hand must not lose stores: the operator deletes the claims of stores that the manifest drops.
        "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Retain", "whenScaled": "Retain"},
        "selector": {"matchLabels": selector(cluster, COMPONENT)},
        "template": build_pod_template(cluster, COMPONENT, pod),
        "volumeClaimTemplates": [volume_claim(CLAIM, size, workers.storage.storage_class_name)],
    }
    return build_object(cluster, around, "apps/v1", "StatefulSet", names.workers, COMPONENT, spec=spec)


def _listen_address(around: BuildContext) -> str:
    host = listen_host(around)
    return f"[{host}]" if ":" in host else host
