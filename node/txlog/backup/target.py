"""The interface of a target: objects by key, written once and whole. Backups are ``<backup>/<object>``; the keys of the
archive are nested, in a folder whose name begins with ``_``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from txlog.backup.folder_target import FolderTarget
from txlog.backup.nested_target import NestedTarget
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
        """The object is whole and durable on return, otherwise absent (leftovers have other keys). Never overwrites."""

    def create(self, key: str, data: bytes) -> bool:
        """As :meth:`write`; False when an object of this key exists, which may also be this call's own, when the answer
        to its first attempt was lost. Of two processes that create one key at once, one gets True at most."""

    def read(self, key: str, bytes_max: int) -> bytes:
        """The whole object; at most ``bytes_max + 1`` bytes of a longer one.
        :class:`~txlog.backup.backup_errors.ObjectMissing`."""

    def list_objects(self, prefix: str = "") -> Iterator[StoredObject]:
        """Every object ``<folder>/<object>`` whose key begins with ``prefix``, including leftovers, in any order.
        Without a prefix the folders whose names begin with ``_`` are left out."""

    def list_nested(self, folder: str, after: str = "") -> Iterator[StoredObject]:
        """Every object below ``folder``, however deep, whose key is above ``after``; including leftovers, in any
        order."""

    def delete(self, keys: list[str]) -> None:
        """The objects are gone on return; a missing one is no error."""


def open_target(config: TargetConfig) -> BackupTarget:
    """Opens a target without a request; a folder must exist. :class:`~txlog.model.errors.BadInput` for an unusable
    configuration."""
    outer = _open_whole(config)
    return outer if config.repository is None else NestedTarget(outer, config.repository)


def _open_whole(config: TargetConfig) -> BackupTarget:
    if isinstance(config, FolderConfig):
        return FolderTarget(config.folder)
    assert isinstance(config, S3Config)
    from txlog.backup.s3_target import S3Target  # slow to import, and not needed for folders

    return S3Target(config)
