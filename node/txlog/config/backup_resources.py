"""The other resources: one backup, one restore, one rehearsal, backups again and again. Their data centre is a
``TxLogCluster`` of the same namespace."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from txlog.config.cluster import NAME_PATTERN
from txlog.config.cluster_status import TimeText
from txlog.config.manifest_model import ManifestModel
from txlog.config.schedule import validate_schedule

NODE_PATTERN = r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$"


class BackupSpec(ManifestModel):
    """One backup, written to the cluster's ``backup.target``. It cannot be changed."""

    cluster: str = Field(pattern=NAME_PATTERN, description="Name of the TxLogCluster in the same namespace.")
    why: Literal["manual", "schedule", "split"] = Field(
        default="manual",
        description="What the backup is for. Retention deletes scheduled and released split backups only.",
    )
    incremental: bool = Field(
        default=False,
        description="An incremental backup where one is possible, else a full one. Split backups are always full.",
    )
    duty: str | None = Field(
        default=None, max_length=200, description="Id of the duty that this performs. The operator sets it."
    )


class RestoreSpec(ManifestModel):
    """Rebuilds one worker, whatever it contains. It cannot be changed."""

    cluster: str = Field(pattern=NAME_PATTERN, description="Name of the TxLogCluster in the same namespace.")
    worker: str = Field(pattern=NODE_PATTERN, description="Name of the worker, such as `uk-worker-1`.")
    duty: str | None = Field(
        default=None, max_length=200, description="Id of the duty that this performs. The operator sets it."
    )


class RehearsalSpec(ManifestModel):
    """Rehearses a recovery from the cluster's archive once. It cannot be changed."""

    cluster: str = Field(pattern=NAME_PATTERN, description="Name of the TxLogCluster in the same namespace.")
    why: Literal["manual", "schedule"] = Field(
        default="manual", description="The operator sets `schedule` for those of `archive.rehearsal`."
    )


class ScheduleSpec(ManifestModel):
    """Creates a TxLogBackup regularly. A backup is skipped while the last one runs. One that was due while no operator
    ran is made when one runs again, once."""

    cluster: str = Field(pattern=NAME_PATTERN, description="Name of the TxLogCluster in the same namespace.")
    schedule: Annotated[str, AfterValidator(validate_schedule)] = Field(
        max_length=200, description="Five cron fields (UTC), `@daily` and the like, or `@every 6h`."
    )
    incremental: bool = Field(
        default=False,
        description="Its backups are incremental where that is possible. The operator sets it for the schedule of "
        "`backup`, from `backup.incremental`.",
    )
    suspend: bool = Field(default=False, description="No backups are created while it is true.")


class JobStatus(ManifestModel):
    """Progress and result of a backup, a restore or a rehearsal. The operator writes it."""

    state: Literal["Waiting", "Running", "Done", "Failed"] = Field(
        default="Waiting", description="Progress of the backup, restore or rehearsal."
    )
    job: str | None = Field(default=None, description="Name of the Kubernetes Job.")
    attempts: int = Field(default=0, ge=0, description="Number of attempts so far.")
    started: TimeText | None = Field(default=None, description="Start of the last attempt.")
    finished: TimeText | None = Field(default=None, description="End of the last attempt.")
    backup: str | None = Field(default=None, description="Name of the backup at the target.")
    position: str | None = Field(
        default=None, description="Position of the backup, of the restored worker, or of the rehearsal's comparison."
    )
    released: bool | None = Field(default=None, description="Whether a split backup is no longer pinned.")
    message: str | None = Field(default=None, max_length=2000, description="Result or error, in words.")


class ScheduleStatus(ManifestModel):
    """The last and the next backup. The operator writes it."""

    last: str | None = Field(default=None, description="Name of the newest TxLogBackup of this schedule.")
    next: TimeText | None = Field(default=None, description="When the next backup is due.")
    message: str | None = Field(
        default=None, max_length=2000, description="Why a backup was skipped, or what is invalid."
    )
