"""Where backups lie, as this room sees it: objects by key (``<backup>/<object>``), written once and whole."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from txlog.backup.folder import FolderTarget
from txlog.backup.stored import Stored
from txlog.config.process import FolderConfig, S3Config, TargetConfig


class Target(Protocol):
    """Every call raises :class:`~txlog.backup.faults.TargetUnreachable`,
    :class:`~txlog.backup.faults.TargetFull` or :class:`~txlog.backup.faults.TargetDenied`, each naming the target."""

    @property
    def where(self) -> str:
        """For people: a folder, or ``s3://bucket/prefix``."""

    def write(self, key: str, data: bytes) -> None:
        """Whole and durable when it returns, else not there (leftovers have other keys). Never over another."""

    def read(self, key: str, bytes_max: int) -> bytes:
        """The whole object; at most ``bytes_max + 1`` bytes of a longer one.
        :class:`~txlog.backup.faults.ObjectMissing`."""

    def objects(self, prefix: str = "") -> Iterator[Stored]:
        """Every object whose key begins with ``prefix``, leftovers too; any order."""

    def delete(self, keys: list[str]) -> None:
        """Gone when it returns; one that is not there is no error."""


def open_target(config: TargetConfig) -> Target:
    """Touches nothing yet, except that a folder must be there. :class:`~txlog.model.errors.BadInput` for what cannot
    be used as it is."""
    if isinstance(config, FolderConfig):
        return FolderTarget(config.folder)
    assert isinstance(config, S3Config)
    from txlog.backup.s3 import S3Target  # slow to import, and folders do without

    return S3Target(config)
