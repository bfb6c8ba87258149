"""``spec.archive`` of a manifest: where the log of this data centre is archived, and how soon."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from txlog.config.backup_policy import BackupTargetSpec
from txlog.config.manifest_model import ManifestModel
from txlog.config.units import Duration, duration_within


class ArchivePolicy(ManifestModel):
    """The archive of the log by this data centre: its target and its delay."""

    target: BackupTargetSpec | None = Field(
        default=None, description="Where the archive is written. By default `backup.target`."
    )
    max_delay: Annotated[Duration, AfterValidator(duration_within("100ms", "1h"))] = Field(
        default=1000, description="A stable entry is on the target after this time, while masters and target answer."
    )
    keep: Annotated[Duration, AfterValidator(duration_within("24h", "3650d"))] | None = Field(
        default=None,
        description="The recovery window: every moment so far back stays restorable, and files that no such moment "
        "needs are deleted. `backup.keep` deletes no backup that the window needs. Only without `target`, since the "
        "backups must be on the target of the archive. By default no file is deleted.",
    )
    on_full: Literal["gap", "hold"] = Field(
        default="gap",
        description="The log is kept until it is archived and read back. When the journal has used 80 % of its size, "
        "`gap` trims the log all the same, so the archive has a gap. `hold` keeps the log until the masters refuse "
        "writes.",
    )
