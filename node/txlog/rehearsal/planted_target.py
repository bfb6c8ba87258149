"""A target as a fault would leave it: reads are changed on their way, the objects themselves stay."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from txlog.backup.backup_errors import ObjectMissing
from txlog.backup.stored_object import StoredObject
from txlog.backup.target import BackupTarget

_WHOLE: Final = 1 << 30


def _same(_: str, data: bytes) -> bytes:
    return data


class PlantedTarget:
    """``hides``: keys that are not there. ``change``: what a read of a key gives. ``extra``: objects that are there
    besides, by key. Records that a reader writes (leases, and the like) go to the real target."""

    def __init__(
        self,
        real: BackupTarget,
        hides: Callable[[str], bool] = lambda _: False,
        change: Callable[[str, bytes], bytes] = _same,
        extra: dict[str, bytes] | None = None,
    ) -> None:
        self._real = real
        self._hides = hides
        self._change = change
        self._extra = extra or {}

    @property
    def location(self) -> str:
        return self._real.location

    def write(self, key: str, data: bytes) -> None:
        self._real.write(key, data)

    def create(self, key: str, data: bytes) -> bool:
        return self._real.create(key, data)

    def read(self, key: str, bytes_max: int) -> bytes:
        if key in self._extra:
            return self._extra[key][: bytes_max + 1]
        if self._hides(key):
            raise ObjectMissing(f"{self.location}/{key} is not there")
        return self._change(key, self._real.read(key, _WHOLE))[: bytes_max + 1]

    def list_objects(self, prefix: str = "") -> Iterator[StoredObject]:
        return (each for each in self._real.list_objects(prefix) if not self._hides(each.key))

    def list_nested(self, folder: str, after: str = "") -> Iterator[StoredObject]:
        for each in self._real.list_nested(folder, after):
            if not self._hides(each.key) and each.key not in self._extra:
                yield each
        for key, data in self._extra.items():
            if key.startswith(f"{folder}/") and key > after:
                yield StoredObject(key, len(data), 0.0)

    def delete(self, keys: list[str]) -> None:
        self._real.delete(keys)
