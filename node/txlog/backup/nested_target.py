"""The part of a target that belongs to one further repository: backups with the same names and formats, one folder
deeper. An older program leaves that folder out, as it does with those of archives."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from txlog.backup.stored_object import StoredObject

if TYPE_CHECKING:
    from txlog.backup.target import BackupTarget

REPOSITORIES_FOLDER: Final = "_repositories"
"""On a target: a folder for each further repository."""


class NestedTarget:
    """A target whose keys are below the folder of ``repository`` on ``outer``. The name may have been another
    repository's before: each backup says of which log it is."""

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
