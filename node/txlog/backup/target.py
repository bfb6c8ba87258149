"""Where backups lie, as this room sees it: objects by key (``<backup>/<object>``), written once and whole."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from txlog.backup.folder_target import FolderTarget
from txlog.backup.stored_object import StoredObject
from txlog.config.process_config import FolderConfig, S3Config, TargetConfig


class BackupTarget(Protocol):
    """Every call raises :class:`~txlog.backup.backup_errors.TargetUnreachable`,
    :class:`~txlog.backup.backup_errors.TargetFull` or :class:`~txlog.backup.backup_errors.TargetDenied`, each naming
    the target."""

    @property
    def location(self) -> str:
        """For people: a folder, or ``s3://bucket/prefix``."""

    def write(self, key: str, data: bytes) -> None:
        """Whole and durable when it returns, else not there (leftovers have other keys). Never over another."""

    def read(self, key: str, bytes_max: int) -> bytes:
        """The whole object; at most ``bytes_max + 1`` bytes of a longer one.
        :class:`~txlog.backup.backup_errors.ObjectMissing`."""

    def list_objects(self, prefix: str = "") -> Iterator[StoredObject]:
        """Every object whose key begins with ``prefix``, leftovers too; any order."""

    def delete(self, keys: list[str]) -> None:
        """Gone when it returns; one that is not there is no error."""


def open_target(config: TargetConfig) -> BackupTarget:
    """Touches nothing yet, except that a folder must be there. :class:`~txlog.model.errors.BadInput` for what cannot
    be used as it is."""
    if isinstance(config, FolderConfig):
        return FolderTarget(config.folder)
    assert isinstance(config, S3Config)
    from txlog.backup.s3_target import S3Target  # slow to import, and folders do without

    return S3Target(config)
