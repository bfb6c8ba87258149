"""The archiver of a data centre, as a Deployment: when its node is lost, Kubernetes starts it on another one. Two at
once write files that cannot hurt each other. Pure."""

from __future__ import annotations

from typing import Final

from txlog.config.cluster import TxLogCluster
from txlog.config.process_config import ArchiverConfig
from txlog.config.process_config_builder import archive_target, build_archiver_config
from txlog_operator.object_names import ObjectNames, short_hash
from txlog_operator.specs.common import (
    CONFIG_FOLDER,
    CONFIG_HASH_ANNOTATION,
    CONFIG_MOUNT,
    HOME_VARIABLE,
    SECRETS_FOLDER,
    TMP_MOUNT,
    BuildContext,
    KubeObject,
    build_object,
    config_text,
    container,
    internal_credentials,
    master_urls,
    pod_spec,
    single_pod_deployment,
)
from txlog_operator.specs.pod_template import build_pod_template
from txlog_operator.specs.target_volumes import target_volumes

COMPONENT: Final = "archiver"
CONFIG_FILE: Final = "archiver.json"
TERMINATION_GRACE_S: Final = 30
"""What was read is archived at the end."""
REQUESTS: Final = {"cpu": "50m", "memory": "256Mi", "ephemeral-storage": "64Mi"}


def archiver_config(cluster: TxLogCluster) -> ArchiverConfig | None:
    """The configuration of the archiver; None without ``spec.archive``."""
    return build_archiver_config(cluster, master_urls(cluster), lambda name: SECRETS_FOLDER / name)


def archiver_objects(cluster: TxLogCluster, around: BuildContext) -> list[KubeObject]:
    """The ConfigMap and the Deployment; none without ``spec.archive``."""
    config = archiver_config(cluster)
    if config is None:
        return []
    name = ObjectNames(cluster).archiver
    text = config_text(config)
    marks = {CONFIG_HASH_ANNOTATION: short_hash(text)}
    template = build_pod_template(cluster, COMPONENT, _pod(cluster, around, name), marks)
    return [
        build_object(cluster, around, "v1", "ConfigMap", name, COMPONENT, data={CONFIG_FILE: text}),
        single_pod_deployment(cluster, around, name, COMPONENT, template),
    ]


def _pod(cluster: TxLogCluster, around: BuildContext, config: str) -> KubeObject:
    own, target = internal_credentials(cluster), archive_target(cluster)
    assert target is not None, "there is an archive"
    mounts = [CONFIG_MOUNT, *own.mounts, TMP_MOUNT]
    volumes: list[KubeObject] = [{"name": "config", "configMap": {"name": config}}, *own.volumes]
    for volume, mount in target_volumes("archive", "secret", target):
        volumes.append(volume)
        mounts.append(mount)
    archiver = container(
        cluster,
        around,
        COMPONENT,
        ["python", "-m", "txlog.archive", f"--config={CONFIG_FOLDER}/{CONFIG_FILE}"],
        env=[HOME_VARIABLE, *own.env],
        resources={"requests": dict(REQUESTS)},
        terminationMessagePolicy="FallbackToLogsOnError",
        volumeMounts=mounts,
    )
    return pod_spec(around, [archiver], volumes, terminationGracePeriodSeconds=TERMINATION_GRACE_S)
