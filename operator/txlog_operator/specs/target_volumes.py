"""The volumes through which a pod reaches a target of backups or of the archive. Pure."""

from __future__ import annotations

from txlog.config.backup_policy import BackupTargetSpec
from txlog_operator.specs.common import SECRETS_FOLDER, KubeObject

VolumeMount = tuple[KubeObject, KubeObject]
"""A volume of a pod, and its mount in a container."""


def target_volumes(name: str, secret_name: str, target: BackupTargetSpec) -> list[VolumeMount]:
    """The folder as the volume ``name``, or the credentials of S3 as ``secret_name``; none where S3 needs none."""
    if target.folder is not None:
        volume = {"name": name, "persistentVolumeClaim": {"claimName": target.folder.claim_name}}
        return [(volume, {"name": name, "mountPath": target.folder.path})]
    if target.s3 is None or target.s3.secret_ref is None:
        return []
    secret = target.s3.secret_ref.name
    volume = {"name": secret_name, "secret": {"secretName": secret}}
    return [(volume, {"name": secret_name, "mountPath": str(SECRETS_FOLDER / secret), "readOnly": True})]


def add_other(found: list[VolumeMount], more: list[VolumeMount]) -> None:
    """Adds those that are mounted at another path than all before: two targets may be in one folder."""
    paths = [mount["mountPath"] for _, mount in found]
    found += [(volume, mount) for volume, mount in more if mount["mountPath"] not in paths]
