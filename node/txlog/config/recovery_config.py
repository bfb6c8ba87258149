"""The start configuration of what founds a cluster from an archive, and of what fills its stores."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pydantic import Field

from txlog.config.cluster import TxLogCluster
from txlog.config.process_config import StrictModel, TargetConfig
from txlog.config.process_config_builder import build_target_config


class RecoveryConfig(StrictModel):
    """As :class:`~txlog.config.recovery_policy.RecoverySpec`. ``backups``: None for the target of the archive."""

    archive: TargetConfig
    backups: TargetConfig | None = None
    cluster: str | None = None
    data_center: str | None = None
    to: str = "latest"
    is_copy: bool = False
    base: str | None = None
    without_older_keys: bool = False
    supersede: int | None = Field(default=None, ge=1)


def build_recovery_config(cluster: TxLogCluster, secret_folder: Callable[[str], Path]) -> RecoveryConfig | None:
    """None without ``spec.bootstrap.recovery``. ``secret_folder`` as in
    :func:`~txlog.config.process_config_builder.build_target_config`."""
    bootstrap = cluster.spec.bootstrap
    if bootstrap is None or bootstrap.recovery is None:
        return None
    found = bootstrap.recovery
    return RecoveryConfig(
        archive=build_target_config(found.archive.target, secret_folder),
        backups=build_target_config(found.backups, secret_folder) if found.backups is not None else None,
        cluster=found.archive.cluster,
        data_center=found.archive.data_center,
        to=found.to,
        is_copy=found.as_ == "copy",
        base=found.base,
        without_older_keys=found.without_older_keys,
        supersede=found.supersede,
    )
