"""``spec.archive`` of a manifest: where the log of this data centre is archived, and how soon."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from txlog.config.backup_policy import BackupTargetSpec
from txlog.config.manifest_model import ManifestModel
from txlog.config.process_config import RehearsalLevel
from txlog.config.schedule import validate_schedule
from txlog.config.units import Duration, duration_within


class RehearsalPolicy(ManifestModel):
    """Rehearsals of a recovery from this archive, by a schedule."""

    schedule: Annotated[str, AfterValidator(validate_schedule)] = Field(
        max_length=200, description="Five cron fields (UTC), `@weekly` and the like, or `@every 6h`."
    )
    level: RehearsalLevel = Field(
        default="cluster",
        description="`data`: a journal and a store are made, and the store is compared. `cluster`: a master of the new "
        "cluster is also started; it takes a write, and still knows an idempotency key.",
    )
    max_age: Annotated[Duration, AfterValidator(duration_within("1h", "3650d"))] = Field(
        default=8 * 24 * 3600 * 1000, description="An alert says when the last good rehearsal is older."
    )
    max_rpo: Annotated[Duration, AfterValidator(duration_within("1s", "365d"))] | None = Field(
        default=None,
        description="A rehearsal fails when a loss would cost more than this. By default ten times `maxDelay`, and at "
        "least 10s.",
    )
    max_rto: Annotated[Duration, AfterValidator(duration_within("1s", "365d"))] = Field(
        default=2 * 3600 * 1000, description="A rehearsal fails when the stores are filled later than this."
    )


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
    rehearsal: RehearsalPolicy | None = Field(
        default=None, description="Rehearses a recovery regularly. By default never."
    )
