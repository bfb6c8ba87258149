"""The interface of a target: objects by key, written once and whole. Backups are ``<backup>/<object>``; the keys of the
archive are nested, in a folder whose name begins with ``_``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Protocol

from txlog.backup.stored_object import StoredObject
from txlog.config.process_config import FolderConfig, S3Config, TargetConfig

REPOSITORIES_FOLDER: Final = "_repositories"
"""On a target: a folder for each further repository."""


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


class NestedTarget:
    """The part of a target that belongs to one further repository: backups with the same names and formats, whose keys
    are below the folder of ``repository`` on ``outer``. An older program leaves that folder out, as it does with those
    of archives. The name may have been another repository's before: each backup says of which log it is."""

    def __init__(self, outer: BackupTarget, repository: str) -> None:
        self._outer = outer
        self._folder = f"{REPOSITORIES_FOLDER}/{repository}"

    @property
    def location(self) -> str:
        return f"{self._outer.location}/{self._folder}"

    def write(self, key: str, data: bytes) -> None:
        self._outer.write(self._key(key), data)

    def create(self, key: str, data: bytes) -> bool:
        return self._outer.create(self._key(key), data)

    def read(self, key: str, bytes_max: int) -> bytes:
        return self._outer.read(self._key(key), bytes_max)

    def list_objects(self, prefix: str = "") -> Iterator[StoredObject]:
        folder = prefix.rpartition("/")[0]
        for found in self.list_nested(folder):
            is_left_out = not prefix and found.key.startswith("_")
            if found.key.count("/") == 1 and found.key.startswith(prefix) and not is_left_out:
                yield found

    def list_nested(self, folder: str, after: str = "") -> Iterator[StoredObject]:
        below = self._key(folder) if folder else self._folder
        for found in self._outer.list_nested(below, self._key(after) if after else ""):
            yield found._replace(key=found.key.removeprefix(f"{self._folder}/"))

    def delete(self, keys: list[str]) -> None:
        self._outer.delete([self._key(key) for key in keys])

    def _key(self, key: str) -> str:
        return f"{self._folder}/{key}"


def open_target(config: TargetConfig) -> BackupTarget:
    """Opens a target without a request; a folder must exist. :class:`~txlog.model.errors.BadInput` for an unusable
    configuration."""
    outer = _open_whole(config)
    return outer if config.repository is None else NestedTarget(outer, config.repository)


def _open_whole(config: TargetConfig) -> BackupTarget:
    if isinstance(config, FolderConfig):
        from txlog.backup.folder_target import FolderTarget  # both know the objects of this module

        return FolderTarget(config.folder)
    assert isinstance(config, S3Config)
    from txlog.backup.s3_target import S3Target  # slow to import, and not needed for folders

    return S3Target(config)
