"""The other resources: one backup, one restore, backups again and again. Their data centre is a ``TxLogCluster`` of the
same namespace."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from txlog.config.cluster import NAME_PATTERN, ObjectMeta
from txlog.config.cluster_status import TIME_PATTERN
from txlog.config.manifest_model import ManifestModel
from txlog.config.schedule import parse_schedule

NODE_PATTERN = r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$"


class BackupSpec(ManifestModel):
    """Goes where ``backup.target`` of the cluster says. Never changed: make another one."""

    cluster: str = Field(pattern=NAME_PATTERN, description="the TxLogCluster")
    why: Literal["manual", "schedule", "split"] = "manual"
    duty: str | None = Field(
        default=None, max_length=200, description="of the masters, that this performs; the operator writes it"
    )


class RestoreSpec(ManifestModel):
    """A worker made anew. Everything that it holds goes. Never changed: make another one."""

    cluster: str = Field(pattern=NAME_PATTERN, description="the TxLogCluster")
    worker: str = Field(pattern=NODE_PATTERN, description="such as uk-worker-1")
    duty: str | None = Field(
        default=None, max_length=200, description="of the masters, that this performs; the operator writes it"
    )


def _validate_schedule(text: str) -> str:
    parse_schedule(text)
    return text


class ScheduleSpec(ManifestModel):
    """Backups of a cluster, each a TxLogBackup ``<this name>-<minute>``. One that is due while the last still runs is
    passed over, as is what was due while no operator ran."""

    cluster: str = Field(pattern=NAME_PATTERN, description="the TxLogCluster")
    schedule: Annotated[str, AfterValidator(_validate_schedule)] = Field(
        max_length=200, description="five fields as in cron (UTC), @daily and its like, or @every 6h"
    )
    suspend: bool = False


class JobStatus(ManifestModel):
    """Of a backup or restore. ``job`` performs it; ``result`` is what that said last."""

    state: Literal["Waiting", "Running", "Done", "Failed"] = "Waiting"
    job: str | None = None
    attempts: int = Field(default=0, ge=0)
    started: str | None = Field(default=None, pattern=TIME_PATTERN, max_length=20)
    finished: str | None = Field(default=None, pattern=TIME_PATTERN, max_length=20)
    backup: str | None = Field(default=None, description="its name at the target")
    position: str | None = None
    released: bool | None = Field(default=None, description="of a split's backup: kept no longer than others")
    message: str | None = Field(default=None, max_length=2000)


class ScheduleStatus(ManifestModel):
    last: str | None = Field(default=None, description="the TxLogBackup made last")
    next: str | None = Field(default=None, pattern=TIME_PATTERN, max_length=20)
    message: str | None = Field(default=None, max_length=2000)


class TxLogBackup(ManifestModel):
    api_version: Literal["txlog.io/v1alpha1"]
    kind: Literal["TxLogBackup"]
    metadata: ObjectMeta
    spec: BackupSpec


class TxLogRestore(ManifestModel):
    api_version: Literal["txlog.io/v1alpha1"]
    kind: Literal["TxLogRestore"]
    metadata: ObjectMeta
    spec: RestoreSpec


class TxLogBackupSchedule(ManifestModel):
    api_version: Literal["txlog.io/v1alpha1"]
    kind: Literal["TxLogBackupSchedule"]
    metadata: ObjectMeta
    spec: ScheduleSpec
