"""Backups and the duties of a data centre, as Jobs: each is tried once, and tried again by who made it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from txlog.config.cluster import TxLogCluster
from txlog.config.process_config import DutyJobConfig, FolderConfig, TargetConfig
from txlog.config.process_config_builder import build_backup_config, build_target_config
from txlog.operator.build.common import (
    CONFIG,
    SECRETS,
    TMP,
    Around,
    Object,
    claim,
    container,
    labels,
    made,
    master_urls,
    own_access,
    pod_spec,
)
from txlog.operator.names import Names

COMPONENT: Final = "backup"
DUTY: Final = "duty"
"""Of what is made for a duty: it waits for no backup that was asked for otherwise."""
SCHEDULE: Final = "schedule"
BACKUPS: Final = Path("/backups")
"""Where split backups go when the manifest names no target: a volume of its own."""
DUTY_PROGRAM: Final = "txlog.backup.duty_job"
DUTY_FILE: Final = "duty.json"
BACKUP_FILE: Final = "backup.json"
ANSWER: Final = "/dev/termination-log"


def target_of(cluster: TxLogCluster) -> TargetConfig:
    backup = cluster.spec.backup
    if backup is None:
        return FolderConfig(folder=BACKUPS)
    return build_target_config(backup.target, lambda name: SECRETS / name)


def config_map(cluster: TxLogCluster, around: Around) -> Object:
    """What Jobs are told."""
    target, masters = target_of(cluster), master_urls(cluster)
    duty = DutyJobConfig(data_center=cluster.data_center, masters=masters, target=target)
    data = {DUTY_FILE: duty.model_dump_json(indent=1, exclude_defaults=True) + "\n"}
    if cluster.spec.backup is not None:
        told = build_backup_config(cluster, masters, target)
        data[BACKUP_FILE] = told.model_dump_json(indent=1, exclude_defaults=True) + "\n"
    return made(cluster, around, "v1", "ConfigMap", Names(cluster).jobs, COMPONENT, data=data)


def volume(cluster: TxLogCluster) -> list[Object]:
    """For split backups, where the manifest names no target. Nobody owns it: what is in it outlives the resource."""
    if cluster.spec.backup is not None:
        return []
    names, size = Names(cluster), cluster.spec.workers.storage
    found = claim(names.split_backups, size.size, size.storage_class_name, labels(cluster, COMPONENT))
    found["metadata"]["namespace"] = names.namespace
    return [found]


def schedules(cluster: TxLogCluster, around: Around) -> list[Object]:
    """The schedule that the manifest asks for."""
    backup = cluster.spec.backup
    if backup is None or backup.schedule is None:
        return []
    spec = {"cluster": cluster.metadata.name, "schedule": backup.schedule}
    name = cluster.metadata.name
    return [made(cluster, around, cluster.api_version, "TxLogBackupSchedule", name, SCHEDULE, spec=spec)]


def backup_command(name: str, why: str) -> list[str]:
    return ["python", "-m", "txlog.backup", f"--config={CONFIG}/{BACKUP_FILE}", f"--name={name}", f"--why={why}"]


def duty_command(*way: str) -> list[str]:
    return ["python", "-m", DUTY_PROGRAM, f"--config={CONFIG}/{DUTY_FILE}", *way]


def job(cluster: TxLogCluster, around: Around, name: str, command: Sequence[str]) -> Object:
    component = DUTY if command[2] == DUTY_PROGRAM else COMPONENT
    names, backup, own = Names(cluster), cluster.spec.backup, own_access(cluster)
    mounts = [{"name": "config", "mountPath": str(CONFIG), "readOnly": True}, *own.mounts, TMP]
    volumes: list[Object] = [{"name": "config", "configMap": {"name": names.jobs}}, *own.volumes]
    if backup is None:
        mounts.append({"name": "backups", "mountPath": str(BACKUPS)})
        volumes.append({"name": "backups", "persistentVolumeClaim": {"claimName": names.split_backups}})
    elif backup.target.folder is not None:
        mounts.append({"name": "backups", "mountPath": backup.target.folder.path})
        volumes.append({"name": "backups", "persistentVolumeClaim": {"claimName": backup.target.folder.claim_name}})
    elif backup.target.s3 is not None and backup.target.s3.secret_ref is not None:
        secret = backup.target.s3.secret_ref.name
        mounts.append({"name": "secret", "mountPath": str(SECRETS / secret), "readOnly": True})
        volumes.append({"name": "secret", "secret": {"secretName": secret}})
    worker = container(
        cluster,
        around,
        component,
        [*command, f"--answer={ANSWER}"],
        env=[{"name": "HOME", "value": "/tmp"}, *own.env],
        terminationMessagePath=ANSWER,
        terminationMessagePolicy="FallbackToLogsOnError",
        volumeMounts=mounts,
    )
    pod = pod_spec([worker], volumes, restartPolicy="Never", terminationGracePeriodSeconds=30)
    spec: Object = {
        "backoffLimit": 0,
        "ttlSecondsAfterFinished": 24 * 3600,
        "template": {"metadata": {"labels": labels(cluster, component)}, "spec": pod},
    }
    return made(cluster, around, "batch/v1", "Job", name, component, spec=spec)
