"""``spec.backup`` of a manifest: where and when backups are taken, and how long they are kept."""

from __future__ import annotations

from typing import Annotated, Final, Self

from pydantic import AfterValidator, ConfigDict, Field, model_validator

from txlog.config.manifest_model import ManifestModel, cel_rules, expected_error
from txlog.config.process_config import INCREMENTS_DEFAULT
from txlog.config.resource_specs import RESOURCE_NAME_PATTERN, SecretRef
from txlog.config.schedule import validate_schedule

INCREMENTS_MAX: Final = 1000


class S3TargetSpec(ManifestModel):
    """A bucket of S3 or of a compatible object store."""

    bucket: str = Field(pattern=r"^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$", description="Name of the bucket.")
    prefix: str = Field(
        default="", pattern=r"^[A-Za-z0-9!_.*'()/-]{0,512}$", description="Prefix of the keys of all objects."
    )
    endpoint: str | None = Field(
        default=None, pattern=r"^https?://[^\s]+$", description="URL of the object store, by default that of AWS."
    )
    region: str = Field(default="us-east-1", pattern=r"^[a-z0-9-]{1,63}$", description="Region of the bucket.")
    secret_ref: SecretRef | None = Field(
        default=None,
        description="Secret with `AWS_ACCESS_KEY_ID` and `AWS_SECRET_ACCESS_KEY`. `txlog up` reads them as files in "
        "`secrets/<name>` of its state folder, or from its environment.",
    )


class FolderTargetSpec(ManifestModel):
    """A folder that is mounted where backups run."""

    path: str = Field(pattern=r"^/.*$", description="Absolute path of the folder.")
    claim_name: str | None = Field(
        default=None,
        pattern=RESOURCE_NAME_PATTERN,
        description="PersistentVolumeClaim that is mounted at this path. Required on Kubernetes, without effect "
        "elsewhere.",
    )


class BackupTargetSpec(ManifestModel):
    """Where backups are written: ``s3`` or ``folder``."""

    model_config = ConfigDict(json_schema_extra=cel_rules(("has(self.s3) != has(self.folder)", "either s3 or folder")))
    s3: S3TargetSpec | None = None
    folder: FolderTargetSpec | None = None

    @model_validator(mode="after")
    def _exactly_one_target(self) -> Self:
        if (self.s3 is None) == (self.folder is None):
            raise expected_error("either s3 or folder" + ("" if self.s3 is None else ", not both"))
        return self


class BackupPolicy(ManifestModel):
    """Backups of this data centre: their target, schedule and retention."""

    target: BackupTargetSpec
    schedule: Annotated[str, AfterValidator(validate_schedule)] | None = Field(
        default=None,
        description="When backups are taken: five cron fields (UTC), `@daily` and the like, or `@every 6h`. By "
        "default never.",
    )
    keep: int = Field(
        default=14,
        ge=1,
        le=10_000,
        strict=True,
        description="Number of newest scheduled and released split backups that are kept.",
    )
    keep_days: int | None = Field(
        default=None, ge=1, le=36_500, strict=True, description="Backups younger than this many days are kept as well."
    )
    incremental: bool = Field(
        default=False,
        description="Scheduled backups are incremental: they hold what the log has changed since the backup before. "
        "After an update, whose changes the log does not list, and after `chain` of them, the next one is a full one.",
    )
    chain: int = Field(
        default=INCREMENTS_DEFAULT,
        ge=1,
        le=INCREMENTS_MAX,
        strict=True,
        description="How many incremental backups may follow a full one. A restore reads all of them.",
    )
    merges: int = Field(
        default=0,
        ge=0,
        le=INCREMENTS_MAX,
        strict=True,
        description="A chain that may not grow is merged on the target, so no full backup reads a worker. This many "
        "times in a row; by default never.",
    )
