"""Backups and duties of a data centre as Jobs. A Job makes one attempt; the operator creates the next one. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from txlog.config.cluster import TxLogCluster
from txlog.config.process_config import DutyJobConfig, FolderConfig, TargetConfig
from txlog.config.process_config_builder import (
    archive_target,
    build_backup_config,
    build_rehearsal_config,
    build_target_config,
)
from txlog_operator.object_names import GROUP, ObjectNames
from txlog_operator.specs.common import (
    CONFIG_FOLDER,
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
    labels,
    master_urls,
    pod_spec,
    volume_claim,
)
from txlog_operator.specs.pod_template import build_pod_template
from txlog_operator.specs.target_volumes import VolumeMount, add_other, target_volumes

COMPONENT: Final = "backup"
DUTY_COMPONENT: Final = "duty"
"""Component of the Jobs of duties: they do not wait for other backups."""
SCHEDULE_COMPONENT: Final = "schedule"
BACKUPS_FOLDER: Final = Path("/backups")
"""Folder of split backups when the manifest names no target: a volume of its own."""
DUTY_PROGRAM: Final = "txlog.backup.duty"
REHEARSAL_PROGRAM: Final = "txlog.rehearsal"
REHEARSAL_CONFIG_FILE: Final = "rehearsal.json"
DUTY_CONFIG_FILE: Final = "duty.json"
BACKUP_CONFIG_FILE: Final = "backup.json"
TERMINATION_LOG: Final = "/dev/termination-log"
JOB_KEPT_S: Final = 24 * 3600
"""Kubernetes removes an ended Job after so many seconds."""
DEADLINE_S: Final = 24 * 3600
"""After so many seconds Kubernetes ends a Job: one that hangs must not stop all that follow."""
REQUESTS: Final = {"cpu": "100m", "memory": "256Mi", "ephemeral-storage": "64Mi"}
"""Of each Job. A ResourceQuota admits no pod without requests."""
REHEARSAL_REQUESTS: Final = {"cpu": "100m", "memory": "512Mi"}
"""With a store in the same container."""
WORK_ANNOTATION: Final = f"{GROUP}/work"
"""Which resource a Job is for, as kind/name/uid."""


def backup_target(cluster: TxLogCluster) -> TargetConfig:
    """The target of the manifest, else the volume for split backups."""
    backup = cluster.spec.backup
    if backup is None:
        return FolderConfig(folder=BACKUPS_FOLDER)
    return build_target_config(backup.target, lambda name: SECRETS_FOLDER / name)


def config_map(cluster: TxLogCluster, around: BuildContext) -> KubeObject:
    """The ConfigMap with the configuration of Jobs."""
    target, masters = backup_target(cluster), master_urls(cluster)
    duty = DutyJobConfig(data_center=cluster.data_center, masters=masters, target=target)
    data = {DUTY_CONFIG_FILE: config_text(duty)}
    if cluster.spec.backup is not None:
        # Each TxLogBackup says for itself whether it is an incremental one.
        config = build_backup_config(cluster, masters, target).model_copy(update={"incremental": False})
        data[BACKUP_CONFIG_FILE] = config_text(config)
    rehearsal = build_rehearsal_config(cluster, masters, lambda name: SECRETS_FOLDER / name)
    if rehearsal is not None:
        data[REHEARSAL_CONFIG_FILE] = config_text(rehearsal)
    return build_object(cluster, around, "v1", "ConfigMap", ObjectNames(cluster).jobs, COMPONENT, data=data)


def split_backup_volume(cluster: TxLogCluster, around: BuildContext) -> list[KubeObject]:
    """The volume for split backups, where the manifest names no target. It has no owner: its content outlives the
    resource."""
    if cluster.spec.backup is not None:
        return []
    names, storage = ObjectNames(cluster), cluster.spec.workers.storage
    size = around.volume_sizes.get(COMPONENT, storage.size)
    found = volume_claim(names.split_backups, size, storage.storage_class_name, labels(cluster, COMPONENT))
    found["metadata"]["namespace"] = names.namespace
    return [found]


def backup_schedules(cluster: TxLogCluster, around: BuildContext) -> list[KubeObject]:
    """The TxLogBackupSchedule of the manifest."""
    backup = cluster.spec.backup
    if backup is None or backup.schedule is None:
        return []
    spec: KubeObject = {"cluster": cluster.metadata.name, "schedule": backup.schedule}
    if backup.incremental:
        spec["incremental"] = True
    name = cluster.metadata.name
    return [
        build_object(cluster, around, cluster.api_version, "TxLogBackupSchedule", name, SCHEDULE_COMPONENT, spec=spec)
    ]


def backup_command(name: str, why: str, *, is_incremental: bool = False) -> list[str]:
    """The command of a backup with this name and reason."""
    return [
        "python",
        "-m",
        "txlog.backup",
        f"--config={CONFIG_FOLDER}/{BACKUP_CONFIG_FILE}",
        f"--name={name}",
        f"--why={why}",
        *(["--kind=incremental"] if is_incremental else []),
    ]


def rehearsal_command() -> list[str]:
    """The command of a rehearsal. It starts a store beside itself, which lies in the pod's temporary folder."""
    return ["python", "-m", REHEARSAL_PROGRAM, f"--config={CONFIG_FOLDER}/{REHEARSAL_CONFIG_FILE}"]


def duty_command(*way: str) -> list[str]:
    """The command of a duty; ``way`` are its options."""
    return ["python", "-m", DUTY_PROGRAM, f"--config={CONFIG_FOLDER}/{DUTY_CONFIG_FILE}", *way]


def build_job(
    cluster: TxLogCluster, around: BuildContext, name: str, command: Sequence[str], work: str = ""
) -> KubeObject:
    """A Job that runs ``command`` once, without retries. A pod that a drain or a preemption ended is no attempt: it is
    created again. ``work``: which resource the Job is for."""
    component = DUTY_COMPONENT if command[2] == DUTY_PROGRAM else COMPONENT
    names, own = ObjectNames(cluster), internal_credentials(cluster)
    is_rehearsal = command[2] == REHEARSAL_PROGRAM
    mounts = [CONFIG_MOUNT, *own.mounts, TMP_MOUNT]
    volumes: list[KubeObject] = [{"name": "config", "configMap": {"name": names.jobs}}, *own.volumes]
    for volume, mount in _target_volumes(cluster, with_archive=is_rehearsal):
        volumes.append(volume)
        mounts.append(mount)
    worker = container(
        cluster,
        around,
        component,
        [*command, f"--answer={TERMINATION_LOG}"],
        env=[HOME_VARIABLE, *own.env],
        resources={"requests": dict(REHEARSAL_REQUESTS if is_rehearsal else REQUESTS)},
        terminationMessagePath=TERMINATION_LOG,
        terminationMessagePolicy="FallbackToLogsOnError",
        volumeMounts=mounts,
    )
    pod = pod_spec(around, [worker], volumes, restartPolicy="Never", terminationGracePeriodSeconds=30)
    spec: KubeObject = {
        "backoffLimit": 0,
        "activeDeadlineSeconds": DEADLINE_S,
        "podReplacementPolicy": "Failed",
        "podFailurePolicy": {
            "rules": [
                {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
            ]
        },
        "ttlSecondsAfterFinished": JOB_KEPT_S,
        "template": build_pod_template(cluster, component, pod),
    }
    found = build_object(cluster, around, "batch/v1", "Job", name, component, spec=spec)
    if work:
        found["metadata"]["annotations"] = {WORK_ANNOTATION: work}
    return found


def _target_volumes(cluster: TxLogCluster, *, with_archive: bool) -> list[VolumeMount]:
    """Volume and mount of the backups' target, and of the archive's where it is another one."""
    names, backup = ObjectNames(cluster), cluster.spec.backup
    found: list[VolumeMount] = []
    if backup is not None:
        found += target_volumes("backups", "secret", backup.target)
    elif not with_archive:
        claim = {"name": "backups", "persistentVolumeClaim": {"claimName": names.split_backups}}
        found.append((claim, {"name": "backups", "mountPath": str(BACKUPS_FOLDER)}))
    archive = archive_target(cluster) if with_archive else None
    if archive is not None:
        add_other(found, target_volumes("archive", "archive-secret", archive))
    return found
