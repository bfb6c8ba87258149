"""``spec.bootstrap.recovery``: a container that runs before the first master, and what fills the stores. Pure."""

from __future__ import annotations

from typing import Final

from txlog.config.cluster import TxLogCluster
from txlog.config.recovery_config import build_recovery_config
from txlog.config.recovery_policy import RecoverySpec
from txlog_operator.object_names import ObjectNames
from txlog_operator.specs.common import (
    CONFIG_FOLDER,
    CONFIG_MOUNT,
    HOME_VARIABLE,
    SECRETS_FOLDER,
    TMP_MOUNT,
    BuildContext,
    KubeObject,
    config_text,
    container,
    internal_credentials,
    pod_spec,
    single_pod_deployment,
)
from txlog_operator.specs.pod_template import build_pod_template
from txlog_operator.specs.target_volumes import VolumeMount, add_other, target_volumes

COMPONENT: Final = "recovery"
CONFIG_FILE: Final = "recovery.json"
"""Key of the configuration, beside those of the masters."""
REQUESTS: Final = {"cpu": "100m", "memory": "512Mi", "ephemeral-storage": "64Mi"}


def recovery_spec(cluster: TxLogCluster) -> RecoverySpec | None:
    """None for a cluster that begins with an empty log."""
    return cluster.spec.bootstrap.recovery if cluster.spec.bootstrap is not None else None


def recovery_files(cluster: TxLogCluster) -> dict[str, str]:
    """What the ConfigMap of the masters holds besides."""
    config = build_recovery_config(cluster, lambda name: SECRETS_FOLDER / name)
    return {CONFIG_FILE: config_text(config)} if config is not None else {}


def recovery_volumes(cluster: TxLogCluster) -> list[KubeObject]:
    """The volumes of the targets."""
    return [volume for volume, _ in _targets(cluster)]


def init_containers(
    cluster: TxLogCluster, around: BuildContext, master: str, env: list[KubeObject], mounts: list[KubeObject]
) -> list[KubeObject]:
    """What founds the cluster before the first master starts; none without a recovery. It does nothing for the other
    masters, or where there is a journal. ``master``: the path of the master's configuration. ``mounts``: of its journal
    and its configuration."""
    if recovery_spec(cluster) is None:
        return []
    return [_successor(cluster, around, "found", master, env, mounts)]


def recovery_objects(cluster: TxLogCluster, around: BuildContext) -> list[KubeObject]:
    """A Deployment that fills the stores of this data centre and then waits; none without a recovery. It ends when
    ``spec.bootstrap`` is removed."""
    if recovery_spec(cluster) is None:
        return []
    names, own = ObjectNames(cluster), internal_credentials(cluster)
    master = f"{CONFIG_FOLDER}/{cluster.data_center}-1.json"
    filler = _successor(cluster, around, "fill", master, own.env, [CONFIG_MOUNT, *own.mounts])
    volumes: list[KubeObject] = [{"name": "config", "configMap": {"name": names.master_hosts}}, *own.volumes]
    pod = pod_spec(around, [filler], [*volumes, *recovery_volumes(cluster)], terminationGracePeriodSeconds=30)
    template = build_pod_template(cluster, COMPONENT, pod)
    return [single_pod_deployment(cluster, around, names.recovery, COMPONENT, template)]


def _successor(
    cluster: TxLogCluster, around: BuildContext, step: str, master: str, env: list[KubeObject], mounts: list[KubeObject]
) -> KubeObject:
    return container(
        cluster,
        around,
        COMPONENT,
        ["python", "-m", "txlog.successor", step, f"--master={master}", f"--config={CONFIG_FOLDER}/{CONFIG_FILE}"],
        env=[HOME_VARIABLE, *env],
        resources={"requests": dict(REQUESTS)},
        terminationMessagePolicy="FallbackToLogsOnError",
        volumeMounts=[*mounts, *(mount for _, mount in _targets(cluster)), TMP_MOUNT],
    )


def _targets(cluster: TxLogCluster) -> list[VolumeMount]:
    """Volume and mount of each target, each once."""
    recovery = recovery_spec(cluster)
    assert recovery is not None, "only a recovery has targets"
    targets = [recovery.archive.target, *([recovery.backups] if recovery.backups is not None else [])]
    found: list[VolumeMount] = []
    for number, target in enumerate(targets):
        name = f"recovery-{number}"
        add_other(found, target_volumes(name, name, target))
    return found
