"""``spec.bootstrap`` of a manifest: how the cluster begins, if not with an empty log."""

from __future__ import annotations

from typing import Final, Literal, Self

from pydantic import ConfigDict, Field, model_validator

from txlog.config.backup_policy import BackupTargetSpec
from txlog.config.manifest_model import ManifestModel, cel_rules, expected_error
from txlog.config.resource_specs import RESOURCE_NAME_PATTERN

MOMENT_PATTERN: Final = (
    r"^(latest|time:[0-9T:.+Zz-]{10,40}|position:[0-9]{1,18}:[0-9a-f]{8,32}"
    r"|(before:)?[a-z0-9-]{1,63}\.[0-9a-f]{16}\.[0-9]{1,18})$"
)
"""As ``txlog restore --to`` takes it."""
COPY_NEEDS_POSITION: Final = "position:INDEX:HASH for a copy, whose stores are filled later than its log is founded"


class RecoveryArchiveSpec(ManifestModel):
    """The archive of the lost cluster."""

    target: BackupTargetSpec
    cluster: str | None = Field(
        default=None,
        pattern=r"^[0-9a-f]{32}$",
        description="Id of the lost cluster. By default the only one that the target has.",
    )
    data_center: str | None = Field(
        default=None,
        pattern=RESOURCE_NAME_PATTERN,
        description="Whose archive it is. By default the only one that the target has.",
    )


class RecoverySpec(ManifestModel):
    """A new cluster from the archive of a lost one. All data centres name the same archive."""

    model_config = ConfigDict(
        json_schema_extra=cel_rules(
            ("self.__as__ != 'copy' || self.to.startsWith('position:')", f"to: {COPY_NEEDS_POSITION}")
        )
    )
    archive: RecoveryArchiveSpec
    backups: BackupTargetSpec | None = Field(
        default=None, description="Where the backups are. By default the target of the archive."
    )
    to: str = Field(
        default="latest",
        pattern=MOMENT_PATTERN,
        description="Moment of the log: `latest`, `time:…`, `position:INDEX:HASH`, a transaction, or `before:` one.",
    )
    as_: Literal["successor", "copy"] = Field(
        default="successor",
        alias="as",
        description="`successor`: takes the place of the lost cluster, once. `copy`: takes no place.",
    )
    base: str | None = Field(
        default=None,
        pattern=r"^[A-Za-z0-9._-]{1,200}$",
        description="The backup to begin with, or `empty`. By default the newest one that fits.",
    )
    without_older_keys: bool = Field(
        default=False,
        strict=True,
        description="Also where the archive lacks idempotency keys that are younger than `keyRetention`.",
    )
    supersede: int | None = Field(
        default=None, ge=1, le=9999, strict=True, description="Number of the recovery that this one replaces."
    )

    @model_validator(mode="after")
    def _check_copy(self) -> Self:
        if self.as_ == "copy" and not self.to.startswith("position:"):
            raise expected_error(COPY_NEEDS_POSITION, "to")
        return self


class BootstrapSpec(ManifestModel):
    """How a cluster begins. Has an effect only before the first master has a journal."""

    recovery: RecoverySpec | None = None
