"""The process that makes the change sets of a data centre: a StatefulSet of one pod with a volume. Pure."""

from __future__ import annotations

from typing import Final

from txlog.config.cluster import TxLogCluster
from txlog.config.process_config import ChangeSetsConfig
from txlog.config.process_config_builder import build_change_sets_config
from txlog_operator.object_names import ObjectNames, short_hash
from txlog_operator.specs.common import (
    CHANGE_SETS_PORT,
    CONFIG_FOLDER,
    CONFIG_HASH_ANNOTATION,
    CONFIG_MOUNT,
    DATA_FOLDER,
    HOME_VARIABLE,
    PEER_TOKEN_FOLDER,
    PEER_TOKEN_KEY,
    TMP_MOUNT,
    BuildContext,
    KubeObject,
    build_object,
    config_text,
    container,
    headless_service,
    internal_credentials,
    listen_host,
    master_urls,
    peer_token_secret,
    pod_spec,
    resource_requirements,
    selector,
    volume_claim,
)
from txlog_operator.specs.pod_template import build_pod_template

COMPONENT: Final = "changesets"
CLAIM: Final = "changes"
"""The volume claim of the store and its change log."""
CONFIG_FILE: Final = "changesets.json"
TERMINATION_GRACE_S: Final = 60
"""A checkpoint is written at the end."""
REQUESTS: Final = {"cpu": "100m", "memory": "512Mi", "ephemeral-storage": "64Mi"}
"""Where the manifest names none."""


def change_sets_config(cluster: TxLogCluster, around: BuildContext) -> ChangeSetsConfig | None:
    """The configuration of the process; None where the manifest wants no change sets."""
    return build_change_sets_config(
        cluster,
        master_urls(cluster),
        folder=DATA_FOLDER / "changesets",
        host=listen_host(around),
        port=CHANGE_SETS_PORT,
        token_file=PEER_TOKEN_FOLDER / PEER_TOKEN_KEY,
    )


def change_set_objects(cluster: TxLogCluster, around: BuildContext) -> list[KubeObject]:
    """The ConfigMap, the headless Service and the StatefulSet; none where the manifest wants no change sets. The claim
    outlives a hibernation."""
    config = change_sets_config(cluster, around)
    if config is None:
        return []
    name = ObjectNames(cluster).change_sets
    text = config_text(config)
    storage = cluster.spec.change_sets.storage
    size = around.volume_sizes.get(COMPONENT, storage.size)
    spec: KubeObject = {
        "replicas": 0 if around.hibernated else 1,
        "serviceName": name,
        "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Retain", "whenScaled": "Retain"},
        "selector": {"matchLabels": selector(cluster, COMPONENT)},
        "template": build_pod_template(
            cluster, COMPONENT, _pod(cluster, around, name), {CONFIG_HASH_ANNOTATION: short_hash(text)}
        ),
        "volumeClaimTemplates": [volume_claim(CLAIM, size, storage.storage_class_name)],
    }
    return [
        build_object(cluster, around, "v1", "ConfigMap", name, COMPONENT, data={CONFIG_FILE: text}),
        headless_service(cluster, around, name, COMPONENT, {"http": CHANGE_SETS_PORT}),
        build_object(cluster, around, "apps/v1", "StatefulSet", name, COMPONENT, spec=spec),
    ]


def _pod(cluster: TxLogCluster, around: BuildContext, config: str) -> KubeObject:
    own = internal_credentials(cluster)
    live = {"httpGet": {"path": "/health/live", "port": "http"}}
    capture = container(
        cluster,
        around,
        COMPONENT,
        ["python", "-m", "txlog.capture", f"--config={CONFIG_FOLDER}/{CONFIG_FILE}"],
        env=[HOME_VARIABLE, *own.env],
        ports=[{"name": "http", "containerPort": CHANGE_SETS_PORT}],
        resources=resource_requirements(cluster.spec.change_sets.resources, REQUESTS),
        startupProbe={**live, "periodSeconds": 1, "failureThreshold": 600},
        livenessProbe={**live, "periodSeconds": 10, "timeoutSeconds": 10, "failureThreshold": 6},
        readinessProbe={"httpGet": {"path": "/health/ready", "port": "http"}, "periodSeconds": 5, "timeoutSeconds": 5},
        terminationMessagePolicy="FallbackToLogsOnError",
        volumeMounts=[
            {"name": CLAIM, "mountPath": str(DATA_FOLDER)},
            CONFIG_MOUNT,
            {"name": "peer-token", "mountPath": str(PEER_TOKEN_FOLDER), "readOnly": True},
            *own.mounts,
            TMP_MOUNT,
        ],
    )
    volumes: list[KubeObject] = [
        {"name": "config", "configMap": {"name": config}},
        {"name": "peer-token", "secret": {"secretName": peer_token_secret(cluster)}},
        *own.volumes,
    ]
    return pod_spec(around, [capture], volumes, terminationGracePeriodSeconds=TERMINATION_GRACE_S)
